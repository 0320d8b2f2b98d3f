"""What an LP proves is summed up again from its duals, whatever the solver says."""

import numpy as np
import pyomo.environ as pyo
import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.formulations import sections
from placegap.instances import Instance, Makespan
from placegap.solvers import run_method
from placegap.solvers.core.back_ends.highs import solve_model
from placegap.solvers.core.back_ends.outcome import bound_ns
from placegap.solvers.core.back_ends.standard_form import (
    StandardForm,
    compile_model,
    proven_bound,
    proves_infeasible,
)
from placegap.solvers.core.method import Limits
from placegap.solvers.models.lp_bounds import LONGEST

PORT = Makespan()


def form(least: float = 3.0, most: float = np.inf) -> StandardForm:
    """min x, least <= 2 x <= most, x >= 0."""
    model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(0, None))
    model.least = pyo.Constraint(expr=2 * model.x >= least)
    if np.isfinite(most):
        model.most = pyo.Constraint(expr=2 * model.x <= most)
    model.objective = pyo.Objective(expr=model.x)
    return compile_model(model)


@pytest.mark.parametrize(
    ("dual", "bound"),
    [
        (0.5, 1.5),  # the optimum
        (0.25, 0.75),
        (-1.0, 0.0),  # no sign that a row of this side can have
        (1.0, 3.0 - 100.0),  # x would be pushed as far as it goes
    ],
)
def test_any_duals_prove_something(dual: float, bound: float) -> None:
    assert proven_bound(form(), np.array([dual]), 100.0) == pytest.approx(bound)


def test_a_ray_proves_infeasibility_and_a_wrong_one_does_not() -> None:
    assert proves_infeasible(form(5.0, 4.0), np.array([1.0, -1.0]), 100.0)
    assert not proves_infeasible(form(4.0, 5.0), np.array([1.0, -1.0]), 100.0)


def far_apart(seed: int) -> Instance:
    """A tiny instance, every other op of which takes up to 10**12 times as long."""
    plain = tiny_instance(seed)
    scale = 10 ** (3 * (seed % 5))
    times = [
        {kind: t * scale ** ((i + seed) % 2) for kind, t in op.time_ns.items()}
        for i, op in enumerate(plain.graph.ops)
    ]
    return draw.with_ops(plain, time_ns=times)


def test_section_lps_prove_no_more_than_is_true_at_any_range_of_times() -> None:
    excluded = 0
    for seed in range(6):
        instance = far_apart(seed)
        best = run_method(instance, PORT, "brute-force").value_ns
        horizon = instance.arrays.serial_horizon_ns
        for limit in (horizon, horizon if best is None else best // 2):
            model = sections.build(instance, PORT, horizon_ns=limit)
            found = solve_model(model, Limits(), relax=True, most=LONGEST)
            excluded += found.ending == "infeasible"
            if best is None or best <= limit:
                proven = bound_ns(found.dual_bound, pyo.value(model.unit_ns), 1)
                assert best is None or found.ending != "infeasible"
                assert best is None or proven is None or proven <= best
    assert excluded


def test_exact_methods_agree_with_brute_force_at_any_range_of_times() -> None:
    for seed in range(5):
        instance = far_apart(seed)
        best = run_method(instance, PORT, "brute-force").value_ns
        result = run_method(instance, PORT, "decomposition", {"workers": 1, "start": seed % 2 == 0})
        assert not result.faults
        if best is None or result.status == "optimal":
            assert result.value_ns == best
        else:  # CP-SAT counts times far apart in a coarser unit, of a billionth or so
            assert result.bound_ns <= best <= result.value_ns <= best * (1 + 1e-8)
