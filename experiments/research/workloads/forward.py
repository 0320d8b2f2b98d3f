"""The forward ops of a graph, with weights and constants where they are ops of their own.

TensorFlow's variables come with all that belongs to one, updates, and what training scripts watch:
histograms, shares of zeros, norms of gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod

from placegap.experiments.research.workloads.tape import (
    FLOAT_BYTES,
    SIDE,
    Dialect,
    Draft,
    Input,
    Tape,
    TapeOp,
    Tensor,
    Weight,
)

INDEX_BYTES = 8  # a small tensor on shapes: an axis, a size
# Kinds whose outputs TF-Slim's scripts watch: its layers' end points.
WATCHED = frozenset({"Relu", "MaxPool", "AvgPool", "BiasAdd", "Conv2D"})


@dataclass
class Lowered:
    """A tape and the graph that is being made of it."""

    tape: Tape
    draft: Draft = field(default_factory=Draft)
    number: list[int] = field(default_factory=list)  # the op that stands for each op of the tape
    weights: dict[str, Weight] = field(default_factory=dict)  # in the order of their first use
    #: holder, read: The op that holds a weight, which its update writes to, and the one that others
    #: read.
    holder: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    group: dict[str, str | None] = field(default_factory=dict)  # colocation group of a weight
    penalties: list[int] = field(default_factory=list)  # what the loss adds up beside the last op
    #: Ops that make parts of each weight's gradient.
    of_weight: dict[str, list[int]] = field(default_factory=dict)

    @property
    def tensorflow(self) -> bool:
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


# The ops of a random first value before the last; a constant one has one op.
RANDOM_VALUE = ("shape", "min", "max", "RandomUniform", "sub", "mul")


def add_variable(draft: Draft, weight: Weight, dialect: Dialect) -> tuple[int, int]:
    """A TensorFlow variable: its state, its first value, its read; the variable and the read."""
    # All are one colocation group, as TensorFlow has it. First values are assigned before the first
    # step, so that they take no time in one.
    size = weight.size * FLOAT_BYTES
    variable = draft.add(
        weight.name, "VariableV2", [], size, view=True, parameter_bytes=size, group=weight.name
    )
    if dialect.initial_values:
        _add_first_value(draft, weight.name, weight.decays, variable, size)
    if dialect.checkpoints:
        _assign(draft, f"save/{weight.name}", weight.name, variable, size)
    read = draft.add(
        f"{weight.name}/read", "Identity", [variable], size, view=True, group=weight.name
    )
    if dialect.training and dialect.summaries:
        add_histogram(draft, weight.name, read, weight.size)
    if dialect.training and dialect.averages:
        _add_average(draft, weight, read, dialect)
    return variable, read


def _add_first_value(draft: Draft, name: str, random: bool, variable: int, size: int) -> None:
    """Ops that make the first value of a variable, and assign it; none runs in a step."""
    drawn = f"{name}/Initializer"
    inputs: list[int] = []
    if random:
        shape, low, high = (
            draft.add(f"{drawn}/{kind}", "Const", [], INDEX_BYTES, view=True, group=name)
            for kind in RANDOM_VALUE[:3]
        )
        uniform = draft.add(
            f"{drawn}/RandomUniform", "RandomUniform", [shape], size, view=True, group=name
        )
        spread = draft.add(f"{drawn}/sub", "Sub", [high, low], INDEX_BYTES, view=True, group=name)
        scaled = draft.add(f"{drawn}/mul", "Mul", [uniform, spread], size, view=True, group=name)
        inputs = [scaled, low]
    kind = "Add" if random else "Const"
    value = draft.add(drawn, kind, inputs, size, view=True, group=name)
    draft.add(f"{name}/Assign", "Assign", [variable, value], 0, view=True, group=name)


def _assign(draft: Draft, name: str, group: str, variable: int, size: int) -> None:
    restored = draft.add(f"{name}/restored", "RestoreV2", [], size, view=True, group=group)
    draft.add(f"{name}/Assign", "Assign", [variable, restored], 0, view=True, group=group)


def _add_average(draft: Draft, weight: Weight, read: int, dialect: Dialect) -> None:
    """A running average of a variable: average -= (1 - decay) (average - variable)."""
    name, size = f"{weight.name}/ExponentialMovingAverage", weight.size * FLOAT_BYTES
    shadow = _add_slot(draft, weight, name, size, dialect)
    decay = draft.add(f"{name}/decay", "Const", [], INDEX_BYTES, view=True, group=weight.name)
    add = partial(draft.add, flops=weight.size, group=weight.name)
    apart = add(f"{name}/sub", "Sub", [shadow, read], size, held_bytes=0)
    share = add(f"{name}/mul", "Mul", [apart, decay], size, held_bytes=0)
    add(f"{name}/AssignSub", "AssignSub", [shadow, share], 0)


def add_update(
    draft: Draft,
    weight: Weight,
    holder: int,
    gradient: int,
    steered: Sequence[int],
    dialect: Dialect,
    group: str | None,
) -> None:
    """The optimizer's op for one weight, which holds the optimizer's state."""
    # In TensorFlow each slot is a variable; elsewhere the update holds them. `steered` are the
    # numbers that it reads.
    size = weight.size * FLOAT_BYTES
    slots: list[int] = []
    if dialect.framework == "tensorflow":
        slots = [
            _add_slot(draft, weight, f"{weight.name}/{dialect.optimizer}_{k}", size, dialect)
            for k in range(dialect.slots)
        ]
    state = 0 if slots else dialect.slots * size
    draft.add(
        f"{dialect.optimizer}/{weight.name}",
        f"Apply{dialect.optimizer}" if slots else dialect.optimizer,
        [holder, gradient, *slots, *steered],
        0,
        flops=(2 + 4 * dialect.slots) * weight.size,
        also_moved_bytes=(1 + dialect.slots) * size,  # inputs are read, weight and slots written
        state_bytes=state or None,
        group=group,
        backward=True,
    )


def _add_slot(draft: Draft, weight: Weight, name: str, size: int, dialect: Dialect) -> int:
    """A variable of a weight's size beside it: it is state, but no parameter."""
    slot = draft.add(name, "VariableV2", [], size, view=True, state_bytes=size, group=weight.name)
    if dialect.initial_values:
        value = draft.add(f"{name}/Initializer", "Const", [], size, view=True, group=weight.name)
        draft.add(f"{name}/Assign", "Assign", [slot, value], 0, view=True, group=weight.name)
    if dialect.checkpoints:
        _assign(draft, f"save/{name}", weight.name, slot, size)
    draft.add(f"{name}/read", "Identity", [slot], size, view=True, group=weight.name)
    return slot


