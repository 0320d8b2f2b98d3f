"""The best-known values of the corpus are reproduced, and refuted by no method."""

from __future__ import annotations

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

QUICK = (
    "bert-24-layers-train",
    "bert-base-train",
    "bert-large",
    "bert-large-train",
    "gpt2-train",
    "gpt2-xl",
    "gpt3-13b",
    "gpt3-13b-train",
    "inception-v3-layers-train",
    "llama-7b",
    "resnet-50-layers-train",
    "resnet50-batch32",
    "resnet50-train",
    "swin-large",
    "vit-large",
)
"""Networks whose best chain is proven in less than a second."""

SLOW = ("inception_v1", "inception_v2", "densenet121", "squeezenet")
"""Graphs whose proofs take seconds on some cluster."""

SLOW_SCHEDULES = (*SLOW, "resnet50", "shufflenet")
"""Those whose makespan does, too."""

PLACERS = ("single-device", "m-topo", "etf", "m-etf", "heft", "peft", "annealing")


@cache
def on_cluster(graph: str, cluster: str) -> Instance:
    return graph_of(graph).instance(load_cluster(cluster))


def instance(entry: BestEntry) -> Instance:
    return on_cluster(entry.graph, entry.cluster)


def chosen(objective: str, *, slow: bool, plans: str | None = None) -> list[object]:
    """Entries of an objective, with their names; of chains those that are proven."""
    return [
        pytest.param(entry, id=f"{entry.graph}-{entry.cluster}")
        for entry in ENTRIES
        if entry.semantics.objective == objective
        and (plans is None or entry.semantics.plans == plans)
        and (entry.graph in (SLOW_SCHEDULES if objective == "makespan" else SLOW)) == slow
        and (objective == "makespan" or entry.bound_ns == entry.value_ns)
    ]


def proves_again(entry: BestEntry, method: str) -> None:
    found = run_method(instance(entry), entry.semantics, method)
    assert (found.status, found.value_ns) == ("optimal", entry.value_ns)
    assert entry.bound_ns == entry.value_ns


@pytest.mark.parametrize("entry", chosen("max_load", slow=False, plans="chain"))
def test_the_ideal_dp_proves_the_best_known_chain(entry: BestEntry) -> None:
    proves_again(entry, "ideal-dp")


@pytest.mark.deep
@pytest.mark.parametrize("entry", chosen("max_load", slow=True, plans="chain"))
def test_the_ideal_dp_proves_the_best_known_chain_of_large_graphs(entry: BestEntry) -> None:
    proves_again(entry, "ideal-dp")


@pytest.mark.parametrize("entry", chosen("makespan", slow=False))
def test_decomposition_proves_the_best_known_makespan(entry: BestEntry) -> None:
    proves_again(entry, "decomposition")


@pytest.mark.deep
@pytest.mark.parametrize("entry", chosen("makespan", slow=True))
def test_decomposition_proves_the_best_known_makespan_of_large_graphs(entry: BestEntry) -> None:
    proves_again(entry, "decomposition")


@pytest.mark.parametrize("entry", [*chosen("makespan", slow=False), *chosen("makespan", slow=True)])
def test_no_placer_beats_a_best_known_bound(entry: BestEntry) -> None:
    for method in PLACERS:
        params = {"moves": 100, "restarts": 1} if method == "annealing" else {}
        value = run_method(instance(entry), entry.semantics, method, params).value_ns
        assert value is not None
        assert entry.bound_ns is not None
        assert entry.bound_ns <= value
        assert entry.value_ns is not None
        assert entry.value_ns <= value


@pytest.mark.parametrize("objective", ["makespan", "max_load"])
def test_every_graph_has_best_known_values_on_every_cluster_of_the_study(objective: str) -> None:
    known = {
        (entry.graph, entry.cluster) for entry in ENTRIES if entry.semantics.objective == objective
    }
    study = read_yaml(Path(__file__).parents[3] / "experiments" / "optima.yaml")
    clusters = study["tables"][0]["clusters"]
    assert set(clusters) <= set(cluster_names())
    assert known == {(graph, name) for graph in corpus_names(ONNX_FAMILY) for name in clusters}


CHAINS = [
    entry
    for entry in NETWORKS
    if entry.semantics.objective == "max_load" and entry.semantics.plans == "chain"
]


def proven_chains(*, quick: bool) -> list[object]:
    return [
        pytest.param(entry, id=entry.graph)
        for entry in CHAINS
        if entry.bound_ns == entry.value_ns and (entry.graph in QUICK) == quick
    ]


@pytest.mark.parametrize("entry", proven_chains(quick=True))
def test_the_ideal_dp_proves_the_best_chain_of_a_network(entry: BestEntry) -> None:
    proves_again(entry, "ideal-dp")


@pytest.mark.deep
@pytest.mark.parametrize("entry", proven_chains(quick=False))
def test_the_ideal_dp_proves_the_best_chain_of_a_large_network(entry: BestEntry) -> None:
    proves_again(entry, "ideal-dp")


@pytest.mark.parametrize("entry", CHAINS, ids=lambda entry: entry.graph)
def test_no_even_split_beats_a_network_s_bound(entry: BestEntry) -> None:
    value = run_method(instance(entry), entry.semantics, "m-topo").value_ns
    assert entry.bound_ns is not None
    assert value is None or entry.bound_ns <= value


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
