"""A paper's table joined with the kept runs of a study: the same cells, the paper's and ours."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from placegap.experiments.research.published import (
    Cause,
    Names,
    PublishedClaim,
    PublishedColumn,
    PublishedRow,
    PublishedTable,
    parse_cell,
)
from placegap.experiments.studies.runs import RunRow, read_rows, with_best
from placegap.instances.problem.memory_pressure import PRESSURE
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import relative_gap

FIGURES = "figures.json"
NO_PLAN_STATUSES = ("infeasible", "no_plan")

# Published table, row and name of a figure -> the figure of its graph.
FiguresOf = dict[str, dict[str, dict[str, float]]]
QUARTER = 0.25  # a claim is met if the share of time saved is this near to the published one
SAME = 1e-5  # programs print six digits at least, and ours are sums of whole nanoseconds


@dataclass(frozen=True)
class KeptResults:
    """The kept runs of a paper's studies, by their files, and the figures of its graphs."""

    # A bound that any of the studies has proved counts for every run of the same problem.
    rows: Mapping[str, Sequence[RunRow]]
    figures: FiguresOf


def load_kept(folder: Path) -> KeptResults:
    """What is kept in a paper's folder."""
    files = sorted((folder / "results").glob("*.csv"))
    found = [read_rows(file) for file in files]
    known = iter(with_best(list(chain.from_iterable(found))))
    rows = {file.stem: [next(known) for _ in of] for file, of in zip(files, found, strict=True)}
    path = folder / "results" / FIGURES
    return KeptResults(rows, json.loads(path.read_text()) if path.exists() else {})


@dataclass(frozen=True)
class ComparedCell:
    """One cell of a row and a column: what the paper printed there, and our run."""

    row: PublishedRow
    column: PublishedColumn
    printed: str  # as in the paper; empty where it has nothing
    paper_ns: float | None  # the same in nanoseconds; infinity for "OOM"
    run: RunRow | None = None  # our run; None where no study has one
    #: The plan's time, the method's, or a figure; infinity where the method found no plan.
    ours_ns: float | None = None
    #: The best bound of its row within memory; that of its own finer graph, if it splits ops.
    bound_ns: int | None = None
    #: Whether that bound holds for all plans of its kind, which may split ops or overfill a device.
    is_bounded: bool = False
    #: The least and the largest value of the method with other seeds.
    among: tuple[int, int] | None = None
    #: Distance of our plan from the bound; it may be below 0 where a plan overfills a device.
    gap: float | None = None


@dataclass(frozen=True)
class ComparedClaim:
    """A ratio of a claim, ours, and what no plan exceeds (None where that is not known)."""

    claim: PublishedClaim
    ours: float | None
    at_most: float | None
    median: float | None = None  # of ours, where the claim is the largest of several rows

    @property
    def verdict(self) -> str:
        """Whether ours has the direction of the published one, and nearly the time it saves."""
        if self.ours is None:
            return "no plan"
        if self.ours == 1:
            return "tie"
        if (self.ours > 1) != (self.claim.ratio > 1):
            return "reversed"
        # by the factor, 5 % saved would meet 25 %
        met = abs(_saved(self.ours) / _saved(self.claim.ratio) - 1) <= QUARTER
        return "met" if met else "same side"


def _saved(ratio: float) -> float:
    """The share of time that the faster one saves, from slower over faster; below 1 negative."""
    return 1 - 1 / ratio if ratio >= 1 else ratio - 1


