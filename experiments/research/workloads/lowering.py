"""From a tape to a graph: forward ops, their gradients, and the updates, in a dialect's words.

Gradients are taken op by op from the last one, by the rules of a framework. TensorFlow's rules are
those of its gradient registry (tensorflow/python/ops/*_grad.py, version 1.14), ONNX Runtime's are
read off dnn-partitioning's operator graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from placegap.experiments.research.workloads.forward import (
    INDEX_BYTES,
    Lowered,
    add_clipping,
    add_gradient_activity,
    add_groups,
    add_update,
    lower_forward,
    size_of,
)
from placegap.experiments.research.workloads.tape import (
    FLOAT_BYTES,
    SHAPE,
    SIDE,
    Dialect,
    Input,
    Tape,
    TapeOp,
    Tensor,
    Weight,
)
from placegap.instances.problem import Graph, Provenance
from placegap.instances.reading.errors import paused_collector

# Numbers that every update of an optimizer reads.
STEERED_BY = {
    "GradientDescent": ("learning_rate",),
    "Momentum": ("learning_rate", "momentum"),
    "RMSProp": ("learning_rate", "decay", "momentum", "epsilon"),
    "Adam": ("beta1_power", "beta2_power", "learning_rate", "beta1", "beta2", "epsilon"),
}


def lower(tape: Tape, name: str, provenance: Provenance) -> Graph:
    """The graph of a network: inference, or a training step if the dialect is one of training."""
    # The last op of the tape is the loss, or the output. O(ops).
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
                draft, weight, lowered.holder[name], gradient, steered, dialect, lowered.group[name]
            )
    if lowered.tensorflow:
        add_groups(draft)


def add_backward(lowered: Lowered) -> None:
    """Add the gradients of all ops, last one first, or the mirror of every module."""
    if lowered.apart:
        _Backward(lowered).run()
    else:
        _mirror(lowered)


def _mirror(lowered: Lowered) -> None:
    """One backward op per module, of its inputs too, on the module's device."""
    # It computes twice as much with weights, holds their gradients, and reads what the module kept.
    arrived: dict[int, list[int]] = {}
    for at in range(len(lowered.tape.ops) - 1, -1, -1):
        op = lowered.tape.ops[at]
        found = arrived.get(at, [])
        weights = sum(w.size for w in op.weights if w.trained) * FLOAT_BYTES
        out = max((size_of(entry) for entry in op.inputs), default=0)
        number = lowered.draft.add(
            f"{op.name}/backward",
            f"{op.kind}/backward",
            found,
            out,
            flops=2 * op.flops if weights else op.flops,
            state_bytes=weights or None,
            also_moved_bytes=2 * weights + out,
            view=op.view,
            group=lowered.group_of(op),
            backward=True,
            after=[lowered.number[at]],
        )
        for maker in dict.fromkeys(entry.maker for entry in op.inputs):
            arrived.setdefault(maker, []).append(number)


def which_learn(tape: Tape) -> list[bool]:
    """Whether a weight lies at or before each op, so that a gradient goes through it."""
    learns: list[bool] = []
    for op in tape.ops:
        own = any(weight.trained for weight in op.weights)
        learns.append(
            op.rule != "none" and (own or any(learns[entry.maker] for entry in op.inputs))
        )
    return learns


