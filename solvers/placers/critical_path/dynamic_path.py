"""Scheduling along the dynamic critical path: the kernel of D-DPS.

Times are in units of 1 / scale ns. An unplaced op i has

- ``tail[i]``: the longest way from its start to the end, with mean costs. All ops behind i are
  unplaced, too, so it never changes;
- ``est[i]``: its earliest start after those of its parents that are placed, with mean transfers.

The dynamic critical path is as long as the latest placed op's end, or as est[i] + tail[i] of some
unplaced op i: a longest path leaves the placed ops once. With its length DCPL, LST(i) is DCPL -
tail[i]; the slack LST(i) - EST(i) is least where est + tail is largest, and 0 for critical ops.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.instances.problem.kernels import kernel, sizes_of
from placegap.solvers.placers.insertion import Gaps, first_fit, occupy
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admits,
    settle,
)


@kernel
def schedule_dynamic_path(
    problem: Problem,
    admission: Admission,
    tail: Ints,
    tensor_cost: Ints,
    scale: int,
    position: Ints,
    gaps: Gaps,
) -> KernelTimes:
    """Place the ready ops by increasing slack, critical ones first; ties by position.

    A device that admits the op is a candidate if the op's first idle gap there begins no later
    than its latest start there (11). Preferred are, in this order:

    1. candidates that hold a parent: the one of earliest start;
    2. candidates where the op's most urgent child then fits as well: the one that runs both in the
       least time (12);
    3. other candidates: the one of earliest start;
    4. without candidates, of the devices that admit the op the one that holds the op of
       largest slack.

    Parameters
    ----------
    problem : Problem
    admission : Admission
        To empty devices; used up.
    tail : (n,) int64
        Longest way from the start of each op to the end, in 1 / scale ns.
    tensor_cost : (t,) int64
        Mean transfer of each tensor, in 1 / scale ns.
    scale : int
    position : (n,) int64
        Topological positions.
    gaps : Gaps
        Of idle devices; used up.
    """
    n, num_devices = problem.time_ns.shape
    device = np.full(n, NOWHERE, np.int64)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    est = np.zeros(n, np.int64)
    waiting = sizes_of(problem.inputs.ptr)
    arrival, begin = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    gap = np.empty(num_devices, np.int64)
    is_near = np.empty(num_devices, np.bool_)
    least_urgent = np.full(num_devices, -1)  # least start + tail of an op there
    through = [(-tail[op], position[op], op) for op in range(n)]  # -(est + tail), as it was
    ready = [(-tail[op], position[op], op) for op in range(n) if waiting[op] == 0]
    heapq.heapify(through)
    heapq.heapify(ready)
    longest = np.int64(0)
    while len(ready) > 0:
        op = heapq.heappop(ready)[2]
        while device[through[0][2]] != NOWHERE:  # an old entry of an op is below its newest
            heapq.heappop(through)
        length = max(longest, -through[0][0])
        _arrivals(problem, op, device, end, arrival, is_near)
        fits, any_admits = False, False
        for k in range(num_devices):
            begin[k] = NEVER
            if admits(admission, op, k):
                any_admits = True
                gap[k] = first_fit(gaps, k, arrival[k], problem.time_ns[op, k])
                begin[k] = max(arrival[k], gaps.begin_ns[gap[k]])
                # LST on k: the shift of EST applies to LST as well
                if begin[k] * scale <= length - tail[op] - est[op] + arrival[k] * scale:
                    fits = True
        if not any_admits:
            return KernelTimes(device, start, end, op)
        if fits:
            window = length - tail[op] - est[op]
            at = _preferred(
                problem,
                admission,
                op,
                window,
                length,
                arrival,
                begin,
                is_near,
                device,
                end,
                est,
                tail,
                scale,
                gaps,
            )
        else:
            at = _least_urgent(begin, least_urgent)
        settle(admission, op, at)
        duration = problem.time_ns[op, at]
        occupy(gaps, at, gap[at], op, begin[at], duration)
        device[op], start[op], end[op] = at, begin[at], begin[at] + duration
        longest = max(longest, end[op] * scale)
        urgency = start[op] * scale + tail[op]
        if least_urgent[at] < 0 or urgency < least_urgent[at]:
            least_urgent[at] = urgency
        for e in range(problem.succ_ptr[op], problem.succ_ptr[op + 1]):
            succ = problem.succ_op[e]
            sent = end[op] * scale + tensor_cost[problem.succ_tensor[e]]
            if sent > est[succ]:
                est[succ] = sent
                heapq.heappush(through, (-(est[succ] + tail[succ]), position[succ], succ))
            waiting[succ] -= 1
            if waiting[succ] == 0:
                heapq.heappush(ready, (-(est[succ] + tail[succ]), position[succ], succ))
    return KernelTimes(device, start, end, NOWHERE)


@kernel(allocates=False)
def _arrivals(
    problem: Problem, op: int, device: Ints, end: Ints, arrival: Ints, is_near: Any
) -> None:
    """When the outputs of the op's placed parents are on each device, in ns; who holds a parent."""
    inputs = problem.inputs
    arrival[:], is_near[:] = 0, False
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        source = device[inputs.op[e]]
        if source == NOWHERE:
            continue
        is_near[source] = True
        for k in range(len(arrival)):
            transfer = inputs.transfer_ns[inputs.tensor[e], inputs.link_class[source, k]]
            arrival[k] = max(arrival[k], end[inputs.op[e]] + transfer)


