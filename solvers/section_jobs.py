"""One arc of the section graph, refined by one step: the section LP, or CP-SAT for a while.

A job is self-contained and can be pickled: worker processes run it as well as the process itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pyomo.environ as pyo
from ortools.sat.python import cp_model

from placegap.formulations import section_lp, symmetry
from placegap.formulations.common import granularity_ns
from placegap.formulations.makespan_cp import build, read_plan, warm_start
from placegap.formulations.makespan_cp_vars import MakespanModel
from placegap.formulations.scaled_times import serial_horizon_ns
from placegap.formulations.windows import NEVER
from placegap.instances.model import Instance
from placegap.instances.plan import Plan
from placegap.instances.semantics import Semantics
from placegap.instances.simulate import simulate
from placegap.solvers.highs import bound_ns, no_garbage_collection, solve_model
from placegap.solvers.interrupts import run_stoppable
from placegap.solvers.lp_bound import LONGEST
from placegap.solvers.registry import Limits, Task
from placegap.solvers.result import SolverDisagreement
from placegap.solvers.start import Start, best_start

Step = Literal["lp", "cp"]

PLACERS = ("heft", "peft", "etf", "single-device")
"""Whose plans of the section, ends pinned, CP-SAT starts from."""


@dataclass(frozen=True)
class Job:
    """A step on a section whose ends are pinned.

    Attributes
    ----------
    instance : Instance
        The section (`sections.SectionMaker`).
    semantics : Semantics
    step : {"lp", "cp"}
    horizon_ns : int or None
        Only schedules of at most this length matter.
    limit_s : float
    seed : int
    plan : Plan or None
        The best plan known for the section.
    """

    instance: Instance
    semantics: Semantics
    step: Step
    horizon_ns: int | None
    limit_s: float
    seed: int
    plan: Plan | None


@dataclass(frozen=True)
class Answer:
    """What a job found out.

    Attributes
    ----------
    lower_ns : int
        The section takes no less; `NEVER` if it has no schedule, one more than the horizon if it
        has none of interest.
    upper_ns : int or None
        Time of `plan`.
    plan : Plan or None
    final : bool
        Another step would not find out more.
    decided : bool
        It proved what it could: the least time, or that there is none within the horizon.
    interrupted : bool
        Ctrl-C came meanwhile.
    """

    lower_ns: int
    upper_ns: int | None = None
    plan: Plan | None = None
    final: bool = False
    decided: bool = False
    interrupted: bool = False


def work(job: Job) -> Answer:
    """Do a job."""
    plan, upper = job.plan, None
    if plan is not None:
        upper = simulate(job.instance, plan, job.semantics).makespan_ns
    else:
        start = place(job.instance, job.semantics)
        if start is not None:
            plan, upper = start
    horizon = serial_horizon_ns(job.instance) if job.horizon_ns is None else job.horizon_ns
    beyond = NEVER if job.horizon_ns is None else job.horizon_ns + 1
    if upper is not None and upper <= horizon:
        horizon = upper
    known = Answer(0, upper, plan)
    step = _lp if job.step == "lp" else _cp
    return step(job, known, horizon, beyond)


def place(instance: Instance, semantics: Semantics) -> Start | None:
    """The best plan of some placers for a section, or None."""
    return best_start(Task(instance, semantics), PLACERS)


def _lp(job: Job, known: Answer, horizon: int, beyond: int) -> Answer:
    with no_garbage_collection():
        model = section_lp.build(job.instance, job.semantics, horizon)
    found = solve_model(model, Limits(job.limit_s), relax=True, most=LONGEST)
    if found.ending == "infeasible":
        return _none_within(job, known, horizon, beyond)
    unit = pyo.value(model.unit_ns)
    bound = bound_ns(found.dual_bound, unit, granularity_ns(job.instance, transfers=True)) or 0
    return replace(
        known, lower_ns=min(bound, horizon + 1), interrupted=found.ending == "interrupted"
    )


def _cp(job: Job, known: Answer, horizon: int, beyond: int) -> Answer:
    model = build(job.instance, job.semantics, horizon)
    plan = break_symmetry(model, known.plan)
    if plan is not None and known.upper_ns is not None and known.upper_ns <= horizon:
        warm_start(model, simulate(job.instance, plan, job.semantics))
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = job.seed % 2**31
    parameters.max_time_in_seconds = job.limit_s
    parameters.catch_sigint_signal = False
    # Sections of 13 to 36 ops were proven 2 to 20 times faster without relaxation and probing.
    parameters.linearization_level = 0
    parameters.cp_model_probing_level = 0
    status, interrupted = run_stoppable(lambda: solver.solve(model.cp), solver.stop_search)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT rejects its model: {model.cp.validate()}")
    if status == cp_model.INFEASIBLE:
        return _none_within(job, known, horizon, beyond)
    bound = int(solver.response_proto.inner_objective_lower_bound) * model.unit_ns
    upper, plan = known.upper_ns, known.plan
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = read_plan(model, solver.value)
        value = simulate(job.instance, found, job.semantics).makespan_ns
        if upper is None or value < upper:
            upper, plan = value, found
    optimal = status == cp_model.OPTIMAL
    return Answer(bound, upper, plan, optimal, optimal, interrupted)


def _none_within(job: Job, known: Answer, horizon: int, beyond: int) -> Answer:
    """No schedule of at most the horizon exists, which a known one must not contradict."""
    if known.upper_ns is not None and known.upper_ns <= horizon:
        raise SolverDisagreement(
            f"decomposition: its {job.step} finds no schedule of a section within {horizon} ns,"
            f" but one of {known.upper_ns} ns is known"
        )
    return replace(known, lower_ns=beyond, decided=True)


def break_symmetry(model: MakespanModel, plan: Plan | None) -> Plan | None:
    """Of placements that differ in the names of identical devices, keep one; the plan likewise."""
    instance, x, possible = model.instance, model.x, model.window.possible
    classes = symmetry.identical_devices(instance)
    if not classes:
        return plan
    kept = symmetry.representative_devices(instance, possible, classes)
    for i, row in enumerate(x):
        for k, literal in row.items():
            if not kept[i, k]:
                model.cp.add(literal == 0)
    for use in symmetry.first_uses(instance, possible, classes):
        there = [x[use.op][k] for k in use.devices if k in x[use.op]]
        earlier = [x[i][use.earlier_device] for i in use.earlier_ops if use.earlier_device in x[i]]
        for literal in there:
            model.cp.add_bool_or([literal.negated(), *earlier])
    return None if plan is None else symmetry.canonical(instance, plan, model.semantics, classes)
