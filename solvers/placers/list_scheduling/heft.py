"""HEFT: heterogeneous earliest finish time."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.insertion import idle_devices, schedule_by_insertion
from placegap.solvers.placers.list_problem import (
    admission_of,
    levels,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
)


def heft(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Place ops by decreasing upward rank, each where it finishes first, gaps included.

    Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 13(3), 2002, section 4.1. A heuristic for the makespan;
    it plans with free channels.
    Ranks are exact integers: mean times over the devices that can run an op, mean transfers over
    all ordered device pairs (the paper: mean bandwidth and latency; the same if links are equal).
    Ties: topological position, then device index. Added to the paper: an op goes only to devices
    that can run it, with room for it and its colocation group.
    O(V K log V + E K) time (the paper: O(E K) searches of a device's whole schedule).

    Examples
    --------
    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = heft(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (0,), (0,), (0,)), 43)
    """
    arrays = task.instance.arrays
    problem, admission = problem_of(arrays), admission_of(arrays)
    times = schedule_by_insertion(
        problem,
        admission,
        order_by(upward_ranks(task.instance)[0], arrays),
        idle_devices(task.instance.num_devices, task.instance.num_ops),
        np.empty((0, 0), np.int64),
        1,
    )
    return outcome_of(task.instance, times, admission)


def upward_ranks(instance: Instance) -> tuple[Ints, int]:
    """Upward rank of each op (equation 8), and the unit: rank / unit is in ns.

    rank(i) = mean time(i) + max over successors j of (mean transfer(i, j) + rank(j)).

    Examples
    --------
    >>> from placegap.instances import example
    >>> ranks, unit = upward_ranks(example())
    >>> (ranks / unit).tolist()  # 8; 10 + 10 + 8; 20 + 1 + 8; 5 + 20 + 28
    [53.0, 29.0, 28.0, 8.0]
    """
    costs = mean_costs(instance.arrays)
    return levels(problem_of(instance.arrays), costs.op, costs.tensor), costs.scale


register(
    Method(
        name="heft",
        claim="heuristic",
        objectives=("makespan",),
        paper="Topcuoglu et al. 2002",
        cites=("topcuoglu2002, section 4.1",),
        summary="longest way to the end first, where it finishes earliest, idle gaps included",
        starts={"makespan": Cost(0.4, 4.3, always=True)},
        run=heft,
        params=Params,
    )
)
