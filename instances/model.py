"""What the problem is: ops and edges, devices and links, and the instance that joins them.

Every class is frozen and validated once, when it is made; nothing downstream checks again.
Times are integer nanoseconds, sizes integer bytes, bandwidths bytes per second.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from placegap.instances.arrays import Arrays, derive_arrays
from placegap.instances.index import GraphIndex, index_graph
from placegap.instances.near_names import instead_of
from placegap.instances.semantics import Semantics

LARGEST_SUM = 2**62
"""Sums of times or of bytes above this are input errors: kernels add in int64."""

Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SUM)]
Positive = Annotated[int, Field(strict=True, gt=0, le=LARGEST_SUM)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]


class Part(BaseModel):
    """Base of all parts of an instance: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A changed copy, validated anew; pydantic's own would keep stale derived arrays."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**(copy.deepcopy(fields) if deep else fields), **(update or {})})


class Provenance(Part):
    """Where something came from, under which licence, and what was changed on the way."""

    source: str = ""
    licence: str = ""
    changes: tuple[str, ...] = ()
    parameters: dict[str, str | int | float | bool | None] = Field(default_factory=dict)


class Op(Part):
    """One operation of a computation graph.

    Attributes
    ----------
    name : str
        Unique in its graph.
    kind : str
        What it computes ("Conv"); a label.
    time_ns : dict of str to int
        Time per device kind; a kind that is absent cannot run the op.
    resident_bytes : int
        Bytes that occupy the op's device for as long as the plan is installed; the only size that
        counts against a device's memory.
    parameter_bytes, workspace_bytes : int
        Weights (a part of `resident_bytes`) and scratch memory; information for methods.
    colocation : str or None
        Ops of one group (colour class) run on one device.
    backward : bool
        Whether the op belongs to the backward pass of a training graph.
    module : str or None
        Path of the module the op came from.
    flops, bytes_moved : int or None
        What costing turns into times.
    splittable_axes : tuple of str
        Axes along which an op may be split into parts (`splitting`).
    axis_sizes : dict of str to int
        Sizes of its axes, where known; a part of an axis has whole elements of it.

    Examples
    --------
    >>> Op(name="conv1", kind="Conv", time_ns={"gpu": 1200}).time_ns["gpu"]
    1200
    """

    name: Name
    kind: str = "op"
    time_ns: dict[str, Count] = Field(default_factory=dict)
    resident_bytes: Count = 0
    parameter_bytes: Count = 0
    workspace_bytes: Count = 0
    colocation: Name | None = None
    backward: Flag = False
    module: str | None = None
    flops: Count | None = None
    bytes_moved: Count | None = None
    splittable_axes: tuple[str, ...] = ()
    axis_sizes: dict[str, Positive] = Field(default_factory=dict)


class Edge(Part):
    """A tensor that a producer hands to one consumer.

    Edges out of one op that name the same `tensor` share it (and must agree on its size and times);
    an edge without a tensor name carries a tensor of its own.

    Attributes
    ----------
    producer, consumer : str
        Names of ops.
    bytes : int
        Size of the tensor.
    tensor : str or None
        Name of the tensor, unique per producer.
    host_time_ns : int or None
        Time to move the tensor between an accelerator and host memory, where the source states it.
    transfer_ns : tuple of tuples of int, or None
        Explicit transfer times, row = sending device, column = receiving device, in the order of
        the cluster's devices; used in place of the links.
    """

    producer: Name
    consumer: Name
    bytes: Count = 0
    tensor: Name | None = None
    host_time_ns: Count | None = None
    transfer_ns: tuple[tuple[Count, ...], ...] | None = None


class Device(Part):
    """A device that runs one op at a time.

    `kind` is a label that ops' times refer to, and decides nothing else; `memory_bytes` None means
    no limit; an `is_host` device pays no communication in max_load. `server` names the machine
    that the device is in, for two levels of communication (`servers`); it decides nothing else.
    """

    name: Name
    kind: Name
    memory_bytes: Count | None = None
    is_host: Flag = False
    server: Name | None = None


