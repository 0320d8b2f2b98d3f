"""Local search whose move is the best new split of two devices, and the DP that finds it.

Two devices share their blocks anew; the others keep what they have, so a net with a block elsewhere
is paid by each of the two that has a block of it, any other net by both or by none. A knapsack over
the states of the shared blocks' frontier has the first device's load in cells as its weight and the
second's as its cost. One run gives the least second load for every first load, and a partition for
each. This is the strongest change of two devices that there is, up to the grid. Where transfers
overlap with the work, a mean of the two stands for a device's load.

The heaviest device and another, or any two, are split (`exchange_pairs`). Of all trade-offs between
the two loads the one is taken that is least in a p-norm, p drawn at random: a high p lowers the
heavier of the two, a low one the sum, which leaves room that other pairs can use. Where that ends,
`shake` leads elsewhere: the same search with times and transfers that were drawn a little lower,
each by a part of its own (the noising method, Charon and Hudry 1993).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.integers import UNSUPPORTED, to_whole
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.noncontiguous.knapsack import (
    TOTAL_PRICE,
    Frontier,
    Grid,
    build_frontier,
    find_steps,
    most_gain,
    paid_by_move,
    round_moves,
    trace,
)
from placegap.solvers.noncontiguous.problem import SplitProblem

LONGEST_NS = 2**62
"""Sums of loads stay below it."""


POWERS = (1.0, 8.0, 40.0, 200.0)
"""Norms of the splits of two devices; the last one where the heaviest device takes part."""

SLACK = 5e-4
"""By how much a split may raise the heavier load, relative to it: a way out of local optima."""

MEANS = ((3, 1), (1, 1), (7, 1))
"""Weights of time and transfers, drawn at random, where they overlap."""

WORK, FEWEST_CELLS, MOST_CELLS = 3e7, 4_000, 16_000
"""Moves times cells of a split, and how fine it is at least and at most."""

RENTS = (0.0, 0.02, 0.1, 0.5)
"""Where memory is short: what all of it costs, as a part of the load, drawn at random."""

TRIALS = 40
"""Where memory is short: trade-offs of a pair that are tried until one fits."""

MOST_MOVES = 100_000
"""Pairs whose DP has more moves are passed over."""

MOST_ENTANGLED, TRIED_PAIRS = 12, 4
"""Pairs in a row that are passed over before the search ends; those that are tried before it."""

SHAKES = 40
"""Splits without a better plan after which a search with noise ends."""


@dataclass(frozen=True, eq=False)
class PairSplit:
    """The trade-off between the loads of two devices."""

    #: first_ns, second_ns: (c,) int64: Pairs of loads, about; the first ascending, the second
    #: falling.
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


class SplitRules(NamedTuple):
    """How `split_pair` looks at loads."""

    #: Loads above it do not matter.
    limit_ns: int
    #: Cells of the first load up to the limit.
    num_cells: int
    #: Weights of time and of transfers where the two overlap.
    mean: tuple[int, int] = (1, 1)
    #: (b,) int64: What each block adds to both loads besides, for the memory that it takes.
    rent_ns: Ints | None = None
    #: Most moves of the DP.
    max_moves: int = MOST_MOVES


def split_pair(
    problem: SplitProblem,
    device: Ints,
    pair: tuple[int, int],
    order: Ints,
    rules: SplitRules,
    clock: Clock | None = None,
) -> PairSplit | None:
    """All that two devices can do with the blocks that they hold; None if they are too entangled.

    None as well if the clock is over before the moves of the DP are there.

    Parameters
    ----------
    device : (b,) int64
        Device of each block; only the pair's own matter.
    pair : tuple of int
        The first and the second device.
    order : (b,) int64
        An elimination order of all blocks.

    Notes
    -----
    Memory is not looked at. O(moves * cells).
    """
    moves = _build_moves(problem, device, pair, order, rules, clock)
    if moves is None:
        return None
    frontier, first_ns, second_ns = moves
    scale = sum(_mean(problem, rules)) if problem.overlap else 1
    limit_ns = scale * rules.limit_ns
    unit_ns = max(1, -(-limit_ns // rules.num_cells))
    grid = round_moves(frontier, first_ns, unit_ns, limit_ns // unit_ns + 1)
    most = np.maximum.reduceat(second_ns, frontier.step_ptr[:-1])
    if sum(most.tolist()) >= LONGEST_NS:
        return None
    # the DP looks for the most that the second device is spared, in units that fit into 32 bits
    cost_ns = max(1, -(-int(most.sum()) // TOTAL_PRICE))
    spared = ((most[frontier.step] - second_ns) // cost_ns).astype(np.int32)
    value, choice = most_gain(grid, spared)
    falls = np.append(True, value[1:] > value[:-1]) & (value >= 0)
    cells = np.flatnonzero(falls)
    second = int(most.sum()) - value[cells].astype(np.int64) * cost_ns
    return PairSplit(cells * unit_ns // scale, second // scale, grid, choice, cells, pair)


def _mean(problem: SplitProblem, rules: SplitRules) -> tuple[int, int]:
    """Weights of time and transfers: 1 unless they overlap, and where 64 bits would not do."""
    total = _longest_ns(problem) + (0 if rules.rent_ns is None else sum(rules.rent_ns.tolist()))
    return rules.mean if problem.overlap and sum(rules.mean) * total < LONGEST_NS else (1, 1)


def _longest_ns(problem: SplitProblem) -> int:
    """No load is larger."""
    longest = problem.time_ns.max(axis=1), problem.nets.weight_ns.max(axis=1, initial=0)
    return sum(sum(part.tolist()) for part in longest)


def _build_moves(
    problem: SplitProblem,
    device: Ints,
    pair: tuple[int, int],
    order: Ints,
    rules: SplitRules,
    clock: Clock | None,
) -> tuple[Frontier, Ints, Ints] | None:
    """The DP's moves, and what each adds to the first load and to the second."""
    nets, (work, transfer) = problem.nets, _mean(problem, rules)
    shared = np.isin(device, pair)
    own = order[shared[order]]
    if len(own) == 0:
        return None
    steps, weight_ns = find_steps(nets, own), transfer * nets.weight_ns[:, list(pair)]
    able = problem.time_ns[:, pair[::-1]] != UNSUPPORTED
    try:
        known: Flags = weight_ns.max(axis=1, initial=0) > 0
        frontier = build_frontier(nets, steps, known, rules.max_moves, clock, able)
    except LimitReached:
        return None
    if frontier is None:
        return None
    pins = np.bincount(
        np.repeat(np.arange(nets.num_nets), np.diff(nets.net_ptr))[shared[nets.pin]],
        minlength=nets.num_nets,
    )
    elsewhere = pins < np.diff(nets.net_ptr)
    opens = np.zeros((len(own) + 1, 2), np.int64)
    np.add.at(opens, steps.first[elsewhere], weight_ns[elsewhere])
    block, loads = own[frontier.step], []
    for at, k in enumerate(pair):
        gets = frontier.taken if at == 0 else 1 - frontier.taken
        time_ns = problem.time_ns[block, k] + (0 if rules.rent_ns is None else rules.rent_ns[block])
        # a net with a block elsewhere: with the first block of it that the device gets
        late = paid_by_move(frontier, np.where(elsewhere, weight_ns[:, at], 0))
        both = paid_by_move(frontier, np.where(elsewhere, 0, weight_ns[:, at]))
        loads.append(both + gets * (work * time_ns + opens[frontier.step, at] + late))
    return frontier, loads[0], loads[1]


