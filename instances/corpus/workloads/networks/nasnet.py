"""NASNet-A (Zoph et al., CVPR 2018) and PNASNet-5 (Liu et al., ECCV 2018), as TF-Slim builds them.

A cell combines two earlier outputs by five pairs of operations; which ones they are is what the
search found.
"""

from __future__ import annotations

from dataclasses import dataclass

from placegap.instances.corpus.layers import (
    activation,
    add,
    batch_norm,
    concat,
    conv,
    dense,
    dropout,
    global_mean,
    loss,
    multiply,
    placeholder,
    pool,
    scale,
    view,
)
from placegap.instances.corpus.tape import Tape, Tensor

Pair = tuple[int, str, int, str]
"""Which state an operation reads, the operation, and the same for its partner; they are added."""


@dataclass(frozen=True)
class Cells:
    """The cells of a network: pairs of operations, and the states that the output leaves out."""

    pairs: tuple[Pair, ...]
    used: tuple[int, ...]


NASNET_NORMAL = Cells(
    (
        (0, "sep5", 1, "sep3"),
        (1, "sep5", 1, "sep3"),
        (0, "mean", 1, "none"),
        (1, "mean", 1, "mean"),
        (0, "sep3", 0, "none"),
    ),
    (0,),
)
NASNET_REDUCTION = Cells(
    (
        (0, "sep5", 1, "sep7"),
        (0, "max", 1, "sep7"),
        (0, "mean", 1, "sep5"),
        (3, "none", 2, "mean"),
        (2, "sep3", 0, "max"),
    ),
    (0, 1, 2),
)
PNASNET = Cells(
    (
        (1, "sep5", 1, "max"),
        (0, "sep7", 0, "max"),
        (0, "sep5", 0, "sep3"),
        (4, "sep3", 0, "max"),
        (1, "sep3", 0, "none"),
    ),
    (0, 1),
)


@dataclass(frozen=True)
class CellPlan:
    """A network of cells: how many, how wide, and on which images."""

    normal: Cells
    reduction: Cells | None
    cells: int
    filters: int
    stem: int
    image: int
    drops_paths: bool


NASNET_LARGE = CellPlan(NASNET_NORMAL, NASNET_REDUCTION, 18, 168, 96, 331, True)
PNASNET_MOBILE = CellPlan(PNASNET, None, 9, 54, 32, 224, False)


def nasnet_large(tape: Tape, batch: int, classes: int = 1000) -> None:
    """Write NASNet-A (6 @ 4032) on images of 331 x 331: 88.9 million parameters.

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> nasnet_large(tape, 1)
    >>> round(sum(weight.size for op in tape.ops for weight in op.weights) / 1e6, 2)
    88.95
    """
    _network(tape, NASNET_LARGE, batch, classes)


def pnasnet_mobile(tape: Tape, batch: int, classes: int = 1000) -> None:
    """Write PNASNet-5 (N = 3, F = 54) on images of 224 x 224: 5.1 million parameters."""
    _network(tape, PNASNET_MOBILE, batch, classes)


