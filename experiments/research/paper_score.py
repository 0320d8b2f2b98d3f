"""How a paper's tables come out again: pairs of methods, cells without a plan, claims, and gaps.

A pair counts if the paper printed both times, and they differ. If our order is the reverse of the
paper's, it is explained only by a change that was tested for all methods of the row alike and
brings the paper's order back. It is proven impossible if the bound shows that no plan is ahead of
ours by the paper's ratio. Otherwise it is unexplained.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path

from placegap.experiments.research.paper_comparison import (
    ComparedCell,
    ComparedTable,
    Kept,
    compare,
    load_kept,
)
from placegap.experiments.research.published import Cause, Paper, Scoring, load_paper
from placegap.experiments.show.figures import format_gap

AGREES, TIE = "agrees", "tie"
EXPLAINED, IMPOSSIBLE, UNEXPLAINED = "explained", "proven impossible", "unexplained"
REVERSED = (EXPLAINED, IMPOSSIBLE, UNEXPLAINED)
VERDICTS = ("met", "same side", "tie", "reversed", "no plan")


@dataclass(frozen=True)
class Pair:
    """Two columns of a row, the first strictly faster in the paper.

    The ratios are the times of the slower over those of the faster, in the paper and ours. A method
    without a plan is the slowest. `why` is the change or the proof behind the verdict.
    """

    table: str
    row: str
    faster: str
    slower: str
    paper_ratio: float
    ours_ratio: float
    verdict: str
    why: str = ""


@dataclass(frozen=True)
class PaperScore:
    """All tables of a paper beside ours, and how they agree."""

    name: str
    paper: Paper
    scoring: Scoring
    tables: tuple[ComparedTable, ...]
    pairs: tuple[Pair, ...]

    @cached_property
    def ranked(self) -> list[ComparedTable]:
        """The tables of plans' times."""
        return [compared for compared in self.tables if compared.table.is_ranked]

    @property
    def stand_ins(self) -> dict[str, str]:
        """The paper's methods for which ours stand in, and what these are."""
        columns = (column for compared in self.tables for column in compared.table.columns)
        return {c.name.partition(",")[0]: c.stand_in for c in columns if c.stand_in}

    def gaps(self, *, own: bool) -> list[float]:
        """Gaps of all cells of plans, or of the paper's own method, each run once."""
        found = {}
        for compared in self.ranked:
            for row in compared.rows:
                for column, cell in zip(compared.table.columns, row.cells, strict=True):
                    if cell.gap is not None and cell.run is not None and (column.own or not own):
                        found[id(cell.run)] = cell.gap
        return list(found.values())

    @property
    def best_gaps(self) -> list[float]:
        """The gap of the best plan within memory of every problem."""
        runs = (c.run for t in self.ranked for row in t.rows for c in row.cells)
        found = {(*run.problem, run.semantics): run.open for run in runs if run is not None}
        return [gap for gap in found.values() if gap is not None]

    def line(self) -> dict[str, str]:
        """The figures of the head of a page."""
        verdicts = Counter(pair.verdict for pair in self.pairs)
        oom = [sum(both) for both in zip(*map(out_of_memory, self.ranked), strict=True)]
        claims = Counter(c.verdict for compared in self.tables for c in compared.claims)
        own, best, cells = self.gaps(own=True), self.best_gaps, list(timed_cells(self.ranked))
        num_gaps = sum(cell.gap is not None for cell in cells)
        return {
            "timed pairs: agree, tie, reversed": _counts(
                verdicts[AGREES], verdicts[TIE], sum(verdicts[kind] for kind in REVERSED)
            ),
            "reversed: explained, proven impossible, unexplained": _counts(
                *(verdicts[kind] for kind in REVERSED)
            ),
            "out of memory as published": f"{oom[0]} of {oom[1]} cells" if oom and oom[1] else "-",
            f"claims: {', '.join(VERDICTS)}": _counts(*(claims[kind] for kind in VERDICTS)),
            "stand-ins": ", ".join(f"{name}*" for name in self.stand_ins) or "-",
            "gap of the paper's own method: median, worst": _median_and_worst(own),
            "gap of the best plan: median, worst": _median_and_worst(best),
            "cells of plans with a gap": f"{num_gaps} of {len(cells)}",
        }


