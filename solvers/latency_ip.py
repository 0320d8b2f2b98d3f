"""The method ``latency-ip``: Tarnawski et al.'s latency IP, as a MIP or for CP-SAT."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

from ortools.sat.python import cp_model
from pydantic import Field

from placegap.formulations import latency_cp, latency_ip
from placegap.formulations.common import granularity_ns
from placegap.formulations.latency_chains import NEVER, chain_bound_ns
from placegap.formulations.latency_parts import LARGEST_HORIZON_NS, serial_horizon_ns
from placegap.instances.errors import InputError
from placegap.instances.evaluate import evaluate
from placegap.solvers.cp_sat_search import new_solver, search_ending, unsolved
from placegap.solvers.interrupts import run_stoppable
from placegap.solvers.latency_slices import with_slices
from placegap.solvers.mip import Formulation, MipParams, run_mip
from placegap.solvers.registry import ExactParams, Method, Params, Task, register
from placegap.solvers.result import Outcome
from placegap.solvers.start import Start, best_start

MOST_ROWS = 300_000
"""Larger models are refused: they take minutes to build, and a solver hardly ends their root."""

LONGEST_NS = 2**53
"""Longer horizons, over 100 days, are refused: floating-point numbers do not resolve their ns."""

STARTS = ("single-device", "m-topo")
"""Methods whose plans the search starts from, of those that do the objective."""


class LatencyParams(MipParams, ExactParams):
    """Parameters of ``latency-ip``.

    Attributes
    ----------
    model : {"mip", "cp-sat"}
        CP-SAT with two workers closed the operator graph of BERT-3, one call per accelerator, to
        1e-7 in 39 s; HiGHS was 0.6 % from its bound after a minute.
    form : {"strengthened", "as_published"}
        Of the MIP; CP-SAT has one form.
    workers : int
        Threads of CP-SAT. The MIP solvers run on one.
    """

    model: Literal["mip", "cp-sat"] = "cp-sat"
    form: latency_ip.Form = "strengthened"
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task, params: Params) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    assert isinstance(params, LatencyParams)
    reason = latency_ip.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    horizon, most_ns = serial_horizon_ns(task.instance), LARGEST_HORIZON_NS
    if params.model == "mip":
        most_ns = LONGEST_NS
    if horizon > most_ns:
        return f"its times sum to {horizon} ns, more than 2**{most_ns.bit_length() - 1}"
    rows = latency_ip.count_rows(task.instance, task.semantics, params.form)
    if rows > MOST_ROWS:
        return f"its model ({params.form}) would have {rows} rows, more than {MOST_ROWS}"
    return None


def run(task: Task, params: Params) -> Outcome:
    """Start from the best of the incumbent, of `STARTS` and of `best_slices`; build, solve.

    But for the published form, the bound is the better of the solver's and `chain_bound_ns`, which
    is in the models, too, and which a solver that is stopped early has not got to.
    """
    assert isinstance(params, LatencyParams)
    began = time.perf_counter()
    task = with_slices(task)
    if params.model == "mip" and params.form == "as_published":
        return _run_mip(_rest(task, began), params, None)
    chains_ns = chain_bound_ns(task.instance, task.semantics)
    if chains_ns >= NEVER:
        return Outcome(proven_infeasible=True, message="some path of ops fits nowhere")
    search = _run_mip if params.model == "mip" else _run_cp
    outcome = search(_rest(task, began), params, chains_ns)
    if outcome.proven_infeasible or (outcome.bound_ns or 0) >= chains_ns:
        return outcome
    return replace(outcome, bound_ns=chains_ns, bound_origin="chains")


def _rest(task: Task, began: float) -> Task:
    """The task with the time that is left."""
    limits = task.limits
    if limits.time_limit_s is None:
        return task
    left_s = max(0.0, limits.time_limit_s - (time.perf_counter() - began))
    return replace(task, limits=replace(limits, time_limit_s=left_s))


def formulation(task: Task, params: Params) -> Formulation:
    """What the runner needs of the MIP.

    Raises
    ------
    InputError
        Where the parameters ask for the CP-SAT model.
    """
    assert isinstance(params, LatencyParams)
    if params.model != "mip":
        raise InputError("latency-ip solves a CP-SAT model by default; add --param model=mip")
    bound_ns = None
    if params.form == "strengthened":
        bound_ns = min(chain_bound_ns(task.instance, task.semantics), NEVER)
    return _formulation(task, params, bound_ns)


def _formulation(task: Task, params: LatencyParams, bound_ns: int | None) -> Formulation:
    instance, semantics, form = task.instance, task.semantics, params.form
    return Formulation(
        name="latency-ip",
        starts=STARTS,
        granularity_ns=granularity_ns(instance, transfers=False),
        build=lambda start: latency_ip.build(
            instance, semantics, form, None if start is None else start.value_ns, bound_ns
        ),
        warm_start=lambda model, plan: latency_ip.warm_start(model, instance, plan, semantics),
        extract=lambda model: latency_ip.extract(model, instance),
    )


def _run_mip(task: Task, params: LatencyParams, bound_ns: int | None) -> Outcome:
    return run_mip(task, _formulation(task, params, bound_ns), params.solver)


def _run_cp(task: Task, params: LatencyParams, bound_ns: int) -> Outcome:
    return solve_cp(task, params.workers, bound_ns)


def solve_cp(task: Task, workers: int, bound_ns: int) -> Outcome:
    """Solve the CP-SAT model from the best of the incumbent and `STARTS`.

    The better of the solver's plan and the start comes back, the start alone if an interrupt or a
    lack of memory comes before the solver answers. The bound holds for all plans.

    Parameters
    ----------
    task : Task
    workers : int
        Threads.
    bound_ns : int
        A latency that no plan is below; a row of the model.
    """
    began = time.perf_counter()
    start = best_start(task, STARTS)
    try:
        model = latency_cp.build(
            task.instance, task.semantics, start.value_ns if start else None, bound_ns
        )
        if start:
            latency_cp.warm_start(model, start.plan, task.semantics)
        build_s = time.perf_counter() - began
        solver = new_solver(task.limits, workers, build_s)
        status, interrupted = run_stoppable(lambda: solver.solve(model.cp), solver.stop_search)
    except KeyboardInterrupt:
        return unsolved("interrupted", start)
    except MemoryError:
        return unsolved("memory_limit", start)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT rejects its model: {model.cp.validate()}")
    plan, claim = start.plan if start else None, None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = latency_cp.read_plan(model, solver.value)
        value = evaluate(task.instance, found, task.semantics).value_ns
        if start is None or value is None or value <= start.value_ns:
            plan = found
            claim = solver.value(model.latency) * model.unit_ns if model.exact else None
    infeasible = status == cp_model.INFEASIBLE
    bound = max(0, int(solver.response_proto.inner_objective_lower_bound)) * model.unit_ns
    return Outcome(
        plan=plan,
        claim_ns=claim,
        bound_ns=None if infeasible else bound,
        bound_origin="" if infeasible else "cp-sat",
        proven_infeasible=infeasible,
        message=_message(status, interrupted, start),
        build_s=build_s,
        details={
            "columns": len(model.cp.proto.variables),
            "rows": len(model.cp.proto.constraints),
            "ending": search_ending(status, interrupted),
        },
    )


def _message(status: object, interrupted: bool, start: Start | None) -> str:
    if status == cp_model.OPTIMAL:
        return ""
    if status == cp_model.INFEASIBLE:
        return "CP-SAT proves that no plan exists"
    words = ["interrupted" if interrupted else "time limit reached"]
    if status != cp_model.FEASIBLE:
        words.append("no plan found" if start is None else "the plan is the one it started from")
    return ", ".join(words)


register(
    Method(
        name="latency-ip",
        claim="exact",
        objectives=("latency_subgraphs",),
        paper="Tarnawski et al. 2020",
        summary="single-sample latency, q calls per accelerator: CP-SAT, or a MIP through HiGHS",
        run=run,
        params=LatencyParams,
        applies=applies,
        formulation=formulation,
        packages=("pyomo", "highspy", "ortools"),
    )
)
