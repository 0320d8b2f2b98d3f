"""CP-SAT back end: proven makespans under every channel and transfer model."""

from __future__ import annotations

import time

import numpy as np
from ortools.sat.python import cp_model
from pydantic import Field

from placegap.formulations.makespan_cp import build, read_plan, warm_start
from placegap.formulations.makespan_cp_vars import LARGEST_HORIZON_NS, MakespanModel
from placegap.formulations.scaled_times import serial_horizon_ns
from placegap.formulations.windows import NEVER
from placegap.instances.evaluate import evaluate
from placegap.instances.simulate import simulate
from placegap.solvers.cp_sat_search import new_solver, search_ending, unsolved
from placegap.solvers.interrupts import run_stoppable
from placegap.solvers.registry import ExactParams, Method, Params, Task, register
from placegap.solvers.result import Outcome
from placegap.solvers.start import best_start

MOST_PARTS = 400_000
"""Ops x devices + edges x devices^2 of the largest model that is built."""

BOUND_SEARCH = ("objective_lb_search_no_lp",)
PORTFOLIO = (*BOUND_SEARCH, "no_lp")
"""Complete searches of 2 or 3 workers, and of more; CP-SAT fills up with neighbourhood searches."""


class CpSatParams(ExactParams):
    """Parameters of ``cp-sat``.

    Attributes
    ----------
    workers : int
        Threads. One of them, with several, searches for a bound only; the others for plans. One
        worker returns the same plan every time, unless a time limit stops it; several return the
        same value if they prove it.
    """

    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task, params: Params) -> str | None:
    """Why the model is not built, or None."""
    instance = task.instance
    k = instance.num_devices
    parts = instance.num_ops * k + len(instance.graph.edges) * k * k
    if parts > MOST_PARTS:
        return f"its model has {parts} ops x devices and edges x device pairs, above {MOST_PARTS}"
    if serial_horizon_ns(instance) > LARGEST_HORIZON_NS:
        return "its times sum to more than 2**59 ns"
    return None


def run(task: Task, params: Params) -> Outcome:
    """Build, hint, solve; the better of the solver's plan and the incumbent comes back.

    The bound holds for all plans: the horizon excludes only those that are worse than the
    incumbent. Integers throughout: value == bound when CP-SAT proves its plan optimal, unless times
    had to be rounded (`makespan_cp_vars.LARGEST_TOTAL`). An interrupt (Ctrl-C) ends the search and
    returns what is known by then.
    """
    assert isinstance(params, CpSatParams)
    began = time.perf_counter()
    start = best_start(task)
    try:
        model = build(task.instance, task.semantics, start.value_ns if start else None)
        if start:
            warm_start(model, simulate(task.instance, start.plan, task.semantics))
        build_s = time.perf_counter() - began
        solver = _solver(task, params, build_s)
        # An interrupt before the search begins is asked for until it is heard.
        status, interrupted = run_stoppable(lambda: solver.solve(model.cp), solver.stop_search)
    except KeyboardInterrupt:
        return unsolved("interrupted", start)
    except MemoryError:
        return unsolved("memory_limit", start)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT rejects its model: {model.cp.validate()}")
    plan, claim = start.plan if start else None, None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = read_plan(model, solver.value)
        value = evaluate(task.instance, found, task.semantics).value_ns
        if start is None or value is None or value <= start.value_ns:
            plan = found
            claim = solver.value(model.makespan) * model.unit_ns if model.exact else None
    return Outcome(
        plan=plan,
        claim_ns=claim,
        bound_ns=None if status == cp_model.INFEASIBLE else _bound_ns(model, solver),
        bound_origin="cp-sat",
        proven_infeasible=status == cp_model.INFEASIBLE,
        message=_message(status, interrupted, start is not None),
        build_s=build_s,
        details={
            "rows": len(model.cp.proto.constraints),
            "columns": len(model.cp.proto.variables),
            "solver_status": solver.status_name(status),
            "ending": search_ending(status, interrupted),
        },
    )


def _solver(task: Task, params: CpSatParams, spent_s: float) -> cp_model.CpSolver:
    solver = new_solver(task.limits, params.workers, spent_s)
    # Without relaxation and probing, one worker proved random instances of 24 and 30 ops 2 to 4
    # times faster, of 14 ops slightly slower. Beside others, a worker that only raises the bound:
    # GoogLeNet 1.007 ms after 20 s, against 0.912 ms.
    solver.parameters.linearization_level = 0
    solver.parameters.cp_model_probing_level = 0
    if params.workers > 1:
        solver.parameters.subsolvers.extend(BOUND_SEARCH if params.workers < 4 else PORTFOLIO)
    return solver


def _bound_ns(model: MakespanModel, solver: cp_model.CpSolver) -> int:
    """The proven bound in ns; at least the longest path, each op on its best device."""
    window, times = model.window, model.instance.arrays.time_ns
    through = np.where(window.possible, window.head_ns + times + window.tail_ns, NEVER)
    proven = int(solver.response_proto.inner_objective_lower_bound) * model.unit_ns
    return max(proven, min(int(through.min(axis=1).max()), model.horizon_ns))


def _message(status: object, interrupted: bool, with_start: bool) -> str:
    if status == cp_model.OPTIMAL:
        return ""
    if status == cp_model.INFEASIBLE:
        return "no placement fits"
    if status == cp_model.FEASIBLE:
        return "interrupted" if interrupted else "stopped at a limit"
    when = "before the interrupt" if interrupted else "within the limits"
    return f"no plan found {when}{'; the start is returned' if with_start else ''}"


register(
    Method(
        name="cp-sat",
        claim="exact",
        objectives=("makespan",),
        paper="Laborie, Rogerie, Shaw, Vilim 2018",
        summary="constraint program with optional intervals for ops and transfers, in CP-SAT",
        run=run,
        params=CpSatParams,
        applies=applies,
        packages=("ortools",),
    )
)
