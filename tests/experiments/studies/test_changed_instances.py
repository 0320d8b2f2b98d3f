"""Instances of a study that are changed on the way in, and plans that overfill a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.studies.config import Study
from placegap.experiments.studies.gaps import OVERFILLED_NS, OVERFILLS_BYTES
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import run_task
from placegap.instances import Document, example, save_document


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The diamond of ops of 2 bytes each, beside a study."""
    drawn = example()
    ops = tuple(op.model_copy(update={"resident_bytes": 2}) for op in drawn.graph.ops)
    graph = drawn.graph.model_copy(update={"ops": ops})
    save_document(Document.of(drawn.with_graph(graph)), tmp_path / "diamond.json")
    return tmp_path / "study.yaml"


def told(path: Path, entry: dict[str, Any], method: dict[str, Any]) -> dict[str, Any]:
    """What a run of one method on one entry tells."""
    table = {
        "name": "t",
        "semantics": {"objective": "makespan", "channels": "free"},
        "instances": [{"model": "diamond.json", **entry}],
        "methods": [method],
    }
    (cell,) = plan_study(Study.model_validate({"name": "s", "tables": [table]}), path)
    assert cell.run is not None
    return run_task(cell.run)


def test_with_slower_links_every_transfer_takes_so_many_times_as_long(path: Path) -> None:
    # the optimum of figure 3 is 34 with transfers of 1 and more; 100 times as long, all ops go to
    # one device: 5 + 20 + 10 + 8
    method = {"name": "brute-force"}
    assert told(path, {}, method)["value_ns"] == 34
    assert told(path, {"slower_links": 100}, method)["value_ns"] == 43


def test_a_plan_that_overfills_a_device_tells_its_time_and_by_how_much(path: Path) -> None:
    # 2 of 8 bytes per device: two ops each, and so 2 bytes too many
    method = {"name": "order-place", "params": {"reach": 1, "best_effort": True}}
    found = told(path, {"device_memory": [0.25]}, method)
    assert found["status"] == "no_plan"
    assert found["details"][OVERFILLS_BYTES] == 2
    assert found["details"][OVERFILLED_NS] >= 34
