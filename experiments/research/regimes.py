"""Papers' tables in the papers' regimes: which runs they are, and why pairs are still reversed.

`experiments/papers/<paper>/regimes.yaml` states each regime: what the paper says, what its own
figures imply, what is assumed, and which tables of the recorded studies ran under it. A cause is
tested by changing one thing: its table has the same runs but for that, or its clock times the same
two plans otherwise. If the paper's order comes back there, the pair turned for that reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from placegap.experiments.research.paper_comparison import ComparedTable, Figures, compare
from placegap.experiments.research.paper_table import Inversion, rank
from placegap.experiments.research.published import PublishedTable, Sentence, load_published
from placegap.experiments.studies.config import Entry
from placegap.experiments.studies.runs import RunRow
from placegap.instances.problem import Name
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.yaml_file import read_yaml
from placegap.solvers.core.result import relative_gap

REGIMES = "regimes.yaml"

Kind = Literal[
    "memory rule",
    "contention",
    "costs",
    "units",
    "order of execution",
    "a choice of ours",
    "the paper's own contradiction",
]
Cells = Callable[[str], "tuple[Sequence[RunRow], Figures]"]
"""The kept cells of a study by its name, and the figures of its graphs."""

LEAST = "least s"
"""The figure of graphs (`graph_figures`) that `Change.least` asks for."""

QUARTER = 0.25
"""A claim is met whose factor is within this share of the published one."""


class Stated(Entry):
    """A sentence of a regime, and the lines of the paper's text that it rests on."""

    what: Sentence
    lines: Annotated[str, Field(pattern=r"^(\d+(-\d+)?(, )?)*$")] = ""


class CauseRuns(Entry):
    """Which runs stand in a table's cells."""

    #: The study, by its file without the ending.
    results: Name
    #: Other studies, whose tables stand there too where a column names them.
    beside: tuple[Name, ...] = ()
    #: Its tables; those that the paper's file names for each column, if empty.
    run: tuple[Name, ...] = ()
    #: Column -> its own tables, where they are others.
    of_column: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    #: Column -> the label of its runs there, where it is another one than the paper's file names.
    methods: dict[Name, Name] = Field(default_factory=dict)
    #: Row -> instance, likewise.
    instances: dict[Name, Name] = Field(default_factory=dict)
    #: Columns whose plans the paper ran although they overfill devices by its own count.
    best_effort: tuple[Name, ...] = ()

    def cells(self, cells: Cells) -> tuple[Sequence[RunRow], Figures]:
        """The kept cells of all its studies, with the bounds of the first, and its figures."""
        found, figure = cells(self.results)
        bounds = {_question(cell): cell for cell in found}
        beside = (cell for name in self.beside for cell in cells(name)[0])
        return [*found, *(_bounded(cell, bounds) for cell in beside)], figure

    def of(self, table: PublishedTable) -> PublishedTable:
        """The table with these runs in its cells, and no sentences or notes on other runs."""
        columns = tuple(
            column
            if column.figure is not None
            else column.model_copy(
                update={
                    "tables": self.of_column.get(column.name, self.run or column.tables),
                    "method": self.methods.get(column.name, column.method),
                    "best_effort": column.name in self.best_effort,
                    "note": "",
                }
            )
            for column in table.columns
        )
        rows = tuple(
            row.model_copy(update={"instance": self.instances.get(row.name, row.instance)})
            for row in table.rows
        )
        nothing: dict[str, Any] = {"readings": (), "memory": "", "agrees": "", "differs": ""}
        return table.model_copy(
            update={**nothing, "figures": {}, "stands_for": "", "columns": columns, "rows": rows}
        )


def _question(cell: RunRow) -> tuple[str, str]:
    return cell.instance_hash, cell.semantics


def _bounded(cell: RunRow, others: Mapping[tuple[str, str], RunRow]) -> RunRow:
    """The cell with the bound of another one of its question, if that is the better one."""
    other = others.get(_question(cell), cell)
    if (other.best_bound_ns or 0) <= (cell.best_bound_ns or 0):
        return cell
    return replace(
        cell,
        best_bound_ns=other.best_bound_ns,
        best_bound_by=other.best_bound_by,
        best_rests_on=other.best_rests_on,
        gap=relative_gap(cell.value_ns, other.best_bound_ns),
    )


class Change(Entry):
    """A cause: what it changes, and where that was tested.

    `runs` are the same but for the change; or a `clock` times the same plans. Without either the
    cause was shown elsewhere, and `changes` says what is known. `rows`, `faster` and `slower` limit
    it; all, if empty; `up_to` to pairs whose published ratio is at most that. Columns that are
    `unchanged` keep the runs of the regime.

    With `least`, a study that kept the seconds that no plan of the row's graph is below, nothing
    has to turn back: it is shown that no plan is ahead of ours by the paper's ratio.
    """

    kind: Kind
    changes: Sentence
    runs: CauseRuns | None = None
    clock: Literal["free_channels_ns", "no_transfers_ns"] | None = None
    rows: tuple[Name, ...] = ()
    faster: tuple[Name, ...] = ()
    slower: tuple[Name, ...] = ()
    unchanged: tuple[Name, ...] = ()
    up_to: Annotated[float, Field(gt=1)] | None = None
    least: Name | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.runs is not None and self.clock is not None:
            raise ValueError("give runs or a clock, not both")
        return self

    def is_about(self, pair: Inversion) -> bool:
        """Whether it may be the cause of a pair."""
        if self.up_to is not None and pair.paper_ratio > self.up_to:
            return False
        return all(
            not names or name in names
            for names, name in (
                (self.rows, pair.row),
                (self.faster, pair.faster),
                (self.slower, pair.slower),
            )
        )


