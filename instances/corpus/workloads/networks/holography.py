"""Tensor Holography's network (Shi et al., Nature 2021): 30 convolutions of 24 filters."""

from __future__ import annotations

from placegap.instances.corpus.layers import (
    activation,
    add,
    batch_norm,
    conv,
    placeholder,
)
from placegap.instances.corpus.tape import Tape

LAYERS, FILTERS, SIDE = 30, 24, 384
"""Convolutions, their filters, and the side of a training image (MIT-CGH-4K has 384 x 384)."""


def holography(tape: Tape, batch: int) -> None:
    """Write the network from an image with depth to the amplitudes and phases of three colours.

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> holography(tape, 1)
    >>> sum(weight.size for op in tape.ops for weight in op.weights if weight.trained)
    148704
    """
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
