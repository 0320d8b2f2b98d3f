"""A paper's table joined with the runs of a study: the same cells, theirs and ours.

The figures of a table's sentences are taken from its cells, too: no page has one of its own.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from placegap.experiments.research.graph_figures import figure_of
from placegap.experiments.research.published import (
    UNITS_NS,
    PublishedClaim,
    PublishedColumn,
    PublishedRow,
    PublishedTable,
    StatedFigure,
    parse_cell,
)
from placegap.experiments.studies.runs import NOT_APPLICABLE, NOT_INSTALLED, RunRow
from placegap.instances.problem.memory_pressure import PRESSURE
from placegap.instances.reading.errors import InputError

NO_PLAN_STATUSES = ("infeasible", "no_plan")
WITHOUT_RUN = (NOT_APPLICABLE, NOT_INSTALLED)

Figures = Callable[[RunRow, str], float]

STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "mean": statistics.fmean,
}
"""What a claim takes of its rows."""

MOST_WORDS = 160
"""Characters of a message that are kept in the repository."""

ROUNDING = 1e-7
"""Of a value: the papers cut digits off, and ours rounds the time of each op to a nanosecond."""


@dataclass(frozen=True)
class ComparedCell:
    """One cell of a paper's table: what is printed there, and our run."""

    #: As in the paper; empty where it has nothing.
    printed: str
    #: The same in nanoseconds; infinity for "OOM".
    paper_ns: float | None
    #: Our run; None where the study has none.
    run: RunRow | None
    #: The plan's time, or the method's; infinity where the method found no plan. In a table of
    #: figures both are those, without a unit.
    ours_ns: float | None
    #: Distance of our plan from the best bound.
    gap: float | None
    #: The same for the paper's number, where its inputs are ours; below 0 if it beats a bound.
    paper_gap: float | None


@dataclass(frozen=True)
class ComparedRow:
    """A row, and the best bound of its instance for each cell's class of plans is in its runs."""

    row: PublishedRow
    cells: tuple[ComparedCell, ...]


@dataclass(frozen=True)
class ComparedClaim:
    """A ratio of a claim: ours, the row that has it, and what no plan exceeds.

    `ours` is the largest of all rows, or their mean, as the claim's own; a mean has no row.
    `at_most` is the same statistic if the faster method met its bound everywhere; None where it
    splits ops, to whose finer instance no bound applies, or where a row of a mean has no bound.
    `by_row` has all ratios.
    """

    claim: PublishedClaim
    ours: float | None
    row: str
    at_most: float | None
    by_row: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class ComparedTable:
    """A paper's table beside ours; rows without any run of ours are left out."""

    table: PublishedTable
    rows: tuple[ComparedRow, ...]
    claims: tuple[ComparedClaim, ...]

    @property
    def num_left_out(self) -> int:
        """Rows of the paper that the study did not run."""
        return len(self.table.rows) - len(self.rows)


def live_figure(cell: RunRow, name: str) -> float:
    """A figure of the graph that a run was about, computed now."""
    assert cell.run is not None  # `run_of` chose one that has
    return figure_of(cell.run.source, name)


def compare(
    table: PublishedTable, cells: Sequence[RunRow], figure: Figures = live_figure
) -> ComparedTable:
    """Join a paper's table with the runs of a study.

    `figure` gives the figure of a cell's graph by its name.
    """
    rows = []
    for row in table.rows:
        runs = [run_of(row, column, cells) for column in table.columns]
        if any(run is not None for run in runs):
            printed = row.cells or [None] * len(runs)
            joined = (
                _cell(table, column, text, run, partial(figure_in, row=row, figure=figure))
                for column, text, run in zip(table.columns, printed, runs, strict=True)
            )
            rows.append(ComparedRow(row, tuple(joined)))
    claims = tuple(_claim(table, rows, claim) for claim in table.claims)
    return ComparedTable(table, tuple(rows), claims)


def figure_in(run: RunRow, name: str, row: PublishedRow, figure: Figures) -> float:
    """A figure of a row: of its op, if it names one, or else of the graph."""
    return figure(run, name if row.op is None else f"{name} of {row.op}")