@dataclass(frozen=True)
class ComparedTable:
    """A paper's table beside ours."""

    table: PublishedTable
    rows: tuple[tuple[ComparedCell, ...], ...]

    @property
    def cells(self) -> Iterator[ComparedCell]:
        """All cells, row by row."""
        return chain.from_iterable(self.rows)

    @property
    def plans(self) -> list[ComparedCell]:
        """The cells with the time of a plan of ours."""
        known = self.cells if self.table.is_ranked else ()
        return [cell for cell in known if cell.ours_ns is not None and math.isfinite(cell.ours_ns)]

    @property
    def published(self) -> list[tuple[ComparedCell, bool, bool]]:
        """The published cells of plans that we have, and whether the paper and we have no plan."""
        return [
            (cell, math.isinf(cell.paper_ns), math.isinf(cell.ours_ns))
            for cell in (self.cells if self.table.is_ranked else ())
            if cell.paper_ns is not None and cell.ours_ns is not None
        ]

    @property
    def equal(self) -> dict[str, list[tuple[str, bool]]]:
        """Of a rerun, each row with two values, and whether they are the same, by column."""
        found: dict[str, list[tuple[str, bool]]] = {}
        for cell in self.cells if self.table.rerun else ():
            if cell.paper_ns is not None and cell.ours_ns is not None:
                same = math.isclose(cell.paper_ns, cell.ours_ns, rel_tol=SAME)
                found.setdefault(cell.column.name, []).append((cell.row.name, same))
        return found

    @property
    def seeded(self) -> dict[str, tuple[int, int]]:
        """Columns with other seeds: rows whose printed value is among ours, and of how many."""
        found: dict[str, list[bool]] = {}
        for cell in self.cells:
            if cell.among is not None and cell.paper_ns is not None:
                low, high = cell.among
                is_among = low * (1 - SAME) <= cell.paper_ns <= high * (1 + SAME)
                found.setdefault(cell.column.name, []).append(is_among)
        return {name: (sum(among), len(among)) for name, among in found.items()}

    @property
    def ahead(self) -> tuple[int, int]:
        """On how many rows the column that the text has ahead is so, and of how many."""
        rows = []
        first, behind = self.table.ahead, self.table.ahead_of
        for row in self.rows if first else ():
            known = [(cell.column, cell.ours_ns or math.inf) for cell in row]
            (ours,) = (time for column, time in known if column.name == first)
            others = [t for c, t in known if (c.name in behind if behind else not c.own)]
            rows += [ours < min(others)] if math.isfinite(ours) else []
        return sum(rows), len(rows)

    def cell(self, row: str, column: str) -> ComparedCell:
        return next(c for c in self.cells if (c.row.name, c.column.name) == (row, column))

    @property
    def claims(self) -> list[ComparedClaim]:
        """The claims that the text makes about it."""
        return [self._claim(claim) for claim in self.table.claims]

    def _claim(self, claim: PublishedClaim) -> ComparedClaim:
        ratios, most = [], []
        for row in claim.rows or [row.name for row in self.table.rows]:
            slower, faster = (self.cell(row, column) for column in (claim.slower, claim.faster))
            over, under = slower.ours_ns, faster.ours_ns
            if over and under and math.isfinite(over) and math.isfinite(under):
                ratios.append(over / under)
                if faster.is_bounded and faster.bound_ns and self.table.quantity == "value":
                    most.append(over / faster.bound_ns)
        of = max if claim.statistic == "max" else statistics.fmean
        at_most = of(most) if most and len(most) == len(ratios) else None
        median = statistics.median(ratios) if of is max and len(ratios) > 1 else None
        return ComparedClaim(claim, of(ratios) if ratios else None, at_most, median)


def compare(table: PublishedTable, kept: KeptResults, cause: Cause | None = None) -> ComparedTable:
    """Join a paper's table with the kept runs: those of its study, or those that test a cause."""
    rows = tuple(
        tuple(
            _cell(table, row, column, printed, kept, cause)
            for column, printed in zip(
                table.columns, row.cells or [None] * len(table.columns), strict=True
            )
        )
        for row in table.rows
    )
    return ComparedTable(table, rows)


