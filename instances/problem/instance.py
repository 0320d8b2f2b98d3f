"""What the problem is: ops and edges, devices and links, and the instance that joins them.

Every class is frozen and validated once, when it is made; nothing downstream checks again.
Times are integer nanoseconds, sizes integer bytes, bandwidths bytes per second.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    model_validator,
)

from placegap.instances.problem.arrays import Arrays, MemoryArrays, derive_arrays, derive_memory
from placegap.instances.problem.graph_index import GraphIndex, index_graph
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.links import Group, Links
from placegap.instances.problem.semantics import StatedSemantics
from placegap.instances.reading.errors import ClusterError, instead_of
from placegap.instances.reading.exact_integer import exact_integer
from placegap.instances.reading.input_files import MAX_DEVICES
from placegap.instances.reading.printable import printable

Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SUM)]

Positive = Annotated[int, Field(strict=True, gt=0, le=LARGEST_SUM)]

Size = Annotated[Count, BeforeValidator(exact_integer)]

Rate = Annotated[Positive, BeforeValidator(exact_integer)]

Flag = Annotated[bool, Field(strict=True)]

Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]

WITHOUT_OPS = "modules_without_ops"
"""Parameter of a provenance: modules of a traced model that hold weights and that no op names."""

ASSUMED_DIMS = "assumed_dims"
"""Parameter of the provenance that names the sizes nobody stated, as "N=1, M=1"."""

WITHOUT_RULE = "ops_without_flop_rule"
"""Parameter of the provenance that counts, by kind, ops whose FLOPs are a guess: "Foo 3, Bar 1"."""


class InstancePart(BaseModel):
    """Base of all parts of an instance: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A changed copy, validated anew; pydantic's own would keep stale derived arrays."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**(copy.deepcopy(fields) if deep else fields), **(update or {})})


class Provenance(InstancePart):
    """Where something came from, under which licence, and what was changed on the way."""

    source: str = ""
    licence: str = ""
    changes: tuple[str, ...] = ()
    parameters: dict[str, str | int | float | bool | None] = Field(default_factory=dict)

    def noting(self, change: str, parameters: Mapping[str, Any] | None = None) -> Provenance:
        """The same, with one more change, and more parameters."""
        known = {**self.parameters, **(parameters or {})}
        return self.model_copy(update={"changes": (*self.changes, change), "parameters": known})


class Mode(InstancePart):
    """One way to run an op, for hybrid_pipeline: over how many devices, and what it keeps.

    All numbers are those of one of the `tensor` devices.

    Examples
    --------
    >>> Mode(name="recompute", tensor=2, time_ns={"gpu": 70}, held_bytes=1).tensor
    2
    """

    #: What is chosen ("keep", "recompute"); with each tensor degree it is another mode.
    name: Name
    #: Devices that the op is split over.
    tensor: Positive = 1
    #: Forward and backward of one microbatch with the collectives within the op, per device kind.
    time_ns: dict[str, Count]
    #: What replicas sum up once per batch: gradients.
    parameter_bytes: Count = 0
    #: What is held however many microbatches are in flight: weights, gradients, optimizer state.
    state_bytes: Count = 0
    #: sharded_bytes, gradient_bytes: Parts of `state_bytes` that replicas may divide among them:
    #: the optimizer's state, and the gradients.
    sharded_bytes: Count = 0
    gradient_bytes: Count = 0
    #: Activations that each microbatch in flight holds.
    held_bytes: Count = 0
    #: Scratch memory while the op runs: of a stage the largest counts.
    workspace_bytes: Count = 0
    #: enter_bytes, leave_bytes: More bytes for an edge that comes from, or goes to, an op of
    #: another stage, by its name.
    enter_bytes: dict[Name, Count] = Field(default_factory=dict)
    leave_bytes: dict[Name, Count] = Field(default_factory=dict)


