"""Earliest start first: the loop of ETF, m-ETF and m-SCT.

A pair (ready op, device) can start when the op's inputs have arrived and the device is free. Every
step looks at all pairs, and the earliest starts. m-SCT waits besides: a device is *awake* (Baechi)
for the favourite child of the op that it ran last, and holds other ops back.

Under Baechi's dynamic memory outputs and scratch memory come and go. A commitment takes the op's
outputs and resident bytes, and needs its scratch memory besides, which is free again at once.
Outputs are freed when the last consumer is committed: in the order of commitments, not of times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, sizes_of
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.mean_costs import mean_costs
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admission_of,
    levels,
    order_by,
    outcome_of,
    problem_of,
    settle,
)


class Footprint(NamedTuple):
    """Bytes of each op's outputs and scratch memory, (n,) each."""

    outputs: Ints
    scratch: Ints


def no_footprint(instance: Instance) -> Footprint:
    """Nothing beside the resident bytes."""
    outputs, scratch = np.zeros((2, instance.num_ops), np.int64)
    return Footprint(outputs, scratch)


def no_favourites(instance: Instance) -> Ints:
    """No op has a favourite child."""
    return np.full(instance.num_ops, NOWHERE)


class PlacedOps(NamedTuple):
    """What is placed so far, (n,), and Baechi's clocks of K devices."""

    # `sent` (t, K) is when a tensor is on a device, -1 if it was not sent; without rows transfers
    # are free. `trial` (K,) is scratch: the clocks as they would be.
    device: Ints
    end: Ints
    sent: Ints
    clock: Ints
    trial: Ints