def runs_of(
    row: PublishedRow, rows: Mapping[str, Sequence[RunRow]], results: Names, tables: Names
) -> list[RunRow]:
    """The runs of some tables of studies on the instance and the cluster of a row."""
    # The cluster may have other boards there: `device_memory` adds their share to its name.
    return [
        run
        for study in results
        for run in rows.get(study, ())
        if run.instance == row.instance
        and row.num_ops in (None, run.num_ops)
        and row.cluster in (None, run.cluster, run.cluster.partition(PRESSURE)[0])
        and (not tables or any(fnmatchcase(run.table, name) for name in tables))
    ]


def _cell(
    table: PublishedTable,
    row: PublishedRow,
    column: PublishedColumn,
    printed: float | str | None,
    kept: KeptResults,
    cause: Cause | None,
) -> ComparedCell:
    shown = "" if printed is None else printed if isinstance(printed, str) else f"{printed:.6g}"
    cell = ComparedCell(row, column, shown, parse_cell(printed, table.unit))
    if column.figure is not None:
        figures = kept.figures.get(table.name, {}).get(row.name, {})
        return replace(cell, ours_ns=figures.get(column.figure))
    run = _run(table, row, column, kept, cause)
    if run is None:
        return cell
    value_ns = _plan_ns(run, best_effort=column.best_effort)
    clock = column.clock if cause is None or cause.clock is None else cause.clock
    cell = replace(cell, run=run, ours_ns=_ours_ns(table, run, value_ns, clock))
    if not table.is_ranked:
        return cell
    bound_ns, is_bounded = run.best_bound_ns, value_ns == run.value_ns
    if run.split_value_ns is not None:
        bound_ns = run.split_bound_ns
    elif table.relaxed and (bound_ns is None or not is_bounded):
        relaxed = runs_of(row, kept.rows, table.results, table.relaxed)
        bounds = [one.best_bound_ns for one in relaxed if one.best_bound_ns is not None]
        if bounds:
            bound_ns, is_bounded = max(bounds), True
    gap = relative_gap(value_ns, bound_ns)
    others = runs_of(row, kept.rows, column.seeds_in, ())
    values = [one.value_ns for one in others if one.value_ns and one.method == column.method]
    if values:
        cell = replace(cell, among=(min(values), max(values)))
    is_bounded = is_bounded and column.clock is None
    return replace(cell, bound_ns=bound_ns, is_bounded=is_bounded, gap=gap)


def _run(
    table: PublishedTable,
    row: PublishedRow,
    column: PublishedColumn,
    kept: KeptResults,
    cause: Cause | None,
) -> RunRow | None:
    """The run that belongs in a cell, or that tests a cause there."""
    place = table.place_of(column)
    is_altered = cause is not None and (not cause.alters or column.name in cause.alters)
    if cause is not None and cause.clock is None and is_altered:
        own = place[1] or ("*",)
        place = cause.results, tuple(t.replace("*", one) for t in cause.tables for one in own)
    found = [
        run
        for run in runs_of(row, kept.rows, *place)
        if column.method is not None and column.method in (run.label, run.method)
    ]
    if len(found) > 1:
        raise InputError(
            f"{table.name}: column {column.name!r} of {row.name!r} has {len(found)} runs; name its"
            " tables, or the label of its method, or the row's cluster"
        )
    return found[0] if found else None


def _plan_ns(run: RunRow, *, best_effort: bool) -> int | None:
    """What a run's plan takes: with whole ops, with split ones, or beyond the memory."""
    if run.value_ns is not None:
        return run.value_ns
    return run.overfilled_ns if run.split_value_ns is None and best_effort else run.split_value_ns


def _ours_ns(
    table: PublishedTable, run: RunRow, value_ns: int | None, clock: str | None
) -> float | None:
    if value_ns is None:
        return math.inf if run.status in NO_PLAN_STATUSES else None
    time_ns = None if run.time_s is None else run.time_s * 1e9
    if table.quantity == "time":
        return time_ns
    if clock is not None:
        value_ns = getattr(run, clock)
    if table.quantity == "value" or value_ns is None:
        return value_ns
    return None if time_ns is None else table.steps * value_ns + time_ns
