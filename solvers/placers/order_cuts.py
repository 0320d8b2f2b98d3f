"""Slices of the order of colocation groups: one per device (memory-cuts), or many in turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.additive_memory import ceiling_bytes, relax_memory, with_resident
from placegap.instances.problem.integers import LARGEST_SUM, NO_LIMIT, UNSUPPORTED
from placegap.instances.problem.mean_costs import flow_of
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.progress import Known
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome


@method(
    "memory-cuts", objectives=("makespan",), paper="placegap", starts={"makespan": Cost(0.6, 4.0)}
)
def memory_cuts(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Slices of the order, one per device, cut where memory allows and little is sent.

    Groups are ordered by the first of their ops in topological order. A training step whose
    forward and backward ops are colocated so becomes the chain of its layers. Every slice fits into
    the memory of its device, and the sum of all op times and of what is sent across the cuts is
    the least; each edge counts at every cut that it crosses. Devices take their slices in a fixed
    sequence, and may be passed over. Of three sequences (the fastest first, the slowest first, the
    largest first) the one with the shortest schedule counts. A heuristic for graphs that do not fit
    on one device, where most of the time goes into the few transfers that memory enforces; with
    slack memory all ops stay on one device. O(K (n + m)) but for sorting.
    """
    best = Known()
    for device in _slicings(task.instance):
        best.offer_plan(task, Plan.on(device.tolist()))
    if best.plan is None:
        return Outcome(message="memory: no slices of the order fit on the devices")
    return Outcome(best.plan)


def _slicings(instance: Instance) -> Iterator[Ints]:
    """Devices of the ops, (n,), for each sequence of the devices."""
    arrays, index = instance.arrays, instance.arrays.index
    num, most = arrays.num_groups, instance.num_devices
    order = arrays.group_order
    at = arrays.place_of_ops(order)
    size, blocked = arrays.group_bytes[order].astype(float), ~arrays.group_runs[order]
    time_ns = np.zeros((num, most))
    np.add.at(time_ns, at, arrays.time_ns.clip(0).astype(float))
    sent_ns = sent_across(
        at[index.producer], at[index.consumer], num, arrays.transfer_ns[index.tensor].max(axis=1)
    )
    room = np.where(arrays.memory_bytes == NO_LIMIT, np.inf, arrays.memory_bytes.astype(float))
    speed = np.where(blocked, 0.0, time_ns).sum(axis=0) / np.maximum(1, (~blocked).sum(axis=0))
    tried: set[tuple[int, ...]] = set()
    for key in (speed, -speed, -room):
        turn = np.argsort(key, kind="stable")
        if tuple(turn.tolist()) not in tried:
            tried.add(tuple(turn.tolist()))
            times = np.ascontiguousarray(time_ns[:, turn])  # one layout: one kernel
            bars = np.ascontiguousarray(blocked[:, turn])
            slot = _slice(size, times, bars, room[turn], sent_ns)
            if slot[0] >= 0:
                yield turn[slot][at]


def sent_across(tail: Ints, head: Ints, num: int, move_ns: Ints) -> Floats:
    """Time of what crosses the cut before each group, (num,), in either direction."""
    low, high = np.minimum(tail, head), np.maximum(tail, head)
    crosses, change = low < high, np.zeros(num + 1)
    np.add.at(change, low[crosses] + 1, move_ns[crosses].astype(float))
    np.subtract.at(change, high[crosses] + 1, move_ns[crosses].astype(float))
    return np.cumsum(change)[:num].clip(0)


@kernel(bounded=True)
def _slice(size: Floats, time_ns: Floats, blocked: Flags, room: Floats, sent_ns: Floats) -> Ints:
    """Position in the sequence of the device of each group, (num,); -1 if there are no slices."""
    # best[k + 1, e]: the least cost of the first e groups on the first k + 1 devices. The slice of
    # device k that ends before e begins at the best place of a window that only moves on.
    num, most = time_ns.shape
    best, since = np.full((most + 1, num + 1), np.inf), np.full((most + 1, num + 1), -1)
    best[0, 0] = 0.0
    queue, value = np.zeros(num + 1, np.int64), np.zeros(num + 1)
    for k in range(most):
        best[k + 1, 0] = 0.0
        first, last, held, spent, begin = 0, 0, 0.0, 0.0, 0
        for e in range(1, num + 1):
            j = e - 1  # a slice may begin here
            start = best[k, j] + (sent_ns[j] if j > 0 else 0.0) - spent
            while last > first and value[last - 1] > start:  # of equal cuts the first
                last -= 1
            queue[last], value[last] = j, start
            last += 1
            held += size[j]
            spent += time_ns[j, k]
            if blocked[j, k]:
                begin, held = e, 0.0
            while held > room[k]:
                held -= size[begin]
                begin += 1
            while last > first and queue[first] < begin:
                first += 1
            best[k + 1, e], since[k + 1, e] = best[k, e], -1
            if last > first and value[first] + spent < best[k, e]:
                best[k + 1, e], since[k + 1, e] = value[first] + spent, queue[first]
    slot, e = np.full(num, -1), num
    if best[most, num] == np.inf:
        return slot
    for k in range(most, 0, -1):
        if since[k, e] >= 0:
            for at in range(since[k, e], e):
                slot[at] = k - 1
            e = since[k, e]
    return slot


ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # how often the devices take turns
# How far a cut may be from where slices are equal, in slices: it goes where the least is sent.
REACHES = (0.1, 0.3, 0.5)
# Plans that are judged: at least the first number, and for the second number of parts in all.
LEAST_PLANS, MOST_PARTS = 4, 400_000


