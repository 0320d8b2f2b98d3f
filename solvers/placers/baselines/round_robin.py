"""Round robin: ops over the devices in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Objective, plan_class
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    admission_of,
    nowhere,
    placement,
)

OBJECTIVES: tuple[Objective, ...] = ("makespan", "max_load", "max_load_fwd_bwd")

Choice = Callable[[Sequence[int]], int]
"""Of the devices that take the next colocation group, at least one, the one it goes to."""


def applies(task: Task, params: Params) -> str | None:
    """Why the task is out of reach, or None: nothing is convex about these plans."""
    plans = plan_class(task.semantics)
    return None if plans == "any" else f"its plans are not {plans}"


def round_robin(task: Task, params: Params | None = None) -> Outcome:
    """Deal the ops in topological order to the devices in turn.

    The common baseline of placement papers; a heuristic that looks at no time and no transfer. An
    op goes to the first device after that of the op before which can run it and has room for it
    and its colocation group; the group goes with it and is not dealt again. The plan gives no
    orders. O(V K) time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> round_robin(Task(example(), Makespan())).plan.placement
    ((0,), (1,), (0,), (1,))
    """
    last = -1

    def next_in_turn(takers: Sequence[int]) -> int:
        nonlocal last
        last = next((k for k in takers if k > last), takers[0])
        return last

    return deal(task, next_in_turn)


def deal(task: Task, choose: Choice) -> Outcome:
    """Give each colocation group, in topological order of its first op, a device of the choice."""
    arrays = task.instance.arrays
    admission = admission_of(arrays)
    size, runs = admission.group_bytes.tolist(), admission.group_runs
    takers_of = [np.flatnonzero(row).tolist() for row in runs]
    free = admission.free_bytes.tolist()
    home = admission.home.tolist()
    group_of = arrays.group.tolist()
    for op in arrays.index.topological_order.tolist():
        group = group_of[op]
        if home[group] != NOWHERE:
            continue
        takers = [k for k in takers_of[group] if size[group] <= free[k]]
        if not takers:
            return nowhere(task.instance, op, admission._replace(free_bytes=np.array(free)))
        home[group] = choose(takers)
        free[home[group]] -= size[group]
    return Outcome(Plan(placement(np.array(home)[arrays.group])))


register(
    Method(
        name="round-robin",
        claim="heuristic",
        objectives=OBJECTIVES,
        paper="",
        summary="one device after the other in turn",
        starts={
            "makespan": Cost(0.3, 5.3),
            "max_load": Cost(0.4, 0.7),
            "pipeline_iteration": Cost(0.4, 2.0),
        },
        run=round_robin,
        params=Params,
        applies=applies,
    )
)
