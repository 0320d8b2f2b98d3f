"""List scheduling by insertion: the part that HEFT and PEFT share."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
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
def schedule_by_insertion(
    problem: Problem, admission: Admission, order: Ints, gaps: Gaps, lookahead: Ints, scale: int
) -> KernelTimes:
    """Place ready ops in the given order of preference, each where it finishes best.

    An op starts in the first idle gap of a device that is long enough, after its inputs have
    arrived. Among the devices that admit it, it takes the least scale * finish + lookahead, and
    the first of equals. O(V K log V + E K).

    Parameters
    ----------
    problem : Problem
    admission : Admission
        To empty devices; used up.
    order : (n,) int64
        Ops by preference; an op waits until its predecessors are placed.
    gaps : Gaps
        Of idle devices; used up.
    lookahead : (n, K) or (0, 0) int64
        What finishing on a device is thought to cost later, in 1 / scale ns; empty: nothing.
    scale : int
    """
    n, num_devices = problem.time_ns.shape
    device = np.full(n, NOWHERE, np.int64)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    inputs = problem.inputs
    turn = np.empty(n, np.int64)
    turn[order] = np.arange(n)
    waiting = sizes_of(inputs.ptr)
    ready = [turn[op] for op in range(n) if waiting[op] == 0]
    heapq.heapify(ready)
    arrival = np.empty(num_devices, np.int64)
    nowhere: Any = np.int64(NOWHERE)  # no literal: `occupy` is compiled once
    while len(ready) > 0:
        op = order[heapq.heappop(ready)]
        arrival[:] = 0
        for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
            source, sent = device[inputs.op[e]], end[inputs.op[e]]
            for k in range(num_devices):
                transfer = inputs.transfer_ns[inputs.tensor[e], inputs.link_class[source, k]]
                arrival[k] = max(arrival[k], sent + transfer)
        least, best_gap = 0, nowhere
        for k in range(num_devices):
            if admits(admission, op, k):
                gap = first_fit(gaps, k, arrival[k], problem.time_ns[op, k])
                begin = max(arrival[k], gaps.begin_ns[gap])
                cost = (begin + problem.time_ns[op, k]) * scale
                if len(lookahead) > 0:
                    cost += lookahead[op, k]
                if best_gap == NOWHERE or cost < least:
                    least, best_gap, device[op], start[op] = cost, gap, k, begin
        if best_gap == NOWHERE:
            return KernelTimes(device, start, end, op)
        settle(admission, op, device[op])
        duration = problem.time_ns[op, device[op]]
        occupy(gaps, device[op], best_gap, op, start[op], duration)
        end[op] = start[op] + duration
        for succ in problem.succ_op[problem.succ_ptr[op] : problem.succ_ptr[op + 1]]:
            waiting[succ] -= 1
            if waiting[succ] == 0:
                heapq.heappush(ready, turn[succ])
    return KernelTimes(device, start, end, NOWHERE)
