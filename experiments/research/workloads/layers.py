"""Layers that networks are made of, as ops on a tape; each is written as its framework writes it.

Images are (batch, channels, height, width). FLOPs of convolutions and products count a
multiplication and an addition as two; other ops count what they do per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from placegap.experiments.research.workloads.tape import SIDE, Dims, Tape, Tensor, Weight

Padding = Literal["same", "valid"]


def placeholder(tape: Tape, shape: Dims, name: str = "Input") -> Tensor:
    """What the network is given: a batch of images, or of numbers of words."""
    return tape.op(name, [], shape, flops=0, rule="none", view=True)


def conv(
    tape: Tape,
    x: Tensor,
    channels: int | None,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: Padding = "same",
    bias: bool = False,
    name: str = "conv",
) -> Tensor:
    """Convolution; `channels` None: it is depthwise, with one filter per channel."""
    # Axes along which it can be split are stated where it computes more than it holds: where its
    # output is an image, not where it stands for a fully connected layer (FD-DPS, table 6).
    batch, inside, height, width = x.shape
    high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
    depthwise, outside = channels is None, inside if channels is None else channels
    shape = (
        batch,
        outside,
        _length(height, high, stride, padding),
        _length(width, wide, stride, padding),
    )
    axes = {"batch": batch, "out_channel": outside}
    if not depthwise:
        axes["in_channel"] = inside
    if tape.dialect.framework == "modules" or shape[2] * shape[3] == 1:
        axes = {}
    kinds = {"modules": "Conv2d", "onnx": "Conv", "tensorflow": "Conv2D"}
    kind = "DepthwiseConv2dNative" if depthwise else kinds[tape.dialect.framework]
    with tape.scope(name):
        weights = [
            tape.weight("weights", (outside, 1 if depthwise else inside, high, wide), decays=True)
        ]
        apart = bias and tape.dialect.framework == "tensorflow"
        if bias and not apart:
            weights.append(tape.weight("bias", (outside,)))
        out = tape.op(
            kind,
            [x],
            shape,
            weights=weights,
            flops=2 * prod(shape) * high * wide * (1 if depthwise else inside),
            rule="conv",
            constants=("dilation_rate",),
            axes={axis: size for axis, size in axes.items() if size > 1},
        )
        return add_bias(tape, out, outside) if apart else out


def _length(size: int, kernel: int, stride: int, padding: Padding) -> int:
    return -(-size // stride) if padding == "same" else (size - kernel) // stride + 1


def add_bias(tape: Tape, x: Tensor, channels: int) -> Tensor:
    """Add a number per channel."""
    kind = "BiasAdd" if tape.dialect.framework == "tensorflow" else "Add"
    return tape.op(kind, [x], x.shape, weights=[tape.weight("bias", (channels,))], rule="bias")


# What ONNX Runtime's training makes of a batch normalisation, beside its output.
STATISTICS = ("Y", "running_mean", "running_var", "saved_mean", "saved_var")


def batch_norm(tape: Tape, x: Tensor, *, scale: bool = True, name: str = "norm") -> Tensor:
    """Batch normalisation; without `scale` it only shifts. In TensorFlow fused or written out."""
    dialect, channels = tape.dialect, x.shape[1]
    with tape.scope(name):
        gamma = [tape.weight("gamma", (channels,))] if scale else []
        beta = tape.weight("beta", (channels,))
        averages = [
            tape.weight(f"moving_{what}", (channels,), trained=False)
            for what in ("mean", "variance")
        ]
        if dialect.framework == "tensorflow":
            if dialect.fused_norms or not dialect.training:
                constants = () if scale else ("gamma",)
                out = tape.op(
                    "FusedBatchNorm",
                    [x],
                    x.shape,
                    weights=[*gamma, beta],
                    rule="norm",
                    flops=8 * prod(x.shape),
                    constants=constants,
                )
                statistics = [Tensor(out.maker, (channels,), SIDE)] * 2
            else:
                mean, variance, out = _moments(tape, x, (channels,), gamma, beta)
                statistics = [mean, variance]
            if dialect.training:
                for average, statistic in zip(averages, statistics, strict=True):
                    _moving_average(tape, average, statistic)
            return out
        kind = "BatchNorm2d" if dialect.framework == "modules" else "BatchNormalization"
        held = averages if dialect.framework == "modules" else []
        return tape.op(
            kind,
            [x],
            x.shape,
            weights=[*gamma, beta, *held],
            rule="norm",
            flops=8 * prod(x.shape),
            outputs=STATISTICS,
        )


def _moving_average(tape: Tape, average: Weight, statistic: Tensor) -> None:
    """TensorFlow's four ops: average -= (1 - decay) (average - statistic)."""
    channels = average.shape
    with tape.scope("AssignMovingAvg"):
        apart = tape.op("Sub", [statistic], channels, weights=[average], rule="none")
        share = tape.op("Mul", [apart], channels, rule="none", constants=("decay",))
        tape.op("AssignSub", [share], channels, weights=[average], rule="none")


