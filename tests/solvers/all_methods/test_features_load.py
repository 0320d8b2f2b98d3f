"""Every exact method masters every rule of max-load and latency, one at a time."""

from __future__ import annotations

import pytest
from features.load import LOAD_FEATURES, LoadFeature
from references.agreement import applies, methods, run

by_feature = pytest.mark.parametrize(
    "feature", LOAD_FEATURES, ids=lambda feature: feature.name.replace(" ", "-")
)
LOADS = ("max_load", "max_load_fwd_bwd", "latency_subgraphs")


@by_feature
def test_exact_methods_find_the_optimum(feature: LoadFeature) -> None:
    for semantics, optimum in feature.optimum.items():
        solved = set()
        for name in ("brute-force", *(method.name for method in methods("exact"))):
            result = run(feature.instance, semantics, name, {})
            if result is None:
                continue
            solved.add(name)
            where = f"{name}, {semantics.label}"
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), where
            assert optimum is not None or result.status == "infeasible", where
        assert len(solved) >= 2, semantics.label  # the oracle and at least one method


@by_feature
def test_bounds_and_placers_keep_their_side(feature: LoadFeature) -> None:
    for semantics, optimum in feature.optimum.items():
        for method in methods("bound", "heuristic"):
            result = run(feature.instance, semantics, method.name, {})
            if result is not None and optimum is not None:
                assert result.bound_ns is None or result.bound_ns <= optimum, method.name
                assert result.value_ns is None or result.value_ns >= optimum, method.name


def test_every_exact_method_for_these_objectives_meets_some_feature() -> None:
    met = {
        method.name
        for method in methods("exact")
        for feature in LOAD_FEATURES
        for semantics in feature.optimum
        if applies(feature.instance, semantics, method.name, {})
    }
    assert met == {m.name for m in methods("exact") if set(LOADS).intersection(m.objectives)}