class Cache(InstancePart):
    """What an op holds for each token that came before: keys and values of attention.

    Examples
    --------
    >>> window = Cache(token_bytes=8, tokens=4, most_tokens=100)
    >>> window.held_bytes(0), window.held_bytes(50), window.held_bytes(200)
    (0, 400, 800)
    """

    #: Of one token, in all sequences of the batch.
    token_bytes: Positive
    #: For how many tokens the op's `resident_bytes` and `state_bytes` have room.
    tokens: Count = 0
    #: No more are kept: a sliding window or a chunk; None for no limit.
    most_tokens: Positive | None = None

    def held_bytes(self, tokens: int) -> int:
        """Bytes for so many tokens."""
        kept = tokens if self.most_tokens is None else min(tokens, self.most_tokens)
        return self.token_bytes * kept


OWN_MODE = "own"
"""The one mode of an op that states none."""


class Op(InstancePart):
    """One operation of a computation graph.

    Examples
    --------
    >>> Op(name="conv1", kind="Conv", time_ns={"gpu": 1200}).time_ns["gpu"]
    1200
    """

    #: Unique in its graph.
    name: Name
    #: What it computes ("Conv"); a label.
    kind: str = "op"
    #: Time per device kind; a kind that is absent cannot run the op.
    time_ns: dict[str, Count] = Field(default_factory=dict)
    #: Bytes that occupy the op's device for as long as the plan is installed; the only size that
    #: counts against a device's memory under the rule `sum`.
    resident_bytes: Count = 0
    #: parameter_bytes, workspace_bytes: Weights (a part of `resident_bytes`), and scratch memory
    #: while the op runs.
    parameter_bytes: Count = 0
    workspace_bytes: Count = 0
    #: What the op holds between passes: weights, their gradients, optimizer state, caches. None
    #: stands for `parameter_bytes`.
    state_bytes: Count | None = None
    #: More of it, by name, that other ops hold by the same name (tied weights), and that a device
    #: holds once; not a part of `state_bytes`.
    shared_state: dict[Name, Positive] = Field(default_factory=dict)
    #: Which part of `resident_bytes` and `state_bytes` grows with the context, for max_context.
    caches: tuple[Cache, ...] = ()
    #: Ops of one group (colour class) run on one device.
    colocation: Name | None = None
    #: Whether the op belongs to the backward pass of a training graph.
    backward: Flag = False
    #: Of a backward op: whether gradients and updates of weights are all that depends on it, so
    #: that it may wait while gradients of inputs go on (zero-bubble schedules).
    weight_gradient: Flag = False
    #: Of a backward op: whether it runs once per iteration, and not with each microbatch, as the
    #: updates of weights do. pipeline_iteration alone looks at it.
    update: Flag = False
    #: Path of the module the op came from.
    module: str | None = None
    #: flops, bytes_moved: What costing turns into times.
    flops: Count | None = None
    bytes_moved: Count | None = None
    #: The number type it computes in ("float16"), for costing; None stands for "float32".
    dtype: str | None = None
    #: Axes along which an op may be split into parts (`op_splitting`).
    splittable_axes: tuple[str, ...] = ()
    #: Sizes of its axes, where known; a part of an axis has whole elements of it.
    axis_sizes: dict[str, Positive] = Field(default_factory=dict)
    #: How it may run under hybrid_pipeline, which looks at nothing else of the op; none: in one
    #: way, by its own fields (`ways`).
    modes: tuple[Mode, ...] = ()

    def bytes_at(self, tokens: int) -> int:
        """Resident bytes with caches of so many tokens, in place of those that are stated."""
        more = (each.held_bytes(tokens) - each.held_bytes(each.tokens) for each in self.caches)
        return self.resident_bytes + sum(more)

    @property
    def ways(self) -> tuple[Mode, ...]:
        """Its modes; where it states none, the one of its own fields.

        What is resident beyond the state is held for each microbatch in flight.
        """
        if self.modes:
            return self.modes
        state = self.parameter_bytes if self.state_bytes is None else self.state_bytes
        return (
            Mode(
                name=OWN_MODE,
                time_ns=self.time_ns,
                parameter_bytes=self.parameter_bytes,
                state_bytes=state,
                held_bytes=max(0, self.resident_bytes - state),
                workspace_bytes=self.workspace_bytes,
            ),
        )


