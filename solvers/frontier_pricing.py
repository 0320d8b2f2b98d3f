"""Pricing: the most price that one device can hold, for every load up to a limit at once.

A knapsack DP over the states of a `Frontier`. Loads are counted in cells of `unit_ns`, rounded down
move by move: no set counts for more than its load, so no device can hold more price than is said,
and what follows is a proof. What a move loses in rounding is partly kept for later: a state has a
residual below one cell, by which some way to it exceeds whole cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placegap.instances.index import Ints, freeze
from placegap.solvers.frontier import Frontier

Flags = NDArray[np.bool_]
Prices = NDArray[np.int32]

TOTAL_PRICE = 2**30
"""Prices of all blocks sum to at most this: what a set is worth then fits into 32 bits."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Moves of a frontier in cells.

    Attributes
    ----------
    frontier : Frontier
    unit_ns, num_cells : int
        Cell c stands for loads from ``c * unit_ns`` to below ``(c + 1) * unit_ns``.
    shift : (a,) int64
        Cells that each move adds; `num_cells` where it is impossible.
    rank_type : type
        Unsigned integers that number the moves to one state.
    """

    frontier: Frontier
    unit_ns: int
    num_cells: int
    shift: Ints
    rank_type: type[np.unsignedinteger[Any]]


def build_grid(
    frontier: Frontier, time_ns: Ints, weight_ns: Ints, allowed: Flags,
    unit_ns: int, num_cells: int,
) -> Grid:  # fmt: skip
    """Round a device's loads to cells.

    Parameters
    ----------
    frontier : Frontier
    time_ns : (b,) int64
        Time of the blocks on the device.
    weight_ns : (e,) int64
        What the device pays for each net.
    allowed : (b,) bool
        Blocks that the device may hold.
    unit_ns, num_cells : int
        Loads of ``unit_ns * num_cells`` and more are not looked at.

    Returns
    -------
    Grid

    Notes
    -----
    O(a d) for a moves, d of them to a state.
    """
    steps = np.repeat(np.arange(len(frontier.order)), np.diff(frontier.step_ptr))
    block = frontier.order[steps]
    load = frontier.taken * time_ns[block]
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(weight_ns[frontier.paid])])
    load += running[frontier.paid_ptr[1:]] - running[frontier.paid_ptr[:-1]]
    shift = _round_down(
        frontier.step_ptr, frontier.source, frontier.target, frontier.num_states, load, unit_ns
    )
    shift[(frontier.taken == 1) & ~allowed[block]] = num_cells
    shift = np.minimum(shift, num_cells)
    changes = np.flatnonzero((np.diff(frontier.target) != 0) | (np.diff(steps) != 0))
    widest = int(np.diff(np.concatenate([[-1], changes, [len(steps) - 1]])).max(initial=0))
    rank_type = np.uint8 if widest <= 255 else np.uint16 if widest <= 65535 else np.uint32
    grid = Grid(frontier, unit_ns, num_cells, shift, rank_type)
    freeze(grid)
    return grid


@njit(cache=True)
def _round_down(
    step_ptr: Ints, source: Ints, target: Ints, num_states: Ints, load: Ints, unit: int
) -> Ints:
    """Whole cells of each move, given residuals of the states that lose little.

    A state's residual is one that some move to it has, and at most what any move to it brings:
    so no move adds less than nothing. The last state has none. Over a path the differences of
    residuals cancel: its cells are at most its load in cells.
    """
    shift = np.zeros(len(load), np.int64)
    residual = np.zeros(1, np.int64)
    for i in range(len(step_ptr) - 1):
        after = np.zeros(num_states[i + 1], np.int64)
        first = step_ptr[i]
        while first < step_ptr[i + 1]:
            end, least = first, 2**62
            while end < step_ptr[i + 1] and target[end] == target[first]:
                least = min(least, load[end] + residual[source[end]])
                end += 1
            best, best_loss = 0, 2**62
            for c in range(first - 1, end):
                trial = 0 if c < first else (load[c] + residual[source[c]]) % unit
                if trial <= least:
                    loss = 0
                    for m in range(first, end):
                        loss += (load[m] + residual[source[m]] - trial) % unit
                    if loss < best_loss:
                        best, best_loss = trial, loss
                if i + 2 == len(step_ptr):
                    break
            after[target[first]] = best
            for m in range(first, end):
                shift[m] = (load[m] + residual[source[m]] - best) // unit
            first = end
        residual = after
    return shift


def most_price(grid: Grid, price: Prices) -> Prices:
    """For each cell the most price of the sets whose load is in it or below, (cells,).

    Sets whose load is above may count as well, by what rounding down loses. O(moves * cells).

    Examples
    --------
    The second op of the diamond takes 20 ns, and two tensors of 1 ns if it is alone.

    >>> from placegap.instances import example
    >>> from placegap.solvers.pricer import build_pricer
    >>> from placegap.solvers.split_problem import build_split_problem
    >>> (grid,) = build_pricer(build_split_problem(example())).grids(1, 100)
    >>> held = most_price(grid, np.array([0, 1, 0, 0], np.int32))
    >>> int(np.argmax(held > 0))
    22
    """
    frontier = grid.frontier
    none = np.zeros((0, 0), grid.rank_type)
    return _run(
        frontier.step_ptr, frontier.source, frontier.target, frontier.taken, grid.shift,
        price[frontier.order], frontier.num_states, grid.num_cells, none,
    )  # fmt: skip


class PricedSet(NamedTuple):
    """Blocks of a set, ascending, and the cell of its load as the grid rounds it."""

    blocks: Ints
    cell: int


def best_sets(grid: Grid, price: Prices, cells: list[int]) -> tuple[Prices, list[PricedSet]]:
    """`most_price`, and for each of some cells a set that attains it there.

    O(moves * cells) time; a byte per state and cell.
    """
    frontier = grid.frontier
    choice = np.empty((int(frontier.num_states[1:].sum()), grid.num_cells), grid.rank_type)
    ordered = price[frontier.order]
    value = _run(
        frontier.step_ptr, frontier.source, frontier.target, frontier.taken, grid.shift,
        ordered, frontier.num_states, grid.num_cells, choice,
    )  # fmt: skip
    sets = []
    for cell in cells:
        taken, used = _trace(
            frontier.step_ptr, frontier.source, frontier.target, frontier.taken, grid.shift,
            frontier.num_states, choice, cell,
        )  # fmt: skip
        sets.append(PricedSet(np.sort(frontier.order[taken]), used))
    return value, sets


@njit(cache=True, nogil=True, boundscheck=False)
def _run(
    step_ptr: Ints, source: Ints, target: Ints, taken: Ints, shift: Ints, price: Prices,
    num_states: Ints, num_cells: int, choice: NDArray[np.uint8],
) -> Prices:  # fmt: skip
    unreachable = np.int32(-(2**31) + 1)
    recording = len(choice) > 0
    before = np.zeros((num_states.max(), num_cells), np.int32)
    after = np.empty((num_states.max(), num_cells), np.int32)
    row = 0
    for i in range(len(step_ptr) - 1):
        after[: num_states[i + 1]] = unreachable
        rank, previous = 0, -1
        for m in range(step_ptr[i], step_ptr[i + 1]):
            s, t, by = source[m], target[m], shift[m]
            rank = rank + 1 if t == previous else 0
            previous = t
            gain = price[i] * taken[m]
            if by >= num_cells:
                continue
            if recording:
                _relax_recording(
                    after[t, by:], before[s, : num_cells - by], gain, choice[row + t, by:], rank
                )
            else:
                _relax(after[t, by:], before[s, : num_cells - by], gain)
        row += num_states[i + 1]
        before, after = after, before
    held: Prices = before[0].copy()
    return held


@njit(cache=True, nogil=True, boundscheck=False)
def _relax(after: Prices, before: Prices, gain: int) -> None:
    step = np.int32(gain)
    for c in range(len(after)):
        after[c] = max(after[c], np.int32(before[c] + step))


@njit(cache=True, nogil=True, boundscheck=False)
def _relax_recording(
    after: Prices, before: Prices, gain: int, choice: NDArray[np.uint8], rank: int
) -> None:
    step = np.int32(gain)
    for c in range(len(after)):
        value = np.int32(before[c] + step)
        better = value > after[c]
        after[c] = value if better else after[c]
        choice[c] = rank if better else choice[c]


@njit(cache=True)
def _trace(
    step_ptr: Ints, source: Ints, target: Ints, taken: Ints, shift: Ints, num_states: Ints,
    choice: NDArray[np.uint8], cell: int,
) -> tuple[Flags, int]:  # fmt: skip
    """Which steps take their block on the best path to a cell, and how many cells it has."""
    result = np.zeros(len(step_ptr) - 1, np.bool_)
    row, state, used = len(choice), 0, 0
    for i in range(len(step_ptr) - 2, -1, -1):
        row -= num_states[i + 1]
        m = step_ptr[i]
        while target[m] != state:
            m += 1
        m += choice[row + state, cell]
        result[i] = taken[m] == 1
        cell -= shift[m]
        used += shift[m]
        state = source[m]
    return result, used
