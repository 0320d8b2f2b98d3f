"""Convolutional networks, each as its framework writes it.

Inception-v3 (Szegedy et al., CVPR 2016), with its auxiliary head in training.

NASNet-A (Zoph et al., CVPR 2018) and PNASNet-5 (Liu et al., ECCV 2018), as TF-Slim builds them.

A cell combines two earlier outputs by five pairs of operations; which ones they are is what the
search found.

ResNet-50 and ResNet-200 with bottleneck blocks (He et al., CVPR 2016 and ECCV 2016).

VGG-16 (Simonyan, Zisserman, ICLR 2015, table 1, configuration D).

Tensor Holography's network (Shi et al., Nature 2021): 30 convolutions of 24 filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placegap.experiments.research.workloads.layers import (
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
from placegap.experiments.research.workloads.tape import Tape, Tensor

Kernel = int | tuple[int, int]
Branch = Sequence[tuple[int, Kernel]]  # channels and kernel of each convolution of a branch


def inception_v3(tape: Tape, batch: int, classes: int = 1000) -> None:
    """Write Inception-v3 on images of 299 x 299; normalisations shift and do not scale."""
    x = _unit(tape, placeholder(tape, (batch, 3, 299, 299)), 32, 3, 2, "valid")
    x = _unit(tape, x, 32, 3, 1, "valid")
    x = pool(tape, _unit(tape, x, 64, 3), 3, 2, padding="valid")
    x = _unit(tape, _unit(tape, x, 80, 1, 1, "valid"), 192, 3, 1, "valid")
    x = pool(tape, x, 3, 2, padding="valid")
    for pooled in (32, 64, 64):
        x = _mixed(tape, x, [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]], pooled)
    x = _reduced(tape, x, [[(384, 3)], [(64, 1), (96, 3), (96, 3)]])
    for width in (128, 160, 160, 192):
        seven: Branch = [(width, 1), (width, (1, 7)), (192, (7, 1))]
        double: Branch = [
            (width, 1),
            (width, (7, 1)),
            (width, (1, 7)),
            (width, (7, 1)),
            (192, (1, 7)),
        ]
        x = _mixed(tape, x, [[(192, 1)], seven, double], 192)
    side = x
    x = _reduced(
        tape, x, [[(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)]]
    )
    for _ in range(2):
        x = _widened(tape, x)
    logits = _head(tape, x, batch, classes)
    if tape.dialect.training:
        main = loss(tape, logits)
        if tape.dialect.framework == "tensorflow":
            with tape.scope("AuxLogits"):
                aux = loss(tape, _auxiliary(tape, side, batch, classes))
            add(tape, main, scale(tape, aux))


def _unit(
    tape: Tape, x: Tensor, channels: int, kernel: Kernel, stride: int = 1, padding: str = "same"
) -> Tensor:
    with tape.scope(tape.path("Conv2d")):
        x = conv(
            tape,
            x,
            channels,
            kernel,
            stride=stride,
            padding="valid" if padding == "valid" else "same",
        )
        return activation(tape, batch_norm(tape, x, scale=False))


def _chain(tape: Tape, x: Tensor, branch: Branch) -> Tensor:
    for channels, kernel in branch:
        x = _unit(tape, x, channels, kernel)
    return x


def _mixed(tape: Tape, x: Tensor, branches: Sequence[Branch], pooled: int) -> Tensor:
    with tape.scope(tape.path("Mixed")):
        ends = [_chain(tape, x, branch) for branch in branches]
        ends.append(_unit(tape, pool(tape, x, 3, kind="mean"), pooled, 1))
        return concat(tape, ends)


def _reduced(tape: Tape, x: Tensor, branches: Sequence[Branch]) -> Tensor:
    """A module that halves the image: the last convolution of each branch has stride 2."""
    with tape.scope(tape.path("Mixed")):
        ends = []
        for *first, (channels, kernel) in branches:
            end = _chain(tape, x, first)
            ends.append(_unit(tape, end, channels, kernel, 2, "valid"))
        ends.append(pool(tape, x, 3, 2, padding="valid"))
        return concat(tape, ends)


def _widened(tape: Tape, x: Tensor) -> Tensor:
    """A module whose 3 x 3 convolutions are side by side as 1 x 3 and 3 x 1."""
    with tape.scope(tape.path("Mixed")):
        ends = [_unit(tape, x, 320, 1)]
        for branch in ([(384, 1)], [(448, 1), (384, 3)]):
            end = _chain(tape, x, branch)
            ends.append(
                concat(tape, [_unit(tape, end, 384, (1, 3)), _unit(tape, end, 384, (3, 1))])
            )
        ends.append(_unit(tape, pool(tape, x, 3, kind="mean"), 192, 1))
        return concat(tape, ends)


def _head(tape: Tape, x: Tensor, batch: int, classes: int) -> Tensor:
    x = dropout(tape, global_mean(tape, x))
    if tape.dialect.framework == "tensorflow":
        logits = conv(tape, x, classes, 1, bias=True, name="Logits")
        return view(tape, logits, (batch, classes), "Squeeze")
    return dense(tape, view(tape, x, (batch, x.shape[1])), classes)


def _auxiliary(tape: Tape, x: Tensor, batch: int, classes: int) -> Tensor:
    x = pool(tape, x, 5, 3, kind="mean", padding="valid")
    x = _unit(tape, _unit(tape, x, 128, 1), 768, x.shape[2], 1, "valid")
    logits = conv(tape, x, classes, 1, bias=True, name="Logits")
    return view(tape, logits, (batch, classes), "Squeeze")


# Which state an operation reads, the operation, and the same for its partner; they are added.
Pair = tuple[int, str, int, str]


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
    """Write NASNet-A (6 @ 4032) on images of 331 x 331: 88.9 million parameters."""
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
            aux = loss(tape, _side_head(tape, activation(tape, side), batch, classes))
        add(tape, main, scale(tape, aux))


def _side_head(tape: Tape, x: Tensor, batch: int, classes: int) -> Tensor:
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
    x = conv(tape, x, None, kernel, stride=stride, name="depthwise")
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


BLOCKS = {50: (3, 4, 6, 3), 200: (3, 24, 36, 3)}  # blocks of each stage, by the number of layers


def resnet(tape: Tape, batch: int, layers: int = 50, classes: int = 1000) -> None:
    """Write a ResNet on images of 224 x 224, strides on the 3 x 3 convolutions."""
    x = placeholder(tape, (batch, 3, 224, 224))
    with tape.scope("conv1"):
        x = activation(tape, batch_norm(tape, conv(tape, x, 64, 7, stride=2)))
    x = pool(tape, x, 3, 2)
    for stage, count in enumerate(BLOCKS[layers]):
        for number in range(count):
            with tape.scope(f"block{stage + 1}/unit_{number + 1}"):
                x = _bottleneck(tape, x, 64 << stage, 2 if stage and not number else 1)
    x = global_mean(tape, x)
    if tape.dialect.framework == "tensorflow":  # TF-Slim's logits are a convolution
        x = view(tape, conv(tape, x, classes, 1, bias=True, name="logits"), (batch, classes))
    else:
        x = dense(tape, view(tape, x, (batch, x.shape[1])), classes)
    if tape.dialect.training:
        loss(tape, x)


def _bottleneck(tape: Tape, x: Tensor, width: int, stride: int) -> Tensor:
    short = x
    if x.shape[1] != 4 * width:
        with tape.scope("shortcut"):
            short = batch_norm(tape, conv(tape, x, 4 * width, 1, stride=stride))
    for number, (channels, kernel, step) in enumerate(
        ((width, 1, 1), (width, 3, stride), (4 * width, 1, 1)), 1
    ):
        with tape.scope(f"conv{number}"):
            x = batch_norm(tape, conv(tape, x, channels, kernel, stride=step))
            x = activation(tape, x) if number < 3 else x
    return activation(tape, add(tape, x, short))


STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # convolutions of each stage, channels


def vgg16(tape: Tape, batch: int, classes: int = 1000) -> None:
    """Write VGG-16 on images of 224 x 224, its three last layers as convolutions (TF-Slim)."""
    x = placeholder(tape, (batch, 3, 224, 224))
    for stage, (count, channels) in enumerate(STAGES, 1):
        for number in range(1, count + 1):
            x = conv(tape, x, channels, 3, bias=True, name=f"conv{stage}_{number}")
            x = activation(tape, x)
        x = pool(tape, x, 2, 2)
    for name, kernel in (("fc6", 7), ("fc7", 1)):
        x = activation(tape, conv(tape, x, 4096, kernel, padding="valid", bias=True, name=name))
        x = dropout(tape, x)
    x = conv(tape, x, classes, 1, bias=True, name="fc8")
    x = view(tape, x, (batch, classes), "Squeeze")
    if tape.dialect.training:
        loss(tape, x)


# Convolutions, their filters, and the side of a training image (MIT-CGH-4K has 384 x 384).
LAYERS, FILTERS, SIDE = 30, 24, 384


def holography(tape: Tape, batch: int) -> None:
    """Write the network from an image with depth to the amplitudes and phases of three colours."""
    x = placeholder(tape, (batch, 4, SIDE, SIDE))
    with tape.scope("layer1"):
        x = activation(tape, batch_norm(tape, conv(tape, x, FILTERS, 3)))
    for number in range(2, LAYERS):
        with tape.scope(f"layer{number}"):
            before = x
            x = activation(tape, batch_norm(tape, conv(tape, x, FILTERS, 3)))
            x = add(tape, x, before)
    x = activation(tape, conv(tape, x, 6, 3, name="out"), "Tanh")
    if tape.dialect.training:
        target = placeholder(tape, x.shape, "Target")
        squares = tape.op("SquaredDifference", [x, target], x.shape, rule="squared_difference")
        tape.op("Mean", [squares], (1,), flops=batch, rule="mean", constants=("indices",))
