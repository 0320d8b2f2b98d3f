"""MIP solvers beside HiGHS: SCIP through pyscipopt, Gurobi and CPLEX through Pyomo's interfaces.

SCIP (extra ``scip``) is a second opinion on the bounds of HiGHS; the others serve where a user has
them and a licence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal

import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException
from pyomo.opt import TerminationCondition

from placegap.instances.reading.errors import InputError, paused_collector
from placegap.solvers.core.back_ends.outcome import THREADS, Ending, MipOutcome
from placegap.solvers.core.back_ends.standard_form import StandardForm, compile_model
from placegap.solvers.core.clock import now_s, run_stoppable
from placegap.solvers.core.method import Limits

Commercial = Literal["gurobi", "cplex"]


OtherSolver = Literal["scip", "gurobi", "cplex"]


PACKAGES: dict[Commercial, str] = {"gurobi": "gurobipy", "cplex": "cplex"}


SCIP_SEEDS = 2**31 - 1


SEEDS = 2_000_000_000
"""Gurobi's and CPLEX' seeds are below this."""


INFINITE = 1e20
"""CPLEX' infinity; Gurobi's is larger."""


SCIP_ENDINGS: dict[str, Ending] = {
    "optimal": "optimal",
    "gaplimit": "optimal",
    "infeasible": "infeasible",
    "unbounded": "unbounded",
    "timelimit": "time_limit",
    "memlimit": "memory_limit",
    "userinterrupt": "interrupted",
}


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
    solver: OtherSolver,
    warm: bool = False,
    relax: bool = False,
) -> MipOutcome:
    """Minimize a linear Pyomo model; like `highs.solve_model` in every respect.

    SCIP's gap is relative to the smaller of value and bound, so it is never less than ours.
    """
    began = now_s()
    engine = _new_scip(limits) if solver == "scip" else _new_engine(solver)
    try:
        form = compile_model(model, relax=relax)  # Pyomo passes over rows without variables
    except InfeasibleConstraintException:  # all variables of a row are fixed, to the wrong values
        return MipOutcome("infeasible", hand_off_s=now_s() - began)
    if solver == "scip":
        return _solve_scip(engine, form, limits, warm=warm, began=began)
    relaxation = pyo.TransformationFactory("core.relax_integer_vars")
    token = relaxation.apply_to(model) if relax else None
    try:
        return _solve_commercial(engine, model, form, limits, solver, warm=warm, began=began)
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


def require(solver: OtherSolver) -> None:
    """Raise an InputError if a solver is not installed, or has no licence at all."""
    if solver == "scip":
        _scip_package()
    else:
        _new_engine(solver)


def _has_bound(ending: Ending, *, is_mip: bool) -> bool:
    """Whether a bound is proven; an LP has one only when it is solved."""
    return ending not in ("infeasible", "unbounded") and (is_mip or ending == "optimal")


# --------------------------------------------------------------------------------------------- SCIP


def _scip_package() -> Any:
    """The package; an InputError if it is not installed."""
    try:
        return import_module("pyscipopt")
    except ImportError:
        raise InputError("solver=scip needs pyscipopt: pip install 'placegap[scip]'") from None


def _new_scip(limits: Limits) -> Any:
    solver = _scip_package().Model()
    solver.hideOutput()
    solver.setParams(
        {
            "limits/gap": float(limits.gap),
            "randomization/randomseedshift": limits.seed % SCIP_SEEDS,
            "misc/catchctrlc": False,  # it would stay SCIP's
        }
    )
    return solver


def _solve_scip(
    solver: Any, form: StandardForm, limits: Limits, *, warm: bool, began: float
) -> MipOutcome:
    """Solve by pyscipopt."""
    rows, columns = form.matrix.shape
    version = str(solver.version())
    try:
        with paused_collector():
            variables = _hand_over(solver, form)
        if warm:
            _start_from(solver, variables, form.values())
        handed_off = now_s()
        if limits.time_limit_s is not None:
            left_s = max(0.0, limits.time_limit_s - (handed_off - began))
            solver.setParam("limits/time", min(left_s, 1e20))
        _, interrupted = run_stoppable(solver.optimizeNogil, lambda: _stop(solver))
    except MemoryError:
        return MipOutcome("memory_limit", rows=rows, columns=columns, solver_version=version)
    ending = _scip_ending(solver.getStatus(), interrupted, bounded=form.is_bounded)
    has_solution = ending != "infeasible" and solver.getNSols() > 0
    if has_solution:
        best = solver.getBestSol()
        form.load([solver.getSolVal(best, variable) for variable in variables])
    return MipOutcome(
        ending,
        objective=solver.getObjVal() if has_solution else None,
        dual_bound=_scip_bound(solver, ending, is_mip=form.is_mip),
        has_solution=has_solution,
        hand_off_s=handed_off - began,
        solve_s=now_s() - handed_off,
        rows=rows,
        columns=columns,
        nodes=solver.getNTotalNodes(),
        solver_version=version,
    )


def _hand_over(solver: Any, form: StandardForm) -> list[Any]:
    """Add columns and rows; the variables of the columns."""
    package = _scip_package()
    variables = [
        solver.addVar(vtype="I" if integer else "C", lb=_side(low), ub=_side(up), obj=cost)
        for integer, low, up, cost in zip(
            form.is_integer.tolist(),
            form.lower.tolist(),
            form.upper.tolist(),
            form.cost.tolist(),
            strict=True,
        )
    ]
    solver.addObjoffset(form.offset)
    terms = [package.scip.Term(variable) for variable in variables]
    matrix = form.matrix.tocsr()
    starts, index, value = (part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data))
    for row, (low, up) in enumerate(
        zip(form.row_lower.tolist(), form.row_upper.tolist(), strict=True)
    ):
        entries = range(starts[row], starts[row + 1])
        left = package.Expr({terms[index[entry]]: value[entry] for entry in entries})
        solver.addCons(package.scip.ExprCons(left, _side(low), _side(up)))
    return variables


def _side(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _start_from(solver: Any, variables: list[Any], values: list[float]) -> None:
    """Give SCIP a solution; it drops one that breaks a row."""
    start = solver.createSol()
    for variable, value in zip(variables, values, strict=True):
        solver.setSolVal(start, variable, value)
    solver.addSol(start)


def _stop(solver: Any) -> None:
    with suppress(Exception):  # not every stage of SCIP can be interrupted; the call is repeated
        solver.interruptSolve()


def _scip_ending(status: str, interrupted: bool, *, bounded: bool) -> Ending:
    if status == "inforunbd" and bounded:
        return "infeasible"
    ending = SCIP_ENDINGS.get(status, "unknown")
    return "interrupted" if interrupted and ending != "optimal" else ending


def _scip_bound(solver: Any, ending: Ending, *, is_mip: bool) -> float | None:
    if not _has_bound(ending, is_mip=is_mip):
        return None
    bound = float(solver.getDualbound())
    return None if solver.isInfinity(abs(bound)) else bound


# --------------------------------------------------------------------------------- Gurobi and CPLEX


def _new_engine(solver: Commercial) -> Any:
    engine = pyo.SolverFactory(f"{solver}_persistent")
    if not engine.available(exception_flag=False):
        package = PACKAGES[solver]
        raise InputError(f"solver={solver} needs {package} and a licence: pip install {package}")
    return engine


def _solve_commercial(
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
    if not _has_bound(ending, is_mip=is_mip):
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
