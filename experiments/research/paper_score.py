"""How a paper's tables come out again: pairs of methods, cells without a plan, claims, and gaps.

A pair counts if the paper printed both times, they differ, and nothing was fitted to either. Where
two tables print the same pair of the same runs, it counts once. If a method has no plan here, the
pair is counted apart. If our order is the reverse of the paper's, it is explained only by a change
that was tested for all methods of the row alike, brings the paper's order back, and turns more
pairs of the row right than wrong. Else the paper's ratio is out of reach if the bound shows that no
plan is ahead of ours by it; the order may still be had. Else it is untested, if one of the changes
was not tried on both methods, or unexplained.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

AGREES, TIE, NO_PLAN_HERE = "agrees", "tie", "no plan here"
REVERSED = (EXPLAINED, OUT_OF_REACH, UNEXPLAINED, UNTESTED) = (
    "explained",
    "ratio out of reach",
    "unexplained",
    "untested",
)
VERDICTS = ("met", "same side", "tie", "reversed", "no plan")


@dataclass(frozen=True)
class Pair:
    """Two columns of a row, the first strictly faster in the paper."""

    # The ratios are the times of the slower over those of the faster, in the paper and ours; ours
    # is infinite or 0 where one has no plan. `why` is the change or the proof behind the verdict.
    table: str
    row: str
    faster: str
    slower: str
    paper_ratio: float
    ours_ratio: float
    verdict: str
    why: str = ""


@dataclass(frozen=True)
class Effect:
    """What one change does to all pairs on which it was tried."""

    changes: str
    tried: int
    right: int  # pairs that it brings into the paper's order
    wrong: int  # pairs that it takes out of it


@dataclass(frozen=True)
class PaperScore:
    """All tables of a paper beside ours, and how they agree."""

    name: str
    paper: Paper
    scoring: Scoring
    tables: tuple[ComparedTable, ...]
    pairs: tuple[Pair, ...]
    effects: tuple[Effect, ...] = ()
    #: Heading -> the tables with the change that stands beside the claims.
    beside: Mapping[str, Sequence[ComparedTable]] = field(default_factory=dict)

    @property
    def stand_ins(self) -> dict[str, str]:
        """The paper's methods for which ours stand in, and what these are."""
        columns = (column for compared in self.tables for column in compared.table.columns)
        return {c.name.partition(",")[0]: c.stand_in for c in columns if c.stand_in}

    @property
    def own_gaps(self) -> list[float]:
        """The gaps of the paper's own method, each run once; not those of what stands in for it."""
        cells = (
            cell
            for compared in self.tables
            for cell in compared.plans
            if cell.column.own and not cell.column.stand_in
        )
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
        oom = [
            paper == ours for t in self.tables for _, paper, ours in t.published if paper or ours
        ]
        claims = Counter(c.verdict for compared in self.tables for c in compared.claims)
        gaps = [cell.gap is not None for compared in self.tables for cell in compared.plans]
        equal = [
            is_equal for t in self.tables for cells in t.equal.values() for _, is_equal in cells
        ]
        ahead = [sum(counts) for counts in zip(*(t.ahead for t in self.tables), strict=True)]
        return {
            "cells equal to the authors' programs": _share(sum(equal), len(equal)),
            "timed pairs: agree, tie, reversed, no plan here": _counts(
                verdicts[AGREES],
                verdicts[TIE],
                sum(verdicts[kind] for kind in REVERSED),
                verdicts[NO_PLAN_HERE],
            ),
            f"reversed: {', '.join(REVERSED)}": _counts(*(verdicts[kind] for kind in REVERSED)),
            "rows where its method is ahead, as the text says": _share(*ahead),
            "out of memory in both, of cells in either": _share(sum(oom), len(oom)),
            f"claims: {', '.join(VERDICTS)}": _counts(*(claims[kind] for kind in VERDICTS)),
            "stand-ins": ", ".join(f"{name}*" for name in self.stand_ins) or "-",
            "gap of the paper's own method: median, worst": _median_and_worst(self.own_gaps),
            "gap of the best plan: median, worst": _median_and_worst(self.best_gaps),
            "cells of plans with a gap": _share(sum(gaps), len(gaps)),
        }


def _counts(*counts: int) -> str:
    return ", ".join(map(str, counts)) if any(counts) else "-"


def _share(count: int, of: int) -> str:
    return f"{count} of {of}" if of else "-"


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
    effects = tuple(effect_of(cause, tables, kept) for cause in scoring.causes)
    beside = {
        cause.beside: [compare(table, kept, cause) for table in paper.tables]
        for cause in scoring.causes
        if cause.beside
    }
    return PaperScore(name, paper, scoring, tables, tuple(pairs), effects, beside)


