"""Earliest start first: the loop of ETF, m-ETF and m-SCT.

A pair (ready op, device) can start when the op's inputs have arrived and the device is free. Pairs
wait in two kinds of heaps, so that a step looks at their tops instead of at all pairs:

- *now*, one per device: only the device keeps them, all would start together; by rank.
- *later*: their inputs arrive after the device gets free; by arrival. Where transfers are booked,
  an arrival moves with the clock it follows from, so there is one heap per clock, which holds
  offsets to it; one more is for arrivals that no clock delays.

m-SCT waits besides: a device is *awake* (Baechi) for the favourite child of the op that it ran
last, and holds other ops back.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.problem import Makespan
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import copy_to, kernel, sizes_of
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admission_of,
    admits,
    levels,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
    settle,
)

NOT_LATER = -1

NO_FAVOURITES = np.zeros(0, np.int64)


class PlacedOps(NamedTuple):
    """What is placed so far, (n,) or (K,), and Baechi's clocks of K devices.

    `sent` (t, K) is when a tensor is on a device, -1 if it was not sent; without rows transfers
    are free. The clock number K stands still. `trial` and `cause` (K,) are scratch: the clocks as
    they would be, and what set them.
    """

    device: Ints
    start: Ints
    end: Ints
    free_at: Ints
    sent: Ints
    clock: Ints
    trial: Ints
    cause: Ints


@method("etf", objectives=("makespan",), cites="Hwang et al. 1989")
def etf(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Starts the op that can start earliest.

    Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor
    communication times", SIAM J. Computing 18(2), 1989. A heuristic for the makespan; it plans
    with free channels and inserts nothing into idle gaps.
    Ties: higher static level (longest path of mean times to the end, without transfers), then
    topological position, then device index. The paper has equal processors; here an op's time on
    a device does not enter the choice. Added to it: an op goes only to devices that can run it,
    with room for it and its colocation group.
    O((V + E) K log V) time.
    """
    arrays = task.instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    static_level = levels(problem, costs.op, np.zeros_like(costs.tensor))
    times = earliest_start_first(
        problem, admission, order_by(static_level, arrays), False, NO_FAVOURITES
    )
    return outcome_of(task.instance, times, admission)


@kernel(bounded=True)
def earliest_start_first(
    problem: Problem, admission: Admission, order: Ints, booked: bool, favourite: Ints
) -> KernelTimes:
    """Repeatedly start the (ready op, device) pair of earliest start, favourite children preferred.

    Ties: the op that comes first in `order`, then the device. An op that no device admits is left
    over; the first such op is `stuck`.

    With favourites a device is awake while the favourite child of the op that it ran last is ready,
    unplaced, and can start on no device earlier than on this one. It then runs that child, or an op
    that is urgent: one that could start by now on every device that admits it. Others are held back
    until the child is placed, the device has run another op, or they are urgent.

    O((V + E) K log V) with free transfers. With booked ones a pair whose arrival turns out to
    follow from another clock is put back when it comes to the top, and a device that waits holds
    back every op that could start on it meanwhile.

    Parameters
    ----------
    admission : Admission
        To empty devices; used up.
    order : (n,) int64
        Ops by preference.
    booked : bool
        Whether transfers occupy the clocks of both devices (`arrival_ns`), or nothing.
    favourite : (n,) or (0,) int64
        The favourite child of each op, or -1; of none, where it is empty.
    """
    n, num_devices = problem.time_ns.shape
    placed = nothing_placed(problem, booked)
    # in a kernel with list comprehensions numba drops `placed.end[op] = ...` as dead code: what is
    # written here needs a name of its own
    device, start, end = placed.device, placed.start, placed.end
    free_at, clock = placed.free_at, placed.clock
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    waiting = sizes_of(problem.inputs.ptr)
    now = [[np.int64(0) for _ in range(0)] for _ in range(num_devices)]  # ranks
    # (offset to the clock, rank, device)
    later = [[(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)] for _ in clock]
    follows = np.full((n, num_devices), NOT_LATER)  # the clock under which a pair waits
    offset = np.zeros((n, num_devices), np.int64)
    news = [np.int64(0) for _ in range(0)]  # tensors sent for the last op
    last = np.full(num_devices, NOWHERE)
    is_held = np.zeros((len(favourite), num_devices), np.bool_)
    held: list[Any] = [
        (np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)
    ]  # (urgent at, rank, device)
    held_on = [[np.int64(0) for _ in range(0)] for _ in range(num_devices)]
    pairs: list[Any] = [(op, k) for op in range(n) if waiting[op] == 0 for k in range(num_devices)]
    while True:
        for op, k in pairs:
            if device[op] != NOWHERE or not admits(admission, op, k):
                continue  # for good: memory is never given back
            arrival, c = arrival_ns(problem, placed, op, k)
            if arrival <= free_at[k]:
                follows[op, k] = NOT_LATER
                heapq.heappush(now[k], rank[op])
            elif (follows[op, k], offset[op, k]) != (c, arrival - clock[c]):
                follows[op, k], offset[op, k] = c, arrival - clock[c]
                heapq.heappush(later[c], (offset[op, k], rank[op], np.int64(k)))
        pairs.clear()
        best, of_clock = _earliest_pair(now, later, placed, order)
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
        if booked and arrival_ns(problem, placed, op, where)[0] > at:
            pairs.append((op, where))  # a clock went on since it was put there
            continue
        child = NOWHERE
        if len(favourite) > 0 and last[where] != NOWHERE:
            child = favourite[last[where]]
        if child not in (NOWHERE, op) and device[child] == NOWHERE and waiting[child] == 0:
            first, _, here = _starts(problem, admission, placed, child, where)
            if here >= 0 and here == first:
                latest = _starts(problem, admission, placed, op, where)[1]
                if latest > at and here > at:
                    is_held[op, where] = True
                    held_on[where].append(np.int64(op))
                    heapq.heappush(held, (latest, turn, np.int64(where)))
                    continue
                if latest > at:
                    pairs.append((op, where))
                    op, at = child, here
        if booked:
            book_transfers(problem, placed, op, where, news)
        settle(admission, op, where)
        device[op], start[op] = where, at
        end[op] = free_at[where] = at + problem.time_ns[op, where]
        for k in range(num_devices if len(favourite) > 0 else 0):
            if k == where or (last[k] != NOWHERE and favourite[last[k]] == op):
                for other in held_on[k]:
                    if is_held[other, k]:
                        is_held[other, k] = False
                        pairs.append((other, k))
                held_on[k].clear()
        last[where] = op
        # the pairs whose start is to be computed anew, now that the op is placed
        for succ in problem.succ_op[problem.succ_ptr[op] : problem.succ_ptr[op + 1]]:
            waiting[succ] -= 1
            if waiting[succ] == 0:
                for k in range(num_devices):
                    pairs.append((succ, k))
        for u in news:  # what was sent for this op is there for others as well, whatever the clocks
            for other in problem.tensor_op[problem.tensor_ptr[u] : problem.tensor_ptr[u + 1]]:
                if device[other] == NOWHERE and follows[other, where] != NOT_LATER:
                    pairs.append((other, where))
        news.clear()
    return KernelTimes(device, start, end, first_unplaced(problem, device))


