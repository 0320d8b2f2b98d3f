"""Swin Transformer V2 at the sizes of Moirai's table IV (Liu et al., CVPR 2022)."""

from __future__ import annotations

from placegap.instances.corpus.layers import (
    activation,
    add,
    concat,
    dense,
    dropout,
    layer_norm,
    matmul,
    placeholder,
    softmax,
)
from placegap.instances.corpus.tape import Tape, Tensor, Weight

WINDOW, PATCH = 7, 4
"""Sides of a window, in patches, and of a patch, in pixels."""

RELATIVE = 512
"""Hidden units of the network that makes relative position biases."""


def swin(
    tape: Tape,
    batch: int,
    depths: tuple[int, ...],
    width: int,
    heads: int,
    pixels: int = 1100,
    classes: int = 1000,
) -> None:
    """Write Swin V2 with one chain of ops per head of the first stage.

    Later stages have more heads; each of their chains computes several. The image is padded to
    whole windows in all stages. Moirai states layers, width, heads and pixels; how the layers are
    spread over the stages follows the published models: few in all stages but the third.
    """
    unit = PATCH * WINDOW * 2 ** (len(depths) - 1)
    side = -(-pixels // unit) * unit // PATCH
    image = placeholder(tape, (batch, 3, pixels, pixels))
    with tape.scope("patch_embed"):
        weights = [tape.weight("weight", (width, 3, PATCH, PATCH)), tape.weight("bias", (width,))]
        x = tape.op(
            "Conv2d",
            [image],
            (batch, side * side, width),
            weights=weights,
            flops=2 * batch * side * side * width * 3 * PATCH**2,
            rule="conv",
        )
        x = layer_norm(tape, x)
    for stage, depth in enumerate(depths):
        for number in range(depth):
            with tape.scope(f"layers.{stage}.blocks.{number}"):
                x = _block(tape, x, heads, heads << stage, shifted=number % 2 == 1)
        if stage < len(depths) - 1:
            with tape.scope(f"layers.{stage}.downsample"):
                x = _merged(tape, x)
    x = layer_norm(tape, x)
    x = tape.op("AdaptiveAvgPool1d", [x], (batch, x.shape[2]), flops=batch * x.shape[1])
    dense(tape, x, classes, name="head")


def _merged(tape: Tape, x: Tensor) -> Tensor:
    """Four patches become one, of twice the width."""
    batch, patches, width = x.shape
    joined = tape.op("Concat", [x], (batch, patches // 4, 4 * width), flops=0, rule="concat")
    return layer_norm(tape, dense(tape, joined, 2 * width, bias=False, name="reduction"))


def _block(tape: Tape, x: Tensor, chains: int, heads: int, *, shifted: bool) -> Tensor:
    mixed = dropout(tape, layer_norm(tape, _windows(tape, x, chains, heads, shifted), "norm1"))
    x = add(tape, x, mixed)
    inner = activation(tape, dense(tape, x, 4 * x.shape[2], name="fc1"), "Gelu", 8)
    outer = dense(tape, inner, x.shape[2], name="fc2")
    return add(tape, x, dropout(tape, layer_norm(tape, outer, "norm2")))


def _windows(tape: Tape, x: Tensor, chains: int, heads: int, shifted: bool) -> Tensor:
    """Attention within windows: cosines of queries and keys, and biases by relative position."""
    batch, patches, width = x.shape
    area = WINDOW * WINDOW
    windows = batch * patches // area
    kind = "roll" if shifted else "window_partition"
    cut = tape.op(kind, [x], (windows, area, width), flops=0)
    apart, each = width // chains, heads // chains
    bias = _relative_bias(tape, heads, area)
    outputs = []
    for number in range(chains):
        with tape.scope(f"head{number}"):
            shape = (windows, area, apart)
            query = _plus(tape, _times(tape, cut, shape, "query"), "query_bias")
            key = _times(tape, cut, shape, "key")
            value = _plus(tape, _times(tape, cut, shape, "value"), "value_bias")
            query, key = (
                tape.op("normalize", [tensor], shape, flops=3 * windows * area * apart)
                for tensor in (query, key)
            )
            by_head = (windows * each, area, apart // each)
            turned = Tensor(key.maker, (windows * each, apart // each, area))
            scores = matmul(tape, Tensor(query.maker, by_head), turned, kind="matmul")
            scores = tape.op(
                "mul", [scores], scores.shape, weights=[tape.weight("logit_scale", (each,))]
            )
            weights = softmax(tape, add(tape, scores, bias))
            mixed = matmul(tape, weights, Tensor(value.maker, by_head), kind="matmul")
            outputs.append(Tensor(mixed.maker, shape))
    out = dense(tape, concat(tape, outputs, 2), width, name="proj")
    return Tensor(out.maker, x.shape)  # the windows side by side again


def _times(tape: Tape, x: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    weight = tape.weight(name, (x.shape[-1], shape[-1]))
    return tape.op(
        "matmul",
        [x],
        shape,
        weights=[weight],
        rule="product",
        flops=2 * shape[0] * shape[1] * shape[2] * x.shape[-1],
    )


def _plus(tape: Tape, x: Tensor, name: str) -> Tensor:
    weight: Weight = tape.weight(name, x.shape[-1:])
    return tape.op("add", [x], x.shape, weights=[weight], rule="bias")


def _relative_bias(tape: Tape, heads: int, area: int) -> Tensor:
    """A small network from the distance of two patches to a bias for each head."""
    distances = (2 * WINDOW - 1) ** 2
    with tape.scope("cpb_mlp"):
        weights = [
            tape.weight("fc1", (2, RELATIVE)),
            tape.weight("fc1_bias", (RELATIVE,)),
            tape.weight("fc2", (RELATIVE, heads)),
        ]
        return tape.op(
            "cpb_mlp",
            [],
            (1, area, area),
            weights=weights,
            flops=2 * distances * RELATIVE * (2 + heads),
        )
