"""Enumerate the ideals of a graph, each along one path only, without a table of those seen.

Blocks whose predecessors are in are *ready*. The next ready block is taken, or left out of all that
follows on this path: so each ideal is met once. Ready blocks form a linked list that shares its
tails among the paths, so that the search needs memory for one path. O(degree + words) per ideal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import (
    Amounts,
    CurrentSet,
    Ideals,
    empty_set,
    flip,
    room_for,
)
from placegap.solvers.chains.problem import ChainProblem
from placegap.solvers.core.clock import Clock, LimitReached

CHUNK = 50_000
"""Ideals between two looks at the clock."""

END = 2**31
"""Instead of a block: all ideals are met."""


class MemoryFull(LimitReached):
    """The ideals that are kept take too much memory; at lower limits there are fewer."""


class IdealPath(NamedTuple):
    """Where the search stands.

    Attributes
    ----------
    succ_ptr, succ : int64
        Of the problem.
    waiting : (b,) int64
        Predecessors of each block that are not in.
    ready, next_ready : (b,) int64
        Cells of the lists: a block, and the cell that follows (-1: none).
    depth : (1,) int64
        Number of blocks on the path.
    cell, block, cells : (b + 1,) int64
        For each step of the path: the cell to try next, the block that was taken, and the number
        of cells in use.
    done : (2,) int64
        Ideals met, and ideals kept.
    """

    succ_ptr: Ints
    succ: Ints
    waiting: Ints
    ready: Ints
    next_ready: Ints
    depth: Ints
    cell: Ints
    block: Ints
    cells: Ints
    done: Ints


Walk = Callable[[Amounts, CurrentSet, IdealPath, Ideals, int], bool]
"""Go on with `next_ideal` and write down what is to be kept: until so many ideals are met, or no
room is left (False), or to the end (True)."""


def enumerate_ideals(
    problem: ChainProblem,
    amounts: Amounts,
    walk: Walk,
    clock: Clock,
    max_ideals: int,
    max_kept: int,
) -> tuple[Ideals, int]:
    """All ideals that a walk keeps, and how many ideals there are in all.

    Each ideal comes after the ones on its path, the empty ideal first: neighbours share most
    blocks.

    Raises
    ------
    MemoryFull
        If more than `max_kept` are kept.
    LimitReached
        If there are more than `max_ideals`, or the time is over.

    Examples
    --------
    >>> from functools import partial
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> from placegap.solvers.chains.work_bound import Relief
    >>> from placegap.solvers.chains.ideals import times_and_needs
    >>> from placegap.solvers.ideal_dp.ideals.windows import build_windows, walk_in_windows
    >>> problem = build_problem(example())
    >>> walk = partial(walk_in_windows, build_windows(problem, Relief(problem), 100))
    >>> amounts = times_and_needs(problem)
    >>> ideals, total = enumerate_ideals(problem, amounts, walk, Clock(None), 10, 100)
    >>> ideals.members[:, 0].tolist(), total
    ([0, 1, 3, 7, 15, 5], 6)
    """
    ideals = room_for(problem, amounts, min(max_kept, 4096))
    now, path = empty_set(problem, amounts), start_path(problem)
    while True:
        stop = min(int(path.done[0]) + CHUNK, max_ideals + 1)
        finished = walk(amounts, now, path, ideals, stop)
        met, kept = path.done.tolist()
        if finished:
            ideals.resize(kept)
            return ideals, met
        if met > max_ideals:
            raise LimitReached(f"there are more than {max_ideals} ideals (max_ideals)")
        clock.check()
        if kept == ideals.size:
            if kept == max_kept:
                raise MemoryFull(f"{max_kept} ideals fill the memory")
            ideals.resize(min(max_kept, kept * 3 // 2))


def start_path(problem: ChainProblem) -> IdealPath:
    """Before the empty ideal: all sources are ready, and no block is taken."""
    b = problem.num_blocks
    sources = np.flatnonzero(problem.num_preds == 0)
    ready, next_ready = (np.full(b, -1, np.int64) for _ in range(2))
    cell, block, cells = (np.full(b + 1, -1, np.int64) for _ in range(3))
    ready[: len(sources)] = sources
    next_ready[: len(sources) - 1] = np.arange(1, len(sources))
    cell[0], cells[0] = 0, len(sources)
    return IdealPath(
        problem.succ_ptr,
        problem.succ,
        problem.num_preds.copy(),
        ready,
        next_ready,
        np.zeros(1, np.int64),
        cell,
        block,
        cells,
        np.zeros(2, np.int64),
    )


@kernel(inline="always", allocates=False)
def next_block(path: IdealPath) -> int:
    """The block v that joins next, ~v if it is taken out again, or `END`."""
    depth = path.depth[0]
    cell = path.cell[depth]
    if cell < 0:  # every way on from here is done: take the last block out
        if depth == 0:
            return END
        v = path.block[depth]
        for at in range(path.succ_ptr[v], path.succ_ptr[v + 1]):
            path.waiting[path.succ[at]] += 1
        path.depth[0] = depth - 1
        return int(~v)
    v, head, cells = path.ready[cell], path.next_ready[cell], path.cells[depth]
    path.cell[depth] = head
    for at in range(path.succ_ptr[v + 1] - 1, path.succ_ptr[v] - 1, -1):
        u = path.succ[at]
        path.waiting[u] -= 1
        if path.waiting[u] == 0:
            path.ready[cells], path.next_ready[cells] = u, head
            head = cells
            cells += 1
    depth += 1
    path.depth[0] = depth
    path.cell[depth], path.block[depth], path.cells[depth] = head, v, cells
    return int(v)


@kernel(inline="always")
def next_ideal(amounts: Amounts, now: CurrentSet, path: IdealPath) -> bool:
    """Go on to the next ideal, the empty one first; whether there is one."""
    v = 0 if path.done[0] == 0 else -1
    while v < 0:
        v = next_block(path)
        if v == END:
            return False
        flip(amounts, now, max(v, ~v), 1 if v >= 0 else -1)
    path.done[0] += 1
    return True
