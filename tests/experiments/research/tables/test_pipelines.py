"""The table of pipelines: proven rows, and what it says to wrong names."""

from __future__ import annotations

from placegap.experiments.research.tables.pipelines import HEADS, rows


def test_rows_are_proven_and_no_method_is_below_the_bound() -> None:
    found = list(rows(["llama-7b"], stages=(2,)))
    assert [row[2] for row in found] == ["2", "4", "8", "16"]
    for row in found:
        assert len(row) == len(HEADS)
        assert row[HEADS.index("gap")] == "0"
        assert all(cell.startswith("+") for cell in row[3:6])
