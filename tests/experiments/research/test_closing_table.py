"""How far plans and bounds of a table are apart, in one line per method."""

from __future__ import annotations

from dataclasses import replace

from doubles.gap_runs import CHAIN, Results, cells_of, plan

from placegap.experiments.research.certificates import closing_row
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
