"""Two devices share their blocks anew: every trade-off between their two loads.

The others keep what they have, so a net with a block elsewhere is paid by each of the two that has
a block of it, any other net by both or by none. Along an elimination order of the shared blocks a
state says of each open net whether the blocks behind are all on the second device, all on the
first, or on both; a knapsack over the states has the first device's load in cells as its weight and
the second's as its cost. One run gives the least second load for every first load, and a partition
for each. This is the strongest change of two devices that there is, up to the grid. Where transfers
overlap with the work, a mean of the two stands for a device's load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.knapsack import (
    CHECKED,
    IN,
    OUT,
    PAID,
    TOTAL_PRICE,
    Frontier,
    Grid,
    most_gain,
    round_moves,
    trace,
)
from placegap.solvers.noncontiguous.problem import SplitProblem

LONGEST_NS = 2**62
"""Sums of loads stay below it."""


@dataclass(frozen=True, eq=False)
class PairSplit:
    """The trade-off between the loads of two devices.

    Attributes
    ----------
    first_ns, second_ns : (c,) int64
        Pairs of loads, about; the first ascending, the second falling.
    """

    first_ns: Ints
    second_ns: Ints
    grid: Grid
    choice: NDArray[np.unsignedinteger[Any]]
    cells: Ints
    devices: tuple[int, int]

    def apply(self, device: Ints, at: int) -> Ints:
        """The plan with the partition behind one of the pairs, (b,)."""
        first, second = self.devices
        changed = device.copy()
        changed[self.grid.frontier.order] = second
        changed[trace(self.grid, self.choice, int(self.cells[at])).blocks] = first
        return changed


def split_pair(
    problem: SplitProblem,
    device: Ints,
    pair: tuple[int, int],
    order: Ints,
    *,
    limit_ns: int,
    num_cells: int,
    max_moves: int,
    mean: tuple[int, int] = (1, 1),
    rent_ns: Ints | None = None,
    clock: Clock | None = None,
) -> PairSplit | None:
    """All that two devices can do with the blocks that they hold; None if they are too entangled.

    None as well if the clock is over before the moves of the DP are there.

    Parameters
    ----------
    problem : SplitProblem
    device : (b,) int64
        Device of each block; only the pair's own matter.
    pair : tuple of int
        The first and the second device.
    order : (b,) int64
        An elimination order of all blocks.
    limit_ns : int
        Loads above it do not matter.
    num_cells : int
        Cells of the first load up to the limit.
    max_moves : int
        Most moves of the DP.
    mean : tuple of int
        Weights of time and of transfers where the two overlap.
    rent_ns : (b,) int64, optional
        What each block adds to both loads besides, for the memory that it takes.

    Notes
    -----
    Memory is not looked at. O(moves * cells).

    Examples
    --------
    The second op of the diamond alone on the first device: loads of 22 and 25.

    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> problem = build_split_problem(example())
    >>> found = split_pair(
    ...     problem, np.array([0, 0, 1, 0]), (0, 1), np.arange(4),
    ...     limit_ns=45, num_cells=46, max_moves=100,
    ... )
    >>> best = int(np.argmin(np.maximum(found.first_ns, found.second_ns)))
    >>> plan = found.apply(np.zeros(4, np.int64), best)
    >>> plan.tolist(), problem.loads(plan).tolist()
    ([1, 0, 1, 1], [22, 25])
    """
    work, transfer = mean if problem.overlap and _is_short(problem, sum(mean)) else (1, 1)
    rent = np.zeros(problem.num_blocks, np.int64) if rent_ns is None else rent_ns
    moves = _build_moves(problem, device, pair, order, max_moves, work, transfer, rent, clock)
    if moves is None:
        return None
    frontier, first_ns, second_ns = moves
    scale = work + transfer if problem.overlap else 1
    limit_ns *= scale
    unit_ns = max(1, -(-limit_ns // num_cells))
    num_cells = limit_ns // unit_ns + 1
    grid = round_moves(frontier, first_ns, unit_ns, num_cells)
    steps = np.repeat(np.arange(len(frontier.order)), np.diff(frontier.step_ptr))
    most = np.maximum.reduceat(second_ns, frontier.step_ptr[:-1])
    if sum(most.tolist()) >= LONGEST_NS:
        return None
    cost_ns = max(1, -(-int(most.sum()) // TOTAL_PRICE))
    spared = ((most[steps] - second_ns) // cost_ns).astype(np.int32)
    value, choice = most_gain(grid, spared)
    falls = np.append(True, value[1:] > value[:-1]) & (value >= 0)
    cells = np.flatnonzero(falls)
    second = int(most.sum()) - value[cells].astype(np.int64) * cost_ns
    return PairSplit(cells * unit_ns // scale, second // scale, grid, choice, cells, pair)


def _is_short(problem: SplitProblem, factor: int) -> bool:
    """Whether all times and transfers, so many times over, are safe to add in 64 bits."""
    longest = problem.time_ns.max(axis=1), problem.nets.weight_ns.max(axis=1, initial=0)
    return factor * sum(sum(part.tolist()) for part in longest) < LONGEST_NS


def _build_moves(
    problem: SplitProblem,
    device: Ints,
    pair: tuple[int, int],
    order: Ints,
    max_moves: int,
    work: int,
    transfer: int,
    rent_ns: Ints,
    clock: Clock | None,
) -> tuple[Frontier, Ints, Ints] | None:
    """The DP's moves, and what each adds to the first load and to the second."""
    first, second = pair
    shared = (device == first) | (device == second)
    own = order[shared[order]]
    if len(own) == 0:
        return None
    nets = _Nets(problem, shared, pair, own, transfer)
    time, rent = problem.time_ns[:, [first, second]].tolist(), rent_ns.tolist()
    states = {0: 0}
    rows: list[tuple[int, int, int, int, int]] = []
    step_ptr, num_states = [0], [1]
    for at, v in enumerate(own.tolist()):
        if clock is not None and at % CHECKED == 0 and clock.left_s == 0.0:
            return None
        rules = nets.rules(at)
        options = [(taken, time[v][1 - taken]) for taken in (0, 1)]
        reached: dict[int, int] = {}
        step = []
        for state, number in states.items():
            for taken, time_ns in options:
                if time_ns == UNSUPPORTED:
                    continue
                after, paid = _advance(state, taken, rules)
                target = reached.setdefault(after, len(reached))
                paid[1 - taken] += work * (time_ns + rent[v])
                step.append((target, number, taken, paid[0], paid[1]))
        step.sort(key=lambda move: move[:3])
        rows += step
        if len(rows) > max_moves:
            return None
        states = reached
        step_ptr.append(len(rows))
        num_states.append(len(states))
    table = np.array(rows, np.int64).reshape(-1, 5)
    frontier = Frontier(
        order=own,
        step_ptr=np.array(step_ptr, np.int64),
        source=table[:, 1].copy(),
        target=table[:, 0].copy(),
        taken=table[:, 2].copy(),
        paid_ptr=np.zeros(len(table) + 1, np.int64),
        paid=np.zeros(0, np.int64),
        num_states=np.array(num_states, np.int64),
    )
    return frontier, table[:, 3].copy(), table[:, 4].copy()


