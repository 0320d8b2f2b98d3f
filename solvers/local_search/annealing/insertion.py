"""A schedule by insertion: the most urgent op first, each into the first gap that is long enough.

The rule of `schedule` never waits, so that a long op nobody waits for may begin just before one on
the longest way. Here ops are booked by priority, not by time: the longest way comes first, and
gradients of weights, say, fill the gaps that it leaves on devices and on channels (insertion as in
HEFT, Topcuoglu et al. 2002, for both).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.local_search.disjunctive_graph import NONE
from placegap.solvers.local_search.quick_schedule import ScheduleArrays, Work


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
    booked.stretches[:] = 0
    makespan, size = 0, 0
    for x in range(data.num_items):
        start[x] = NONE
    for i in range(n):
        waiting[i], rank[i] = data.num_preds[i], priority[i]
    for i in range(n):
        if waiting[i] == 0:
            size = _push(heap, size, rank, i)
    while size > 0:
        v = heap[0]
        size = _pop(heap, size, rank)
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
                start[c] = _common_gap(booked, one, two, end[u], length)
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
                size = _push(heap, size, rank, w)
    return int(makespan)


@kernel(nogil=True, allocates=False)
def _common_gap(booked: Booked, one: int, two: int, ready: int, length: int) -> int:
    """When two machines, or the one of them that is there, have nothing to do for so long."""
    if one < 0:
        return ready
    while True:
        first = _first_gap(booked, one, ready, length)
        if two < 0:
            return first
        ready = _first_gap(booked, two, first, length)
        if ready == first:
            return ready


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


@kernel(nogil=True, allocates=False)
def _is_sooner(rank: Ints, a: int, b: int) -> bool:
    return bool(rank[a] > rank[b] or (rank[a] == rank[b] and a < b))


@kernel(nogil=True, allocates=False)
def _push(heap: Ints, size: int, rank: Ints, v: int) -> int:
    """Put an op into the heap; its new size."""
    at = size
    while at > 0 and _is_sooner(rank, v, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = v
    return size + 1


@kernel(nogil=True, allocates=False)
def _pop(heap: Ints, size: int, rank: Ints) -> int:
    """Take the most urgent op out of the heap; its new size."""
    left = size - 1
    last, at = heap[left], 0
    while 2 * at + 1 < left:
        child = 2 * at + 1
        if child + 1 < left and _is_sooner(rank, heap[child + 1], heap[child]):
            child += 1
        if not _is_sooner(rank, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return left
