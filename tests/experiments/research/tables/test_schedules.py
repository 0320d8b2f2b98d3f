"""Tables of schedules: rows are proven, and what they compare is as expected."""

from __future__ import annotations

from placegap.experiments.research.tables import interleaved, pipelines, zero_bubble


def test_rows_of_pipelines_are_proven_and_no_method_is_below_the_bound() -> None:
    found = list(pipelines.rows(["llama-7b"], stages=(2,)))
    assert [row[2] for row in found] == ["2", "4", "8", "16"]
    for row in found:
        assert len(row) == len(pipelines.HEADS)
        assert row[pipelines.HEADS.index("gap")] == "0"
        assert all(cell.startswith("+") for cell in row[3:6])


def test_an_interleaved_row_is_proven_and_an_even_split_is_worse() -> None:
    (row,) = interleaved.rows(["llama-7b"], {"llama-7b": ((4, 2, 8),)})
    assert len(row) == len(interleaved.HEADS)
    assert row[6] == "0"
    assert float(row[4].strip("+ %")) > 0


def test_the_best_chain_of_zero_bubble_is_no_worse_than_that_of_1f1b() -> None:
    (row,) = zero_bubble.rows(["llama-7b"], stages=(2,), rounds=(1,))
    assert len(row) == len(zero_bubble.HEADS)
    assert (row[4], row[7]) == ("0", "0")  # both are proven
    plain, moved, best = (float(row[at]) for at in (3, 5, 6))
    assert best <= moved < plain
