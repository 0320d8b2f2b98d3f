"""Raise a bound on max_load: refute one limit after another, by bisection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from placegap.solvers.chains.raise_bound import DEEP, Windows, first_windows, narrow
from placegap.solvers.chains.stage_lp import ChainCosts, Range, Reach
from placegap.solvers.core.clock import Clock

ORIGIN = "stage LPs"
"""What proves such a bound."""

EFFORTS = (0, 3, 12, 40)
"""Rounds: how often the interval before a stage is split, at most."""

DEEP_EFFORTS, FEW_STAGES = (300, 3_000, 30_000), 4
"""Rounds that follow where there are so few stages: they ask first whether anything is better than
the best plan, and split by single blocks as well."""

CLOSER = 8
"""How many times nearer those rounds come before they end."""

CLOSE = 0.002
"""A round ends when bound and smallest limit not refuted are within this share of the value."""

FIRST, LOW = 0.1, 0.4
"""The next limit is so far above the bound, of the bracket: to refute takes less time than not to.
A round begins with the first and doubles it while limits are refuted."""


def raise_bound(
    costs: ChainCosts,
    lower: int,
    best: Callable[[], int | None],
    prove: Callable[[int], None],
    seen: Callable[[Reach], None],
    clock: Clock,
    gap: float = 0.0,
    efforts: Iterable[int] | None = None,
) -> None:
    """Refute limits until the gap is closed, the last round is over or the time is.

    Parameters
    ----------
    costs : ChainCosts
    lower : int
        A proven bound.
    best : callable () -> int or None
        Value of the best plan known; None: the work of all blocks and all nets.
    prove : callable
        Told of every better bound.
    seen : callable
        Told of every solution of an LP on the way.
    clock : Clock
    gap : float
        Relative gap that suffices.
    efforts : iterable of int, optional
        Splits of each round, by default `rounds`; an iterator goes on where the last call ended.

    Raises
    ------
    LimitReached
        If the time is over.

    Examples
    --------
    Blocks of 4 and 6 ns with a tensor of 3 ns between them, on two devices: 6 + 3 is best.

    >>> import numpy as np
    >>> from placegap.solvers.chains.stage_lp import BlockArcs, chain_costs
    >>> amounts = np.array([[4, 6]]), np.zeros((1, 2), np.int64), np.zeros(1, np.int64)
    >>> nets = np.array([[3]]), np.array([0, 2]), np.array([0, 1])
    >>> row = BlockArcs(np.array([0]), np.array([1]))
    >>> costs = chain_costs(row, amounts, nets, np.array([2]), overlap=False)
    >>> found = []
    >>> raise_bound(costs, 6, lambda: 9, found.append, lambda reach: None, Clock(None))
    >>> found[-1]
    9
    """
    for splits in rounds(costs) if efforts is None else efforts:
        straight = splits >= DEEP
        close = CLOSE / CLOSER if straight else CLOSE
        high = best() or _largest(costs)
        known: tuple[int, Windows] | None = None
        share = FIRST
        while lower < high:
            value = best() or _largest(costs)
            high = min(high, value)
            near = not straight and high - lower <= close * value * (splits > 0)
            if near or value - lower <= gap * value:
                break
            if splits == 0 and high - lower <= 4 * CLOSE * value:
                break
            limit = high - 1 if straight else lower + int(share * (high - 1 - lower))
            straight = False
            windows = first_windows(costs, limit)
            if windows is not None and known is not None:
                windows = {
                    state: _common(windows[state], window) for state, window in known[1].items()
                }
            if windows is not None and limit > 0:
                windows = narrow(costs, windows, limit, splits, clock, seen)
            if windows is None:
                lower, share = limit + 1, min(LOW, 2 * share)
                prove(lower)
            else:
                high, known, share = limit, (limit, windows), LOW
        if lower >= (best() or _largest(costs)):
            return


def rounds(costs: ChainCosts) -> Iterator[int]:
    """The usual efforts, one after the other."""
    deep = DEEP_EFFORTS if int(costs.counts.sum()) <= FEW_STAGES else ()
    return iter((*EFFORTS, *deep))


def _common(a: tuple[int, int], b: tuple[int, int]) -> Range:
    return Range(max(a[0], b[0]), min(a[1], b[1]))


def _largest(costs: ChainCosts) -> int:
    """No plan has more load than this, if there is one."""
    return int(costs.time.max(axis=0).sum() + costs.weight.max(axis=0, initial=0).sum())
