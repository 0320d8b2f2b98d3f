"""Every exact method masters every rule of the makespan, one at a time."""

from __future__ import annotations

import pytest
from features.makespan import FEATURES, Feature
from references.agreement import little

from placegap.instances import Plan, evaluate
from placegap.solvers import METHODS, Task, run_method
from placegap.solvers.core.registry import parse_params, why_not

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


by_feature = pytest.mark.parametrize(
    "feature", FEATURES, ids=lambda feature: feature.name.replace(" ", "-")
)


@pytest.mark.parametrize("method", EXACT)
@by_feature
def test_exact_methods_find_the_optimum(feature: Feature, method: str) -> None:
    solved, params = 0, little(METHODS[method])
    for semantics, optimum in feature.cases():
        task = Task(feature.instance, semantics)
        if why_not(METHODS[method], task, parse_params(METHODS[method], params)) is None:
            result = run_method(feature.instance, semantics, method, params)
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), semantics.label
            solved += 1
    assert solved > 0


@by_feature
def test_placers_find_no_better(feature: Feature) -> None:
    # each under one of the channels, with either kind of transfers; the next one under the next
    for number, name in enumerate(HEURISTICS):
        method = METHODS[name]
        params = parse_params(method, little(method))
        for semantics, optimum in feature.cases()[number % 4 :: 4]:
            task = Task(feature.instance, semantics)
            if why_not(method, task, params) is not None:
                continue
            plan = method.run(task, params).plan
            if plan is not None:
                for candidate in (plan, Plan(plan.placement)):
                    verdict = evaluate(feature.instance, candidate, semantics)
                    better = verdict.feasible and verdict.value_ns < optimum
                    assert not better, f"{name}, {semantics.label}"
