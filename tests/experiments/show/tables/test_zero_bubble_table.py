"""The table of zero_bubble: both schedules are proven, and weight events fill bubbles."""

from __future__ import annotations

from placegap.experiments.research.tables.zero_bubble import HEADS, rows


def test_rows_are_proven_and_the_best_chain_is_no_worse_than_that_of_1f1b() -> None:
    (row,) = rows(["llama-7b"], stages=(2,), rounds=(1,))
    assert len(row) == len(HEADS)
    assert (row[4], row[7]) == ("0", "0")
    plain, moved, best = (float(row[at]) for at in (3, 5, 6))
    assert best <= moved < plain
