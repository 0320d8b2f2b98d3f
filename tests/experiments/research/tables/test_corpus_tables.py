"""Tables of networks and optima, and the pages that show them."""

from pathlib import Path

import pytest

from placegap.experiments.research.tables.networks import network_figures, own_semantics
from placegap.experiments.research.tables.optima import main
from placegap.experiments.research.workloads.build import network_recipes
from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    corpus_names,
    known_of,
    load_best_known,
    load_corpus,
)

NETWORKS = corpus_names(NETWORK_FAMILY)
SMALL = ("bert-24-layers-train", "gnmt-layers")  # memory binds, and a pipeline gains less


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.deep] * (name not in SMALL)) for name in NETWORKS],
)
def test_memory_binds_or_a_pipeline_gains_less_than_its_devices(name: str) -> None:
    instance = load_corpus(name).instance()
    figures = network_figures(instance)
    if network_recipes()[name].binds == "memory":
        assert not figures.fits_one
        assert 0.6 <= figures.share <= 0.95
        return
    (best,) = known_of(instance, own_semantics(instance))
    assert figures.fits_one
    assert best.value_ns is not None
    # more than one device pays, and yet no pipeline is as fast as its devices together
    assert 1.3 < figures.one_device_ns / best.value_ns < len(instance.cluster.devices)
    assert figures.ccr > 1


def test_one_device_is_the_fastest_one() -> None:
    # the host of Tarnawski's cluster runs all ops, too, but slowly
    instance = load_corpus("gnmt-layers").instance()
    total_ns = sum(op.time_ns["P100-16GB-PCIe"] for op in instance.graph.ops)
    assert network_figures(instance).one_device_ns == total_ns


DOCS = Path(__file__).parents[4] / "docs"


def test_every_best_known_value_counts_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = [cells_of(line) for line in capsys.readouterr().out.splitlines()[2:]]
    assert sum(int(line[2]) for line in lines) == len(load_best_known())
    # nine classifiers on six clusters, all 54 makespans proven (docs/results.md)
    assert ["small graphs", "makespan port per_edge", *["54"] * 3, "0 %", "0 %"] in lines


def test_the_page_of_networks_has_every_value_and_gap() -> None:
    lines = (DOCS / "corpus.md").read_text().splitlines()
    row = {cells[0]: cells for line in lines if len(cells := cells_of(line)) == 4}
    for entry in load_best_known():
        if entry.graph in NETWORKS and (place := column(entry.semantics.label)) is not None:
            assert entry.value_ns is not None
            gap = 1 - (entry.bound_ns or 0) / entry.value_ns
            shown = f"{entry.value_ns / 1e6:.3f}" + (f" ({100 * gap:.2g} %)" if gap else "")
            assert row[entry.graph][place] == shown, entry.key


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def column(label: str) -> int | None:
    kinds = ("max_load chain", "max_load any", "makespan")
    return next((1 + at for at, kind in enumerate(kinds) if label.startswith(kind)), None)
