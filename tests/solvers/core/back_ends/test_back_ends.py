"""All MIP solvers behind one call: same optima, same endings; who is missing is told to be."""

import random
import signal
import threading
from typing import Any

import pyomo.environ as pyo
import pytest
from doubles import tiny_mip
from doubles.tiny_mip import registered  # noqa: F401

from placegap.instances import InputError, Plan
from placegap.solvers import Limits, run_method
from placegap.solvers.core import clock
from placegap.solvers.core.back_ends import SolverName, highs, require, scip, solve_model

pytestmark = pytest.mark.usefixtures("registered")


def is_here(solver: SolverName) -> bool:
    try:
        require(solver)
    except InputError:
        return False
    return True


SOLVERS = [
    "highs",
    pytest.param(
        "scip", marks=pytest.mark.skipif(not is_here("scip"), reason="needs placegap[scip]")
    ),
    "appsi_highs",  # as by_pyomo runs it
    *filter(is_here, ("cbc", "glpk", "gurobi", "cplex", "xpress")),
]
every_solver = pytest.mark.parametrize("solver", SOLVERS)
both_own_solvers = pytest.mark.parametrize("solver", SOLVERS[:2])
"""Those that placegap itself drives, and can stop at any time."""


def knapsack(domain: object = pyo.Integers) -> pyo.ConcreteModel:
    """Minimize 10 - (5 a + 4 b + 3 c) with 2 a + 3 b + c <= 5, 4 a + b + 2 c <= 11, <= 3 each.

    Per unit of the first row c yields 3, a 2.5 and b 4/3: c = 3, then a = 1; 10 - 14 = -4.
    """
    model = pyo.ConcreteModel()
    model.x = pyo.Var("abc", bounds=(0, 3), domain=domain)
    x = model.x
    model.one = pyo.Constraint(expr=2 * x["a"] + 3 * x["b"] + x["c"] <= 5)
    model.two = pyo.Constraint(expr=4 * x["a"] + x["b"] + 2 * x["c"] <= 11)
    model.objective = pyo.Objective(expr=10 - (5 * x["a"] + 4 * x["b"] + 3 * x["c"]))
    return model


