"""The formulation that CONTRIBUTING shows is one: a relaxation with the verbs of all models."""

import re
from pathlib import Path
from typing import Any

import pyomo.environ as pyo
import pytest
from references.brute_force import makespan_draws, oracle

from placegap.instances import Makespan
from placegap.solvers import Limits, run_method, solve_model

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def spread() -> dict[str, Any]:
    blocks = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    (text,) = [block for block in blocks if "new_model(" in block]
    names: dict[str, Any] = {"__name__": "spread"}
    exec(compile(text, "spread", "exec"), names)
    return names


def test_its_optimum_is_never_above_the_makespan_and_its_warm_start_fits(
    spread: dict[str, Any],
) -> None:
    for instance in makespan_draws()[::40]:
        best = oracle(instance, Makespan())
        if best is None:
            continue
        model = spread["build"](instance, Makespan())
        plan = run_method(instance, Makespan(), "brute-force").plan
        spread["warm_start"](model, instance, plan)
        rows = model.component_data_objects(pyo.Constraint, active=True)
        assert all(row.slack() >= -1e-9 for row in rows), instance.name
        assert spread["extract"](model, instance).devices.tolist() == plan.devices.tolist()
        assert solve_model(model, Limits(), warm=True).ending == "optimal"
        assert pyo.value(model.makespan_ns) <= best + 1e-3
