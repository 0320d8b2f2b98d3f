"""MP-DPS: ops merged with regard to devices, then list scheduling by predicted path costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import Makespan
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.power_merge import MEMORY_SHARE, merge_by_power
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.heft_peft_cpop import optimistic_costs
from placegap.solvers.placers.insertion import idle_devices, schedule_by_insertion
from placegap.solvers.placers.list_problem import (
    admission_of,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
)


class MpDpsParams(Params):
    """How much of the smallest device a merged op and its colocation group may hold."""

    memory_share: Annotated[float, Field(ge=0, le=1)] = MEMORY_SHARE


def mp_dps(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Merge ops that are better together, then place by the predicted cost of the path behind.

    MP-DPS as Zeng et al. tell it (FD-DPS, Mathematics 2022, 10, 4788, section 5.1): nodes are
    merged "with computing power awareness", and scheduled by "predicting the path cost"; its text
    is not at hand. A heuristic for the makespan; it plans with free channels and inserts into idle
    gaps.
    Filled in: what is merged (`merge_by_power`). The predicted path cost of an op on a device is
    its time there plus PEFT's optimistic cost of what follows (`optimistic_costs`). The ready op of
    largest mean path cost comes next, and goes where its start plus path cost is least: PEFT on
    merged ops, but for the op's own time in the rank. Ties: topological position, then device.
    Memory, support and colocation as in HEFT; where the merged ops do not fit, the ops are placed
    unmerged.
    O(V K log V + E K) behind the merging.

    Examples
    --------
    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = mp_dps(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (0,), (0,), (0,)), 43)
    """
    assert params is None or isinstance(params, MpDpsParams)
    merge = merge_by_power(task.instance, (params or MpDpsParams()).memory_share)
    details = {"merged_ops": merge.coarse.num_ops}
    outcome = by_path_costs(merge.coarse)
    if outcome.plan is None:
        return replace(by_path_costs(task.instance), details={"merged_ops": task.instance.num_ops})
    return Outcome(expand_plan(merge, outcome.plan, task.semantics), details=details)


def by_path_costs(instance: Instance) -> Outcome:
    """List scheduling by predicted path costs.

    Examples
    --------
    >>> from placegap.instances import example
    >>> by_path_costs(example()).plan.placement
    ((0,), (0,), (0,), (0,))
    """
    arrays = instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    behind = optimistic_costs(problem, costs.tensor, costs.scale)
    times = schedule_by_insertion(
        problem,
        admission,
        order_by(mean_path_costs(arrays, behind, costs.scale), arrays),
        idle_devices(instance.num_devices, instance.num_ops),
        behind,
        costs.scale,
    )
    return outcome_of(instance, times, admission)


def mean_path_costs(arrays: Arrays, behind: Ints, scale: int) -> Ints:
    """Mean over the devices of each op's time there plus what is `behind`, in 1 / scale ns.

    The term of each device is rounded down.

    Examples
    --------
    >>> from placegap.instances import example
    >>> mean_path_costs(example().arrays, np.zeros((4, 2), np.int64), 1).tolist()
    [4, 20, 10, 8]
    """
    runs = arrays.time_ns != UNSUPPORTED
    cost = np.where(runs, arrays.time_ns * scale + behind, 0)
    mean: Ints = (cost // runs.sum(axis=1, keepdims=True)).sum(axis=1)
    return mean


register(
    Method(
        name="mp-dps",
        claim="heuristic",
        objectives=("makespan",),
        paper="as Zeng et al. 2022 tell it",
        cites=("zeng2022, section 5.1",),
        summary="merges ops with regard to devices, then places by path costs",
        starts={"makespan": Cost(2.5, 40.0)},
        run=mp_dps,
        params=MpDpsParams,
    )
)
