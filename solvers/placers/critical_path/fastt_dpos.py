"""DPOS, FastT's placer: the critical path on few devices, the rest where it ends first.

After Yi et al., "Fast training of deep learning models over multiple GPUs" (FastT), Middleware
2020, whose text is not at hand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import LARGEST_SUM, UNSUPPORTED
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.heft_peft_cpop import critical_path
from placegap.solvers.placers.insertion import idle_devices, schedule_by_insertion
from placegap.solvers.placers.list_problem import (
    admission_of,
    group_needs,
    levels,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
)


class Dpos(NamedTuple):
    """What DPOS found: an outcome, and the critical path that it started from."""

    outcome: Outcome
    path: list[int]


def dpos(instance: Instance) -> Dpos:
    """Ops by decreasing upward rank: those of the critical path to its devices, others by EFT.

    Static upward ranks with mean costs, as in HEFT. The ops of the critical path go to the device
    that runs them in the least time; where its memory ends, or it cannot run an op, the rest of the
    path goes to the next (`path_devices`). The others go where they finish first, idle gaps
    included; so does an op of the path that finds its device full by then. Free channels.
    O(V K log V + E K).

    Examples
    --------
    >>> from placegap.instances import example
    >>> found = dpos(example())
    >>> found.path, found.outcome.plan.placement
    ([0, 2, 3], ((0,), (0,), (0,), (0,)))
    """
    arrays = instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    rank = levels(problem, costs.op, costs.tensor)
    path = critical_path(problem, costs, rank)
    # no plan ends at or after 2**62, so that no other device is as good as the path's
    penalty = np.zeros((instance.num_ops, instance.num_devices), np.int64)
    for op, device in path_devices(arrays, path).items():
        penalty[op] = LARGEST_SUM
        penalty[op, device] = 0
    idle = idle_devices(instance.num_devices, instance.num_ops)
    times = schedule_by_insertion(problem, admission, order_by(rank, arrays), idle, penalty, 1)
    return Dpos(outcome_of(instance, times, admission), path)


def path_devices(arrays: Arrays, path: list[int]) -> dict[int, int]:
    """Device of each op of the path, filled in path order; ops that fit nowhere are left out.

    Again and again the device that takes the longest stretch of what is left of the path, with the
    colocation groups of its ops; of equal ones the one that runs it in the least time. An op may go
    to a device that runs all ops of its group and still has memory for them.

    Examples
    --------
    >>> from placegap.instances import example
    >>> path_devices(example().arrays, [0, 2, 3])
    {0: 0, 2: 0, 3: 0}
    """
    group_bytes, group_runs = group_needs(arrays)
    free, home = arrays.memory_bytes.tolist(), dict[int, int]()
    chosen: dict[int, int] = {}
    at = 0
    while at < len(path):
        stretches = []
        for k in range(len(free)):
            room, taken, time_ns, end = free[k], dict[int, int](), 0, at
            while end < len(path):
                op = path[end]
                group = int(arrays.group[op])
                here = taken.get(group, home.get(group))
                if here is None:
                    if not group_runs[group, k] or group_bytes[group] > room:
                        break
                    taken[group] = k
                    room -= int(group_bytes[group])
                elif here != k:
                    break
                time_ns += int(arrays.time_ns[op, k])
                end += 1
            stretches.append((-end, time_ns, k, taken, room))
        end, _, k, taken, room = min(stretches, key=lambda stretch: stretch[:3])
        if -end == at:  # no device takes the next op
            at += 1
            continue
        chosen |= dict.fromkeys(path[at:-end], k)
        home |= taken
        free[k], at = room, -end
    return chosen


def mean_time_ns(arrays: Arrays) -> list[float]:
    """Mean time of each op over the devices that run it.

    Examples
    --------
    >>> from placegap.instances import example
    >>> mean_time_ns(example().arrays)
    [5.0, 20.0, 10.0, 8.0]
    """
    runs = arrays.time_ns != UNSUPPORTED
    mean: list[float] = (np.where(runs, arrays.time_ns, 0).sum(axis=1) / runs.sum(axis=1)).tolist()
    return mean
