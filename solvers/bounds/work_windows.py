"""Work between heads and tails: what must run between two moments needs devices in between.

Weights w[k] >= 0 of the devices turn ops into masses m[i] = min over k of w[k] p[i, k]. However ops
are placed, all devices together do no more than W = sum of w mass in a nanosecond. So if no op of a
set S can start before a, and after each at least b must follow, then

    makespan  >=  a + b + (sum of m over S) / W.

**Heads.** All ancestors of v end before v starts. Those of them that cannot start before a hold v
back until a + (sum of their masses) / W: a head of v, beside the longest path, and paths go on from
there. Ancestors are looked at in the order of falling heads, by a heap: only the first few of
them, as fewer ancestors prove less and nothing wrong. Tails are heads of the reversed graph.

**Arcs.** The same for the ops between two others: `interval_arcs` counts in the longest paths.

**Makespan.** The largest value over all pairs (a, b), by a sweep over falling heads with a segment
tree over tails: O(n log n). Heads cost O(n MOST log MOST).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push, stable_order
from placegap.instances.problem import Instance
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import NO_WAY, ceil_div, to_whole
from placegap.instances.problem.sections import Interval, Section, intervals
from placegap.solvers.bounds.cheap_bounds import Direction, arrive, directions, spread_weights
from placegap.solvers.bounds.section_gaps import IntervalArcs, interval_arcs

MOST, FEWEST, MOST_STEPS = 300, 16, 3_000_000
"""Ancestors that are looked at for one head: at most, at least in large graphs, and for all ops."""

BITS, MOST_BITS = 61, 20
"""Products of times and weights stay below 2**61; bits of a weight."""


class WorkWindows(NamedTuple):
    """What of an instance is between heads and tails."""

    #: (n, K) int64: `NO_WAY` where an op cannot be.
    time_ns: Ints
    #: mass, weights: (n,): Weights of the devices, and what the ops are worth by them.
    mass: Ints
    weights: Ints
    #: head_ns, tail_ns: (n, K) int64: An op starts no earlier, and so much follows its end at
    #: least, on each device.
    head_ns: Ints
    tail_ns: Ints
    #: The small ones first.
    intervals: list[Interval]


def work_windows(instance: Instance) -> WorkWindows | None:
    """Heads and tails by paths, intervals and work; None if integers would overflow.

    Parameters
    ----------
    instance : Instance
        Every op can be on some device.
    """
    arrays, index = instance.arrays, instance.arrays.index
    possible, num_ops = instance.arrays.possible, instance.num_ops
    largest = sum(np.where(possible, arrays.time_ns, 0).max(axis=1).tolist())
    largest += sum(arrays.transfer_ns.max(axis=1, initial=0)[index.tensor].tolist())
    bits = min(MOST_BITS, BITS - (2 * largest * instance.num_devices).bit_length())
    if bits < 0:
        return None
    _, best = spread_weights(arrays.time_ns, possible)
    weights = to_whole(np.rint(np.array(best) / max(best) * 2.0**bits))
    width = int(weights.sum())
    masses = np.where(possible, arrays.time_ns, 0) * weights
    mass = np.where(possible, masses, np.iinfo(np.int64).max).min(axis=1)
    time = np.where(possible, arrays.time_ns, NO_WAY)
    most = min(MOST, max(FEWEST, MOST_STEPS // num_ops))
    found = sorted(intervals(instance), key=lambda part: len(part.inner))
    arcs = interval_arcs(instance, found, time, mass, weights)
    into = ArcsInto(*group_by(arcs.exit, num_ops), arcs.entry, arcs.gap_ns)
    out = ArcsInto(
        *group_by(arcs.entry, num_ops),
        arcs.exit,
        np.ascontiguousarray(arcs.gap_ns.transpose(0, 2, 1)),
    )
    head, tail = (
        _heads(graph, time, mass, width, ways, most)
        for graph, ways in zip(directions(instance), (into, out), strict=True)
    )
    return WorkWindows(time, mass, weights, head, tail, found)


def window_bound(windows: WorkWindows) -> int:
    """What work between heads and tails proves of every makespan, in ns."""
    head, tail, time = windows.head_ns, windows.tail_ns, windows.time_ns
    by_path = int(np.minimum(head + tail + time, NO_WAY).min(axis=1).max())
    first = np.where(time < NO_WAY, head, NO_WAY).min(axis=1)
    last = np.where(time < NO_WAY, tail, NO_WAY).min(axis=1)
    width = int(windows.weights.sum())
    by_work = int(_most_over_windows(first, last, windows.mass, width))
    return max(by_path, ceil_div(by_work, width))


def chain_arcs(
    instance: Instance, chain: Sequence[Section], windows: WorkWindows
) -> tuple[list[Interval], IntervalArcs, Ints]:
    """The arcs of a chain's intervals, as many as there are, and their tables.

    Returns
    -------
    tuple of (list of Interval, IntervalArcs, (r, K, K) int64)
        Tables have the least time from the end of an arc's first op to the end of its second one,
        by their devices; `NO_WAY` where colocated ops would be apart.
    """
    parts = [
        Interval(part.entry, part.exit, tuple(part.ops[1:-1]))
        for part in chain
        if part.entry is not None and part.exit is not None
    ]
    time = windows.time_ns
    arcs = interval_arcs(instance, parts, time, windows.mass, windows.weights)
    tables = np.minimum(arcs.gap_ns + time[arcs.exit][:, None, :], NO_WAY)
    group, stay = instance.arrays.group, np.eye(instance.num_devices, dtype=np.bool_)
    tables[(group[arcs.entry] == group[arcs.exit])[:, None, None] & ~stay] = NO_WAY
    return parts[: len(arcs.entry)], arcs, tables


class ArcsInto(NamedTuple):
    """Arcs to op v: those in ``arc[pointer[v] : pointer[v + 1]]``, each from op `other`, with the
    least time between both by their devices.
    """

    pointer: Ints
    arc: Ints
    other: Ints
    gap_ns: Ints


@kernel(bounded=True)
def _heads(graph: Direction, time: Ints, mass: Ints, width: int, arcs: ArcsInto, most: int) -> Ints:
    """Least start of every op on every device, by paths and by the work of its ancestors."""
    num_ops, num_devices = time.shape
    start = np.zeros((num_ops, num_devices), np.int64)
    first, seen = np.zeros(num_ops, np.int64), np.full(num_ops, -1)
    latest, heap = np.zeros(num_ops, np.int64), np.empty(num_ops, np.int64)  # latest: -first
    for v in graph.order:
        arrive(graph, time, start, v)
        size = 0
        for e in graph.edge[graph.pointer[v] : graph.pointer[v + 1]]:
            u = graph.other[e]
            if seen[u] != v:
                seen[u] = v
                size = push(heap, size, latest, u)
        for r in arcs.arc[arcs.pointer[v] : arcs.pointer[v + 1]]:
            u = arcs.other[r]
            for b in range(num_devices):
                least = NO_WAY
                for a in range(num_devices):
                    least = min(least, start[u, a] + time[u, a] + arcs.gap_ns[r, a, b])
                start[v, b] = max(start[v, b], least)
        work, at_least, count = 0, 0, 0
        while count < most:
            if size == 0:
                break
            u = heap[0]
            size = pop(heap, size, latest)
            work += mass[u]
            at_least = max(at_least, first[u] + -(-work // width))
            count += 1
            for e in graph.edge[graph.pointer[u] : graph.pointer[u + 1]]:
                w = graph.other[e]
                if seen[w] != v:
                    seen[w] = v
                    size = push(heap, size, latest, w)
        first[v] = NO_WAY
        for b in range(num_devices):
            start[v, b] = min(NO_WAY, max(start[v, b], at_least))
            if time[v, b] < NO_WAY:
                first[v] = min(first[v], start[v, b])
        latest[v] = -first[v]
    return start


@kernel(bounded=True)
def _most_over_windows(head: Ints, tail: Ints, mass: Ints, width: int) -> int:
    """Largest a width + b width + mass of the ops with heads >= a and tails >= b.

    A segment tree over the tails b: of each node the mass below it, and the largest b width + mass
    of the tails from b on, among the b of ops that are in.
    """
    num_ops = len(mass)
    order = stable_order(tail)
    at = np.empty(num_ops, np.int64)
    at[order] = np.arange(num_ops)
    size = 1
    while size < num_ops:
        size *= 2
    sums, best = np.zeros(2 * size, np.int64), np.full(2 * size, -(2**62))
    most = 0
    for i in stable_order(-head):
        node = size + at[i]
        sums[node] = mass[i]
        best[node] = mass[i] + tail[i] * width
        node //= 2
        while node:
            left, right = 2 * node, 2 * node + 1
            sums[node] = sums[left] + sums[right]
            best[node] = max(best[right], best[left] + sums[right])
            node //= 2
        most = max(most, head[i] * width + best[1])
    return most
