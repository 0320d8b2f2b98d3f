"""A paper's table beside ours, in Markdown and on a terminal, and how both rank methods.

Other clocks of the same two plans show why two methods change places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from placegap.experiments.research.other_clocks import FREE_CHANNELS, NO_TRANSFERS
from placegap.experiments.research.paper_comparison import (
    MOST_WORDS,
    ComparedCell,
    ComparedClaim,
    ComparedRow,
    ComparedTable,
    compare,
    told,
)
from placegap.experiments.research.published import NO_PLAN, UNITS_NS, load_published
from placegap.experiments.show.figures import format_gap, format_s
from placegap.experiments.show.rendering import markdown_grid, output, plain_table
from placegap.experiments.studies.config import PublishedEntry
from placegap.experiments.studies.report import Grid
from placegap.experiments.studies.runs import NOT_APPLICABLE, RunRow
from placegap.instances.files.output_files import attempt, write_text
from placegap.instances.reading.printable import printable
from placegap.solvers.core.registry import METHODS

SECONDS = 1e9
GB = 1e9

NO_PLAN_HERE = "the first has no plan here"
CONTENTION = "contention"
TRANSFERS = "transfers"
PLANS = "the plans themselves"

KINDS = {
    CONTENTION: "with free channels the paper's order comes back",
    TRANSFERS: "without any, the two would not change places",
    PLANS: "without any transfers they are the other way round, too",
    NO_PLAN_HERE: "it does not fit, or its method found none",
}
"""Kind of cause -> what it means, in the order of the page."""


class Cause(NamedTuple):
    """A kind of `KINDS`, and the sentence with the figures of the two plans."""

    kind: str
    told: str


def cause(faster: RunRow, slower: RunRow) -> Cause | None:
    """What makes the method that is slower in the paper the faster one here, by clocks.

    The same two plans run again with free channels, and then without any transfers. The first clock
    under which the paper's order comes back names the regime; None where a run has no such clocks.
    """
    names = faster.label, slower.label
    for run, name in zip((faster, slower), names, strict=True):
        if run.value_ns is None and run.split_value_ns is None:
            told = f"{name} has no plan here" + (f": {run.message}" if run.message else "")
            return Cause(NO_PLAN_HERE, told)
    clocks = {}
    for clock in (FREE_CHANNELS, NO_TRANSFERS):
        pair = getattr(faster, clock), getattr(slower, clock)
        if pair[0] is None or pair[1] is None:
            return None
        clocks[clock] = (int(pair[0]), int(pair[1]))
    return told_by_clocks(*names, clocks)


def told_by_clocks(first: str, second: str, clocks: dict[str, tuple[int, int]]) -> Cause:
    """The sentence for two plans' times under both clocks; `first` is ahead in the paper."""
    free, none = clocks[FREE_CHANNELS], clocks[NO_TRANSFERS]
    if free[0] < free[1]:
        return Cause(
            CONTENTION,
            f"contention: with free channels {first} takes {free[0] / SECONDS:.4g} s and {second}"
            f" {free[1] / SECONDS:.4g} s, the order of the paper",
        )
    times = f"{first} {none[0] / SECONDS:.4g} s and {second} {none[1] / SECONDS:.4g} s"
    if none[0] <= none[1]:
        return Cause(TRANSFERS, f"transfers: without any, {times} would not change places")
    return Cause(PLANS, f"the plans themselves: without any transfers {times} would, too")


UNREAD = "not explained yet"


