"""The results in the repository, and the pages that are made from them."""

from pathlib import Path

import pytest
from doubles.gap_runs import ANY, CHAIN, cells_of, plan

from placegap.experiments.research.paper_comparison import KeptResults, compare, load_kept
from placegap.experiments.research.papers import kept_rows
from placegap.experiments.research.published import PublishedTable
from placegap.experiments.studies.runs import RunRow, write_rows
from placegap.instances.files.cluster_file import load_cluster

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "experiments" / "papers"

TABLE = PublishedTable.model_validate(
    {
        "name": "one",
        "title": "One",
        "source": "table 1",
        "unit": "s",
        "results": ["small"],
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [{"name": "Net", "instance": "net", "cells": [1, 2, "OOM"]}],
    }
)


def kept(cells: list[RunRow], folder: Path) -> KeptResults:
    """Cells written to a file and read again."""
    (folder / "results").mkdir()
    write_rows(kept_rows(cells), folder / "results" / "small.csv")
    return load_kept(folder)


def test_what_is_kept_gives_the_same_table(tmp_path: Path) -> None:
    clocks = {"free_channels_ns": 1, "no_transfers_ns": 1}
    cells = cells_of(
        {
            ("t", "net", "a"): {**plan(3 * 10**9), "details": {**clocks, "rows": 7}},
            ("t", "net", "b"): {**plan(2 * 10**9, bound=10**9), "details": clocks},
            ("t", "net", "c"): {"status": "no_plan", "message": "m" * 500},
        },
        {"t": CHAIN},
    )
    found = kept(cells, tmp_path)
    shown = [
        [(cell.ours_ns, cell.gap) for cell in compare(TABLE, one).rows[0]]
        for one in (found, KeptResults({"small": cells}, {}))
    ]
    # 2 s is twice the bound
    assert shown[0] == shown[1] == [(3e9, pytest.approx(2 / 3)), (2e9, 0.5), (float("inf"), None)]


def test_the_class_of_plans_that_a_bound_is_for_stays_with_it(tmp_path: Path) -> None:
    # a chain bound of 9 s says nothing about the plans of any kind, whose best bound is 1 s
    cells = cells_of(
        {
            ("t", "net", "a"): plan(9 * 10**9, bound=9 * 10**9),
            ("u", "net", "b"): plan(2 * 10**9, bound=10**9, plan_class="any"),
        },
        {"t": CHAIN, "u": ANY},
    )
    found = kept(cells, tmp_path)
    assert [row.best_bound_ns for row in found.rows["small"]] == [9 * 10**9, 10**9]


@pytest.mark.parametrize("name", ["moirai-intra-server", "moirai-inter-server"])
def test_moirai_has_the_links_of_its_table_and_a_latency(name: str) -> None:
    shipped = load_cluster(name)
    late = load_cluster(FOLDER / "moirai" / "clusters" / f"{name}.yaml")
    assert late.devices == shipped.devices
    assert late.widest_paths == {
        pair: (rate, 10_000) for pair, (rate, _) in shipped.widest_paths.items()
    }
