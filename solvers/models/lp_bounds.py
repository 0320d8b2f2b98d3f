"""Methods that are an LP: ``getf-lp`` and ``m-sct-lp``, bounds on every makespan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyomo.environ as pyo

from placegap.formulations import getf, m_sct
from placegap.formulations.shared.devices import Grouping, device_groups, related_speeds
from placegap.formulations.shared.times import LARGEST_TIME, granularity_ns
from placegap.instances.problem import Makespan
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.bounds.cheap_bounds import PATH
from placegap.solvers.core.back_ends.highs import solve_model
from placegap.solvers.core.back_ends.outcome import ENDINGS, Ending, bound_ns
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.models.run_mip import MIP, MOST_LP_ROWS, why_too_long, why_too_many_rows

# No time of a model is longer, in its unit, but for schedules that do not matter.
LONGEST = 1.001 * LARGEST_TIME


def run_lp_bound(task: Task, name: str, build: Callable[[], pyo.ConcreteModel]) -> Outcome:
    """Solve an LP within the task's limits; its value, once reached, bounds all makespans."""
    # The model is a relaxation with ``unit_ns``; the bound's origin is `name`. An infeasible LP
    # proves that there is no plan. The critical path is a bound in any case, and the better one
    # where the LP is worth no more: no tolerance is taken off it.
    clock = task.limits.clock()
    least = getf.critical_path_ns(task.instance)
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
    proven = bound_ns(found.dual_bound, pyo.value(model.unit_ns), granularity)
    outcome = Outcome(
        bound=no_plan() if infeasible else None if proven is None else Bound(proven, name),
        message=_message(found.ending),
        build_s=built_s + found.hand_off_s,
        details={"rows": found.rows, "columns": found.columns, "ending": found.ending},
    )
    return outcome if infeasible else with_path(outcome, least)


def with_path(outcome: Outcome, critical_path_ns: int) -> Outcome:
    """The outcome, with the critical path, which is a proof, as its bound if that is as good."""
    if outcome.bound_value is not None and outcome.bound_value > critical_path_ns:
        return outcome
    return replace(outcome, bound=Bound(critical_path_ns, PATH))


def _path_alone(ending: Ending, critical_path_ns: int) -> Outcome:
    outcome = Outcome(message=_message(ending), details={"ending": ending})
    return with_path(outcome, critical_path_ns)


def _message(ending: Ending) -> str:
    return ENDINGS[ending].format(solver="HiGHS")


class GetfLpParams(Params):
    #: How devices are grouped: columns, of equal devices, gives the best bound; auto is as in the
    #: paper.
    groups: Grouping = "columns"


def getf_lp_applies(task: Task[Makespan], params: GetfLpParams) -> str | None:
    """Why the size or the grouping is out of reach, or None; nothing is built."""
    instance = task.instance
    if params.groups == "speeds" and related_speeds(instance.arrays.time_ns) is None:
        return "its times are not those of devices with speeds; use groups=auto"
    rows = getf.count_rows(instance, device_groups(instance, params.groups))
    return why_too_long(getf.horizon_ns(instance)) or why_too_many_rows(rows, most=MOST_LP_ROWS)


@method(
    "getf-lp",
    objectives=("makespan",),
    claim="bound",
    cites="after Su et al. 2020 (GETF)",
    applies=getf_lp_applies,
    packages=MIP,
)
def run_getf_lp(task: Task[Makespan], params: GetfLpParams) -> Outcome:
    """LP over fractions of groups of devices, without communication."""
    instance, groups = task.instance, device_groups(task.instance, params.groups)
    build = partial(getf.build, instance, task.semantics, groups=groups)
    outcome = run_lp_bound(task, "getf-lp", build)
    return replace(outcome, details={**outcome.details, "groups": len(groups.devices)})


def m_sct_applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the size is out of reach, or None; nothing is built."""
    return why_too_long(m_sct.horizon_ns(task.instance)) or why_too_many_rows(
        m_sct.count_rows(task.instance), most=MOST_LP_ROWS
    )


@method(
    "m-sct-lp",
    objectives=("makespan",),
    claim="bound",
    cites="Hanen and Munier 1995; Jeon et al. 2020 (Baechi)",
    applies=m_sct_applies,
    packages=MIP,
)
def run_m_sct_lp(task: Task[Makespan], params: Params) -> Outcome:
    """The LP of favourite children, with transfers cut to what keeps it valid.

    `details` says how many transfers are truncated. With none, the value is that of the published
    LP.
    """
    instance = task.instance
    times = m_sct.sct_times(instance)
    shortened = m_sct.truncate(times)
    build = partial(m_sct.build, instance, task.semantics, form="truncated")
    outcome = run_lp_bound(task, "m-sct-lp", build)
    details = {
        **outcome.details,
        "small_communication": int(m_sct.communication_ratio(times) <= 1),
        "truncated": sum(
            shortened.move_ns[pair] < transfer for pair, transfer in times.move_ns.items()
        ),
    }
    return replace(outcome, details=details)