class _Backward:
    """The backward pass of a graph whose weights are ops, while it is added."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered, self.draft, self.tape = lowered, lowered.draft, lowered.tape
        self.learns = which_learn(lowered.tape)
        users = Counter(weight.name for op in self.tape.ops for weight in op.weights)
        # weights whose gradient comes from one op: that op keeps it, else the sum does
        self.whole = {name for name, count in users.items() if count == 1} - set(lowered.of_weight)

    def run(self) -> None:
        """Add the gradients of all ops, last one first."""
        last = len(self.tape.ops) - 1
        if self.lowered.penalties:
            self.draft.add(
                "total_loss",
                "AddN",
                [*self.lowered.penalties, self.lowered.number[last]],
                FLOAT_BYTES,
                flops=len(self.lowered.penalties),
            )
        size = prod(self.tape.ops[last].shape) * FLOAT_BYTES
        start = self.draft.add("gradients/start", "Fill", [], size, view=True, backward=True)
        arrived: dict[tuple[int, int], list[int]] = {(last, 0): [start]}
        for at in range(last, -1, -1):
            op = self.tape.ops[at]
            rule = rule_of(self.tape.dialect, op.rule)
            found = [arrived.pop((at, part), []) for part in range(op.parts)]
            if rule is None or not self.learns[at] or not any(found):
                continue
            size = prod(op.shape) * FLOAT_BYTES
            above = [
                number for part in found for number in self.lowered.summed(op.name, part, size)
            ]
            for target, gradient in self._gradients(at, op, rule, above):
                if isinstance(target, Weight):
                    self.lowered.of_weight.setdefault(target.name, []).append(gradient)
                else:
                    arrived.setdefault((target.maker, target.part), []).append(gradient)

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
        if self.tape.dialect.framework == "tensorflow" and len(targets) > 1:
            made = self._tuple(name, made, targets)
        return list(zip(targets, made, strict=True))

    def _helpers(self, at: int, name: str, rule: GradientRule) -> list[int]:
        """Ops on shapes; the chains read the last of them, and constants that no helper reads."""
        made: list[int] = []
        unread: list[int] = []
        for helper in rule.helpers:
            if helper in FIXED:
                inputs: list[Input | int] = []
            elif helper in OF_FORWARD:
                inputs = [Input(self.lowered.number[at], SHAPE, INDEX_BYTES)]
            else:
                inputs = [*dict.fromkeys([*made[-2:], *unread])]
            unread = [number for number in unread if number not in inputs]
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
            if helper in FIXED:
                unread.append(made[-1])
        return [*dict.fromkeys([*unread, *made[-1:]])]

    def _saved(
        self, at: int, op: TapeOp, rule: GradientRule, target: Tensor | Weight | None = None
    ) -> list[Input | int]:
        """What a gradient reads of the forward pass: of several operands those that are not its."""
        if rule.reads == "nothing":
            return []
        if rule.reads == "output":
            return [self.lowered.number[at]]
        operands: list[Tensor | Weight] = [*op.inputs, *(w for w in op.weights if w.trained)]
        if len(operands) > 1:
            operands = [operand for operand in operands if operand != target] or operands[:1]
        return [
            self.lowered.sent(operand)
            if isinstance(operand, Tensor)
            else self.lowered.read[operand.name]
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
        of_inputs = [size_of(target) for target in targets if not isinstance(target, Weight)]
        group = self.lowered.group_of(op)
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
        if self.tape.dialect.framework != "onnx":
            return [whole] * len(targets)
        return [
            self.draft.add(
                f"{name}/output_{k}",
                "Output",
                [_output(whole, target)],
                size_of(target),
                view=True,
                group=group,
                backward=True,
            )
            for k, target in enumerate(targets)
        ]

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
        passing, size = prod(op.shape) * FLOAT_BYTES, size_of(target)
        group = None
        if isinstance(target, Weight) and not self.lowered.tensorflow:
            group = self.lowered.group[target.name]
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
            alone = isinstance(target, Weight) and target.name in self.whole
            state = alone and last and not sparse and not view
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

    def _tuple(
        self, name: str, made: Sequence[int], targets: Sequence[Tensor | Weight]
    ) -> list[int]:
        """TensorFlow hands the gradients of one op on together."""
        # Those of weights are small outputs where one op makes all.
        sources: list[Input | int] = [
            Input(number, SIDE, size_of(target))
            if isinstance(target, Weight) and made.count(number) > 1
            else number
            for number, target in zip(made, targets, strict=True)
        ]
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
            self.draft.add(
                f"{name}/tuple/control_dependency",
                "Identity",
                [source],
                size_of(target),
                view=True,
                backward=True,
                after=[barrier],
            )
            for source, target in zip(sources, targets, strict=True)
        ]


def _output(whole: int, target: Tensor | Weight) -> Input:
    """What an op that makes all gradients sends for one of them."""
    return Input(whole, SIDE, size_of(target)) if isinstance(target, Weight) else Input(whole)


class GradientRule(NamedTuple):
    """How the gradients of an op's inputs come about."""

    #: data, weight: Chain of ops for each input, and for each weight; ``{kind}`` stands for the
    #: forward op's.
    data: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()  # ops on shapes, before the chains; they take no time
    one_op: bool = False  # one op makes all gradients: the first of `data`
    #: What of the forward pass the first op of each chain reads beside the gradient.
    reads: str = "inputs"


BROADCAST = ("Shape", "Shape", "BroadcastGradientArgs")

# How a reduction's gradient finds the shape to repeat to.
REDUCTION = (
    "Shape",
    "Size",
    "add",
    "mod",
    "Shape",
    "range/start",
    "range/delta",
    "range",
    "Fill/value",
    "Fill",
    "DynamicStitch",
    "Maximum/y",
    "Maximum",
    "floordiv",
)

# How the gradient of a mean finds what to divide by.
AVERAGE = (
    "Shape",
    "Shape",
    "Const",
    "Prod",
    "Const",
    "Prod",
    "Maximum/y",
    "Maximum",
    "floordiv",
    "Cast",
)

