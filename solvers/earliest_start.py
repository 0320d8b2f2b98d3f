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

import numpy as np
from numba import njit

from placegap.instances.index import Ints
from placegap.solvers.list_scheduling import NOWHERE, Problem, Times, admits, settle

NOT_LATER = -1


@njit(cache=True)
def earliest_start_first(problem: Problem, order: Ints, booked: bool) -> Times:
    """Repeatedly start the (ready op, device) pair of earliest start.

    Ties: the op that comes first in `order`, then the device. An op that no device admits is left
    over; the first such op is `stuck`.

    O((V + E) K log V) with free transfers. With booked ones a pair whose arrival turns out to
    follow from another clock is put back when it comes to the top.

    Parameters
    ----------
    problem : Problem
    order : (n,) int64
        Ops by preference.
    booked : bool
        Whether transfers occupy the clocks of both devices (`_arrival`), or nothing.
    """
    n, num_devices = problem.time_ns.shape
    num_sendable = len(problem.transfer_ns) if booked else 0
    sent = np.full((num_sendable, num_devices), NOWHERE)  # when a tensor is there, once sent
    clock = np.zeros(num_devices + 1, np.int64)  # the last one stands still
    trial, cause = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    device = np.full(n, NOWHERE)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    home, free_bytes = np.full(len(problem.group_bytes), NOWHERE), problem.memory_bytes.copy()
    free_at = np.zeros(num_devices, np.int64)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    waiting = np.diff(problem.pred_ptr)
    now = [[np.int64(0) for _ in range(0)] for _ in range(num_devices)]  # ranks
    # (offset to the clock, rank, device)
    later = [[(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)] for _ in clock]
    follows = np.full((n, num_devices), NOT_LATER)  # the clock under which a pair waits
    offset = np.zeros((n, num_devices), np.int64)
    pairs = [(op, k) for op in range(n) if waiting[op] == 0 for k in range(num_devices)]
    while True:
        for op, k in pairs:
            if not admits(problem, home, free_bytes, op, k):
                continue  # for good: memory is never given back
            arrival, c = _arrival(problem, op, k, device, end, sent, clock, trial, cause, booked)
            if arrival <= free_at[k]:
                follows[op, k] = NOT_LATER
                heapq.heappush(now[k], rank[op])
            elif (follows[op, k], offset[op, k]) != (c, arrival - clock[c]):
                follows[op, k], offset[op, k] = c, arrival - clock[c]
                heapq.heappush(later[c], (offset[op, k], rank[op], np.int64(k)))
        pairs.clear()
        best, of_clock = (np.int64(-1), np.int64(-1), np.int64(-1)), NOT_LATER
        for k in range(num_devices):
            heap = now[k]
            while len(heap) > 0 and device[order[heap[0]]] != NOWHERE:
                heapq.heappop(heap)
            if len(heap) > 0:
                pair = (free_at[k], heap[0], np.int64(k))
                if best[0] < 0 or pair < best:
                    best = pair
        for c in range(0 if booked else num_devices, num_devices + 1):
            waits = later[c]
            while len(waits) > 0 and device[order[waits[0][1]]] != NOWHERE:
                heapq.heappop(waits)
            if len(waits) > 0:
                top = waits[0]
                pair = (clock[c] + top[0], top[1], top[2])
                if best[0] < 0 or pair < best:
                    best, of_clock = pair, c
        if best[0] < 0:
            break
        arrival, turn, k = best
        op = order[turn]
        if of_clock == NOT_LATER:
            heapq.heappop(now[k])
        else:
            top = heapq.heappop(later[of_clock])
            if (follows[op, k], offset[op, k]) != (of_clock, top[0]):
                continue  # it waits elsewhere by now
            follows[op, k] = NOT_LATER
            if arrival <= free_at[k]:
                heapq.heappush(now[k], turn)
                continue
        if not admits(problem, home, free_bytes, op, k):
            continue
        if booked:
            there, c = _arrival(problem, op, k, device, end, sent, clock, trial, cause, True)
            if there > arrival:  # a clock went on since it was put there
                pairs.append((op, k))
                continue
            _book(problem, op, k, device, end, sent, clock)
        settle(problem, home, free_bytes, op, k)
        device[op], start[op] = k, arrival
        end[op] = free_at[k] = arrival + problem.time_ns[op, k]
        for e in problem.succ_edge[problem.succ_ptr[op] : problem.succ_ptr[op + 1]]:
            succ = problem.consumer[e]
            waiting[succ] -= 1
            if waiting[succ] == 0:
                for other_device in range(num_devices):
                    pairs.append((succ, other_device))
        if booked:
            # What was sent for this op is there for others as well, whatever the clocks do.
            for e in problem.pred_edge[problem.pred_ptr[op] : problem.pred_ptr[op + 1]]:
                u = problem.tensor[e]
                for f in problem.tensor_edge[problem.tensor_ptr[u] : problem.tensor_ptr[u + 1]]:
                    other = problem.consumer[f]
                    if device[other] == NOWHERE and follows[other, k] != NOT_LATER:
                        pairs.append((other, k))
    stuck = NOWHERE
    for op in problem.topological_order[::-1]:
        if device[op] == NOWHERE:
            stuck = op
    return Times(device, start, end, stuck)


@njit(cache=True)
def _arrival(
    problem: Problem, op: int, k: int, device: Ints, end: Ints, sent: Ints, clock: Ints,
    trial: Ints, cause: Ints, booked: bool,
) -> tuple[int, int]:  # fmt: skip
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
        trial[:] = clock[:num_devices]
        cause[:] = np.arange(num_devices)
    for e in problem.pred_edge[problem.pred_ptr[op] : problem.pred_ptr[op + 1]]:
        u, source = problem.tensor[e], device[problem.producer[e]]
        there, because = end[problem.producer[e]], np.int64(num_devices)
        if source != k:
            duration = problem.transfer_ns[u, problem.link_class[source, k]]
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


@njit(cache=True)
def _book(
    problem: Problem, op: int, k: int, device: Ints, end: Ints, sent: Ints, clock: Ints
) -> None:
    """Send what the op lacks on device k, as `_arrival` foresaw it."""
    for e in problem.pred_edge[problem.pred_ptr[op] : problem.pred_ptr[op + 1]]:
        u, source = problem.tensor[e], device[problem.producer[e]]
        if source != k and sent[u, k] == NOWHERE:
            duration = problem.transfer_ns[u, problem.link_class[source, k]]
            send = max(end[problem.producer[e]], clock[source])
            clock[source] = send + duration
            clock[k] = max(send, clock[k]) + duration
            sent[u, k] = clock[k]
