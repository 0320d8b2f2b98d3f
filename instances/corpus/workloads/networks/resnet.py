"""ResNet-50 and ResNet-200 with bottleneck blocks (He et al., CVPR 2016 and ECCV 2016)."""

from __future__ import annotations

from placegap.instances.corpus.layers import (
    activation,
    add,
    batch_norm,
    conv,
    dense,
    global_mean,
    loss,
    placeholder,
    pool,
    view,
)
from placegap.instances.corpus.tape import Tape, Tensor

BLOCKS = {50: (3, 4, 6, 3), 200: (3, 24, 36, 3)}
"""Blocks of each stage, by the number of layers."""


def resnet(tape: Tape, batch: int, layers: int = 50, classes: int = 1000) -> None:
    """Write a ResNet on images of 224 x 224, strides on the 3 x 3 convolutions.

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> resnet(tape, 1)
    >>> sum(weight.size for op in tape.ops for weight in op.weights if weight.trained)
    25557032
    """
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
