"""Search on graphs of few parts: plans fit, and what was known is never lost."""

from __future__ import annotations

import itertools

from draws.binding_memory import binding_instance
from draws.tiny import tiny_instance
from draws.training_steps import nested_instance

from placegap.instances import Device, Instance, Makespan, evaluate
from placegap.instances.corpus.corpus import load_corpus
from placegap.instances.problem import Channels, Transfers
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.pesto_merge import merge_heavy_edges
from placegap.solvers import run_method
from placegap.solvers.local_search.multilevel import coarse_plan

CHANNELS: tuple[Channels, ...] = ("half_duplex", "port", "link", "free")
TRANSFERS: tuple[Transfers, ...] = ("per_edge", "per_tensor")
SEMANTICS = [
    Makespan(channels=channels, transfers=transfers)
    for channels, transfers in itertools.product(CHANNELS, TRANSFERS)
]


def draws(count: int) -> list[Instance]:
    return [draw(seed) for seed in range(count) for draw in (tiny_instance, binding_instance)]


def test_a_plan_is_one_of_every_graph_whose_parts_do_not_cross_its_devices() -> None:
    looked = 0
    for number, instance in enumerate(draws(30)):
        semantics = SEMANTICS[number % len(SEMANTICS)]
        found = run_method(instance, semantics, "disjunctive-search", params={"steps": 50})
        if found.plan is None:
            continue
        merge = merge_heavy_edges(instance, 1, found.plan.devices)
        plan = coarse_plan(merge, found.plan, semantics)
        assert evaluate(merge.coarse, plan, semantics).feasible, instance.name
        back = expand_plan(merge, plan, semantics)
        assert (back.devices == found.plan.devices).all()
        assert evaluate(instance, back, semantics).feasible
        looked += 1
    assert looked > 40


def test_a_known_plan_is_kept_where_no_better_one_is_found() -> None:
    for seed in range(10):
        instance = nested_instance(seed, layers=3)
        known = run_method(instance, Makespan(), "disjunctive-search", params={"steps": 2_000})
        assert known.value_ns is not None
        found = run_method(
            instance, Makespan(), "multilevel", params={"steps": 20}, incumbent=known.plan
        )
        assert found.value_ns is not None
        assert found.value_ns <= known.value_ns


def test_the_same_seed_and_steps_find_the_same_plan() -> None:
    instance = load_corpus("gpt2-train").instance()
    peak = Makespan(memory="peak")
    runs = [run_method(instance, peak, "multilevel", params={"steps": 300}) for _ in range(2)]
    assert runs[0].plan is not None
    assert runs[0].plan == runs[1].plan
    assert runs[0].details["levels"] == 6  # three levels of parts in each of two rounds


def test_without_time_for_merging_the_graph_itself_is_searched() -> None:
    instance = load_corpus("gpt2-train").instance()
    found = run_method(instance, Makespan(memory="peak"), "multilevel", time_limit_s=0.01)
    assert found.plan is not None
    assert found.details["levels"] == 0


def test_where_nothing_fits_it_says_so() -> None:
    instance = tiny_instance(5)
    devices = tuple(
        Device(name=device.name, kind=device.kind, memory_bytes=0)
        for device in instance.cluster.devices
    )
    ops = tuple(op.model_copy(update={"resident_bytes": 1}) for op in instance.graph.ops)
    full = instance.model_copy(
        update={
            "cluster": instance.cluster.model_copy(update={"devices": devices}),
            "graph": instance.graph.model_copy(update={"ops": ops}),
        }
    )
    found = run_method(full, Makespan(), "multilevel", params={"steps": 20, "start": False})
    assert found.plan is None
    assert "no start" in found.message
