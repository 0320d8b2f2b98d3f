"""A schedule from devices and priorities, in one compiled call: the inner loop of the annealing.

There are two rules. That of `schedule` is like the referee's (`instances.referee.simulate`), with
priorities that can be given: at each instant, of the ready ops and transfers whose device or
channels are free, the one of the highest priority starts, again and again. It never waits, so that
a long op nobody waits for may begin just before one on the longest way. `insert_all` books ops by
priority, not by time, each into the first gap that is long enough: the longest way comes first, and
gradients of weights, say, fill the gaps that it leaves on devices and on channels (insertion as in
HEFT, Topcuoglu et al. 2002, for both).

What comes out is a schedule, and its orders are a plan. Only the referee's value of that plan
counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel, pop, push, set_all
from placegap.instances.referee.channels import plan_from_times
from placegap.solvers.local_search.disjunctive_graph import NONE, channel_table


class ScheduleArrays(NamedTuple):
    """An instance with n ops, m edges, t tensors and K devices, as the kernel takes it.

    Items are the ops, then the edges (per_edge), or each tensor to each device (per_tensor).
    `resource` (K * K, 2) holds what a transfer between two devices occupies: K + channel, or -1.
    """

    time_ns: Ints
    transfer_ns: Ints
    link_class: Ints
    producer: Ints
    consumer: Ints
    tensor: Ints
    succ_ptr: Ints
    succ_edge: Ints
    pred_ptr: Ints
    pred_edge: Ints
    num_preds: Ints
    tensor_ptr: Ints
    tensor_edge: Ints
    order: Ints
    resource: Ints
    per_tensor: bool
    num_items: int


class Work(NamedTuple):
    """What a schedule needs to be made in, and its times (`NONE`: no such item); reused."""

    start: Ints
    end: Ints
    priority: Ints
    waiting: Ints
    left: Ints
    right: Ints
    event: Ints
    root: Ints
    busy: Ints


def kernel_data(instance: Instance, semantics: Makespan) -> ScheduleArrays:
    """The arrays of an instance under a makespan semantics."""
    arrays, index, k = instance.arrays, instance.arrays.index, instance.num_devices
    resource = channel_table(semantics.channels, k)
    per_tensor = semantics.transfers == "per_tensor"
    transfers = len(index.tensor_producer) * k if per_tensor else len(index.producer)
    return ScheduleArrays(
        arrays.time_ns,
        arrays.transfer_ns,
        arrays.link_class,
        index.producer,
        index.consumer,
        index.tensor,
        index.succ_ptr,
        index.succ_edge,
        index.pred_ptr,
        index.pred_edge,
        np.diff(index.pred_ptr),
        index.tensor_ptr,
        index.tensor_edge,
        index.topological_order,
        resource,
        per_tensor,
        instance.num_ops + transfers,
    )


def new_work(data: ScheduleArrays) -> Work:
    """Arrays for a schedule of an instance."""
    k, n = data.time_ns.shape[1], data.num_items
    start, end, priority, waiting, left, right, event = np.zeros((7, n), np.int64)
    root = np.zeros(k + k * k, np.int64)
    busy = np.zeros(max(k, int(data.resource.max()) + 1), np.int64)
    return Work(start, end, priority, waiting, left, right, event, root, busy)


def plan_of(
    instance: Instance, semantics: Makespan, data: ScheduleArrays, device: Ints, work: Work
) -> Plan:
    """The plan whose orders are those of the schedule in `work`."""
    n, k = instance.num_ops, instance.num_devices
    times = list(zip(work.start[:n].tolist(), work.end[:n].tolist(), strict=True))
    transfers = []
    for item in np.flatnonzero(work.start[n:] >= 0).tolist():
        if data.per_tensor:
            transfer = Transfer(*divmod(item, k))
        else:
            transfer = Transfer(item, int(device[data.consumer[item]]))
        transfers.append((transfer, int(work.start[n + item]), int(work.end[n + item])))
    return plan_from_times(instance, semantics, device.tolist(), times, transfers)


def inserted(instance: Instance, semantics: Makespan, plan: Plan) -> Plan:
    """The devices of a plan, with the orders of `insert_all`: the longest ways to the end go first.

    The plan itself where that would take too much memory.
    """
    data, level = kernel_data(instance, semantics), np.zeros(instance.num_ops, np.int64)
    work, device = new_work(data), np.array([homes[0] for homes in plan.placement], np.int64)
    booked = nothing_booked(data)
    if not len(booked.stretches):
        return plan
    bottom_levels(data, device, level)
    insert_all(data, device, level, work, booked)
    return plan_of(instance, semantics, data, device, work)


@kernel(allocates=False)
def bottom_levels(data: ScheduleArrays, device: Ints, level: Ints) -> None:
    """Longest way from the start of each op to the end, transfers included; into `level`. O(m)."""
    for at in range(len(device) - 1, -1, -1):
        i = data.order[at]
        most = 0
        for e in data.succ_edge[data.succ_ptr[i] : data.succ_ptr[i + 1]]:
            j = data.consumer[e]
            tail = level[j]
            if device[i] != device[j]:
                tail += data.transfer_ns[data.tensor[e], data.link_class[device[i], device[j]]]
            most = max(most, tail)
        level[i] = most + data.time_ns[i, device[i]]


@kernel(allocates=False)
def schedule(data: ScheduleArrays, device: Ints, priority: Ints, work: Work) -> int:
    """Fill `work` with the times of all items, and return the makespan.

    Parameters
    ----------
    device, priority : (n,) int64
        Of each op; a transfer has the highest priority of those that wait for it.

    Notes
    -----
    O((n + m) (log m + K^2)). Structures are taken apart at the top: a function that is handed one
    counts references to all of its arrays.
    """
    n, k = data.time_ns.shape
    start, end, waiting, busy, event = work.start, work.end, work.waiting, work.busy, work.event
    heaps = (work.root, work.left, work.right, work.priority)
    rank, root = work.priority, work.root
    consumer, tensor, resource = data.consumer, data.tensor, data.resource
    set_all(start, NONE)
    for item in range(n, len(waiting)):
        waiting[item] = 0
    for i in range(n):
        waiting[i], rank[i] = data.num_preds[i], priority[i]
    set_all(root, NONE)
    set_all(busy, 0)
    for i in range(n):
        if waiting[i] == 0:
            _insert(heaps, device[i], i)
    makespan, now, running = 0, 0, 0
    while True:
        while running > 0 and end[event[0]] == now:
            item = event[0]
            running = pop(event, running, end)
            if item < n:
                busy[device[item]] = 0
                for at in range(data.succ_ptr[item], data.succ_ptr[item + 1]):
                    e = data.succ_edge[at]
                    j = consumer[e]
                    if device[j] == device[item]:
                        waiting[j] -= 1
                        if waiting[j] == 0:
                            _insert(heaps, device[j], j)
                        continue
                    transfer = n + (tensor[e] * k + device[j] if data.per_tensor else e)
                    if waiting[transfer] == 0:
                        waiting[transfer] = 1
                        rank[transfer] = rank[j]
                        if data.per_tensor:  # as urgent as what it is sent to
                            t = tensor[e]
                            for at_t in range(data.tensor_ptr[t], data.tensor_ptr[t + 1]):
                                other = consumer[data.tensor_edge[at_t]]
                                if device[other] == device[j]:
                                    rank[transfer] = max(rank[transfer], rank[other])
                        _insert(heaps, k + device[item] * k + device[j], transfer)
                continue
            if data.per_tensor:
                t, target = divmod(item - n, k)
                first, last = data.tensor_ptr[t], data.tensor_ptr[t + 1]
                source = device[data.producer[data.tensor_edge[first]]]
            else:
                first, last = item - n, item - n + 1
                source, target = device[data.producer[first]], device[consumer[first]]
            for at in range(first, last):
                j = consumer[data.tensor_edge[at]] if data.per_tensor else consumer[at]
                if device[j] == target:
                    waiting[j] -= 1
                    if waiting[j] == 0:
                        _insert(heaps, target, j)
            for slot in range(2):
                if resource[source * k + target, slot] >= 0:
                    busy[resource[source * k + target, slot]] = 0
        while True:
            best, queue = _next(root, rank, busy, resource, k)
            if best < 0:
                break
            root[queue] = _meld(heaps, work.left[best], work.right[best])
            if queue < k:
                busy[queue] = 1
                duration = data.time_ns[best, queue]
            else:
                for slot in range(2):
                    if resource[queue - k, slot] >= 0:
                        busy[resource[queue - k, slot]] = 1
                t = (best - n) // k if data.per_tensor else tensor[best - n]
                pair = (queue - k) // k, (queue - k) % k
                duration = data.transfer_ns[t, data.link_class[pair]]
            start[best], end[best] = now, now + duration
            makespan = max(makespan, now + duration)
            running = push(event, running, end, best)
        if running == 0:
            return makespan
        now = end[event[0]]


@kernel(allocates=False)
def _next(root: Ints, rank: Ints, busy: Ints, resource: Ints, k: int) -> tuple[int, int]:
    """The item of the highest priority that can start now, or none, and its queue."""
    best, queue = NONE, 0
    for q in range(len(root)):
        item = root[q]
        if item < 0 or (best >= 0 and not _before(rank, item, best)):
            continue
        if q < k:
            if busy[q] != 0:
                continue
        else:
            one, two = resource[q - k, 0], resource[q - k, 1]
            if (one >= 0 and busy[one] != 0) or (two >= 0 and busy[two] != 0):
                continue
        best, queue = item, q
    return best, queue


@kernel(allocates=False)
def _before(rank: Ints, a: int, b: int) -> bool:
    """Whether item a is served before item b."""
    if rank[a] != rank[b]:
        return bool(rank[a] > rank[b])
    return a < b


@kernel(allocates=False)
def _insert(heaps: tuple[Ints, Ints, Ints, Ints], q: int, item: int) -> None:
    root, left, right, _ = heaps
    left[item] = NONE
    right[item] = NONE
    root[q] = _meld(heaps, root[q], item)


@kernel(allocates=False)
def _meld(heaps: tuple[Ints, Ints, Ints, Ints], a: int, b: int) -> int:
    """Meld two skew heaps (Sleator and Tarjan 1986) from the top down; their new root."""
    _, left, right, rank = heaps
    if a < 0:
        return b
    if b < 0:
        return a
    if _before(rank, b, a):
        a, b = b, a
    root = a
    while True:
        rest = right[a]
        right[a] = left[a]
        if rest < 0:
            left[a] = b
            return root
        if _before(rank, b, rest):
            rest, b = b, rest
        left[a] = rest
        a = rest


class Booked(NamedTuple):
    """When the machines, devices and then channels, are busy: ``stretches`` (R,) of each, in the
    order of time, from ``begin`` to ``end`` (R, most).
    """

    begin: Ints
    end: Ints
    stretches: Ints


MOST_CELLS = 50_000_000
"""Items times machines, such as the links between 64 devices: more would need gigabytes."""


def nothing_booked(data: ScheduleArrays, *, is_used: bool = True) -> Booked:
    """Machines that have nothing to do yet, with room for all ops, or all transfers, on each.

    No machines, where it is not used, or where that is too much.
    """
    n, k = data.time_ns.shape
    machines, most = max(k, int(data.resource.max()) + 1), max(n, data.num_items - n)
    is_used = is_used and machines * most <= MOST_CELLS
    begin, end = np.zeros((2, machines, most) if is_used else (2, 0, 0), np.int64)
    return Booked(begin, end, np.zeros(len(begin), np.int64))


@kernel(nogil=True, allocates=False)
def insert_all(
    data: ScheduleArrays, device: Ints, priority: Ints, work: Work, booked: Booked
) -> int:
    """Fill `work` with the times of all items, and return the makespan.

    Parameters
    ----------
    device, priority : (n,) int64
        Of each op. Of those whose inputs are all booked the most urgent is booked next, after
        the transfers that it needs.

    Notes
    -----
    O(n log n + (n + m) s), s the stretches that are looked at or moved for one item.
    """
    n, k = data.time_ns.shape
    start, end, waiting, heap, rank = work.start, work.end, work.waiting, work.event, work.priority
    set_all(booked.stretches, 0)
    makespan, size = 0, 0
    for x in range(data.num_items):
        start[x] = NONE
    for i in range(n):
        waiting[i], rank[i] = data.num_preds[i], -priority[i]  # the heap's first is its least
    for i in range(n):
        if waiting[i] == 0:
            size = push(heap, size, rank, i)
    while size > 0:
        v = heap[0]
        size = pop(heap, size, rank)
        b, ready, here = device[v], 0, 0
        for at in range(data.pred_ptr[v], data.pred_ptr[v + 1]):
            e = data.pred_edge[at]
            u = data.producer[e]
            if device[u] == b:
                here = max(here, end[u])
                continue
            c = n + (data.tensor[e] * k + b if data.per_tensor else e)
            if start[c] < 0:
                one, two = data.resource[device[u] * k + b, 0], data.resource[device[u] * k + b, 1]
                length = data.transfer_ns[data.tensor[e], data.link_class[device[u], b]]
                start[c] = end[u]
                while one >= 0:  # the first gap that both channels, or the only one, have
                    first = _first_gap(booked, one, start[c], length)
                    start[c] = first if two < 0 else _first_gap(booked, two, first, length)
                    if start[c] == first:
                        break
                end[c] = start[c] + length
                _book(booked, one, start[c], length)
                _book(booked, two, start[c], length)
            ready = max(ready, end[c])
        length = data.time_ns[v, b]
        if length > 0 or ready > here:
            start[v] = _first_gap(booked, b, max(ready, here), length)
            _book(booked, b, start[v], length)
        else:  # right behind the op that it waits for, before whatever follows that
            start[v] = here
        end[v] = start[v] + length
        makespan = max(makespan, end[v])
        for at in range(data.succ_ptr[v], data.succ_ptr[v + 1]):
            w = data.consumer[data.succ_edge[at]]
            waiting[w] -= 1
            if waiting[w] == 0:
                size = push(heap, size, rank, w)
    return int(makespan)


@kernel(nogil=True, allocates=False)
def _first_gap(booked: Booked, r: int, ready: int, length: int) -> int:
    """When a machine first has nothing to do for so long."""
    begin, end, count = booked.begin, booked.end, booked.stretches[r]
    low = _first_ending_after(booked, r, ready)
    while low < count and begin[r, low] < ready + length:
        ready = max(ready, end[r, low])
        low += 1
    return int(ready)


@kernel(nogil=True, allocates=False)
def _first_ending_after(booked: Booked, r: int, ns: int) -> int:
    """The first stretch of a machine that ends after a moment."""
    low, high = 0, booked.stretches[r]
    while low < high:
        middle = (low + high) // 2
        if booked.end[r, middle] > ns:
            high = middle
        else:
            low = middle + 1
    return int(low)


@kernel(nogil=True, allocates=False)
def _book(booked: Booked, r: int, start: int, length: int) -> None:
    """Note that a machine, if there is one, is busy; stretches without a gap become one.

    What takes no time is a stretch as well: nothing may run across it.
    """
    if r < 0:
        return
    begin, end, count = booked.begin, booked.end, booked.stretches[r]
    low = _first_ending_after(booked, r, start)
    before = low > 0 and end[r, low - 1] == start
    after = low < count and begin[r, low] == start + length
    if before and after:
        end[r, low - 1] = end[r, low]
        for at in range(low, count - 1):
            begin[r, at], end[r, at] = begin[r, at + 1], end[r, at + 1]
        booked.stretches[r] = count - 1
    elif before:
        end[r, low - 1] = start + length
    elif after:
        begin[r, low] = start
    else:
        for at in range(count, low, -1):
            begin[r, at], end[r, at] = begin[r, at - 1], end[r, at - 1]
        begin[r, low], end[r, low] = start, start + length
        booked.stretches[r] = count + 1