class Edge(InstancePart):
    """A tensor that a producer hands to one consumer.

    Edges out of one op that name the same `tensor` share it (and must agree on its size and times);
    an edge without a tensor name carries a tensor of its own.
    """

    #: producer, consumer: Names of ops.
    producer: Name
    consumer: Name
    #: Size of the tensor.
    bytes: Count = 0
    #: Name of the tensor, unique per producer.
    tensor: Name | None = None
    #: Time to move the tensor between an accelerator and host memory, where the source states it.
    host_time_ns: Count | None = None
    #: Explicit transfer times, row = sending device, column = receiving device, in the order of the
    #: cluster's devices; used in place of the links.
    transfer_ns: tuple[tuple[Count, ...], ...] | None = None


class Device(InstancePart):
    """A device that runs one op at a time.

    `kind` is a label that ops' times refer to, and decides nothing else; `memory_bytes` None means
    no limit; an `is_host` device pays no communication in max_load. `server` names the machine
    that the device is in, for two levels of communication (`loads`); it decides nothing else.
    """

    name: Name
    kind: Name
    memory_bytes: Count | None = None
    is_host: Flag = False
    server: Name | None = None


class Link(InstancePart):
    """A one-way link between two devices: a transfer takes latency + ceil(bytes / bandwidth)."""

    source: Name
    target: Name
    bandwidth_bytes_per_s: Positive
    latency_ns: Count = 0


NUMBER_TYPES = ("float64", "float32", "float16", "bfloat16", "float8", "float4", "int8", "int4")
"""Number types that a device may state a rate of."""


def _by_dtype(value: Any) -> Any:
    """One number is the rate of float32, and of all types that have no rate of their own."""
    if not isinstance(value, Mapping):
        return {"float32": value}
    for name in value:
        if name not in NUMBER_TYPES:
            hint = instead_of(str(name), NUMBER_TYPES)
            raise ValueError(f"there is no number type {name!r}{hint}")
    return value


PeakRates = Annotated[dict[Name, Rate], Field(min_length=1), BeforeValidator(_by_dtype)]


class DeviceSpec(InstancePart):
    """What is known of a device kind: an entry of the catalogue, or of a file's own kinds."""

    #: Peak rate of matrix products by number type ("float16"), dense; one number is that of
    #: "float32", outside tensor cores.
    peak_flops_per_s: PeakRates
    #: Bandwidth of the device's memory.
    bandwidth_bytes_per_s: Rate
    #: Its capacity, None for no limit; GB of a source read as 10**9 bytes.
    memory_bytes: Size | None
    #: What of it is taken by others (a desktop, a context).
    reserved_bytes: Size = 0
    #: Time that every op takes on top of its roofline; an assumption, not a datasheet's value.
    launch_overhead_ns: Size = 5_000
    #: What NVLink moves out of the device, and into it at the same time; None where it has none.
    nvlink_bytes_per_s: Rate | None = None
    #: Datasheet, and the board it describes.
    source: str = ""
    #: Whether it is a CPU, and no rank of frameworks whose ranks are GPUs.
    is_cpu: Flag = False

    def peak(self, dtype: str | None) -> int:
        """Peak rate of matrix products of a number type, in FLOP/s; None stands for float32.

        Types of 8 bits count as one ("float8_e4m3fn"). A type without a rate runs at that of
        float32, and where that is not stated either, at the least of all.
        """
        rates = self.peak_flops_per_s
        rate = rates.get((dtype or "float32").partition("_")[0]) or rates.get("float32")
        return rate or min(rates.values())

    @property
    def free_bytes(self) -> int | None:
        """Memory that ops may fill, None for no limit."""
        return free_bytes(self.memory_bytes, self.reserved_bytes)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.free_bytes
        return self


