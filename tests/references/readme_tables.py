"""The tables of README and docs/quickstart.md, and the notebook, made anew from a study's runs.

The runs that they show lie beside the notebook. After a new quickstart study:
``UPDATE_README=results/quickstart/runs.csv pytest tests/test_readme.py``.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from references import notebooks

from placegap.experiments.studies.gaps import GapCell, summarize
from placegap.experiments.studies.plan import Cell
from placegap.experiments.studies.report import SUMMARY_HEAD, summary_row
from placegap.instances.problem import parse_semantics

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
RUNS = notebooks.FOLDER / "quickstart.csv"
ONE_PASS = ("makespan", "max_load", "max_load, any plan")
MEASURED = ("max_load", "pipeline_iteration", "hybrid_pipeline")
SHOWN = (
    *(f"networks, {table}" for table in ONE_PASS),
    *(f"measured, {table}" for table in MEASURED),
    *ONE_PASS,
)
"""The study's tables, in the order of the page."""

TABLES = {ROOT / "README.md": SHOWN[:1], PAGE: SHOWN}
"""What the pages show of them."""


def cells_of(text: str) -> list[GapCell]:
    """The cells of a study, as far as its runs.csv holds them."""
    return [_cell(row) for row in csv.DictReader(io.StringIO(text))]


def _cell(row: dict[str, str]) -> GapCell:
    rules = ("objective", "transfers", "channels", "plans", "load", "memory", "schedule", "sending")
    names = ("table", "instance", "cluster", "instance_hash", "method", "label")
    sizes = ("num_ops", "num_devices", "seed")
    cell = Cell(
        **{name: row[name] for name in names},
        **{name: int(row[name]) for name in sizes},
        semantics=parse_semantics(
            {name: row[name] for name in rules if row[name]}
            | {name: int(row[name]) for name in ("microbatches",) if row[name]}
        ),
        params={},
        run=None,
    )
    number = {n: float(row[n]) if row[n] else None for n in ("gap", "build_s", "solve_s")}
    times = ("value_ns", "bound_ns", "best_bound_ns")
    whole = {n: int(row[n]) if row[n] else None for n in times}
    return GapCell(cell, row["status"], **number, **whole)  # type: ignore[arg-type]


def grid(cells: list[GapCell], table: str) -> str:
    """A table as the pages have it."""
    lines = ["| " + " | ".join(SUMMARY_HEAD) + " |", "|" + " --- |" * len(SUMMARY_HEAD)]
    lines += [
        "| " + " | ".join(summary_row(summary)) + " |"
        for summary in summarize(cells)
        if summary.table == table
    ]
    return "\n".join(lines)


def grids_of(page: Path) -> list[str]:
    """The grids in a page that look like summaries of a study."""
    head = re.escape("| " + " | ".join(SUMMARY_HEAD) + " |")
    return re.findall(rf"^{head}\n(?:\|.*\n?)+", page.read_text(), flags=re.MULTILINE)


def num_open(cells: list[GapCell]) -> int:
    """Networks none of whose plans of one pass is proven optimal."""
    rows: dict[tuple[str, str], bool] = {}
    for cell in cells:
        if cell.cell.table == SHOWN[0]:
            row = cell.cell.instance, cell.cell.cluster
            rows[row] = rows.get(row, False) or cell.is_optimal
    return sum(not met for met in rows.values())


def num_proved(cells: list[GapCell]) -> int:
    """Rows of the corpus whose best chain the ideal DP proved."""
    return sum(cell.cell.method == "ideal-dp" and cell.status == "optimal" for cell in cells)


SENTENCES = {
    r"keep a gap: (\d+) of 6 networks": num_open,
    r"the ideal DP proves (\d+) of 15 optima": num_proved,
}
"""Figures in the page's text, and what they count."""


def update(runs: Path) -> None:
    """Make the pages' tables and the notebook's outputs those of a study's runs.csv."""
    if runs.resolve() != RUNS:
        RUNS.write_text(runs.read_text())
    cells = cells_of(RUNS.read_text())
    for page, names in TABLES.items():
        text = page.read_text()
        for old, table in zip(grids_of(page), names, strict=True):
            text = text.replace(old, grid(cells, table) + "\n")
        for pattern, count in SENTENCES.items() if page == PAGE else ():
            (found,) = re.finditer(pattern, text)
            text = text[: found.start(1)] + str(count(cells)) + text[found.end(1) :]
        page.write_text(text)
    notebooks.update("gaps")
