"""Fixtures for pytest: ``pytest_plugins = ["placegap.testing.fixtures"]`` in your conftest.py.

A test that asks for `proven_optimum` runs once for each of the smaller instances whose makespan is
proven, and one that asks for `proven_chain` once for each proven chain of pipeline stages.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placegap.instances.problem import Makespan, MaxLoad, Semantics
from placegap.testing import KnownOptimum, known_optima

MAX_OPS = 70  # graphs that any placer handles in milliseconds: two dozen instances


def _fixture(semantics: Semantics) -> Callable[[pytest.FixtureRequest], KnownOptimum]:
    problems = list(known_optima(semantics, MAX_OPS))

    @pytest.fixture(params=problems, ids=[problem.instance.name for problem in problems])
    def one(request: pytest.FixtureRequest) -> KnownOptimum:
        problem: KnownOptimum = request.param
        return problem

    return one


proven_optimum = _fixture(Makespan())
proven_chain = _fixture(MaxLoad(plans="chain"))
