"""Earliest start first with favourite children: the placing part of m-SCT.

As `earliest_start` with booked transfers; in addition a device waits for the favourite child of
the op that it ran last (Baechi's "awake" devices).
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel, sizes_of
from placegap.solvers.placers.earliest_start import (
    NOT_LATER,
    arrival_ns,
    book_transfers,
    earliest_pair,
    first_unplaced,
    look_again,
)
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admits,
    settle,
)


@kernel
def favourite_child_first(
    problem: Problem, admission: Admission, order: Ints, favourite: Ints
) -> KernelTimes:
    """Repeatedly start the (ready op, device) pair of earliest start, favourite children preferred.

    A device is awake while the favourite child of the op that it ran last is ready, unplaced, and
    can start on no device earlier than on this one. It then runs that child, or an op that is
    urgent: one that could start by now on every device that admits it. Others are held back until
    the child is placed, the device has run another op, or they are urgent. Without favourites this
    is m-ETF. Ties: `order`, then the device.

    O((V + E) K log V) where little is held back; a device that waits holds back every op that
    could start on it meanwhile.

    Parameters
    ----------
    problem : Problem
    admission : Admission
        To empty devices; used up.
    order : (n,) int64
        Ops by preference.
    favourite : (n,) int64
        The favourite child of each op, or -1.
    """
    n, num_devices = problem.time_ns.shape
    inputs = problem.inputs
    sent = np.full((len(inputs.transfer_ns), num_devices), NOWHERE)
    clock = np.zeros(num_devices + 1, np.int64)  # the last one stands still
    trial, cause = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    device = np.full(n, NOWHERE)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    free_at = np.zeros(num_devices, np.int64)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    waiting = sizes_of(inputs.ptr)
    now = [[np.int64(0) for _ in range(0)] for _ in range(num_devices)]
    later = [[(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)] for _ in clock]
    follows = np.full((n, num_devices), NOT_LATER)
    offset = np.zeros((n, num_devices), np.int64)
    news = [np.int64(0) for _ in range(0)]
    booked: Any = np.bool_(True)  # no literal: `arrival_ns` is compiled once
    last = np.full(num_devices, NOWHERE)
    is_held = np.zeros((n, num_devices), np.bool_)
    held: list[Any] = [
        (np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)
    ]  # (urgent at, rank, device)
    held_on = [[np.int64(0) for _ in range(0)] for _ in range(num_devices)]
    pairs: list[Any] = [(op, k) for op in range(n) if waiting[op] == 0 for k in range(num_devices)]
    while True:
        for op, k in pairs:
            if device[op] != NOWHERE or not admits(admission, op, k):
                continue
            arrival, c = arrival_ns(inputs, op, k, device, end, sent, clock, trial, cause, booked)
            if arrival <= free_at[k]:
                follows[op, k] = NOT_LATER
                heapq.heappush(now[k], rank[op])
            elif (follows[op, k], offset[op, k]) != (c, arrival - clock[c]):
                follows[op, k], offset[op, k] = c, arrival - clock[c]
                heapq.heappush(later[c], (offset[op, k], rank[op], np.int64(k)))
        pairs.clear()
        best, of_clock = earliest_pair(now, later, clock, free_at, device, order)
        at, turn, where = best
        if len(held) > 0 and (at < 0 or held[0][0] <= at):
            urgent_at, turn, where = heapq.heappop(held)
            if is_held[order[turn], where]:
                is_held[order[turn], where] = False
                free_at[where] = max(free_at[where], urgent_at)  # it stood idle until then
                pairs.append((order[turn], where))
            continue
        if at < 0:
            break
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
        there, _ = arrival_ns(inputs, op, where, device, end, sent, clock, trial, cause, booked)
        if there > at:  # a clock went on since it was put there
            pairs.append((op, where))
            continue
        child = favourite[last[where]] if last[where] != NOWHERE else NOWHERE
        if child not in (NOWHERE, op) and device[child] == NOWHERE and waiting[child] == 0:
            first, _, here = _starts(
                problem, admission, child, where, device, end, sent, clock, trial, cause, free_at
            )
            if here >= 0 and here == first:
                _, latest, _ = _starts(
                    problem, admission, op, where, device, end, sent, clock, trial, cause, free_at
                )
                if latest > at and here > at:
                    is_held[op, where] = True
                    held_on[where].append(np.int64(op))
                    heapq.heappush(held, (latest, turn, np.int64(where)))
                    continue
                if latest > at:
                    pairs.append((op, where))
                    op, at = child, here
        book_transfers(inputs, op, where, device, end, sent, clock, news)
        settle(admission, op, where)
        device[op], start[op] = where, at
        end[op] = free_at[where] = at + problem.time_ns[op, where]
        for k in range(num_devices):
            if k == where or (last[k] != NOWHERE and favourite[last[k]] == op):
                for other in held_on[k]:
                    if is_held[other, k]:
                        is_held[other, k] = False
                        pairs.append((other, k))
                held_on[k].clear()
        last[where] = op
        look_again(problem, op, where, waiting, device, follows, news, pairs)
    return KernelTimes(device, start, end, first_unplaced(problem, device))


@kernel
def _starts(
    problem: Problem,
    admission: Admission,
    op: int,
    where: int,
    device: Ints,
    end: Ints,
    sent: Ints,
    clock: Ints,
    trial: Ints,
    cause: Ints,
    free_at: Ints,
) -> tuple[Any, Any, Any]:
    """Earliest and latest start of a ready op over the devices that admit it; on `where`, or -1."""
    first, latest, here = np.int64(-1), np.int64(-1), np.int64(-1)
    booked: Any = np.bool_(True)
    for k in range(len(free_at)):
        if not admits(admission, op, k):
            continue
        arrival, _ = arrival_ns(
            problem.inputs, op, k, device, end, sent, clock, trial, cause, booked
        )
        begin = max(arrival, free_at[k])
        if first < 0 or begin < first:
            first = begin
        latest = max(latest, begin)
        if k == where:
            here = begin
    return first, latest, here
