"""The benchmark's sets and its open instances."""

import re
from pathlib import Path

import pytest

from placegap.experiments.research.tables import benchmark
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import study_rows

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "benchmark.md").read_text()


@pytest.mark.parametrize("name", benchmark.SETS)
def test_a_set_is_a_study_whose_problems_are_counted_on_the_page(name: str) -> None:
    path = benchmark.FOLDER / f"{name}.yaml"
    found = re.search(rf"^\|`{name}`\|(\d+)\|", PAGE, re.MULTILINE)
    assert found is not None
    assert int(found[1]) == len(study_rows(load_study(path), path))


def test_every_file_of_the_folder_is_a_set() -> None:
    assert {path.stem for path in benchmark.FOLDER.iterdir()} == set(benchmark.SETS)


def test_a_hash_changes_with_an_instance_and_with_the_semantics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = benchmark.set_hash("measured")
    assert f"|`{own}`|" in PAGE
    first, *others = benchmark.problems("measured")
    for changed in (
        (others[0], *others),
        ((first[0], first[1].with_plans("any")), *others),
        tuple(others),
    ):
        monkeypatch.setattr(benchmark, "problems", lambda name, found=changed: found)
        assert benchmark.set_hash("measured") != own
    monkeypatch.setattr(benchmark, "problems", lambda name: (*reversed(others), first))
    assert benchmark.set_hash("measured") == own  # in whatever order


def test_open_instances_state_their_gap() -> None:
    rows = re.findall(r"^\|[\w.@-]+\|([\d.]+)\|([\d.]+)\|([\d.]+)\|$", PAGE, re.MULTILINE)
    assert len(rows) > 20
    for value, bound, gap in rows:
        assert abs(100 * (1 - float(bound) / float(value)) - float(gap)) < 0.06