def run_of(row: PublishedRow, column: PublishedColumn, cells: Sequence[RunRow]) -> RunRow | None:
    """The run of a study that belongs to a row and a column of a paper's table.

    A row's cluster may have other boards there: `device_memory` adds their share to its name.
    """
    if column.method is None and column.figure is None:
        return None
    found = [
        cell
        for cell in cells
        if cell.instance == row.instance
        and row.cluster in (None, cell.cluster, cell.cluster.partition(PRESSURE)[0])
        and (not column.tables or cell.table in column.tables)
        and column.method in (None, cell.label, cell.method)
    ]
    if column.figure is not None:  # any run will do: its graph counts
        return next((cell for cell in found if cell.status not in WITHOUT_RUN), None)
    if len(found) > 1:
        raise InputError(
            f"column {column.name!r} of {row.name!r} has {len(found)} runs; name its tables, or"
            " the label of its method, or the row's cluster"
        )
    return found[0] if found else None


def _cell(
    table: PublishedTable,
    column: PublishedColumn,
    printed: float | str | None,
    run: RunRow | None,
    figure: Figures,
) -> ComparedCell:
    paper_ns = parse_cell(printed, table.unit)
    bound_ns = None if run is None else run.best_bound_ns
    paper_gap = None
    if table.same_inputs and bound_ns is not None and paper_ns and math.isfinite(paper_ns):
        off_ns = paper_ns - bound_ns
        paper_gap = 0.0 if abs(off_ns) < max(1.0, ROUNDING * bound_ns) else off_ns / paper_ns
    return ComparedCell(
        printed=_shown(printed),
        paper_ns=paper_ns,
        run=run,
        ours_ns=None if run is None else _ours_ns(table, column, run, figure),
        gap=run.gap if run is not None and table.quantity == "value" else None,
        paper_gap=paper_gap,
    )


def _shown(printed: float | str | None) -> str:
    if printed is None:
        return ""
    return printed if isinstance(printed, str) else f"{printed:.6g}"


def _ours_ns(
    table: PublishedTable, column: PublishedColumn, run: RunRow, figure: Figures
) -> float | None:
    if column.figure is not None:
        return figure(run, column.figure)
    overfilled_ns = run.overfilled_ns if column.best_effort else None
    if run.status in NO_PLAN_STATUSES and overfilled_ns is None:
        return math.inf
    time_ns = None if run.time_s is None else run.time_s * 1e9
    if table.quantity == "time":
        return time_ns
    other_ns = overfilled_ns if run.split_value_ns is None else run.split_value_ns
    value_ns = run.value_ns if other_ns is None else float(other_ns)
    if table.quantity == "measuring" and value_ns is not None and time_ns is not None:
        return table.steps * value_ns + time_ns
    return value_ns


def _claim(
    table: PublishedTable, rows: Sequence[ComparedRow], claim: PublishedClaim
) -> ComparedClaim:
    names = [column.name for column in table.columns]
    slower, faster = names.index(claim.slower), names.index(claim.faster)
    ratios: list[tuple[str, float]] = []
    most, bounded = [], table.quantity == "value"
    for row in rows:
        over, under = row.cells[slower].ours_ns, row.cells[faster].ours_ns
        run = row.cells[faster].run
        if claim.rows and row.row.name not in claim.rows:
            continue
        if over and under and math.isfinite(over) and math.isfinite(under):
            ratios.append((row.row.name, over / under))
            if run is not None and run.best_bound_ns:
                most.append(over / run.best_bound_ns)
                bounded = bounded and run.split_value_ns is None
    statistic = STATISTICS[claim.statistic]
    ours = statistic([ratio for _, ratio in ratios]) if ratios else None
    where = next((name for name, ratio in ratios if ratio == ours), "")
    if claim.statistic == "mean":
        where, bounded = "", bounded and len(most) == len(ratios)
    at_most = statistic(most) if bounded and most else None
    return ComparedClaim(claim, ours, where, at_most, tuple(ratios))


WORDS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
SAME = 1e-4
"""Relative difference below which two figures count as one, and a gap as closed."""

HELD = {
    "holds": re.compile(r"holds (\d+) bytes at its peak"),
    "room": re.compile(r"at its peak, \d+ more than its (\d+)"),
    "needs": re.compile(r"holds \d+ bytes of (\d+)"),
}
"""What a run without a plan says: what a device holds, may hold at most, and what all ops need."""


class Amount(float):
    """A number; in percent, too: of one, and how much more and less than one it is."""

    @property
    def percent(self) -> Amount:
        """Of one."""
        return Amount(100 * self)

    @property
    def more(self) -> Amount:
        """By how many percent the first is above the second, of which this is the quotient."""
        return Amount(100 * (self - 1))

    @property
    def less(self) -> Amount:
        """By how many percent the second is below the first."""
        return Amount(100 * (1 - 1 / self) if self else math.nan)

    def __format__(self, form: str) -> str:
        """As a float; a dash where there is none."""
        return "-" if math.isnan(self) else super().__format__(form)


