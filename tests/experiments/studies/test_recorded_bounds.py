"""Bounds that are recorded count in a study, where it does not say otherwise, and are marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from doubles.gap_runs import CHAIN, STUDY, cells_of, plan
from doubles.pool_jobs import run_here

from placegap.experiments.studies import run as study_run
from placegap.experiments.studies.gap_tables import lay_out
from placegap.experiments.studies.gaps import GapCell, disagreements, gap_cells
from placegap.experiments.studies.report import markdown, runs_csv
from placegap.experiments.studies.run import run_study
from placegap.solvers.core.result import Bound

TEXT = """
name: mine
tables:
  - name: t
    semantics: {objective: makespan}
    instances: [inception_v1]
    clusters: [celeritas-4xV100-pcie]
    methods: [heft]
"""


def ran(tmp_path: Path, text: str) -> list[GapCell]:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return run_study(path, tmp_path / "out", workers=1)[1]


def test_a_study_of_a_graph_whose_optimum_is_recorded_has_the_gap_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_run, "run_pool", run_here)
    (cell,) = ran(tmp_path, TEXT)
    assert cell.value_ns is not None
    assert cell.best_bound_ns == 786_996  # docs/optima.md: 0.786996 ms
    assert cell.gap == pytest.approx(1 - 786_996 / cell.value_ns)
    assert cell.best_bound_by.startswith("recorded: ")
    assert cell.bound_ns is None  # heft itself proves nothing
    (without,) = ran(tmp_path, TEXT.replace("tables:", "recorded_bounds: false\ntables:"))
    assert (without.best_bound_ns, without.gap, without.value_ns) == (None, None, cell.value_ns)


def with_recorded(ns: int, plans: str = "any") -> list[GapCell]:
    """Two rows, of which one has a run that proves 90, and both a recorded bound."""
    records = {"net": plan(100, 90), "other": plan(100)}
    cells = cells_of({("t", name, "dp"): record for name, record in records.items()}, {"t": CHAIN})
    bound = Bound(ns, "recorded: by hand", "proof", plans)  # type: ignore[arg-type]
    found = [replace(cell.cell, recorded=(bound,)) for cell in cells]
    return gap_cells(found, {c.run.key: records[c.instance] for c in found if c.run is not None})


def test_only_a_higher_recorded_bound_takes_the_place_of_a_run_s() -> None:
    cells = with_recorded(80)
    assert [cell.best_bound_by for cell in cells] == ["dp", "recorded: by hand"]
    assert [cell.gap for cell in cells] == [0.1, 0.2]
    assert [cell.gap for cell in with_recorded(95, "chain")] == [0.05, 0.05]


def test_rows_that_rest_on_a_recorded_bound_are_marked_in_every_output() -> None:
    cells = with_recorded(80)
    (table,) = lay_out(cells)
    assert [row.bound.endswith("(r)") for row in table.rows] == [False, True]
    (note,) = [note for note in table.notes if note.startswith("(r)")]
    assert note.endswith("proved: by hand (1)")
    assert "| 80 (r) |" in markdown(STUDY, cells)
    assert "recorded: by hand" in runs_csv(STUDY, cells)


def test_a_plan_that_refutes_a_recorded_bound_is_a_contradiction() -> None:
    (first, second) = disagreements(with_recorded(101))
    assert "value 100 ns is below the bound 101 ns of recorded: by hand" in first
    assert first != second
