"""A network as a sequence of ops on tensors with shapes: what the networks are written in.

The functions of `layers` add ops to a tape; `lowering` makes a graph of it, in the words of a
`Dialect`, on a `Draft`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple, TypedDict, Unpack

from placegap.instances.problem import Edge, Graph, Op, Provenance
from placegap.instances.reading.errors import paused_collector


@dataclass(frozen=True)
class Dialect:
    """What the graph of one network looks like in one framework."""

    #: ``modules``: one op per module, which holds its weights, and one backward op for each, as
    #: profilers of PyTorch see a network. ``onnx``: ONNX Runtime's ops; weights and the further
    #: outputs of an op are ops of their own, as in dnn-partitioning's operator graphs.
    #: ``tensorflow``: the graph of TensorFlow 1, with variables, reads, constants, and all that its
    #: automatic differentiation adds.
    framework: Literal["modules", "onnx", "tensorflow"]
    training: bool = False  # whether backward ops and updates follow the forward ops
    optimizer: str = "SGD"  # name of the update op
    slots: int = 0  # variables of a weight's size that the optimizer keeps per weight (Adam: 2)
    #: tensorflow: batch normalisation as one op, or written out in elementwise ops and means.
    fused_norms: bool = True
    #: tensorflow: a penalty on the weights of convolutions and products (TF-Slim's scripts).
    decay_weights: bool = False
    #: tensorflow: the ops that make and assign the first value of each variable.
    initial_values: bool = False
    checkpoints: bool = False  # tensorflow: the ops that restore variables
    #: tensorflow: a running average of each variable, as Inception-v3 is evaluated with.
    averages: bool = False
    clips: bool = False  # tensorflow: each gradient scaled down to a norm
    summaries: bool = False  # tensorflow: a histogram of each variable
    #: tensorflow: histograms and shares of zeros of the activations, and of the gradients their
    #: histograms and norms, which TF-Slim's scripts can add.
    activity: bool = False

    @property
    def means(self) -> str:
        """The ops beside the layers' own, in words."""
        words = {
            "fused_norms": "fused norms",
            "decay_weights": "penalties",
            "initial_values": "first values",
            "checkpoints": "checkpoints",
            "averages": "averages",
            "clips": "clipping",
            "summaries": "summaries",
            "activity": "activity",
        }
        if self.framework != "tensorflow":
            return self.framework
        found = [word for name, word in words.items() if getattr(self, name)]
        return ", ".join([self.optimizer, *found])


MODULES = Dialect("modules")

FLOAT_BYTES = 4

Dims = tuple[int, ...]


class Tensor(NamedTuple):
    """A value on the tape: the op that makes it, its shape, and which of the op's parts it is."""

    maker: int
    shape: Dims
    part: int = 0


class Weight(NamedTuple):
    """A parameter of the network."""

    # `decays`: whether a penalty keeps it small; `optional`: no ONNX op holds it (running
    # statistics that are outputs there).
    name: str
    shape: Dims
    trained: bool = True
    decays: bool = False

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TapeOp:
    """One op of the forward pass."""

    # `rule` names how its gradient is taken (`rule_of`); `parts` is how many equal outputs it has;
    # `constants` are small constant inputs, `outputs` further outputs that matter to no one.
    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    shape: Dims
    weights: Sequence[Weight] = ()
    flops: int = 0
    rule: str = "unary"
    view: bool = False
    parts: int = 1
    constants: Sequence[str] = ()
    outputs: Sequence[str] = ()
    axes: Mapping[str, int] = field(default_factory=dict)


class TapeFields(TypedDict, total=False):
    """What a `TapeOp` has that need not be stated."""

    weights: Sequence[Weight]
    rule: str
    view: bool
    parts: int
    constants: Sequence[str]
    outputs: Sequence[str]
    axes: Mapping[str, int]


