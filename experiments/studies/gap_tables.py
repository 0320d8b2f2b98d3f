"""Gap tables: cells as texts, the sizes of models, and grids as wide as a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from placegap.experiments.show.figures import common_unit, format_gap, format_in, format_s
from placegap.experiments.show.rendering import PADDING
from placegap.experiments.studies.gaps import (
    FAILURES,
    NOT_APPLICABLE,
    NOT_INSTALLED,
    NOT_RUN,
    GapCell,
    MethodSummary,
    summarize,
)
from placegap.instances.reading.printable import printable
from placegap.solvers.core.result import RECORDED, describe_basis, fault_words, relative_gap

MODEL_HEAD = (
    "instance",
    "cluster",
    "model",
    "rows",
    "columns",
    "build",
    "solve",
    "value",
    "bound",
    "own gap",
)


def model_rows(cells: Sequence[GapCell]) -> list[tuple[str, ...]]:
    """One line per run that says how many rows its model has, in the order of `MODEL_HEAD`.

    `cells` are those of one table. Value and bound are the run's own, in the table's unit; its gap
    is measured against its own bound, as if no other method had run.
    """
    size = common_unit(cell.value_ns for cell in cells if cell.value_ns is not None)[1]
    return [_row(cell, size) for cell in cells if "rows" in cell.details]


def _row(cell: GapCell, size: int) -> tuple[str, ...]:
    gap = relative_gap(cell.value_ns, cell.bound_ns)
    return (
        cell.cell.instance,
        cell.cell.cluster,
        cell.cell.label,
        str(cell.details["rows"]),
        str(cell.details.get("columns", "-")),
        _text(cell.build_s, format_s),
        _text(cell.solve_s, format_s),
        *("-" if ns is None else format_in(ns, size) for ns in (cell.value_ns, cell.bound_ns)),
        _text(gap, format_gap),
    )


def _text(figure: float | None, form: Callable[[float], str]) -> str:
    return "-" if figure is None else form(figure)


RECORDED_MARK = "(r)"
"""At a best bound that is recorded, and that no run of the study reached."""

WORDS = {NOT_APPLICABLE: "n/a", NOT_INSTALLED: "not installed", "no_plan": "no plan"}
"""What stands in a cell without a value, if it is not the status."""


@dataclass(frozen=True)
class CellText:
    """Value, gap and time of a cell; or one word in place of the value.

    `tone` is "optimal", "plain", "empty" or "failed".
    """

    value: str
    gap: str = ""
    time: str = ""
    tone: str = "plain"


@dataclass(frozen=True)
class RowText:
    """A row: its instance, cluster and seed, the best bound, and a cell per column."""

    instance: str
    cluster: str
    bound: str
    cells: tuple[CellText, ...]


@dataclass(frozen=True)
class TableText:
    """A gap table in words; values and bounds are in `unit`.

    `models` has a line, as `model_table` makes it, for every run that built a model.
    """

    name: str
    semantics: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[RowText, ...]
    notes: tuple[str, ...]
    summaries: tuple[MethodSummary, ...]
    models: tuple[tuple[str, ...], ...] = ()


class Notes:
    """Footnotes of a table; sentences that differ only in figures share one."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, ...], list[dict[str, None]]] = {}

    def number(self, sentence: str) -> int:
        """Number of the note that says this."""
        pieces = re.split(r"(\d+)", sentence)
        words = tuple(pieces[::2])
        figures = self._figures.setdefault(words, [{} for _ in pieces[1::2]])
        for seen, figure in zip(figures, pieces[1::2], strict=True):
            seen[figure] = None
        return list(self._figures).index(words) + 1

    def lines(self) -> tuple[str, ...]:
        """Every note with its number; figures that differ are listed."""
        return tuple(
            f"[{number}] "
            + "".join(
                word + " / ".join(seen) for word, seen in zip(words, [*figures, {}], strict=True)
            )
            for number, (words, figures) in enumerate(self._figures.items(), start=1)
        )


def lay_out(cells: Sequence[GapCell]) -> list[TableText]:
    """Every table of a study, in order."""
    tables: dict[str, list[GapCell]] = {}
    for cell in cells:
        tables.setdefault(cell.cell.table, []).append(cell)
    return [_lay_out_table(table) for table in tables.values()]


def _lay_out_table(cells: list[GapCell]) -> TableText:
    first = cells[0].cell
    unit, size = common_unit(cell.value_ns for cell in cells if cell.value_ns is not None)
    rows: dict[tuple[str, str, str, int], list[GapCell]] = {}
    for cell in cells:
        place = cell.cell
        key = (place.instance, place.cluster, place.instance_hash, place.seed)
        rows.setdefault(key, []).append(cell)
    several = len({cell.cell.seed for cell in cells}) > 1
    contents = {(name, cluster): set[str]() for name, cluster, _, _ in rows}
    for name, cluster, content, _ in rows:
        contents[name, cluster].add(content)
    notes = Notes()
    texts = []
    for (name, cluster, content, seed), row in rows.items():
        bound_ns = row[0].best_bound_ns
        mark = f" {RECORDED_MARK}" if row[0].is_recorded else ""
        texts.append(
            RowText(
                instance=" ".join(
                    [
                        name,
                        # graphs that differ in parameters only have one name
                        *([content[:6]] if len(contents[name, cluster]) > 1 else []),
                        *([f"(seed {seed})"] if several else []),
                    ]
                ),
                cluster=cluster,
                bound="-" if bound_ns is None else format_in(bound_ns, size) + mark,
                cells=tuple(_cell_text(cell, size, notes) for cell in row),
            )
        )
    return TableText(
        name=first.table,
        semantics=first.semantics.label,
        unit=unit,
        columns=tuple(dict.fromkeys(cell.cell.label for cell in cells)),
        rows=tuple(texts),
        notes=(*notes.lines(), *_recorded(rows.values()), *_bases(rows.values()), *_faults(cells)),
        summaries=tuple(summarize(cells)),
        models=tuple(model_rows(cells)),
    )


