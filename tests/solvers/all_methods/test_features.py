"""Every exact method masters every rule of the makespan, one at a time."""

from __future__ import annotations

import pytest
from features.makespan import FEATURES, Feature

from placegap.instances import Plan, evaluate
from placegap.solvers import METHODS, Task, solve
from placegap.solvers.core.registry import why_not

EXACT = [
    name
    for name, method in METHODS.items()
    if method.claim == "exact" and "makespan" in method.objectives
]
HEURISTICS = [
    name
    for name, method in METHODS.items()
    if method.claim == "heuristic" and "makespan" in method.objectives
]


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name.replace(" ", "-"))
def test_exact_methods_find_the_optimum(feature: Feature, method: str) -> None:
    solved = 0
    for semantics, optimum in feature.cases():
        task = Task(feature.instance, semantics)
        if why_not(METHODS[method], task, METHODS[method].params()) is None:
            result = solve(feature.instance, semantics, method)
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), semantics.label
            solved += 1
    assert solved > 0


@pytest.mark.parametrize("method", HEURISTICS)
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name.replace(" ", "-"))
def test_placers_find_no_better(feature: Feature, method: str) -> None:
    for semantics, optimum in feature.cases():
        task, params = Task(feature.instance, semantics), METHODS[method].params()
        if why_not(METHODS[method], task, params) is not None:
            continue
        plan = METHODS[method].run(task, params).plan
        if plan is not None:
            for candidate in (plan, Plan(plan.placement)):
                verdict = evaluate(feature.instance, candidate, semantics)
                assert not verdict.feasible or verdict.value_ns >= optimum
