"""Run an LP whose value bounds every makespan as a method: build, solve, round up safely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyomo.environ as pyo

from placegap.formulations.getf import critical_path_ns
from placegap.formulations.shared.times import LARGEST_TIME, granularity_ns
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.bounds.cheap_bounds import PATH
from placegap.solvers.core.back_ends.highs import solve_model
from placegap.solvers.core.back_ends.outcome import ENDINGS, Ending, bound_ns
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.trust import PROOF

LONGEST = 1.001 * LARGEST_TIME
"""No time of a model is longer, in its unit, but for schedules that do not matter."""


def run_lp_bound(task: Task, name: str, build: Callable[[], pyo.ConcreteModel]) -> Outcome:
    """Solve an LP within the task's limits; its value, if it is reached, is a bound on makespans.

    Parameters
    ----------
    task : Task
    name : str
        Origin of the bound.
    build : callable
        () -> model with ``unit_ns`` and one objective to minimize, a relaxation of the task.

    Returns
    -------
    Outcome
        Without a plan. An infeasible LP proves that there is none. The critical path is a bound in
        any case, and the better one where the LP is worth no more: no tolerance is taken off it.
    """
    clock = task.limits.clock()
    least = critical_path_ns(task.instance)
    try:
        with paused_collector():
            model = build()
        built_s = clock.spent_s
        found = solve_model(model, task.limits.left(clock), relax=True, most=LONGEST)
    except KeyboardInterrupt:  # the solver itself returns what it has
        return _path_alone("interrupted", least)
    except MemoryError:
        return _path_alone("memory_limit", least)
    infeasible = found.ending == "infeasible"
    granularity = granularity_ns(task.instance, transfers=True)
    outcome = Outcome(
        bound_ns=bound_ns(found.dual_bound, pyo.value(model.unit_ns), granularity),
        bound_origin="" if infeasible else name,
        rests_on=PROOF,
        proven_infeasible=infeasible,
        message=_message(found.ending),
        build_s=built_s + found.hand_off_s,
        details={"rows": found.rows, "columns": found.columns, "ending": found.ending},
    )
    return outcome if infeasible else with_path(outcome, least)


def with_path(outcome: Outcome, critical_path_ns: int) -> Outcome:
    """The outcome, with the critical path, which is a proof, as its bound if that is as good."""
    if outcome.bound_ns is not None and outcome.bound_ns > critical_path_ns:
        return outcome
    return replace(outcome, bound_ns=critical_path_ns, bound_origin=PATH, rests_on=PROOF)


def _path_alone(ending: Ending, critical_path_ns: int) -> Outcome:
    outcome = Outcome(message=_message(ending), details={"ending": ending})
    return with_path(outcome, critical_path_ns)


def _message(ending: Ending) -> str:
    return ENDINGS[ending].format(solver="HiGHS")
