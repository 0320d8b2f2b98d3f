"""The table of interleaved schedules: a small case is proven, and an even split is worse."""

from __future__ import annotations

from placegap.experiments.research.tables.interleaved import HEADS, rows


def test_a_row_is_proven_and_an_even_split_is_worse() -> None:
    (row,) = rows(["llama-7b"], {"llama-7b": ((4, 2, 8),)})
    assert len(row) == len(HEADS)
    assert row[6] == "0"
    assert float(row[4].strip("+ %")) > 0
