"""HiGHS: solve a Pyomo model from its current values, and report how it ended."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import highspy
import numpy as np

from placegap.instances.kernels.array_types import Floats
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends.outcome import THREADS, Ending, MipOutcome, Watch
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.back_ends.standard_form import (
    StandardForm,
    compile_model,
    proven_bound,
    proves_infeasible,
)
from placegap.solvers.core.clock import now_s, run_stoppable
from placegap.solvers.core.method import Limits

if TYPE_CHECKING:  # Pyomo takes half a second to load
    import pyomo.environ as pyo

WATCH_S = 0.1  # a watch is called so often at most
SMALL_LP = 20_000  # entries of an LP for which Ctrl-C can wait: a thread would take longer
# Presolve rules without which HiGHS 1.13.1 was right on models that it otherwise took for
# infeasible, or proved a wrong optimum for (tests/solvers/core/back_ends/test_highs.py).
PROBING, ENUMERATION = 1 << 15, 1 << 16


def solve_model(
    model: pyo.ConcreteModel,
    limits: Limits,
    *,
    warm: bool = False,
    relax: bool = False,
    most: float | None = None,
    watch: Watch | None = None,
) -> MipOutcome:
    """`back_ends.solve_model` by HiGHS.

    Of an LP, `most` says that no variable of a solution that matters is beyond it. The bound is
    then what the duals prove (`proven_bound`), and an LP is infeasible only where they prove that.
    `watch` is called from another thread during a MIP; figures are infinite where there are none.
    """
    from pyomo.common.errors import InfeasibleConstraintException

    began = now_s()
    try:
        form, lp, solver = hand_over(model, limits, relax=relax)
    except InfeasibleConstraintException:  # all variables of a row are fixed, to the wrong values
        return MipOutcome("infeasible", hand_off_s=now_s() - began)
    if warm:
        start = highspy.HighsSolution()
        start.col_value = form.values()
        solver.setSolution(start)
    handed_off = now_s()
    if limits.time_limit_s is not None:
        solver.setOptionValue("time_limit", max(0.0, limits.time_limit_s - (handed_off - began)))
    try:
        interrupted = _run(solver, watch if form.is_mip else None)
    except MemoryError:  # results of the solver are not to be trusted now
        return MipOutcome(
            "memory_limit",
            hand_off_s=handed_off - began,
            solve_s=now_s() - handed_off,
            rows=lp.num_row_,
            columns=lp.num_col_,
        )
    ending = _ending(solver.getModelStatus(), interrupted, bounded=form.is_bounded)
    has_solution, info = _load_solution(solver, form), solver.getInfo()
    dual_bound = _dual_bound(info, ending, is_mip=form.is_mip)
    if most is not None and not form.is_mip:
        ending, dual_bound = _proven(solver, form, ending, dual_bound, most)
    return MipOutcome(
        ending,
        objective=info.objective_function_value if has_solution else None,
        dual_bound=dual_bound,
        has_solution=has_solution,
        hand_off_s=handed_off - began,
        solve_s=now_s() - handed_off,
        rows=lp.num_row_,
        columns=lp.num_col_,
        nodes=max(0, info.mip_node_count),
    )


class ProvenLp(NamedTuple):
    """What the duals of an LP prove, and its solution: None where there is none."""

    proven: float | None
    values: Floats | None


def solve_form(
    form: StandardForm, time_limit_s: float | None, *, interior: bool = False
) -> ProvenLp:
    """Solve a compiled LP whose columns are all bounded; its bound is what its duals prove."""
    # A vertex is found either way; `interior` goes through the interior point method first.
    solver = _new_solver(Limits(time_limit_s))
    if time_limit_s is not None:
        solver.setOptionValue("time_limit", max(0.0, time_limit_s))
    if interior:
        solver.setOptionValue("solver", "ipm")
    solver.passModel(to_highs(form))
    if form.matrix.nnz <= SMALL_LP:
        solver.run()
    elif _run(solver, None):
        raise KeyboardInterrupt
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return ProvenLp(None, None)
    solution = solver.getSolution()
    proven = proven_bound(form, np.array(solution.row_dual, float), 0.0)
    return ProvenLp(proven, np.array(solution.col_value, float))


def solve_integers(form: StandardForm, limits: Limits) -> tuple[MipOutcome, Floats | None]:
    """Solve a compiled MIP; how that ended, and the best solution."""
    solver, began = _new_solver(limits), now_s()
    if limits.time_limit_s is not None:
        solver.setOptionValue("time_limit", max(0.0, limits.time_limit_s))
    solver.passModel(to_highs(form))
    interrupted = _run(solver, None)
    ending = _ending(solver.getModelStatus(), interrupted, bounded=form.is_bounded)
    info, values = solver.getInfo(), None
    if info.primal_solution_status == highspy.kSolutionStatusFeasible:
        values = np.array(solver.getSolution().col_value, float)
    found = MipOutcome(
        ending,
        objective=None if values is None else info.objective_function_value,
        dual_bound=_dual_bound(info, ending, is_mip=True),
        has_solution=values is not None,
        solve_s=now_s() - began,
        rows=form.matrix.shape[0],
        columns=form.matrix.shape[1],
        nodes=max(0, info.mip_node_count),
    )
    return found, values


def hand_over(
    model: pyo.ConcreteModel, limits: Limits, *, relax: bool = False
) -> tuple[StandardForm, highspy.HighsLp, highspy.Highs]:
    """Compile a model and pass it to a new solver; nothing is solved."""
    with paused_collector():
        form = compile_model(model, relax=relax)
        lp = to_highs(form)
    solver = _new_solver(limits)
    solver.passModel(lp)
    return form, lp, solver


def to_highs(form: StandardForm) -> highspy.HighsLp:
    """The compiled model in HiGHS' own structure."""
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = form.matrix.shape
    lp.offset_, lp.col_cost_ = form.offset, form.cost
    lp.col_lower_, lp.col_upper_ = form.lower, form.upper
    lp.row_lower_, lp.row_upper_ = form.row_lower, form.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = form.matrix.indptr, form.matrix.indices
    lp.a_matrix_.value_ = form.matrix.data
    kind = highspy.HighsVarType
    if form.is_mip:
        lp.integrality_ = [kind.kInteger if i else kind.kContinuous for i in form.is_integer]
    return lp


