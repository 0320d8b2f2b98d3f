"""Earliest start first: the loop that ETF and m-ETF share.

A pair (ready op, device) can start when the op's inputs have arrived and the device is free. Pairs
wait in two kinds of heaps, so that a step looks at their tops instead of at all pairs:

- *now*, one per device: only the device keeps them, all would start together; by rank.
- *later*: their inputs arrive after the device gets free; by arrival. Where transfers are booked,
  an arrival moves with the clock it follows from, so there is one heap per clock, which holds
  offsets to it; one more is for arrivals that no clock delays.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import copy_to, kernel, sizes_of
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    Inputs,
    KernelTimes,
    Problem,
    admits,
    settle,
)

NOT_LATER = -1


@kernel
def earliest_start_first(
    problem: Problem, admission: Admission, order: Ints, booked: bool
) -> KernelTimes:
    """Repeatedly start the (ready op, device) pair of earliest start.

    Ties: the op that comes first in `order`, then the device. An op that no device admits is left
    over; the first such op is `stuck`.

    O((V + E) K log V) with free transfers. With booked ones a pair whose arrival turns out to
    follow from another clock is put back when it comes to the top.

    Parameters
    ----------
    problem : Problem
    admission : Admission
        To empty devices; used up.
    order : (n,) int64
        Ops by preference.
    booked : bool
        Whether transfers occupy the clocks of both devices (`arrival_ns`), or nothing.
    """
    n, num_devices = problem.time_ns.shape
    inputs = problem.inputs
    num_sendable = len(inputs.transfer_ns) if booked else 0
    sent = np.full((num_sendable, num_devices), NOWHERE)  # when a tensor is there, once sent
    clock = np.zeros(num_devices + 1, np.int64)  # the last one stands still
    trial, cause = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    device = np.full(n, NOWHERE)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    free_at = np.zeros(num_devices, np.int64)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    waiting = sizes_of(inputs.ptr)
    now = [[np.int64(0) for _ in range(0)] for _ in range(num_devices)]  # ranks
    # (offset to the clock, rank, device)
    later = [[(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)] for _ in clock]
    follows = np.full((n, num_devices), NOT_LATER)  # the clock under which a pair waits
    offset = np.zeros((n, num_devices), np.int64)
    news = [np.int64(0) for _ in range(0)]  # tensors sent for the last op
    pairs = [(op, k) for op in range(n) if waiting[op] == 0 for k in range(num_devices)]
    while True:
        for op, k in pairs:
            if not admits(admission, op, k):
                continue  # for good: memory is never given back
            arrival, c = arrival_ns(inputs, op, k, device, end, sent, clock, trial, cause, booked)
            if arrival <= free_at[k]:
                follows[op, k] = NOT_LATER
                heapq.heappush(now[k], rank[op])
            elif (follows[op, k], offset[op, k]) != (c, arrival - clock[c]):
                follows[op, k], offset[op, k] = c, arrival - clock[c]
                heapq.heappush(later[c], (offset[op, k], rank[op], np.int64(k)))
        pairs.clear()
        best, of_clock = earliest_pair(now, later, clock, free_at, device, order)
        if best[0] < 0:
            break
        at, turn, where = best
        op = order[turn]
        if of_clock == NOT_LATER:
            heapq.heappop(now[where])
        else:
            top = heapq.heappop(later[of_clock])
            if (follows[op, where], offset[op, where]) != (of_clock, top[0]):
                continue  # it waits elsewhere by now
            follows[op, where] = NOT_LATER
            if at <= free_at[where]:
                heapq.heappush(now[where], turn)
                continue
        if not admits(admission, op, where):
            continue
        if booked:
            there, _ = arrival_ns(inputs, op, where, device, end, sent, clock, trial, cause, booked)
            if there > at:  # a clock went on since it was put there
                pairs.append((op, where))
                continue
            book_transfers(inputs, op, where, device, end, sent, clock, news)
        settle(admission, op, where)
        device[op], start[op] = where, at
        end[op] = free_at[where] = at + problem.time_ns[op, where]
        look_again(problem, op, where, waiting, device, follows, news, pairs)
    return KernelTimes(device, start, end, first_unplaced(problem, device))


@kernel
def look_again(
    problem: Problem,
    op: int,
    where: int,
    waiting: Ints,
    device: Ints,
    follows: Ints,
    news: list[Any],
    pairs: list[Any],
) -> None:
    """Add the pairs whose start is to be computed anew, now that an op is placed."""
    for succ in problem.succ_op[problem.succ_ptr[op] : problem.succ_ptr[op + 1]]:
        waiting[succ] -= 1
        if waiting[succ] == 0:
            for k in range(follows.shape[1]):
                pairs.append((succ, k))
    for u in news:  # what was sent for this op is there for others as well, whatever the clocks
        for other in problem.tensor_op[problem.tensor_ptr[u] : problem.tensor_ptr[u + 1]]:
            if device[other] == NOWHERE and follows[other, where] != NOT_LATER:
                pairs.append((other, where))
    news.clear()


@kernel(allocates=False)
def first_unplaced(problem: Problem, device: Ints) -> int:
    """The first op in topological order that has no device, or `NOWHERE`."""
    for op in problem.topological_order:
        if device[op] == NOWHERE:
            return int(op)
    return NOWHERE


@kernel
def earliest_pair(
    now: list[list[Any]],
    later: list[list[Any]],
    clock: Ints,
    free_at: Ints,
    device: Ints,
    order: Ints,
) -> tuple[tuple[Any, Any, Any], int]:
    """The least top as (start, rank, device), start -1 if all heaps are empty; and its clock."""
    best, of_clock = (np.int64(-1), np.int64(-1), np.int64(-1)), NOT_LATER
    for k in range(len(now)):
        ranks = now[k]
        while len(ranks) > 0 and device[order[ranks[0]]] != NOWHERE:
            heapq.heappop(ranks)
        if len(ranks) > 0:
            top = (free_at[k], ranks[0], np.int64(k))
            if best[0] < 0 or top < best:
                best = top
    for c in range(len(later)):
        pairs = later[c]
        while len(pairs) > 0 and device[order[pairs[0][1]]] != NOWHERE:
            heapq.heappop(pairs)
        if len(pairs) > 0:
            offset, turn, where = pairs[0]
            top = (clock[c] + offset, turn, where)
            if best[0] < 0 or top < best:
                best, of_clock = top, c
    return best, of_clock


@kernel
def arrival_ns(
    inputs: Inputs,
    op: int,
    k: int,
    device: Ints,
    end: Ints,
    sent: Ints,
    clock: Ints,
    trial: Ints,
    cause: Ints,
    booked: bool,
) -> tuple[Any, Any]:
    """When all inputs of the op could be on device k, in ns, and the clock this follows from.

    Free transfers start when the producer ends. Booked ones (Baechi) hold one clock per device for
    sending and receiving: a send starts at max(end of the producer, sender's clock), its receipt at
    max(start of the send, receiver's clock), both last as long as the transfer; a tensor goes once
    to each device. Inputs are booked in input order.

    `trial` and `cause` are scratch: the clocks as they would be, and what set them.
    """
    num_devices = len(trial)
    arrival, why = np.int64(0), np.int64(num_devices)
    if booked:
        copy_to(trial, clock)
        for b in range(num_devices):
            cause[b] = b
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        u, source = inputs.tensor[e], device[inputs.op[e]]
        there, because = end[inputs.op[e]], np.int64(num_devices)
        if source != k:
            duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
            if not booked:
                there += duration
            elif sent[u, k] != NOWHERE:
                there = sent[u, k]
            else:
                if trial[source] >= there:
                    there, because = trial[source], cause[source]
                trial[source], cause[source] = there + duration, because
                if trial[k] >= there:
                    there, because = trial[k], cause[k]
                there += duration
                trial[k], cause[k] = there, because
        if there > arrival:
            arrival, why = there, because
    return arrival, why


@kernel
def book_transfers(
    inputs: Inputs,
    op: int,
    k: int,
    device: Ints,
    end: Ints,
    sent: Ints,
    clock: Ints,
    news: list[Any],
) -> None:
    """Send what the op lacks on device k, as `arrival_ns` foresaw; note the tensors in `news`."""
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        u, source = inputs.tensor[e], device[inputs.op[e]]
        if source != k and sent[u, k] == NOWHERE:
            duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
            send = max(end[inputs.op[e]], clock[source])
            clock[source] = send + duration
            clock[k] = max(send, clock[k]) + duration
            sent[u, k] = clock[k]
            news.append(u)
