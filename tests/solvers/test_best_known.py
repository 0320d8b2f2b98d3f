"""The best-known values of the corpus are reproduced, and refuted by no method."""

from __future__ import annotations

import pytest

from placegap.instances.cluster_file import load_cluster
from placegap.instances.corpus import BestEntry, load_corpus, read_best_known
from placegap.solvers import solve

ENTRIES = read_best_known()
CHAINS = [
    entry
    for entry in ENTRIES
    if entry.semantics.plans == "chain" and not entry.graph.startswith(("inception_v2", "densenet"))
]
MAKESPANS = [entry for entry in ENTRIES if entry.semantics.objective == "makespan"]


def name(entry: BestEntry) -> str:
    return f"{entry.graph}-{entry.cluster}"


@pytest.mark.parametrize("entry", CHAINS, ids=name)
def test_the_ideal_dp_proves_the_best_known_chain(entry: BestEntry) -> None:
    instance = load_corpus(entry.graph).instance(load_cluster(entry.cluster))
    found = solve(instance, entry.semantics, "ideal-dp")
    assert (found.status, found.value_ns) == ("optimal", entry.value_ns)
    assert entry.bound_ns == entry.value_ns


@pytest.mark.parametrize("entry", MAKESPANS, ids=name)
@pytest.mark.parametrize("method", ["single-device", "m-topo", "etf", "m-etf", "heft", "peft"])
def test_no_placer_beats_a_best_known_bound(entry: BestEntry, method: str) -> None:
    instance = load_corpus(entry.graph).instance(load_cluster(entry.cluster))
    value = solve(instance, entry.semantics, method).value_ns
    assert value is not None
    assert entry.bound_ns is not None
    assert entry.bound_ns <= value
    assert entry.value_ns is not None
    assert entry.value_ns <= value


def test_every_graph_of_the_corpus_has_best_known_values_for_both_objectives() -> None:
    objectives = {(entry.graph, entry.semantics.objective) for entry in ENTRIES}
    assert len(objectives) == 2 * 9