def add_penalty(draft: Draft, weight: Weight, read: int, backward: bool) -> Sequence[int]:
    """The penalty on a weight's size; its share of the gradient; what the loss adds up first."""
    # Returns the penalty, and the gradient's op if requested.
    size = weight.size * FLOAT_BYTES
    scale = draft.add(f"{weight.name}/Regularizer/scale", "Const", [], INDEX_BYTES, view=True)
    squares = draft.add(
        f"{weight.name}/Regularizer/L2Loss", "L2Loss", [read], FLOAT_BYTES, flops=2 * weight.size
    )
    penalty = draft.add(f"{weight.name}/Regularizer", "Mul", [squares, scale], FLOAT_BYTES, flops=1)
    if not backward:
        return [penalty]
    name = f"gradients/{weight.name}/Regularizer_grad"
    slope = draft.add(f"{name}/Mul", "Mul", [scale], FLOAT_BYTES, flops=1, backward=True)
    gradient = draft.add(
        f"{name}/L2Loss", "Mul", [read, slope], size, flops=weight.size, backward=True
    )
    return [penalty, gradient]


# How TensorFlow scales a gradient down to a norm, up to the last product; whether an op is of the
# gradient's size.
CLIPPING = (
    ("Mul", True),
    ("Const", False),
    ("Sum", False),
    ("Greater/y", False),
    ("Greater", False),
    ("ones_like", False),
    ("Select", False),
    ("Sqrt", False),
    ("Select", False),
    ("clip_norm", False),
    ("Maximum", False),
)


def add_clipping(draft: Draft, name: str, gradient: int, count: int) -> int:
    """A gradient scaled down to a norm: its squares are summed up, then all is divided."""
    size, last, constants = count * FLOAT_BYTES, gradient, list[int]()
    for kind, is_large in CLIPPING:
        fixed = kind in ("Const", "Greater/y", "clip_norm")
        made = draft.add(
            f"{name}/clip/{kind}",
            kind.partition("/")[0] if kind != "clip_norm" else "Const",
            [] if fixed else [last, *constants],
            size if is_large else INDEX_BYTES,
            flops=count if is_large or kind == "Sum" else 0,
            view=not is_large and kind != "Sum",
            held_bytes=0,
            backward=True,
        )
        if fixed:
            constants.append(made)  # the next op reads it
        else:
            last, constants = made, []
    scaled = draft.add(
        f"{name}/clip/Mul", "Mul", [gradient], size, flops=count, held_bytes=0, backward=True
    )
    return draft.add(
        f"{name}/clip/truediv",
        "RealDiv",
        [scaled, last],
        size,
        flops=count,
        held_bytes=0,
        backward=True,
    )


