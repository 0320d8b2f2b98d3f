"""Weights as ops of a graph: TensorFlow's variables with all that belongs to one, and updates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from placegap.instances.corpus.forward import INDEX_BYTES, add_histogram
from placegap.instances.corpus.tape import FLOAT_BYTES, Dialect, Draft, Weight

RANDOM_VALUE = ("shape", "min", "max", "RandomUniform", "sub", "mul")
"""The ops of a random first value before the last; a constant one has one op."""


def add_variable(draft: Draft, weight: Weight, dialect: Dialect) -> tuple[int, int]:
    """A TensorFlow variable: its state, its first value, its read; the variable and the read.

    All are one colocation group, as TensorFlow has it. First values are assigned before the first
    step, so that they take no time in one.

    Examples
    --------
    >>> draft = Draft()
    >>> add_variable(draft, Weight("w", (3, 3)), Dialect("tensorflow"))
    (0, 1)
    >>> draft.ops[0].parameter_bytes, draft.ops[1].resident_bytes
    (36, 0)
    """
    size = weight.size * FLOAT_BYTES
    variable = draft.add(
        weight.name, "VariableV2", [], size, view=True, parameter_bytes=size, group=weight.name
    )
    if dialect.initial_values:
        _add_first_value(draft, weight.name, weight.decays, variable, size)
    if dialect.checkpoints:
        _assign(draft, f"save/{weight.name}", weight.name, variable, size)
    read = draft.add(
        f"{weight.name}/read", "Identity", [variable], size, view=True, group=weight.name
    )
    if dialect.training and dialect.summaries:
        add_histogram(draft, weight.name, read, weight.size)
    if dialect.training and dialect.averages:
        _add_average(draft, weight, read, dialect)
    return variable, read


def _add_first_value(draft: Draft, name: str, random: bool, variable: int, size: int) -> None:
    """Ops that make the first value of a variable, and assign it; none runs in a step."""
    drawn = f"{name}/Initializer"
    inputs: list[int] = []
    if random:
        shape, low, high = (
            draft.add(f"{drawn}/{kind}", "Const", [], INDEX_BYTES, view=True, group=name)
            for kind in RANDOM_VALUE[:3]
        )
        uniform = draft.add(
            f"{drawn}/RandomUniform", "RandomUniform", [shape], size, view=True, group=name
        )
        spread = draft.add(f"{drawn}/sub", "Sub", [high, low], INDEX_BYTES, view=True, group=name)
        scaled = draft.add(f"{drawn}/mul", "Mul", [uniform, spread], size, view=True, group=name)
        inputs = [scaled, low]
    kind = "Add" if random else "Const"
    value = draft.add(drawn, kind, inputs, size, view=True, group=name)
    draft.add(f"{name}/Assign", "Assign", [variable, value], 0, view=True, group=name)


def _assign(draft: Draft, name: str, group: str, variable: int, size: int) -> None:
    restored = draft.add(f"{name}/restored", "RestoreV2", [], size, view=True, group=group)
    draft.add(f"{name}/Assign", "Assign", [variable, restored], 0, view=True, group=group)


def _add_average(draft: Draft, weight: Weight, read: int, dialect: Dialect) -> None:
    """A running average of a variable: average -= (1 - decay) (average - variable)."""
    name, size = f"{weight.name}/ExponentialMovingAverage", weight.size * FLOAT_BYTES
    shadow = _add_slot(draft, weight, name, size, dialect)
    decay = draft.add(f"{name}/decay", "Const", [], INDEX_BYTES, view=True, group=weight.name)
    add = partial(draft.add, flops=weight.size, group=weight.name)
    apart = add(f"{name}/sub", "Sub", [shadow, read], size, held_bytes=0)
    share = add(f"{name}/mul", "Mul", [apart, decay], size, held_bytes=0)
    add(f"{name}/AssignSub", "AssignSub", [shadow, share], 0)


def add_update(
    draft: Draft,
    weight: Weight,
    holder: int,
    gradient: int,
    steered: Sequence[int],
    dialect: Dialect,
    group: str | None,
) -> None:
    """The optimizer's op for one weight, which holds the optimizer's state.

    In TensorFlow each slot is a variable; elsewhere the update holds them. `steered` are the
    numbers that it reads.
    """
    size = weight.size * FLOAT_BYTES
    slots: list[int] = []
    if dialect.framework == "tensorflow":
        slots = [
            _add_slot(draft, weight, f"{weight.name}/{dialect.optimizer}_{k}", size, dialect)
            for k in range(dialect.slots)
        ]
    state = 0 if slots else dialect.slots * size
    draft.add(
        f"{dialect.optimizer}/{weight.name}",
        f"Apply{dialect.optimizer}" if slots else dialect.optimizer,
        [holder, gradient, *slots, *steered],
        0,
        flops=(2 + 4 * dialect.slots) * weight.size,
        also_moved_bytes=(1 + dialect.slots) * size,  # inputs are read, weight and slots written
        state_bytes=state or None,
        group=group,
        backward=True,
    )


def _add_slot(draft: Draft, weight: Weight, name: str, size: int, dialect: Dialect) -> int:
    """A variable of a weight's size beside it: it is state, but no parameter."""
    slot = draft.add(name, "VariableV2", [], size, view=True, state_bytes=size, group=weight.name)
    if dialect.initial_values:
        value = draft.add(f"{name}/Initializer", "Const", [], size, view=True, group=weight.name)
        draft.add(f"{name}/Assign", "Assign", [slot, value], 0, view=True, group=weight.name)
    if dialect.checkpoints:
        _assign(draft, f"save/{name}", weight.name, slot, size)
    draft.add(f"{name}/read", "Identity", [slot], size, view=True, group=weight.name)
    return slot


