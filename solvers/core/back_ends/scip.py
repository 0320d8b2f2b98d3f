"""SCIP through pyscipopt (extra ``scip``): a second opinion on the bounds of HiGHS."""

from __future__ import annotations

import math
from contextlib import suppress
from importlib import import_module
from typing import Any

import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException

from placegap.instances.reading.errors import InputError, paused_collector
from placegap.solvers.core.back_ends.outcome import Ending, MipOutcome
from placegap.solvers.core.back_ends.standard_form import StandardForm, compile_model
from placegap.solvers.core.clock import now_s, run_stoppable
from placegap.solvers.core.method import Limits

SCIP_SEEDS = 2**31 - 1

SCIP_ENDINGS: dict[str, Ending] = {
    "optimal": "optimal",
    "gaplimit": "optimal",
    "infeasible": "infeasible",
    "unbounded": "unbounded",
    "timelimit": "time_limit",
    "memlimit": "memory_limit",
    "userinterrupt": "interrupted",
}


def solve_model(
    model: pyo.ConcreteModel, limits: Limits, *, warm: bool = False, relax: bool = False
) -> MipOutcome:
    """Minimize a linear Pyomo model; like `highs.solve_model` in every respect.

    SCIP's gap is relative to the smaller of value and bound, so it is never less than ours.
    """
    began = now_s()
    engine = _new_scip(limits)
    try:
        form = compile_model(model, relax=relax)  # Pyomo passes over rows without variables
    except InfeasibleConstraintException:  # all variables of a row are fixed, to the wrong values
        return MipOutcome("infeasible", hand_off_s=now_s() - began)
    return _solve(engine, form, limits, warm=warm, began=began)


def package() -> Any:
    """The package; an InputError if it is not installed."""
    try:
        return import_module("pyscipopt")
    except ImportError:
        raise InputError("solver=scip needs pyscipopt: pip install 'placegap[scip]'") from None


def _new_scip(limits: Limits) -> Any:
    solver = package().Model()
    solver.hideOutput()
    solver.setParams(
        {
            "limits/gap": float(limits.gap),
            "randomization/randomseedshift": limits.seed % SCIP_SEEDS,
            "misc/catchctrlc": False,  # it would stay SCIP's
        }
    )
    return solver


def _solve(
    solver: Any, form: StandardForm, limits: Limits, *, warm: bool, began: float
) -> MipOutcome:
    """Solve by pyscipopt."""
    rows, columns = form.matrix.shape
    version = str(solver.version())
    try:
        with paused_collector():
            variables = _hand_over(solver, form)
        if warm:
            start = solver.createSol()
            for variable, value in zip(variables, form.values(), strict=True):
                solver.setSolVal(start, variable, value)
            solver.addSol(start)  # SCIP drops it if it breaks a row
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
    scip = package()
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
    terms = [scip.scip.Term(variable) for variable in variables]
    matrix = form.matrix.tocsr()
    starts, index, value = (part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data))
    for row, (low, up) in enumerate(
        zip(form.row_lower.tolist(), form.row_upper.tolist(), strict=True)
    ):
        entries = range(starts[row], starts[row + 1])
        left = scip.Expr({terms[index[entry]]: value[entry] for entry in entries})
        solver.addCons(scip.scip.ExprCons(left, _side(low), _side(up)))
    return variables


def _side(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _stop(solver: Any) -> None:
    with suppress(Exception):  # not every stage of SCIP can be interrupted; the call is repeated
        solver.interruptSolve()


def _scip_ending(status: str, interrupted: bool, *, bounded: bool) -> Ending:
    if status == "inforunbd" and bounded:
        return "infeasible"
    ending = SCIP_ENDINGS.get(status, "unknown")
    return "interrupted" if interrupted and ending != "optimal" else ending


def _scip_bound(solver: Any, ending: Ending, *, is_mip: bool) -> float | None:
    """The proven bound; an LP has one only when it is solved."""
    if ending in ("infeasible", "unbounded") or not (is_mip or ending == "optimal"):
        return None
    bound = float(solver.getDualbound())
    return None if solver.isInfinity(abs(bound)) else bound
