"""Gaps, best bounds and contradictions, on runs made by hand."""

from __future__ import annotations

import pytest
from doubles.gap_runs import ANY, CHAIN, CONVEX, cells_of, plan

from placegap.experiments.studies.gaps import disagreements, summarize
from placegap.instances import Makespan, MaxLoad


def test_the_best_bound_of_all_methods_counts_for_each() -> None:
    cells = cells_of(
        {
            ("t", "net", "heuristic"): plan(200),
            ("t", "net", "weak"): plan(160, bound=80),
            ("t", "net", "strong"): plan(125, bound=100),
        },
        {"t": CHAIN},
    )
    assert [cell.best_bound_ns for cell in cells] == [100, 100, 100]
    assert [cell.best_bound_by for cell in cells] == ["strong"] * 3
    # (200 - 100) / 200, (160 - 100) / 160, (125 - 100) / 125
    assert [cell.gap for cell in cells] == [0.5, 0.375, 0.2]


def test_a_chain_bound_never_meets_a_plan_that_need_not_be_a_chain() -> None:
    # an optimal chain of 100 says nothing about the plan of 90 that is no chain
    cells = cells_of(
        {("chains", "net", "dp"): plan(100, 100), ("all", "net", "ip"): plan(90, 80, "any")},
        {"chains": CHAIN, "all": ANY},
    )
    assert [cell.best_bound_ns for cell in cells] == [100, 80]
    assert cells[1].gap == pytest.approx(10 / 90)
    assert disagreements(cells) == []


def test_a_bound_holds_for_the_classes_nested_in_its_own() -> None:
    cells = cells_of(
        {
            ("chains", "net", "heuristic"): plan(100),
            ("convex", "net", "heuristic"): plan(95),
            ("all", "net", "ip"): plan(90, 80, "any"),
            ("convex", "net", "ip"): plan(95, 85, "convex"),
        },
        {"chains": CHAIN, "convex": CONVEX, "all": ANY},
    )
    assert [cell.best_bound_ns for cell in cells] == [85, 85, 80, 85]


def test_a_bound_does_not_cross_to_another_objective_or_load_rule() -> None:
    overlap = MaxLoad(plans="chain", load="overlap")
    makespan = Makespan()
    cells = cells_of(
        {
            ("add", "net", "dp"): plan(100, 100),
            ("overlap", "net", "a"): plan(90),
            ("makespan", "net", "a"): plan(300),
        },
        {"add": CHAIN, "overlap": overlap, "makespan": makespan},
    )
    assert [cell.gap for cell in cells] == [0.0, None, None]
    assert disagreements(cells) == []


def test_a_bound_above_another_methods_value_is_a_contradiction() -> None:
    cells = cells_of(
        {("t", "net", "right"): plan(90), ("t", "net", "wrong"): plan(100, bound=95)}, {"t": CHAIN}
    )
    (sentence,) = disagreements(cells)
    assert sentence == (
        "table 't', net on pair, right: value 90 ns is below the bound 95 ns of wrong"
    )


def test_a_bound_above_a_value_of_zero_is_a_contradiction() -> None:
    cells = cells_of({("t", "net", "a"): plan(0), ("t", "net", "b"): plan(5, 5)}, {"t": CHAIN})
    assert len(disagreements(cells)) == 1


def test_a_proof_that_there_is_no_plan_beside_a_plan_is_a_contradiction() -> None:
    infeasible = {"status": "infeasible", "message": "proved"}
    any_and_chain = {"all": ANY, "chains": CHAIN}
    found = cells_of(
        {("all", "net", "ip"): infeasible, ("chains", "net", "dp"): plan(90)}, any_and_chain
    )
    assert "proved that there is none" in disagreements(found)[0]
    # that there is no chain says nothing about other plans
    found = cells_of(
        {("chains", "net", "dp"): infeasible, ("all", "net", "ip"): plan(90)}, any_and_chain
    )
    assert disagreements(found) == []


def test_a_summary_counts_only_rows_with_a_gap() -> None:
    cells = cells_of(
        {
            ("t", "one", "dp"): plan(100, 100),
            ("t", "two", "dp"): plan(100, 80),
            ("t", "three", "dp"): plan(100, 50),
            ("t", "four", "dp"): {"status": "no_plan", "message": "memory"},
            ("t", "one", "placer"): plan(100),
            ("t", "two", "placer"): plan(160),
            ("t", "five", "placer"): plan(70),
        },
        {"t": CHAIN},
    )
    dp, placer = summarize(cells)
    assert (dp.num_plans, dp.num_gaps, dp.num_optimal, dp.num_proved) == (3, 3, 1, 1)
    # gaps 0, 0.2, 0.5
    assert dp.mean_gap == pytest.approx(0.7 / 3)
    assert dp.median_gap == pytest.approx(0.2)
    assert dp.total_s == pytest.approx(3 * 1.25)
    # gaps 0 (met the other's bound: optimal, not proved by it) and 0.5; nobody bounds "five"
    assert (placer.num_plans, placer.num_gaps) == (3, 2)
    assert (placer.num_optimal, placer.num_proved) == (1, 0)
    assert placer.median_gap == pytest.approx(0.25)