def add_penalty(draft: Draft, weight: Weight, read: int, backward: bool) -> Sequence[int]:
    """The penalty on a weight's size, and its share of the gradient; what the loss adds up first.

    Returns the penalty, and the gradient's op if asked for.
    """
    size = weight.size * FLOAT_BYTES
    scale = draft.add(f"{weight.name}/Regularizer/scale", "Const", [], INDEX_BYTES, view=True)
    squares = draft.add(
        f"{weight.name}/Regularizer/L2Loss", "L2Loss", [read], FLOAT_BYTES, flops=2 * weight.size
    )
    penalty = draft.add(f"{weight.name}/Regularizer", "Mul", [squares, scale], FLOAT_BYTES, flops=1)
    if not backward:
        return [penalty]
    name = f"gradients/{weight.name}/Regularizer_grad"
    slope = draft.add(f"{name}/Mul", "Mul", [scale], FLOAT_BYTES, flops=1, backward=True)
    gradient = draft.add(
        f"{name}/L2Loss", "Mul", [read, slope], size, flops=weight.size, backward=True
    )
    return [penalty, gradient]


CLIPPING = (
    ("Mul", True),
    ("Const", False),
    ("Sum", False),
    ("Greater/y", False),
    ("Greater", False),
    ("ones_like", False),
    ("Select", False),
    ("Sqrt", False),
    ("Select", False),
    ("clip_norm", False),
    ("Maximum", False),
)
"""How TensorFlow scales a gradient down to a norm, up to the last product; whether an op is of the
gradient's size."""


def add_clipping(draft: Draft, name: str, gradient: int, count: int) -> int:
    """A gradient scaled down to a norm: its squares are summed up, then all is divided."""
    size, last, constants = count * FLOAT_BYTES, gradient, list[int]()
    for kind, is_large in CLIPPING:
        fixed = kind in ("Const", "Greater/y", "clip_norm")
        made = draft.add(
            f"{name}/clip/{kind}",
            kind.partition("/")[0] if kind != "clip_norm" else "Const",
            [] if fixed else [last, *constants],
            size if is_large else INDEX_BYTES,
            flops=count if is_large or kind == "Sum" else 0,
            view=not is_large and kind != "Sum",
            held_bytes=0,
            backward=True,
        )
        if fixed:
            constants.append(made)  # the next op reads it
        else:
            last, constants = made, []
    scaled = draft.add(
        f"{name}/clip/Mul", "Mul", [gradient], size, flops=count, held_bytes=0, backward=True
    )
    return draft.add(
        f"{name}/clip/truediv",
        "RealDiv",
        [scaled, last],
        size,
        flops=count,
        held_bytes=0,
        backward=True,
    )


GROUPS = {
    "init": ("Assign",),
    "train_op": ("Apply", "AssignSub"),
    "save": ("VariableV2", "RestoreV2"),
    "merged_summaries": ("HistogramSummary", "ScalarSummary"),
}
"""Ops that only wait for all ops of some kinds, by the beginnings of the kinds."""


def add_groups(draft: Draft) -> None:
    """TensorFlow's ops that a session runs: each waits for all ops of its kind."""
    for name, kinds in GROUPS.items():
        members = [k for k, op in enumerate(draft.ops) if op.kind.startswith(kinds)]
        if members:
            draft.add(name, "NoOp", [], 0, view=True, after=members, backward=True)
