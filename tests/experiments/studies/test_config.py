"""What a study states is what it plans to run."""

import os
import re
from pathlib import Path

import pytest

from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import plan_study, study_rows
from placegap.instances import Document, example, save_document

GOOD = """
name: small
tables:
  - name: one
    semantics: {objective: makespan, channels: link}
    instances:
      - zfnet512
      - generate: layered
        params: {ops: 6, width: 2}
        seeds: [1, 2]
    clusters: [8xH100-nvlink, celeritas-4xV100-pcie]
    methods:
      - fake
      - {name: fake, params: [{device: 1}, {device: 2, seconds: 0.5}]}
    seeds: [0, 5]
    limits: {time_limit_s: 2, gap: 0.01}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return path


def test_cells_are_instances_x_clusters_x_seeds_x_methods_x_params(
    tmp_path: Path, fakes: list[str]
) -> None:
    path = written(tmp_path, GOOD)
    cells = list(plan_study(load_study(path), path))
    assert len(cells) == 3 * 2 * 2 * 3
    assert len({cell.run.key for cell in cells if cell.run}) == len(cells)
    first = cells[0]
    assert (first.instance, first.cluster, first.label) == ("zfnet512", "8xH100-nvlink", "fake")
    assert [cell.label for cell in cells[:3]] == [
        "fake",
        "fake device=1",
        "fake device=2, seconds=0.5",
    ]
    assert first.run is not None
    assert (first.run.time_limit_s, first.run.gap) == (2.0, 0.01)
    assert [cell.seed for cell in cells[:6]] == [0, 0, 0, 5, 5, 5]


def test_each_share_of_memory_is_a_row_of_its_own(tmp_path: Path, fakes: list[str]) -> None:
    tight = "{model: zfnet512, device_memory: [0.5, 0.3]}"
    path = written(tmp_path, GOOD.replace("- zfnet512", f"- {tight}"))
    study = load_study(path)
    cells = list(plan_study(study, path))
    most = sum(len(row.limits_s) for row in study_rows(study, path))
    assert len(cells) == most == 4 * 2 * 2 * 3
    shares = {f"8xH100-nvlink, memory {share}%" for share in (50, 30)}
    assert shares < {cell.cluster for cell in cells if cell.instance == "zfnet512"}
    assert len({cell.run.key for cell in cells if cell.run}) == len(cells)


def test_a_cell_says_why_a_method_does_not_apply(tmp_path: Path, fakes: list[str]) -> None:
    path = written(tmp_path, GOOD.replace("channels: link", "channels: free"))
    cells = list(plan_study(load_study(path), path))
    assert {cell.run for cell in cells} == {None}
    assert {cell.message for cell in cells} == {"the fake does not do free"}


def test_optional_files_that_are_absent_are_left_out_and_named(
    tmp_path: Path, fakes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    optional = "instances: [zfnet512, {model: ../other/net.json, optional: true}]\n    clusters"
    path = written(tmp_path, re.sub(r"instances:.*?clusters", optional, GOOD, flags=re.DOTALL))
    study = load_study(path)
    assert {cell.instance for cell in plan_study(study, path)} == {"zfnet512"}
    capsys.readouterr()
    assert len(study_rows(study, path)) == 2  # clusters
    net = os.path.relpath(tmp_path.parent / "other" / "net.json")
    said = f"placegap: {path}: left out: there is no such file: {net}\n"
    assert capsys.readouterr().err == said


def test_paths_are_relative_to_the_study(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    save_document(Document.of(example()), tmp_path / "models" / "own.json")
    text = (
        "name: s\ntables:\n"
        "  - {name: t, semantics: {objective: makespan}, instances: [models/own.json],"
        " methods: [fake]}\n"
    )
    path = written(tmp_path, text)
    monkeypatch.chdir("/")
    (cell,) = plan_study(load_study(path), path)
    assert (cell.instance, cell.cluster) == ("diamond", "two-gpus")
    assert cell.run is not None
    assert cell.run.instance_hash == example().content_hash


SMOKE = """
smoke: {instances: [zfnet512], time_limit_s: 0.5}
"""


def test_the_smallest_form_keeps_the_named_instances_and_shortens_the_runs(
    tmp_path: Path, fakes: list[str]
) -> None:
    path = written(tmp_path, GOOD + SMOKE)
    small = load_study(path, smoke=True)
    # 3 instances, or 1, on 2 clusters; 2 seeds and 3 columns each
    assert [len(row.limits_s) for row in study_rows(load_study(path), path)] == [6] * 6
    assert [len(row.limits_s) for row in study_rows(small, path)] == [6] * 2
    assert small.name == "small-smoke"
    assert (small.tables[0].limits.time_limit_s, small.tables[0].limits.gap) == (0.5, 0.01)
    plain = written(tmp_path, GOOD)  # a study that states no smaller form is its own
    assert load_study(plain, smoke=True) == load_study(plain)
