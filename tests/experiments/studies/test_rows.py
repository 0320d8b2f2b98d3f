"""A study reads its instances one by one, as its runs begin, and can be split by them."""

import sys
from pathlib import Path
from typing import Any

import pytest
from doubles.fake_study import log_lines, study_file, wait_for_lines

from placegap.experiments.cli import main
from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import plan
from placegap.experiments.studies import run as study
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import study_rows
from placegap.experiments.studies.run import run_study
from placegap.instances import InputError

Capture = pytest.CaptureFixture[str]


def test_the_first_run_ends_before_the_second_instance_is_read(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = plan.load_source
    read: list[str] = []

    def load_when_a_run_is_done(source: Any) -> Any:
        if read:
            wait_for_lines(tmp_path, 1)  # it fails if the first run waits for this instance
        read.append(source.model)
        return load(source)

    monkeypatch.setattr(plan, "load_source", load_when_a_run_is_done)
    path = study_file(tmp_path, instances="zfnet512, resnet50")
    runs = run_study(path, tmp_path, workers=2, modules=fakes)
    assert read == ["zfnet512", "resnet50"]
    assert list(runs["status"]) == ["feasible"] * 2


def test_an_instance_that_cannot_be_read_ends_the_study_after_what_runs(
    tmp_path: Path, fakes: list[str]
) -> None:
    (tmp_path / "bad.json").write_text("{")
    path = study_file(tmp_path, "{seconds: 1.0}", instances="zfnet512, bad.json")
    with pytest.raises(InputError, match=r"study\.yaml: table 't': .*bad\.json"):
        run_study(path, tmp_path, workers=2, modules=fakes)
    assert [line["status"] for line in log_lines(tmp_path)] == ["feasible"]


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ("zfnet512, no.json", "no.json"),
        ("zfnet512, {generate: layers}", "there is no family 'layers'"),
        ("zfnet512, {generate: layered, params: {opps: 3}}", "parameters of layered: opps"),
    ],
)
def test_what_is_wrong_with_the_last_row_is_said_before_the_first_run(
    tmp_path: Path, fakes: list[str], instances: str, message: str
) -> None:
    with pytest.raises(InputError, match=f"study.yaml: table 't': .*{message}"):
        run_study(study_file(tmp_path, instances=instances), tmp_path / "out", modules=fakes)
    assert not (tmp_path / "out").exists()


TWO_TABLES = """
name: shards
tables:
  - name: ports
    semantics: {objective: makespan}
    instances: [zfnet512, squeezenet, resnet50, {model: vgg19, device_memory: [0.5, 0.9]}]
    clusters: [8xH100-nvlink, celeritas-4xV100-pcie]
    methods: [fake]
    seeds: [0, 1]
    limits: {time_limit_s: 0.2}
  - {extends: ports, name: links, semantics: {objective: makespan, channels: link}}
"""


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_shards_are_whole_instances_and_all_rows_once(
    tmp_path: Path, fakes: list[str], count: int
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(TWO_TABLES)
    rows = study_rows(load_study(path), path)
    shards = [study_rows(load_study(path), path, (number, count)) for number in range(1, count + 1)]
    named = [[(row.table.name, row.source) for row in shard] for shard in shards]
    # 5 instances on 2 clusters in 2 tables
    assert len(rows) == 20
    together = [str(row) for shard in named for row in shard]
    assert sorted(together) == sorted(str((row.table.name, row.source)) for row in rows)
    owners = [{source for _, source in shard} for shard in named]
    assert sum(map(len, owners)) == 10  # no instance is in two shards
    # all rows take equally long, so that shards differ by an instance at most
    assert {len(one) for one in owners} <= {10 // count, -(-10 // count)}


def test_a_study_takes_over_what_its_shards_have_run(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(study, "run_pool", run_here)
    path = study_file(tmp_path, seeds="0, 1", instances="zfnet512, squeezenet, resnet50")
    for shard in ("1/2", "2/2"):
        assert main(["study", str(path), "--out", str(tmp_path), "--shard", shard]) == 0
    parts = [log_lines(tmp_path / f"shard-{number}-of-2") for number in (1, 2)]
    assert [len(part) for part in parts] == [4, 2]  # 2 and 1 instances of 2 seeds
    capsys.readouterr()
    assert main(["study", str(path), "--out", str(tmp_path)]) == 0
    assert "all 6 runs" in capsys.readouterr().err
    assert sorted(map(str, log_lines(tmp_path))) == sorted(map(str, parts[0] + parts[1]))


def test_of_more_shards_than_instances_some_are_empty(
    tmp_path: Path, fakes: list[str], capsys: Capture
) -> None:
    command = ["study", str(study_file(tmp_path)), "--out", str(tmp_path), "--shard", "2/2"]
    assert main(command) == main([*command, "--dry-run"]) == 0
    assert capsys.readouterr() == ("", "placegap: fakes: no runs\n" * 2)
    assert [file.name for file in tmp_path.iterdir()] == ["study.yaml"]


def test_a_dry_run_prints_what_would_run_and_runs_nothing(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path = study_file(tmp_path, "{}, {device: 1}", "0, 1, 2", "zfnet512, resnet50")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "load_source", None)  # no instance is read
    assert main(["study", str(path), "--workers", "4", "--dry-run"]) == 0
    said = capsys.readouterr()
    # 2 instances, 3 seeds, 2 columns: 11 limits of 0.2 s by 4 workers and the last are 0.75 s
    assert said.err == (
        "placegap: fakes: at most 12 runs of at most 0.2 s each, 4 at a time: at most 1 s in all\n"
    )
    row = next(line for line in said.out.splitlines() if line.startswith(" t "))
    assert row.split() == ["t", "2", "12", "0.2", "s", "1", "s", "fake,", "fake", "device=1"]
    assert [file.name for file in tmp_path.iterdir()] == ["study.yaml"]


def test_the_hard_limit_of_a_run_begins_when_its_instance_is_there(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # workers read for 4 s, and are killed after 3 s
    monkeypatch.setattr(study, "hard_limit_s", lambda run: 3.0)
    monkeypatch.setattr(study, "load_source", study.load_source)  # undoes what the module does
    modules = [*fakes, "doubles.slow_reading"]
    runs = run_study(study_file(tmp_path), tmp_path, workers=1, modules=modules)
    sys.modules.pop("doubles.slow_reading")
    assert list(runs["status"]) == ["feasible"]
    assert log_lines(tmp_path)[0]["wall_s"] >= 4
    slow = study_file(tmp_path, "{seconds: 60}")
    runs = run_study(slow, tmp_path, workers=1, modules=fakes)
    assert list(runs["status"]) == ["timeout"]
