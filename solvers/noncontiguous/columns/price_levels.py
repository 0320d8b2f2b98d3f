"""The next prices to try: the nearest that the sets known would hold little enough of.

The level method (Lemarechal, Nemirovskii and Nesterov 1995): of all prices at which the sets found
so far are worth at most a level, those nearest to the best prices known. A step is measured against
each block's first price, so that large prices move further than small ones. The projection onto the
half spaces is Hildreth's (1957): one after the other, again and again.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Floats
from placegap.instances.problem.kernels import kernel

SWEEPS = 100
"""Rounds over all half spaces at most."""

CLOSE = 1e-7
"""A half space that is missed by less counts as met."""


def step_to_level(best: Floats, cuts: Floats, level: float, reach: Floats) -> Floats:
    """Prices near the best ones at which no cut is worth more than the level.

    Parameters
    ----------
    best : (b,) float
        Prices that sum to 1.
    cuts : (m, b) float
        How often each block is held, all devices together.
    level : float
    reach : (b,) float
        How far each price may move, relative to the others'; 0 for prices that stay.

    Returns
    -------
    (b,) float
        Not negative, with sum 1. O(m b) a round; about at the level if the rounds do not suffice.

    Examples
    --------
    Of two blocks the first is held twice, the second once; less than 1.4 asks for 0.4 and 0.6.

    >>> prices = step_to_level(np.array([0.5, 0.5]), np.array([[2.0, 1.0]]), 1.4, np.ones(2))
    >>> prices.round(3).tolist()
    [0.4, 0.6]
    """
    prices = np.maximum(_project(best, cuts, level, reach, SWEEPS, CLOSE), 0.0)
    total = prices.sum()
    return prices / total if total > 0 else best


@kernel(nogil=True, fastmath=True)
def _project(
    best: Floats, cuts: Floats, level: float, reach: Floats, sweeps: int, close: float
) -> Floats:
    m, n = cuts.shape
    x, on_cut, on_zero = best.copy(), np.zeros(m), np.zeros(n)
    norm, room = np.zeros(m), 0.0
    for j in range(n):
        room += reach[j]
    for i in range(m):
        for j in range(n):
            norm[i] += cuts[i, j] * cuts[i, j] * reach[j]
    for _ in range(sweeps):
        missed = 0.0
        for i in range(m):
            if norm[i] <= 0.0:
                continue
            worth = 0.0
            for j in range(n):
                worth += cuts[i, j] * x[j]
            step = max(-on_cut[i], (worth - level) / norm[i])
            if step != 0.0:
                missed = max(missed, abs(step) * norm[i])
                on_cut[i] += step
                for j in range(n):
                    x[j] -= step * reach[j] * cuts[i, j]
        total = 0.0
        for j in range(n):
            if reach[j] > 0.0:
                step = max(-on_zero[j], -x[j] / reach[j])
                on_zero[j] += step
                x[j] += step * reach[j]
            total += x[j]
        step = (total - 1.0) / room
        for j in range(n):
            x[j] -= step * reach[j]
        if missed < close:
            break
    return x
