"""Standard Evaluation: what a graph costs at a batch that was not measured, from smaller batches.

Xu, Liao, Xie, Zhou, "Celeritas: fast optimizer for large dataflow graphs", section 4.2. Step one:
the model is measured at several batches that fit on one device; a line per op gives its memory and
its time at the large batch, and a line t = k d + b per device pair its transfers. Step two runs
the large batch under a sequential placement (`order-place` with ``order=dfs reach=1``) and takes
what is measured there (`use_measured`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placegap.instances.files.document import Document
from placegap.instances.importers.measurements import (
    DOUBTS,
    MIN_R2,
    Deviations,
    Doubt,
    Lines,
    LinkFit,
    Table,
    deviations,
    fit_lines,
    fit_links,
    with_links,
)
from placegap.instances.problem import Cluster, Edge, Graph, Op
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.reading.errors import InputError, as_input_error
from placegap.instances.reading.input_files import LARGEST


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model at the requested batch, and how far to trust it."""

    document: Document  # the model with estimated (or measured) costs, and its cluster
    batch: int
    measured_batches: tuple[int, ...]  # the batches that the lines were fitted to, ascending
    links: tuple[LinkFit, ...]
    #: Of ``time`` and ``memory`` per op and device kind, and of ``tensors``, where the requested
    #: batch was measured, too: those rows are held out of the fits.
    deviations: Mapping[str, Deviations]
    warnings: tuple[Caution, ...]


def standard_evaluation(
    document: Document,
    cluster: Cluster,
    ops: Table,
    batch: int,
    *,
    links: Table | None = None,
    tensors: Table | None = None,
    use_measured: bool = False,
    min_r2: float = MIN_R2,
) -> Estimate:
    """The model at a batch, from measurements at others."""
    # What is not measured stays as the document has it, with a warning. An op's resident bytes are
    # the largest estimate over the device kinds. Rows of this batch are left out of the fits and
    # compared with the estimates; with `use_measured` they replace them: the second step. Fits
    # below `min_r2` are warned about. Estimates are rounded to whole ns and bytes, half to even.
    # O(r log r) for r rows.
    if not 1 <= batch <= LARGEST:
        raise InputError(f"the batch must be from 1 to 2**53, not {batch}")
    check_ops(document.graph, cluster, ops)
    notes = Warnings()
    compared: dict[str, Deviations] = {}
    times = _at_batch(ops, "time_ns", batch, "time", notes, compared, use_measured, min_r2)
    memory = _at_batch(ops, "memory_bytes", batch, "memory", notes, compared, use_measured, min_r2)
    new_ops = costed_ops(document.graph, cluster, times, memory, notes)
    edges = document.graph.edges
    found: tuple[LinkFit, ...] = ()
    if links is not None:
        found = fit_links(links, cluster, min_r2)
        for fit in found:
            for doubt in fit.doubts:
                notes.add(doubt, f"link {fit.source} -> {fit.target}")
        cluster, kept = with_links(cluster, found)
        for pair in kept:
            notes.add("not measured: the cluster's own figures stay", f"link {pair}")
        edges = over_links(edges, notes)
    if tensors is not None:
        check_tensors(document.graph, tensors)
        sizes = _at_batch(tensors, "bytes", batch, "tensors", notes, compared, use_measured, min_r2)
        edges = sized_edges(document.graph, edges, sizes, notes)
    elif edges:
        notes.add("tensor sizes of the model file, whatever its batch", "no tensors were measured")
    fitted = np.unique(ops.size[ops.size != batch]).tolist()
    graph = _evaluated(document.graph, new_ops, edges, batch, fitted, use_measured)
    result = Document(name=graph.name, graph=graph).instance(cluster)
    note_costed(graph, result.graph, cluster, notes)
    return Estimate(Document.of(result), batch, tuple(fitted), found, compared, notes.collected())


def _at_batch(
    table: Table,
    figure: str,
    batch: int,
    what: str,
    notes: Warnings,
    compared: dict[str, Deviations],
    use_measured: bool,
    min_r2: float,
) -> dict[Key, int]:
    """The figure of every key at the batch; doubts are noted, measured values compared."""
    held = table.size == batch
    measured = _means(table.rows(held), figure)
    keys, lines = _lines(table.rows(~held), figure)
    estimated: dict[Key, float] = {}
    if keys:
        values, doubts = lines.estimate(batch, min_r2)
        estimated = dict(zip(keys, values.tolist(), strict=True))
        for group, doubt in doubts:
            if not (use_measured and keys[group] in measured):
                notes.add(DOUBTS[doubt], _item(what, keys[group], lines, group, doubt))
    if not keys and not use_measured:
        raise InputError(
            f"all rows of the {what} have batch {batch}, which is held out: measure other"
            " batches, too, or use these rows (--measured)"
        )
    both = [key for key in estimated if key in measured]
    if both:
        compared[what] = deviations(
            np.rint([estimated[key] for key in both]), np.array([measured[key] for key in both])
        )
    if use_measured:
        for key in estimated:
            if key not in measured:
                notes.add(f"not measured at batch {batch}: the estimate stays", _name(what, key))
        estimated |= measured
    else:
        for key in measured:
            if key not in estimated:
                notes.add(
                    f"measured at batch {batch} only, which is held out: not used", _name(what, key)
                )
    for key, value in estimated.items():
        if value > LARGEST_SUM:
            raise InputError(
                f"{_name(what, key)} is estimated at {value:.3g}, above 2**62: ask for a smaller"
                " batch or measure larger ones"
            )
    return {key: round(value) for key, value in estimated.items()}


def _lines(table: Table, figure: str) -> tuple[list[Key], Lines]:
    """A line per key, keys in the order of their first rows."""
    number: dict[Key, int] = {}
    group = [number.setdefault(key, len(number)) for key in table.keys]
    lines = fit_lines(np.array(group, np.int64), table.size, table.figures[figure], len(number))
    return list(number), lines


def _means(table: Table, figure: str) -> dict[Key, float]:
    keys, lines = _lines(table, figure)
    return dict(zip(keys, lines.mean_y.tolist(), strict=True))


def _name(what: str, key: Key) -> str:
    joint = "->" if what == "tensors" else "on"
    return f"{what} of {key[0]} {joint} {key[1]}"


def _item(what: str, key: Key, lines: Lines, group: int, doubt: Doubt) -> str:
    detail = f" (R2 {lines.r2[group]:.3f})" if doubt == "poor" else ""
    return _name(what, key) + detail


def _evaluated(
    graph: Graph,
    ops: tuple[Op, ...],
    edges: tuple[Edge, ...],
    batch: int,
    fitted: Sequence[int],
    use_measured: bool,
) -> Graph:
    origin = f"lines through batches {', '.join(map(str, fitted))}" if fitted else ""
    if use_measured:
        origin = f"measured, else {origin}" if origin else "measured"
    note = f"Standard Evaluation at batch {batch}: {origin}; rounded half to even"
    provenance = graph.provenance.noting(note)
    name = f"{graph.name}-batch{batch}"
    with as_input_error(source=name):  # the sums
        return Graph(name=name, ops=ops, edges=edges, provenance=provenance)


Key = tuple[str, str]


@dataclass(frozen=True)
class Caution:
    """One doubt about some estimates, and which these are."""

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
            f"no row names an op of the model {graph.name!r}: these are measurements of another"
            " model",
            ops.place[0],
        )
    if several and not any(kind in kinds for _, kind in ops.keys):
        raise InputError(
            f"no row names a device kind of {cluster.name!r} ({', '.join(kinds)}): choose the"
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
