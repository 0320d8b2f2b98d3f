"""auto, in one process, beside each of its parts with as much time."""

import time
from collections.abc import Callable

import pytest

from placegap.instances import Instance, Makespan, load_cluster, load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.costing.costing import cost_graph
from placegap.solvers import METHODS, Limits, Task, run_method
from placegap.solvers.core.registry import why_not
from placegap.solvers.core.starts import cheapest_first

LIMIT_S = 5.0
CLUSTER = "celeritas-4xV100-pcie"
PEAK = Makespan(memory="peak")
SEARCHES = ("run-moves", "disjunctive-search", "repeated-layers", "decomposition")


def drawn(family: str, **params: float) -> Callable[[], Instance]:
    cluster = load_cluster(CLUSTER)
    return lambda: Instance(
        name=family, graph=cost_graph(generate(family, params, seed=1), cluster), cluster=cluster
    )


def known(name: str, cluster: str | None = None) -> Callable[[], Instance]:
    on = () if cluster is None else (load_cluster(cluster),)
    return lambda: load_corpus(name).instance(*on)


NETWORKS = {
    "inception_v1": (known("inception_v1", "moirai-inter-server"), Makespan()),
    "resnet50": (known("resnet50", "2x4-gpu-slow-link"), Makespan()),
    "bert-base-train": (known("bert-base-train"), PEAK),
    "gpt2-train": (known("gpt2-train"), PEAK),
    "gnmt": (known("gnmt-layers"), PEAK),
    "layered": (drawn("layered", ops=300), Makespan()),
    "wide": (drawn("layered", ops=300, width=30, density=0.1), Makespan()),
    "series-parallel": (drawn("series-parallel", ops=300), Makespan()),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", NETWORKS)
def test_no_part_is_better_than_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds of the processor, so that a busy machine changes little.
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    make, semantics = NETWORKS[name]
    instance = make()
    found = run_method(instance, semantics, "auto", {"workers": 1}, time_limit_s=LIMIT_S)
    task = Task(instance, semantics, Limits(LIMIT_S))
    placers = [name for name, _ in cheapest_first(task)]
    for part in (*SEARCHES, *placers):
        params = METHODS[part].params
        if why_not(METHODS[part], task, params()) is None:
            alone = {"workers": 1} if "workers" in params.model_fields else {}
            other = run_method(instance, semantics, part, alone, time_limit_s=LIMIT_S)
            assert other.value_ns is None or found.value_ns <= 1.02 * other.value_ns, part