def exchange_pairs(
    problem: SplitProblem,
    start: Ints,
    order: Ints,
    *,
    seed: int,
    patience: int,
    clock: Clock,
    enough_ns: int = 0,
) -> Ints:
    """The best plan seen, (b,), never heavier than the start.

    Parameters
    ----------
    start : (b,) int64
        Devices of the blocks, feasible: every plan taken is.
    order : (b,) int64
        An elimination order of the blocks.
    patience : int
        Splits without a better plan after which the search ends.
    clock : Clock
        When it is over, the best plan so far is returned.
    enough_ns : int
        A load that is good enough.
    """
    rng = np.random.default_rng(seed)
    best = device = start.copy()
    load = problem.loads(device)
    least, idle = int(load.max()), 0
    num_cells, entangled = FEWEST_CELLS, 0
    tight = bool((problem.memory_bytes < problem.size_bytes.sum()).any())
    trials = TRIALS if tight else 1
    while problem.num_devices > 1 and idle < patience and least > enough_ns:
        try:
            clock.check()
        except LimitReached:
            break
        idle += 1
        pair = _draw_pair(rng, load)
        rent_ns = _rent(problem, least, RENTS[int(rng.integers(len(RENTS)))] if tight else 0.0)
        paid_ns = np.array([rent_ns[device == k].sum() for k in pair])
        rules = SplitRules(
            least + int(paid_ns.max()),
            num_cells,
            mean=MEANS[int(rng.integers(len(MEANS)))],
            rent_ns=rent_ns,
        )
        found = split_pair(problem, device, pair, order, rules, clock)
        if found is None:
            entangled += 1
            if entangled == MOST_ENTANGLED:
                break
            continue
        entangled = 0
        moves = len(found.grid.frontier.source)
        num_cells = int(min(MOST_CELLS, max(FEWEST_CELLS, WORK / moves)))
        heaviest = load.max() in load[list(pair)]
        power = POWERS[-1] if heaviest else POWERS[int(rng.integers(len(POWERS)))]
        most = (1 + SLACK) * (load[list(pair)].max() if heaviest else load.max())
        counted = most + float(paid_ns.max())
        for at in _choose(found.first_ns / counted, found.second_ns / counted, power, trials):
            changed = found.apply(device, at)
            after = problem.loads(changed)
            if after[list(pair)].max() <= (1 + SLACK) * most and problem.fits(changed):
                break
        else:
            continue
        device, load = changed, after
        if load.max() < least:
            best, least, idle = device, int(load.max()), 0
    return best.copy()