class Tape:
    """The forward pass of a network, while it is written down."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.ops: list[TapeOp] = []
        self._path: list[str] = []
        self._used: dict[str, int] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put what is written inside under a name, as module paths do."""
        self._path.append(name)
        yield
        self._path.pop()

    def path(self, name: str) -> str:
        """A name within the scopes, new on this tape."""
        full = "/".join((*self._path, name))
        number = self._used.get(full, 0)
        self._used[full] = number + 1
        return f"{full}_{number}" if number else full

    def op(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        shape: Dims,
        *,
        flops: int | None = None,
        name: str | None = None,
        **fields: Unpack[TapeFields],
    ) -> Tensor:
        """Add an op; an elementwise one does one FLOP per element unless `flops` says more."""
        done = 0 if fields.get("view") else prod(shape) if flops is None else flops
        full = self.path(name or kind)
        self.ops.append(TapeOp(full, kind, tuple(inputs), shape, flops=done, **fields))
        return Tensor(len(self.ops) - 1, shape)

    def weight(
        self, name: str, shape: Dims, *, trained: bool = True, decays: bool = False
    ) -> Weight:
        """A parameter under the scopes' names; ops that share it take the same one."""
        return Weight(self.path(name), shape, trained, decays)


# Parts of an op that are no equal ones: a small further output, and the shape of its output.
SIDE, SHAPE = -1, -2

LABELS = {SIDE: "side", SHAPE: "shape"}


class Input(NamedTuple):
    """A producer, which of its parts is read, and how large that is if not an equal part."""

    source: int
    part: int = 0
    size: int | None = None


class DraftFields(TypedDict, total=False):
    """What an op of a draft may have besides.

    `held_bytes` is what it keeps of its output, if not all; `also_moved_bytes` what it reads and
    writes beside inputs and outputs (weights that it holds itself). Edges from ops that it only
    comes `after` carry nothing.
    """

    flops: int
    view: bool
    parts: int
    parameter_bytes: int
    state_bytes: int | None
    shared: Mapping[str, int]
    held_bytes: int | None
    also_moved_bytes: int
    group: str | None
    backward: bool
    axes: Mapping[str, int] | None
    after: Sequence[int]


class Draft:
    """Ops in an order in which producers come first, and the edges between them."""

    def __init__(self) -> None:
        # Each op makes one tensor, or several equal parts. What is resident is state and output;
        # views (reads, reshapes) hold nothing of their own and take no time.
        self.ops: list[Op] = []
        self.edges: list[Edge] = []
        self.out_bytes: list[int] = []
        self._parts: list[int] = []
        self._used: dict[str, int] = {}

    def add(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Input | int],
        out_bytes: int,
        **fields: Unpack[DraftFields],
    ) -> int:
        """Add an op and an edge from every input; its number."""
        name, number = self._fresh(name), len(self.ops)
        read_bytes = 0
        seen: dict[int, None] = {}
        for entry in inputs:
            source, part, size = entry if isinstance(entry, Input) else Input(entry)
            of = self._parts[source]
            size = self.out_bytes[source] // of if size is None else size
            read_bytes += size
            if source in seen:
                continue
            seen[source] = None
            self.edges.append(
                Edge(
                    producer=self.ops[source].name,
                    consumer=name,
                    bytes=size,
                    tensor=LABELS.get(part) or (f"out{part}" if of > 1 else "out"),
                )
            )
        for source in fields.get("after", ()):
            if source not in seen:
                producer = self.ops[source].name
                self.edges.append(Edge(producer=producer, consumer=name, tensor="control"))
        parameter_bytes, state_bytes = fields.get("parameter_bytes", 0), fields.get("state_bytes")
        state = parameter_bytes if state_bytes is None else state_bytes
        shared, axes = dict(fields.get("shared", {})), fields.get("axes") or {}
        view, held = fields.get("view", False), fields.get("held_bytes")
        held = out_bytes if held is None else held
        moved = read_bytes + out_bytes + fields.get("also_moved_bytes", 0)
        self.ops.append(
            Op(
                name=name,
                kind=kind,
                resident_bytes=state + sum(shared.values()) + (0 if view else held),
                parameter_bytes=parameter_bytes,
                state_bytes=state_bytes,
                shared_state=shared,
                colocation=fields.get("group"),
                backward=fields.get("backward", False),
                flops=0 if view else fields.get("flops", 0),
                bytes_moved=0 if view else moved,
                splittable_axes=tuple(axes),
                axis_sizes=dict(axes),
            )
        )
        self.out_bytes.append(out_bytes)
        self._parts.append(fields.get("parts", 1))
        return number

    def graph(self, name: str, provenance: Provenance) -> Graph:
        """The graph, validated: edges that do not fit, and cycles, are errors."""
        with paused_collector():
            return Graph(
                name=name, ops=tuple(self.ops), edges=tuple(self.edges), provenance=provenance
            )

    def _fresh(self, name: str) -> str:
        number = self._used.get(name, 0)
        self._used[name] = number + 1
        return f"{name}_{number}" if number else name