@kernel
def _preferred(
    problem: Problem,
    admission: Admission,
    op: int,
    window: int,
    length: int,
    arrival: Ints,
    begin: Ints,
    is_near: Any,
    device: Ints,
    end: Ints,
    est: Ints,
    tail: Ints,
    scale: int,
    gaps: Gaps,
) -> Any:
    """The best of the candidates, of which there is one at least: rules 1 to 3."""
    num_devices = len(begin)
    best = NOWHERE
    for k in range(num_devices):
        passes = begin[k] != NEVER and (begin[k] - arrival[k]) * scale <= window
        if passes and is_near[k] and (best == NOWHERE or begin[k] < begin[best]):
            best = k
    if best != NOWHERE:
        return best
    child = _most_urgent_child(problem, op, est, tail)
    if child != NOWHERE:
        child_arrival, near = np.empty(num_devices, np.int64), np.empty(num_devices, np.bool_)
        _arrivals(problem, child, device, end, child_arrival, near)
        least = NEVER
        for k in range(num_devices):
            if begin[k] == NEVER or (begin[k] - arrival[k]) * scale > window:
                continue
            duration = problem.time_ns[child, k]
            if duration == UNSUPPORTED or not _both_fit(admission, op, child, k):
                continue
            after = max(child_arrival[k], begin[k] + problem.time_ns[op, k])
            slot = first_fit(gaps, k, after, duration)
            starts = max(after, gaps.begin_ns[slot])
            both = problem.time_ns[op, k] + duration
            if starts * scale <= length - tail[child] and both < least:
                least, best = both, k
    if best != NOWHERE:
        return best
    for k in range(num_devices):
        passes = begin[k] != NEVER and (begin[k] - arrival[k]) * scale <= window
        if passes and (best == NOWHERE or begin[k] < begin[best]):
            best = k
    return best


@kernel
def _most_urgent_child(problem: Problem, op: int, est: Ints, tail: Ints) -> Any:
    """The child of least slack, as far as the placed parents of the children tell, or -1."""
    best = NOWHERE
    for child in problem.succ_op[problem.succ_ptr[op] : problem.succ_ptr[op + 1]]:
        if best == NOWHERE or est[child] + tail[child] > est[best] + tail[best]:
            best = child
    return best


@kernel(allocates=False)
def _both_fit(admission: Admission, op: int, child: int, k: int) -> bool:
    """Whether the device admits the child after the op, which it admits."""
    if not admits(admission, child, k):
        return False
    group, other = admission.group[op], admission.group[child]
    if group == other or admission.home[group] != NOWHERE or admission.home[other] != NOWHERE:
        return True
    needed = admission.group_bytes[group] + admission.group_bytes[other]
    return bool(needed <= admission.free_bytes[k])


@kernel
def _least_urgent(begin: Ints, least_urgent: Ints) -> Any:
    """The device, of those that admit the op, with the op of largest slack; rule 4."""
    best = NOWHERE
    for k in range(len(begin)):
        if begin[k] != NEVER and (best == NOWHERE or least_urgent[k] < least_urgent[best]):
            best = k
    return best
