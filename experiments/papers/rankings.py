"""Where a paper and we rank two methods the other way round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from placegap.experiments.studies.paper_comparison import ComparedRow, ComparedTable, told
from placegap.experiments.studies.paper_table import Cause, cause

UNREAD = "not explained yet"


@dataclass(frozen=True)
class Inversion:
    """Two columns of a row: `faster` and `slower` in the paper, the other way round with us.

    The ratios are times of the later over the earlier of the two, infinite where one has no plan.
    `reading` is what somebody has found out, and `cause` what other clocks say of the two plans.
    """

    row: str
    faster: str
    slower: str
    paper_ratio: float
    ours_ratio: float
    reading: str
    cause: Cause | None

    @property
    def why(self) -> str:
        """All that is known of it."""
        told = "" if self.cause is None else self.cause.told
        return "; ".join(filter(None, (self.reading, told))) or UNREAD


@dataclass(frozen=True)
class Ranking:
    """Pairs of columns, row by row, that the paper ranks and that we have both: how many agree."""

    agree: int
    ties: int
    inversions: tuple[Inversion, ...]

    @property
    def num_pairs(self) -> int:
        """All pairs that were compared."""
        return self.agree + self.ties + len(self.inversions)


def rank(table: ComparedTable) -> Ranking:
    """Compare the order of every two columns within every row.

    No difference of a nanosecond is too small to count: ratios say how large it is. What the paper
    prints as equal is not ranked there, and a pair that is equal with us is a tie.
    """
    agree, ties, inversions = 0, 0, []
    for row in table.rows:
        for faster, slower, paper_ratio, ours_ratio in _ranked_pairs(table, row):
            if ours_ratio > 1:
                agree += 1
            elif ours_ratio == 1:
                ties += 1
            else:
                inverse = 1 / ours_ratio if ours_ratio else math.inf
                why = _why(table, row, faster, slower)
                found = Inversion(row.row.name, faster, slower, paper_ratio, inverse, *why)
                inversions.append(found)
    return Ranking(agree, ties, tuple(inversions))


def _ranked_pairs(
    table: ComparedTable, row: ComparedRow
) -> Iterator[tuple[str, str, float, float]]:
    """Two columns, the first strictly faster in the paper: their ratios, in the paper and ours."""
    named = zip((column.name for column in table.table.columns), row.cells, strict=True)
    ranked = [
        (name, cell.paper_ns, cell.ours_ns)
        for name, cell in named
        if cell.paper_ns is not None and cell.ours_ns is not None
    ]
    for (first, paper, ours), (second, paper_2, ours_2) in permutations(ranked, 2):
        if paper_2 - paper >= 1.0:  # ns; two without a plan differ by no number
            yield first, second, _ratio(paper_2, paper), _ratio(ours_2, ours)


def _ratio(over: float, under: float) -> float:
    """Their ratio; of two methods without a plan none is ahead."""
    if over == under:
        return 1.0
    return over / under if under else math.inf


def _why(
    table: ComparedTable, row: ComparedRow, faster: str, slower: str
) -> tuple[str, Cause | None]:
    found = (
        told(table, reading.why)
        for reading in table.table.readings
        if faster in reading.faster
        and slower == reading.slower
        and (not reading.rows or row.row.name in reading.rows)
    )
    named = zip((column.name for column in table.table.columns), row.cells, strict=True)
    runs = {name: cell.run for name, cell in named}
    first, second = runs[faster], runs[slower]
    assert first is not None  # they are ranked, so both have a run
    assert second is not None
    return next(found, ""), cause(first, second)