def _new_solver(limits: Limits) -> highspy.Highs:
    return silent_highs(
        threads=THREADS,
        random_seed=limits.seed % 2**31,
        mip_rel_gap=float(limits.gap),
        mip_abs_gap=0.0,
        presolve_rule_off=PROBING | ENUMERATION,
    )


def _run(solver: highspy.Highs, watch: Watch | None) -> bool:
    """Run until the end or Ctrl-C; whether that came."""
    stop, next_s = threading.Event(), 0.0

    def on_check(event: highspy.highs.HighsCallbackEvent) -> None:
        if stop.is_set():
            event.interrupt()

    def on_mip_check(event: highspy.highs.HighsCallbackEvent) -> None:
        nonlocal next_s
        on_check(event)
        if watch is not None and time.monotonic() >= next_s:
            next_s = time.monotonic() + WATCH_S
            watch(event.data_out.mip_primal_bound, event.data_out.mip_dual_bound)

    solver.cbMipInterrupt += on_mip_check
    solver.cbSimplexInterrupt += on_check
    solver.cbIpmInterrupt += on_check
    _, interrupted = run_stoppable(solver.run, stop.set)
    return interrupted


def _load_solution(solver: highspy.Highs, form: StandardForm) -> bool:
    """Write the best solution, if there is one, into the variables; whether there is."""
    if solver.getInfo().primal_solution_status != highspy.kSolutionStatusFeasible:
        return False
    form.load(solver.getSolution().col_value)
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


def _proven(
    solver: highspy.Highs, form: StandardForm, ending: Ending, dual_bound: float | None, most: float
) -> tuple[Ending, float | None]:
    """How an LP ended and its bound, as far as its duals prove it."""
    if ending == "infeasible":
        _, found, ray = solver.getDualRay()
        proven = found and proves_infeasible(form, np.array(ray, float), most)
        return ("infeasible" if proven else "unknown"), None
    if dual_bound is None:
        return ending, None
    return ending, min(
        dual_bound, proven_bound(form, np.array(solver.getSolution().row_dual, float), most)
    )


def _dual_bound(info: highspy.HighsInfo, ending: Ending, *, is_mip: bool) -> float | None:
    """The proven bound, if there is one; an LP has one only when it is solved."""
    if ending == "infeasible" or not (is_mip or ending == "optimal"):
        return None
    bound = float(info.mip_dual_bound if is_mip else info.objective_function_value)
    return bound if math.isfinite(bound) else None