@dataclass(frozen=True)
class Inversion:
    """Two columns of a row: `faster` and `slower` in the paper, the other way round with us.

    The ratios are times of the later over the earlier of the two, infinite where one has no plan.
    `reading` is an explanation by hand, and `cause` what other clocks show of the two plans.
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


HEAD = "ours, its gap to the best bound, and the paper's"
NOTHING = "-"


def notes(compared: ComparedTable) -> Iterator[str]:
    """What stands below the table: source, stand-ins, claims, rankings, and what to make of it."""
    table, ranking = compared.table, rank(compared)
    for name, sentence in (("agrees", table.agrees), ("differs", table.differs)):
        if sentence:
            yield f"{name}: {told(compared, sentence)}"
    yield f"paper: {table.source}"
    if table.stands_for:
        yield f"instances: {table.stands_for}"
    if table.quantity != "figure":
        yield from _memory(compared)
    if table.mark:
        yield f"*: {table.mark}"
    for column in table.columns:
        if column.note:
            yield f"{column.name}: {column.note}"
    if compared.num_left_out:
        yield f"rows of the paper that were not run here: {compared.num_left_out}"
    for how, ended in ENDED_BY_TIME.items():
        runs = "; ".join(_columns_of(compared, ended))
        if runs:
            yield f"{how}, so the machine decides, too: {runs}"
    if table.same_inputs:
        yield from _worst_of_paper(compared)
    yield from map(_claim, compared.claims)
    if table.quantity in ("value", "measuring") and ranking.num_pairs:
        yield (
            f"rankings: of {ranking.num_pairs} pairs within a row, {ranking.agree} agree,"
            f" {ranking.ties} tie with us, {len(ranking.inversions)} are the other way round"
        )
        yield from _inversions(ranking.inversions)


def grid(compared: ComparedTable) -> Grid:
    """The head and the rows of the table: ``ours (gap; paper)`` in every cell."""
    head = ("row", "instance", *(column.name for column in compared.table.columns))
    rows = [
        (row.row.name, row.row.instance, *(_flat(compared, cell) for cell in row.cells))
        for row in compared.rows
    ]
    return head, rows


def markdown(compared: ComparedTable) -> str:
    """The table with its notes as Markdown."""
    table = compared.table
    lines = [
        f"## {table.title}",
        "",
        f"{HEAD[0].upper()}{HEAD[1:]}{_in_unit(table.unit)}.",
        "",
        *markdown_grid(*grid(compared)),
        "",
        *(f"- {note}" for note in notes(compared)),
        "",
    ]
    return "\n".join(map(printable, lines))


def _in_unit(unit: str) -> str:
    return "" if unit == "1" else f", in {unit}"


def _flat(compared: ComparedTable, cell: ComparedCell) -> str:
    gap = "" if cell.gap is None else f"{format_gap(cell.gap)}; "
    if cell.ours_ns is not None and math.isfinite(cell.ours_ns) and cell.run is not None:
        beyond = cell.run.overfills_bytes
        gap += "" if beyond is None else f"overfills by {float(beyond) / GB:.2g} GB; "
    return f"{_ours(compared, cell)} ({gap}paper {cell.printed or NOTHING})"


def _ours(compared: ComparedTable, cell: ComparedCell) -> str:
    if cell.run is None:
        return NOTHING
    if cell.ours_ns is None:
        return "n/a" if cell.run.status == NOT_APPLICABLE else cell.run.status.replace("_", " ")
    return _figure(compared, cell.ours_ns)


def _figure(compared: ComparedTable, time_ns: float) -> str:
    if math.isinf(time_ns):
        return NO_PLAN
    if compared.table.quantity == "time":
        return format_s(time_ns / 1e9)
    return f"{time_ns / UNITS_NS[compared.table.unit]:.5g}"


def _memory(compared: ComparedTable) -> Iterator[str]:
    """The rule by which our runs count memory, and why."""
    runs = (cell.run for row in compared.rows for cell in row.cells if cell.run is not None)
    rules = dict.fromkeys(run.stated.memory_rule for run in runs)
    why = f": {told(compared, compared.table.memory)}" if compared.table.memory else ""
    yield f"memory: by the rule {' and '.join(f'`{rule}`' for rule in rules)}{why}"


def _columns_of(compared: ComparedTable, ended: Callable[[RunRow], bool]) -> Iterator[str]:
    """Columns with those of their rows whose run ended so."""
    for number, column in enumerate(compared.table.columns):
        if column.figure is not None:
            continue
        runs = [(row.row.name, row.cells[number].run) for row in compared.rows]
        rows = [name for name, run in runs if run is not None and ended(run)]
        if rows:
            yield f"{column.name} ({', '.join(rows)})"


def _took_all(run: RunRow) -> bool:
    return run.time_limit_s is not None and (run.time_s or 0.0) >= run.time_limit_s


def _took_a_share(run: RunRow) -> bool:
    """Whether a run ended before its limit, and by the time that it had nevertheless.

    A run may have a share of the limit: the one on the floor of the peak, or on a coarser graph.
    Then its message says so, or its method is one that only time ends.
    """
    if run.time_limit_s is None or run.time_s is None or _took_all(run):
        return False
    if "time limit" in run.message.replace("_", " "):
        return True
    if len(run.message) >= MOST_WORDS and run.time_s > MOST_SHARE * run.time_limit_s:
        return run.value_ns is not None  # what ended it may be in the part that was not kept
    asked = METHODS.get(run.method) if run.time_s > LEAST_SHARE * run.time_limit_s else None
    return asked is not None and bool(asked.params.little_effort())


LEAST_SHARE, MOST_SHARE = 0.25, 0.9
"""Of a limit: no run is given less, so what took less had an end of its own; and nearly all."""

ENDED_BY_TIME = {
    "stopped at the time limit": _took_all,
    "ended by a share of the time limit": _took_a_share,
}
"""How time ends a run -> whether it ended this one."""


def _worst_of_paper(compared: ComparedTable) -> Iterator[str]:
    """How far the paper's own numbers are from our bounds, column by column."""
    for number, column in enumerate(compared.table.columns):
        gaps = [
            (row.cells[number].paper_gap, row.row.name)
            for row in compared.rows
            if row.cells[number].paper_gap is not None
        ]
        below = [where for gap, where in gaps if gap is not None and gap < 0]
        if below:
            yield (
                f"the paper's {column.name} is below our bound, so its plan keeps not to all our"
                f" rules: {'; '.join(below)}"
            )
        if len(gaps) > len(below):
            worst, where = max((gap or 0.0, where) for gap, where in gaps)
            yield (
                f"the paper's {column.name}: at most {format_gap(worst)} from the best bound,"
                f" on {where}"
            )


