"""The tables of README and docs/quickstart.md, and the notebook, made anew from a study's runs.

The runs that they show lie beside the notebook. After a new quickstart study:
``UPDATE_README=results/quickstart/runs.csv pytest tests/test_readme.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from references import notebooks

from placegap.experiments import load_runs
from placegap.experiments.show.rendering import markdown_grid
from placegap.experiments.studies.report import SUMMARY_HEAD, summary_rows

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


def grid(runs: pd.DataFrame, table: str) -> str:
    """A table as the pages have it."""
    return "\n".join(markdown_grid(SUMMARY_HEAD, summary_rows(runs[runs["table"] == table])))


def grids_of(page: Path) -> list[str]:
    """The grids in a page that look like summaries of a study."""
    head = re.escape("| " + " | ".join(SUMMARY_HEAD) + " |")
    return re.findall(rf"^{head}\n(?:\|.*\n?)+", page.read_text(), flags=re.MULTILINE)


def num_open(runs: pd.DataFrame) -> int:
    """Networks none of whose plans of one pass is proven optimal."""
    mine = runs[runs["table"] == SHOWN[0]]
    return int((mine.groupby("instance_hash")["gap"].min() > 0).sum())


def num_proved(runs: pd.DataFrame) -> int:
    """Rows of the corpus whose best chain the ideal DP proved."""
    return int(((runs["method"] == "ideal-dp") & (runs["status"] == "optimal")).sum())


SENTENCES = {
    r"keep a gap: (\d+) of 6 networks": num_open,
    r"the ideal DP proves (\d+) of 15 optima": num_proved,
}
"""Figures in the page's text, and what they count."""


def update(runs: Path) -> None:
    """Make the pages' tables and the notebook's outputs those of a study's runs.csv."""
    if runs.resolve() != RUNS:
        RUNS.write_text(runs.read_text())
    done = load_runs(RUNS)
    for page, names in TABLES.items():
        text = page.read_text()
        for old, table in zip(grids_of(page), names, strict=True):
            text = text.replace(old, grid(done, table) + "\n")
        for pattern, count in SENTENCES.items() if page == PAGE else ():
            (found,) = re.finditer(pattern, text)
            text = text[: found.start(1)] + str(count(done)) + text[found.end(1) :]
        page.write_text(text)
    notebooks.update("gaps")
