"""Gaps, best bounds, recorded ones too, and contradictions, on runs made by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from doubles.gap_runs import ANY, CHAIN, CONVEX, cells_of, plan

from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import run as study_run
from placegap.experiments.studies.report import gap_grid, markdown, notes
from placegap.experiments.studies.run import run_study
from placegap.experiments.studies.runs import RunRow, disagreements, rows_of, with_best
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


TEXT = """
name: mine
tables:
  - name: t
    semantics: {objective: makespan}
    instances: [inception_v1]
    clusters: [celeritas-4xV100-pcie]
    methods: [heft]
"""


def ran(tmp_path: Path, text: str) -> list[RunRow]:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return rows_of(run_study(path, tmp_path / "out", workers=1))


def test_a_study_of_a_graph_whose_optimum_is_recorded_has_the_gap_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_run, "run_pool", run_here)
    (cell,) = ran(tmp_path, TEXT)
    assert cell.value_ns is not None
    assert cell.best_bound_ns == 786_996  # best-known.json: 786,996 ns
    assert cell.gap == pytest.approx(1 - 786_996 / cell.value_ns)
    assert cell.best_bound_by.startswith("recorded: ")
    assert cell.bound_ns is None  # heft itself proves nothing
    (without,) = ran(tmp_path, TEXT.replace("tables:", "recorded_bounds: false\ntables:"))
    assert (without.best_bound_ns, without.gap, without.value_ns) == (None, None, cell.value_ns)


def with_recorded(ns: int) -> list[RunRow]:
    """Two rows, of which one has a run that proves 90, and both a recorded bound."""
    records = {"net": plan(100, 90), "other": plan(100)}
    rows = cells_of({("t", name, "dp"): record for name, record in records.items()}, {"t": CHAIN})
    by = "recorded: by hand"
    return with_best([replace(row, best_bound_ns=ns, best_bound_by=by) for row in rows])


def test_only_a_higher_recorded_bound_takes_the_place_of_a_run_s() -> None:
    cells = with_recorded(80)
    assert [cell.best_bound_by for cell in cells] == ["dp", "recorded: by hand"]
    assert [cell.gap for cell in cells] == [0.1, 0.2]
    assert [cell.gap for cell in with_recorded(95)] == [0.05, 0.05]


def test_rows_that_rest_on_a_recorded_bound_are_marked_in_every_output() -> None:
    cells = with_recorded(80)
    assert [row[2].endswith("(r)") for row in gap_grid(cells)[1]] == [False, True]
    (note,) = [note for note in notes(cells) if note.startswith("(r)")]
    assert note.endswith("proved in this study: by hand (1)")
    assert "| 80 (r) |" in markdown("small", cells)


def test_a_plan_that_refutes_a_recorded_bound_is_a_contradiction() -> None:
    (first, second) = disagreements(with_recorded(101))
    assert "value 100 ns is below the bound 101 ns of recorded: by hand" in first
    assert first != second
