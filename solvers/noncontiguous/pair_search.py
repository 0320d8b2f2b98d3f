"""Local search whose move is the best new split of two devices (`noncontiguous.pair_exchange`).

The heaviest device and another, or any two, share their blocks anew. Of all trade-offs between the
two loads the one is taken that is least in a p-norm, p drawn at random: a high p lowers the heavier
of the two, a low one the sum, which leaves room that other pairs can use.

Where that ends, `shake` leads elsewhere: the same search with times and transfers that were drawn a
little lower, each by a part of its own (the noising method, Charon and Hudry 1993).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placegap.instances.problem.array_types import Floats, Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.noncontiguous.pair_splits import split_pair
from placegap.solvers.noncontiguous.problem import SplitProblem

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
    problem : SplitProblem
    start : (b,) int64
        Devices of the blocks, feasible: every plan taken is.
    order : (b,) int64
        An elimination order of the blocks.
    seed : int
    patience : int
        Splits without a better plan after which the search ends.
    clock : Clock
        When it is over, the best plan so far is returned.
    enough_ns : int
        A load that is good enough.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> problem = build_split_problem(example())
    >>> plan = exchange_pairs(
    ...     problem, np.zeros(4, np.int64), np.arange(4),
    ...     seed=0, patience=5, clock=Clock(None),
    ... )
    >>> int(problem.loads(plan).max())
    25
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
        found = split_pair(
            problem,
            device,
            pair,
            order,
            limit_ns=least + int(paid_ns.max()),
            num_cells=num_cells,
            max_moves=MOST_MOVES,
            mean=MEANS[int(rng.integers(len(MEANS)))],
            rent_ns=rent_ns,
            clock=clock,
        )
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
    """Whether some of the heaviest device's pairs are not too entangled to be split.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> can_split(
    ...     build_split_problem(example()), np.zeros(4, np.int64), np.arange(4), Clock(None)
    ... )
    True
    """
    load = problem.loads(device)
    heaviest = int(np.argmax(load))
    others = [k for k in np.argsort(load, kind="stable").tolist() if k != heaviest]
    return any(
        split_pair(
            problem,
            device,
            (heaviest, other),
            order,
            limit_ns=int(load.max()),
            num_cells=1,
            max_moves=MOST_MOVES,
            clock=clock,
        )
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

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> problem = build_split_problem(example())
    >>> plan = shake(
    ...     problem, np.zeros(4, np.int64), np.arange(4),
    ...     seed=0, noise=0.3, patience=5, clock=Clock(None),
    ... )
    >>> problem.fits(plan)
    True
    """
    rng = np.random.default_rng(seed)
    kept = 1.0 - noise * rng.random((problem.num_blocks, 1))
    paid = 1.0 - noise * rng.random((problem.nets.num_nets, 1))
    time_ns = np.where(problem.time_ns == UNSUPPORTED, UNSUPPORTED, problem.time_ns * kept)
    weight_ns = (problem.nets.weight_ns * paid).astype(np.int64)
    noisy = replace(
        problem,
        time_ns=time_ns.astype(np.int64),
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
    """What blocks pay for memory, where all of a device's costs a part of the load."""
    memory = problem.memory_bytes[problem.memory_bytes < problem.size_bytes.sum()]
    scale = part * load_ns / max(1.0, float(memory.max(initial=0)))
    rent: Ints = (problem.size_bytes * scale).astype(np.int64)
    return rent


def _choose(first: Floats, second: Floats, power: float, trials: int) -> list[int]:
    """Trade-offs of least p-norm, of those whose loads are at most 1, the best ones first."""
    at = np.flatnonzero(np.maximum(first, second) <= 1.0)
    # of loads above 1 a high power may not be a number
    cost = first[at] ** power + second[at] ** power
    chosen: list[int] = at[np.argsort(cost, kind="stable")[:trials]].tolist()
    return chosen
