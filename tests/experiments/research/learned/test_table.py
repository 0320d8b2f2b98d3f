"""The table of learned placers: equal budgets, a log that is gone on with, curves as CSV."""

import csv
from pathlib import Path

import pytest

from placegap.experiments.research.learned import table
from placegap.experiments.research.learned.table import CASES, SEARCHES, run_search
from placegap.instances import example


def test_every_case_has_a_proven_optimum_below_one_device() -> None:
    assert len(CASES) == 5
    assert all(case.optimum_ns > 0 for case in CASES)  # an InputError where it is not proven


@pytest.mark.parametrize("search", ["random search", "annealing"])
def test_a_search_spends_its_budget_and_finds_the_best_plan_of_the_diamond(search: str) -> None:
    assert run_search(search, example(), 200, seed=1).value_ns == 34  # brute force's optimum


@pytest.mark.torch
def test_the_table_is_the_same_again_from_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the torch extra")
    monkeypatch.setattr(table, "CASES", CASES[2:3])
    monkeypatch.setattr(table, "unseen_graphs", lambda: iter(()))
    command = ["--results", str(tmp_path), "--seeds", "1", "--evaluations", "400"]
    assert table.main(command) == 0
    first = capsys.readouterr().out
    log = (tmp_path / "runs.jsonl").read_text()
    assert log.count("\n") == len(SEARCHES)
    assert table.main(command) == 0
    assert capsys.readouterr().out == first
    assert (tmp_path / "runs.jsonl").read_text() == log
    rows = list(csv.DictReader((tmp_path / "curves.csv").open()))
    assert {row["search"] for row in rows} >= {"hrl", "placeto", "random search"}
    assert all(int(row["evaluated"]) <= 400 for row in rows)
    assert "| squeezenet, moirai-intra-server |" in first
