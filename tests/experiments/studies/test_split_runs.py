"""Methods that split ops, in studies and on the command line: values of another instance."""

import json
from pathlib import Path

import pytest
from draws.splittable import splittable_diamond

from placegap.experiments.cli import main
from placegap.experiments.research.record_best import what_it_proves
from placegap.experiments.running import placing
from placegap.experiments.running.pool import Ending, run_here
from placegap.experiments.studies.config import Study
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.report import gap_grid, notes, summary_rows
from placegap.experiments.studies.run import describe_ending, describe_result, run_task
from placegap.experiments.studies.runs import (
    disagreements,
    frame_of,
    row_of,
    run_rows,
    semantics_columns,
)
from placegap.instances import Document, Makespan, save_document
from placegap.solvers import run_method

FREE = Makespan(channels="free")
PARTS = {"min_share": 0.4, "parts": 3}


@pytest.fixture
def diamond(tmp_path: Path) -> Path:
    path = tmp_path / "diamond.json"
    save_document(Document.of(splittable_diamond()), path)
    return path


def test_a_study_shows_the_value_of_the_parts_without_a_gap(diamond: Path) -> None:
    table = {
        "name": "makespan",
        "semantics": {"objective": "makespan", "channels": "free"},
        "instances": [diamond.name],
        "methods": ["brute-force", "d-dps", {"name": "fd-dps", "params": PARTS}],
    }
    study = Study.model_validate({"name": "parts", "tables": [table]})
    cells = list(plan_study(study, diamond.parent / "study.yaml"))
    records = {}
    for cell in cells:
        assert cell.run is not None
        ending = Ending(cell.run, "done", run_task(cell.run), "", 0.1)
        records[cell.run.key] = describe_ending(ending)
    rows = run_rows(cells, records)
    optimum, whole, parts = rows
    assert (optimum.value_ns, whole.value_ns) == (34, 34)
    # 30 ns, below the optimum of 34: no value of the row's instance, no gap, no disagreement
    assert (parts.status, parts.value_ns, parts.gap) == ("split", None, None)
    assert not parts.is_optimal
    assert parts.split_value_ns == 30
    assert 0 < (parts.split_bound_ns or 0) <= 30
    assert disagreements(rows) == []
    _, (line,) = gap_grid(rows)
    assert line[-1].startswith("30 (split, ")
    first, basis = notes(rows)
    assert first.startswith("fd-dps min_share=0.4, parts=3: the plan of another instance, ")
    assert basis == "best bounds rest on: proved by placegap (1)"
    assert summary_rows(frame_of(rows))[2][1] == "0 of 1"  # plans


def test_a_value_of_parts_is_never_recorded_as_the_best_of_the_whole() -> None:
    instance = splittable_diamond()
    whole, parts = (
        describe_result(run_method(instance, FREE, name, params))
        for name, params in (("d-dps", {}), ("fd-dps", PARTS))
    )
    run = {**semantics_columns(FREE), "method": "fd-dps"}
    assert [best.value_ns for best in what_it_proves(row_of({**run, **whole}))] == [34]
    assert list(what_it_proves(row_of({**run, **parts}))) == []
    assert parts["message"].endswith("1 op split into 3 parts, 30 ns there")
    assert parts["details"]["split_instance_hash"] != instance.content_hash


def test_the_command_line_writes_the_finer_instance_beside_the_plan(
    diamond: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "run_pool", run_here)
    plan, finer = diamond.with_name("plan.json"), diamond.with_name("plan.instance.json.gz")
    words = ["place", str(diamond), "--channels", "free", "--method", "fd-dps", "-o", str(plan)]
    params = [word for key, value in PARTS.items() for word in ("--param", f"{key}={value}")]
    finer.mkdir()
    assert main([*words, *params]) == 2
    assert "plan.instance.json.gz: " in capsys.readouterr().err
    assert not plan.exists()
    finer.rmdir()
    assert main([*words, *params, "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert (answer["instance"], answer["value_ns"]) == ("diamond-split", 30)
    parts = {f"op2/{part}" for part in ("1of3", "2of3", "3of3", "gather")}
    assert set(answer["placement"]) == {"op1", "op3", "op4", *parts}
    assert "the split instance" in printed.err
    assert main(["verify", str(finer), str(plan)]) == 0
    assert "30 ns" in capsys.readouterr().out
    assert main(["verify", str(diamond), str(plan)]) == 2
    assert "'op2/1of3'" in capsys.readouterr().err