def can_split(problem: SplitProblem, device: Ints, order: Ints, clock: Clock) -> bool:
    """Whether some of the heaviest device's pairs are not too entangled to be split."""
    load = problem.loads(device)
    heaviest = int(np.argmax(load))
    others = [k for k in np.argsort(load, kind="stable").tolist() if k != heaviest]
    rules = SplitRules(int(load.max()), num_cells=1)
    return any(
        split_pair(problem, device, (heaviest, other), order, rules, clock)
        for other in others[:TRIED_PAIRS]
    )


def shake(
    problem: SplitProblem,
    start: Ints,
    order: Ints,
    *,
    seed: int,
    noise: float,
    patience: int,
    clock: Clock,
) -> Ints:
    """A plan that fits, good where times and transfers are up to `noise` of them lower, (b,).

    Parameters are those of `exchange_pairs`; devices of a kind stay alike.
    """
    rng = np.random.default_rng(seed)
    kept = 1.0 - noise * rng.random((problem.num_blocks, 1))
    paid = 1.0 - noise * rng.random((problem.nets.num_nets, 1))
    time_ns = np.where(problem.time_ns == UNSUPPORTED, UNSUPPORTED, problem.time_ns * kept)
    weight_ns = to_whole(problem.nets.weight_ns * paid)
    noisy = replace(
        problem,
        time_ns=to_whole(time_ns),
        nets=replace(problem.nets, weight_ns=weight_ns),
    )
    return exchange_pairs(
        noisy, start, order, seed=seed, patience=min(SHAKES, patience), clock=clock
    )


def _draw_pair(rng: np.random.Generator, load: Ints) -> tuple[int, int]:
    """The heaviest device and another, or any two."""
    first, second = rng.permutation(len(load))[:2].tolist()
    heaviest = int(np.argmax(load))
    if rng.integers(2) and second != heaviest:
        first = heaviest
    return first, second


def _rent(problem: SplitProblem, load_ns: int, part: float) -> Ints:
    """What blocks pay for memory, where all of a device's costs a part of the load.

    A block that is larger than that pays no more. Where no device is short of memory that it has,
    or the sums would not fit 64 bits, memory is free.
    """
    short = problem.memory_bytes[problem.memory_bytes < problem.size_bytes.sum()]
    room = int(short.max(initial=0))
    rent = to_whole(np.minimum(problem.size_bytes, room) * (part * load_ns / max(1, room)))
    fits = 2 * (_longest_ns(problem) + sum(rent.tolist())) < LONGEST_NS
    return rent if fits else np.zeros_like(rent)


def _choose(first: Floats, second: Floats, power: float, trials: int) -> list[int]:
    """Trade-offs of least p-norm, of those whose loads are at most 1, the best ones first."""
    at = np.flatnonzero(np.maximum(first, second) <= 1.0)
    # of loads above 1 a high power may not be a number
    cost = first[at] ** power + second[at] ** power
    chosen: list[int] = at[np.argsort(cost, kind="stable")[:trials]].tolist()
    return chosen
