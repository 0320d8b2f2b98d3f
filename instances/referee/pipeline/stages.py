"""The stages of a plan under pipeline_iteration, and the rules that they must keep."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.gradients import exchanged_edges
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.simulate import PlanError


@dataclass(frozen=True, eq=False)
class PlanStages:
    """A plan as a chain of S stages.

    Attributes
    ----------
    step : (n,) int64
        Place of each op's work in the passage of one microbatch: a forward op of stage s is in
        step s, a backward op in step 2 S - 1 - s.
    device : (S,) int64
        Device of each stage.
    num_devices : int
        Devices that have stages.
    trains : bool
        Whether there are backward ops.
    """

    step: Ints
    device: Ints
    num_devices: int
    trains: bool

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.device)

    @property
    def num_steps(self) -> int:
        """Steps of one microbatch."""
        return self.num_stages * (2 if self.trains else 1)


def plan_stages(instance: Instance, plan: Plan, semantics: PipelineIteration) -> PlanStages:
    """The stages of a plan whose every op is on one device.

    Stages are numbered from 0 without a gap; stage s is on the same device as stage t if and only
    if s and t differ by a multiple of p, where p devices have v stages each. No edge leads to an
    earlier step: forward ops feed forward ops of their own and of later stages, backward ops feed
    backward ops of their own and of earlier stages, and no forward op. Exchanges of a shared
    weight's gradients (`exchanged_edges`) bind no stage.

    The ops of a colocation group that share a device are in one stage of it. (That all of them
    share one is a rule of its own, `check`.)

    Raises
    ------
    PlanError
        If the plan has no such stages.

    Examples
    --------
    >>> from placegap.instances import example
    >>> plan_stages(example(), Plan.on([1, 1, 0, 0]), PipelineIteration()).step.tolist()
    [0, 0, 1, 1]
    """
    device, ops = plan.devices, instance.graph.ops
    stage = _stated(instance, plan) if plan.stage is not None else _derived(instance, device)
    num_stages = int(stage.max()) + 1
    if plan.stage is None and semantics.schedule == "interleaved":
        raise PlanError("interleaved: a plan states the stage of each op, as stages share devices")
    home = np.full(num_stages, -1, np.int64)
    for i, (s, k) in enumerate(zip(stage.tolist(), device.tolist(), strict=True)):
        if home[s] not in (-1, k):
            names = [instance.cluster.devices[at].name for at in (int(home[s]), k)]
            raise PlanError(
                f"stage {s} is on {names[0]!r} and, with op {ops[i].name!r}, on {names[1]!r}"
            )
        home[s] = k
    if (home < 0).any():
        raise PlanError(f"stage {int(np.argmin(home))} of {num_stages} has no op")
    count, rest = divmod(num_stages, semantics.stages_per_device)
    if (
        rest
        or len(set(home.tolist())) != count
        or (home != np.resize(home[:count], num_stages)).any()
    ):
        raise PlanError(
            f"{num_stages} stages are not {semantics.stages_per_device} on each device, in rounds"
            " over the devices"
        )
    if semantics.schedule == "interleaved" and semantics.microbatches % count:
        raise PlanError(
            f"interleaved: {semantics.microbatches} microbatches are no multiple of the {count}"
            " devices"
        )
    _check_groups(instance, stage, device)
    backward = instance.arrays.backward
    step = np.where(backward, 2 * num_stages - 1 - stage, stage)
    index = instance.arrays.index
    late = step[index.producer] > step[index.consumer]
    wrong = np.flatnonzero(late & ~exchanged_edges(instance))
    if len(wrong):
        a, b = (int(ends[wrong[0]]) for ends in (index.producer, index.consumer))
        raise PlanError(_why_wrong(instance, stage, a, b))
    return PlanStages(step, home, count, bool(backward.any()))


def _check_groups(instance: Instance, stage: Ints, device: Ints) -> None:
    first: dict[tuple[int, int], int] = {}
    places = zip(instance.arrays.group.tolist(), device.tolist(), strict=True)
    for i, place in enumerate(places):
        other = first.setdefault(place, i)
        if stage[other] != stage[i]:
            ops = instance.graph.ops
            raise PlanError(
                f"op {ops[i].name!r} is in stage {stage[i]}, but {ops[other].name!r} of its group"
                f" {ops[i].colocation!r} in stage {stage[other]}"
            )


def _why_wrong(instance: Instance, stage: Ints, a: int, b: int) -> str:
    one, other = (instance.graph.ops[i] for i in (a, b))
    if one.backward and not other.backward:
        return f"backward op {one.name!r} feeds forward op {other.name!r} of the same microbatch"
    passes = "backward" if one.backward else "forward"
    return (
        f"{passes} op {one.name!r} of stage {stage[a]} feeds {other.name!r} of stage {stage[b]}:"
        f" {passes} tensors go to {'earlier' if one.backward else 'later'} stages"
    )


def _stated(instance: Instance, plan: Plan) -> Ints:
    assert plan.stage is not None
    if len(plan.stage) != instance.num_ops:
        raise PlanError(f"stage has {len(plan.stage)} entries for {instance.num_ops} ops")
    if not all(0 <= s < instance.num_ops for s in plan.stage):
        raise PlanError("stages are numbered from 0 on, without a gap")
    return np.array(plan.stage, np.int64)


def _derived(instance: Instance, device: Ints) -> Ints:
    """Stage of each op where the devices are the stages: a topological order of the devices, the
    lowest number first.
    """
    arrays, index = instance.arrays, instance.arrays.index
    bind = ~exchanged_edges(instance)
    a, b = index.producer[bind], index.consumer[bind]
    forth, back = ((arrays.backward[a] == at) & (arrays.backward[b] == at) for at in (False, True))
    tail = np.concatenate([device[a[forth]], device[b[back]]])
    head = np.concatenate([device[b[forth]], device[a[back]]])
    arcs = sorted({(x, y) for x, y in zip(tail.tolist(), head.tolist(), strict=True) if x != y})
    used = sorted(set(device.tolist()))
    waiting = {k: sum(y == k for _, y in arcs) for k in used}
    ready, number = [k for k in used if not waiting[k]], dict[int, int]()
    while ready:
        k = heapq.heappop(ready)
        number[k] = len(number)
        for x, y in arcs:
            if x == k:
                waiting[y] -= 1
                if not waiting[y]:
                    heapq.heappush(ready, y)
    if len(number) < len(used):
        names = [instance.cluster.devices[k].name for k in used if k not in number]
        raise PlanError(f"the devices feed each other in a cycle: {', '.join(names)}")
    return np.array([number[k] for k in device.tolist()], np.int64)
