"""hrl and placeto as methods: better than where they start, the same again, within memory."""

import math
from functools import cache
from statistics import median

import pytest
from draws import draw

from placegap.instances import Instance, Makespan, evaluate, generate, load_cluster
from placegap.solvers import Result, run_method

CLUSTER = "celeritas-4xV100-pcie"
BOTH = ("hrl", "placeto")


@cache
def blocks(share: float | None = None) -> Instance:
    """Three blocks of three branches on four devices; `share`: of all bytes, for each device."""
    cluster = load_cluster(CLUSTER)
    kinds = {device.kind: 1.0 for device in cluster.devices}
    params = {"blocks": 3, "branches": 3, "length": 2, "communication_ratio": 0.1, "kinds": kinds}
    graph = generate("blocks", params, seed=7)
    whole = Instance(name="blocks", graph=graph, cluster=cluster)
    if share is None:
        return whole
    room = math.ceil(share * sum(op.resident_bytes for op in graph.ops))
    return draw.with_memory(whole, room)


def run(method: str, evaluations: int, seed: int = 0, share: float | None = None) -> Result:
    return run_method(blocks(share), Makespan(), method, {"evaluations": evaluations}, seed=seed)


@pytest.mark.torch
@pytest.mark.parametrize("method", BOTH)
def test_a_learned_plan_is_better_than_random_placements_usually_are_and_than_one_device(
    method: str,
) -> None:
    found = run(method, 400).value_ns
    alone = run_method(blocks(), Makespan(), "single-device").value_ns
    draws = [run_method(blocks(), Makespan(), "random", seed=seed).value_ns for seed in range(5)]
    assert found is not None
    assert alone is not None
    assert found < alone  # where placeto's episodes begin
    assert found < median(value for value in draws if value is not None)


@pytest.mark.torch
@pytest.mark.parametrize("method", BOTH)
def test_the_same_seed_gives_the_same_plan_and_spends_no_more_than_its_budget(method: str) -> None:
    one, two, other = (run(method, 200, seed) for seed in (3, 3, 4))
    assert one.plan is not None
    assert one.plan == two.plan
    assert one.plan != other.plan
    assert 100 <= int(one.details["evaluations"]) <= 200


@pytest.mark.torch
@pytest.mark.parametrize("method", BOTH)
def test_plans_fit_where_no_device_holds_half_of_the_graph(method: str) -> None:
    found = run(method, 400, share=0.4)
    assert found.plan is not None
    assert evaluate(blocks(0.4), found.plan, Makespan()).feasible
