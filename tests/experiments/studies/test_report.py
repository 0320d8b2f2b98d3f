"""What a finished study writes and prints, sizes of models too."""

import io
from dataclasses import replace

import pytest
from doubles.gap_runs import ANY, CHAIN, Results, cells_of, plan
from PIL import Image

from placegap.experiments.cli.study import print_tables
from placegap.experiments.studies.plots import gaps_png
from placegap.experiments.studies.report import (
    MODEL_HEAD,
    gap_grid,
    markdown,
    model_rows,
    notes,
    table_texts,
)
from placegap.experiments.studies.runs import frame_of

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
CHAINS = [row for row in CELLS if row.table == "chains"]


def test_a_table_shows_value_best_bound_gap_and_time_or_why_not() -> None:
    rows = CHAINS
    head = ("instance", "cluster", "best bound (ms)", "dp", "placer", "broken", "small-only")
    shown, (net, big) = gap_grid(rows)
    assert shown == head
    assert net == (
        *("net", "pair", "2.000", "2.000 (0 %, 1.2 s)"),
        "2.500 (20.0 %, 1.2 s)",  # (2.5 - 2) / 2.5
        *("crashed", "n/a"),
    )
    assert big[2:] == ("30.00", "40.00 (25.0 %, 1.2 s)", "no plan", "not run", "n/a")
    assert list(notes(rows)) == [
        "broken: died | badly",
        "small-only: at most 8 ops, not 22 (2 rows, the first of them)",
        "placer: memory",
    ]


@pytest.mark.parametrize("width", [120, 80])
def test_rows_fit_the_terminal_and_no_method_is_lost(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_tables(CELLS, with_rows=True)
    text = capsys.readouterr().out
    assert all(name in text for name in ("dp", "placer", "broken", "small-only", "2.500 (20.0 %"))
    assert max(map(len, text.splitlines())) <= width


def test_what_bounds_rest_on_and_what_solvers_got_wrong_is_told() -> None:
    results: Results = {
        ("t", "net", "dp"): {**plan(9, 9), "rests_on": "proof"},
        ("t", "net", "ip"): {**plan(9, 9), "rests_on": "HiGHS 1", "faults": "HiGHS 1 said 10"},
        ("t", "big", "ip"): {**plan(9, 8), "rests_on": "HiGHS 1", "bound_origin": "highs"},
    }
    rows = cells_of(results, {"t": CHAIN})
    assert [row.best_rests_on for row in rows] == ["proof", "proof", "HiGHS 1"]
    assert list(notes(rows)) == [
        "best bounds rest on: proved by HiGHS 1, not checked by placegap (1);"
        " proved by placegap (1)",
        "a solver was wrong: net, ip: HiGHS 1 said 10",
    ]


def test_markdown_has_a_grid_per_table_and_escapes_bars() -> None:
    text = markdown("small", CELLS)
    assert "## chains: max_load chain add" in text
    assert "| net | pair | 2.000 | **2.000** (0 %, 1.2 s) | 2.500 (20.0 %, 1.2 s) |" in text
    assert "- broken: died | badly" in text
    assert "means over the 1 of 2 rows where every method has a gap" in text
    assert "DISAGREE" not in text


def test_seeds_are_lines_of_a_grid_and_no_rows_of_a_summary() -> None:
    seeds = [replace(row, seed=seed) for row in CHAINS for seed in (0, 1)]
    rows = sorted(seeds, key=lambda row: (row.instance != "net", row.seed))
    assert len(gap_grid(rows)[1]) == 4
    assert list(notes(rows)) == list(notes(CHAINS))
    (table,) = table_texts(rows)
    assert table.title.endswith(
        "means over the 1 of 2 problems x 2 seeds where every method has a gap"
    )
    once = [row for row in rows if row.label != "placer" or row.seed == 0]
    assert "2 problems x 2 seeds (once: placer)" in next(iter(table_texts(once))).title
    assert table.summary == next(iter(table_texts(CHAINS))).summary


def test_a_run_long_after_its_limit_is_shown_as_such() -> None:
    late = [replace(row, over_limit_s=0.75, time_limit_s=0.5) for row in CHAINS[:1]]
    assert gap_grid(late)[1][0][3] == "2.000 (0 %, 1.2 s of 500 ms)"
    assert next(iter(notes(late))) == "dp: beyond its time limit in 1 run"


def test_markdown_shouts_when_methods_disagree() -> None:
    wrong = cells_of({("t", "n", "a"): plan(90), ("t", "n", "b"): plan(100, 95)}, {"t": CHAIN})
    assert "**METHODS DISAGREE" in markdown("small", wrong)


def test_the_plot_is_a_png_and_the_same_for_equal_studies() -> None:
    data = gaps_png(frame_of(CELLS))
    assert data == gaps_png(frame_of(CELLS))
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
    assert "| net | pair | ip | 120 | 45 | 250 ms | 1.0 s |" in markdown("small", MODEL_CELLS)


def test_a_bound_is_shown_as_a_bound() -> None:
    _, (line,) = gap_grid(MODEL_CELLS)
    assert line[3:] == ("2.000 (0 %, 1.2 s)", "2.500 (20.0 %, 1.2 s)", ">= 1.000 (1.2 s)")