def _network(tape: Tape, plan: CellPlan, batch: int, classes: int) -> None:
    image = placeholder(tape, (batch, 3, plan.image, plan.image))
    with tape.scope("conv0"):
        x = batch_norm(tape, conv(tape, image, plan.stem, 3, stride=2, padding="valid"))
    states: list[Tensor | None] = [None, x]
    stem_cells = plan.reduction or plan.normal
    for number, filters in enumerate((plan.filters // 4, plan.filters // 2)):
        with tape.scope(f"cell_stem_{number}"):
            x = _cell(tape, plan, stem_cells, x, states[-2], filters, 2)
        states.append(x)
    filters, side = plan.filters, x
    reductions = [plan.cells * k // 3 for k in (1, 2)]
    for number in range(plan.cells):
        at_reduction = number in reductions
        filters *= 2 if at_reduction else 1
        previous = states[-2]
        if at_reduction and plan.reduction is not None:
            with tape.scope(f"reduction_cell_{number}"):
                x = _cell(tape, plan, plan.reduction, x, previous, filters, 2)
            states.append(x)
            previous = states[-2]
        stride = 2 if at_reduction and plan.reduction is None else 1
        with tape.scope(f"cell_{number}"):
            x = _cell(tape, plan, plan.normal, x, previous, filters, stride)
        states.append(x)
        if number == reductions[1] - 1:
            side = x
    x = dropout(tape, global_mean(tape, activation(tape, x)))
    logits = dense(tape, view(tape, x, (batch, x.shape[1])), classes, name="final_layer")
    if tape.dialect.training:
        main = loss(tape, logits)
        with tape.scope("aux"):
            aux = loss(tape, _auxiliary(tape, activation(tape, side), batch, classes))
        add(tape, main, scale(tape, aux))


def _auxiliary(tape: Tape, x: Tensor, batch: int, classes: int) -> Tensor:
    x = pool(tape, x, 5, 3, kind="mean", padding="valid")
    x = activation(tape, batch_norm(tape, conv(tape, x, 128, 1, name="proj")))
    x = conv(tape, x, 768, x.shape[2], padding="valid")
    x = activation(tape, batch_norm(tape, x))
    return dense(tape, view(tape, x, (batch, 768), "Flatten"), classes)


def _cell(
    tape: Tape,
    plan: CellPlan,
    cells: Cells,
    x: Tensor,
    previous: Tensor | None,
    filters: int,
    stride: int,
) -> Tensor:
    before = x if previous is None else _fitted(tape, x, previous, filters)
    with tape.scope("1x1"):
        first = batch_norm(tape, conv(tape, activation(tape, x), filters, 1))
    states = [first, before]
    for number, (left, left_kind, right, right_kind) in enumerate(cells.pairs):
        with tape.scope(f"comb_iter_{number}"):
            ends = [
                _operation(tape, plan, kind, states[at], filters, stride if at < 2 else 1)
                for at, kind in ((left, left_kind), (right, right_kind))
            ]
            states.append(add(tape, *ends))
    last = states[-1]
    kept = []
    for number, state in enumerate(states):
        if number in cells.used:
            continue
        if state.shape != last.shape:
            with tape.scope(f"reduction_{number}"):
                state = _halved(tape, state, filters, state.shape[2] // last.shape[2])
        kept.append(state)
    return concat(tape, kept)


def _fitted(tape: Tape, x: Tensor, previous: Tensor, filters: int) -> Tensor:
    """The output before the last, brought to the size of the last."""
    if previous.shape[2] != x.shape[2]:
        with tape.scope("prev_reduction"):
            return _halved(tape, activation(tape, previous), filters, 2)
    if previous.shape[1] != filters:
        with tape.scope("prev_1x1"):
            return batch_norm(tape, conv(tape, activation(tape, previous), filters, 1))
    return previous


def _halved(tape: Tape, x: Tensor, filters: int, stride: int) -> Tensor:
    """Two pools and convolutions side by side, one shifted by a pixel."""
    if stride == 1:
        return batch_norm(tape, conv(tape, x, filters, 1, name="path_conv"))
    first = conv(
        tape,
        pool(tape, x, 1, stride, kind="mean", padding="valid"),
        filters // 2,
        1,
        name="path1_conv",
    )
    batch, channels, height, width = x.shape
    padded = tape.op(
        "Pad",
        [x],
        (batch, channels, height + 1, width + 1),
        flops=0,
        rule="pad",
        constants=("paddings",),
    )
    shifted = tape.op(
        "StridedSlice",
        [padded],
        x.shape,
        flops=0,
        rule="pad",
        constants=("begin", "end", "strides"),
    )
    second = pool(tape, shifted, 1, stride, kind="mean", padding="valid")
    second = conv(tape, second, filters - filters // 2, 1, name="path2_conv")
    return batch_norm(tape, concat(tape, [first, second]), name="final_path_bn")


def _operation(
    tape: Tape, plan: CellPlan, kind: str, x: Tensor, filters: int, stride: int
) -> Tensor:
    if kind == "none":
        if stride == 1 and x.shape[1] == filters:
            return x
        with tape.scope("1x1"):
            return batch_norm(tape, conv(tape, activation(tape, x), filters, 1, stride=stride))
    with tape.scope(tape.path(kind)):
        if kind in ("max", "mean"):
            x = pool(tape, x, 3, stride, kind="max" if kind == "max" else "mean")
            if x.shape[1] != filters:
                x = batch_norm(tape, conv(tape, x, filters, 1, name="1x1"))
        else:
            for step in (stride, 1):
                x = _separable(tape, activation(tape, x), filters, int(kind[-1]), step)
        return _drop_path(tape, x) if plan.drops_paths else x


def _separable(tape: Tape, x: Tensor, filters: int, kernel: int, stride: int) -> Tensor:
    x = conv(tape, x, 0, kernel, stride=stride, depthwise=True, name="depthwise")
    return batch_norm(tape, conv(tape, x, filters, 1, name="pointwise"))


def _drop_path(tape: Tape, x: Tensor) -> Tensor:
    """Leave a branch out for some samples, in training, ever more often as training goes on."""
    if not tape.dialect.training or tape.dialect.framework != "tensorflow":
        return x
    samples = (x.shape[0], 1, 1, 1)
    with tape.scope("drop_path"):
        step = tape.op("Cast", [], (1,), rule="none")
        ratio = tape.op("RealDiv", [step], (1,), rule="none", constants=("total_steps",))
        ratio = tape.op("Minimum", [ratio], (1,), rule="none", constants=("y",))
        ratio = tape.op("Mul", [ratio], (1,), rule="none", constants=("y",))
        keep = tape.op("Sub", [ratio], (1,), rule="none", constants=("x",))
        drawn = tape.op("RandomUniform", [], samples, rule="none", constants=("shape",))
        drawn = tape.op("Mul", [drawn], samples, rule="none", constants=("min", "max"))
        chance = tape.op("Add", [drawn, keep], samples, rule="none")
        mask = tape.op("Floor", [chance], samples, rule="none")
        larger = tape.op("RealDiv", [x, keep], x.shape, rule="scale")
        return multiply(tape, larger, mask)