def _moments(
    tape: Tape, x: Tensor, small: Dims, gamma: Sequence[Weight], beta: Weight
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalisation as TensorFlow writes it out: mean, variance, then scale and shift."""
    count = prod(x.shape)
    with tape.scope("moments"):
        mean = tape.op("Mean", [x], small, flops=count, rule="mean", constants=("indices",))
        still = tape.op("StopGradient", [mean], small, rule="none", view=True)
        spread = tape.op(
            "SquaredDifference", [x, still], x.shape, flops=2 * count, rule="squared_difference"
        )
        variance = tape.op(
            "Mean", [spread], small, flops=count, rule="mean", constants=("indices",)
        )
        mean, variance = (
            tape.op("Squeeze", [value], small, rule="view", view=True) for value in (mean, variance)
        )
    with tape.scope("batchnorm"):
        safe = tape.op("Add", [variance], small, rule="scale", constants=("epsilon",))
        factor = tape.op("Rsqrt", [safe], small)
        for weight in gamma:
            factor = tape.op("Mul", [factor], small, weights=[weight], rule="multiply")
        scaled = tape.op("Mul", [x, factor], x.shape, rule="multiply_broadcast")
        centre = tape.op("Mul", [mean, factor], small, rule="multiply")
        shift = tape.op("Sub", [centre], small, weights=[beta], rule="add")
        out = tape.op("Add", [scaled, shift], x.shape, rule="broadcast")
    return mean, variance, out


def layer_norm(tape: Tape, x: Tensor, name: str = "norm") -> Tensor:
    """Layer normalisation over the last axis."""
    dialect, width = tape.dialect, x.shape[-1]
    with tape.scope(name):
        gamma, beta = tape.weight("gamma", (width,)), tape.weight("beta", (width,))
        if dialect.framework == "tensorflow":
            return _layer_norm_written_out(tape, x, gamma, beta)
        kind = "LayerNorm" if dialect.framework == "modules" else "LayerNormalization"
        outputs = ("saved_mean", "saved_inv_std_var")
        return tape.op(
            kind,
            [x],
            x.shape,
            weights=[gamma, beta],
            rule="norm",
            flops=8 * prod(x.shape),
            outputs=outputs,
        )


def _layer_norm_written_out(tape: Tape, x: Tensor, gamma: Weight, beta: Weight) -> Tensor:
    """As Tensor2Tensor writes it."""
    small, count = (*x.shape[:-1], 1), prod(x.shape)
    mean = tape.op("Mean", [x], small, flops=count, rule="mean", constants=("indices",))
    centred = tape.op("Sub", [x, mean], x.shape, rule="broadcast")
    squares = tape.op("Square", [centred], x.shape)
    variance = tape.op("Mean", [squares], small, flops=count, rule="mean", constants=("indices",))
    safe = tape.op("Add", [variance], small, rule="scale", constants=("epsilon",))
    factor = tape.op("Rsqrt", [safe], small)
    scaled = tape.op("Mul", [centred, factor], x.shape, rule="multiply_broadcast")
    scaled = tape.op("Mul", [scaled], x.shape, weights=[gamma], rule="multiply_broadcast")
    return tape.op("Add", [scaled], x.shape, weights=[beta], rule="broadcast")


def activation(tape: Tape, x: Tensor, kind: str = "Relu", flops: int = 1) -> Tensor:
    """An elementwise function, of `flops` per element."""
    if tape.dialect.framework == "modules":
        kind = {"Relu": "ReLU", "Gelu": "GELU"}.get(kind, kind)
    return tape.op(kind, [x], x.shape, flops=flops * prod(x.shape))


def add(tape: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Sum of two tensors; the second one may be repeated along axes of the first."""
    rule = "add" if a.shape == b.shape else "broadcast"
    kind = "add" if tape.dialect.framework == "modules" else "Add"
    return tape.op(kind, [a, b], a.shape, rule=rule)


def multiply(tape: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Product, element by element."""
    rule = "multiply" if a.shape == b.shape else "multiply_broadcast"
    return tape.op("Mul", [a, b], a.shape, rule=rule)


def scale(tape: Tape, x: Tensor, kind: str = "Mul") -> Tensor:
    """Product with, or division by, a constant."""
    return tape.op(kind, [x], x.shape, rule="scale", constants=("value",))


def concat(tape: Tape, parts: Sequence[Tensor], axis: int = 1) -> Tensor:
    """Tensors side by side along an axis."""
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    kind = "ConcatV2" if tape.dialect.framework == "tensorflow" else "Concat"
    return tape.op(kind, parts, tuple(shape), flops=0, rule="concat", constants=("axis",))


def split(tape: Tape, x: Tensor, parts: int) -> list[Tensor]:
    """Equal parts along the last axis."""
    shape = (*x.shape[:-1], x.shape[-1] // parts)
    whole = tape.op(
        "Split", [x], shape, flops=0, rule="split", parts=parts, constants=("split_dim",)
    )
    return [Tensor(whole.maker, shape, part) for part in range(parts)]


def pool(
    tape: Tape,
    x: Tensor,
    kernel: int,
    stride: int = 1,
    *,
    kind: Literal["max", "mean"] = "max",
    padding: Padding = "same",
) -> Tensor:
    """Largest or mean value of each window."""
    batch, channels, height, width = x.shape
    shape = (
        batch,
        channels,
        _length(height, kernel, stride, padding),
        _length(width, kernel, stride, padding),
    )
    names = {
        "modules": {"max": "MaxPool2d", "mean": "AvgPool2d"},
        "onnx": {"max": "MaxPool", "mean": "AveragePool"},
        "tensorflow": {"max": "MaxPool", "mean": "AvgPool"},
    }
    return tape.op(
        names[tape.dialect.framework][kind],
        [x],
        shape,
        flops=prod(shape) * kernel * kernel,
        rule=f"{kind}_pool",
    )


def global_mean(tape: Tape, x: Tensor) -> Tensor:
    """Mean of each channel over the image."""
    shape = (*x.shape[:2], 1, 1)
    if tape.dialect.framework == "tensorflow":
        return tape.op("Mean", [x], shape, flops=prod(x.shape), rule="mean", constants=("indices",))
    kind = "AdaptiveAvgPool2d" if tape.dialect.framework == "modules" else "GlobalAveragePool"
    return tape.op(kind, [x], shape, flops=prod(x.shape), rule="mean_pool")


def view(tape: Tape, x: Tensor, shape: Dims, kind: str = "Reshape") -> Tensor:
    """The same numbers in another shape; it takes no time."""
    return tape.op(kind, [x], shape, rule="view", view=True, constants=("shape",))


def transpose(tape: Tape, x: Tensor, shape: Dims) -> Tensor:
    """Axes in another order, which moves the data."""
    return tape.op("Transpose", [x], shape, flops=0, rule="transpose", constants=("perm",))


def dense(tape: Tape, x: Tensor, width: int, *, bias: bool = True, name: str = "dense") -> Tensor:
    """Fully connected layer on the last axis."""
    inside = x.shape[-1]
    shape = (*x.shape[:-1], width)
    modules = tape.dialect.framework == "modules"
    with tape.scope(name):
        weights = [tape.weight("weights", (inside, width), decays=True)]
        if bias and modules:
            weights.append(tape.weight("bias", (width,)))
    flops = 2 * prod(shape) * inside
    if modules:
        own = "Linear" if name == "dense" else name
        return tape.op("Linear", [x], shape, weights=weights, flops=flops, rule="product", name=own)
    with tape.scope(name):
        out = tape.op("MatMul", [x], shape, weights=weights, flops=flops, rule="product")
        return add_bias(tape, out, width) if bias else out


def matmul(tape: Tape, a: Tensor, b: Tensor, *, kind: str = "MatMul") -> Tensor:
    """Product of two stacks of matrices."""
    shape = (*a.shape[:-1], b.shape[-1])
    return tape.op(kind, [a, b], shape, flops=2 * prod(shape) * a.shape[-1], rule="product")


def softmax(tape: Tape, x: Tensor) -> Tensor:
    """Softmax over the last axis."""
    return tape.op("Softmax", [x], x.shape, flops=5 * prod(x.shape), rule="softmax")


def loss(tape: Tape, logits: Tensor, kind: str = "SparseSoftmaxCrossEntropyWithLogits") -> Tensor:
    """Cross entropy of a batch, as one number per sample."""
    return tape.op(kind, [logits], logits.shape[:-1], flops=6 * prod(logits.shape), rule="loss")


def embedding(tape: Tape, ids: Tensor, words: int, width: int, name: str = "embedding") -> Tensor:
    """Rows of a table of words, as one vector per word."""
    with tape.scope(name):
        table = tape.weight("weights", (words, width))
    kind = {"modules": "Embedding", "onnx": "Gather", "tensorflow": "GatherV2"}
    return tape.op(
        kind[tape.dialect.framework],
        [ids],
        (*ids.shape, width),
        weights=[table],
        flops=0,
        rule="gather",
        constants=("axis",),
        name=name,
    )


def dropout(tape: Tape, x: Tensor) -> Tensor:
    """Dropout; TensorFlow draws and compares in ops of their own, and only in training."""
    if tape.dialect.framework != "tensorflow":
        kind = "Dropout" if tape.dialect.framework == "modules" else "TrainableDropout"
        return tape.op(kind, [x], x.shape, outputs=("mask", "ratio"))
    if not tape.dialect.training:
        return x
    with tape.scope("dropout"):
        drawn = tape.op("RandomUniform", [], x.shape, rule="none", constants=("shape",))
        spread = tape.op("Mul", [drawn], x.shape, rule="none", constants=("min", "max"))
        kept = tape.op("Add", [spread], x.shape, rule="none", constants=("keep_prob",))
        mask = tape.op("Floor", [kept], x.shape, rule="none")
        larger = scale(tape, x, "RealDiv")
        return multiply(tape, larger, mask)
