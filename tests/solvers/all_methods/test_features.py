"""Exact methods master every rule of an objective, one at a time; no other method beats them."""

from collections.abc import Sequence

import pytest
from features.load import LOAD_FEATURES
from features.makespan import FEATURES
from references.agreement import applies, keeps_sides, little, methods, proves, run

from placegap.instances import Instance, Plan, Semantics, evaluate
from placegap.solvers import METHODS

Cases = Sequence[tuple[Semantics, int | None]]
ALL = (*FEATURES, *LOAD_FEATURES)

by_feature = pytest.mark.parametrize(
    ("instance", "cases"), [pytest.param(one.instance, one.cases(), id=one.name) for one in ALL]
)


@by_feature
def test_exact_methods_find_the_optimum(instance: Instance, cases: Cases) -> None:
    for semantics, optimum in cases:
        solved = set()
        for method in (METHODS["brute-force"], *methods("exact")):
            result = run(instance, semantics, method.name, little(method))
            if result is None:
                continue
            solved.add(method.name)
            proves(result, optimum, f"{method.name}, {semantics.label}")
        assert len(solved) >= 2, semantics.label  # the oracle and at least one method


def test_every_exact_method_for_these_objectives_meets_some_feature() -> None:
    cases = [(one.instance, semantics) for one in ALL for semantics in one.optimum]
    objectives = {semantics.objective for _, semantics in cases}
    for method in methods("exact"):
        if objectives.intersection(method.objectives):
            assert any(applies(*case, method.name, {}) for case in cases), method.name


@by_feature
def test_bounds_and_placers_keep_their_side(instance: Instance, cases: Cases) -> None:
    # each under every fourth semantics, the next one under the next
    for number, method in enumerate(methods("bound", "heuristic")):
        for semantics, optimum in cases[number % 4 :: 4] or cases[:1]:
            result = run(instance, semantics, method.name, little(method))
            if result is None or optimum is None:
                continue
            keeps_sides(result, optimum, method.name)
            if result.plan is not None:  # nor is its placement with other orders
                verdict = evaluate(instance, Plan(result.plan.placement), semantics)
                better = verdict.feasible and (verdict.value_ns or 0) < optimum
                assert not better, method.name
