"""A paper's table beside ours: which run a cell is, its gap, and what claims come to."""

from typing import Any

import pytest
from doubles.gap_runs import ANY, CHAIN, Results, cells_of, plan

from placegap.experiments.research.paper_comparison import ComparedTable, KeptResults, compare
from placegap.experiments.research.published import PublishedTable
from placegap.instances import InputError

S = 10**9


def table(**changed: object) -> PublishedTable:
    """Three methods on two networks; in the paper `a` is before `b`, and `c` fits one of them."""
    content: dict[str, object] = {
        "name": "table-1",
        "title": "The paper, table 1",
        "source": "table 1",
        "unit": "s",
        "results": ["study"],
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [
            {"name": "Net", "instance": "net", "cells": ["1.0", "2.0", "4.0"]},
            {"name": "Other", "instance": "other", "cells": [1.0, 1.0, "OOM"]},
        ],
    }
    return PublishedTable.model_validate({**content, **changed})


def kept(a: int, b: int, c: int, bound: int = 1 * S) -> KeptResults:
    """Our values of the three methods on one network."""
    results: Results = {
        ("t", "net", "a"): plan(a),
        ("t", "net", "b"): plan(b, bound=bound),
        ("t", "net", "c"): plan(c),
    }
    return KeptResults({"study": cells_of(results, {"t": CHAIN})}, {})


def first_row(compared: ComparedTable, what: str = "ours_ns") -> list[Any]:
    return [getattr(cell, what) for cell in compared.rows[0]]


def test_a_cell_is_the_run_of_its_rows_instance_and_its_columns_method() -> None:
    compared = compare(table(), kept(2 * S, 3 * S, 4 * S))
    assert first_row(compared) == [2 * S, 3 * S, 4 * S]
    assert first_row(compared, "paper_ns") == [1 * S, 2 * S, 4 * S]
    # (2 - 1) / 2, (3 - 1) / 3, (4 - 1) / 4 from the bound of one second
    assert first_row(compared, "gap") == [0.5, pytest.approx(2 / 3), 0.75]
    assert [cell.run for cell in compared.rows[1]] == [None] * 3


def test_two_runs_for_one_cell_are_an_error_that_says_what_to_name() -> None:
    runs = cells_of(
        {("t", "net", "a"): plan(5), ("u", "net", "a"): plan(4)}, {"t": CHAIN, "u": ANY}
    )
    both = KeptResults({"study": runs}, {})
    with pytest.raises(InputError, match=r"'A' of 'Net'.*tables"):
        compare(table(), both)
    columns = [{"name": "A", "method": "a", "tables": ["u"]}, {"name": "B"}, {"name": "C"}]
    assert first_row(compare(table(columns=columns), both)) == [4, None, None]


def test_a_claim_needs_the_direction_and_nearly_the_time_saved() -> None:
    # C over A takes 4 / 2 = 2, which saves half: claimed 2.5 saves 60 %, and 50 is within a quarter
    # of 60; claimed 3.1 saves 68 %, which is not. A over B is 20 / 21, and claimed 1.1. No plan
    # exceeds C over the bound of 1 s, which is 4.
    claims = [
        {"name": f"{ratio} times", "slower": slower, "faster": faster, "ratio": ratio}
        for slower, faster, ratio in (("C", "A", 2.5), ("C", "A", 3.1), ("A", "B", 1.1))
    ]
    found = compare(table(claims=claims), kept(20 * S, 21 * S, 40 * S, bound=10 * S)).claims
    assert [claim.verdict for claim in found] == ["met", "same side", "reversed"]
    assert [claim.ours for claim in found] == [2.0, 2.0, pytest.approx(20 / 21)]
    assert found[0].at_most == 4.0


def test_small_effects_are_not_met_by_large_ones() -> None:
    # 1.05 and 1.25 are within a quarter of each other, but save 5 and 20 %
    claim = {"name": "5 % less", "slower": "B", "faster": "A", "ratio": 1.05}
    assert compare(table(claims=[claim]), kept(20 * S, 25 * S, 40 * S)).claims[0].verdict == (
        "same side"
    )


def test_a_plan_that_overfills_a_board_has_the_gap_of_the_bound_without_memory() -> None:
    details = {"overfilled_ns": 4 * S, "overfills_bytes": 3 * 10**9}
    runs = cells_of(
        {
            ("t", "net", "a"): {"status": "no_plan", "message": "memory", "details": details},
            ("roomy", "net", "auto"): plan(3 * S, bound=2 * S),
        },
        {"t": ANY, "roomy": CHAIN},  # another problem
    )
    columns = [
        {"name": "A", "method": "a", "best_effort": True, "tables": ["t"]},
        {"name": "B"},
        {"name": "C"},
    ]
    soft = compare(table(columns=columns, relaxed=["roomy"]), KeptResults({"study": runs}, {}))
    assert (first_row(soft)[0], first_row(soft, "gap")[0]) == (4 * S, 0.5)
    columns[0]["best_effort"] = False
    hard = compare(table(columns=columns), KeptResults({"study": runs}, {}))
    assert first_row(hard) == [float("inf"), None, None]
