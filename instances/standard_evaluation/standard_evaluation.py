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
from pydantic import ValidationError

from placegap.instances.io.document import Document
from placegap.instances.io.measurements import (
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
from placegap.instances.io.standard_evaluation import (
    Caution,
    Key,
    Warnings,
    check_ops,
    check_tensors,
    costed_ops,
    note_costed,
    over_links,
    sized_edges,
)
from placegap.instances.problem.instance import Cluster, Edge, Graph, Op
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.input_files import LARGEST


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model at the batch asked for, and how far to trust it.

    Attributes
    ----------
    document : Document
        The model with estimated (or measured) costs, and its cluster.
    batch : int
    measured_batches : tuple of int
        The batches that the lines were fitted to, ascending.
    links : tuple of LinkFit
    deviations : dict of str to Deviations
        Of ``time`` and ``memory`` per op and device kind, and of ``tensors``, where the batch asked
        for was measured, too: those rows are held out of the fits.
    warnings : tuple of Caution
    """

    document: Document
    batch: int
    measured_batches: tuple[int, ...]
    links: tuple[LinkFit, ...]
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
    """The model at a batch, from measurements at others.

    Parameters
    ----------
    document : Document
        The graph: its ops and edges. What is not measured stays as it is there, with a warning.
    cluster : Cluster
        Its device kinds are those of the measurements.
    ops : Table
        See `measurements.read_ops`. An op's resident bytes are the largest estimate over the
        device kinds.
    batch : int
        Rows of this batch are held out of the fits and compared with the estimates.
    links, tensors : Table, optional
        See `measurements.read_links`, `read_tensors`.
    use_measured : bool
        Take what was measured at the batch itself in place of the estimates: the second step.
    min_r2 : float
        Fits below are warned about.

    Raises
    ------
    InputError
        If a row names what the model or the cluster does not have, or nothing is left to fit.

    Notes
    -----
    Estimates are rounded to whole ns and bytes, half to even. O(r log r) for r rows.

    Examples
    --------
    Times of 10 + 2 batch and bytes of 100 batch, measured at 1, 2 and 4, asked for at 64:

    >>> from placegap.instances import example
    >>> diamond = Document.of(example())
    >>> keys = tuple((op.name, "gpu") for op in diamond.graph.ops for _ in range(3))
    >>> sizes = np.array([1, 2, 4] * 4)
    >>> table = Table(keys, sizes, {"time_ns": 10.0 + 2 * sizes, "memory_bytes": 100.0 * sizes},
    ...               ("row",) * 12)
    >>> found = standard_evaluation(diamond, diamond.cluster, table, 64)
    >>> found.document.graph.ops[0].time_ns, found.document.graph.ops[0].resident_bytes
    ({'gpu': 138}, 6400)
    """
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
            f"all rows of the {what} are of batch {batch}, which is held out: measure other"
            " batches, too, or take what was measured at it (--measured)"
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
                    f"measured at batch {batch} only, which is held out: not used",
                    _name(what, key),
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
    provenance = graph.provenance.model_copy(update={"changes": (*graph.provenance.changes, note)})
    name = f"{graph.name}-batch{batch}"
    try:
        return Graph(name=name, ops=ops, edges=edges, provenance=provenance)
    except ValidationError as error:  # the sums
        raise from_validation_error(error, source=name) from None
