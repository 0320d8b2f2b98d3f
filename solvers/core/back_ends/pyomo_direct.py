"""Gurobi and CPLEX through Pyomo's interfaces, where a user has them and a licence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException
from pyomo.opt import TerminationCondition

from placegap.instances.reading.errors import InputError, paused_collector
from placegap.solvers.core.back_ends.outcome import THREADS, Ending, MipOutcome
from placegap.solvers.core.back_ends.standard_form import StandardForm, compile_model
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.interrupts import run_stoppable
from placegap.solvers.core.method import Limits

Commercial = Literal["gurobi", "cplex"]

PACKAGES: dict[Commercial, str] = {"gurobi": "gurobipy", "cplex": "cplex"}

SEEDS = 2_000_000_000
"""Gurobi's and CPLEX' seeds are below this."""

INFINITE = 1e20
"""CPLEX' infinity; Gurobi's is larger."""

CODES: dict[Commercial, dict[int, Ending]] = {
    "gurobi": {11: "interrupted", 17: "memory_limit"},
    "cplex": {
        13: "interrupted",
        108: "time_limit",
        111: "memory_limit",
        112: "memory_limit",
        113: "interrupted",
        114: "interrupted",
    },
}
"""What Pyomo takes for errors: both solvers may see Ctrl-C before Python does; 108 is CPLEX' time
limit without a solution."""

ENDINGS: dict[TerminationCondition, Ending] = {
    TerminationCondition.optimal: "optimal",
    TerminationCondition.infeasible: "infeasible",
    TerminationCondition.unbounded: "unbounded",
    TerminationCondition.maxTimeLimit: "time_limit",
}


def solve_model(
    model: pyo.ConcreteModel,
    limits: Limits,
    *,
    solver: Commercial,
    warm: bool = False,
    relax: bool = False,
) -> MipOutcome:
    """Minimize a linear Pyomo model; like `highs.solve_model` in every respect.

    Raises
    ------
    InputError
        If the solver is not installed, or refuses the model: no licence, or one for smaller ones.
    """
    began = now_s()
    engine = _new_engine(solver)
    try:
        form = compile_model(model, relax=relax)  # Pyomo passes over rows without variables
    except InfeasibleConstraintException:
        return MipOutcome("infeasible", hand_off_s=now_s() - began)
    relaxation = pyo.TransformationFactory("core.relax_integer_vars")
    token = relaxation.apply_to(model) if relax else None
    try:
        return _solve(engine, model, form, limits, solver, warm=warm, began=began)
    except MemoryError:
        rows, columns = form.matrix.shape
        return MipOutcome("memory_limit", rows=rows, columns=columns)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in PACKAGES.values():
            raise
        text = " ".join(str(error).split())
        raise InputError(f"solver={solver} does not solve the model: {text}") from None
    finally:
        if relax:
            relaxation.apply_to(model, reverse=token)


def require(solver: Commercial) -> None:
    """Raise an InputError if the solver is not installed, or has no licence at all."""
    _new_engine(solver)


def _new_engine(solver: Commercial) -> Any:
    engine = pyo.SolverFactory(f"{solver}_persistent")
    if not engine.available(exception_flag=False):
        package = PACKAGES[solver]
        raise InputError(f"solver={solver} needs {package} and a licence: pip install {package}")
    return engine


def _solve(
    engine: Any,
    model: pyo.ConcreteModel,
    form: StandardForm,
    limits: Limits,
    solver: Commercial,
    *,
    warm: bool,
    began: float,
) -> MipOutcome:
    with paused_collector():
        engine.set_instance(model, skip_trivial_constraints=True)
    if solver == "cplex":
        engine._solver_model.set_warning_stream(None)
        engine._solver_model.set_error_stream(None)
    handed_off = now_s()
    left_s = None
    if limits.time_limit_s is not None and math.isfinite(limits.time_limit_s):
        left_s = max(0.0, limits.time_limit_s - (handed_off - began))
    options = _options(solver, limits, left_s)
    results, interrupted = run_stoppable(
        lambda: engine.solve(warmstart=warm, load_solutions=False, options=options),
        _stopper(engine, solver),
    )
    ending = _ending(engine, results, interrupted, solver, bounded=form.is_bounded)
    objective = _finite(results.problem.upper_bound)
    has_solution = objective is not None and ending not in ("infeasible", "unbounded")
    if has_solution:
        engine.load_vars()
    rows, columns = form.matrix.shape
    return MipOutcome(
        ending,
        objective=objective if has_solution else None,
        dual_bound=_dual_bound(engine, results, ending, solver, is_mip=form.is_mip),
        has_solution=has_solution,
        hand_off_s=handed_off - began,
        solve_s=now_s() - handed_off,
        rows=rows,
        columns=columns,
        nodes=_nodes(engine, solver) if form.is_mip else 0,
        solver_version=".".join(str(part) for part in engine.version()[:3]),
    )


def _options(solver: Commercial, limits: Limits, left_s: float | None) -> dict[str, float | int]:
    gap, seed = float(limits.gap), limits.seed % SEEDS
    if solver == "gurobi":
        options = {"MIPGap": gap, "MIPGapAbs": 0.0, "Seed": seed, "Threads": THREADS}
        return options if left_s is None else {**options, "TimeLimit": left_s}
    options = {
        "mip_tolerances_mipgap": gap,
        "mip_tolerances_absmipgap": 0.0,
        "randomseed": seed,
        "threads": THREADS,
    }
    return options if left_s is None else {**options, "timelimit": left_s}


def _stopper(engine: Any, solver: Commercial) -> Callable[[], None]:
    """What ends a solve that runs in another thread."""
    if solver == "gurobi":
        stop: Callable[[], None] = engine._solver_model.terminate
    else:
        stop = engine._solver_model.use_aborter(engine._cplex.Aborter()).abort
    return stop


def _ending(
    engine: Any, results: Any, interrupted: bool, solver: Commercial, *, bounded: bool
) -> Ending:
    condition = results.solver.termination_condition
    if condition == TerminationCondition.optimal:
        return "optimal"
    if interrupted:
        return "interrupted"
    if condition == TerminationCondition.infeasibleOrUnbounded and bounded:
        return "infeasible"
    code = _status_code(engine, solver)
    return CODES[solver].get(code) or ENDINGS.get(condition, "unknown")


def _dual_bound(
    engine: Any, results: Any, ending: Ending, solver: Commercial, *, is_mip: bool
) -> float | None:
    """The proven bound, if there is one; an LP has one only when it is solved."""
    if ending in ("infeasible", "unbounded") or not (is_mip or ending == "optimal"):
        return None
    if solver == "cplex" and is_mip:  # Pyomo reads it only beside a solution
        return _finite(engine._solver_model.solution.MIP.get_best_objective())
    return _finite(results.problem.lower_bound)


def _status_code(engine: Any, solver: Commercial) -> int:
    model = engine._solver_model
    return int(model.Status if solver == "gurobi" else model.solution.get_status())


def _finite(value: float | None) -> float | None:
    return None if value is None or not abs(value) < INFINITE else float(value)


def _nodes(engine: Any, solver: Commercial) -> int:
    if solver == "gurobi":
        return int(engine._solver_model.NodeCount)
    return int(engine._solver_model.solution.progress.get_num_nodes_processed())
