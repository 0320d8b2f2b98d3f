"""The results in the repository, and the pages that are made from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.gap_runs import ANY, CHAIN, cells_of, plan

from placegap.experiments.research.paper_comparison import compare
from placegap.experiments.research.paper_table import markdown
from placegap.experiments.research.papers import (
    PAPERS,
    Recorded,
    all_studies,
    inversions,
    kept_rows,
    load_recorded,
    page,
)
from placegap.experiments.research.published import PublishedTable
from placegap.experiments.studies.runs import RunRow, write_rows

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "experiments" / "papers"

TABLE = PublishedTable.model_validate(
    {
        "name": "one",
        "title": "One",
        "source": "table 1",
        "unit": "s",
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [{"name": "Net", "instance": "net", "cells": [1, 2, "OOM"]}],
    }
)


def kept(cells: list[RunRow], path: Path) -> Recorded:
    """Cells written to a file and read again."""
    write_rows(kept_rows(cells), path)
    return load_recorded(path)


@pytest.mark.parametrize("name", PAPERS)
def test_a_page_is_what_the_kept_results_print(name: str) -> None:
    # after a change of results or of published.yaml:
    # python -m placegap.experiments.research.papers --pages
    assert (ROOT / "docs" / "papers" / f"{name}.md").read_text() == page(FOLDER / name)


def test_no_inversion_of_the_kept_results_is_without_a_cause() -> None:
    unread = [
        (title, found.row, found.faster, found.slower)
        for title, found in inversions(all_studies(FOLDER))
        if found.why == "not explained yet"
    ]
    assert unread == []


def test_what_is_kept_prints_the_same_table(tmp_path: Path) -> None:
    clocks = {"free_channels_ns": 1, "no_transfers_ns": 1}
    cells = cells_of(
        {
            ("t", "net", "a"): {**plan(3 * 10**9), "details": {**clocks, "rows": 7}},
            ("t", "net", "b"): {**plan(2 * 10**9, bound=10**9), "details": clocks},
            ("t", "net", "c"): {"status": "no_plan", "message": "m" * 500},
        },
        {"t": CHAIN},
    )
    found = kept(cells, tmp_path / "small.csv")
    assert {row.study for row in found.rows} == {"small"}
    assert markdown(compare(TABLE, found.rows, found.figure)) == markdown(compare(TABLE, cells))
    assert [cell.gap for cell in found.rows] == [cell.gap for cell in cells]


def test_the_class_of_plans_that_a_bound_is_for_stays_with_it(tmp_path: Path) -> None:
    # a chain bound of 9 s says nothing about the plans of any kind, whose best bound is 1 s
    cells = cells_of(
        {
            ("t", "net", "a"): plan(9 * 10**9, bound=9 * 10**9),
            ("u", "net", "b"): plan(2 * 10**9, bound=10**9, plan_class="any"),
        },
        {"t": CHAIN, "u": ANY},
    )
    found = kept(cells, tmp_path / "small.csv")
    assert [cell.best_bound_ns for cell in found.rows] == [9 * 10**9, 10**9]
