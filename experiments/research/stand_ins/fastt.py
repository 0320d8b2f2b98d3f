"""FastT: DPOS, and splits of ops on the critical path for as long as they pay (OS-DPOS).

After Yi et al., "Fast training of deep learning models over multiple GPUs" (FastT), Middleware
2020, whose text is not at hand. DPOS, its placer, puts the critical path on few devices, and the
rest where it ends first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.mean_costs import mean_costs, mean_time_ns
from placegap.instances.referee.evaluate import feasible_value
from placegap.instances.transforms.op_splitting import WHOLE, Cut, OpSplit, split_ops
from placegap.instances.transforms.split_rule import SplitRule, cut_unit
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import EFFORT, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.dynamic_critical_path import SplitParams, outcome_of_split
from placegap.solvers.placers.heft_peft_cpop import critical_path
from placegap.solvers.placers.insertion import insert_by
from placegap.solvers.placers.list_problem import levels, problem_of


class FastTParams(SplitParams):
    """Parameters of ``fastt``."""

    #: Rejected splits in a row that end the search; 0: nothing is split, and the method is DPOS.
    patience: Annotated[int, Field(ge=0, json_schema_extra=EFFORT)] = 10


class BestSplit(NamedTuple):
    """A split, None for the instance as it is, with DPOS' plan, its value and critical path."""

    # The path is one of ops of the instance that were not split.
    split: OpSplit | None
    outcome: Outcome
    value_ns: int | None
    path: list[int]


@method("fastt", objectives=("makespan",), cites="Yi et al. 2020 (FastT)")
def fastt(task: Task[Makespan], params: FastTParams) -> Outcome:
    """Splits ops of the critical path; its value refers to the graph after splitting.

    Place by DPOS; then split the longest op of the critical path, and keep what pays; again. After
    Yi et al., "Fast training of deep learning models over multiple GPUs", Middleware 2020 (OS-
    DPOS), from descriptions: the text is not at hand. A heuristic for the makespan. Where a split
    was kept the plan is one of the finer instance (`Result.split`), not of the given one; its
    value is below that of DPOS' plan without splits.

    Deviations: the paper was not available: an op is tried along each of its axes; the referee
    judges whether a split pays; a rejected op is not tried again.
    """
    whole, message = place(task, {}), ""
    if whole.value_ns is None:
        return whole.outcome
    best, clock = whole, Clock(task.limits.time_limit_s)
    try:
        for found in improvements(task, params, whole, clock):
            best = found
    except LimitReached as limit:
        message = str(limit)
    except KeyboardInterrupt:
        message = "stopped"
    outcome = replace(best.outcome, message=message)
    return outcome if best.split is None else outcome_of_split(best.split, outcome)


def improvements(
    task: Task[Makespan], params: FastTParams, best: BestSplit, clock: Clock
) -> Iterator[BestSplit]:
    """OS-DPOS: each found is better than the one before."""
    instance = task.instance
    time_ns = mean_time_ns(instance.arrays).tolist()
    pointer, member = group_by(instance.arrays.group, instance.arrays.num_groups)
    cuts: dict[int, Cut] = {}
    tried: set[int] = set()  # colocation groups
    failures = 0
    while failures < params.patience:
        dearest = [op for op in best.path if instance.arrays.group[op] not in tried]
        if not dearest:
            return
        op = max(dearest, key=lambda i: time_ns[i])  # the first of equals
        group = int(instance.arrays.group[op])
        tried.add(group)
        unit = member[pointer[group] : pointer[group + 1]].tolist()
        found = [(best, cuts)]
        for axis in params.axes:
            rule = SplitRule(parts=params.parts, axes=(axis,), kinds=params.kinds)
            cut = cut_unit(instance.graph.ops, unit, rule)
            if cut:
                clock.check()
                trial = cuts | cut
                found.append((place(task, trial), trial))
        if len(found) == 1:  # it cannot be split: no failure
            continue
        kept = min(found, key=lambda each: _value(each[0]))  # the first of equals
        if kept[0] is best:
            failures += 1
            continue
        (best, cuts), failures = kept, 0
        yield best


def place(task: Task[Makespan], cuts: Mapping[int, Cut]) -> BestSplit:
    """DPOS on the instance with these ops split, judged by the referee."""
    instance: Instance = task.instance
    split = split_ops(instance, cuts) if cuts else None
    finer = instance if split is None else split.fine
    outcome, path = dpos(finer)
    plan = outcome.plan
    value_ns = None if plan is None else feasible_value(finer, plan, task.semantics)
    if split is not None:
        path = [int(split.op[op]) for op in path if split.part[op] == WHOLE]
    return BestSplit(split, outcome, value_ns, path)


def _value(found: BestSplit) -> float:
    return float("inf") if found.value_ns is None else found.value_ns


class Dpos(NamedTuple):
    """What DPOS found: an outcome, and the critical path that it started from."""

    outcome: Outcome
    path: list[int]


def dpos(instance: Instance) -> Dpos:
    """Ops by decreasing upward rank: those of the critical path to its devices, others by EFT."""
    # Static upward ranks with mean costs, as in HEFT. The ops of the critical path go to the device
    # that runs them in the least time; where its memory ends, or it cannot run an op, the rest of
    # the path goes to the next (`path_devices`). The others go where they finish first, idle gaps
    # included; so does an op of the path that finds its device full by then. Free channels. O(V K
    # log V + E K).
    arrays = instance.arrays
    problem, costs = problem_of(arrays), mean_costs(arrays)
    rank = levels(problem, costs.op, costs.tensor)
    path = critical_path(problem, costs, rank)
    # no plan ends at or after 2**62, so that no other device is as good as the path's
    penalty = np.zeros((instance.num_ops, instance.num_devices), np.int64)
    for op, device in path_devices(arrays, path).items():
        penalty[op] = LARGEST_SUM
        penalty[op, device] = 0
    return Dpos(insert_by(instance, problem, rank, penalty), path)


def path_devices(arrays: Arrays, path: list[int]) -> dict[int, int]:
    """Device of each op of the path, filled in path order; ops that fit nowhere are left out."""
    # Again and again the device that takes the longest stretch of what is left of the path, with
    # the colocation groups of its ops; ties go to the one that runs it in the least time. An op may
    # go to a device that runs all ops of its group and still has memory for them.
    group_bytes, group_runs = arrays.group_bytes, arrays.group_runs
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
