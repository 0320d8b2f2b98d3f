"""The best-known values of the corpus are proven again, and there for every row of the study."""

from functools import cache
from pathlib import Path

import pytest
from references.corpus import graph_of

from placegap.instances import Instance
from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    ONNX_FAMILY,
    BestEntry,
    corpus_names,
    load_best_known,
)
from placegap.instances.files.cluster_file import cluster_names, load_cluster
from placegap.instances.reading.yaml_file import read_yaml
from placegap.solvers import run_method

ENTRIES = [entry for entry in load_best_known() if entry.graph in corpus_names(ONNX_FAMILY)]
"""Of the graphs that are placed on six clusters each."""

NETWORKS = [entry for entry in load_best_known() if entry.graph in corpus_names(NETWORK_FAMILY)]
"""Of those that bring a cluster of their own."""

QUICK = ("bert-24-layers-train", "gpt2-train", "inception-v3-layers-train", "vit-large")
"""Networks whose best chain is proven in much less than a second."""

SLOW = ("inception_v1", "inception_v2", "densenet121", "squeezenet", "resnet50", "shufflenet")
"""Graphs whose proofs take seconds on some cluster."""


@cache
def on_cluster(graph: str, cluster: str) -> Instance:
    return graph_of(graph).instance(load_cluster(cluster))


def is_makespan(entry: BestEntry) -> bool:
    return entry.semantics.objective == "makespan"


def proven(*, quick: bool) -> list[object]:
    """Makespans of graphs and chains of all that are proven, those that take long or the others."""
    return [
        pytest.param(entry, id=f"{entry.graph}-{entry.cluster}-{entry.semantics.objective}")
        for entry in (*ENTRIES, *NETWORKS)
        if entry.bound_ns == entry.value_ns
        and (entry in ENTRIES if is_makespan(entry) else entry.semantics.plans == "chain")
        and (entry.graph in QUICK or (entry in ENTRIES and entry.graph not in SLOW)) == quick
    ]


def proves_again(entry: BestEntry) -> None:
    method = "decomposition" if is_makespan(entry) else "ideal-dp"
    found = run_method(on_cluster(entry.graph, entry.cluster), entry.semantics, method)
    assert (found.status, found.value_ns) == ("optimal", entry.value_ns)


@pytest.mark.parametrize("entry", proven(quick=True))
def test_the_best_known_value_is_proven_again(entry: BestEntry) -> None:
    proves_again(entry)


@pytest.mark.deep
@pytest.mark.parametrize("entry", proven(quick=False))
def test_the_best_known_value_of_a_large_graph_is_proven_again(entry: BestEntry) -> None:
    proves_again(entry)


@pytest.mark.parametrize("objective", ["makespan", "max_load"])
def test_every_graph_has_best_known_values_on_every_cluster_of_the_study(objective: str) -> None:
    known = {
        (entry.graph, entry.cluster) for entry in ENTRIES if entry.semantics.objective == objective
    }
    study = read_yaml(Path(__file__).parents[3] / "experiments" / "optima.yaml")
    clusters = study["tables"][0]["clusters"]
    assert set(clusters) <= set(cluster_names())
    assert known == {(graph, name) for graph in corpus_names(ONNX_FAMILY) for name in clusters}


def test_every_network_has_best_known_values_of_chains_of_any_plans_and_of_one_pass() -> None:
    for objective, plans in (("max_load", "chain"), ("max_load", "any"), ("makespan", None)):
        known = {
            entry.graph
            for entry in NETWORKS
            if entry.semantics.objective == objective
            and (plans is None or entry.semantics.plans == plans)
            and entry.value_ns is not None
            and entry.bound_ns is not None
        }
        assert known == set(corpus_names(NETWORK_FAMILY)), (objective, plans)
