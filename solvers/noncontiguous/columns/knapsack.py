"""Pricing: the most price that one device can hold, for every load up to a limit at once.

A knapsack DP over the states of a `Frontier`. Loads are counted in cells of `unit_ns`, rounded down
move by move: no set counts for more than its load, so no device can hold more price than is said,
and what follows is a proof. What a move loses in rounding is partly kept for later: a state has a
residual below one cell, by which some way to it exceeds whole cells.

What counts as a set's load may be more than its load (`pricer`): a grid has spare cells for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.kernels import kernel
from placegap.solvers.noncontiguous.knapsack import Frontier

Prices = NDArray[np.int32]

TOTAL_PRICE = 2**30
"""Prices of all blocks sum to at most this: what a set is worth then fits into 32 bits."""

UNREACHABLE = np.int32(-3 * 2**29)
"""Stays negative whatever is added to it on the way."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Moves of a frontier in cells.

    Attributes
    ----------
    frontier : Frontier
    unit_ns, num_cells : int
        Cell c stands for loads from ``c * unit_ns`` to below ``(c + 1) * unit_ns``.
    spare : int
        Cells before cell 0.
    shift : (a,) int64
        Cells that each move adds; ``spare + num_cells`` where it is impossible.
    rank_type : type
        Unsigned integers that number the moves to one state.
    """

    frontier: Frontier
    unit_ns: int
    num_cells: int
    spare: int
    shift: Ints
    rank_type: type[np.unsignedinteger[Any]]


def build_grid(
    frontier: Frontier,
    time_ns: Ints,
    weight_ns: Ints,
    allowed: Flags,
    unit_ns: int,
    num_cells: int,
    spare: int = 0,
) -> Grid:
    """Round a device's loads to cells.

    Parameters
    ----------
    frontier : Frontier
    time_ns : (b,) int64
        What each block adds to the load.
    weight_ns : (e,) int64
        What each net adds that the set cuts.
    allowed : (b,) bool
        Blocks that the device may hold.
    unit_ns, num_cells : int
        Loads of ``unit_ns * num_cells`` and more are not looked at.
    spare : int
        So many cells that count as below 0.

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
    grid = round_moves(frontier, load, unit_ns, num_cells, spare)
    shift = np.where((frontier.taken == 1) & ~allowed[block], num_cells + spare, grid.shift)
    return replace(grid, shift=shift)


def round_moves(
    frontier: Frontier, load_ns: Ints, unit_ns: int, num_cells: int, spare: int = 0
) -> Grid:
    """Round what each move adds to the load, (a,), to cells: down, and as little as may be."""
    shift = _round_down(
        frontier.step_ptr, frontier.source, frontier.target, frontier.num_states, load_ns, unit_ns
    )
    steps = np.repeat(np.arange(len(frontier.order)), np.diff(frontier.step_ptr))
    changes = np.flatnonzero((np.diff(frontier.target) != 0) | (np.diff(steps) != 0))
    widest = int(np.diff(np.concatenate([[-1], changes, [len(steps) - 1]])).max(initial=0))
    rank_type = np.uint8 if widest <= 255 else np.uint16 if widest <= 65535 else np.uint32
    shift = np.minimum(shift, num_cells + spare)
    grid = Grid(frontier, unit_ns, num_cells, spare, shift, rank_type)
    freeze(grid)
    return grid


