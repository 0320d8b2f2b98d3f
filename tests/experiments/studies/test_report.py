"""What a finished study writes and prints, sizes of models too."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from doubles.gap_runs import ANY, CHAIN, STUDY, Results, cells_of, plan
from PIL import Image
from rich.console import Console

from placegap.experiments.studies.gap_tables import MODEL_HEAD, gap_tables, lay_out, model_rows
from placegap.experiments.studies.report import markdown, plot_gaps, runs_csv

RESULTS: Results = {
    ("chains", "net", "dp"): plan(2_000_000, 2_000_000),
    ("chains", "net", "placer"): plan(2_500_000),
    ("chains", "net", "broken"): {"status": "crashed", "message": "died | badly"},
    ("chains", "net", "small-only"): "at most 8 ops, not 22",
    ("chains", "big", "dp"): plan(40_000_000, 30_000_000),
    ("chains", "big", "placer"): {"status": "no_plan", "message": "memory"},
    ("chains", "big", "broken"): {},
    ("chains", "big", "small-only"): "at most 8 ops, not 66",
    ("all", "net", "ip"): plan(1_900_000, 1_800_000, "any"),
}
CELLS = cells_of(RESULTS, {"chains": CHAIN, "all": ANY})


def test_a_table_shows_value_best_bound_gap_and_time_or_why_not() -> None:
    chains, _ = lay_out(CELLS)
    assert (chains.unit, chains.columns) == ("ms", ("dp", "placer", "broken", "small-only"))
    net, big = chains.rows
    assert (net.instance, net.cluster, net.bound, big.bound) == ("net", "pair", "2.000", "30.00")
    texts = [(cell.value, cell.gap, cell.time, cell.tone) for cell in net.cells]
    assert texts == [
        ("2.000", "0 %", "1.2 s", "optimal"),
        ("2.500", "20.0 %", "1.2 s", "plain"),  # (2.5 - 2) / 2.5
        ("crashed [1]", "", "", "failed"),
        ("n/a [2]", "", "", "empty"),
    ]
    assert [cell.value for cell in big.cells] == ["40.00", "no plan [3]", "not run", "n/a [2]"]
    assert chains.notes == (
        "[1] broken: died | badly",
        "[2] small-only: at most 8 ops, not 22 / 66",
        "[3] placer: memory",
    )


def test_a_narrow_terminal_gets_several_tables_and_no_column_is_lost() -> None:
    table, _ = lay_out(CELLS)
    for width, parts in ((120, 1), (40, 2)):
        console = Console(width=width, file=io.StringIO(), record=True)
        grids = list(gap_tables(table, width))
        for grid in grids:
            console.print(grid)
        text = console.export_text()
        assert len(grids) >= parts
        assert all(name in text for name in table.columns)
        assert max(map(len, text.splitlines())) <= width


def test_what_bounds_rest_on_and_what_solvers_got_wrong_is_told() -> None:
    results: Results = {
        ("t", "net", "dp"): {**plan(9, 9), "rests_on": "proof"},
        ("t", "net", "ip"): {**plan(9, 9), "rests_on": "HiGHS 1", "faults": ["HiGHS 1 said 10"]},
        ("t", "big", "ip"): {**plan(9, 8), "rests_on": "HiGHS 1", "bound_origin": "highs"},
    }
    cells = cells_of(results, {"t": CHAIN})
    assert [cell.best_rests_on for cell in cells] == ["proof", "proof", "HiGHS 1"]
    (table,) = lay_out(cells)
    assert table.notes == (
        "best bounds rest on: proved by HiGHS 1, not checked by placegap (1);"
        " proved by placegap (1)",
        "a solver was wrong: net, ip: HiGHS 1 said 10",
    )
    frame = pd.read_csv(io.StringIO(runs_csv(STUDY, cells)))
    assert list(frame.rests_on) == ["proof", "HiGHS 1", "HiGHS 1"]
    assert frame.iloc[2].bound_origin == "highs"
    assert frame.iloc[1].faults == "HiGHS 1 said 10"


def test_markdown_has_a_grid_per_table_and_escapes_bars() -> None:
    text = markdown(STUDY, CELLS)
    assert "## chains: max_load chain add" in text
    assert "| net | pair | 2.000 | **2.000** (0 %, 1.2 s) | 2.500 (20.0 %, 1.2 s) |" in text
    assert "- [1] broken: died \\| badly" in text
    assert "DISAGREE" not in text
    grids = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in grids} == {8, 5, 9}


def test_markdown_shouts_when_methods_disagree() -> None:
    wrong = cells_of({("t", "n", "a"): plan(90), ("t", "n", "b"): plan(100, 95)}, {"t": CHAIN})
    assert "**METHODS DISAGREE" in markdown(STUDY, wrong)


def test_the_csv_keeps_nanoseconds_and_every_cell() -> None:
    frame = pd.read_csv(io.StringIO(runs_csv(STUDY, CELLS)))
    assert len(frame) == len(CELLS)
    row = frame[(frame.table == "chains") & (frame.label == "placer")].iloc[0]
    assert (row.value_ns, row.best_bound_ns, row.best_bound_by) == (2_500_000, 2_000_000, "dp")
    assert row.gap == pytest.approx(0.2)
    assert pd.isna(row.own_gap)
    statuses = ["feasible", "no_plan", "not_run", "not_applicable"]
    assert list(frame[frame.instance == "big"].status) == statuses


def test_the_plot_is_a_png_and_the_same_for_equal_studies() -> None:
    data = plot_gaps(CELLS)
    assert data == plot_gaps(CELLS)
    image = Image.open(io.BytesIO(data))
    assert image.format == "PNG"
    assert image.width > 1000


MODEL_RESULTS: Results = {
    ("chains", "net", "dp"): plan(2_000_000, 2_000_000),
    ("chains", "net", "ip"): plan(2_500_000, 1_500_000)
    | {"details": {"rows": 120, "columns": 45, "nodes": 3}},
    ("chains", "net", "relaxation"): plan(0, 1_000_000)
    | {"status": "bound", "value_ns": None, "details": {"rows": 9, "columns": 8}},
}
MODEL_CELLS = cells_of(MODEL_RESULTS, {"chains": CHAIN})


def test_only_runs_with_a_model_have_a_line_and_the_gap_is_to_their_own_bound() -> None:
    ip, relaxation = model_rows(MODEL_CELLS)
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
    assert "| net | pair | ip | 120 | 45 | 250 ms | 1.0 s |" in markdown(STUDY, MODEL_CELLS)
    head, _, line, _ = runs_csv(STUDY, MODEL_CELLS).splitlines()
    row = dict(zip(head.split(","), line.split(","), strict=True))
    assert (row["method"], row["rows"], row["columns"]) == ("ip", "120", "45")


def test_a_bound_is_shown_as_a_bound() -> None:
    (table,) = lay_out(MODEL_CELLS)
    assert [cell.value for cell in table.rows[0].cells] == ["2.000", "2.500", ">= 1.000"]
