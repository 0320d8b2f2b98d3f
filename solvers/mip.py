"""Run a MIP formulation as a method: start, build, solve, read off, and check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyomo.environ as pyo

from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.solvers.highs import MipOutcome, bound_ns, no_garbage_collection, solve_model
from placegap.solvers.registry import Task
from placegap.solvers.result import Outcome, SolverDisagreement
from placegap.solvers.start import Start, best_start


@dataclass(frozen=True)
class Formulation:
    """What the runner needs of a formulation.

    Attributes
    ----------
    name : str
        For messages.
    placers : tuple of str
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
    placers: tuple[str, ...]
    granularity_ns: int
    build: Callable[[Start | None], pyo.ConcreteModel]
    warm_start: Callable[[pyo.ConcreteModel, Plan], None]
    extract: Callable[[pyo.ConcreteModel], Plan]


def run_mip(task: Task, formulation: Formulation) -> Outcome:
    """Solve a formulation within the task's limits.

    The plan is the better of the solver's and the start, which is kept outside the solver. The
    bound is the solver's, rounded up to the granularity. There is no claim about the plan's value:
    the model's times are scaled, and the referee's value is exact.

    Raises
    ------
    SolverDisagreement
        If the solver's plan breaks a rule, or the solver says infeasible though a plan is known.
    """
    began = time.perf_counter()
    start = best_start(task, formulation.placers)
    with no_garbage_collection():
        model = formulation.build(start)
    if start is not None:
        formulation.warm_start(model, start.plan)
    built = time.perf_counter()
    limits = task.limits
    if limits.time_limit_s is not None:
        limits = replace(limits, time_limit_s=limits.time_limit_s - (built - began))
    found = solve_model(model, limits, warm=start is not None)
    if found.ending == "infeasible":
        if start is not None:
            raise SolverDisagreement(
                f"{formulation.name} on {task.instance.name}: HiGHS says infeasible, but a plan of"
                f" {start.value_ns} ns is known"
            )
        return Outcome(
            proven_infeasible=True, message="HiGHS proves that no plan exists",
            build_s=built - began + found.hand_off_s, details=_details(found),
        )  # fmt: skip
    plan = _best_plan(task, formulation, model, found, start)
    return Outcome(
        plan=plan,
        bound_ns=bound_ns(found.dual_bound, pyo.value(model.unit_ns), formulation.granularity_ns),
        bound_origin="highs",
        message=_message(found, plan),
        build_s=built - began + found.hand_off_s,
        details=_details(found),
    )


def _best_plan(
    task: Task,
    formulation: Formulation,
    model: pyo.ConcreteModel,
    found: MipOutcome,
    start: Start | None,
) -> Plan | None:
    known = None if start is None else start.plan
    if not found.has_solution:
        return known
    plan = formulation.extract(model)
    verdict = evaluate(task.instance, plan, task.semantics)
    if not verdict.feasible or verdict.value_ns is None:
        reasons = "; ".join(str(violation) for violation in verdict.violations[:3])
        raise SolverDisagreement(
            f"{formulation.name} on {task.instance.name}: HiGHS has a plan with {reasons}"
        )
    return known if start is not None and start.value_ns <= verdict.value_ns else plan


def _message(found: MipOutcome, plan: Plan | None) -> str:
    endings = {
        "optimal": "",
        "time_limit": "time limit reached",
        "interrupted": "interrupted",
        "memory_limit": "out of memory",
        "unbounded": "HiGHS says that the model is unbounded",
        "unknown": "HiGHS ended without saying why",
    }
    words = [endings[found.ending]] if endings[found.ending] else []
    if plan is None:
        words.append("no plan found")
    elif not found.has_solution:
        words.append("HiGHS found no plan: this is the one it started from")
    return ", ".join(words)


def _details(found: MipOutcome) -> dict[str, int | float | str]:
    return {"rows": found.rows, "columns": found.columns, "nodes": found.nodes}
