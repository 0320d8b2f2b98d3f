"""The forward ops of a graph, with weights and constants where they are ops of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod

from placegap.instances.corpus.forward import INDEX_BYTES, add_activity, add_penalty, add_variable
from placegap.instances.corpus.tape import (
    FLOAT_BYTES,
    SIDE,
    Draft,
    Input,
    Tape,
    TapeOp,
    Tensor,
    Weight,
)

WATCHED = frozenset({"Relu", "MaxPool", "AvgPool", "BiasAdd", "Conv2D"})
"""Kinds whose outputs TF-Slim's scripts watch: its layers' end points."""


@dataclass
class Lowered:
    """A tape and the graph that is being made of it.

    Attributes
    ----------
    number : list of int
        The op that stands for each op of the tape.
    weights : dict of str to Weight
        In the order of their first use.
    holder, read : dict of str to int
        The op that holds a weight, which its update writes to, and the one that others read.
    group : dict of str to str or None
        Colocation group of a weight.
    penalties : list of int
        What the loss adds up beside the last op.
    of_weight : dict of str to list of int
        Ops that make parts of each weight's gradient.
    """

    tape: Tape
    draft: Draft = field(default_factory=Draft)
    number: list[int] = field(default_factory=list)
    weights: dict[str, Weight] = field(default_factory=dict)
    holder: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    group: dict[str, str | None] = field(default_factory=dict)
    penalties: list[int] = field(default_factory=list)
    of_weight: dict[str, list[int]] = field(default_factory=dict)

    @property
    def tensorflow(self) -> bool:
        """Whether the graph is one of TensorFlow."""
        return self.tape.dialect.framework == "tensorflow"

    @property
    def apart(self) -> bool:
        """Whether weights are ops of their own."""
        return self.tape.dialect.framework != "modules"

    def sent(self, entry: Tensor) -> Input:
        """What an op reads that reads this tensor."""
        size = size_of(entry) if entry.part == SIDE else None
        return Input(self.number[entry.maker], entry.part, size)

    def group_of(self, op: TapeOp) -> str | None:
        """Ops that share state run on one device: a module with its backward op, ONNX' classes."""
        if self.tape.dialect.framework == "tensorflow":
            return None
        if self.tape.dialect.framework == "onnx":
            known = [self.group[w.name] for w in op.weights if w.name in self.group]
            return known[0] if known else op.name if op.weights or op.outputs else None
        return op.name if self.tape.dialect.training else None

    def summed(self, name: str, found: list[int], size: int, *, state: bool = False) -> list[int]:
        """Gradients that arrive from several consumers, added up; `state`: kept between passes."""
        if len(found) < 2:
            return found
        kind = "AddN" if self.tensorflow else "AccumulateGrad"
        flops = (len(found) - 1) * size // FLOAT_BYTES
        return [
            self.draft.add(
                f"gradients/{name}/{kind}",
                kind,
                found,
                size,
                flops=flops,
                state_bytes=size if state else None,
                held_bytes=0 if state else None,
                backward=True,
            )
        ]


def size_of(target: Tensor | Weight) -> int:
    """Bytes of a tensor or a weight."""
    return prod(target.shape) * FLOAT_BYTES


def lower_forward(tape: Tape) -> Lowered:
    """Add the ops of the tape, with weights and constants where they are ops of their own."""
    lowered, dialect = Lowered(tape), tape.dialect
    users = Counter(weight.name for op in tape.ops for weight in op.weights)
    for op in tape.ops:
        inputs: list[Input | int] = [lowered.sent(entry) for entry in op.inputs]
        group = lowered.group_of(op)
        own, shared, moved = 0, dict[str, int](), 0
        for weight in op.weights:
            size = weight.size * FLOAT_BYTES
            fresh = weight.name not in lowered.weights
            if fresh:
                lowered.weights[weight.name] = weight
                if lowered.apart:
                    _add_weight(lowered, weight, group)
            if lowered.apart:
                inputs.append(lowered.read[weight.name])
            else:
                moved += size
                own += size if fresh else 0
                if users[weight.name] > 1:
                    shared[weight.name] = size
        if dialect.framework == "tensorflow":
            inputs += [
                lowered.draft.add(f"{op.name}/{constant}", "Const", [], INDEX_BYTES, view=True)
                for constant in op.constants
            ]
        tied = sum(shared[name] for name in shared)
        gather = op.rule == "gather"  # reads some rows of its table only
        lowered.number.append(
            lowered.draft.add(
                op.name,
                op.kind,
                inputs,
                prod(op.shape) * FLOAT_BYTES * op.parts,
                flops=op.flops,
                view=op.view,
                parts=op.parts,
                parameter_bytes=own,
                state_bytes=None if not tied else max(0, own - tied),
                shared=shared,
                also_moved_bytes=0 if gather else moved,
                group=group,
                axes=op.axes,
            )
        )
        if dialect.activity and op.kind in WATCHED:
            add_activity(lowered.draft, op.name, lowered.number[-1], prod(op.shape))
        if dialect.framework == "onnx":
            for output in op.outputs:
                lowered.draft.add(
                    f"{op.name}_{output}",
                    "Output",
                    [lowered.number[-1]],
                    INDEX_BYTES,
                    view=True,
                    group=group,
                )
    return lowered


def _add_weight(lowered: Lowered, weight: Weight, group: str | None) -> None:
    dialect, name, size = lowered.tape.dialect, weight.name, weight.size * FLOAT_BYTES
    if dialect.framework == "onnx":
        lowered.group[name] = group
        lowered.read[name] = lowered.holder[name] = lowered.draft.add(
            name, "Initializer", [], size, view=True, parameter_bytes=size, group=group
        )
        return
    lowered.group[name] = name
    lowered.holder[name], lowered.read[name] = add_variable(lowered.draft, weight, dialect)
    if dialect.decay_weights and weight.decays:
        learning = dialect.training
        penalty, *gradient = add_penalty(lowered.draft, weight, lowered.read[name], learning)
        lowered.penalties.append(penalty)
        lowered.of_weight[name] = list(gradient)
