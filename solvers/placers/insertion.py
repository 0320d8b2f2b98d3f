"""List scheduling by insertion: ops by priority, each into the idle gap where it finishes best.

Insertion looks, for every op and device, for the first idle gap that is long enough. The gaps of a
device, in time order, are an in-order walk of a treap (Seidel, Aragon 1996); each node knows the
longest gap below it, so a search skips whole subtrees of short gaps, in O(log V).

Node k < K is the gap that device k starts with, from 0 to forever; node K + i is the gap behind
op i. A gap may have length zero, so that an op of zero time can stand between two neighbours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push, sizes_of
from placegap.instances.problem import Instance
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admission_of,
    admits,
    order_by,
    outcome_of,
    settle,
)

FOREVER = 2**63 - 1

NONE = -1


def insert_by(
    instance: Instance,
    problem: Problem,
    priority: Ints,
    lookahead: Ints | None = None,
    scale: int = 1,
) -> Outcome:
    """The plan of `schedule_by_insertion` on idle devices, ops of the highest priority first."""
    admission = admission_of(instance.arrays)
    times = schedule_by_insertion(
        problem,
        admission,
        order_by(priority, instance.arrays),
        idle_devices(instance.num_devices, instance.num_ops),
        np.empty((0, 0), np.int64) if lookahead is None else lookahead,
        scale,
    )
    return outcome_of(instance, times, admission)


@kernel(bounded=True)
def schedule_by_insertion(
    problem: Problem, admission: Admission, order: Ints, gaps: Gaps, lookahead: Ints, scale: int
) -> KernelTimes:
    """Place ready ops in the given order of preference, each where it finishes best."""
    # An op starts in the first idle gap of a device that is long enough, after its inputs have
    # arrived. Among the devices that admit it, it takes the least scale * finish + lookahead, and
    # the first of equals. O(V K log V + E K). `lookahead`, (n, K) or empty, is what finishing on a
    # device is thought to cost later, in 1 / scale ns.
    n, num_devices = problem.time_ns.shape
    device = np.full(n, NOWHERE, np.int64)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    inputs = problem.inputs
    turn = np.empty(n, np.int64)
    for at in range(n):
        turn[order[at]] = at
    waiting = sizes_of(inputs.ptr)
    ready, size = np.empty(n, np.int64), 0
    for op in order:
        if waiting[op] == 0:
            size = push(ready, size, turn, op)
    arrival = np.empty(num_devices, np.int64)
    while size > 0:
        op = ready[0]
        size = pop(ready, size, turn)
        for k in range(num_devices):
            arrival[k] = 0
        for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
            source, sent = device[inputs.op[e]], end[inputs.op[e]]
            for k in range(num_devices):
                transfer = inputs.transfer_ns[inputs.tensor[e], inputs.link_class[source, k]]
                arrival[k] = max(arrival[k], sent + transfer)
        least, best_gap = 0, NOWHERE
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
        for e in range(problem.succ_ptr[op], problem.succ_ptr[op + 1]):
            succ = problem.succ_op[e]
            waiting[succ] -= 1
            if waiting[succ] == 0:
                size = push(ready, size, turn, succ)
    return KernelTimes(device, start, end, NOWHERE)


class Gaps(NamedTuple):
    """The gaps of all devices; one row per node, `root` one per device."""

    begin_ns: Ints
    end_ns: Ints
    longest_ns: Ints
    left: Ints
    right: Ints
    parent: Ints
    priority: Ints
    root: Ints


def idle_devices(num_devices: int, num_ops: int) -> Gaps:
    """Gaps of devices that have no op yet, with room for `num_ops` ops."""
    nodes = num_devices + num_ops
    begin, end, longest = (np.zeros(nodes, np.int64) for _ in range(3))
    end[:num_devices] = longest[:num_devices] = FOREVER
    left, right, parent = (np.full(nodes, NONE, np.int64) for _ in range(3))
    # The priorities keep the tree shallow; what a search finds does not depend on them.
    priority = np.random.default_rng(0).permutation(nodes)
    return Gaps(begin, end, longest, left, right, parent, priority, np.arange(num_devices))


@kernel(bounded=True)
def first_fit(gaps: Gaps, device: int, ready_ns: int, duration_ns: int) -> Any:
    """The first gap of the device in which the op can start at max(gap's begin, ready) and end."""
    begin, end, left, right = gaps.begin_ns, gaps.end_ns, gaps.left, gaps.right
    node, found = gaps.root[device], NONE
    while node != NONE:  # the first gap that ends late enough
        if end[node] >= ready_ns + duration_ns:
            node, found = left[node], node
        else:
            node = right[node]
    node = found
    if begin[node] <= ready_ns:
        return node
    # Gaps behind it begin after `ready`, too: now the length alone decides.
    while end[node] - begin[node] < duration_ns:
        if right[node] != NONE and gaps.longest_ns[right[node]] >= duration_ns:
            node = right[node]
            while left[node] != NONE and gaps.longest_ns[left[node]] >= duration_ns:
                node = left[node]
        else:
            while right[gaps.parent[node]] == node:
                node = gaps.parent[node]
            node = gaps.parent[node]
    return node


@kernel(allocates=False)
def occupy(gaps: Gaps, device: int, gap: int, op: int, start_ns: int, duration_ns: int) -> None:
    """Put op number `op` into a gap, which it splits in two."""
    left, right, parent = gaps.left, gaps.right, gaps.parent
    node = len(gaps.root) + op
    gaps.begin_ns[node], gaps.end_ns[node] = start_ns + duration_ns, gaps.end_ns[gap]
    gaps.end_ns[gap] = start_ns
    if right[gap] == NONE:
        right[gap] = node
        parent[node] = gap
    else:
        at = right[gap]
        while left[at] != NONE:
            at = left[at]
        left[at] = node
        parent[node] = at
    _measure(gaps, node)
    while parent[node] != NONE and gaps.priority[parent[node]] < gaps.priority[node]:
        old = parent[node]  # swap them, keeping the order of the walk
        if left[old] == node:
            moved = right[node]
            left[old], right[node] = moved, old
        else:
            moved = left[node]
            right[old], left[node] = moved, old
        if moved != NONE:
            parent[moved] = old
        above = parent[old]
        parent[old], parent[node] = node, above
        if above == NONE:
            gaps.root[device] = node
        elif left[above] == old:
            left[above] = node
        else:
            right[above] = node
        _measure(gaps, old)
    while node != NONE:
        _measure(gaps, node)
        node = parent[node]


@kernel(bounded=True, allocates=False)
def _measure(gaps: Gaps, node: int) -> None:
    longest = gaps.end_ns[node] - gaps.begin_ns[node]
    if gaps.left[node] != NONE:
        longest = max(longest, gaps.longest_ns[gaps.left[node]])
    if gaps.right[node] != NONE:
        longest = max(longest, gaps.longest_ns[gaps.right[node]])
    gaps.longest_ns[node] = longest