# Ops that only wait for all ops of some kinds, by the beginnings of the kinds.
GROUPS = {
    "init": ("Assign",),
    "train_op": ("Apply", "AssignSub"),
    "save": ("VariableV2", "RestoreV2"),
    "merged_summaries": ("HistogramSummary", "ScalarSummary"),
}


def add_groups(draft: Draft) -> None:
    """TensorFlow's ops that a session runs: each waits for all ops of its kind."""
    for name, kinds in GROUPS.items():
        members = [k for k, op in enumerate(draft.ops) if op.kind.startswith(kinds)]
        if members:
            draft.add(name, "NoOp", [], 0, view=True, after=members, backward=True)


# The ops of TensorFlow 1.14's zero_fraction: counted in 32 or in 64 bits, whichever suffices.
ZERO_FRACTION = (
    "size",
    "LessEqual/y",
    "LessEqual",
    "cond/Switch",
    "cond/switch_t",
    "cond/switch_f",
    "cond/pred_id",
    "cond/zeros",
    "cond/NotEqual/Switch",
    "cond/NotEqual",
    "cond/Cast",
    "cond/Const",
    "cond/Sum",
    "cond/Cast",
    "cond/zeros",
    "cond/NotEqual/Switch",
    "cond/NotEqual",
    "cond/Cast",
    "cond/Const",
    "cond/Sum",
    "cond/Merge",
    "sub",
    "Cast",
    "Cast",
    "truediv",
    "fraction",
)

FROM_VALUE = ("cond/NotEqual/Switch",)  # those that read the value itself

FIXED = ("size", "LessEqual/y", "cond/zeros", "cond/Const")


def add_histogram(draft: Draft, name: str, value: int, count: int, backward: bool = False) -> None:
    """A histogram of a value of `count` numbers, with its tag."""
    tag = draft.add(f"{name}/summary/tag", "Const", [], INDEX_BYTES, view=True, backward=backward)
    draft.add(
        f"{name}/summary",
        "HistogramSummary",
        [value, tag],
        INDEX_BYTES,
        flops=count,
        backward=backward,
    )


def add_scalar(draft: Draft, name: str, value: int, backward: bool = False) -> None:
    """One number that is written down, with its tag."""
    tag = draft.add(f"{name}/scalar/tag", "Const", [], INDEX_BYTES, view=True, backward=backward)
    draft.add(
        f"{name}/scalar", "ScalarSummary", [value, tag], INDEX_BYTES, view=True, backward=backward
    )


def add_activity(draft: Draft, name: str, value: int, count: int) -> None:
    """Histogram and share of zeros of an activation."""
    add_histogram(draft, name, value, count)
    last, fixed = value, list[int]()
    for kind in ZERO_FRACTION:
        large = kind == "cond/NotEqual"
        inputs = [] if kind in FIXED else [value if kind in FROM_VALUE else last, *fixed]
        number = draft.add(
            f"{name}/zero_fraction/{kind}",
            kind.split("/")[-1] if kind != "LessEqual/y" else "Const",
            inputs,
            INDEX_BYTES if not large else count,
            flops=count if large else 0,
            view=not large,
            held_bytes=0,
        )
        if kind in FIXED:
            fixed.append(number)  # the next op reads it
        else:
            last, fixed = number, []
    add_scalar(draft, name, last)


def add_gradient_activity(draft: Draft, name: str, gradient: int, count: int) -> None:
    """Histogram and norm of a gradient."""
    add_histogram(draft, name, gradient, count, backward=True)
    last = gradient
    for kind in ("Mul", "Sum", "Sqrt"):
        last = draft.add(
            f"{name}/norm/{kind}",
            kind,
            [last],
            4 * count if kind == "Mul" else INDEX_BYTES,
            flops=count,
            held_bytes=0,
            view=kind == "Sqrt",
            backward=True,
        )
    add_scalar(draft, f"{name}/norm", last, backward=True)