class Count(int):
    """How many; in a word, too."""

    @property
    def word(self) -> str:
        """Up to twelve."""
        return WORDS[self] if self < len(WORDS) else str(self)


@dataclass(frozen=True)
class Spread:
    """A figure over all its rows; those without a plan count as infinite and are not shown."""

    #: One per row or cell.
    values: Sequence[float]

    @property
    def shown(self) -> tuple[float, ...]:
        """Those that are numbers."""
        return tuple(value for value in self.values if math.isfinite(value))

    @property
    def least(self) -> Amount:
        """The least number."""
        return Amount(min(self.shown, default=math.nan))

    @property
    def most(self) -> Amount:
        """The largest number."""
        return Amount(max(self.shown, default=math.nan))

    @property
    def mean(self) -> Amount:
        """Of all numbers."""
        return Amount(statistics.fmean(self.shown) if self.shown else math.nan)

    @property
    def all(self) -> Count:
        """How many there are."""
        return Count(len(self.values))

    @property
    def fit(self) -> Count:
        """How many are numbers: rows with a plan."""
        return Count(len(self.shown))

    @property
    def above(self) -> Count:
        """How many are above one."""
        return Count(sum(value > 1 for value in self.values))

    @property
    def not_below(self) -> Count:
        """How many are one or more."""
        return Count(sum(value >= 1 for value in self.values))

    @property
    def below(self) -> Count:
        """How many are below one."""
        return Count(sum(value < 1 for value in self.values))

    @property
    def same(self) -> Count:
        """How many are one, but for what papers round."""
        return Count(sum(abs(value - 1) < SAME for value in self.values))

    @property
    def not_same(self) -> Count:
        """All others."""
        return Count(len(self.values) - self.same)

    @property
    def none(self) -> Count:
        """How many are nothing: gaps that are closed."""
        return Count(sum(abs(value) < SAME for value in self.values))

    @property
    def some(self) -> Count:
        """All others: gaps that are open."""
        return Count(len(self.values) - self.none)


def told(compared: ComparedTable, sentence: str) -> str:
    """A sentence of a paper's file with its figures."""
    figures = {name: spread(compared, asked) for name, asked in compared.table.figures.items()}
    try:
        return sentence.format(**figures)
    except (AttributeError, ValueError) as error:
        raise InputError(f"{compared.table.name}: {sentence!r}: {error}") from None


def spread(compared: ComparedTable, asked: StatedFigure) -> Spread:
    """A figure of a table, row by row."""
    return Spread(tuple(_values(compared, asked)))


def _values(compared: ComparedTable, asked: StatedFigure) -> Iterator[float]:
    for row in compared.rows:
        over, under = (_cells(compared, row, names) for names in (asked.over, asked.under))
        if asked.rows and row.row.name not in asked.rows:
            continue
        if asked.splits is not None and asked.splits != _splits(over[0]):
            continue
        if not asked.under:
            found = (_value(compared, cell, asked.of) for cell in over)
            yield from (value for value in found if value is not None)
            continue
        first, second = (_least(compared, cells, asked.of) for cells in (over, under))
        if first is not None and second and (first, second) != (math.inf, math.inf):
            yield first / second


def _least(compared: ComparedTable, cells: Sequence[ComparedCell], of: str) -> float | None:
    found = (_value(compared, cell, of) for cell in cells)
    return min((value for value in found if value is not None), default=None)


def _cells(
    compared: ComparedTable, row: ComparedRow, names: Sequence[str]
) -> tuple[ComparedCell, ...]:
    columns = [column.name for column in compared.table.columns]
    return tuple(row.cells[columns.index(name)] for name in names)


def _splits(cell: ComparedCell) -> bool:
    return cell.run is not None and cell.run.split_value_ns is not None


def _value(compared: ComparedTable, cell: ComparedCell, of: str) -> float | None:
    unit_ns = UNITS_NS[compared.table.unit]
    ours = None if cell.ours_ns is None else cell.ours_ns / unit_ns
    paper = None if cell.paper_ns is None else cell.paper_ns / unit_ns
    if of == "gap":
        return cell.gap
    if of in HELD:
        found = None if cell.run is None else HELD[of].search(cell.run.message)
        return None if found is None else int(found[1]) / 1e9
    if of == "ours over paper":
        return None if ours is None or not paper or math.isinf(paper) else ours / paper
    return ours if of == "ours" else paper