class CellMisfit(Entry):
    """A cell that has no plan here although the paper ran one, and what the paper contradicts."""

    row: Name
    column: Name
    why: Sentence
    lines: str = ""


class Regime(CauseRuns):
    """How a table of a paper is made where the paper stood."""

    #: Of `published.yaml`.
    table: Name
    #: What it is called beside the table's title.
    name: Sentence
    #: states, implies, assumes: What the paper says, what its own figures imply, and what is
    #: neither.
    states: tuple[Stated, ...] = ()
    implies: tuple[Stated, ...] = ()
    assumes: tuple[Stated, ...] = ()
    #: Other readings, and what they give.
    tried: tuple[Stated, ...] = ()
    #: Change in this order; the first that turns a pair back is its cause.
    causes: tuple[Change, ...] = ()
    misfits: tuple[CellMisfit, ...] = ()
    #: Column that the text has before all others on every row, where no numbers are published.
    ahead: Name | None = None
    #: Whether its pairs are those that count for the paper; others stand beside.
    is_main: bool = True


class Regimes(Entry):
    """All regimes of a paper; tables that are `beside` are others' variants, and do not count.

    What is `left_out` are tables and figures of the paper that are not made, and why.
    """

    regimes: tuple[Regime, ...]
    beside: tuple[Name, ...] = ()
    left_out: tuple[Stated, ...] = ()


def load_regimes(folder: Path) -> Regimes:
    """The regimes of a paper's folder; none where it has no such file."""
    path = folder / REGIMES
    if not path.exists():
        return Regimes(regimes=())
    raw = read_yaml(path)
    try:
        return Regimes.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None


@dataclass(frozen=True)
class Turned:
    """A pair that is the other way round, the cause that turns it back, and those that do not."""

    pair: Inversion
    cause: Change | None
    told: str
    in_vain: tuple[str, ...]


@dataclass(frozen=True)
class Score:
    """How a table agrees with the paper.

    `timed` are (agree, all) of the pairs with two published times, None where the text alone ranks;
    `claims` (met, all).
    `misfits` are the cells without a plan that the paper ran.
    """

    title: str
    agree: int
    ties: int
    turned: tuple[Turned, ...]
    timed: tuple[int, int] | None
    claims: tuple[int, int]
    misfits: tuple[tuple[str, str], ...]

    @property
    def num_pairs(self) -> int:
        """All pairs that were compared."""
        return self.agree + self.ties + len(self.turned)

    @property
    def line(self) -> str:
        """The figures in a sentence."""
        met, claims = self.claims
        timed = ""
        if self.timed is not None:
            timed = f"; with two published times {self.timed[0]} of {self.timed[1]} agree"
        told = f"; of {claims} claims, {met} within a quarter of the factor" if claims else ""
        return (
            f"of {self.num_pairs} pairs, {self.agree} agree, {self.ties} tie,"
            f" {len(self.turned)} turn{timed}{told}"
        )


def compared_regime(regime: Regime, folder: Path, cells: Cells) -> ComparedTable:
    """A regime's table beside the paper's."""
    (table,) = load_published(folder / "published.yaml", [regime.table])
    named = table.model_copy(update={"title": f"{table.title}, {regime.name}"})
    return compare(regime.of(named), *regime.cells(cells))


def score(
    compared: ComparedTable, causes: Sequence[Change], cells: Cells, ahead: str | None = None
) -> Score:
    """Count a table's pairs and claims, and test the causes of those that are reversed.

    `cells` gives the kept cells of a study; `ahead` is the column that the paper's text ranks
    first.
    """
    ranked = compared if ahead is None else _with_first(compared, ahead)
    found = rank(ranked)
    tested = [
        None if c.runs is None else compare(c.runs.of(compared.table), *c.runs.cells(cells))
        for c in causes
    ]
    turned = tuple(
        _turned(pair, compared, list(zip(causes, tested, strict=True)), cells)
        for pair in found.inversions
    )
    met = [
        claim.ours is not None and abs(claim.ours / claim.claim.ratio - 1) <= QUARTER
        for claim in compared.claims
    ]
    return Score(
        title=compared.table.title,
        agree=found.agree,
        ties=found.ties,
        turned=turned,
        timed=None if ahead is not None else _timed(compared),
        claims=(sum(met), len(met)),
        misfits=tuple(_misfits(ranked)),
    )