class Link(Part):
    """A one-way link between two devices: a transfer takes latency + ceil(bytes / bandwidth)."""

    source: Name
    target: Name
    bandwidth_bytes_per_s: Positive
    latency_ns: Count = 0


class Cluster(Part):
    """Devices and the links between them.

    A pair without a link uses the widest multi-hop path (Moirai, section III-A).

    Examples
    --------
    >>> gpus = (Device(name="g0", kind="gpu"), Device(name="g1", kind="gpu"))
    >>> Cluster(name="pair", devices=gpus).device_index["g1"]
    1
    """

    name: Name
    devices: Annotated[tuple[Device, ...], Field(min_length=1)]
    links: tuple[Link, ...] = ()
    provenance: Provenance = Provenance()

    @cached_property
    def device_index(self) -> dict[str, int]:
        """Position of each device by name."""
        return {device.name: k for k, device in enumerate(self.devices)}

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if len(self.device_index) < len(self.devices):
            raise ValueError(f"devices: {_twice(d.name for d in self.devices)!r} appears twice")
        for number, device in enumerate(self.devices):
            if " -> " in device.name:  # how links are named in files and messages
                raise ValueError(f"devices[{number}] {device.name!r}: a name must not hold ' -> '")
        pairs = set()
        for number, link in enumerate(self.links):
            for end in (link.source, link.target):
                if end not in self.device_index:
                    hint = instead_of(end, self.device_index)
                    raise ValueError(f"links[{number}]: there is no device {end!r}{hint}")
            if link.source == link.target:
                raise ValueError(f"links[{number}]: joins {link.source!r} with itself")
            if (link.source, link.target) in pairs:
                raise ValueError(
                    f"links[{number}]: {link.source!r} -> {link.target!r} appears twice"
                )
            pairs.add((link.source, link.target))
        return self


class Graph(Part):
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
            ("tensor bytes", sum(edge.bytes for edge in self.edges)),
        ):
            if total > LARGEST_SUM:
                raise ValueError(f"ops: the sum of the {what}, {total}, is above 2**62")
        return self


class BestKnown(Part):
    """The best value and bound that are known under one semantics, and what proves them.

    `bound_origin` names the method behind the bound, `rests_on` whose word it is if it is no proof
    of placegap's own; value == bound is a proven optimum.
    """

    semantics: Semantics
    value_ns: Count | None = None
    bound_ns: Count | None = None
    value_origin: str = ""
    bound_origin: str = ""
    rests_on: str = ""


class Instance(Part):
    """A graph to place on a cluster.

    Attributes
    ----------
    name : str
    graph : Graph
    cluster : Cluster
    semantics : Semantics or None
        The semantics the source states its numbers under, if it does.
    best_known : tuple of BestKnown

    Examples
    --------
    >>> from placegap.instances import example
    >>> instance = example()
    >>> instance.num_ops, instance.num_devices
    (4, 2)
    >>> instance.arrays.time_ns[0].tolist()
    [5, 5]
    """

    name: Name
    graph: Graph
    cluster: Cluster
    semantics: Semantics | None = None
    best_known: tuple[BestKnown, ...] = ()

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
    def content_hash(self) -> str:
        """SHA-256 of what decides values: ops, edges, devices and links."""
        content = {
            "ops": [op.model_dump(exclude_defaults=True) for op in self.graph.ops],
            "edges": [edge.model_dump(exclude_defaults=True) for edge in self.graph.edges],
            "devices": [
                device.model_dump(exclude_defaults=True) for device in self.cluster.devices
            ],
            "links": [link.model_dump(exclude_defaults=True) for link in self.cluster.links],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        kinds = frozenset(device.kind for device in self.cluster.devices)
        groups: dict[str, frozenset[str]] = {}
        for number, op in enumerate(self.graph.ops):
            supported = kinds.intersection(op.time_ns)
            if not supported:
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


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name appears twice")