def free_bytes(memory_bytes: int | None, reserved_bytes: int) -> int | None:
    """What ops may fill of a memory, None for no limit."""
    if not reserved_bytes:
        return memory_bytes
    if memory_bytes is None:
        raise ValueError("reserved_bytes is a part of memory_bytes; state that, too")
    if reserved_bytes > memory_bytes:
        raise ValueError(
            f"reserved_bytes, {reserved_bytes}, is more than the memory has, {memory_bytes}"
        )
    return memory_bytes - reserved_bytes


def _as_links(value: Any, handler: ValidatorFunctionWrapHandler) -> Links:
    return value if isinstance(value, Links) else Links(handler(value))


def _written_out(links: Links, handler: SerializerFunctionWrapHandler) -> Any:
    return handler(tuple(links))


AllLinks = Annotated[
    Sequence[Link],
    GetPydanticSchema(lambda _source, handler: handler(tuple[Link, ...])),
    WrapValidator(_as_links),
    WrapSerializer(_written_out),
]
"""Links of a cluster: stated one by one in a document, held as `Links`, with groups if given so."""


class Cluster(InstancePart):
    """Devices and the links between them.

    A pair without a link uses the widest multi-hop path (Moirai, section III-A). `kinds` has the
    rates of device kinds that the catalogue lacks, or has otherwise; they decide times in costing
    alone.

    Examples
    --------
    >>> gpus = (Device(name="g0", kind="gpu"), Device(name="g1", kind="gpu"))
    >>> Cluster(name="pair", devices=gpus).device_index["g1"]
    1
    """

    name: Name
    devices: Annotated[tuple[Device, ...], Field(min_length=1)]
    links: AllLinks = Field(default=(), validate_default=True)
    provenance: Provenance = Provenance()
    kinds: dict[Name, DeviceSpec] = Field(default_factory=dict)

    @cached_property
    def device_index(self) -> dict[str, int]:
        """Position of each device by name."""
        return {device.name: k for k, device in enumerate(self.devices)}

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        MAX_DEVICES.check(len(self.devices), "the cluster")
        if len(self.device_index) < len(self.devices):
            raise ValueError(f"devices: {_twice(d.name for d in self.devices)!r} appears twice")
        for number, device in enumerate(self.devices):
            if " -> " in device.name:  # how links are named in files and messages
                raise ValueError(f"devices[{number}] {device.name!r}: a name must not hold ' -> '")
        self.all_links.check(self.device_index)
        return self

    @property
    def all_links(self) -> Links:
        """The links, whose groups need not be written out."""
        assert isinstance(self.links, Links)  # validated
        return self.links

    @cached_property
    def least_bandwidth_bytes_per_s(self) -> int | None:
        """That of the narrowest path between two devices; None for a device alone."""
        # a pair with a link uses it, and no path is narrower than all of its links
        widths = [
            entry.bandwidth_bytes_per_s
            for entry in self.all_links.entries
            if not isinstance(entry, Group) or len(entry.devices) > 1
        ]
        return min(widths, default=None)

    @cached_property
    def open_memory(self) -> frozenset[str]:
        """Names of devices of whose memory nothing says what is taken; none, if not noted."""
        return frozenset()

    def with_open_memory(self, names: Iterable[str]) -> Cluster:
        """Note the names of `open_memory`, and return the cluster."""
        self.__dict__["open_memory"] = frozenset(names)  # like `source`: no part of its value
        return self

    @cached_property
    def source(self) -> str:
        """What messages name: the file that the cluster was read from, else its own name."""
        return f"cluster {self.name!r}"

    def read_from(self, path: str | Path) -> Cluster:
        """Note the file that messages about the cluster name, and return the cluster."""
        self.__dict__["source"] = str(path)  # like a cached property: no part of its value
        return self


