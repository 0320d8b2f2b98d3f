"""What one accelerator pays for any difference of two ideals, as shortest paths in one graph.

For ideals J within I, walk from J to I by adding the blocks of I - J in a fixed topological order:
every set on the way is an ideal. The walk pays for the work of each block, and for each net that it
leaves cut, exactly once, if it remembers of each net that it has begun and not finished

- that it has paid (further pins are free), or
- that it has promised to add every pin (nothing to pay), and how many it has added;

of any other net the next pin added pays. A walk may always forget that it has paid, so that its
costs are at least the load, and the cheapest walk costs exactly the load. A vertex is an ideal with
what is remembered there; a vertex with nothing remembered has its ideal's number.

Edges are stored by step (the block added), then by cost, so that one pass over them yields the
distances from any set of ideals to all others, however many pairs there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import ACCELERATOR, ChainProblem, Indices
from placegap.solvers.core.clock import Clock
from placegap.solvers.ideal_dp.sweep.lattice import IdealLattice, TooLarge
from placegap.solvers.ideal_dp.sweep.net_steps import NetSteps, Step, step_at

ROOM, MOST_TOUCHED = 32_768, 1024
"""Vertices and edges that one arc may need, and vertices of an ideal that it may reach."""


class Walks(NamedTuple):
    """Vertices and edges; the kernels' form.

    Attributes
    ----------
    ideal : (x,) int32
        Ideal of each vertex beyond the ideals' own ones; ascending among those made in one step.
    made_ptr : (b + 1,) int64
        Step s makes the vertices ``made_ptr[s]:made_ptr[s + 1]`` of those.
    group_ptr : (b + 1,) int64
        Groups of each step.
    edge_ptr : (g + 1,) int64
        Edges of each group.
    cost : (g,) int64
        What each edge of the group pays.
    added : (g,) int64
        Work of the block that the group's edges add, 0 if they stay at their ideal.
    source, target : (m,) int32
        Vertices; the target's ideal ascends within a group.
    """

    ideal: Indices
    made_ptr: Ints
    group_ptr: Ints
    edge_ptr: Ints
    cost: Ints
    added: Ints
    source: Indices
    target: Indices


class _Growing(NamedTuple):
    """The graph while it is made: the vertices of an ideal form a linked list.

    `until` is the last step at which all that a vertex remembers still matters. `used` counts the
    vertices and the edges.
    """

    ideal: Indices
    memory: Ints
    until: Indices
    following: Indices
    source: Indices
    target: Indices
    group: Indices
    first: Indices
    used: Ints


def build_walks(
    problem: ChainProblem, lattice: IdealLattice, nets: NetSteps, clock: Clock, max_bytes: int
) -> Walks:
    """The graph of all walks over a lattice; `nets` are for its order.

    O(arcs x vertices per ideal); there are few of these where few nets are under way at once.

    Raises
    ------
    TooLarge
        If the graph takes more than `max_bytes`.
    LimitReached
        If the time is over.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> from placegap.solvers.ideal_dp.sweep.lattice import build_lattice
    >>> from placegap.solvers.ideal_dp.sweep.net_steps import net_steps
    >>> problem, order = build_problem(example()), np.arange(4)
    >>> lattice = build_lattice(problem, order, 6, Clock(None), 10_000)
    >>> paths = build_walks(problem, lattice, net_steps(problem, order), Clock(None), 10**7)
    >>> paths.ideal.tolist(), len(paths.source)
    ([1, 1, 1, 3, 3, 3, 4, 2, 4, 4], 25)
    """
    size, step_ptr = lattice.size, lattice.step_ptr
    grow = _Growing(
        ideal=np.zeros(2 * ROOM, np.int32),
        memory=np.zeros(2 * ROOM, np.int64),
        until=np.zeros(2 * ROOM, np.int32),
        following=np.zeros(2 * ROOM, np.int32),
        source=np.zeros(2 * ROOM, np.int32),
        target=np.zeros(2 * ROOM, np.int32),
        group=np.zeros(2 * ROOM, np.int32),
        first=np.full(size, -1, np.int32),
        used=np.zeros(3, np.int64),
    )
    made_ptr, group_ptr = [0], [0]
    costs, added, ends = [], [], [np.zeros(1, np.int64)]
    counts = np.zeros(problem.num_nets, np.int64)
    for number, v in enumerate(lattice.order.tolist()):
        step = step_at(problem, nets, counts, number, v)
        at, end, begin = int(step_ptr[number]), int(step_ptr[number + 1]), int(grow.used[1])
        grow.used[2] = begin
        if problem.need[ACCELERATOR, v] > problem.room[ACCELERATOR]:
            at = end
        while at < end:
            _make_room(grow, max_bytes)
            at = _add(step, lattice.below, lattice.above, at, end, grow)
            if at < 0:
                raise TooLarge("too many nets are under way at once")
            clock.check()
        count = np.zeros(len(step.cost), np.int64)
        _sort_by_group(grow, begin, count)
        made_ptr.append(int(grow.used[0]))
        group_ptr.append(group_ptr[-1] + len(step.cost))
        ends.append(begin + np.cumsum(count))
        costs.append(step.cost)
        added.append(step.added)
    made, edges, _ = grow.used.tolist()
    grow.ideal.resize(made, refcheck=False)
    for table in (grow.source, grow.target):
        table.resize(edges, refcheck=False)
    return Walks(
        grow.ideal,
        np.array(made_ptr, np.int64),
        np.array(group_ptr, np.int64),
        np.concatenate(ends),
        np.concatenate(costs),
        np.concatenate(added),
        grow.source,
        grow.target,
    )


def _make_room(grow: _Growing, max_bytes: int) -> None:
    """Let vertices and edges grow by a quarter where less than `ROOM` is free."""
    tables = grow[:4], grow[4:6], grow[6:7]
    free = [len(tables[i][0]) - int(grow.used[i]) for i in range(2)]
    free.append(len(grow.group) - int(grow.used[1] - grow.used[2]))
    wanted = [
        len(some[0]) * 5 // 4 if left < ROOM else len(some[0])
        for some, left in zip(tables, free, strict=True)
    ]
    if 20 * wanted[0] + 8 * wanted[1] + 4 * (wanted[2] + len(grow.first)) > max_bytes:
        raise TooLarge("the graph of stage costs fills the memory")
    for some, size in zip(tables, wanted, strict=True):
        for table in some:
            table.resize(size, refcheck=False)


@kernel
def _add(step: Step, below: Indices, above: Indices, begin: int, end: int, grow: _Growing) -> int:
    """Write the edges of some arcs; the arc to go on with, or -1 if one has too many."""
    size, forget = len(grow.first), len(step.cost) - 1
    touched, memory = np.zeros(MOST_TOUCHED, np.int64), np.zeros(MOST_TOUCHED, np.int64)
    for at in range(begin, end):
        edges = grow.used[1]
        if min(len(grow.ideal) - grow.used[0], len(grow.source) - edges) < ROOM:
            return at
        if len(grow.group) - (edges - grow.used[2]) < ROOM:
            return at
        low, ideal, count, sources = below[at], above[at], 0, 0
        vertex, before = -1, -1  # the ideal's own vertex, then the others
        while True:
            remembered = np.int64(0) if vertex < 0 else grow.memory[vertex]
            after, group = _join(step, int(remembered))
            alive = after >= 0 and (vertex < 0 or grow.until[vertex] >= step.number)
            if alive:
                target = _find(step, grow, ideal, after)
                source = low if vertex < 0 else size + vertex
                count = _write(grow, source, target, group, touched, memory, after, count)
                sources += 1
            upcoming = grow.first[low] if vertex < 0 else grow.following[vertex]
            if vertex < 0 or alive:
                before = vertex
            elif before < 0:
                grow.first[low] = upcoming
            else:
                grow.following[before] = upcoming
            vertex = upcoming
            if vertex < 0:
                break
            if sources > MOST_TOUCHED or count > MOST_TOUCHED // 2:
                return -1
        for j in range(len(step.new)):  # promise nothing, and pay
            unit = np.int64(1) << step.new[j, 2]
            i = 0
            while i < count:
                if (memory[i] >> step.new[j, 2]) & step.new[j, 3] == 2:
                    if count == MOST_TOUCHED:
                        return -1
                    after = memory[i] - (2 * unit if step.new[j, 1] == 2 else unit)
                    target = _find(step, grow, ideal, after)
                    group = forget - len(step.new) + j
                    count = _write(grow, touched[i], target, group, touched, memory, after, count)
                i += 1
        most = 0
        for i in range(count):
            most = max(most, _num_paid(step, memory[i]))
        for paid in range(most, 0, -1):  # forget what is paid, one net at a time
            i = 0
            while i < count:
                if _num_paid(step, memory[i]) == paid:
                    for a in range(len(step.active)):
                        if (memory[i] >> step.active[a, 0]) & step.active[a, 1] == 1:
                            if count == MOST_TOUCHED:
                                return -1
                            after = memory[i] - (np.int64(1) << step.active[a, 0])
                            target = _find(step, grow, ideal, after)
                            count = _write(
                                grow, touched[i], target, forget, touched, memory, after, count
                            )
                i += 1
    return end


@kernel(allocates=False)
def _join(step: Step, memory: int) -> tuple[int, int]:
    """What is remembered once the block has joined, -1 if that breaks a promise; and who pays."""
    for i in range(len(step.promised)):
        value = (memory >> step.promised[i, 0]) & step.promised[i, 1]
        if value >= 2 and value != step.promised[i, 2] + 1:
            return -1, 0
    group = 0
    for i in range(len(step.old)):
        turn, shift = step.old[i, 0], step.old[i, 2]
        value = (memory >> shift) & step.old[i, 3]
        if value >= 2 and value != turn:
            return -1, 0
        memory -= value << shift
        if value == 0:
            group |= 1 << i
        if turn < step.old[i, 1]:
            memory += (turn + 1 if value >= 2 else 1) << shift
    for i in range(len(step.new)):
        memory += np.int64(2) << step.new[i, 2]
    return memory, group


@kernel(allocates=False)
def _num_paid(step: Step, memory: int) -> int:
    """Number of nets that are remembered as paid."""
    count = 0
    for a in range(len(step.active)):
        if (memory >> step.active[a, 0]) & step.active[a, 1] == 1:
            count += 1
    return count


@kernel(allocates=False)
def _find(step: Step, grow: _Growing, ideal: int, memory: int) -> int:
    """The vertex of an ideal that remembers this; it is made if need be."""
    size = len(grow.first)
    if memory == 0:
        return ideal
    vertex = grow.first[ideal]
    while vertex >= 0:
        if grow.memory[vertex] == memory and grow.until[vertex] > step.number:
            return int(size + vertex)
        vertex = grow.following[vertex]
    vertex = grow.used[0]
    grow.used[0] += 1
    until = 2**31 - 1
    for a in range(len(step.active)):
        if (memory >> step.active[a, 0]) & step.active[a, 1]:
            until = min(until, step.active[a, 2])
    grow.ideal[vertex], grow.memory[vertex], grow.until[vertex] = ideal, memory, until
    grow.following[vertex] = grow.first[ideal]
    grow.first[ideal] = vertex
    return int(size + vertex)


@kernel(allocates=False)
def _write(
    grow: _Growing,
    source: int,
    target: int,
    group: int,
    touched: Ints,
    memory: Ints,
    remembered: int,
    count: int,
) -> int:
    """Write an edge, and put its end on the list of those touched; the length of the list."""
    at = grow.used[1]
    grow.source[at], grow.target[at], grow.group[at - grow.used[2]] = source, target, group
    grow.used[1] += 1
    for i in range(count):
        if touched[i] == target:
            return count
    touched[count], memory[count] = target, remembered
    return count + 1


@kernel
def _sort_by_group(grow: _Growing, begin: int, count: Ints) -> None:
    """Order the edges from `begin` on by group, else as they are, and count them."""
    end = grow.used[1]
    for at in range(begin, end):
        count[grow.group[at - begin]] += 1
    place = np.zeros(len(count), np.int64)
    for group in range(1, len(count)):
        place[group] = place[group - 1] + count[group - 1]
    source, target = grow.source[begin:end].copy(), grow.target[begin:end].copy()
    for at in range(begin, end):
        group = grow.group[at - begin]
        to = begin + place[group]
        grow.source[to], grow.target[to] = source[at - begin], target[at - begin]
        place[group] += 1
