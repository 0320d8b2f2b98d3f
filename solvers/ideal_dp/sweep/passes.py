"""One pass over all walks, or over all arcs: distances to or from many ideals at once.

A pass is confined to ideals whose work lies between two amounts: nothing else is read or written,
and an edge whose cost leads beyond a limit is not followed.
"""

from __future__ import annotations

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import Indices
from placegap.solvers.ideal_dp.sweep.lattice import IdealLattice
from placegap.solvers.ideal_dp.sweep.walks import Walks

FAR = 2**62
"""A distance that no walk has."""


@kernel(allocates=False)
def _from(ideal: Indices, work: Ints, size: int, begin: int, end: int, low: int) -> int:
    """First place in [begin, end) whose vertex' ideal has at least so much work.

    `ideal` holds vertices; one below `size` is an ideal.
    """
    while begin < end:
        middle = (begin + end) // 2
        if work[ideal[middle]] < low:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=False)
def _edges_from(p: Walks, work: Ints, begin: int, end: int, low: int) -> int:
    """First edge in [begin, end), of one group, whose target's ideal has at least so much work."""
    size = len(work)
    while begin < end:
        middle = (begin + end) // 2
        target = p.target[middle]
        ideal = target if target < size else p.ideal[target - size]
        if work[ideal] < low:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=False)
def _clear(p: Walks, work: Ints, step: int, low: int, high: int, distance: Ints) -> None:
    """No walk has come to the vertices that a step makes."""
    size, end = len(work), p.made_ptr[step + 1]
    first = _from(p.ideal, work, size, p.made_ptr[step], end, low)
    last = _from(p.ideal, work, size, first, end, high + 1)
    distance[size + first : size + last] = FAR


@kernel(allocates=False)
def pass_forth(p: Walks, work: Ints, low: int, high: int, limit: int, distance: Ints) -> None:
    """Distances from the ideals at distance 0, of walks between two amounts of work."""
    for step in range(len(p.made_ptr) - 1):
        _clear(p, work, step, low, high, distance)
        for g in range(p.group_ptr[step], p.group_ptr[step + 1]):
            end, cost = p.edge_ptr[g + 1], p.cost[g]
            most = limit - cost
            if p.edge_ptr[g] == end or most < 0:
                continue
            first = _edges_from(p, work, p.edge_ptr[g], end, low + p.added[g])
            last = _edges_from(p, work, first, end, high + 1)
            for at in range(first, last):
                here = distance[p.source[at]]
                if here <= most and here + cost < distance[p.target[at]]:
                    distance[p.target[at]] = here + cost


@kernel(allocates=False)
def pass_back(p: Walks, work: Ints, low: int, high: int, limit: int, distance: Ints) -> None:
    """Distances to the ideal at distance 0."""
    for step in range(len(p.made_ptr) - 1):
        _clear(p, work, step, low, high, distance)
    for step in range(len(p.made_ptr) - 2, -1, -1):
        for g in range(p.group_ptr[step + 1] - 1, p.group_ptr[step] - 1, -1):
            end, cost = p.edge_ptr[g + 1], p.cost[g]
            most = limit - cost
            if p.edge_ptr[g] == end or most < 0:
                continue
            first = _edges_from(p, work, p.edge_ptr[g], end, low + p.added[g])
            last = _edges_from(p, work, first, end, high + 1)
            for at in range(last - 1, first - 1, -1):
                here = distance[p.target[at]]
                if here <= most and here + cost < distance[p.source[at]]:
                    distance[p.source[at]] = here + cost


@kernel(allocates=False)
def pass_host(
    lattice: IdealLattice,
    cost: Ints,
    added: Ints,
    low: int,
    high: int,
    limit: int,
    backwards: bool,
    distance: Ints,
) -> None:
    """The same for a host, which pays for its work alone: walks go along the lattice's arcs."""
    steps, work = len(cost), lattice.work
    for i in range(steps):
        step = steps - 1 - i if backwards else i
        most, end = limit - cost[step], lattice.step_ptr[step + 1]
        if most < 0:
            continue
        first = _from(lattice.above, work, 0, lattice.step_ptr[step], end, low + added[step])
        last = _from(lattice.above, work, 0, first, end, high + 1)
        for j in range(first, last):
            at = last - 1 - (j - first) if backwards else j
            source, target = lattice.below[at], lattice.above[at]
            if backwards:
                source, target = target, source
            here = distance[source]
            if here <= most and here + cost[step] < distance[target]:
                distance[target] = here + cost[step]
