"""The table of README, and the notebook, made anew from a study's runs.

The runs that they show lie beside the notebook. After a new quickstart study:
``UPDATE_README=results/quickstart/runs.csv pytest tests/test_readme.py``.
"""

import re
from pathlib import Path

import pandas as pd
from references import notebooks

from placegap.experiments import load_runs
from placegap.experiments.show.rendering import markdown_grid
from placegap.experiments.studies.report import SUMMARY_HEAD, summary_rows

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RUNS = notebooks.FOLDER / "quickstart.csv"
SHOWN = "networks, makespan"
"""The study's table that README has."""


def grid(runs: pd.DataFrame, table: str) -> str:
    """A table as the page has it."""
    return "\n".join(markdown_grid(SUMMARY_HEAD, summary_rows(runs[runs["table"] == table])))


def grids_of(page: Path) -> list[str]:
    """The grids in a page that look like summaries of a study."""
    head = re.escape("| " + " | ".join(SUMMARY_HEAD) + " |")
    return re.findall(rf"^{head}\n(?:\|.*\n?)+", page.read_text(), flags=re.MULTILINE)


def update(runs: Path) -> None:
    """Make README's table and the notebook's outputs those of a study's runs.csv."""
    if runs.resolve() != RUNS:
        RUNS.write_text(runs.read_text())
    text = README.read_text()
    (old,) = grids_of(README)
    README.write_text(text.replace(old, grid(load_runs(RUNS), SHOWN) + "\n"))
    notebooks.update("gaps")
