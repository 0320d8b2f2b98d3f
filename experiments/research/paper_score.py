"""How a paper's tables come out again: pairs of methods, cells without a plan, claims, and gaps.

A pair counts if the paper printed both times, they differ, and nothing was fitted to either. Where
two tables print the same pair of the same runs, it counts once. If our order is the reverse of the
paper's, it is explained only by a change that was tested for all methods of the row alike and
brings the paper's order back. It is proven impossible if the bound shows that no plan is ahead of
ours by the paper's ratio. Otherwise it is unexplained.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from placegap.experiments.research.paper_comparison import (
    ComparedCell,
    ComparedTable,
    KeptResults,
    compare,
    load_kept,
)
from placegap.experiments.research.published import Cause, Paper, Scoring, load_paper
from placegap.experiments.show.figures import format_gap
from placegap.solvers.core.result import relative_gap

AGREES, TIE = "agrees", "tie"
EXPLAINED, IMPOSSIBLE, UNEXPLAINED = "explained", "proven impossible", "unexplained"
REVERSED = (EXPLAINED, IMPOSSIBLE, UNEXPLAINED)
VERDICTS = ("met", "same side", "tie", "reversed", "no plan")


@dataclass(frozen=True)
class Pair:
    """Two columns of a row, the first strictly faster in the paper."""

    # The ratios are the times of the slower over those of the faster, in the paper and ours. A
    # method without a plan is the slowest. `why` is the change or the proof behind the verdict.
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

    @property
    def stand_ins(self) -> dict[str, str]:
        """The paper's methods for which ours stand in, and what these are."""
        columns = (column for compared in self.tables for column in compared.table.columns)
        return {c.name.partition(",")[0]: c.stand_in for c in columns if c.stand_in}

    @property
    def own_gaps(self) -> list[float]:
        """The gaps of the paper's own method, each run once."""
        cells = (cell for compared in self.tables for cell in compared.plans if cell.column.own)
        return list({id(cell.run): cell.gap for cell in cells if cell.gap is not None}.values())

    @property
    def best_gaps(self) -> list[float]:
        """The gap of the best plan within memory of every problem."""
        runs = [cell.run for t in self.tables for cell in t.plans if cell.run is not None]
        best = {(*run.problem, run.semantics): run for run in runs}
        gaps = [relative_gap(run.best_value_ns, run.best_bound_ns) for run in best.values()]
        return [gap for gap in gaps if gap is not None]

    def line(self) -> dict[str, str]:
        """The figures of the head of a page."""
        verdicts = Counter(pair.verdict for pair in self.pairs)
        oom = [paper == ours for t in self.tables for _, paper, ours in t.published]
        claims = Counter(c.verdict for compared in self.tables for c in compared.claims)
        gaps = [cell.gap is not None for compared in self.tables for cell in compared.plans]
        return {
            "timed pairs: agree, tie, reversed": _counts(
                verdicts[AGREES], verdicts[TIE], sum(verdicts[kind] for kind in REVERSED)
            ),
            "reversed: explained, proven impossible, unexplained": _counts(
                *(verdicts[kind] for kind in REVERSED)
            ),
            "out of memory as published": f"{sum(oom)} of {len(oom)} cells" if oom else "-",
            f"claims: {', '.join(VERDICTS)}": _counts(*(claims[kind] for kind in VERDICTS)),
            "stand-ins": ", ".join(f"{name}*" for name in self.stand_ins) or "-",
            "gap of the paper's own method: median, worst": _median_and_worst(self.own_gaps),
            "gap of the best plan: median, worst": _median_and_worst(self.best_gaps),
            "cells of plans with a gap": f"{sum(gaps)} of {len(gaps)}",
        }


def _counts(*counts: int) -> str:
    return ", ".join(map(str, counts)) if any(counts) else "-"


def _median_and_worst(gaps: Sequence[float]) -> str:
    if not gaps:
        return "-"
    return f"{format_gap(statistics.median(gaps))}, {format_gap(max(gaps))}"


def score(name: str, folder: Path) -> PaperScore:
    """Compare and count all tables of a paper's folder."""
    (paper, scoring), kept = load_paper(folder), load_kept(folder)
    tables = tuple(compare(table, kept) for table in paper.tables)
    counted: set[Hashable] = set()
    pairs = [
        pair
        for compared in tables
        if compared.table.is_ranked
        for pair in pairs_of(compared, scoring.causes, kept, counted)
    ]
    return PaperScore(name, paper, scoring, tables, tuple(pairs))


def pairs_of(
    compared: ComparedTable, causes: Sequence[Cause], kept: KeptResults, counted: set[Hashable]
) -> Iterator[Pair]:
    """Every pair of a table that counts, with its verdict; not those whose runs have `counted`."""
    name = compared.table.name
    tested = [
        (cause, compare(compared.table, kept, cause))
        for cause in causes
        if not cause.of or name in cause.of
    ]
    for row in compared.rows:
        timed = [c for c in row if not c.column.fitted and math.isfinite(c.paper_ns or math.inf)]
        for faster, slower in permutations(timed, 2):
            paper = (faster.paper_ns or 0.0, slower.paper_ns or 0.0)
            if paper[1] - paper[0] < 1.0 or faster.ours_ns is None or slower.ours_ns is None:
                continue
            runs = (compared.table.quantity, frozenset({id(faster.run), id(slower.run)}))
            if runs in counted:
                continue
            counted.add(runs)
            ratio, ours = paper[1] / paper[0], _ratio(slower.ours_ns, faster.ours_ns)
            verdict = (AGREES if ours > 1 else TIE, "")
            if ours < 1:
                about = [t for t in tested if not t[0].rows or faster.row.name in t[0].rows]
                verdict = _why(faster, slower, ratio, about)
            names = (faster.row.name, faster.column.name, slower.column.name)
            yield Pair(name, *names, ratio, ours, *verdict)


def _ratio(over: float, under: float) -> float:
    """Their ratio; of two methods without a plan none is ahead."""
    if over == under:
        return 1.0
    return over / under if under else math.inf


def _why(
    faster: ComparedCell,
    slower: ComparedCell,
    paper_ratio: float,
    tested: Sequence[tuple[Cause, ComparedTable]],
) -> tuple[str, str]:
    """The verdict on a reversed pair, and the change or the proof behind it."""
    for cause, table in tested:
        cells = (table.cell(cell.row.name, cell.column.name) for cell in (faster, slower))
        first, second = (cell.ours_ns for cell in cells)
        if first is not None and second is not None and first < second < math.inf:
            return EXPLAINED, cause.changes
    bound_ns = faster.bound_ns if faster.is_bounded else None
    slower_ns = math.inf if slower.ours_ns is None else slower.ours_ns
    if bound_ns and slower_ns < paper_ratio * bound_ns:
        return IMPOSSIBLE, (
            f"{slower.column.name} takes {slower_ns / bound_ns:.3g} times the lower bound, and in"
            f" the paper {paper_ratio:.3g} times as long as {faster.column.name}"
        )
    return UNEXPLAINED, ""
