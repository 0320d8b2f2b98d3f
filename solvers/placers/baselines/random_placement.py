"""Random placement: every op on some device that takes it."""

from __future__ import annotations

import random

from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.baselines import OBJECTIVES, applies, deal


def random_placement(task: Task, params: Params | None = None) -> Outcome:
    """Draw a device for each op, all that can take it being equally likely.

    The common baseline of placement papers; a heuristic. Ops are drawn for in topological order,
    each among the devices that can run it and have room for it and its colocation group; the group
    goes with it. The task's seed decides: the same one gives the same plan. The plan gives no
    orders. O(V K) time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers import Limits
    >>> semantics = Makespan()
    >>> plans = [random_placement(Task(example(), semantics, Limits(seed=s))).plan for s in (1, 2)]
    >>> [plan.devices.tolist() for plan in plans]
    [[0, 0, 1, 0], [0, 0, 0, 1]]
    """
    return deal(task, random.Random(task.limits.seed).choice)


register(
    Method(
        name="random",
        claim="heuristic",
        objectives=OBJECTIVES,
        paper="",
        summary="a device drawn for each op",
        starts={
            "makespan": Cost(0.5, 2.8),
            "max_load": Cost(0.4, 0.7),
            "pipeline_iteration": Cost(0.4, 2.0),
        },
        run=random_placement,
        params=Params,
        applies=applies,
    )
)