@kernel(bounded=True)
def nothing_placed(problem: Problem, booked: bool) -> PlacedOps:
    """Idle devices, and no tensor sent."""
    n, num_devices = problem.time_ns.shape
    clock, trial = np.zeros(num_devices + 1, np.int64), np.zeros(num_devices, np.int64)
    return PlacedOps(
        np.full(n, NOWHERE),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(num_devices, np.int64),
        np.full((len(problem.inputs.transfer_ns) if booked else 0, num_devices), NOWHERE),
        clock,
        trial,
        np.arange(num_devices),
    )


@kernel(allocates=False)
def first_unplaced(problem: Problem, device: Ints) -> int:
    """The first op in topological order that has no device, or `NOWHERE`."""
    for op in problem.topological_order:
        if device[op] == NOWHERE:
            return int(op)
    return NOWHERE


@kernel
def _earliest_pair(
    now: list[list[Any]], later: list[list[Any]], placed: PlacedOps, order: Ints
) -> tuple[tuple[Any, Any, Any], int]:
    """The least top as (start, rank, device), start -1 if all heaps are empty; and its clock."""
    best, of_clock = (np.int64(-1), np.int64(-1), np.int64(-1)), NOT_LATER
    for k in range(len(now)):
        ranks = now[k]
        while len(ranks) > 0 and placed.device[order[ranks[0]]] != NOWHERE:
            heapq.heappop(ranks)
        if len(ranks) > 0:
            top = (placed.free_at[k], ranks[0], np.int64(k))
            if best[0] < 0 or top < best:
                best = top
    for c in range(len(later)):
        pairs = later[c]
        while len(pairs) > 0 and placed.device[order[pairs[0][1]]] != NOWHERE:
            heapq.heappop(pairs)
        if len(pairs) > 0:
            offset, turn, where = pairs[0]
            top = (placed.clock[c] + offset, turn, where)
            if best[0] < 0 or top < best:
                best, of_clock = top, c
    return best, of_clock


@kernel(allocates=False)
def arrival_ns(problem: Problem, placed: PlacedOps, op: int, k: int) -> tuple[int, int]:
    """When all inputs of the op could be on device k, in ns, and the clock this follows from.

    Free transfers start when the producer ends. Booked ones (Baechi) hold one clock per device for
    sending and receiving: a send starts at max(end of the producer, sender's clock), its receipt at
    max(start of the send, receiver's clock), both last as long as the transfer; a tensor goes once
    to each device. Inputs are booked in input order.
    """
    inputs, device, end, sent = problem.inputs, placed.device, placed.end, placed.sent
    trial, cause = placed.trial, placed.cause
    num_devices, booked = len(trial), len(sent) > 0
    arrival, why = np.int64(0), np.int64(num_devices)
    if booked:
        copy_to(trial, placed.clock)
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
    return int(arrival), int(why)


@kernel
def book_transfers(problem: Problem, placed: PlacedOps, op: int, k: int, news: list[Any]) -> None:
    """Send what the op lacks on device k, as `arrival_ns` foresaw; note the tensors in `news`."""
    inputs, device, end = problem.inputs, placed.device, placed.end
    sent, clock = placed.sent, placed.clock
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        u, source = inputs.tensor[e], device[inputs.op[e]]
        if source != k and sent[u, k] == NOWHERE:
            duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
            send = max(end[inputs.op[e]], clock[source])
            clock[source] = send + duration
            clock[k] = max(send, clock[k]) + duration
            sent[u, k] = clock[k]
            news.append(u)


@kernel(bounded=True, allocates=False)
def _starts(
    problem: Problem, admission: Admission, placed: PlacedOps, op: int, where: int
) -> tuple[int, int, int]:
    """Earliest and latest start of a ready op over the devices that admit it; on `where`, or -1."""
    first, latest, here = np.int64(-1), np.int64(-1), np.int64(-1)
    for k in range(len(placed.free_at)):
        if not admits(admission, op, k):
            continue
        begin = max(arrival_ns(problem, placed, op, k)[0], placed.free_at[k])
        if first < 0 or begin < first:
            first = begin
        latest = max(latest, begin)
        if k == where:
            here = begin
    return int(first), int(latest), int(here)
