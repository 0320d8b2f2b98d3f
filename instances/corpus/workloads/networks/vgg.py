"""VGG-16 (Simonyan, Zisserman, ICLR 2015, table 1, configuration D)."""

from __future__ import annotations

from placegap.instances.corpus.layers import (
    activation,
    conv,
    dropout,
    loss,
    placeholder,
    pool,
    view,
)
from placegap.instances.corpus.tape import Tape

STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
"""Convolutions of each stage, and their channels."""


def vgg16(tape: Tape, batch: int, classes: int = 1000) -> None:
    """Write VGG-16 on images of 224 x 224, its three last layers as convolutions (TF-Slim).

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> vgg16(tape, 1)
    >>> sum(weight.size for op in tape.ops for weight in op.weights)
    138357544
    """
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
