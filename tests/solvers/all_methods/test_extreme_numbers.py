"""Times up to 10^15 ns, bytes up to 10^15, no memory: nothing crashes, and no number is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest
from draws.extremes import extreme_tasks
from draws.hybrid import hybrid_plan
from draws.plans import random_plan
from references.agreement import few_and_many, keeps_sides, little
from references.brute_force import oracle

from placegap.instances import InputError, Instance, Semantics, evaluate, recheck
from placegap.instances.problem import OBJECTIVES
from placegap.instances.referee.evaluate import check_semantics
from placegap.solvers import METHODS, Result, Task, brute_force, run_method
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.method import Params
from placegap.solvers.core.registry import parse_params, why_not

PLACER, MODEL = 10_000, 500
"""Instances of the deep runs: for each placer; for each method that is exact, solves a model or
searches."""

SEARCHES = {
    *("annealing", "disjunctive-search", "getf", "heaviest-stage", "m-sct"),
    *("layer-paths", "local-search", "memory-knapsack", "run-moves"),
}
"""Heuristics that solve a model or search."""

LIMIT_S = 2.0


NEVER_DRAWN = ("expert", "repeated-layers")
"""What needs a file, and what needs equal layers."""

DRAWN = tuple(objective for objective in OBJECTIVES if objective != "serving_flow")
"""Objectives whose plans say where each op is; ranges of layers have draws of their own."""

ABLE = [
    name
    for name, m in METHODS.items()
    if name not in NEVER_DRAWN and m.missing() is None and not set(m.objectives).isdisjoint(DRAWN)
]
"""All others that are installed."""

PLACERS = [n for n in ABLE if METHODS[n].claim == "heuristic" and n not in SEARCHES]
OTHERS = [n for n in ABLE if n not in (*PLACERS, "brute-force")]

SOME = 200
"""A method takes one of so many drawn instances at least."""


def judge(instance: Instance, semantics: Semantics, rng: random.Random) -> bool:
    """Two referees and the quick bound on a random plan; whether it is feasible."""
    hybrid = semantics.objective == "hybrid_pipeline"
    plan = hybrid_plan(rng, instance) if hybrid else random_plan(instance, semantics, rng)
    where = f"{instance.name}, {semantics.label}: {plan}"
    first, second = (one(instance, plan, semantics) for one in (evaluate, recheck))
    assert (first.value_ns, first.feasible) == (second.value_ns, second.feasible), where
    if first.value_ns is not None:
        assert (first.value_ns >= 0) != (
            semantics.objective == "max_context" and first.value_ns < 0
        )
        assert all(min(use.load_ns, use.memory_bytes) >= 0 for use in first.uses), where
    bound = quick_bound(instance, semantics).value
    assert bound >= 0 or semantics.objective == "max_context", where
    if first.feasible and first.value_ns is not None:
        assert bound <= first.value_ns, where
    return first.feasible


def judge_all(seed: int, number: int) -> int:
    """Judge so many plans; how many are feasible."""
    rng, found, judged = random.Random(f"extreme plans {seed}"), 0, 0
    for instance, semantics in extreme_tasks(seed, DRAWN):
        try:
            found += judge(instance, semantics, rng)
        except InputError:
            continue  # it lacks what the semantics needs, or sums of microbatches are refused
        judged += 1
        if judged == number:
            break
    return found


def results(name: str, seed: int, number: int) -> Iterator[tuple[Instance, Semantics, Result]]:
    """What a method finds on so many instances that it takes."""
    method, found = METHODS[name], 0
    params = little(method)
    objectives = tuple(objective for objective in method.objectives if objective in DRAWN)
    for instance, semantics in islice(extreme_tasks(seed, objectives), SOME * number):
        try:
            check_semantics(instance, semantics)
            if why_not(method, Task(instance, semantics), parse_params(method, params)) is not None:
                continue
            result = run_method(instance, semantics, name, params, time_limit_s=LIMIT_S)
        except InputError:
            continue  # some semantics need equal devices, or gradients of weights
        yield instance, semantics, result
        found += 1
        if found == number:
            return
    raise AssertionError(f"{name} took {found} of {SOME * number} instances")


def run_all(name: str, seed: int, number: int, *, compare: bool) -> None:
    """Run a method; its numbers are possible, the second referee's, and no better than optimal."""
    for instance, semantics, result in results(name, seed, number):
        where = f"{name} on {instance.name}, {semantics.label}"
        assert result.faults == (), where
        value, bound = result.value_ns, result.bound_ns
        if semantics.objective != "max_context":
            assert min(value or 0, bound or 0) >= 0, where
        if value is not None and bound is not None:
            assert bound <= value, where
        if result.plan is not None:
            judged = instance if result.split is None else result.split.fine
            verdict = recheck(judged, result.plan, semantics)
            assert (verdict.value_ns, verdict.feasible) == (value, True), where
        if not compare or brute_force.applies(Task(instance, semantics), Params()) is not None:
            continue
        best = oracle(instance, semantics)
        if result.split is None:
            keeps_sides(result, best, where)
        else:
            assert best is None or bound is None or bound <= best, where


@few_and_many(1, 600)
def test_both_referees_agree_on_extreme_plans(seeds: range) -> None:
    assert all(judge_all(seed, 150) > 30 for seed in seeds)


@pytest.mark.parametrize("name", [*PLACERS, *OTHERS])
def test_methods_plan_with_extreme_numbers(name: str) -> None:
    run_all(name, 0, 3 if name in PLACERS else 1, compare=True)


@pytest.mark.deep
@pytest.mark.parametrize("name", [*PLACERS, *OTHERS])
def test_methods_plan_many_instances_of_extreme_numbers(name: str) -> None:
    run_all(name, 1, PLACER if name in PLACERS else MODEL, compare=name in OTHERS)
