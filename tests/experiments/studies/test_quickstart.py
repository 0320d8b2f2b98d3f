"""The studies that users see first are valid and complete."""

import re
from pathlib import Path

import pytest
import yaml
from references.own_methods import methods_restored

from placegap.experiments import research
from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.plan import plan_study
from placegap.solvers import METHODS, use_module
from placegap.solvers.core.registry import STAND_INS

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


STUDIES = sorted(
    path
    for path in EXPERIMENTS.rglob("*.yaml")
    if path.stem not in {"published", "scoring", "measured"}
    and not {"clusters", "research"} & {*path.parts}
)  # those name the papers' figures, where they stood, and a page's models


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_that_ships_is_valid(path: Path) -> None:
    with methods_restored(Path(research.__file__).parent / "stand_ins"):
        use_module(STAND_INS)  # the papers' studies run them
        cells = plan_study(load_study(path), path)  # one by one: some draw large graphs
        assert any(
            cell.run is not None or cell.status == "not_installed" for cell in cells
        )  # learners need torch


def test_the_studies_that_ship_run_every_method() -> None:
    entries = [
        entry.name
        for path in STUDIES
        for table in load_study(path).tables
        for entry in table.methods
    ]
    assert set(METHODS) - set(entries) == set()


def test_the_example_on_the_page_of_studies_is_a_valid_study() -> None:
    text = (EXPERIMENTS.parent / "docs" / "studies.md").read_text()
    example, *_ = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    study = Study.model_validate(yaml.safe_load(example))
    assert study.name == "my-study"
    assert study.tables[0].instances[2].time_unit == "us"
