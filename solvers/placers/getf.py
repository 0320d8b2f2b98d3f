"""GETF: groups of devices by a linear program, then earliest task first within the groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placegap.formulations import getf as lp
from placegap.formulations.shared.devices import DeviceGroups, Grouping, groups_with_a_choice
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.mean_costs import mean_costs
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.back_ends.outcome import ENDINGS
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome, no_plan
from placegap.solvers.models.run_mip import MOST_LP_ROWS, why_too_long, why_too_many_rows
from placegap.solvers.placers.earliest_start import (
    earliest_start_first,
    no_favourites,
    no_footprint,
)
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    admission_of,
    levels,
    order_by,
    outcome_of,
    problem_of,
)

ROUNDS = 5  # attempts to place; in the last one ops may go anywhere


class GetfParams(Params):
    #: How devices are grouped: auto is by speed, as in the paper, where speeds explain the times or
    #: no two devices have equal ones; columns is by equal times.
    groups: Grouping = "auto"


def applies(task: Task[Makespan], params: GetfParams) -> str | None:
    """Why the size is out of reach, or None; nothing is built."""
    groups = groups_with_a_choice(task.instance, params.groups)
    rows = 0 if len(groups.devices) == 1 else lp.count_rows(task.instance, groups)
    return why_too_long(lp.horizon_ns(task.instance)) or why_too_many_rows(rows, most=MOST_LP_ROWS)


@method(
    "getf",
    objectives=("makespan",),
    cites="Su et al. 2020",
    applies=applies,
    packages=("pyomo", "highspy"),
)
def getf(task: Task[Makespan], params: GetfParams | None = None) -> Outcome:
    """ETF within groups of devices that an LP chooses.

    Su, Ren, Vardi, Wierman, "Communication-aware scheduling of precedence-constrained tasks on
    related machines", arXiv 2004.14639. A heuristic for the makespan; it plans with free channels
    and inserts nothing into idle gaps. The LP (`formulations.getf`) leaves communication out; it is
    solved by HiGHS and rounded after Chudak, Shmoys. Of ready ops the one that can start earliest
    comes next, with ETF's ties. With one group of devices the LP decides nothing and is not solved,
    and where a limit or Ctrl-C ends it, ops may go anywhere. The LP may have many optima, and the
    solver chooses. O((V + E) K log V) time beside the LP, up to five times.

    Deviations: groups are by speed where speeds explain the times, else of equal times, or, where
    these are single devices, by mean speed; colocation groups are rounded together; ops that find
    no room in their group of devices go elsewhere, and all ops are placed again.
    """
    chosen = params or GetfParams()
    clock = task.limits.clock()
    instance, groups = task.instance, groups_with_a_choice(task.instance, chosen.groups)
    if len(groups.devices) == 1:
        return _placed(task, _anywhere(instance))
    with paused_collector():
        model = lp.build(instance, task.semantics, groups=groups)
    built_s = clock.spent_s
    found = solve_model(model, task.limits.left(clock), relax=True)
    build_s = built_s + found.hand_off_s
    details: dict[str, int | float | str] = {
        "rows": found.rows,
        "columns": found.columns,
        "groups": len(groups.devices),
    }
    if found.ending == "infeasible":  # a relaxation of every plan
        return Outcome(
            bound=no_plan(""),
            message="GETF's LP is infeasible: no plan fits the memory of the devices",
            build_s=build_s,
            details=details,
        )
    message = ""
    if found.ending == "optimal":
        rounded = lp.extract(model, instance, check=False)
        allowed = _allowed(groups, rounded, instance.arrays.group)
    else:
        allowed = _anywhere(instance)
        message = f"no groups of devices: {ENDINGS[found.ending].format(solver='HiGHS')}"
    outcome = _placed(task, allowed)
    return replace(
        outcome,
        message="; ".join(filter(None, (outcome.message, message))),
        build_s=build_s,
        details={**details, **outcome.details},
    )


def _anywhere(instance: Instance) -> Flags:
    """All devices for all colocation groups, (g, K)."""
    return np.ones((instance.arrays.num_groups, instance.num_devices), np.bool_)


def _allowed(groups: DeviceGroups, chosen: list[int], group: Ints) -> Flags:
    """The devices of the group of devices that each colocation group is rounded to, (g, K)."""
    members = np.zeros((len(groups.devices), sum(map(len, groups.devices))), np.bool_)
    for number, devices in enumerate(groups.devices):
        members[number, list(devices)] = True
    allowed = np.empty((int(group.max()) + 1, members.shape[1]), np.bool_)
    allowed[group] = members[chosen]
    return allowed


def _placed(task: Task[Makespan], allowed: Flags) -> Outcome:
    """ETF on the allowed devices; ops that find no room there move, and all is done anew."""
    arrays = task.instance.arrays
    problem, costs = problem_of(arrays), mean_costs(arrays)
    static_level = levels(problem, costs.op, np.zeros_like(costs.tensor))
    order = order_by(static_level, arrays)
    nothing, alone, devices = no_footprint(task.instance), no_favourites(task.instance), allowed
    for left in reversed(range(ROUNDS)):
        admission = admission_of(arrays)
        admission = admission._replace(group_runs=admission.group_runs & devices)
        times = earliest_start_first(problem, admission, nothing, order, False, alone)
        if times.stuck == NOWHERE or left == 0:
            break
        devices = _moved(arrays, admission, devices) if left > 1 else np.ones_like(allowed)
    moved = int((devices != allowed).any(axis=1).sum())
    return replace(outcome_of(task.instance, times, admission), details={"moved": moved})


def _moved(arrays: Arrays, admission: Admission, devices: Flags) -> Flags:
    """The allowed devices; others for the colocation groups that were left without room."""
    # What is left over is put, in topological order, on the emptiest of its devices, or else on the
    # emptiest of all others; the latter are then allowed in their place.
    moved, runs = devices.copy(), admission_of(arrays).group_runs
    free, size = admission.free_bytes.copy(), admission.group_bytes
    done = admission.home != NOWHERE
    for group in arrays.group[arrays.index.topological_order].tolist():
        if done[group]:
            continue
        done[group] = True
        for candidates in (runs[group] & devices[group], runs[group] & ~devices[group]):
            if candidates.any():
                emptiest = int(np.argmax(np.where(candidates, free, -1)))
                if size[group] <= free[emptiest]:
                    free[emptiest] -= size[group]
                    break
                moved[group] = ~devices[group]
    moved[~(moved & runs).any(axis=1)] = True
    return moved
