"""Tables of a study whose graphs are made coarser first: plans are those of the original graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from placegap.experiments.running.pool import Ending
from placegap.experiments.studies.config import Study
from placegap.experiments.studies.gaps import disagreements, gap_cells
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import describe_ending, run_task
from placegap.instances import Document, InputError, example, save_document


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
def path(tmp_path: Path) -> Path:
    save_document(Document.of(example()), tmp_path / "diamond.json")
    return tmp_path / "study.yaml"


def test_a_plan_of_the_coarse_graph_is_judged_on_the_original_one(path: Path) -> None:
    cells = list(plan_study(two_tables("co-placement"), path))
    records = {}
    for cell in cells:
        assert cell.run is not None
        ending = Ending(cell.run, "done", run_task(cell.run), "", 0.1)
        records[cell.run.key] = describe_ending(ending)
    assert len(records) == 2  # the transform is part of a run's key
    original, coarse = gap_cells(cells, records)
    assert original.value_ns == 34  # the optimum of figure 3
    assert coarse.value_ns is not None
    assert coarse.value_ns >= 34
    assert coarse.bound_ns is None  # what is proven on the coarse graph says nothing here
    assert coarse.best_bound_ns == 34
    assert coarse.message.startswith("co-placement: 4 ops to ")
    assert disagreements([original, coarse]) == []


def test_an_unknown_transform_is_one_line_with_the_table(path: Path) -> None:
    with pytest.raises(InputError, match="table 'coarse': there is no transform 'moirai-fusoin'"):
        list(plan_study(two_tables("moirai-fusoin"), path))
