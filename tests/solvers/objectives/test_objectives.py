"""Every objective brings the solvers what `ObjectiveSolvers` states, and one without is refused."""

from __future__ import annotations

import pytest

from placegap.instances import MaxLoad
from placegap.instances.problem import BY_OBJECTIVE
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.objective import ObjectiveSolvers, solvers_of
from placegap.solvers.objectives import calls, context, flow, hybrid, iteration, makespan, max_load

MODULES: tuple[ObjectiveSolvers, ...] = (
    calls,
    context,
    flow,
    hybrid,
    iteration,
    makespan,
    max_load,
)
"""mypy checks that each has the functions of the protocol."""


def test_every_registered_objective_has_a_module() -> None:
    assert {solvers_of(kind()) for kind in BY_OBJECTIVE.values()} == set(MODULES)


def test_an_objective_without_a_module_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaxLoad, "folder", "nowhere")
    with pytest.raises(InputError) as caught:
        solvers_of(MaxLoad())
    assert str(caught.value) == (
        "no method solves max_load: there is no placegap.solvers.objectives.nowhere"
    )
