"""Enumerate the ideals of a graph, each along one path only, without a table of those seen.

Blocks whose predecessors are in are *ready*. The next ready block is taken, or left out of all that
follows on this path: so each ideal is met once. Ready blocks form a linked list that shares its
tails among the paths, so that the search needs memory for one path. O(degree + words) per ideal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.problem import HOST, ChainProblem
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.ideals.ideals import (
    Costs,
    Current,
    Ideals,
    empty_set,
    flip,
    room_for,
    write,
)
from placegap.solvers.ideal_dp.ideals.windows import Windows, window

CHUNK = 50_000
"""Ideals between two looks at the clock."""


class MemoryFull(LimitReached):
    """The ideals in windows take too much memory; at lower limits there are fewer."""


class _Path(NamedTuple):
    """Where the search stands.

    Attributes
    ----------
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
        Ideals met, and ideals written down.
    """

    waiting: Ints
    ready: Ints
    next_ready: Ints
    depth: Ints
    cell: Ints
    block: Ints
    cells: Ints
    done: Ints


Path = _Path  # numba's caches of older versions know it by the first name


def enumerate_ideals(
    problem: ChainProblem, windows: Windows, clock: Clock, max_ideals: int, max_bytes: int
) -> tuple[Ideals, int]:
    """All ideals that lie in some window, and how many ideals there are in all.

    Each ideal comes after the ones on its path, the empty ideal first.

    Raises
    ------
    MemoryFull
        If those in a window take more than `max_bytes`.
    LimitReached
        If there are more than `max_ideals`, or the time is over.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> from placegap.solvers.ideal_dp.ideals.windows import build_windows
    >>> from placegap.solvers.chains.work_bound import Relief
    >>> problem = build_problem(example())
    >>> windows = build_windows(problem, Relief(problem), 100)
    >>> ideals, total = enumerate_ideals(problem, windows, Clock(None), 10, 10_000)
    >>> ideals.members[:, 0].tolist(), total
    ([0, 1, 3, 7, 15, 5], 6)
    """
    most = max(2, max_bytes // bytes_per_ideal(problem))
    ideals = room_for(problem, min(most, 4096))
    now, costs = empty_set(problem)
    path = start_path(problem)
    while True:
        stop = min(int(path.done[0]) + CHUNK, max_ideals + 1)
        finished = _walk(problem.succ_ptr, problem.succ, costs, windows, now, path, ideals, stop)
        met, written = path.done.tolist()
        if finished:
            ideals.resize(written)
            return ideals, met
        if met > max_ideals:
            raise LimitReached(f"there are more than {max_ideals} ideals (max_ideals)")
        clock.check()
        if written == ideals.size:
            if written == most:
                raise MemoryFull(f"{most} ideals fill the memory")
            ideals.resize(min(most, written * 3 // 2))


def bytes_per_ideal(problem: ChainProblem) -> int:
    """Memory that one ideal takes, with what a search keeps of it (potentials, tree, windows)."""
    return 8 * (problem.num_words * 9 // 8 + problem.num_net_words + 20)


def start_path(problem: ChainProblem) -> _Path:
    """Before the empty ideal: all sources are ready, and no block is taken."""
    b = problem.num_blocks
    sources = np.flatnonzero(problem.num_preds == 0)
    ready, next_ready = (np.full(b, -1, np.int64) for _ in range(2))
    cell, block, cells = (np.full(b + 1, -1, np.int64) for _ in range(3))
    path = _Path(
        problem.num_preds.copy(), ready, next_ready, np.zeros(1, np.int64), cell, block, cells,
        np.zeros(2, np.int64),
    )  # fmt: skip
    path.ready[: len(sources)] = sources
    path.next_ready[: len(sources) - 1] = np.arange(1, len(sources))
    path.cell[0], path.cells[0] = 0, len(sources)
    return path


@njit(cache=True)
def _walk(
    succ_ptr: Ints, succ: Ints, costs: Costs, windows: Windows, now: Current, path: _Path,
    ideals: Ideals, stop: int,
) -> bool:  # fmt: skip
    """Go on; True when all is done, False when `stop` ideals are met or no room is left."""
    depth = path.depth[0]
    if path.done[0] == 0:
        _note(windows, now, path, ideals)
    while depth >= 0:
        if path.done[0] >= stop or path.done[1] == len(ideals.cut):
            path.depth[0] = depth
            return False
        cell = path.cell[depth]
        if cell < 0:  # every way on from here is done: take the last block out
            if depth > 0:
                v = path.block[depth]
                for at in range(succ_ptr[v], succ_ptr[v + 1]):
                    path.waiting[succ[at]] += 1
                flip(costs, now, v, -1)
            depth -= 1
            continue
        v, head, cells = path.ready[cell], path.next_ready[cell], path.cells[depth]
        path.cell[depth] = head
        for at in range(succ_ptr[v + 1] - 1, succ_ptr[v] - 1, -1):
            path.waiting[succ[at]] -= 1
            if path.waiting[succ[at]] == 0:
                path.ready[cells], path.next_ready[cells] = succ[at], head
                head = cells
                cells += 1
        flip(costs, now, v, 1)
        depth += 1
        path.cell[depth], path.block[depth], path.cells[depth] = head, v, cells
        _note(windows, now, path, ideals)
    return True


@njit(cache=True)
def _note(windows: Windows, now: Current, path: _Path, ideals: Ideals) -> None:
    """Count the ideal, and write it down if it lies in some window."""
    path.done[0] += 1
    s = now.sums
    for hosts in range(windows.counts[HOST] + 1):
        fewest, most = window(windows, hosts, s[0], s[1], s[2], s[3], s[4])
        if fewest <= most:
            write(now, ideals, path.done[1])
            path.done[1] += 1
            return