def effect_of(cause: Cause, tables: Sequence[ComparedTable], kept: KeptResults) -> Effect:
    """How many pairs of all tables a change turns right and wrong."""
    counted: set[Hashable] = set()
    found = Counter[str]()
    for compared in tables:
        if compared.table.is_ranked and compared.table.name in (cause.of or [compared.table.name]):
            table = compare(compared.table, kept, cause)
            for row in compared.rows:
                if row[0].row.name in (cause.rows or [row[0].row.name]):
                    pairs = [p for p in _timed(row) if _is_new(compared, p, counted)]
                    found += _Change(cause, table, pairs).counts
    return Effect(cause.changes, found["tried"], found["right"], found["wrong"])


@dataclass(frozen=True)
class _Timed:
    """Two cells of a row with published times, the first the faster."""

    faster: ComparedCell
    slower: ComparedCell
    paper_ratio: float
    ours_ratio: float

    def in_table(self, changed: ComparedTable) -> bool | None:
        """Whether a change brings the paper's order; None where it was not tried on both."""
        cells = (changed.cell(c.row.name, c.column.name) for c in (self.faster, self.slower))
        first, second = (cell.ours_ns for cell in cells)
        if first is None or second is None:
            return None
        return first < second < math.inf


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
        pairs = list(_timed(row))
        changes = [
            _Change(cause, table, pairs)
            for cause, table in tested
            if not cause.rows or row[0].row.name in cause.rows
        ]
        for pair in pairs:
            faster, slower = pair.faster, pair.slower
            if not _is_new(compared, pair, counted):
                continue
            names = (faster.row.name, faster.column.name, slower.column.name)
            yield Pair(name, *names, pair.paper_ratio, pair.ours_ratio, *_verdict(pair, changes))


def _is_new(compared: ComparedTable, pair: _Timed, counted: set[Hashable]) -> bool:
    """Whether no table has `counted` the runs of a pair before; it has now."""
    runs = compared.table.quantity, frozenset({id(pair.faster.run), id(pair.slower.run)})
    is_new = runs not in counted
    counted.add(runs)
    return is_new


def _timed(row: Sequence[ComparedCell]) -> Iterator[_Timed]:
    """The pairs of a row whose two times the paper printed, and which differ."""
    timed = [c for c in row if not c.column.fitted and math.isfinite(c.paper_ns or math.inf)]
    for faster, slower in permutations(timed, 2):
        paper = (faster.paper_ns or 0.0, slower.paper_ns or 0.0)
        if paper[1] - paper[0] >= 1.0 and faster.ours_ns is not None and slower.ours_ns is not None:
            ours = _ratio(slower.ours_ns, faster.ours_ns)
            yield _Timed(faster, slower, paper[1] / paper[0], ours)


def _ratio(over: float, under: float) -> float:
    """Their ratio; of two methods without a plan none is ahead."""
    if over == under:
        return 1.0
    return over / under if under else math.inf


class _Change:
    """A change, and what it does to the pairs of one row."""

    def __init__(self, cause: Cause, table: ComparedTable, pairs: Sequence[_Timed]) -> None:
        self.cause, self.table = cause, table
        known = [(p.ours_ratio > 1, now) for p in pairs if (now := self.order(p)) is not None]
        right = sum(now and not before for before, now in known)
        wrong = sum(before and not now for before, now in known)
        self.counts = Counter(tried=len(known), right=right, wrong=wrong)
        # A change that turns as many pairs wrong as right is no reason: it could be any other one.
        self.helps = right > wrong

    def order(self, pair: _Timed) -> bool | None:
        """Whether the paper's order is back; None where it was not tried on both methods."""
        return pair.in_table(self.table) if self.is_about(pair) else None

    def is_about(self, pair: _Timed) -> bool:
        names = {pair.faster.column.name, pair.slower.column.name}
        return names.isdisjoint(self.cause.apart_from)


def _verdict(pair: _Timed, changes: Sequence[_Change]) -> tuple[str, str]:
    """The verdict on a pair, and the change or the proof behind it."""
    faster_ns, slower_ns = pair.faster.ours_ns or 0.0, pair.slower.ours_ns or 0.0
    if math.inf in (faster_ns, slower_ns):
        return NO_PLAN_HERE, ""
    if pair.ours_ratio >= 1:
        return (AGREES if pair.ours_ratio > 1 else TIE), ""
    about = [change for change in changes if change.is_about(pair)]
    for change in about:
        if change.helps and change.order(pair):
            return EXPLAINED, change.cause.changes
    bound_ns = pair.faster.bound_ns if pair.faster.is_bounded else None
    if bound_ns and slower_ns < pair.paper_ratio * bound_ns:
        return OUT_OF_REACH, (
            f"{pair.slower.column.name} takes {slower_ns / bound_ns:.3g} times the lower bound, and"
            f" in the paper {pair.paper_ratio:.3g} times as long as {pair.faster.column.name}"
        )
    return (UNTESTED if any(change.order(pair) is None for change in about) else UNEXPLAINED), ""
