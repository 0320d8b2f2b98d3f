"""A run is one row: files of results, logs and frames have the same columns."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from doubles.gap_runs import ANY, CHAIN, Results, cells_of, plan

from placegap.experiments import COLUMNS, load_runs
from placegap.experiments.studies.runs import (
    DERIVED,
    frame_of,
    load_rows,
    rows_of,
    with_best,
    write_rows,
)
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
    head = (tmp_path / "runs.csv").read_text().splitlines()[0].split(",")
    assert {*DERIVED} - {*head} == {"over_limit_s"}  # no run is late
    old = pd.read_csv(tmp_path / "runs.csv", dtype=str).drop(columns=["gap", "open"])
    old.to_csv(tmp_path / "old.csv")
    assert load_rows(tmp_path / "old.csv") == ROWS


def test_lost_and_open_are_the_two_parts_of_a_gap() -> None:
    runs = frame_of(ROWS).set_index(["table", "instance", "label"])
    placer = runs.loc["chains", "net", "placer"]
    # the best chain takes 2 ms, which is proven: 0.5 of 2.5 are lost
    assert (placer.best_value_ns, placer.gap, placer.lost, placer.open) == (2_000_000, 0.2, 0.2, 0)
    ip = runs.loc["all", "net", "ip"]
    # the only plan of any kind takes 1.9 ms, and the bound is 1.8
    assert (ip.lost, ip.open) == (0, pytest.approx(0.1 / 1.9))


def test_a_run_that_several_files_have_is_there_once(tmp_path: Path) -> None:
    shards = [tmp_path / f"shard-{number}-of-2" for number in (1, 2)]
    for folder, rows in zip((*shards, tmp_path), (ROWS[:3], ROWS[3:], ROWS), strict=True):
        folder.mkdir(exist_ok=True)
        write_rows(rows, folder / "runs.csv")
    # the bound of the joined study is better than that of a shard
    assert load_rows(tmp_path) == load_rows(tmp_path / "runs.csv") == ROWS
    assert len(load_rows(*shards)) == len(ROWS)
    assert len(load_rows(tmp_path / "runs.csv", f"{tmp_path}/*/runs.csv")) == len(ROWS)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "runs.jsonl").touch()
    assert len(load_rows(tmp_path)) == len(ROWS)


def test_a_run_long_after_its_limit_is_marked() -> None:
    def over_s(limit_s: float, solve_s: float) -> float | None:
        (row,) = with_best([replace(ROWS[0], time_limit_s=limit_s, solve_s=solve_s, build_s=None)])
        return row.over_limit_s

    assert over_s(2.0, 48.0) == 46.0
    # up to a second, or a tenth of the limit
    assert (over_s(2.0, 3.0), over_s(60.0, 66.0), over_s(60.0, 66.5)) == (None, None, 6.5)


LINE = {
    **{"key": "k", "instance_hash": "0", "label": "heft", "rules": '{"objective":"makespan"}'},
    **{"status": "feasible", "value_ns": 5, "seed": 0, "details": {"nodes": 3, "gap": "x"}},
}


def log_of(folder: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "runs.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return folder / "runs.jsonl"


@pytest.mark.parametrize(
    "line", ["", "5", "[]", "null", "\0", '{"a":' * 9999, json.dumps(LINE)[:40], '{"a":{"b":1}']
)
def test_damage_in_the_middle_is_refused_and_a_last_line_that_was_cut_off_left_out(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"runs\.jsonl: line 1"):
        load_runs(log_of(tmp_path, line, LINE))
    path = log_of(tmp_path, LINE)
    if line.startswith("{"):
        path.write_text(path.read_text() + line)
        assert load_runs(path)["value_ns"].tolist() == [5]
        assert "last line" in capsys.readouterr().err
