"""Placers under memory that presses, and of ops listed in another order, under the same names."""

import random

import pytest
from draws import draw
from references.placers import pressed_instance

from placegap.instances import Instance, Makespan, Op, evaluate
from placegap.solvers import METHODS, Task, run_method

FREE = Makespan(channels="free")
STEADY = ("single-device", "etf", "heft", "cpop", "order-place", "celeritas", "d-dps", "lc-glb")
"""Placers whose plans stay where nothing is tied."""


@pytest.mark.parametrize("name", ["single-device", "m-topo", "etf", "m-etf", "heft", "peft"])
def test_under_memory_pressure_plans_fit_or_the_reason_is_memory(name: str) -> None:
    semantics = Makespan()
    fitting = 0
    for seed in range(12):
        instance = pressed_instance(seed, num_ops=40, num_devices=4)
        outcome = METHODS[name].run(Task(instance, semantics), METHODS[name].params())
        if outcome.plan is None:
            words = ("bytes", "do not fit", "cannot run")
            assert any(each in outcome.message for each in words)
            continue
        verdict = evaluate(instance, outcome.plan, semantics)
        assert verdict.feasible, (name, instance.name, verdict.violations)
        fitting += 1
    # together the ops need at least 1 / 1.3 of all memory: more than any one device has
    assert fitting == 0 if name == "single-device" else fitting >= 3


def untied_instance(seed: int) -> Instance:
    """Times, sizes and bytes up to a million, so that equal sums do not happen by chance."""
    rng, n = random.Random(f"untied-{seed}"), 24
    ops = [
        Op(
            name=f"op{i}",
            time_ns={"a": rng.randrange(1, 10**6), "b": rng.randrange(1, 10**6)},
            resident_bytes=rng.randrange(1, 10**6),
        )
        for i in range(n)
    ]
    pairs = draw.pairs(rng, range(n), n, 0.12)
    edges = draw.edges(pairs, (), [False] * n, lambda: rng.randrange(1, 10**6))
    limit = draw.share_of(ops, 6, 10) if seed % 2 else None
    links = draw.links(3, lambda a, b: (10**9, 0))
    return draw.instance_of("untied", ops, edges, draw.devices("aba", lambda k: limit), links)


def changes(method: str, seed: int) -> bool:
    """Whether ops and edges in another order change where ops run."""
    rng, instance = random.Random(f"permuted-{seed}"), untied_instance(seed)
    ops, edges = instance.graph.ops, instance.graph.edges
    other = draw.changed(
        instance, ops=rng.sample(ops, len(ops)), edges=rng.sample(edges, len(edges))
    )
    placed = []
    for one in (instance, other):
        plan = run_method(one, FREE, method).plan
        placement = [()] * len(ops) if plan is None else plan.placement
        placed.append({op.name: on for op, on in zip(one.graph.ops, placement, strict=True)})
    return placed[0] != placed[1]


@pytest.mark.parametrize("method", [*STEADY, "dsc-glb"])
def test_without_ties_the_order_of_the_ops_changes_no_placement(method: str) -> None:
    assert not any(changes(method, seed) for seed in range(6))


@pytest.mark.parametrize("method", ["m-topo", "m-etf"])
def test_baechi_breaks_ties_by_the_order_of_the_ops(method: str) -> None:
    # all sources can start at once: Baechi's topological numbers decide between them
    assert any(changes(method, seed) for seed in range(6))
