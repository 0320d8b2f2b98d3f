"""The stages of a plan under pipeline_iteration, and in which order each device runs its events.

An event is the forward or the backward work of one stage on one microbatch; under ``zero_bubble``
the backward work that gradients of weights alone depend on is an event of its own. With p devices
and v stages on each, stage s is on device s mod p, and is chunk s // p of its device.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, PipelineIteration, Plan
from placegap.instances.referee.rules import PlanError


@dataclass(frozen=True, eq=False)
class PlanStages:
    """A plan as a chain of S stages."""

    #: (n,) int64: Place of each op's work in the passage of one microbatch: a forward op of stage s
    #: is in step s, a backward op in step 2 S - 1 - s.
    step: Ints
    device: Ints  # (S,) int64: Device of each stage
    num_devices: int  # devices that have stages
    trains: bool  # whether there are backward ops

    @property
    def stage(self) -> Ints:
        """Stage of each op, (n,)."""
        return np.minimum(self.step, 2 * self.num_stages - 1 - self.step)

    @property
    def num_stages(self) -> int:
        return len(self.device)

    @property
    def num_steps(self) -> int:
        return self.num_stages * (2 if self.trains else 1)


def plan_stages(instance: Instance, plan: Plan, semantics: PipelineIteration) -> PlanStages:
    """The stages of a plan whose every op is on one device."""
    # Stages are numbered from 0 without a gap; stage s is on the same device as stage t if and only
    # if s and t differ by a multiple of p, where p devices have v stages each. No edge leads to an
    # earlier step: forward ops feed forward ops of their own and of later stages, backward ops feed
    # backward ops of their own and of earlier stages, and no forward op. Exchanges of a shared
    # weight's gradients (`Arrays.exchanged`) bind no stage. The ops of a colocation group that
    # share a device are in one stage of it. (That all of them share one is a rule of its own,
    # `check`.)
    device, ops = plan.devices, instance.graph.ops
    stage = _stated(instance, plan) if plan.stage is not None else _derived(instance, device)
    num_stages = int(stage.max()) + 1
    if plan.stage is None and semantics.schedule == "interleaved":
        raise PlanError("interleaved: a plan states the stage of each op, as stages share devices")
    # The rules of docs/pipelines.md, one after the other: a stage is on one device, no stage is
    # empty, stages go round the devices, groups stay in a stage, and no edge leads back.
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
            f"interleaved: {semantics.microbatches} microbatches are not a multiple of the {count}"
            " devices"
        )
    _check_groups(instance, stage, device)
    backward = instance.arrays.backward
    step = np.where(backward, 2 * num_stages - 1 - stage, stage)
    index = instance.arrays.index
    # Steps are numbered along the passage of a microbatch, forward and then backward, so an edge
    # that leads back is one to a lower step.
    late = step[index.producer] > step[index.consumer]
    wrong = np.flatnonzero(late & ~instance.arrays.exchanged)
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
    """Stage of each op where the devices are the stages."""
    # They are in a topological order of the devices, the lowest number first.
    arrays, index = instance.arrays, instance.arrays.index
    bind = ~instance.arrays.exchanged
    a, b = index.producer[bind], index.consumer[bind]
    # Backward ops feed the device of an earlier stage: their arcs are reversed.
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


class Event(NamedTuple):
    """The work of a stage on a microbatch, in one of the two passes."""

    # `weight` : the part of a backward event that gradients of weights alone depend on; `update`:
    # updates of weights, once, after the last microbatch.
    backward: bool
    stage: int
    microbatch: int
    weight: bool = False
    update: bool = False

    @property
    def part(self) -> str:
        """What its work is, in words."""
        if self.update:
            return "update"
        return "weight gradients" if self.weight else "backward" if self.backward else "forward"

    @property
    def turn(self) -> str:
        """Its microbatch in words; none for updates, which are made once."""
        return "" if self.update else f", microbatch {self.microbatch}"


def device_orders(
    semantics: PipelineIteration, num_devices: int, *, trains: bool
) -> list[list[Event]]:
    """The events of each device, in the order in which it runs them.

    - ``gpipe``: all microbatches forward, then all of them backward (Huang et al. 2019).
    - ``1f1b``: device q of p starts with min(m, p - 1 - q) forward events; then one forward and
      one backward event in turns, then the rest (PipeDream-Flush, Narayanan et al. 2021).
    - ``interleaved``: as Megatron-LM (Narayanan et al. 2021, section 2.2). Microbatches go in
      groups of p: a group goes forward through the first chunk, then through the next; and backward
      through the last chunk first. A device starts with min(m v, (v - 1) p + 2 (p - 1 - q)) forward
      events. m must be a multiple of p: with smaller groups, devices may wait for each other.
    - ``zero_bubble``: ZB-H1 (Qi et al. 2024, figure 3): as ``1f1b``, where the backward events are
      those of inputs; from the one of microbatch q on each is followed by a weight event, of
      microbatches 0, 1, ..; those that are left come last.

    Without backward ops all schedules are the forward part of their order.

    Examples
    --------
    Three microbatches on two devices, written as pass and number of the microbatch:

    >>> orders = device_orders(PipelineIteration(microbatches=3), 2, trains=True)
    >>> ["".join("FB"[e.backward] + str(e.microbatch) for e in order) for order in orders]
    ['F0F1B0F2B1B2', 'F0B0F1B1F2B2']
    """
    count, chunks = semantics.microbatches, semantics.stages_per_device
    orders = []
    for q in range(num_devices):
        forward = list(_one_pass(count, chunks, num_devices, q, backward=False))
        backward = list(_one_pass(count, chunks, num_devices, q, backward=True)) if trains else []
        first = len(forward)
        # `first`: the forward events of the warm-up; under gpipe all of them.
        if semantics.schedule in ("1f1b", "zero_bubble"):
            first = min(count, num_devices - 1 - q)
        elif semantics.schedule == "interleaved":
            first = min(first, (chunks - 1) * num_devices + 2 * (num_devices - 1 - q))
        order = _in_turns(forward, backward, first)
        orders.append(_with_weights(order, q) if semantics.schedule == "zero_bubble" else order)
    return orders


def _one_pass(
    count: int, chunks: int, num_devices: int, q: int, *, backward: bool
) -> Iterator[Event]:
    # Megatron's interleaving: the microbatches of a group go through chunk after chunk.
    group = num_devices if chunks > 1 else count  # one chunk: microbatches one after another
    for begin in range(0, count, group):
        for c in reversed(range(chunks)) if backward else range(chunks):
            for microbatch in range(begin, min(begin + group, count)):
                yield Event(backward, c * num_devices + q, microbatch)


def _in_turns(forward: list[Event], backward: list[Event], first: int) -> list[Event]:
    """The first forward events, then one forward and one backward event in turns."""
    order, rest = forward[:first], forward[first:]
    for at in range(max(len(rest), len(backward))):
        order += rest[at : at + 1] + backward[at : at + 1]
    return order


def _with_weights(order: list[Event], delay: int) -> list[Event]:
    """Weight events, each after the backward event of a later microbatch."""
    backward = [event for event in order if event.backward]
    weights = [event._replace(weight=True) for event in backward]
    after = dict(zip(backward[delay:], weights, strict=False))
    found = [each for event in order for each in (event, after.get(event)) if each is not None]
    return found + weights[len(after) :]


def held_beside(order: list[Event]) -> dict[int, list[tuple[int, int]]]:
    """How many other microbatches each stage of a device holds while it works on one.

    Pairs: those that it has begun forward and not ended backward, and those whose weight event is
    then still to come. Pairs that are nowhere above another one are left out.

    Examples
    --------
    >>> rules = PipelineIteration(microbatches=8)
    >>> [held_beside(order) for order in device_orders(rules, 3, trains=True)]
    [{0: [(2, 0)]}, {1: [(1, 0)]}, {2: [(0, 0)]}]
    >>> rules = PipelineIteration(microbatches=8, schedule="zero_bubble")
    >>> [held_beside(order) for order in device_orders(rules, 3, trains=True)]
    [{0: [(2, 0)]}, {1: [(1, 1)]}, {2: [(0, 2)]}]
    """
    split = any(event.weight for event in order)
    now: dict[int, tuple[int, int]] = {}
    seen: dict[int, set[tuple[int, int]]] = {}
    for event in order:
        # Counted before the event, without the microbatch at work, whose memory is counted apart.
        begun, waiting = now.get(event.stage, (0, 0))
        if event.weight:
            waiting -= 1
        elif event.backward:
            begun -= 1
        seen.setdefault(event.stage, set()).add((begun, waiting))  # beside the one at work
        if not event.backward:
            begun += 1
        elif split and not event.weight:
            waiting += 1
        now[event.stage] = begun, waiting
    return {
        s: sorted(
            pair
            for pair in pairs
            if not any(
                pair != other and pair[0] <= other[0] and pair[1] <= other[1] for other in pairs
            )
        )
        for s, pairs in seen.items()
    }
