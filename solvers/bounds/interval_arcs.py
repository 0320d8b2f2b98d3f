"""Intervals as arcs: the least time between the end of one op and the start of another.

What paths and work prove of the ops between two others (`section_gaps`) holds under every semantics
of the makespan, so that the arcs may be counted beside the edges by longest paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.instances.structure.intervals import Interval
from placegap.instances.structure.sections import Section
from placegap.solvers.bounds.cheap_bounds import Direction, directions
from placegap.solvers.bounds.section_gaps import paths_through, raise_by_all

MOST_STEPS = 300_000_000
"""Edges of all intervals times devices cubed, a second's worth."""

MOST_CELLS = 20_000_000
"""Of all tables together."""


class IntervalArcs(NamedTuple):
    """Pairs of ops, and what lies between the end of the first and the start of the second.

    ``gap_ns[r, a, b]``: the least time with the first on device a and the second on b.
    ``head_ns[x, a, c]`` and ``tail_ns[x, b, c]``, a row for each op between, in the order
    of the arcs: the least time from the end of the first op to its start on c, and from its end to
    the start of the second. Where devices are alike there are fewer of them, and with many ops
    none.
    """

    entry: Ints
    exit: Ints
    gap_ns: Ints
    head_ns: Ints
    tail_ns: Ints


def interval_arcs(
    instance: Instance, parts: Sequence[Interval], time: Ints, mass: Ints, weights: Ints
) -> IntervalArcs:
    """Arcs of some intervals, in their order, as many as `MOST_STEPS` allow.

    Parameters
    ----------
    instance : Instance
    parts : sequence of Interval
    time : (n, K) int64
        Times, `NO_WAY` where an op cannot be.
    mass, weights : (n,) and (K,) int64
        As in `work_windows`; products with all times together must fit into 2**61.

    Examples
    --------
    In the middle of the diamond 20 ns and 10 ns are side by side. With transfers they take 22 ns
    between ends on one device, and 21 ns between ends on two:

    >>> from placegap.instances import example
    >>> from placegap.instances.structure.intervals import intervals
    >>> times, weights = example().arrays.time_ns.copy(), np.ones(2, np.int64)
    >>> mass = times[:, 0].copy()
    >>> interval_arcs(example(), intervals(example()), times, mass, weights).gap_ns.tolist()
    [[[22, 21], [21, 22]]]
    """
    arrays, index, num_devices = instance.arrays, instance.arrays.index, instance.num_devices
    link, classes, multiple = arrays.link_class, num_devices, np.ones(num_devices, np.int64)
    alike = num_devices > 3 and _alike(instance, time, weights)
    if alike:  # the device of u, that of v, and all others
        classes, multiple = 3, np.array([1, 1, num_devices - 2], np.int64)
        link = link[:3, :3]
    degree, steps, chosen = np.diff(index.pred_ptr), 0, list[Interval]()
    for part in parts:
        edges = int(degree[list(part.inner)].sum() + degree[part.exit])
        steps += 2 * edges * classes**3
        if steps > MOST_STEPS or (len(chosen) + 1) * num_devices**2 > MOST_CELLS:
            break
        chosen.append(part)
    ops = [i for part in chosen for i in part.inner]
    pointer = np.cumsum([0, *(len(part.inner) for part in chosen)])
    parts_of = IntervalOps(
        np.array([part.entry for part in chosen], np.int64),
        np.array([part.exit for part in chosen], np.int64),
        np.array(ops, np.int64),
        pointer.astype(np.int64),
    )
    graph = directions(instance)[0]._replace(link_class=np.ascontiguousarray(link))
    times = np.ascontiguousarray(time[:, :classes])
    ends, width = 2 if alike else classes, weights[:classes] * multiple
    keep = len(ops) * classes**2 <= MOST_CELLS
    gap, head, tail = _gaps(parts_of, graph, times, mass, width, ends, keep)
    if alike:
        stay = np.eye(num_devices, dtype=np.bool_)
        gap = np.where(stay, gap[:, 0, 0, None, None], gap[:, 0, 1, None, None])
    return IntervalArcs(parts_of.entry, parts_of.exit, gap, head, tail)


def _alike(instance: Instance, time: Ints, weights: Ints) -> bool:
    """Whether no device can be told from another, nor any link."""
    link = instance.arrays.link_class
    away = link[~np.eye(len(link), dtype=np.bool_)]
    same = bool((away == away[0]).all()) and bool((weights == weights[0]).all())
    return same and bool((time == time[:, :1]).all())


def chain_arcs(
    instance: Instance, chain: Sequence[Section], time: Ints, mass: Ints, weights: Ints
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
    arcs = interval_arcs(instance, parts, time, mass, weights)
    tables = np.minimum(arcs.gap_ns + time[arcs.exit][:, None, :], NO_WAY)
    group, stay = instance.arrays.group, np.eye(instance.num_devices, dtype=np.bool_)
    tables[(group[arcs.entry] == group[arcs.exit])[:, None, None] & ~stay] = NO_WAY
    return parts[: len(arcs.entry)], arcs, tables


class IntervalOps(NamedTuple):
    """Ends of intervals, and the ops between: those of interval r from ``pointer[r]`` on."""

    entry: Ints
    exit: Ints
    inner: Ints
    pointer: Ints


@kernel
def _gaps(
    parts: IntervalOps,
    graph: Direction,
    time: Ints,
    mass: Ints,
    weights: Ints,
    ends: int,
    keep: bool,
) -> tuple[Ints, Ints, Ints]:
    """Least times of all intervals, for the first `ends` devices as ends; heads and tails."""
    num_devices, num = time.shape[1], len(parts.entry)
    gaps = np.zeros((num, ends, ends), np.int64)
    rows = len(parts.inner) if keep else 0
    heads = np.zeros((rows, ends, num_devices), np.int64)
    tails = np.zeros((rows, ends, num_devices), np.int64)
    at_end = np.full(num_devices, NO_WAY)
    at_end[:ends] = 0
    outside, local = -2, np.full(len(time), -2)
    for r in range(num):
        first, last = parts.pointer[r], parts.pointer[r + 1]
        ops = np.append(parts.inner[first:last], parts.exit[r])
        size, own = len(ops) - 1, np.empty((len(ops) - 1, num_devices), np.int64)
        local[parts.entry[r]], total = -1, 0
        for x in range(size + 1):
            local[ops[x]] = x
        for x in range(size):
            own[x] = time[ops[x]]
            total += mass[ops[x]]
        most = 0
        for op in ops:
            most += graph.pointer[op + 1] - graph.pointer[op]
        producer, consumer = np.empty(most, np.int64), np.empty(most, np.int64)
        move, count = np.empty((most, num_devices, num_devices), np.int64), 0
        for x in range(size + 1):
            for e in graph.edge[graph.pointer[ops[x]] : graph.pointer[ops[x] + 1]]:
                y, takes = local[graph.other[e]], graph.transfer_ns[graph.tensor[e]]
                if y == outside:
                    continue
                producer[count], consumer[count] = y, x
                for a in range(num_devices):
                    for b in range(num_devices):
                        move[count, a, b] = takes[graph.link_class[a, b]]
                count += 1
        gap, head, tail = paths_through(
            at_end, own, at_end, producer[:count], consumer[:count], move[:count]
        )
        if size > 0:
            raise_by_all(gap, own, head, tail, total, weights)
        gaps[r] = gap[:ends, :ends]
        if keep:
            heads[first:last], tails[first:last] = head[:, :ends], tail[:, :ends]
        local[parts.entry[r]] = outside
        for op in ops:
            local[op] = outside
    return gaps, heads, tails
