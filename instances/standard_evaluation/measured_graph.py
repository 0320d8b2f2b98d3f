"""A graph with costs that were found elsewhere, and notes about what speaks against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placegap.instances.io.measurements import Table
from placegap.instances.problem.instance import Cluster, Edge, Graph, Op
from placegap.instances.reading.errors import InputError

Key = tuple[str, str]


@dataclass(frozen=True)
class Caution:
    """One thing that speaks against some estimates, and which these are."""

    about: str
    items: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.items[:3]) + (", ..." if len(self.items) > 3 else "")
        return f"{len(self.items)} x {self.about}: {shown}"


class Warnings:
    """Warnings as they come up, joined by what they say."""

    def __init__(self) -> None:
        self._items: dict[str, list[str]] = {}

    def add(self, about: str, item: str) -> None:
        """Note one item."""
        self._items.setdefault(about, []).append(item)

    def collected(self) -> tuple[Caution, ...]:
        """All notes, in the order in which each first came up."""
        return tuple(Caution(about, tuple(items)) for about, items in self._items.items())


def check_ops(graph: Graph, cluster: Cluster, ops: Table) -> None:
    """Every row names an op of the graph and a device kind of the cluster, or an InputError."""
    kinds = list(dict.fromkeys(device.kind for device in cluster.devices))
    several = len(ops.keys) > 1
    if several and not any(op in graph.op_index for op, _ in ops.keys):
        raise InputError(
            f"no row is of an op of the model {graph.name!r}: these are measurements of another",
            ops.place[0],
        )
    if several and not any(kind in kinds for _, kind in ops.keys):
        raise InputError(
            f"no row is of a device kind of {cluster.name!r} ({', '.join(kinds)}): choose the"
            " cluster that was measured (--cluster)",
            ops.place[0],
        )
    for (op, kind), place in zip(ops.keys, ops.place, strict=True):
        if op not in graph.op_index:
            raise InputError(f"the model has no op {op!r}; correct the name or drop the row", place)
        if kind not in kinds:
            raise InputError(
                f"the cluster has no device of kind {kind!r}, only {', '.join(kinds)};"
                " correct it or drop the row",
                place,
            )


def check_tensors(graph: Graph, tensors: Table) -> None:
    """Every row names an edge, and the only one between its ops, or an InputError."""
    between: dict[Key, int] = {}
    for edge in graph.edges:
        between[edge.producer, edge.consumer] = between.get((edge.producer, edge.consumer), 0) + 1
    for key, place in zip(tensors.keys, tensors.place, strict=True):
        number, name = between.get(key, 0), f"{key[0]!r} -> {key[1]!r}"
        if number == 0:
            raise InputError(f"the model has no edge {name}; correct it or drop the row", place)
        if number > 1:
            raise InputError(
                f"the model has {number} edges {name}; their sizes cannot be told apart: drop the"
                " row",
                place,
            )


def costed_ops(
    graph: Graph,
    cluster: Cluster,
    times: Mapping[Key, int],
    memory: Mapping[Key, int],
    notes: Warnings,
) -> tuple[Op, ...]:
    """The ops with what was found; what was not found stays and is noted."""
    kinds = list(dict.fromkeys(device.kind for device in cluster.devices))
    made = []
    for op in graph.ops:
        found = {kind: times[op.name, kind] for kind in kinds if (op.name, kind) in times}
        for kind in kinds:
            if kind not in found and kind in op.time_ns:
                notes.add("not measured: the time of the model file stays", f"{op.name} on {kind}")
        sizes = [memory[op.name, kind] for kind in kinds if (op.name, kind) in memory]
        if not sizes:
            notes.add("not measured: the memory of the model file stays", op.name)
        resident = max(sizes, default=op.resident_bytes)
        made.append(
            op.model_copy(update={"time_ns": {**op.time_ns, **found}, "resident_bytes": resident})
        )
    return tuple(made)


def sized_edges(
    graph: Graph, edges: Sequence[Edge], sizes: Mapping[Key, int], notes: Warnings
) -> tuple[Edge, ...]:
    """The edges of a graph with the sizes found; those of one tensor get the largest of theirs."""
    tensor = graph.index.tensor.tolist()
    size: dict[int, int] = {}
    for edge, u in zip(edges, tensor, strict=True):
        if (edge.producer, edge.consumer) in sizes:
            size[u] = max(size.get(u, 0), sizes[edge.producer, edge.consumer])
    made = []
    for edge, u in zip(edges, tensor, strict=True):
        name = f"{edge.producer} -> {edge.consumer}"
        if u not in size:
            notes.add("not measured: the tensor size of the model file stays", name)
        elif edge.transfer_ns is not None or edge.host_time_ns is not None:
            notes.add("explicit transfer times of the model file stay, whatever the size", name)
        made.append(edge.model_copy(update={"bytes": size.get(u, edge.bytes)}))
    return tuple(made)


def over_links(edges: Sequence[Edge], notes: Warnings) -> tuple[Edge, ...]:
    """The edges without transfer times of their own, so that the links decide."""
    for edge in edges:
        if edge.transfer_ns is not None or edge.host_time_ns is not None:
            notes.add(
                "explicit transfer times of the model file are left out: links were measured",
                f"{edge.producer} -> {edge.consumer}",
            )
    return tuple(
        edge.model_copy(update={"transfer_ns": None, "host_time_ns": None}) for edge in edges
    )


def note_costed(before: Graph, after: Graph, cluster: Cluster, notes: Warnings) -> None:
    """Note the times that came from FLOPs and bytes moved (`costing`)."""
    for old, new in zip(before.ops, after.ops, strict=True):
        for device in cluster.devices:
            if device.kind in new.time_ns and device.kind not in old.time_ns:
                notes.add(
                    "not measured: time from FLOPs and bytes moved", f"{old.name} on {device.kind}"
                )
