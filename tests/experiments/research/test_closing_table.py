"""How far plans and bounds of a table are apart, in one line per method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from doubles.gap_runs import CHAIN, Results, cells_of, plan

from placegap.experiments.research.certificates import closing_row, main
from placegap.solvers.core.result import PROOF

RESULTS: Results = {
    ("chains", "easy", "dp"): plan(2_000_000, 2_000_000),
    ("chains", "hard", "dp"): plan(5_000_000, 4_000_000),
    ("chains", "lost", "dp"): {"status": "no_plan", "message": "memory"},
}


def test_a_line_tells_of_plans_gaps_and_who_vouches() -> None:
    cells = cells_of(RESULTS, {"chains": CHAIN})
    cells = [replace(cells[0], best_rests_on=PROOF), *cells[1:]]
    # gaps 0 and 1/5, so 10 % on the mean; sqrt(1 * 4/5) = 0.894
    assert closing_row(cells) == ("2", "3", "10.0 %", "20.0 %", "0.894", "1", "1")


def test_a_table_without_plans_has_no_gaps() -> None:
    cells = cells_of({("chains", "lost", "dp"): {"status": "crashed"}}, {"chains": CHAIN})
    assert closing_row(cells) == ("0", "1", "none", "none", "none", "0", "0")


def test_a_study_that_has_not_run_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Path(__file__).parents[3] / "experiments" / "quickstart.yaml"
    assert main([str(study), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "there is no such log; run `placegap study" in said
