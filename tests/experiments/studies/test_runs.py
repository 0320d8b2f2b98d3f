"""A run is one row: files of results, logs and frames have the same columns."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from doubles.gap_runs import ANY, CHAIN, Results, cells_of, plan

from placegap.experiments import COLUMNS, load_runs
from placegap.experiments.studies.runs import DERIVED, frame_of, load_rows, rows_of, write_rows
from placegap.instances import InputError

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"
COMMITTED = sorted(
    [
        *EXPERIMENTS.glob("ours/results/*"),
        *EXPERIMENTS.glob("papers/*/results/*.csv"),
        EXPERIMENTS / "notebooks" / "quickstart.csv",
    ]
)

RESULTS: Results = {
    ("chains", "net", "dp"): plan(2_000_000, 2_000_000),
    ("chains", "net", "placer"): plan(2_500_000) | {"details": {"rows": 7}, "seed": 0},
    ("chains", "net", "small"): "at most 8 ops, not 22",
    ("chains", "big", "dp"): {"status": "no_plan", "message": "memory"},
    ("chains", "big", "placer"): {},
    ("all", "net", "ip"): plan(1_900_000, 1_800_000, "any"),
}
ROWS = cells_of(RESULTS, {"chains": CHAIN, "all": ANY})


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_every_committed_file_of_results_has_the_documented_columns(path: Path) -> None:
    runs = load_runs(path)
    assert list(runs.columns) == list(COLUMNS)
    assert len(runs) > 0
    assert (runs[["table", "instance", "cluster", "instance_hash", "method", "status"]] != "").all(
        axis=None
    )
    assert (runs["gap"].dropna() > -1e-9).all()  # no plan is below a bound
    assert (runs["value_ns"].notna() & runs["status"].eq("no_plan")).sum() == 0


def test_several_studies_open_together_by_folder_and_pattern() -> None:
    one, other = (len(load_runs(EXPERIMENTS / f"papers/{p}/results")) for p in ("moirai", "fd-dps"))
    both = load_runs(EXPERIMENTS / "papers/moirai/results", EXPERIMENTS / "papers/fd-dps/results")
    assert len(both) == one + other
    assert len(load_runs(EXPERIMENTS / "papers/moirai/results/re*.csv")) < one


def test_rows_are_the_same_from_a_frame_and_from_a_file(tmp_path: Path) -> None:
    write_rows(ROWS, tmp_path / "runs.csv")
    assert load_rows(tmp_path) == load_rows(tmp_path / "runs.csv")
    pd.testing.assert_frame_equal(load_runs(tmp_path), frame_of(ROWS))
    assert rows_of(frame_of(ROWS)) == ROWS
    assert not {*DERIVED} & {*(tmp_path / "runs.csv").read_text().splitlines()[0].split(",")}


def test_lost_and_open_are_the_two_parts_of_a_gap() -> None:
    runs = frame_of(ROWS).set_index(["table", "instance", "label"])
    placer = runs.loc["chains", "net", "placer"]
    # the best chain takes 2 ms, which is proven: 0.5 of 2.5 are lost
    assert (placer.best_value_ns, placer.gap, placer.lost, placer.open) == (2_000_000, 0.2, 0.2, 0)
    ip = runs.loc["all", "net", "ip"]
    # the only plan of any kind takes 1.9 ms, and the bound is 1.8
    assert (ip.lost, ip.open) == (0, pytest.approx(0.1 / 1.9))


def test_what_holds_no_runs_is_one_line_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"other.csv: holds no runs of a study"):
        load_runs(tmp_path / "other.csv")
    with pytest.raises(InputError, match="cannot be read"):
        load_runs(tmp_path / "missing.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no results of studies below it"):
        load_runs(tmp_path / "empty")