@method(
    "interleaved-cuts",
    objectives=("makespan",),
    paper="placegap",
    starts={"makespan": Cost(5.0, 10.0)},
    memory_rules=("sum", "peak"),
)
def interleaved_cuts(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Slices of the order, given to devices in turn, cut where little is sent.

    Groups are ordered by the first of their ops in topological order: a training step whose forward
    and backward ops are colocated is the chain of its layers. Where neighbouring layers are on two
    devices, the gradient of one layer's weights is computed beside the next layer's step back; with
    one slice per device all devices but one are idle. Slices are in proportion to the speed of
    their devices. What does not fit into a device's memory goes on to the next one. Tried are
    several numbers of turns, the fastest or largest devices alone or with others, and cuts nearer
    to or farther from equal slices; the shortest schedule counts. A heuristic that judges fewer
    plans of larger graphs: O((n + m) log n) for each.
    """
    instance, best = task.instance, Known()
    parts = instance.num_parts
    for counted in _counted(task):
        for device in islice(_dealt(counted), max(LEAST_PLANS, MOST_PARTS // max(1, parts))):
            best.offer_plan(task, Plan.on(device.tolist()))
        if best.plan is not None:
            break
    if best.plan is None:
        return Outcome(message="memory: no slices of the order fit on the devices")
    return Outcome(best.plan)


def _counted(task: Task[Makespan]) -> Iterator[Instance]:
    """The instance with the bytes by which slices are packed."""
    # At peak memory that is the least that plans hold, then the most.
    yield relax_memory(task.instance, task.semantics)[0]
    if task.semantics.memory_rule == "peak":
        most_bytes = ceiling_bytes(task.instance)
        if float(most_bytes.astype(np.float64).sum()) <= LARGEST_SUM:
            yield with_resident(task.instance, most_bytes)


def _dealt(instance: Instance) -> Iterator[Ints]:
    """Devices of the ops, (n,), by one way of cutting and dealing after another."""
    arrays, index = instance.arrays, instance.arrays.index
    num = arrays.num_groups
    order = arrays.group_order
    at, work = arrays.place_of_ops(order), np.zeros(num)
    size, able = arrays.group_bytes[order], arrays.group_runs[order]
    np.add.at(work, at, flow_of(arrays).node_ns.astype(float))
    sent_ns = sent_across(
        at[index.producer], at[index.consumer], num, arrays.transfer_ns[index.tensor].max(axis=1)
    )
    tried: set[bytes] = set()
    for rounds in ROUNDS:
        for turn, speed in _turns(instance):
            if rounds * len(turn) > num:
                continue
            for reach in REACHES:
                slot = _slices(work, sent_ns, np.tile(speed, rounds), reach)
                device = _packed(slot, size, able, turn, arrays.memory_bytes)
                if device is not None and device.tobytes() not in tried:
                    tried.add(device.tobytes())
                    yield device[at]


def _turns(instance: Instance) -> Iterator[tuple[Ints, Floats]]:
    """Which devices take turns, in their sequence, and how fast they are; all of them first."""
    # Fewer are the fastest ones, or the largest ones of all.
    arrays, k = instance.arrays, instance.num_devices
    runs = arrays.time_ns != UNSUPPORTED
    mean_ns = np.where(runs, arrays.time_ns, 0).sum(axis=0) / np.maximum(1, runs.sum(axis=0))
    speed = np.where(runs.any(axis=0), 1.0 / np.maximum(mean_ns, 1e-9), 0.0)
    room = np.where(arrays.memory_bytes == NO_LIMIT, np.inf, arrays.memory_bytes.astype(float))
    usable = np.flatnonzero(speed > 0)
    tried: set[tuple[int, ...]] = set()
    for count in sorted({k, *(1 << e for e in range(1, k.bit_length()))}, reverse=True):
        for key in (-speed, -room):
            turn = usable[np.argsort(key[usable], kind="stable")][:count]
            if tuple(turn.tolist()) not in tried:
                tried.add(tuple(turn.tolist()))
                yield turn, speed[turn]


def _slices(work: Floats, sent_ns: Floats, share: Floats, reach: float) -> Ints:
    """Slice of each group, (num,): as much work as its share, cut near by where little is sent."""
    num, until = len(work), np.concatenate([[0.0], np.cumsum(work)])
    aims = until[-1] * np.cumsum(share)[:-1] / share.sum()
    spread = reach * until[-1] * np.minimum(share[:-1], share[1:]) / share.sum()
    begins = np.zeros(num, np.int64)
    low = np.clip(np.searchsorted(until, aims - spread), 1, num - 1) if num > 1 else aims * 0
    high = np.searchsorted(until, aims + spread)
    for a, b in zip(low.astype(int).tolist(), high.tolist(), strict=True):
        b = min(max(a + 1, b), num)
        if a < b:
            begins[a + int(np.argmin(sent_ns[a:b]))] += 1
    return np.cumsum(begins)


def _packed(slot: Ints, size: Ints, able: Flags, turn: Ints, room: Ints) -> Ints | None:
    """Device of each group, (num,): that of its slice's turn, or the next one where it fits."""
    device, left, count = np.empty(len(slot), np.int64), room.astype(object), len(turn)
    skipped, before = 0, -1
    for g, number in enumerate(slot.tolist()):
        if number != before:
            skipped, before = 0, number
        for _ in range(count):
            k = int(turn[(number + skipped) % count])
            if able[g, k] and size[g] <= left[k]:
                break
            skipped += 1
        else:
            return None
        device[g] = k
        left[k] -= int(size[g])
    return device