def _counts(*counts: int) -> str:
    return ", ".join(map(str, counts)) if any(counts) else "-"


def _median_and_worst(gaps: Sequence[float]) -> str:
    if not gaps:
        return "-"
    return f"{format_gap(statistics.median(gaps))}, {format_gap(max(gaps))}"


def timed_cells(tables: Sequence[ComparedTable]) -> Iterator[ComparedCell]:
    """All cells of ours with the time of a plan."""
    for compared in tables:
        for row in compared.rows:
            for cell in row.cells:
                if cell.ours_ns is not None and math.isfinite(cell.ours_ns):
                    yield cell


def out_of_memory(compared: ComparedTable) -> tuple[int, int]:
    """In how many published cells both or neither have a plan, and how many there are."""
    both = [
        (math.isinf(cell.paper_ns), math.isinf(cell.ours_ns))
        for row in compared.rows
        for cell in row.cells
        if cell.paper_ns is not None and cell.ours_ns is not None
    ]
    return sum(paper == ours for paper, ours in both), len(both)


def score(name: str, folder: Path) -> PaperScore:
    """Compare and count all tables of a paper's folder."""
    (paper, scoring), kept = load_paper(folder), load_kept(folder)
    tables = tuple(compare(table, kept) for table in paper.tables)
    pairs = [
        pair
        for compared in tables
        if compared.table.is_ranked
        for pair in pairs_of(compared, scoring.causes, kept)
    ]
    return PaperScore(name, paper, scoring, tables, tuple(pairs))


def pairs_of(compared: ComparedTable, causes: Sequence[Cause], kept: Kept) -> Iterator[Pair]:
    """Every pair of a table that counts, with its verdict."""
    name = compared.table.name
    tested = [
        (cause, compare(compared.table, kept, cause))
        for cause in causes
        if not cause.of or name in cause.of
    ]
    for row in compared.rows:
        timed = [
            (column.name, cell)
            for column, cell in zip(compared.table.columns, row.cells, strict=True)
            if cell.paper_ns is not None and math.isfinite(cell.paper_ns)
        ]
        for (faster, first), (slower, second) in permutations(timed, 2):
            paper = (first.paper_ns or 0.0, second.paper_ns or 0.0)
            if paper[1] - paper[0] < 1.0 or first.ours_ns is None or second.ours_ns is None:
                continue
            ratio, ours = paper[1] / paper[0], _ratio(second.ours_ns, first.ours_ns)
            verdict = (AGREES if ours > 1 else TIE, "")
            if ours < 1:
                about = [t for t in tested if not t[0].rows or row.row.name in t[0].rows]
                verdict = _why((row.row.name, faster, slower), ratio, compared, about)
            yield Pair(name, row.row.name, faster, slower, ratio, ours, *verdict)


def _ratio(over: float, under: float) -> float:
    """Their ratio; of two methods without a plan none is ahead."""
    if over == under:
        return 1.0
    return over / under if under else math.inf


def _why(
    pair: tuple[str, str, str],
    paper_ratio: float,
    compared: ComparedTable,
    tested: Sequence[tuple[Cause, ComparedTable]],
) -> tuple[str, str]:
    """The verdict on a reversed pair, and the change or the proof behind it."""
    row, faster, slower = pair
    for cause, table in tested:
        first, second = (table.cell(row, name).ours_ns for name in (faster, slower))
        if first is not None and second is not None and first < second:
            return EXPLAINED, cause.changes
    first_cell, second_cell = (compared.cell(row, name) for name in (faster, slower))
    bound_ns = first_cell.bound_ns if first_cell.is_bounded else None
    least_ns = math.inf if second_cell.ours_ns is None else second_cell.ours_ns
    if compared.table.quantity == "value" and bound_ns and least_ns < paper_ratio * bound_ns:
        return IMPOSSIBLE, (
            f"{slower} is at most {least_ns / bound_ns:.3g} times the lower bound; the paper has"
            f" {paper_ratio:.3g} times {faster}"
        )
    return UNEXPLAINED, ""
