"""Run a MIP formulation as a method: start, build, solve, read off, and check."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyomo.environ as pyo

from placegap.formulations.common import exclude_overload
from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.solvers.back_ends import LABELS, SolverName, require, solve_model
from placegap.solvers.mip_outcome import Ending, MipOutcome, bound_ns, no_garbage_collection
from placegap.solvers.registry import Limits, Params, Task
from placegap.solvers.result import Outcome, SolverDisagreement
from placegap.solvers.start import Start, best_start

ENDINGS: dict[Ending, str] = {
    "optimal": "",
    "infeasible": "{solver} proves that no plan exists",
    "unbounded": "{solver} takes the model for unbounded",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
    "memory_limit": "out of memory",
    "unknown": "{solver} ended without saying why",
}


class MipParams(Params):
    """Parameters of every method that solves a MIP."""

    solver: SolverName = "highs"


@dataclass(frozen=True)
class Formulation:
    """What the runner needs of a formulation.

    Attributes
    ----------
    name : str
        For messages.
    starts : tuple of str
        Methods whose plans may serve as a start.
    granularity_ns : int
        Divides every value (`common.granularity_ns`).
    build : callable
        Start or None -> model with ``unit_ns`` and one objective to minimize.
    warm_start : callable
        (model, plan) -> None
    extract : callable
        model -> plan
    """

    name: str
    starts: tuple[str, ...]
    granularity_ns: int
    build: Callable[[Start | None], pyo.ConcreteModel]
    warm_start: Callable[[pyo.ConcreteModel, Plan], None]
    extract: Callable[[pyo.ConcreteModel], Plan]


def prepare(formulation: Formulation, start: Start | None) -> pyo.ConcreteModel:
    """The model that is solved first, its variables at the start's values if there is one."""
    with no_garbage_collection():
        model = formulation.build(start)
    if start is not None:
        formulation.warm_start(model, start.plan)
    return model


def run_mip(task: Task, formulation: Formulation, solver: SolverName = "highs") -> Outcome:
    """Solve a formulation within the task's limits.

    The plan is the better of the solver's and the start, which is kept outside the solver. The
    bound is the solver's, rounded up to the granularity. There is no claim about the plan's value:
    the model's times are scaled, and the referee's value is exact. A plan that exceeds a device's
    memory by what `common.memory_capacity` lets through is excluded, and the search goes on.

    However the solve ends, ``details["ending"]`` says how, and the message says it in words.

    Raises
    ------
    InputError
        If the solver is not installed, or has no licence for the model.
    SolverDisagreement
        If the solver's plan breaks a rule, or the solver says infeasible though a plan is known.
    """
    require(solver)
    began = time.perf_counter()
    start = best_start(task, formulation.starts)
    started = time.perf_counter()
    try:
        model = prepare(formulation, start)
        built = time.perf_counter()
        found, plan = _search(model, task, formulation, solver, start, began)
    except KeyboardInterrupt:  # the solver itself returns what it has
        return _cut_short(MipOutcome("interrupted"), solver, start)
    except MemoryError:
        return _cut_short(MipOutcome("memory_limit"), solver, start)
    if found.ending == "infeasible" and start is not None:
        raise SolverDisagreement(
            f"{formulation.name} on {task.instance.name}: {LABELS[solver]} says infeasible, but a"
            f" plan of {start.value_ns} ns is known"
        )
    infeasible = found.ending == "infeasible"
    return Outcome(
        plan=_better(task, formulation.name, solver, plan, start),
        bound_ns=bound_ns(found.dual_bound, pyo.value(model.unit_ns), formulation.granularity_ns),
        bound_origin="" if infeasible else solver,
        proven_infeasible=infeasible,
        message=_message(found, solver, start),
        build_s=built - started + found.hand_off_s,
        details=_details(found),
    )


def _search(
    model: pyo.ConcreteModel,
    task: Task,
    formulation: Formulation,
    solver: SolverName,
    start: Start | None,
    began: float,
) -> tuple[MipOutcome, Plan | None]:
    """Solve until the plan fits the devices' memory to the byte, or until the solver is stopped."""
    proven = -math.inf
    while True:
        limits = _remaining(task.limits, began)
        found = solve_model(model, limits, solver=solver, warm=start is not None)
        # rows that exclude a plan only raise the optimum: what was proven before stands
        proven = max(proven, -math.inf if found.dual_bound is None else found.dual_bound)
        if math.isfinite(proven) and found.ending != "infeasible":
            found = replace(found, dual_bound=proven)
        plan = formulation.extract(model) if found.has_solution else None
        if plan is None or not exclude_overload(model, task.instance, plan):
            return found, plan
        if found.ending == "interrupted":
            return replace(found, has_solution=False), None
        if start is not None:
            formulation.warm_start(model, start.plan)


def _cut_short(found: MipOutcome, solver: SolverName, start: Start | None) -> Outcome:
    """What is known when even the model could not be built."""
    return Outcome(
        plan=None if start is None else start.plan,
        message=_message(found, solver, start),
        details=_details(found),
    )


def _details(found: MipOutcome) -> dict[str, int | float | str]:
    details: dict[str, int | float | str] = {
        "rows": found.rows,
        "columns": found.columns,
        "nodes": found.nodes,
        "ending": found.ending,
    }
    if found.solver_version:
        details["solver_version"] = found.solver_version
    return details


def _remaining(limits: Limits, began: float) -> Limits:
    if limits.time_limit_s is None:
        return limits
    elapsed = time.perf_counter() - began
    return replace(limits, time_limit_s=max(0.0, limits.time_limit_s - elapsed))


def _better(
    task: Task, name: str, solver: SolverName, plan: Plan | None, start: Start | None
) -> Plan | None:
    """The better of the solver's plan, which must be feasible, and the start."""
    if plan is None:
        return None if start is None else start.plan
    verdict = evaluate(task.instance, plan, task.semantics)
    if not verdict.feasible or verdict.value_ns is None:
        reasons = "; ".join(str(violation) for violation in verdict.violations[:3])
        raise SolverDisagreement(
            f"{name} on {task.instance.name}: {LABELS[solver]} has a plan with {reasons}"
        )
    return start.plan if start is not None and start.value_ns <= verdict.value_ns else plan


def _message(found: MipOutcome, solver: SolverName, start: Start | None) -> str:
    words = (
        [ENDINGS[found.ending].format(solver=LABELS[solver])] if found.ending != "optimal" else []
    )
    if not found.has_solution and found.ending != "infeasible":
        words.append("no plan found" if start is None else "the plan is the one it started from")
    return ", ".join(words)
