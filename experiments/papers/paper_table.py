"""A paper's table beside ours, in Markdown and on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from placegap.experiments.research.papers import MOST_WORDS
from placegap.experiments.show.figures import format_gap, format_s
from placegap.experiments.studies.gap_tables import CellText, RowText, TableText
from placegap.experiments.studies.gaps import FAILURES, NOT_APPLICABLE, GapCell
from placegap.experiments.studies.paper_comparison import (
    ComparedCell,
    ComparedClaim,
    ComparedTable,
    told,
)
from placegap.experiments.studies.paper_table import KINDS, UNREAD, Inversion, rank
from placegap.experiments.studies.published import NO_PLAN, UNITS_NS
from placegap.experiments.studies.report import markdown_grid
from placegap.instances.problem.semantics import memory_rule
from placegap.solvers.core.registry import METHODS

HEAD = "ours, its gap to the best bound, and the paper's"
NOTHING = "-"


def table_text(compared: ComparedTable) -> TableText:
    """The table for `gap_tables`: three lines per cell, which are ours, its gap, the paper's."""
    return TableText(
        name=compared.table.title,
        semantics=HEAD,
        unit=compared.table.unit,
        columns=tuple(column.name for column in compared.table.columns),
        rows=tuple(
            RowText(
                row.row.name,
                row.row.instance,
                _bound(compared, row.cells),
                tuple(_cell_text(compared, cell) for cell in row.cells),
            )
            for row in compared.rows
        ),
        notes=tuple(notes(compared)),
        summaries=(),
    )


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


def markdown(compared: ComparedTable) -> str:
    """The table with its notes as Markdown: ``ours (gap; paper)`` in every cell."""
    table = compared.table
    head = ("row", "instance", *(column.name for column in table.columns))
    rows = [
        (row.row.name, row.row.instance, *(_flat(compared, cell) for cell in row.cells))
        for row in compared.rows
    ]
    lines = [
        f"## {table.title}",
        "",
        f"{HEAD[0].upper()}{HEAD[1:]}{_in_unit(table.unit)}.",
        "",
        *markdown_grid(head, rows),
        "",
        *(f"- {note}" for note in notes(compared)),
        "",
    ]
    return "\n".join(lines)


def _in_unit(unit: str) -> str:
    return "" if unit == "1" else f", in {unit}"


def _bound(compared: ComparedTable, cells: tuple[ComparedCell, ...]) -> str:
    """The least of the row's bounds: columns may ask for different classes of plans."""
    if compared.table.quantity != "value":
        return NOTHING
    bounds = [
        cell.run.best_bound_ns for cell in cells if cell.run is not None and cell.run.best_bound_ns
    ]
    return _figure(compared, min(bounds)) if bounds else NOTHING


def _cell_text(compared: ComparedTable, cell: ComparedCell) -> CellText:
    paper = f"paper {cell.printed or NOTHING}"
    ours = _ours(compared, cell)
    if cell.run is None or cell.ours_ns is None:
        failed = cell.run is not None and cell.run.status in FAILURES
        return CellText(ours, "", paper, "failed" if failed else "empty")
    gap = NOTHING if cell.gap is None else format_gap(cell.gap)
    return CellText(ours, gap, paper, "optimal" if cell.gap == 0 else "plain")


def _flat(compared: ComparedTable, cell: ComparedCell) -> str:
    gap = "" if cell.gap is None else f"{format_gap(cell.gap)}; "
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
    rules = dict.fromkeys(memory_rule(run.cell.semantics) for run in runs)
    why = f": {told(compared, compared.table.memory)}" if compared.table.memory else ""
    yield f"memory: by the rule {' and '.join(f'`{rule}`' for rule in rules)}{why}"


def _columns_of(compared: ComparedTable, ended: Callable[[GapCell], bool]) -> Iterator[str]:
    """Columns with those of their rows whose run ended so."""
    for number, column in enumerate(compared.table.columns):
        if column.figure is not None:
            continue
        runs = [(row.row.name, row.cells[number].run) for row in compared.rows]
        rows = [name for name, run in runs if run is not None and ended(run)]
        if rows:
            yield f"{column.name} ({', '.join(rows)})"


def _took_all(run: GapCell) -> bool:
    return run.time_limit_s is not None and (run.time_s or 0.0) >= run.time_limit_s


def _took_a_share(run: GapCell) -> bool:
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
    asked = METHODS.get(run.cell.method) if run.time_s > LEAST_SHARE * run.time_limit_s else None
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
