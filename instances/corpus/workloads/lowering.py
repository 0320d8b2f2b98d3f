"""From a tape to a graph: forward ops, their gradients, and the updates, in a dialect's words."""

from __future__ import annotations

from placegap.instances.corpus.forward import (
    INDEX_BYTES,
    Lowered,
    add_clipping,
    add_gradient_activity,
    add_groups,
    add_update,
    lower_forward,
    size_of,
)
from placegap.instances.corpus.lowering import add_backward
from placegap.instances.corpus.tape import Tape
from placegap.instances.problem.instance import Graph, Provenance
from placegap.instances.reading.errors import paused_collector

STEERED_BY = {
    "GradientDescent": ("learning_rate",),
    "Momentum": ("learning_rate", "momentum"),
    "RMSProp": ("learning_rate", "decay", "momentum", "epsilon"),
    "Adam": ("beta1_power", "beta2_power", "learning_rate", "beta1", "beta2", "epsilon"),
}
"""Numbers that every update of an optimizer reads."""


def lower(tape: Tape, name: str, provenance: Provenance) -> Graph:
    """The graph of a network: inference, or a training step if the dialect is one of training.

    The last op of the tape is the loss, or the output. O(ops).

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES_TRAINING
    >>> from placegap.instances.corpus.layers import dense, placeholder
    >>> tape = Tape(MODULES_TRAINING)
    >>> out = dense(tape, placeholder(tape, (2, 3)), 4)
    >>> [op.name for op in lower(tape, "two", Provenance()).ops]
    ['Input', 'Linear', 'Linear/backward', 'Input/backward']
    """
    with paused_collector():
        lowered = lower_forward(tape)
        if tape.dialect.training:
            add_backward(lowered)
            _add_updates(lowered)
    return lowered.draft.graph(name, provenance)


def _add_updates(lowered: Lowered) -> None:
    """Add the optimizer's ops: one per trained weight, where weights are ops."""
    if not lowered.apart:
        return
    draft, dialect = lowered.draft, lowered.tape.dialect
    steered: list[int] = []
    if lowered.tensorflow:
        steered = [
            draft.add(
                f"{dialect.optimizer}/{name}", "Const", [], INDEX_BYTES, view=True, backward=True
            )
            for name in STEERED_BY[dialect.optimizer]
        ]
    for name, weight in lowered.weights.items():
        found = lowered.of_weight.get(name, [])
        if weight.trained and found:
            [gradient] = lowered.summed(name, found, size_of(weight), state=True)
            if dialect.activity:
                add_gradient_activity(draft, f"gradients/{name}", gradient, weight.size)
            if dialect.clips:
                gradient = add_clipping(draft, name, gradient, weight.size)
            add_update(
                draft,
                weight,
                lowered.holder[name],
                gradient,
                steered,
                dialect,
                lowered.group[name],
            )
    if lowered.tensorflow:
        add_groups(draft)
