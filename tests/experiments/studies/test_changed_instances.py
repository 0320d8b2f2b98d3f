"""Instances that a study changes on the way in: slower links, less memory, coarser graphs."""

from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.running.pool import Ending
from placegap.experiments.studies.config import Study
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import describe_ending, run_task
from placegap.experiments.studies.runs import disagreements, run_rows
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
    assert found["details"]["overfills_bytes"] == 2
    assert found["details"]["overfilled_ns"] >= 34


def two_tables(coarsen: str) -> Study:
    """The same method on the diamond as it is, and after a transform."""
    table = {
        "semantics": {"objective": "makespan"},
        "instances": ["diamond.json"],
        "methods": ["brute-force"],
    }
    tables = [{"name": "original", **table}, {"name": "coarse", **table, "coarsen": coarsen}]
    return Study.model_validate({"name": "coarse", "tables": tables})


@pytest.fixture
def diamond(tmp_path: Path) -> Path:
    save_document(Document.of(example()), tmp_path / "diamond.json")
    return tmp_path / "study.yaml"


def test_a_plan_of_the_coarse_graph_is_judged_on_the_original_one(diamond: Path) -> None:
    cells = list(plan_study(two_tables("co-placement"), diamond))
    records = {}
    for cell in cells:
        assert cell.run is not None
        ending = Ending(cell.run, "done", run_task(cell.run), "", 0.1)
        records[cell.run.key] = describe_ending(ending)
    assert len(records) == 2  # the transform is part of a run's key
    original, coarse = run_rows(cells, records)
    assert original.value_ns == 34  # the optimum of figure 3
    assert coarse.value_ns is not None
    assert coarse.value_ns >= 34
    assert coarse.bound_ns is None  # what is proven on the coarse graph says nothing here
    assert coarse.best_bound_ns == 34
    assert coarse.message.startswith("co-placement: 4 ops to ")
    assert disagreements([original, coarse]) == []
