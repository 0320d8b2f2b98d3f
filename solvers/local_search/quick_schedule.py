"""A schedule from devices and priorities, in one compiled call: the inner loop of the annealing.

`insert_all` books ops by priority, not by time, each into the first gap that is long enough: the
longest path comes first, and less urgent ops, such as gradients of weights, fill the gaps that it
leaves on devices and on channels (insertion as in HEFT, Topcuoglu et al. 2002, for both).

The orders of the schedule are a plan. Only the referee's value of that plan counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import kernel, pop, push, set_all
from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.referee.channels import plan_from_times
from placegap.solvers.local_search.disjunctive_graph import NONE, Machines, machines_of


class Work(NamedTuple):
    """Arrays for a schedule, and its times (`NONE`: no such item); reused."""

    # Machine r, a device or a channel, is busy for ``stretches[r]`` stretches of time, in the order
    # of time: from ``busy_from[first[r]]`` to ``busy_to[first[r]]`` and so on.
    start: Ints
    end: Ints
    rank: Ints
    waiting: Ints
    heap: Ints
    busy_from: Ints
    busy_to: Ints
    first: Ints
    stretches: Ints
    # ``load[r]``: How long machine r is busy; ``rate[r]``: what a ns of that costs beside the
    # makespan. A trial that makes a busy machine less busy is progress where the makespan stays.
    load: Ints
    rate: Floats


def new_work(data: Machines) -> Work:
    """Arrays for a schedule of an instance."""
    n, k, edges = *data.time_ns.shape, len(data.producer)
    items = n + ((len(data.tensor_ptr) - 1) * k if data.per_tensor else edges)
    start, end = np.zeros((2, items), np.int64)
    rank, waiting, heap = np.zeros((3, n), np.int64)
    busy_from, busy_to = np.zeros((2, n + 2 * edges), np.int64)
    count = max(k, int(data.channel.max()) + 1)
    first, (stretches, load) = np.zeros(count + 1, np.int64), np.zeros((2, count), np.int64)
    rate = np.zeros(count)
    return Work(start, end, rank, waiting, heap, busy_from, busy_to, first, stretches, load, rate)


def plan_of(
    instance: Instance, semantics: Makespan, data: Machines, device: Ints, work: Work
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
    """The devices of a plan, with the orders of `insert_all`: longest ways to the end go first."""
    data, level = machines_of(instance, semantics), np.zeros(instance.num_ops, np.int64)
    work, device = new_work(data), plan.devices.copy()
    bottom_levels(data, device, level)
    insert_all(data, device, level, work)
    return plan_of(instance, semantics, data, device, work)


@kernel(allocates=False)
def bottom_levels(data: Machines, device: Ints, level: Ints) -> None:
    """Longest path from the start of each op to the end, with transfers; into `level`. O(m)."""
    for at in range(len(device) - 1, -1, -1):
        i = data.topological_order[at]
        most = 0
        for e in data.succ_edge[data.succ_ptr[i] : data.succ_ptr[i + 1]]:
            j = data.consumer[e]
            tail = level[j]
            if device[i] != device[j]:
                tail += data.transfer_ns[data.tensor[e], data.link_class[device[i], device[j]]]
            most = max(most, tail)
        level[i] = most + data.time_ns[i, device[i]]


@kernel(nogil=True, allocates=False)
def insert_all(data: Machines, device: Ints, priority: Ints, work: Work) -> int:
    """Fill `work` with the times of all items, and return the makespan."""
    return insert_within(data, device, priority, priority, work, np.inf)[0]


@kernel(nogil=True, allocates=False)
def insert_within(
    data: Machines, device: Ints, priority: Ints, tail: Ints, work: Work, limit: float
) -> tuple[int, float]:
    """The makespan of `insert_all`, and what the loads cost by ``work.rate``."""
    # If both together are certain to exceed the limit, it stops and returns more than that. Most
    # trials of an annealing are rejected, most of those by the load of one machine, before anything
    # is booked. `tail` are bottom levels.
    # The most urgent op whose inputs are all booked is booked next, after the transfers that it
    # needs. O(n log n + (n + m) s), for s stretches that are searched or moved per item.
    # A booking never moves an earlier one: urgent paths find free machines, and less urgent ops are
    # booked around them. So ops of a device need not be booked in the order of their times.
    n, k = data.time_ns.shape
    start, end, waiting, heap, rank = work.start, work.end, work.waiting, work.heap, work.rank
    makespan, size, extra, first = 0, 0, 0.0, work.first
    if limit < np.inf:
        most, extra = _loads(data, device, work)
        if most + extra > limit:
            return most, extra
    set_all(start, NONE)
    set_all(first, 0)
    set_all(work.stretches, 0)
    # `first`: where the stretches of each machine begin, with room for all of its items.
    for e in range(len(data.producer)):
        pair = device[data.producer[e]] * k + device[data.consumer[e]]
        for slot in range(2):
            if data.channel[pair, slot] >= 0:
                first[data.channel[pair, slot] + 1] += 1
    for i in range(n):
        first[device[i] + 1] += 1
        waiting[i] = data.pred_ptr[i + 1] - data.pred_ptr[i]
        rank[i] = -priority[i]  # the heap's first is its least
    for r in range(len(work.stretches)):
        first[r + 1] += first[r]
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
                one, two = data.channel[device[u] * k + b, 0], data.channel[device[u] * k + b, 1]
                length = data.transfer_ns[data.tensor[e], data.link_class[device[u], b]]
                start[c] = end[u]
                # The first gap that both channels have: each moves the start on until they agree.
                while one >= 0:
                    gap = _first_gap(work, one, start[c], length)
                    start[c] = gap if two < 0 else _first_gap(work, two, gap, length)
                    if start[c] == gap:
                        break
                end[c] = start[c] + length
                _book(work, one, start[c], length)
                _book(work, two, start[c], length)
            ready = max(ready, end[c])
        length = data.time_ns[v, b]
        if length > 0 or ready > here:
            start[v] = _first_gap(work, b, max(ready, here), length)
            if start[v] + tail[v] + extra > limit:
                return int(start[v] + tail[v]), extra
            _book(work, b, start[v], length)
        else:
            # An op without time needs no gap: it runs right after its producer, where whatever
            # follows on the device may already be booked.
            start[v] = here
        end[v] = start[v] + length
        makespan = max(makespan, end[v])
        for at in range(data.succ_ptr[v], data.succ_ptr[v + 1]):
            w = data.consumer[data.succ_edge[at]]
            waiting[w] -= 1
            if waiting[w] == 0:
                size = push(heap, size, rank, w)
    return int(makespan), extra


@kernel(nogil=True, allocates=False)
def _loads(data: Machines, device: Ints, work: Work) -> tuple[int, float]:
    """The longest load of a machine, and what all loads cost; edges of one tensor may share one."""
    load, k = work.load, data.time_ns.shape[1]
    set_all(load, 0)
    for i in range(len(device)):
        load[device[i]] += data.time_ns[i, device[i]]
    if not data.per_tensor:
        for e in range(len(data.producer)):
            a, b = device[data.producer[e]], device[data.consumer[e]]
            if a != b and data.channel[a * k + b, 0] >= 0:
                length = data.transfer_ns[data.tensor[e], data.link_class[a, b]]
                for slot in range(2):
                    if data.channel[a * k + b, slot] >= 0:
                        load[data.channel[a * k + b, slot]] += length
    most, cost = 0, 0.0
    for r in range(len(load)):
        most = max(most, load[r])
        cost += work.rate[r] * load[r]
    return int(most), cost


@kernel(nogil=True, allocates=False)
def _first_gap(work: Work, r: int, ready: int, length: int) -> int:
    """The start of the first gap of a machine, from `ready` on, that is long enough."""
    begin, end, last = work.busy_from, work.busy_to, work.first[r] + work.stretches[r]
    low = _first_ending_after(work, r, ready)
    while low < last and begin[low] < ready + length:
        ready = max(ready, end[low])
        low += 1
    return int(ready)


@kernel(nogil=True, allocates=False)
def _first_ending_after(work: Work, r: int, ns: int) -> int:
    """The first stretch of a machine that ends after a given time."""
    low, high = work.first[r], work.first[r] + work.stretches[r]
    while low < high:
        middle = (low + high) // 2
        if work.busy_to[middle] > ns:
            high = middle
        else:
            low = middle + 1
    return int(low)


@kernel(nogil=True, allocates=False)
def _book(work: Work, r: int, start: int, length: int) -> None:
    """Book a machine, if there is one; stretches without a gap between them become one."""
    # An item without time is a stretch as well, since nothing may run across it.
    if r < 0:
        return
    begin, end, last = work.busy_from, work.busy_to, work.first[r] + work.stretches[r]
    low = _first_ending_after(work, r, start)
    before = low > work.first[r] and end[low - 1] == start
    after = low < last and begin[low] == start + length
    if before and after:
        end[low - 1] = end[low]
        for at in range(low, last - 1):
            begin[at], end[at] = begin[at + 1], end[at + 1]
        work.stretches[r] -= 1
    elif before:
        end[low - 1] = start + length
    elif after:
        begin[low] = start
    else:
        for at in range(last, low, -1):
            begin[at], end[at] = begin[at - 1], end[at - 1]
        begin[low], end[low] = start, start + length
        work.stretches[r] += 1
