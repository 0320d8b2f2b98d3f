"""From a tape to a graph: forward ops, their gradients, and the updates, in a dialect's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from placegap.instances.corpus.workloads.draft import SHAPE, SIDE, Draft, Input
from placegap.instances.corpus.workloads.gradients import (
    FIXED,
    NO_TIME,
    OF_FORWARD,
    SHAPED,
    GradientRule,
    rule_of,
)
from placegap.instances.corpus.workloads.summaries import (
    INDEX_BYTES,
    add_activity,
    add_gradient_activity,
)
from placegap.instances.corpus.workloads.tape import FLOAT_BYTES, Tape, TapeOp, Tensor, Weight
from placegap.instances.corpus.workloads.variables import (
    add_clipping,
    add_groups,
    add_penalty,
    add_update,
    add_variable,
)
from placegap.instances.problem.instance import Graph, Provenance
from placegap.instances.reading.collector import paused_collector

STEERED_BY = {
    "GradientDescent": ("learning_rate",),
    "Momentum": ("learning_rate", "momentum"),
    "RMSProp": ("learning_rate", "decay", "momentum", "epsilon"),
    "Adam": ("beta1_power", "beta2_power", "learning_rate", "beta1", "beta2", "epsilon"),
}
"""Numbers that every update of an optimizer reads."""

WATCHED = frozenset({"Relu", "MaxPool", "AvgPool", "BiasAdd", "Conv2D"})
"""Kinds whose outputs TF-Slim's scripts watch: its layers' end points."""


def lower(tape: Tape, name: str, provenance: Provenance) -> Graph:
    """The graph of a network: inference, or a training step if the dialect is one of training.

    The last op of the tape is the loss, or the output. O(ops).

    Examples
    --------
    >>> from placegap.instances.corpus.workloads.dialect import MODULES_TRAINING
    >>> from placegap.instances.corpus.workloads.layers import dense, placeholder
    >>> tape = Tape(MODULES_TRAINING)
    >>> out = dense(tape, placeholder(tape, (2, 3)), 4)
    >>> [op.name for op in lower(tape, "two", Provenance()).ops]
    ['Input', 'Linear', 'Linear/backward', 'Input/backward']
    """
    with paused_collector():
        lowering = _Lowering(tape)
        lowering.forward()
        if tape.dialect.training:
            lowering.backward()
            lowering.updates()
    return lowering.draft.graph(name, provenance)


class _Lowering:
    """A graph that is being made of a tape."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.dialect, self.draft = tape, tape.dialect, Draft()
        self.apart = tape.dialect.framework != "modules"
        self.number: list[int] = []  # of each op of the tape
        self.weights: dict[str, Weight] = {}
        self.holder: dict[str, int] = {}  # what a weight's update writes to
        self.read: dict[str, int] = {}
        self.group: dict[str, str | None] = {}
        self.penalties: list[int] = []
        self.of_weight: dict[str, list[int]] = {}  # gradients so far
        users = Counter(weight.name for op in tape.ops for weight in op.weights)
        self.tied = {weight for weight, count in users.items() if count > 1}
        self.learns = self._which_learn()

    def _which_learn(self) -> list[bool]:
        """Whether a weight lies at or before each op, so that a gradient goes through it."""
        learns: list[bool] = []
        for op in self.tape.ops:
            own = any(weight.trained for weight in op.weights)
            learns.append(
                op.rule != "none" and (own or any(learns[entry.maker] for entry in op.inputs))
            )
        return learns

    def forward(self) -> None:
        """Add the ops of the tape, with weights and constants where they are ops of their own."""
        for op in self.tape.ops:
            inputs: list[Input | int] = [self._sent(entry) for entry in op.inputs]
            group = self._group_of(op)
            own, shared, moved = 0, dict[str, int](), 0
            for weight in op.weights:
                size = weight.size * FLOAT_BYTES
                fresh = weight.name not in self.weights
                if fresh:
                    self.weights[weight.name] = weight
                    if self.apart:
                        self._add_weight(weight, group)
                if self.apart:
                    inputs.append(self.read[weight.name])
                else:
                    moved += size
                    own += size if fresh else 0
                    if weight.name in self.tied:
                        shared[weight.name] = size
            if self.dialect.framework == "tensorflow":
                inputs += [
                    self.draft.add(f"{op.name}/{constant}", "Const", [], INDEX_BYTES, view=True)
                    for constant in op.constants
                ]
            tied = sum(shared[name] for name in shared)
            gather = op.rule == "gather"  # reads some rows of its table only
            self.number.append(
                self.draft.add(
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
            if self.dialect.activity and op.kind in WATCHED:
                add_activity(self.draft, op.name, self.number[-1], prod(op.shape))
            if self.dialect.framework == "onnx":
                for output in op.outputs:
                    self.draft.add(
                        f"{op.name}_{output}",
                        "Output",
                        [self.number[-1]],
                        INDEX_BYTES,
                        view=True,
                        group=group,
                    )

    def _group_of(self, op: TapeOp) -> str | None:
        """Ops that share state run on one device: a module with its backward op, ONNX' classes."""
        if self.dialect.framework == "tensorflow":
            return None
        if self.dialect.framework == "onnx":
            known = [self.group[w.name] for w in op.weights if w.name in self.group]
            return known[0] if known else op.name if op.weights or op.outputs else None
        return op.name if self.dialect.training else None

    def _add_weight(self, weight: Weight, group: str | None) -> None:
        name, size = weight.name, weight.size * FLOAT_BYTES
        if self.dialect.framework == "onnx":
            self.group[name] = group
            self.read[name] = self.holder[name] = self.draft.add(
                name, "Initializer", [], size, view=True, parameter_bytes=size, group=group
            )
            return
        self.group[name] = name
        self.holder[name], self.read[name] = add_variable(self.draft, weight, self.dialect)
        if self.dialect.decay_weights and weight.decays:
            learning = self.dialect.training
            penalty, *gradient = add_penalty(self.draft, weight, self.read[name], learning)
            self.penalties.append(penalty)
            self.of_weight[name] = list(gradient)

    def _sent(self, entry: Tensor) -> Input:
        size = _size(entry) if entry.part == SIDE else None
        return Input(self.number[entry.maker], entry.part, size)

    def backward(self) -> None:
        """Add the gradients of all ops, last one first."""
        if not self.apart:
            self._mirror()
            return
        last = len(self.tape.ops) - 1
        if self.penalties:
            self.draft.add(
                "total_loss",
                "AddN",
                [*self.penalties, self.number[last]],
                FLOAT_BYTES,
                flops=len(self.penalties),
            )
        size = prod(self.tape.ops[last].shape) * FLOAT_BYTES
        start = self.draft.add("gradients/start", "Fill", [], size, view=True, backward=True)
        arrived: dict[tuple[int, int], list[int]] = {(last, 0): [start]}
        for at in range(last, -1, -1):
            op = self.tape.ops[at]
            rule = rule_of(self.dialect, op.rule)
            found = [arrived.pop((at, part), []) for part in range(op.parts)]
            if rule is None or not self.learns[at] or not any(found):
                continue
            size = prod(op.shape) * FLOAT_BYTES
            above = [number for part in found for number in self._summed(op, part, size)]
            for target, gradient in self._gradients(at, op, rule, above):
                if isinstance(target, Weight):
                    self.of_weight.setdefault(target.name, []).append(gradient)
                else:
                    arrived.setdefault((target.maker, target.part), []).append(gradient)

    def _mirror(self) -> None:
        """One backward op per module, of its inputs too, on the module's device.

        It computes twice as much where there are weights, holds their gradients, and reads what
        the module kept.
        """
        arrived: dict[int, list[int]] = {}
        for at in range(len(self.tape.ops) - 1, -1, -1):
            op = self.tape.ops[at]
            found = arrived.get(at, [])
            weights = sum(w.size for w in op.weights if w.trained) * FLOAT_BYTES
            out = max((_size(entry) for entry in op.inputs), default=0)
            number = self.draft.add(
                f"{op.name}/backward",
                f"{op.kind}/backward",
                found,
                out,
                flops=2 * op.flops if weights else op.flops,
                state_bytes=weights or None,
                also_moved_bytes=2 * weights + out,
                view=op.view,
                group=self._group_of(op),
                backward=True,
                after=[self.number[at]],
            )
            for maker in dict.fromkeys(entry.maker for entry in op.inputs):
                arrived.setdefault(maker, []).append(number)

    def _summed(self, op: TapeOp, found: list[int], size: int) -> list[int]:
        """Gradients that arrive from several consumers, added up."""
        if len(found) < 2:
            return found
        kind = "AddN" if self.dialect.framework == "tensorflow" else "AccumulateGrad"
        flops = (len(found) - 1) * size // FLOAT_BYTES
        return [
            self.draft.add(
                f"gradients/{op.name}/{kind}", kind, found, size, flops=flops, backward=True
            )
        ]

    def _gradients(
        self, at: int, op: TapeOp, rule: GradientRule, above: list[int]
    ) -> list[tuple[Tensor | Weight, int]]:
        """Ops for the gradients of one op; each target with the op that makes its gradient."""
        entries = [entry for entry in dict.fromkeys(op.inputs) if self.learns[entry.maker]]
        trained = [weight for weight in op.weights if weight.trained]
        targets: list[Tensor | Weight] = [*entries, *trained]
        name = f"gradients/{op.name}_grad"
        helpers = self._helpers(at, name, rule)
        if rule.one_op:
            inputs = [*above, *self._saved(at, op, rule), *helpers]
            made = self._one_op(op, name, rule, targets, inputs)
        else:
            made = [
                self._chain(
                    op, name, rule, target, above, [*self._saved(at, op, rule, target)], helpers
                )
                for target in targets
            ]
        if self.dialect.framework == "tensorflow" and len(targets) > 1:
            made = self._tuple(name, made, targets)
        return list(zip(targets, made, strict=True))

    def _helpers(self, at: int, name: str, rule: GradientRule) -> list[int]:
        """Ops on shapes; the chains read the last of them."""
        made: list[int] = []
        for helper in rule.helpers:
            if helper in FIXED:
                inputs: list[Input | int] = []
            elif helper in OF_FORWARD:
                inputs = [Input(self.number[at], SHAPE, INDEX_BYTES)]
            else:
                inputs = [*made[-2:]]
            made.append(
                self.draft.add(
                    f"{name}/{helper}",
                    helper.partition("/")[0],
                    inputs,
                    INDEX_BYTES,
                    view=True,
                    backward=True,
                )
            )
        return made[-1:]

    def _saved(
        self, at: int, op: TapeOp, rule: GradientRule, target: Tensor | Weight | None = None
    ) -> list[Input | int]:
        """What a gradient reads of the forward pass: of several operands those that are not its."""
        if rule.reads == "nothing":
            return []
        if rule.reads == "output":
            return [self.number[at]]
        operands: list[Tensor | Weight] = [*op.inputs, *(w for w in op.weights if w.trained)]
        if len(operands) > 1:
            operands = [operand for operand in operands if operand != target] or operands[:1]
        return [
            self._sent(operand) if isinstance(operand, Tensor) else self.read[operand.name]
            for operand in operands
        ]

    def _one_op(
        self,
        op: TapeOp,
        name: str,
        rule: GradientRule,
        targets: Sequence[Tensor | Weight],
        inputs: Sequence[Input | int],
    ) -> list[int]:
        weights = [target for target in targets if isinstance(target, Weight)]
        of_weights = sum(weight.size for weight in weights) * FLOAT_BYTES
        of_inputs = [_size(target) for target in targets if not isinstance(target, Weight)]
        group = self._group_of(op)
        whole = self.draft.add(
            f"{name}/{rule.data[0].format(kind=op.kind)}",
            rule.data[0].format(kind=op.kind),
            inputs,
            max(of_inputs, default=of_weights),
            flops=2 * op.flops if weights else op.flops,
            state_bytes=of_weights or None,
            held_bytes=max(of_inputs, default=0),
            also_moved_bytes=of_weights,
            view=op.view,
            group=group,
            backward=True,
        )
        if self.dialect.framework != "onnx":
            return [whole] * len(targets)
        return [
            self.draft.add(f"{name}/output_{k}", "Output", [whole], _size(target), view=True,
                           group=group, backward=True)
            for k, target in enumerate(targets)
        ]  # fmt: skip

    def _chain(
        self,
        op: TapeOp,
        name: str,
        rule: GradientRule,
        target: Tensor | Weight,
        above: Sequence[int],
        saved: Sequence[Input | int],
        helpers: Sequence[int],
    ) -> int:
        """The ops from the gradient above to that of one target; none is the gradient itself."""
        is_weight = isinstance(target, Weight)
        steps = rule.weight if is_weight else rule.data
        heavy = op.rule in ("conv", "product", "gemm")
        sparse = op.rule == "gather"  # the gradient of some rows of a table
        passing, size = prod(op.shape) * FLOAT_BYTES, _size(target)
        group = None
        if isinstance(target, Weight) and not self._tensorflow:
            group = self.group[target.name]
        number = above[0]
        for k, step in enumerate(steps):
            kind, last = step.format(kind=op.kind), k == len(steps) - 1
            out = passing if kind == "Mul" or sparse else size
            inputs: list[Input | int] = [*above, *saved] if k == 0 else [number]
            if heavy and len(steps) > 1:  # first another operand is turned, then multiplied
                inputs = [*above, number] if last else [*saved] if k == 0 else [number]
            if k == 0 or kind in SHAPED:
                inputs += helpers
            view = kind in NO_TIME or (heavy and not last)
            state = is_weight and last and not sparse and not view
            number = self.draft.add(
                f"{name}/{kind}",
                kind,
                inputs,
                out,
                flops=op.flops if heavy and last else out // FLOAT_BYTES,
                view=view,
                state_bytes=out if state else None,
                held_bytes=0 if state else None,
                axes=op.axes if heavy and last else None,
                group=group,
                backward=True,
            )
        return number

    @property
    def _tensorflow(self) -> bool:
        return self.dialect.framework == "tensorflow"

    def _tuple(
        self, name: str, made: Sequence[int], targets: Sequence[Tensor | Weight]
    ) -> list[int]:
        """TensorFlow hands the gradients of one op on together."""
        barrier = self.draft.add(
            f"{name}/tuple/group_deps",
            "NoOp",
            [],
            0,
            view=True,
            backward=True,
            after=list(dict.fromkeys(made)),
        )
        return [
            self.draft.add(f"{name}/tuple/control_dependency", "Identity", [number],
                           _size(target), view=True, backward=True, after=[barrier])
            for number, target in zip(made, targets, strict=True)
        ]  # fmt: skip

    def updates(self) -> None:
        """Add the optimizer's ops: one per trained weight, where weights are ops."""
        if not self.apart:
            return
        steered: list[int] = []
        if self._tensorflow:
            steered = [
                self.draft.add(f"{self.dialect.optimizer}/{name}", "Const", [], INDEX_BYTES,
                               view=True, backward=True)
                for name in STEERED_BY[self.dialect.optimizer]
            ]  # fmt: skip
        for name, weight in self.weights.items():
            found = self.of_weight.get(name, [])
            if weight.trained and found:
                op = TapeOp(name, "", (), weight.shape)
                [gradient] = self._summed(op, found, weight.size * FLOAT_BYTES)
                if self.dialect.activity:
                    add_gradient_activity(self.draft, f"gradients/{name}", gradient, weight.size)
                if self.dialect.clips:
                    gradient = add_clipping(self.draft, name, gradient, weight.size)
                add_update(
                    self.draft,
                    weight,
                    self.holder[name],
                    gradient,
                    steered,
                    self.dialect,
                    self.group[name],
                )
        if self._tensorflow:
            add_groups(self.draft)


def _size(target: Tensor | Weight) -> int:
    return prod(target.shape) * FLOAT_BYTES
