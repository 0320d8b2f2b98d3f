"""Run a MIP formulation as a method: start, build, solve, read off, and check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyomo.environ as pyo

from placegap.formulations.common import exclude_overload
from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.solvers.highs import (
    Ending,
    MipOutcome,
    bound_ns,
    no_garbage_collection,
    solve_model,
)
from placegap.solvers.registry import Limits, Task
from placegap.solvers.result import Outcome, SolverDisagreement
from placegap.solvers.start import Start, best_start

ENDINGS: dict[Ending, str] = {
    "optimal": "",
    "infeasible": "HiGHS proves that no plan exists",
    "unbounded": "HiGHS takes the model for unbounded",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
    "memory_limit": "out of memory",
    "unknown": "HiGHS ended without saying why",
}


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


def run_mip(task: Task, formulation: Formulation) -> Outcome:
    """Solve a formulation within the task's limits.

    The plan is the better of the solver's and the start, which is kept outside the solver. The
    bound is the solver's, rounded up to the granularity. There is no claim about the plan's value:
    the model's times are scaled, and the referee's value is exact. A plan that exceeds a device's
    memory by what `common.memory_capacity` lets through is excluded, and the search goes on.

    Raises
    ------
    SolverDisagreement
        If the solver's plan breaks a rule, or the solver says infeasible though a plan is known.
    """
    began = time.perf_counter()
    start = best_start(task, formulation.starts)
    started = time.perf_counter()
    with no_garbage_collection():
        model = formulation.build(start)
    if start is not None:
        formulation.warm_start(model, start.plan)
    built = time.perf_counter()
    while True:
        found = solve_model(model, _remaining(task.limits, began), warm=start is not None)
        plan = formulation.extract(model) if found.has_solution else None
        if plan is None or not exclude_overload(model, task.instance, plan):
            break
        if start is not None:
            formulation.warm_start(model, start.plan)
    if found.ending == "infeasible" and start is not None:
        raise SolverDisagreement(
            f"{formulation.name} on {task.instance.name}: HiGHS says infeasible, but a plan of"
            f" {start.value_ns} ns is known"
        )
    infeasible = found.ending == "infeasible"
    return Outcome(
        plan=_better(task, formulation.name, plan, start),
        bound_ns=bound_ns(found.dual_bound, pyo.value(model.unit_ns), formulation.granularity_ns),
        bound_origin="" if infeasible else "highs",
        proven_infeasible=infeasible,
        message=_message(found, start),
        build_s=built - started + found.hand_off_s,
        details={"rows": found.rows, "columns": found.columns, "nodes": found.nodes},
    )


def _remaining(limits: Limits, began: float) -> Limits:
    if limits.time_limit_s is None:
        return limits
    elapsed = time.perf_counter() - began
    return replace(limits, time_limit_s=max(0.0, limits.time_limit_s - elapsed))


def _better(task: Task, name: str, plan: Plan | None, start: Start | None) -> Plan | None:
    """The better of the solver's plan, which must be feasible, and the start."""
    if plan is None:
        return None if start is None else start.plan
    verdict = evaluate(task.instance, plan, task.semantics)
    if not verdict.feasible or verdict.value_ns is None:
        reasons = "; ".join(str(violation) for violation in verdict.violations[:3])
        raise SolverDisagreement(f"{name} on {task.instance.name}: HiGHS has a plan with {reasons}")
    return start.plan if start is not None and start.value_ns <= verdict.value_ns else plan


def _message(found: MipOutcome, start: Start | None) -> str:
    words = [ENDINGS[found.ending]] if ENDINGS[found.ending] else []
    if not found.has_solution and found.ending != "infeasible":
        words.append("no plan found" if start is None else "the plan is the one it started from")
    return ", ".join(words)
