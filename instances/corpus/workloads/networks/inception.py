"""Inception-v3 (Szegedy et al., CVPR 2016), with its auxiliary head in training."""

from __future__ import annotations

from collections.abc import Sequence

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
    placeholder,
    pool,
    scale,
    view,
)
from placegap.instances.corpus.tape import Tape, Tensor

Kernel = int | tuple[int, int]
Branch = Sequence[tuple[int, Kernel]]
"""Channels and kernel of each convolution of a branch."""


def inception_v3(tape: Tape, batch: int, classes: int = 1000) -> None:
    """Write Inception-v3 on images of 299 x 299; normalisations shift and do not scale.

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> inception_v3(tape, 1)
    >>> sum(weight.size for op in tape.ops for weight in op.weights if weight.trained)
    23817352
    """
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