class Graph(InstancePart):
    """A computation graph: a directed acyclic graph of ops.

    Examples
    --------
    >>> ops = (Op(name="a", time_ns={"gpu": 1}), Op(name="b", time_ns={"gpu": 2}))
    >>> graph = Graph(name="two", ops=ops, edges=(Edge(producer="a", consumer="b", bytes=4),))
    >>> graph.index.topological_order.tolist()
    [0, 1]
    """

    name: Name
    ops: Annotated[tuple[Op, ...], Field(min_length=1)]
    edges: tuple[Edge, ...] = ()
    provenance: Provenance = Provenance()

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Position of each op by name."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def index(self) -> GraphIndex:
        """Integer arrays of the graph's structure, built once."""
        return index_graph(self)

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if len(self.op_index) < len(self.ops):
            raise ValueError(f"ops: {_twice(op.name for op in self.ops)!r} appears twice")
        _ = self.index  # unknown ends, duplicate edges, tensors that disagree, cycles
        for what, total in (
            ("times", sum(max(op.time_ns.values(), default=0) for op in self.ops)),
            ("resident bytes", sum(op.resident_bytes for op in self.ops)),
            ("tensor bytes", tensors := sum(edge.bytes for edge in self.edges)),
            ("tensor, state and workspace bytes", tensors + self._check_state()),
        ):
            if total > LARGEST_SUM:
                raise ValueError(f"ops: the sum of the {what}, {total}, is above 2**62")
        if any(op.modes for op in self.ops):
            self._check_modes()
        return self

    def _check_modes(self) -> None:
        """Modes are told apart by name and tensor degree, and name the op's own neighbours."""
        preds: list[set[str]] = [set() for _ in self.ops]
        succs: list[set[str]] = [set() for _ in self.ops]
        for edge in self.edges:
            preds[self.op_index[edge.consumer]].add(edge.producer)
            succs[self.op_index[edge.producer]].add(edge.consumer)
        of_group: dict[str, tuple[str, frozenset[tuple[str, int]]]] = {}
        for number, op in enumerate(self.ops):
            seen = [(mode.name, mode.tensor) for mode in op.ways]
            for mode, key in zip(op.modes, seen, strict=False):
                place = f"ops[{number}] {op.name!r}: mode {mode.name!r} for tensor {mode.tensor}"
                if seen.count(key) > 1:
                    raise ValueError(f"{place} appears twice; give one of them another name")
                if mode.sharded_bytes + mode.gradient_bytes > mode.state_bytes:
                    raise ValueError(
                        f"{place} has more sharded_bytes and gradient_bytes than state_bytes, of"
                        " which they are parts"
                    )
                for field, ends, near in (
                    ("enter_bytes", mode.enter_bytes, preds[number]),
                    ("leave_bytes", mode.leave_bytes, succs[number]),
                ):
                    for end in ends:
                        if end not in near:
                            raise ValueError(f"{place} has {field} for {end!r}, with no such edge")
            if op.colocation is not None:
                first, names = of_group.setdefault(op.colocation, (op.name, frozenset(seen)))
                if names != set(seen):
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: its modes have other names or tensor degrees"
                        f" than those of {first!r} in its colocation group {op.colocation!r}; a"
                        " group chooses one mode by name: state the same for all its ops"
                    )

    def _check_state(self) -> int:
        """The sum of all state and workspace; shared state must have one size by each name."""
        total, first = 0, dict[str, tuple[int, str]]()
        for number, op in enumerate(self.ops):
            if sum(cache.held_bytes(cache.tokens) for cache in op.caches) > op.resident_bytes:
                raise ValueError(
                    f"ops[{number}] {op.name!r}: its caches hold more than its resident_bytes, of"
                    " which they are a part"
                )
            total += op.parameter_bytes if op.state_bytes is None else op.state_bytes
            total += op.workspace_bytes + sum(op.shared_state.values())
            for mark in ("weight_gradient", "update"):
                if getattr(op, mark) and not op.backward:
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: is marked {mark}; mark it backward, too"
                    )
            for name, size in op.shared_state.items():
                other, holder = first.setdefault(name, (size, op.name))
                if other != size:
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: shared_state {name!r} has {size} bytes here"
                        f" and {other} in {holder!r}; state it alike"
                    )
        return total