def _recorded(rows: Iterable[Sequence[GapCell]]) -> Iterator[str]:
    """What the mark at a bound means, and what has proven the bounds that have it."""
    count = Counter(
        row[0].best_bound_by.removeprefix(RECORDED) for row in rows if row[0].is_recorded
    )
    if count:
        by = "; ".join(f"{origin} ({count[origin]})" for origin in sorted(count))
        yield f"{RECORDED_MARK} recorded, and higher than all that this study's runs proved: {by}"


def _bases(rows: Iterable[Sequence[GapCell]]) -> Iterator[str]:
    """What the rows' best bounds rest on, where their methods say so."""
    count = Counter(row[0].best_rests_on for row in rows if row[0].best_rests_on)
    words = [f"{describe_basis('', rests_on)} ({count[rests_on]})" for rests_on in sorted(count)]
    if words:
        yield f"best bounds rest on: {'; '.join(words)}"


def _faults(cells: Sequence[GapCell]) -> Iterator[str]:
    """Claims of solvers that a known plan contradicts, and internal errors."""
    for cell in cells:
        for fault in cell.faults:
            yield fault_words(fault, f"{cell.cell.instance}, {cell.cell.label}")


def _cell_text(cell: GapCell, size: int, notes: Notes) -> CellText:
    time = "" if cell.time_s is None else format_s(cell.time_s)
    if cell.value_ns is not None:
        gap = "?" if cell.gap is None else format_gap(cell.gap)
        tone = "optimal" if cell.is_optimal else "plain"
        return CellText(format_in(cell.value_ns, size), gap, time, tone)
    if "split_value_ns" in cell.details:  # of another instance: no bound of the row holds for it
        note = notes.number(
            f"{cell.cell.label}: {_finer(cell)}; a plan of that finer instance, without a gap"
        )
        value = format_in(int(cell.details["split_value_ns"]), size)
        return CellText(value, f"split [{note}]", time)
    if cell.status == NOT_RUN:
        return CellText("not run", tone="empty")
    if cell.status == "bound" and cell.bound_ns is not None:
        return CellText(f">= {format_in(cell.bound_ns, size)}", "", time)
    word = WORDS.get(cell.status, cell.status)
    if cell.message:
        word += f" [{notes.number(f'{cell.cell.label}: {cell.message}')}]"
    return CellText(word, "", time, "failed" if cell.status in FAILURES else "empty")


def _finer(cell: GapCell) -> str:
    """What the instance of a split plan is made of: parts of ops, or copies of the graph."""
    if "copies" in cell.details:
        return f"{cell.details['copies']} copies of the graph"
    return f"{cell.details['split_ops']} ops split into {cell.details['split_parts']} parts"


TONES = {"optimal": "bold green", "plain": "", "empty": "dim", "failed": "bold red"}
HEADING_WIDTH = 18
LABEL_WIDTH = 28


def gap_tables(table: TableText, width: int) -> Iterator[Table]:
    """A gap table, cut into as many tables, one below the other, as the width requires."""
    parts = list(_parts(table, width))
    for part in parts:
        yield _gap_table(table, part, len(parts) > 1)


def _parts(table: TableText, width: int) -> Iterator[slice]:
    """Ranges of columns that fit side by side, at least one each."""
    labels = max(len(text) for row in table.rows for text in (row.instance, row.cluster))
    bounds = max(5, *(len(row.bound) for row in table.rows))
    room = width - (min(LABEL_WIDTH, max(8, labels)) + bounds + 2 * PADDING)
    start, used = 0, 0
    for number, name in enumerate(table.columns):
        texts = (text for row in table.rows for text in _lines(row.cells[number]))
        needs = max(min(HEADING_WIDTH, len(name)), *map(len, texts)) + PADDING
        if used + needs > room and number > start:
            yield slice(start, number)
            start, used = number, 0
        used += needs
    yield slice(start, len(table.columns))


def _lines(cell: CellText) -> tuple[str, str, str]:
    return cell.value, cell.gap, cell.time


def _gap_table(table: TableText, part: slice, is_part: bool) -> Table:
    columns = table.columns[part]
    title = printable(f"{table.name}: {table.semantics} ({table.unit})")
    if is_part:
        title += f", {part.start + 1}-{part.start + len(columns)} of {len(table.columns)} methods"
    grid = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    grid.add_column("instance\ncluster", max_width=LABEL_WIDTH, overflow="fold")
    grid.add_column("best\nbound", justify="right", no_wrap=True)
    for name in map(printable, columns):
        grid.add_column(Text(name), justify="right", max_width=HEADING_WIDTH, overflow="fold")
    for row in table.rows:
        label = Text.assemble(printable(row.instance), "\n", (printable(row.cluster), "dim"))
        grid.add_row(label, row.bound, *map(_cell, row.cells[part]))
    return grid


def _cell(cell: CellText) -> Text:
    lines = [(cell.value, TONES[cell.tone])]
    if cell.gap:
        lines.append((f"\n{cell.gap}", TONES[cell.tone]))
    if cell.time:
        lines.append((f"\n{cell.time}", "dim"))
    return Text.assemble(*lines)