def halves() -> pyo.ConcreteModel:
    """Choose columns so that every row is halved, up to slack: hopeless for branch and bound.

    x = 0 is feasible, with the right-hand sides as slack. After Cornuejols & Dawande (1998).
    """
    rng = random.Random(3)
    rows = [[rng.randrange(100) for _ in range(30)] for _ in range(4)]
    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(30), domain=pyo.Binary, initialize=0)
    half = {r: sum(row) // 2 for r, row in enumerate(rows)}
    model.missing = pyo.Var(range(4), domain=pyo.NonNegativeReals, initialize=half)
    model.beyond = pyo.Var(range(4), domain=pyo.NonNegativeReals, initialize=0)
    model.half = pyo.Constraint(
        range(4),
        rule=lambda model, r: (
            sum(a * model.x[j] for j, a in enumerate(rows[r])) + model.missing[r] - model.beyond[r]
            == half[r]
        ),
    )
    model.objective = pyo.Objective(expr=sum(model.missing.values()) + sum(model.beyond.values()))
    return model


@every_solver
def test_an_optimum_comes_with_its_bound_and_solution(solver: SolverName) -> None:
    model = knapsack()
    found = solve_model(model, Limits(), solver=solver)
    assert (found.ending, found.has_solution) == ("optimal", True)
    assert (found.objective, found.dual_bound) == (pytest.approx(-4), pytest.approx(-4))
    assert [round(variable.value) for variable in model.x.values()] == [1, 0, 3]
    assert (found.rows, found.columns) == (2, 3)


@every_solver
def test_a_relaxation_leaves_the_model_as_it_was(solver: SolverName) -> None:
    model = knapsack()
    model.x["b"].fix(0)
    # 2 a + c <= 4.8 now: c = 3, a = 0.9; 10 - 13.5
    model.less = pyo.Constraint(expr=2 * model.x["a"] + model.x["c"] <= 4.8)
    relaxed = solve_model(model, Limits(), solver=solver, relax=True)
    assert relaxed.objective == pytest.approx(-3.5)
    assert relaxed.dual_bound == pytest.approx(-3.5)
    assert all(variable.is_integer() for variable in model.x.values())
    # a = 1, c = 2: 10 - 11; a = 2, c = 0: 10 - 10; a = 0, c = 3: 10 - 9
    assert solve_model(model, Limits(), solver=solver).objective == pytest.approx(-1)


@every_solver
def test_equalities_lower_bounds_and_ranges_are_handed_over(solver: SolverName) -> None:
    model = pyo.ConcreteModel()
    model.x = pyo.Var("ab", bounds=(-5, None))
    model.equal = pyo.Constraint(expr=model.x["a"] + model.x["b"] == 3)
    model.range = pyo.Constraint(expr=(1, model.x["a"], 2))
    model.objective = pyo.Objective(expr=2 * model.x["a"] + model.x["b"])
    # a + 3 with a >= 1
    assert solve_model(model, Limits(), solver=solver).objective == pytest.approx(4)


@every_solver
def test_an_infeasible_model_has_neither_plan_nor_bound(solver: SolverName) -> None:
    model = knapsack()
    model.none = pyo.Constraint(expr=sum(model.x.values()) >= 7)
    found = solve_model(model, Limits(), solver=solver)
    assert (found.ending, found.has_solution) == ("infeasible", False)
    assert found.objective is found.dual_bound is None
    # as a row of fixed variables only can be
    model = knapsack()
    model.x.fix(3)
    assert solve_model(model, Limits(), solver=solver).ending == "infeasible"


@every_solver
def test_an_unbounded_model_is_not_called_infeasible(solver: SolverName) -> None:
    model = pyo.ConcreteModel()
    model.x = pyo.Var(domain=pyo.Integers)
    model.row = pyo.Constraint(expr=model.x <= 3)
    model.objective = pyo.Objective(expr=model.x)
    found = solve_model(model, Limits(), solver=solver)
    assert found.ending in ("unbounded", "unknown")
    assert found.dual_bound is None


@both_own_solvers
def test_a_time_limit_of_zero_leaves_nothing_that_was_not_there(solver: SolverName) -> None:
    model = halves()
    found = solve_model(model, Limits(time_limit_s=0.0), solver=solver)
    assert (found.ending, found.has_solution, found.objective) == ("time_limit", False, None)
    # nor does a start look like a solution
    assert all(one.value is None for one in model.component_data_objects(pyo.Var))


@both_own_solvers
def test_a_time_limit_keeps_the_best_solution_and_the_bound(solver: SolverName) -> None:
    model = halves()
    start = pyo.value(model.objective)
    found = solve_model(model, Limits(time_limit_s=0.5), solver=solver, warm=True)
    assert (found.ending, found.has_solution) == ("time_limit", True)
    assert -1e-6 <= found.dual_bound < found.objective <= start
    assert pyo.value(model.objective) == pytest.approx(found.objective)


@every_solver
def test_the_requested_gap_suffices(solver: SolverName) -> None:
    model = knapsack()
    for name, value in {"a": 2, "b": 0, "c": 1}.items():  # 10 - 13
        model.x[name].set_value(value)
    found = solve_model(model, Limits(gap=0.99), solver=solver, warm=True)
    assert found.ending == "optimal"
    assert found.dual_bound <= -4 + 1e-6


@both_own_solvers
def test_ctrl_c_stops_the_solver_and_keeps_the_best_solution(
    solver: SolverName, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = highs if solver == "highs" else scip
    alarm = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])

    def run_stoppable(*arguments: Any) -> object:
        alarm.start()  # with the solver: an earlier interrupt would be the caller's
        return clock.run_stoppable(*arguments)

    monkeypatch.setattr(module, "run_stoppable", run_stoppable)
    found = solve_model(halves(), Limits(time_limit_s=60), solver=solver, warm=True)
    alarm.cancel()
    assert (found.ending, found.has_solution) == ("interrupted", True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@every_solver
def test_a_method_proves_the_same_value_with_every_solver(solver: SolverName) -> None:
    # 31 in all: 9 + 7 and 6 + 5 + 4
    instance = tiny_mip.ops_on(9, 7, 6, 5, 4)
    result = run_method(instance, tiny_mip.ANY, tiny_mip.NAME, {"solver": solver})
    assert (result.status, result.value_ns, result.bound_ns) == ("optimal", 16, 16)
    assert result.bound_origin == solver
    assert result.details["ending"] == "optimal"
    assert result.options["solver"] == solver


@every_solver
def test_every_solver_starts_from_the_incumbent(solver: SolverName) -> None:
    instance = tiny_mip.ops_on(3, 4, 5)
    given, params = Plan.on([0, 0, 1]), {"solver": solver}
    result = run_method(
        instance, tiny_mip.ANY, tiny_mip.NAME, params, incumbent=given, time_limit_s=0.0
    )
    assert result.value_ns == 7
    assert result.details["ending"] in ("time_limit", "optimal")


def test_highs_is_the_default() -> None:
    result = run_method(tiny_mip.ops_on(3, 4, 5), tiny_mip.ANY, tiny_mip.NAME)
    assert (result.value_ns, result.bound_origin) == (7, "highs")
