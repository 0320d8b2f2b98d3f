"""HiGHS: solve a Pyomo model from its current values, and say honestly how it ended.

The model is compiled to a sparse matrix and handed over at once (Pyomo's own interfaces take
several times as long). The garbage collector is off meanwhile: a model is millions of small
objects, none of which can be freed.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import highspy
import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler, LinearStandardFormInfo

from placegap.solvers.registry import Limits

THREADS = 1
"""HiGHS' thread count is global to the process: a second solve with another number fails."""

BOUND_MARGIN = 1e-6
"""What is taken off a dual bound, relative to max(1, bound): HiGHS works to tolerances of 1e-6."""

Ending = Literal[
    "optimal", "infeasible", "unbounded", "time_limit", "interrupted", "memory_limit", "unknown"
]


@dataclass(frozen=True)
class MipOutcome:
    """How a solve ended.

    Attributes
    ----------
    ending : str
        ``optimal`` means: to the requested gap.
    objective, dual_bound : float or None
        In the model's unit; None where there is none.
    has_solution : bool
        The variables of the model hold the best solution found.
    hand_off_s, solve_s : float
    rows, columns, nodes : int
    """

    ending: Ending
    objective: float | None = None
    dual_bound: float | None = None
    has_solution: bool = False
    hand_off_s: float = 0.0
    solve_s: float = 0.0
    rows: int = 0
    columns: int = 0
    nodes: int = 0


def bound_ns(dual_bound: float | None, unit_ns: float, granularity: int) -> int | None:
    """The dual bound of a minimization in ns, rounded up to a multiple of the granularity.

    The optimum is a multiple of the granularity, so what lies above the bound less the margin is
    at least the next multiple.

    Parameters
    ----------
    dual_bound : float or None
        In model units.
    unit_ns : float
        Nanoseconds per model unit.
    granularity : int
        In ns; divides the optimum.

    Examples
    --------
    >>> bound_ns(29.9999999, 1e6, 1_000_000), bound_ns(29.5, 1e6, 1_000_000)
    (30000000, 30000000)
    >>> bound_ns(30.0000001, 1e6, 1_000_000), bound_ns(0.0, 1.0, 5), bound_ns(None, 1.0, 1)
    (30000000, 0, None)
    """
    if dual_bound is None:
        return None
    safe = dual_bound - BOUND_MARGIN * max(1.0, abs(dual_bound))
    return max(0, granularity * math.ceil(safe * unit_ns / granularity))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off while a model is built."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def solve_model(
    model: pyo.ConcreteModel, limits: Limits, *, warm: bool = False, relax: bool = False
) -> MipOutcome:
    """Minimize a linear Pyomo model, and leave the best solution in its variables.

    Ctrl-C stops the solver, not the caller: the best solution so far is kept.

    Parameters
    ----------
    model : ConcreteModel
        Linear, with one objective to minimize.
    limits : Limits
        The time limit covers hand-off and solver; the gap is relative.
    warm : bool
        Start from the values of the variables, all of which are set.
    relax : bool
        Solve the LP relaxation.

    Returns
    -------
    MipOutcome
    """
    began = time.perf_counter()
    try:
        with no_garbage_collection():
            form = LinearStandardFormCompiler().write(model, mixed_form=True, set_sense=None)
            lp = _to_highs(form, relax=relax)
    except InfeasibleConstraintException:  # all variables of a row are fixed, to the wrong values
        return MipOutcome("infeasible", hand_off_s=time.perf_counter() - began)
    solver = _new_solver(limits)
    solver.passModel(lp)
    if warm:
        start = highspy.HighsSolution()
        start.col_value = [float(column.value) for column in form.columns]
        solver.setSolution(start)
    handed_off = time.perf_counter()
    if limits.time_limit_s is not None:
        solver.setOptionValue("time_limit", max(0.0, limits.time_limit_s - (handed_off - began)))
    interrupted, out_of_memory = _run(solver)
    if out_of_memory:  # what the solver says now is not to be trusted
        return MipOutcome("memory_limit", rows=lp.num_row_, columns=lp.num_col_)
    ending = _ending(solver.getModelStatus(), interrupted, bounded=_is_bounded(lp))
    has_solution, info = _load_solution(solver, form), solver.getInfo()
    return MipOutcome(
        ending,
        objective=info.objective_function_value if has_solution else None,
        dual_bound=_dual_bound(info, ending, is_mip=len(lp.integrality_) > 0),
        has_solution=has_solution,
        hand_off_s=handed_off - began,
        solve_s=time.perf_counter() - handed_off,
        rows=lp.num_row_,
        columns=lp.num_col_,
        nodes=max(0, info.mip_node_count),
    )


