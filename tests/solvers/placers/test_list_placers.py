"""The list-scheduling family: plans are accepted, and no better than the optimum."""

from __future__ import annotations

import pytest
from draws.tiny import tiny_instance
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle
from references.placers import pressed_instance

from placegap.instances import Instance, Makespan, MaxLoad, Semantics, evaluate
from placegap.solvers import METHODS, Limits, Task
from placegap.solvers.core.method import Params
from placegap.solvers.core.registry import parse_params

NAMES = (
    "cpop",
    "order-place",
    "celeritas",
    "d-dps",
    "m-sct",
    "getf",
    "round-robin",
    "random",
    "lc-glb",
    "dsc-glb",
)
VARIANTS: dict[str, tuple[dict[str, object], ...]] = {
    "order-place": ({}, {"order": "dfs", "reach": 1}, {"reach": 3}),
    "celeritas": ({"reach": 1}, {"reach": 3, "memory_share": 0.5}),
    "m-sct": ({}, {"window": 3, "threshold": 0.1}),
    "getf": ({"groups": "auto"}, {"groups": "columns"}),
}


def run(name: str, instance: Instance, semantics: Semantics, number: int) -> int | None:
    """The value of the plan, which must be feasible; None if there is an honest message instead."""
    variants = VARIANTS.get(name, ({},))
    params: Params = parse_params(METHODS[name], variants[number % len(variants)])
    outcome = METHODS[name].run(Task(instance, semantics, Limits(seed=number)), params)
    if outcome.plan is None:
        assert outcome.message
        return None
    verdict = evaluate(instance, outcome.plan, semantics)
    assert verdict.feasible, (name, instance.name, verdict.violations)
    return verdict.value_ns


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_accepted_and_no_better_than_the_optimum(name: str) -> None:
    found = 0
    for number, instance in enumerate(makespan_draws()[:40]):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        value = run(name, instance, semantics, number)
        if value is not None:
            optimum = oracle(instance, semantics)
            assert optimum is not None
            assert value >= optimum
            found += 1
    assert found >= 30


@pytest.mark.parametrize("name", NAMES)
def test_under_memory_pressure_plans_fit_or_the_reason_is_memory(name: str) -> None:
    semantics, fitting = Makespan(), 0
    for seed in range(16):
        instance = pressed_instance(seed, num_ops=40, num_devices=4)
        fitting += run(name, instance, semantics, seed) is not None
    assert fitting >= 4


@pytest.mark.parametrize("name", ["round-robin", "random"])
def test_the_spreaders_do_max_load_of_any_plans_and_nothing_narrower(name: str) -> None:
    instance = tiny_instance(1)
    value = run(name, instance, MaxLoad(), 0)
    assert value is None or value >= 0
    chain = Task(instance, MaxLoad(plans="chain"))
    assert METHODS[name].applies(chain, Params()) == "its plans are not chain"


def test_round_robin_skips_what_is_full_and_keeps_groups_together() -> None:
    # op0, op1 on d0, d1; then whoever is next in turn among those with room
    instance = pressed_instance(2, num_ops=12, num_devices=3)
    outcome = METHODS["round-robin"].run(Task(instance, Makespan()), Params())
    assert outcome.plan is not None
    first = instance.arrays.index.topological_order[:3].tolist()
    assert [outcome.plan.placement[op] for op in first] == [(0,), (1,), (2,)]


def test_the_seed_alone_decides_where_random_places() -> None:
    instance = pressed_instance(2, num_ops=12, num_devices=3)
    semantics = Makespan()
    plans = [
        METHODS["random"].run(Task(instance, semantics, Limits(seed=seed)), Params()).plan
        for seed in (1, 1, 2)
    ]
    assert plans[0] is not None
    assert plans[0] == plans[1] != plans[2]
