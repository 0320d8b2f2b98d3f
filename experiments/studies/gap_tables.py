"""Gap tables on a terminal, as wide as it is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from placegap.experiments.show.rendering import PADDING
from placegap.experiments.studies.gap_tables import CellText, TableText

TONES = {"optimal": "bold green", "plain": "", "empty": "dim", "failed": "bold red"}
HEADING_WIDTH = 18
LABEL_WIDTH = 28


def gap_tables(table: TableText, width: int) -> Iterator[Table]:
    """A gap table, cut into as many tables, one below the other, as the width asks for."""
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
    title = f"{table.name}: {table.semantics} ({table.unit})"
    if is_part:
        title += f", {part.start + 1}-{part.start + len(columns)} of {len(table.columns)} methods"
    grid = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    grid.add_column("instance\ncluster", max_width=LABEL_WIDTH, overflow="fold")
    grid.add_column("best\nbound", justify="right", no_wrap=True)
    for name in columns:
        grid.add_column(escape(name), justify="right", max_width=HEADING_WIDTH, overflow="fold")
    for row in table.rows:
        label = Text.assemble(row.instance, "\n", (row.cluster, "dim"))
        grid.add_row(label, row.bound, *map(_cell, row.cells[part]))
    return grid


def _cell(cell: CellText) -> Text:
    lines = [(cell.value, TONES[cell.tone])]
    if cell.gap:
        lines.append((f"\n{cell.gap}", TONES[cell.tone]))
    if cell.time:
        lines.append((f"\n{cell.time}", "dim"))
    return Text.assemble(*lines)
