"""A paper's table beside ours: which run a cell is, gaps, claims, rankings that change places."""

from __future__ import annotations

import pytest
from doubles.gap_runs import ANY, CHAIN, cells_of, plan

from placegap.experiments.research.paper_comparison import ComparedTable, compare
from placegap.experiments.research.paper_table import UNREAD, markdown, notes, rank
from placegap.experiments.research.published import PublishedTable
from placegap.experiments.studies.runs import RunRow
from placegap.instances import InputError

S = 10**9


def table(**changed: object) -> PublishedTable:
    """Three methods on two networks; in the paper `a` is before `b`, and `c` fits one of them."""
    content: dict[str, object] = {
        "name": "table-1",
        "title": "The paper, table 1",
        "source": "table 1",
        "unit": "s",
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [
            {"name": "Net", "instance": "net", "cells": ["1.0", "2.0", "4.0"]},
            {"name": "Other", "instance": "other", "cells": [1.0, 1.0, "OOM"]},
        ],
    }
    return PublishedTable.model_validate({**content, **changed})


def runs(a: int, b: int, c: int, bound: int = 1 * S) -> list[RunRow]:
    """Our values of the three methods on one network."""
    return cells_of(
        {
            ("t", "net", "a"): plan(a),
            ("t", "net", "b"): plan(b, bound=bound),
            ("t", "net", "c"): plan(c),
        },
        {"t": CHAIN},
    )


def one_row(compared: ComparedTable) -> list[float | None]:
    (row,) = compared.rows
    return [cell.ours_ns for cell in row.cells]


def test_a_cell_is_the_run_of_its_rows_instance_and_its_columns_method() -> None:
    compared = compare(table(), runs(2 * S, 3 * S, 4 * S))
    assert one_row(compared) == [2 * S, 3 * S, 4 * S]
    assert [cell.paper_ns for cell in compared.rows[0].cells] == [1 * S, 2 * S, 4 * S]
    # (2 - 1) / 2, (3 - 1) / 3, (4 - 1) / 4 from the bound of one second
    assert [cell.gap for cell in compared.rows[0].cells] == [0.5, pytest.approx(2 / 3), 0.75]
    assert compared.num_left_out == 1


def test_two_runs_for_one_cell_are_an_error_that_says_what_to_name() -> None:
    cells = cells_of(
        {("t", "net", "a"): plan(5), ("u", "net", "a"): plan(4)}, {"t": CHAIN, "u": ANY}
    )
    with pytest.raises(InputError, match="column 'A' of 'Net' has 2 runs; name its tables"):
        compare(table(), cells)
    columns = [{"name": "A", "method": "a", "tables": ["u"]}, {"name": "B"}, {"name": "C"}]
    assert one_row(compare(table(columns=columns), cells)) == [4, None, None]


def test_the_papers_numbers_have_gaps_only_where_the_inputs_are_the_same() -> None:
    cells = runs(2 * S, 3 * S, 4 * S)
    assert [cell.paper_gap for cell in compare(table(), cells).rows[0].cells] == [None] * 3
    same = compare(table(same_inputs=True), cells)
    # 1.0, 2.0 and 4.0 s from the bound of 1 s
    assert [cell.paper_gap for cell in same.rows[0].cells] == [0.0, 0.5, 0.75]


def test_a_number_of_the_paper_below_our_bound_is_told() -> None:
    told = list(notes(compare(table(same_inputs=True), runs(4 * S, 4 * S, 4 * S, bound=3 * S))))
    assert any("the paper's A is below our bound" in note and "Net" in note for note in told)
    assert any("the paper's C: at most 25.0 % from" in note for note in told)  # (4 - 3) / 4


def test_rankings_that_change_places_are_counted_and_explained() -> None:
    # the paper: A 1 < B 2 < C 4; ours: B 2 < A 3 = C 3
    readings = [{"faster": ["A"], "slower": "B", "rows": ["Net"], "why": "rounding"}]
    compared = compare(table(readings=readings), runs(3 * S, 2 * S, 3 * S))
    ranking = rank(compared)
    assert (ranking.agree, ranking.ties, ranking.num_pairs) == (1, 1, 3)  # B before C; A as C
    (inversion,) = ranking.inversions
    assert (inversion.row, inversion.faster, inversion.slower) == ("Net", "A", "B")
    assert (inversion.paper_ratio, inversion.ours_ratio) == (2.0, 1.5)
    assert inversion.why == "rounding"
    (unread,) = rank(compare(table(), runs(3 * S, 2 * S, 3 * S))).inversions
    assert unread.why == UNREAD


def test_a_claim_is_the_largest_ratio_and_what_no_plan_exceeds() -> None:
    claims = [{"name": "up to 2", "source": "abstract", "slower": "C", "faster": "A", "ratio": 2}]
    compared = compare(table(claims=claims), runs(2 * S, 3 * S, 5 * S))
    (claim,) = compared.claims
    # C over A; and C over the bound of 1 s, had A met it
    assert (claim.ours, claim.row, claim.at_most) == (2.5, "Net", 5.0)
    (told,) = [note for note in notes(compared) if note.startswith("claim")]
    assert "the paper has 2, ours is 2.500 on Net; no plan has more than 5.000" in told


def test_the_table_says_ours_the_gap_and_the_papers() -> None:
    compared = compare(table(), runs(2 * S, 1 * S, 4 * S))
    text = markdown(compared)
    assert (
        "| Net | net | 2 (50.0 %; paper 1.0) | 1 (0 %; paper 2.0) | 4 (75.0 %; paper 4.0)" in text
    )
    assert "- rows of the paper that were not run here: 1" in text


def test_what_other_clocks_say_is_the_cause_of_an_inversion() -> None:
    # A before B in the paper, B before A with us; their clocks are told by hand
    def inversion(free: tuple[int, int], none: tuple[int, int]) -> str:
        clocks = [
            {"free_channels_ns": f, "no_transfers_ns": n} for f, n in zip(free, none, strict=True)
        ]
        cells = cells_of(
            {
                ("t", "net", "a"): {**plan(3 * S), "details": clocks[0]},
                ("t", "net", "b"): {**plan(2 * S), "details": clocks[1]},
            },
            {"t": CHAIN},
        )
        (found,) = rank(compare(table(), cells)).inversions
        return found.why

    assert inversion((1 * S, 2 * S), (1 * S, 2 * S)).startswith("contention: with free channels a")
    assert inversion((2 * S, 2 * S), (1 * S, 1 * S)).startswith("transfers: without any")
    assert inversion((3 * S, 2 * S), (3 * S, 2 * S)).startswith("the plans themselves")