def _claim(compared: ComparedClaim) -> str:
    claim = compared.claim
    if compared.ours is None:
        return f"claim: {claim.name}: nothing to compare it with here ({claim.source})"
    most = "" if compared.at_most is None else f"; no plan has more than {compared.at_most:.3f}"
    rows = ", ".join(f"{name} {ratio:.3f}" for name, ratio in compared.by_row)
    where = f"the mean of {len(compared.by_row)} rows" if not compared.row else compared.row
    return (
        f"claim: {claim.name}: the paper has {claim.ratio:g}, ours is {compared.ours:.3f}"
        f" on {where}{most} ({claim.source})"
        + (f"; row by row: {rows}" if len(compared.by_row) > 1 else "")
    )


def _inversions(inversions: Sequence[Inversion]) -> Iterator[str]:
    """One line for each cause: the pairs as the paper has them, and how far ours is the reverse."""
    told = {UNREAD: UNREAD, **{kind: f"{kind} ({means})" for kind, means in KINDS.items()}}
    groups: dict[str, dict[tuple[str, str], list[str]]] = {kind: {} for kind in told}
    for found in inversions:
        why = found.reading or (UNREAD if found.cause is None else found.cause.kind)
        behind = groups.setdefault(why, {}).setdefault((found.row, found.faster), [])
        times = "" if math.isinf(found.ours_ratio) else f" ({found.ours_ratio:.4g} times)"
        behind.append(found.slower + times)
    for why, pairs in groups.items():
        if pairs:
            listed = (f"{row}: {first} before {', '.join(b)}" for (row, first), b in pairs.items())
            yield f"other way round: {'; '.join(listed)}. Why: {told.get(why, why)}"


def print_published(
    asked: PublishedEntry, config: Path, cells: Sequence[RunRow], file: Path
) -> tuple[Path, ...]:
    """The paper's tables beside ours on stdout, and in the file that is returned if it is there."""
    console = output()
    tables = load_published(config.parent / asked.file, asked.tables)
    compared = [compare(table, cells) for table in tables]
    for table in compared:
        head, rows = grid(table)
        console.print(plain_table(f"{table.table.title}: {HEAD} ({table.table.unit})", head, rows))
        for note in notes(table):
            console.print(note, markup=False)
        console.print()
    with attempt(file) as failed:
        write_text("\n".join(map(markdown, compared)), file)
    return () if failed else (file,)
