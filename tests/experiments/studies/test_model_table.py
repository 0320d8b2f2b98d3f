"""A study says what every model cost: rows, columns, build time, its own gap."""

from __future__ import annotations

from doubles.gap_runs import CHAIN, STUDY, Results, cells_of, plan

from placegap.experiments.studies.gap_tables import MODEL_HEAD, lay_out, model_rows
from placegap.experiments.studies.report import markdown, runs_csv

RESULTS: Results = {
    ("chains", "net", "dp"): plan(2_000_000, 2_000_000),
    ("chains", "net", "ip"): plan(2_500_000, 1_500_000)
    | {"details": {"rows": 120, "columns": 45, "nodes": 3}},
    ("chains", "net", "relaxation"): plan(0, 1_000_000)
    | {"status": "bound", "value_ns": None, "details": {"rows": 9, "columns": 8}},
}
CELLS = cells_of(RESULTS, {"chains": CHAIN})


def test_only_runs_with_a_model_have_a_line_and_the_gap_is_to_their_own_bound() -> None:
    ip, relaxation = model_rows(CELLS)
    # the best bound of the table is 2 ms, the model's own 1.5: (2.5 - 1.5) / 2.5
    assert dict(zip(MODEL_HEAD, ip, strict=True)) == {
        "instance": "net",
        "cluster": "pair",
        "model": "ip",
        "rows": "120",
        "columns": "45",
        "build": "250 ms",
        "solve": "1.0 s",
        "value": "2.500",
        "bound": "1.500",
        "own gap": "40.0 %",
    }
    assert relaxation[-3:] == ("-", "1.000", "-")


def test_the_report_has_the_sizes() -> None:
    assert "| net | pair | ip | 120 | 45 | 250 ms | 1.0 s |" in markdown(STUDY, CELLS)
    head, _, line, _ = runs_csv(STUDY, CELLS).splitlines()
    row = dict(zip(head.split(","), line.split(","), strict=True))
    assert (row["method"], row["rows"], row["columns"]) == ("ip", "120", "45")


def test_a_bound_is_shown_as_a_bound() -> None:
    (table,) = lay_out(CELLS)
    assert [cell.value for cell in table.rows[0].cells] == ["2.000", "2.500", ">= 1.000"]
