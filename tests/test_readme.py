"""What the recorded quickstart study found comes out again, as far as can be.

Times, and what solvers reach by a time limit, differ from run to run: they are compared with the
runs that lie beside the notebook. What does not depend on time is computed again.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.runs import HASH_DIGITS, RunRow, load_rows
from placegap.instances import Instance
from placegap.instances.corpus.corpus import corpus_names
from placegap.instances.corpus.layer_chains import is_chain
from placegap.solvers import run_method
from placegap.solvers.solving.known_bounds import recorded_bounds, recorded_value_ns

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "experiments" / "quickstart.yaml"
WITHOUT_LIMIT = ("single-device", "m-topo", "etf", "m-etf", "heft", "peft", "ideal-dp")
"""Methods of the quickstart that end long before its limit."""


@pytest.fixture(scope="module")
def cells() -> list[RunRow]:
    return load_rows(ROOT / "experiments" / "notebooks" / "quickstart.csv")


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8_000


def test_the_recorded_study_is_the_one_that_ships(cells: list[RunRow]) -> None:
    planned = plan_study(load_study(STUDY), STUDY)

    def places(found: Iterable[RunRow]) -> list[tuple[object, ...]]:
        names = ("table", "instance", "cluster", "label", "seed")
        return [
            (*(getattr(cell, name) for name in names), cell.instance_hash[:HASH_DIGITS])
            for cell in found
        ]

    assert places(cells) == places(planned)
    assert {cell.status for cell in cells} <= {"optimal", "feasible", "gap_met"}


def test_what_no_time_limit_decides_comes_out_again(cells: list[RunRow]) -> None:
    again = [cell for cell in cells if cell.method in WITHOUT_LIMIT and is_real(cell)]
    # networks: etf, m-etf, heft, peft; m-topo, ideal-dp; m-topo. Three small graphs on two clusters
    # before them measured chains: three times m-topo and ideal-dp, and two iterations of m-topo
    assert len(again) == 6 * (4 + 2 + 1) + 3 * 2 + 2 + 6 * (6 + 3 + 2)
    for cell in again[::3]:
        result = run_method(instance_of(cell), cell.stated, cell.method, time_limit_s=60)
        if cell.method == "ideal-dp" and cell.status != "optimal":  # on a busy machine
            assert cell.bound_ns is not None
            assert cell.value_ns is not None
            assert result.value_ns is not None
            assert cell.bound_ns <= result.value_ns <= cell.value_ns
        else:
            assert (result.status, result.value_ns) == (cell.status, cell.value_ns), cell.place


def test_no_recorded_run_contradicts_what_is_known_of_the_corpus(cells: list[RunRow]) -> None:
    for cell in filter(is_real, cells):
        instance, semantics = instance_of(cell), cell.stated
        known = recorded_value_ns(instance, semantics)
        if known is not None and cell.bound_ns is not None and cell.method != "ideal-dp":
            assert cell.bound_ns <= known, cell.place
        for bound in recorded_bounds(instance, semantics):
            assert cell.value_ns is not None
            assert bound.value <= cell.value_ns, cell.place
        if cell.status == "optimal":
            assert known is None or cell.value_ns == known, cell.place


def is_real(cell: RunRow) -> bool:
    return cell.instance in corpus_names() or is_chain(cell.instance)


def instance_of(cell: RunRow) -> Instance:
    layers = cell.stated.objective == "hybrid_pipeline"
    return load_source(Source(cell.instance, cell.cluster, layers=layers))