def _to_highs(form: LinearStandardFormInfo, *, relax: bool) -> highspy.HighsLp:
    """The compiled model in HiGHS' own structure."""
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = form.A.shape
    lp.offset_ = float(form.c_offset[0])
    lp.col_cost_ = form.c.toarray()[0]
    bounds = [column.bounds for column in form.columns]
    lp.col_lower_ = np.array([-highspy.kHighsInf if low is None else low for low, _ in bounds])
    lp.col_upper_ = np.array([highspy.kHighsInf if up is None else up for _, up in bounds])
    sense = np.array([row.bound_type for row in form.rows])  # -1: >=, 0: ==, 1: <=
    right = np.asarray(form.rhs, float)
    lp.row_lower_ = np.where(sense == 1, -highspy.kHighsInf, right)
    lp.row_upper_ = np.where(sense == -1, highspy.kHighsInf, right)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = form.A.indptr, form.A.indices
    lp.a_matrix_.value_ = form.A.data
    kind = highspy.HighsVarType
    if not relax and any(column.is_integer() for column in form.columns):
        lp.integrality_ = [
            kind.kInteger if column.is_integer() else kind.kContinuous for column in form.columns
        ]
    return lp


def _new_solver(limits: Limits) -> highspy.Highs:
    solver = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", THREADS),
        ("random_seed", limits.seed % 2**31),
        ("mip_rel_gap", float(limits.gap)),
        ("mip_abs_gap", 0.0),
    ):
        solver.setOptionValue(option, value)
    return solver


def _run(solver: highspy.Highs) -> tuple[bool, bool]:
    """Run in a thread, so that Ctrl-C arrives; whether it did, and whether memory ran out."""
    stop, done = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def on_check(event: highspy.highs.HighsCallbackEvent) -> None:
        if stop.is_set():
            event.interrupt()

    def run() -> None:
        try:
            solver.run()
        except Exception as error:
            failures.append(error)
        finally:
            done.set()

    solver.cbMipInterrupt += on_check
    solver.cbSimplexInterrupt += on_check
    threading.Thread(target=run, daemon=True).start()
    while not done.is_set():
        try:
            done.wait(0.2)  # an interrupted join would take the thread for finished
        except KeyboardInterrupt:
            stop.set()
    for failure in failures:
        if not isinstance(failure, MemoryError):
            raise failure
    return stop.is_set(), bool(failures)


def _load_solution(solver: highspy.Highs, form: LinearStandardFormInfo) -> bool:
    """Write the best solution, if there is one, into the variables; whether there is."""
    if solver.getInfo().primal_solution_status != highspy.kSolutionStatusFeasible:
        return False
    for column, value in zip(form.columns, solver.getSolution().col_value, strict=True):
        column.set_value(value, skip_validation=True)
    return True


def _ending(status: highspy.HighsModelStatus, interrupted: bool, *, bounded: bool) -> Ending:
    kind = highspy.HighsModelStatus
    if interrupted and status != kind.kOptimal:
        return "interrupted"
    if status == kind.kUnboundedOrInfeasible and bounded:
        return "infeasible"
    endings: dict[highspy.HighsModelStatus, Ending] = {
        kind.kOptimal: "optimal",
        kind.kInfeasible: "infeasible",
        kind.kUnbounded: "unbounded",
        kind.kTimeLimit: "time_limit",
        kind.kMemoryLimit: "memory_limit",
    }
    return endings.get(status, "unknown")


def _dual_bound(info: highspy.HighsInfo, ending: Ending, *, is_mip: bool) -> float | None:
    """The proven bound, if there is one; an LP has one only when it is solved."""
    if ending == "infeasible" or not (is_mip or ending == "optimal"):
        return None
    bound = float(info.mip_dual_bound if is_mip else info.objective_function_value)
    return bound if math.isfinite(bound) else None


def _is_bounded(lp: highspy.HighsLp) -> bool:
    """Whether the bounds of the columns alone keep the objective from falling for ever."""
    cost, lower, upper = (np.asarray(part) for part in (lp.col_cost_, lp.col_lower_, lp.col_upper_))
    return bool(np.isfinite(lower[cost > 0]).all() and np.isfinite(upper[cost < 0]).all())
