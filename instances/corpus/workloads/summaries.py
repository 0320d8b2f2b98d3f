"""What TensorFlow's training scripts watch: histograms, shares of zeros, norms of gradients."""

from __future__ import annotations

from placegap.instances.corpus.tape import Draft

INDEX_BYTES = 8
"""A small tensor on shapes: an axis, a size."""

ZERO_FRACTION = (
    "size",
    "LessEqual/y",
    "LessEqual",
    "cond/Switch",
    "cond/switch_t",
    "cond/switch_f",
    "cond/pred_id",
    "cond/zeros",
    "cond/NotEqual/Switch",
    "cond/NotEqual",
    "cond/Cast",
    "cond/Const",
    "cond/Sum",
    "cond/Cast",
    "cond/zeros",
    "cond/NotEqual/Switch",
    "cond/NotEqual",
    "cond/Cast",
    "cond/Const",
    "cond/Sum",
    "cond/Merge",
    "sub",
    "Cast",
    "Cast",
    "truediv",
    "fraction",
)
"""The ops of TensorFlow 1.14's zero_fraction: counted in 32 or in 64 bits, whichever suffices."""

FROM_VALUE = ("cond/NotEqual/Switch",)
"""Those that read the value itself."""

FIXED = ("size", "LessEqual/y", "cond/zeros", "cond/Const")


def add_histogram(draft: Draft, name: str, value: int, count: int, backward: bool = False) -> None:
    """A histogram of a value of `count` numbers, with its tag."""
    tag = draft.add(f"{name}/summary/tag", "Const", [], INDEX_BYTES, view=True, backward=backward)
    draft.add(
        f"{name}/summary",
        "HistogramSummary",
        [value, tag],
        INDEX_BYTES,
        flops=count,
        backward=backward,
    )


def add_scalar(draft: Draft, name: str, value: int, backward: bool = False) -> None:
    """One number that is written down, with its tag."""
    tag = draft.add(f"{name}/scalar/tag", "Const", [], INDEX_BYTES, view=True, backward=backward)
    draft.add(
        f"{name}/scalar", "ScalarSummary", [value, tag], INDEX_BYTES, view=True, backward=backward
    )


def add_activity(draft: Draft, name: str, value: int, count: int) -> None:
    """Histogram and share of zeros of an activation.

    Examples
    --------
    >>> draft = Draft()
    >>> add_activity(draft, "x", draft.add("x", "Relu", [], 400, flops=100), 100)
    >>> len(draft.ops)
    31
    """
    add_histogram(draft, name, value, count)
    last, fixed = value, list[int]()
    for kind in ZERO_FRACTION:
        large = kind == "cond/NotEqual"
        inputs = [] if kind in FIXED else [value if kind in FROM_VALUE else last, *fixed]
        number = draft.add(
            f"{name}/zero_fraction/{kind}",
            kind.split("/")[-1] if kind != "LessEqual/y" else "Const",
            inputs,
            INDEX_BYTES if not large else count,
            flops=count if large else 0,
            view=not large,
            held_bytes=0,
        )
        if kind in FIXED:
            fixed.append(number)  # the next op reads it
        else:
            last, fixed = number, []
    add_scalar(draft, name, last)


def add_gradient_activity(draft: Draft, name: str, gradient: int, count: int) -> None:
    """Histogram and norm of a gradient."""
    add_histogram(draft, name, gradient, count, backward=True)
    last = gradient
    for kind in ("Mul", "Sum", "Sqrt"):
        last = draft.add(
            f"{name}/norm/{kind}",
            kind,
            [last],
            4 * count if kind == "Mul" else INDEX_BYTES,
            flops=count,
            held_bytes=0,
            view=kind == "Sqrt",
            backward=True,
        )
    add_scalar(draft, f"{name}/norm", last, backward=True)