@kernel
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
    >>> from placegap.solvers.noncontiguous.pricing import build_pricer
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> (grid,) = build_pricer(build_split_problem(example())).grids(1, 100)
    >>> held = most_price(grid, np.array([0, 1, 0, 0], np.int32))
    >>> int(np.argmax(held > 0))
    22
    """
    frontier = grid.frontier
    none = np.zeros((0, 0), grid.rank_type)
    held: Prices = _run(
        frontier.step_ptr,
        frontier.source,
        frontier.target,
        grid.shift,
        _gains(frontier, price),
        frontier.num_states,
        grid.spare + grid.num_cells,
        none,
    )[grid.spare :]
    return held


class PricedSet(NamedTuple):
    """Blocks of a set, ascending, and the least cell that it counts for on the grid."""

    blocks: Ints
    cell: int


def best_sets(grid: Grid, price: Prices, cells: list[int]) -> tuple[Prices, list[PricedSet]]:
    """`most_price`, and for each of some cells a set that attains it there.

    O(moves * cells) time; a byte per state and cell.
    """
    value, choice = most_gain(grid, _gains(grid.frontier, price))
    return value, [trace(grid, choice, cell) for cell in cells]


def _gains(frontier: Frontier, price: Prices) -> Prices:
    """Price that each move takes."""
    step = np.repeat(price[frontier.order], np.diff(frontier.step_ptr))
    gains: Prices = np.where(frontier.taken == 1, step, np.int32(0))
    return gains


def most_gain(grid: Grid, gain: Prices) -> tuple[Prices, NDArray[np.unsignedinteger[Any]]]:
    """For each cell the largest sum of the moves' gains, and the choices that lead there.

    Parameters
    ----------
    grid : Grid
    gain : (a,) int32
        Of each move, not negative; no path's sum may exceed `TOTAL_PRICE`.

    Returns
    -------
    value : (cells,) int32
        Negative where no path's load is in the cell or below.
    choice : (states, cells)
    """
    frontier = grid.frontier
    num_cells = grid.spare + grid.num_cells
    choice = np.empty((int(frontier.num_states[1:].sum()), num_cells), grid.rank_type)
    value = _run(
        frontier.step_ptr,
        frontier.source,
        frontier.target,
        grid.shift,
        gain,
        frontier.num_states,
        num_cells,
        choice,
    )
    return value[grid.spare :], choice


def trace(grid: Grid, choice: NDArray[np.unsignedinteger[Any]], cell: int) -> PricedSet:
    """The set that the choices of `most_gain` lead to at a cell that is reached."""
    frontier = grid.frontier
    taken, used = _trace(
        frontier.step_ptr,
        frontier.source,
        frontier.target,
        frontier.taken,
        grid.shift,
        frontier.num_states,
        choice,
        grid.spare + cell,
    )
    return PricedSet(np.sort(frontier.order[taken]), max(0, used - grid.spare))


@kernel(nogil=True, boundscheck=False)
def _run(
    step_ptr: Ints,
    source: Ints,
    target: Ints,
    shift: Ints,
    gain: Prices,
    num_states: Ints,
    num_cells: int,
    choice: NDArray[np.uint8],
) -> Prices:
    recording = len(choice) > 0
    before = np.zeros((num_states.max(), num_cells), np.int32)
    after = np.empty((num_states.max(), num_cells), np.int32)
    row = 0
    for i in range(len(step_ptr) - 1):
        after[: num_states[i + 1]] = UNREACHABLE
        rank, previous = 0, -1
        for m in range(step_ptr[i], step_ptr[i + 1]):
            s, t, by = source[m], target[m], shift[m]
            rank = rank + 1 if t == previous else 0
            previous = t
            if by >= num_cells:
                continue
            if recording:
                _relax_recording(
                    after[t, by:], before[s, : num_cells - by], gain[m], choice[row + t, by:], rank
                )
            else:
                _relax(after[t, by:], before[s, : num_cells - by], gain[m])
        row += num_states[i + 1]
        before, after = after, before
    held: Prices = before[0].copy()
    return held


@kernel(nogil=True, boundscheck=False, allocates=False)
def _relax(after: Prices, before: Prices, gain: int) -> None:
    step = np.int32(gain)
    for c in range(len(after)):
        after[c] = max(after[c], np.int32(before[c] + step))


@kernel(nogil=True, boundscheck=False, allocates=False)
def _relax_recording(
    after: Prices, before: Prices, gain: int, choice: NDArray[np.uint8], rank: int
) -> None:
    step = np.int32(gain)
    for c in range(len(after)):
        value = np.int32(before[c] + step)
        better = value > after[c]
        after[c] = value if better else after[c]
        choice[c] = rank if better else choice[c]


@kernel
def _trace(
    step_ptr: Ints,
    source: Ints,
    target: Ints,
    taken: Ints,
    shift: Ints,
    num_states: Ints,
    choice: NDArray[np.uint8],
    cell: int,
) -> tuple[Flags, int]:
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
