"""Warming up: kernels are compiled, and nothing is searched for."""

from __future__ import annotations

import pytest

from placegap.experiments.running import warm_up as module
from placegap.experiments.running.warm_up import EFFORT, warm_up
from placegap.instances import Semantics
from placegap.solvers import METHODS

MAKESPAN = Semantics(objective="makespan")


def test_a_long_search_is_no_long_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "_warm", set())
    monkeypatch.setattr(
        module, "solve", lambda *given, **limits: asked.append((given[2], given[3]))
    )
    long = {"moves": 10**9, "restarts": 10**9}
    warm_up("annealing", MAKESPAN, long, branching=False)
    assert asked == [("annealing", {})]
    # what decides the kernels is kept, and one of a kind is enough
    warm_up("fd-dps", MAKESPAN, {"parts": 3}, branching=False)
    warm_up("fd-dps", MAKESPAN, {"parts": 3, "patience": 2}, branching=False)
    assert asked[1:] == [("fd-dps", {"parts": 3})]


def test_every_name_of_effort_is_a_parameter_of_some_method() -> None:
    known = {name for method in METHODS.values() for name in method.params.model_fields}
    assert known >= EFFORT