def _with_first(compared: ComparedTable, ahead: str) -> ComparedTable:
    """The table as if the paper had printed 1 ns for the column ahead, and 2 ns for all others."""
    names = [column.name for column in compared.table.columns]
    rows = tuple(
        replace(
            row,
            cells=tuple(
                replace(cell, paper_ns=1.0 if name == ahead else 2.0)
                for name, cell in zip(names, row.cells, strict=True)
            ),
        )
        for row in compared.rows
    )
    return replace(compared, rows=rows)


def _timed(compared: ComparedTable) -> tuple[int, int]:
    """Of the pairs with two published times: how many agree, and how many there are."""
    agree = total = 0
    for row in compared.rows:
        timed = [
            (cell.paper_ns, cell.ours_ns)
            for cell in row.cells
            if cell.paper_ns is not None
            and math.isfinite(cell.paper_ns)
            and cell.ours_ns is not None
        ]
        for at, (paper, ours) in enumerate(timed):
            for paper_2, ours_2 in timed[at + 1 :]:
                if abs(paper - paper_2) >= 1.0:  # as `rank`: what is printed as equal is no pair
                    total += 1
                    agree += (paper < paper_2) == (ours < ours_2) and ours != ours_2
    return agree, total


def _misfits(compared: ComparedTable) -> Iterator[tuple[str, str]]:
    names = [column.name for column in compared.table.columns]
    for row in compared.rows:
        for name, cell in zip(names, row.cells, strict=True):
            ran = cell.paper_ns is not None and math.isfinite(cell.paper_ns)
            if ran and cell.ours_ns is not None and math.isinf(cell.ours_ns):
                yield row.row.name, name


def _turned(
    pair: Inversion,
    compared: ComparedTable,
    tests: Sequence[tuple[Change, ComparedTable | None]],
    cells: Cells,
) -> Turned:
    in_vain: list[str] = []
    for cause, table in tests:
        if not cause.is_about(pair):
            continue
        if cause.runs is None and cause.clock is None and cause.least is None:
            return Turned(pair, cause, cause.changes, tuple(in_vain))
        faster, slower = (
            _value(
                compared if table is None or name in cause.unchanged else table,
                pair.row,
                name,
                cause.clock,
            )
            for name in (pair.faster, pair.slower)
        )
        if faster is None or slower is None:
            continue
        if cause.least is not None:
            least = _least_ns(compared, pair.row, cells(cause.least)[1])
            if least is None:
                continue
            if slower < pair.paper_ratio * least:
                told = (
                    f"{cause.changes}: no plan takes less than {_seconds(least)} and"
                    f" {pair.slower} takes {_seconds(slower)}, {slower / least:.3g} times that; the"
                    f" paper has {pair.paper_ratio:.3g} times between the two"
                )
                return Turned(pair, cause, told, tuple(in_vain))
        elif faster < slower:
            told = f"{cause.changes} turns it back, {_seconds(faster)} before {_seconds(slower)}"
            return Turned(pair, cause, told, tuple(in_vain))
        in_vain.append(cause.changes)
    told = f"tested without it turning back: {', '.join(in_vain)}" if in_vain else "not tested"
    return Turned(pair, None, told, tuple(in_vain))


def _least_ns(compared: ComparedTable, row: str, figure: Figures) -> float | None:
    """What no plan of a row's graph is below; None where the study has no such row."""
    (cells,) = (found.cells for found in compared.rows if found.row.name == row)
    try:
        return 1e9 * next(figure(cell.run, LEAST) for cell in cells if cell.run is not None)
    except InputError:
        return None


def _seconds(time_ns: float) -> str:
    return "no plan" if math.isinf(time_ns) else f"{time_ns / 1e9:.4g} s"


def _value(table: ComparedTable, row: str, column: str, clock: str | None) -> float | None:
    """What a column takes on a row of a table, or its plan by another clock; None without a run."""
    names = [named.name for named in table.table.columns]
    cells = next((found.cells for found in table.rows if found.row.name == row), None)
    if cells is None:
        return None
    cell = cells[names.index(column)]
    if clock is None:
        return cell.ours_ns
    found = None if cell.run is None else getattr(cell.run, clock)
    return None if found is None else float(found)


def told_score(score: Score, misfits: Sequence[CellMisfit]) -> Iterator[str]:
    """The lines of a score: its figures, every turned pair and cell without a plan, and why."""
    yield f"{score.title}: {score.line}"
    for turned in score.turned:
        pair = turned.pair
        by = f"{pair.ours_ratio:.3g} times" if math.isfinite(pair.ours_ratio) else "no plan"
        kind = "no cause found" if turned.cause is None else turned.cause.kind
        yield f"{pair.row}: {pair.faster} before {pair.slower} ({by}): {kind}: {turned.told}"
    known = {(misfit.row, misfit.column): misfit.why for misfit in misfits}
    for row, column in score.misfits:
        why = known.get((row, column), "no contradiction is shown")
        yield f"{row}: {column} has no plan here, and the paper ran one: {why}"
