"""The studies that users see first are valid and complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.plan import plan_study
from placegap.instances.corpus.corpus import NETWORK_FAMILY, ONNX_FAMILY, corpus_names
from placegap.solvers import METHODS

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


STUDIES = sorted(
    path
    for path in EXPERIMENTS.rglob("*.yaml")
    if path.stem not in {"published", "regimes", "ablation", "trial", "cases"}
    and path.parent.name != "clusters"
)  # those name the papers' figures, where they stood, and methods that only the ablation registers


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_that_ships_is_valid(path: Path) -> None:
    cells = plan_study(load_study(path), path)
    assert any(cell.run is not None or cell.is_missing for cell in cells)  # learners need torch


def test_the_studies_that_ship_run_every_method() -> None:
    entries = [
        entry.name
        for path in STUDIES
        for table in load_study(path).tables
        for entry in table.methods
    ]
    assert set(METHODS) - set(entries) == set()


def test_the_quickstart_has_six_networks_and_small_graphs_on_two_clusters() -> None:
    path = EXPERIMENTS / "quickstart.yaml"
    cells = list(plan_study(load_study(path), path))
    assert all(cell.run is not None for cell in cells)
    for table in ("makespan", "max_load", "max_load, any plan"):
        new = {cell.instance for cell in cells if cell.table == f"networks, {table}"}
        assert len(new) >= 6
        assert new <= set(corpus_names(NETWORK_FAMILY))
        rows = {(cell.instance, cell.cluster) for cell in cells if cell.table == table}
        assert len({instance for instance, _ in rows}) >= 3
        assert {instance for instance, _ in rows} <= set(corpus_names(ONNX_FAMILY))
        assert len({cluster for _, cluster in rows}) == 2


def test_the_example_in_the_readme_is_a_valid_study() -> None:
    text = (EXPERIMENTS / "README.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    study = Study.model_validate(yaml.safe_load(example))
    assert study.name == "my-study"
    assert study.tables[0].instances[2].time_unit == "us"
