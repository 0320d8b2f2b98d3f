"""The studies that users see first are valid and complete."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from placegap.experiments.study_config import Study, load_study
from placegap.experiments.study_plan import plan_study
from placegap.instances.corpus import corpus_names
from placegap.solvers import METHODS

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def test_the_quickstart_runs_every_method_on_six_models_and_two_clusters_per_table() -> None:
    path = EXPERIMENTS / "quickstart.yaml"
    cells = list(plan_study(load_study(path), path))
    assert {cell.method for cell in cells} == set(METHODS)
    assert all(cell.run is not None for cell in cells)
    real = [cell for cell in cells if cell.instance in corpus_names()]
    for table in ("makespan", "max_load"):
        rows = {(cell.instance, cell.cluster) for cell in real if cell.table == table}
        assert len({instance for instance, _ in rows}) >= 6
        assert len({cluster for _, cluster in rows}) == 2


def test_the_example_in_the_readme_is_a_valid_study() -> None:
    text = (EXPERIMENTS / "README.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    study = Study.model_validate(yaml.safe_load(example))
    assert study.name == "my-study"
    assert study.tables[0].instances[2].time_unit == "us"