@method("etf", objectives=("makespan",), cites="Hwang et al. 1989")
def etf(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Starts the op that can start earliest.

    Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor
    communication times", SIAM J. Computing 18(2), 1989. A heuristic for the makespan; it plans with
    free channels and inserts nothing into idle gaps. Ties: higher static level (longest path of
    mean times to the end, without transfers), then topological position, then device index. The
    paper has equal processors; here the choice ignores an op's time on a device. O(V x ready
    ops x K + E K) time.

    Deviations: the paper has equal processors; here the choice ignores an op's time on a
    device.
    """
    arrays = task.instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    static_level = levels(problem, costs.op, np.zeros_like(costs.tensor))
    order, nothing = order_by(static_level, arrays), no_footprint(task.instance)
    alone = no_favourites(task.instance)
    times = earliest_start_first(problem, admission, nothing, order, False, alone)
    return outcome_of(task.instance, times, admission)


@kernel(bounded=True)
def earliest_start_first(
    problem: Problem,
    admission: Admission,
    footprint: Footprint,
    order: Ints,
    booked: bool,
    favourite: Ints,
) -> KernelTimes:
    """Repeatedly commit the (ready op, device) pair of earliest start that fits now."""
    # While the favourite child of the op that a device ran last is ready, and can start nowhere
    # earlier than there, another op can start on that device only when it could by then on every
    # device that admits it; the child takes the turn of an op that it need not wait for. Ties:
    # `order`, then the device. The first op that is left over is `stuck`. O(steps x ready ops x
    # devices), times their inputs where transfers are booked. `favourite` has the favourite child
    # of each op, or -1. With `booked`, transfers occupy the clocks of both devices (`arrival_ns`).
    n, num_devices = problem.time_ns.shape
    inputs, free_bytes = problem.inputs, admission.free_bytes
    device, start, end = np.full(n, NOWHERE), np.zeros(n, np.int64), np.zeros(n, np.int64)
    free_at = np.zeros(num_devices, np.int64)
    rows = len(inputs.transfer_ns) if booked else 0
    sent, trial = np.full((rows, num_devices), NOWHERE), np.zeros(num_devices, np.int64)
    placed = PlacedOps(device, end, sent, np.zeros(num_devices, np.int64), trial)
    foresees: Any = np.bool_(False)  # no literals: `arrival_ns` is compiled once
    books: Any = np.bool_(True)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    waiting, unserved = sizes_of(inputs.ptr), sizes_of(problem.succ_ptr)
    arrives = np.full((n, num_devices), NOWHERE)  # of ready ops, where their time is known
    begins = np.full((n, num_devices), NOWHERE)  # the same; -1 where a device does not admit
    latest = np.full(n, NOWHERE)  # over the devices
    last, awaited = np.full(num_devices, NOWHERE), np.full(num_devices, NOWHERE)
    ready, size = np.empty(n, np.int64), 0
    for op in range(n):
        if waiting[op] == 0:
            ready[size] = op
            size += 1
    while size > 0:
        for op in ready[:size]:
            latest[op], group = NOWHERE, admission.group[op]
            home = admission.home[group]
            for k in range(num_devices):
                begins[op, k] = NOWHERE
                needed = footprint.outputs[op] + footprint.scratch[op]
                if home == NOWHERE:
                    needed += admission.group_bytes[group]
                runs = admission.group_runs[group, k] if home == NOWHERE else home == k
                if runs and needed <= free_bytes[k]:
                    if booked or arrives[op, k] == NOWHERE:
                        arrives[op, k] = arrival_ns(problem, placed, op, k, foresees)
                    begins[op, k] = max(arrives[op, k], free_at[k])
                    latest[op] = max(latest[op], begins[op, k])
        for k in range(num_devices):
            child = NOWHERE if last[k] == NOWHERE else favourite[last[k]]
            is_ready = child != NOWHERE and device[child] == NOWHERE and waiting[child] == 0
            if is_ready:  # and can start there, and nowhere earlier
                for begin in begins[child]:
                    is_ready = is_ready and (begin == NOWHERE or begin >= begins[child, k])
                is_ready = is_ready and begins[child, k] != NOWHERE
            awaited[k] = child if is_ready else NOWHERE
        best: Any = (np.int64(-1), np.int64(-1), np.int64(-1))
        chosen: Any = np.int64(NOWHERE)
        place = 0
        for turn in range(size):
            op = ready[turn]
            for k in range(num_devices):
                at, child = begins[op, k], awaited[k]
                if at == NOWHERE:
                    continue
                if child == op or latest[op] == at:
                    child = np.int64(NOWHERE)
                if child != NOWHERE and begins[child, k] > at:
                    at, child = latest[op], np.int64(NOWHERE)
                if chosen == NOWHERE or (at, rank[op], k) < best:
                    best = (at, rank[op], np.int64(k))
                    chosen = op if child == NOWHERE else child
        if chosen == NOWHERE:
            break
        begin, where = best[0], best[2]
        if rank[chosen] != best[1]:  # the child
            begin = begins[chosen, where]
        if booked:
            arrival_ns(problem, placed, chosen, where, books)
        settle(admission, chosen, where)
        free_bytes[where] -= footprint.outputs[chosen]
        device[chosen], start[chosen] = where, begin
        for producer in inputs.op[inputs.ptr[chosen] : inputs.ptr[chosen + 1]]:
            unserved[producer] -= 1
            if unserved[producer] == 0:  # no other consumer is left
                free_bytes[device[producer]] += footprint.outputs[producer]
        end[chosen] = free_at[where] = begin + problem.time_ns[chosen, where]
        last[where] = chosen
        while ready[place] != chosen:
            place += 1
        size -= 1
        ready[place] = ready[size]
        for succ in problem.succ_op[problem.succ_ptr[chosen] : problem.succ_ptr[chosen + 1]]:
            waiting[succ] -= 1
            if waiting[succ] == 0:
                ready[size] = succ
                size += 1
    stuck: Any = np.int64(NOWHERE)
    for op in problem.topological_order[::-1]:
        if device[op] == NOWHERE:
            stuck = op
    return KernelTimes(device, start, end, stuck)


@kernel(allocates=False)
def arrival_ns(problem: Problem, placed: PlacedOps, op: int, k: int, books: bool) -> int:
    """When all inputs of the op could be on device k, in ns; whether they are sent there now."""
    # Free transfers start when the producer ends. Booked ones (Baechi) hold one clock per device
    # for sending and receiving: a send starts at max(end of the producer, sender's clock), its
    # receipt at max(start of the send, receiver's clock), both last as long as the transfer; a
    # tensor goes once to each device. Inputs are booked in input order.
    inputs, device, end, sent = problem.inputs, placed.device, placed.end, placed.sent
    clock = placed.clock if books else placed.trial
    arrival = np.int64(0)
    if len(sent) > 0 and not books:
        clock[k] = placed.clock[k]
        for before in inputs.op[inputs.ptr[op] : inputs.ptr[op + 1]]:
            clock[device[before]] = placed.clock[device[before]]
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        u, source = inputs.tensor[e], device[inputs.op[e]]
        there = end[inputs.op[e]]
        if source != k:
            duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
            if len(sent) == 0:
                there += duration
            elif sent[u, k] != NOWHERE:
                there = sent[u, k]
            else:
                there = max(there, clock[source])
                clock[source] = there + duration
                there = max(there, clock[k]) + duration
                clock[k] = there
                if books:
                    sent[u, k] = there
        arrival = max(arrival, there)
    return int(arrival)