TENSORFLOW: Mapping[str, GradientRule] = {
    "unary": GradientRule(("{kind}Grad",), reads="output"),
    "view": GradientRule(("Reshape",), helpers=("Shape",), reads="nothing"),
    "transpose": GradientRule(("Transpose",), helpers=("InvertPermutation",), reads="nothing"),
    "conv": GradientRule(("{kind}BackpropInput",), ("{kind}BackpropFilter",), helpers=("ShapeN",)),
    "product": GradientRule(("MatMul",), ("MatMul",)),
    "bias": GradientRule((), ("BiasAddGrad",), reads="nothing"),
    "norm": GradientRule(("{kind}Grad",), helpers=("zeros_like",) * 2, one_op=True),
    "add": GradientRule((), (), reads="nothing"),
    "broadcast": GradientRule(
        ("Sum", "Reshape"), ("Sum", "Reshape"), helpers=BROADCAST, reads="nothing"
    ),
    "scale": GradientRule(("Mul", "Reshape"), helpers=BROADCAST, reads="nothing"),
    "multiply": GradientRule(("Mul",), ("Mul",)),
    "multiply_broadcast": GradientRule(
        ("Mul", "Sum", "Reshape"), ("Mul", "Sum", "Reshape"), helpers=BROADCAST
    ),
    "squared_difference": GradientRule(
        ("Mul", "Sub", "Mul", "Sum", "Reshape"), helpers=("scalar", *BROADCAST)
    ),
    "mean": GradientRule(
        ("Reshape", "Tile", "truediv"), helpers=REDUCTION + AVERAGE, reads="nothing"
    ),
    "concat": GradientRule(
        ("Slice",), helpers=("Rank", "mod", "ShapeN", "ConcatOffset"), reads="nothing"
    ),
    "split": GradientRule(("ConcatV2",), helpers=("split_dim",), reads="nothing"),
    "max_pool": GradientRule(("MaxPoolGrad",), reads="inputs"),
    "mean_pool": GradientRule(("AvgPoolGrad",), helpers=("Shape",), reads="nothing"),
    "softmax": GradientRule(
        ("Mul", "Sum", "Reshape", "Sub", "Mul"), helpers=("Sum/indices",), reads="output"
    ),
    "loss": GradientRule(
        ("PreventGradient", "ExpandDims", "Mul"), helpers=("ExpandDims/dim",), reads="output"
    ),
    "gather": GradientRule(
        weight=("Reshape",),
        helpers=(
            "Shape",
            "Cast",
            "Size",
            "ExpandDims/dim",
            "ExpandDims",
            "strided_slice",
            "concat/axis",
            "concat",
            "Reshape",
        ),
        reads="nothing",
    ),
    "pad": GradientRule(
        ("Slice",),
        helpers=("Rank", "stack", "Slice/begin", "Slice", "Reshape", "Shape"),
        reads="nothing",
    ),
}

ONNX: Mapping[str, GradientRule] = {
    "unary": GradientRule(("{kind}Grad",), reads="output"),
    "view": GradientRule(("ReshapeGradient",), reads="nothing"),
    "transpose": GradientRule(("Transpose",), reads="nothing"),
    "conv": GradientRule(("ConvGrad",), one_op=True),
    "product": GradientRule(("Transpose", "MatMul"), ("Reshape", "Reshape", "Gemm")),
    "gemm": GradientRule(("Gemm",), ("Gemm",)),
    "bias": GradientRule(("Identity",), ("ReduceSum",), reads="nothing"),
    "norm": GradientRule(("{kind}Grad",), one_op=True),
    "add": GradientRule(("Identity",), ("Identity",), reads="nothing"),
    "broadcast": GradientRule(("Identity",), ("ReduceSum",), reads="nothing"),
    "scale": GradientRule(("Div", "Identity"), reads="nothing"),
    "gather": GradientRule(weight=("GatherGrad",), helpers=("Shape",), reads="nothing"),
    "max_pool": GradientRule(("{kind}Grad",)),
    "mean_pool": GradientRule(("{kind}Grad",)),
    "softmax": GradientRule(("SoftmaxGrad",), reads="output"),
    "loss": GradientRule(("{kind}Grad",), reads="output"),
}

# Helpers that read nothing: constants.
FIXED = frozenset(
    {
        "Size",
        "range/start",
        "range/delta",
        "Fill/value",
        "Maximum/y",
        "Const",
        "scalar",
        "split_dim",
        "Rank",
        "ExpandDims/dim",
        "Sum/indices",
        "concat/axis",
        "stack",
        "Slice/begin",
    }
)

# Helpers that look at the forward op's output; the others read the two helpers before them.
OF_FORWARD = frozenset({"Shape", "ShapeN", "zeros_like"})
# Kinds of gradient ops that get a shape from the last helper.
SHAPED = frozenset({"Reshape", "Tile", "Sum", "truediv", "Slice"})
# Kinds of gradient ops that only look at their input in another way.
NO_TIME = frozenset({"Reshape", "Identity", "ReshapeGradient", "ExpandDims", "PreventGradient"})


def rule_of(dialect: Dialect, rule: str) -> GradientRule | None:
    """The rule of an op, or None where no gradient passes."""
    if rule == "none":
        return None
    return (TENSORFLOW if dialect.framework == "tensorflow" else ONNX)[rule]
