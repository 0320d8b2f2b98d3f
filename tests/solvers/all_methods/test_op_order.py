"""Ops listed in another order, under the same names: whose plans stay where nothing is tied."""

from __future__ import annotations

import random

import pytest
from draws import draw

from placegap.instances import Graph, Instance, Makespan, Op
from placegap.solvers import run_method

FREE = Makespan(channels="free")
STEADY = (
    "single-device",
    "etf",
    "heft",
    "cpop",
    "order-place",
    "celeritas",
    "d-dps",
    "lc-glb",
    "dsc-glb",
)


def untied_instance(seed: int) -> Instance:
    """Times, sizes and bytes up to a million, so that equal sums do not happen by chance."""
    rng, n = random.Random(f"untied-{seed}"), 24
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns={"a": rng.randrange(1, 10**6), "b": rng.randrange(1, 10**6)},
            resident_bytes=rng.randrange(1, 10**6),
        )
        for i in range(n)
    )
    pairs = draw.pairs(rng, range(n), n, 0.12)
    edges = draw.edges(pairs, (), [False] * n, lambda: rng.randrange(1, 10**6))
    limit = sum(op.resident_bytes for op in ops) * 6 // 10 if seed % 2 else None
    links = draw.links(3, lambda a, b: (10**9, 0))
    return draw.instance_of(
        f"untied-{seed}", ops, edges, draw.devices("aba", lambda k: limit), links
    )


def permuted(instance: Instance, seed: int) -> Instance:
    """The same ops and edges in another order."""
    rng, graph = random.Random(f"permuted-{seed}"), instance.graph
    other = Graph(
        name=graph.name,
        ops=tuple(rng.sample(graph.ops, len(graph.ops))),
        edges=tuple(rng.sample(graph.edges, len(graph.edges))),
    )
    return instance.model_copy(update={"graph": other})


def device_by_name(instance: Instance, method: str) -> dict[str, int] | None:
    plan = run_method(instance, FREE, method).plan
    if plan is None:
        return None
    return {op.name: on[0] for op, on in zip(instance.graph.ops, plan.placement, strict=True)}


@pytest.mark.parametrize("method", STEADY)
def test_without_ties_the_order_of_the_ops_changes_no_placement(method: str) -> None:
    for seed in range(12):
        instance = untied_instance(seed)
        expected = device_by_name(instance, method)
        assert device_by_name(permuted(instance, seed), method) == expected


@pytest.mark.parametrize("method", ["m-topo", "m-etf"])
def test_baechi_breaks_ties_by_the_order_of_the_ops(method: str) -> None:
    # all sources can start at once: Baechi's topological numbers decide between them
    changed = [
        device_by_name(permuted(untied_instance(seed), seed), method)
        != device_by_name(untied_instance(seed), method)
        for seed in range(6)
    ]
    assert any(changed)