class BestKnown(InstancePart):
    """The best value and bound under one semantics, and what is said to prove them.

    `bound_origin` names the method behind the bound, `rests_on` whose word it is if it is no proof
    of placegap's own. What the corpus records is believed; in another file it is a claim.
    """

    semantics: StatedSemantics
    value_ns: Count | None = None
    bound_ns: Count | None = None
    value_origin: str = ""
    bound_origin: str = ""
    rests_on: str = ""


class Instance(InstancePart):
    """A graph to place on a cluster.

    Examples
    --------
    >>> from placegap.instances import example
    >>> instance = example()
    >>> instance.num_ops, instance.num_devices
    (4, 2)
    >>> instance.arrays.time_ns[0].tolist()
    [5, 5]
    >>> print(instance)
    fd-dps-figure-3: 4 ops, 4 edges, 2 devices
    op   gpu_ns  resident_bytes  feeds (bytes)
    op1       5               0  op2 (1), op3 (20)
    op2      20               0  op4 (1)
    op3      10               0  op4 (10)
    op4       8               0
    2 gpu: gpu0, gpu1; no memory limit
    2 links: 1000000000 bytes/s
    """

    name: Name
    graph: Graph
    cluster: Cluster
    #: The semantics the source states its numbers under, if it does.
    semantics: StatedSemantics | None = None
    #: What the source claims.
    best_known: tuple[BestKnown, ...] = ()

    def __str__(self) -> str:
        """A table of at most ten lines: what it is, some ops, devices and links."""
        return "\n".join(map(printable, _table(self)))

    def __repr__(self) -> str:
        return (
            f"<Instance {self.name!r}: {self.num_ops} ops, {len(self.graph.edges)} edges,"
            f" {self.num_devices} devices>"
        )

    def with_graph(self, graph: Graph, name: str | None = None) -> Instance:
        """Another graph on the same cluster; nothing is known of its values."""
        update = {"graph": graph, "best_known": (), "name": name or self.name}
        return self.model_copy(update=update)

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.graph.ops)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.cluster.devices)

    @cached_property
    def arrays(self) -> Arrays:
        """Integer arrays for the kernels, built once."""
        return derive_arrays(self)

    @cached_property
    def memory_arrays(self) -> MemoryArrays:
        """Integer arrays for the memory rule `peak`, built once."""
        return derive_memory(self.graph, self.arrays.backward)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of what decides values: ops, edges, devices and links."""
        digest = hashlib.sha256()
        for text in _hashed_text(self.graph, self.cluster):
            digest.update(text.encode())
        return digest.hexdigest()

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        kinds = frozenset(device.kind for device in self.cluster.devices)
        groups: dict[str, frozenset[str]] = {}
        for number, op in enumerate(self.graph.ops):
            supported = kinds.intersection(op.time_ns)
            if not supported:
                self._check_kinds(kinds)
                raise ValueError(
                    f"ops[{number}] {op.name!r}: has no time for any device kind of the cluster"
                    f" ({', '.join(sorted(kinds))}); add one to its time_ns"
                )
            if op.colocation is not None:
                together = groups.get(op.colocation, kinds) & supported
                if not together:
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: no device kind runs all ops of its"
                        f" colocation group {op.colocation!r}"
                    )
                groups[op.colocation] = together
        _ = self.arrays  # unreachable pairs, matrices of the wrong shape, sums that overflow
        return self

    def _check_kinds(self, kinds: frozenset[str]) -> None:
        """The cluster is at fault if no op at all has a time on it."""
        known = sorted({kind for op in self.graph.ops for kind in op.time_ns})
        if kinds.intersection(known) or not (known or any(op.flops for op in self.graph.ops)):
            return
        mend = (
            f"name kinds that it has times for ({', '.join(known[:9])})"
            if known
            else ("name kinds of the catalogue, by which it is costed")
        )
        raise ClusterError(
            f"devices: no op of {self.graph.name!r} has a time for any of the device kinds"
            f" ({', '.join(sorted(kinds))}); {mend}, or add times to the model"
        )


MOST_OPS = 5
"""Ops that `print(instance)` shows: with title, heads, devices and links it is ten lines."""


def _table(instance: Instance) -> Iterator[str]:
    """Title, ops, devices of up to two kinds, and links, as lines of text."""
    graph, devices, links = instance.graph, instance.cluster.devices, instance.cluster.all_links
    yield repr(instance).strip("<>").removeprefix("Instance ").replace("'", "", 2)
    of_kind: dict[str, list[Device]] = {}
    for device in devices:
        of_kind.setdefault(device.kind, []).append(device)
    kinds = list(of_kind)[:2] if len(of_kind) < 3 else list(of_kind)[:1]
    few = len(graph.ops) <= MOST_OPS
    shown = graph.ops if few else (*graph.ops[: MOST_OPS - 2], graph.ops[-1])
    feeds: dict[str, list[str]] = {op.name: [] for op in shown}
    for edge in graph.edges:
        if edge.producer in feeds:
            feeds[edge.producer].append(f"{edge.consumer} ({edge.bytes})")
    rows = [["op", *(f"{kind}_ns" for kind in kinds), "resident_bytes", "feeds (bytes)"]]
    for op in shown:
        times = [str(op.time_ns.get(kind, "-")) for kind in kinds]
        fed = _and_more(feeds[op.name])
        rows.append([op.name, *times, str(op.resident_bytes), fed])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (name, *numbers, fed) in enumerate(rows):
        if number == len(shown) and not few:
            yield f"... {len(graph.ops) - len(shown)} more ops"
        aligned = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False)]
        yield "  ".join([name.ljust(widths[0]), *aligned, fed]).rstrip()
    for kind in kinds:
        own = of_kind[kind]
        limits = {device.memory_bytes for device in own if device.memory_bytes is not None}
        held = f"{' or '.join(map(str, sorted(limits)))} bytes" if limits else "no memory limit"
        more = f"; {len(of_kind) - 1} more kinds" if len(of_kind) > 2 else ""
        yield f"{len(own)} {kind}: {_and_more([device.name for device in own])}; {held}{more}"
    rates = sorted({entry.bandwidth_bytes_per_s for entry in links.entries})
    ends = dict.fromkeys([*rates[:1], *rates[-1:]])
    yield f"{len(links)} links: {' to '.join(map(str, ends))} bytes/s" if rates else "no links"


def _and_more(names: Sequence[str]) -> str:
    """The first three of a list."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _hashed_text(graph: Graph, cluster: Cluster) -> Iterator[str]:
    """Canonical JSON of devices, edges, links and ops, piece by piece: links may be many."""

    def listed(parts: Sequence[InstancePart]) -> str:
        content = [part.model_dump(exclude_defaults=True) for part in parts]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    yield f'{{"devices":{listed(cluster.devices)},"edges":{listed(graph.edges)},"links":['
    comma = ""
    for entry in cluster.all_links.entries:
        latency = f',"latency_ns":{entry.latency_ns}' if entry.latency_ns else ""
        head = f'{{"bandwidth_bytes_per_s":{entry.bandwidth_bytes_per_s}{latency},"source":'
        ends = entry.devices if isinstance(entry, Group) else (entry.source, entry.target)
        names = [json.dumps(name) for name in ends]
        for a in names if isinstance(entry, Group) else names[:1]:
            row = ",".join(f'{head}{a},"target":{b}}}' for b in names if b != a)
            if row:
                yield comma + row
                comma = ","
    yield f'],"ops":{listed(graph.ops)}}}'


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name appears twice")