Rule = tuple[int, bool, bool, bool, int, int]
"""Shift of a net's code in the state; whether it opens, closes, has a block elsewhere; weights."""


class _Nets:
    """The nets of the shared blocks, with a place in the state while they are open."""

    def __init__(
        self,
        problem: SplitProblem,
        shared: Flags,
        pair: tuple[int, int],
        own: Ints,
        transfer: int,
    ) -> None:
        nets = problem.nets
        self.net_of = [
            nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]].tolist() for v in own.tolist()
        ]
        self.weight = (transfer * nets.weight_ns[:, list(pair)]).tolist()
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        pins: dict[int, int] = {}
        for at, near in enumerate(self.net_of):
            for e in near:
                self.first.setdefault(e, at)
                self.last[e] = at
                pins[e] = pins.get(e, 0) + 1
        sizes = np.diff(nets.net_ptr).tolist()
        self.elsewhere = {e: sizes[e] > count for e, count in pins.items()}
        self.slot: dict[int, int] = {}
        self.free: list[int] = []

    def rules(self, at: int) -> list[Rule]:
        """What happens to the nets of the block of a step."""
        rules = []
        closed = []
        for e in self.net_of[at]:
            first, second = self.weight[e]
            if first == second == 0:
                continue
            opens, closes = self.first[e] == at, self.last[e] == at
            if opens:
                self.slot[e] = self.free.pop() if self.free else len(self.slot) + len(self.free)
            rules.append((2 * self.slot[e], opens, closes, self.elsewhere[e], first, second))
            if closes:
                closed.append(e)
        self.free += [self.slot.pop(e) for e in closed]
        return rules


def _advance(state: int, taken: int, rules: list[Rule]) -> tuple[int, list[int]]:
    """State after a choice, and what both devices pay for nets."""
    paid = [0, 0]
    for shift, opens, closes, elsewhere, *weight in rules:
        code = state >> shift & 3
        if opens:
            code = IN if taken else OUT
            if elsewhere:
                paid[1 - taken] += weight[1 - taken]
        elif code not in (PAID, taken):
            code = PAID
            if elsewhere:
                paid[1 - taken] += weight[1 - taken]
            else:
                paid[0] += weight[0]
                paid[1] += weight[1]
        state &= ~(3 << shift)
        if not closes:
            state |= code << shift
    return state, paid
