"""What a finished study writes and prints."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from doubles.full_disk import full_disk
from doubles.gap_runs import ANY, CHAIN, STUDY, Results, cells_of, plan
from PIL import Image

from placegap.experiments.show.drawing import new_figure, styles
from placegap.experiments.studies.gap_tables import lay_out
from placegap.experiments.studies.gaps import summarize
from placegap.experiments.studies.report import (
    ASIDE,
    draw_panel,
    markdown,
    plot_gaps,
    rank,
    runs_csv,
    write_report,
)
from placegap.instances import Makespan
from placegap.instances.files.output_files import release_outputs

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
    assert list(frame[frame.instance == "big"].status) == [
        "feasible",
        "no_plan",
        "not_run",
        "not_applicable",
    ]


def test_the_plot_is_a_png_and_the_same_for_equal_studies() -> None:
    data = plot_gaps(CELLS)
    assert data == plot_gaps(CELLS)
    image = Image.open(io.BytesIO(data))
    assert image.format == "PNG"
    assert image.width > 1000
    colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
    assert colours is not None
    assert len(colours) > 20


def test_marks_at_no_gap_stand_side_by_side() -> None:
    runs = {("t", name, "heft"): plan(5, 5) for name in ("a", "b", "c")}
    cells = cells_of(runs, {"t": CHAIN})
    figure = new_figure(4, 2)
    axis = figure.add_subplot()
    draw_panel(axis, cells, rank(summarize(cells)), styles(c.cell.cluster for c in cells), 0.3)
    dots = [line.get_xdata()[0] for line in axis.lines if line.get_marker() != "None"]
    assert dots == pytest.approx([0, -ASIDE, -2 * ASIDE])


def test_a_study_without_any_gap_still_has_a_plot() -> None:
    cells = cells_of({("t", "net", "heft"): plan(5)}, {"t": Makespan()})
    assert plot_gaps(cells).startswith(b"\x89PNG")


def test_on_a_full_disk_every_file_that_has_room_is_written_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    sizes = [len(text.encode()) for text in (markdown(STUDY, CELLS), runs_csv(STUDY, CELLS))]
    (tmp_path / "gaps.png").write_text("old")
    with full_disk(max(sizes)):
        written = write_report(STUDY, CELLS, tmp_path)
    assert [path.name for path in written] == ["table.md", "runs.csv"]
    (error,) = map(str, release_outputs())
    assert error == f"{tmp_path}/gaps.png: cannot be written: File too large"
    assert (tmp_path / "gaps.png").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3
