"""The figures of a table's sentences, each taken from its cells: no page has one of its own."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placegap.experiments.studies.paper_comparison import ComparedCell, ComparedRow, ComparedTable
from placegap.experiments.studies.published import UNITS_NS, StatedFigure
from placegap.instances.reading.errors import InputError

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
"""Relative: two figures are told as one, and a gap as closed."""

HELD = {
    "holds": re.compile(r"holds (\d+) bytes at its peak"),
    "room": re.compile(r"at its peak, \d+ more than its (\d+)"),
    "needs": re.compile(r"holds \d+ bytes of (\d+)"),
}
"""What a run without a plan says: what a device holds, may hold at most, and what all ops need."""


class Amount(float):
    """A number; in percent, too: of one, and how much more and less than one it is.

    Examples
    --------
    >>> f"{Amount(1.25):.2f} {Amount(1.25).more:.0f} {Amount(1.25).less:.0f}"
    '1.25 25 20'
    >>> f"{Amount(math.nan):.2f}"
    '-'
    """

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
    """How many; in a word, too.

    Examples
    --------
    >>> f"{Count(3)} {Count(3).word}"
    '3 three'
    """

    @property
    def word(self) -> str:
        """Up to twelve."""
        return WORDS[self] if self < len(WORDS) else str(self)


@dataclass(frozen=True)
class Spread:
    """A figure over all its rows: infinite ones, where there is no plan, count and are not shown.

    Attributes
    ----------
    values : sequence of float
        One per row or cell.

    Examples
    --------
    >>> spread = Spread((0.5, 1.0, 2.0, 4.0, math.inf))
    >>> f"{spread.least:g} {spread.most:g} {spread.mean:g}, {spread.above} of {spread.all.word}"
    '0.5 4 1.875, 3 of five'
    """

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
    """A sentence of a paper's file with its figures.

    Raises
    ------
    InputError
        If it asks a figure for what none has.
    """
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
    return cell.run is not None and "split_value_ns" in cell.run.details


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
