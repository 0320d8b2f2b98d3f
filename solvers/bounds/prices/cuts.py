"""Prices per byte of the devices' memory that prove much, where each trial is dear: cutting planes.

What prices prove is a concave function of them, and each trial gives a plane above it: its bound,
and as slopes the bytes that overfill each device. The prices where the planes allow most, near the
best ones so far, are tried next (Kelley 1960, in a box that shrinks where it promised too much).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.room_prices import FREE, RoomPrices, Trial, whole_prices
from placegap.solvers.core.interrupts import never

MOST_TRIALS, FIRST_WIDTH, KEPT, LEAST_GAIN = 40, 0.1, 0.1, 1e-4
"""Trials; the first box, as the share of the time that the room of a device may be worth more; what
share of the promise makes the box larger; and what is promised at least, as a share of the time."""


def cut_prices(
    trial: Trial,
    room_bytes: Ints,
    all_bytes: int,
    stop: Callable[[], bool] = never,
    begin: RoomPrices = FREE,
) -> RoomPrices:
    """The prices with the largest bound of those that are tried, until `stop`.

    Parameters
    ----------
    trial : callable
    room_bytes : (K,) int64
        The largest integer for no limit.
    all_bytes : int
        That there are at most on all devices together.
    stop : callable
    begin : RoomPrices
        The first that are tried.

    Examples
    --------
    One op of 3 bytes takes 5 ns on the first device, which holds a byte, and 9 ns on the second:

    >>> room = np.array([1, 10])
    >>> def trial(prices):
    ...     each = [x / 2**prices.shift for x in prices.each or (0, 0)]
    ...     costs = [5 + 3 * each[0], 9 + 3 * each[1]]
    ...     at = int(np.argmin(costs))
    ...     return int(costs[at] - each[0] - 10 * each[1]), np.array([3 * (at == 0), 3 * (at == 1)])
    >>> 6 <= trial(cut_prices(trial, room, 3))[0] <= 7
    True
    """
    best, used = trial(begin)
    finite = room_bytes < np.iinfo(np.int64).max
    if best >= NO_WAY or best <= 0 or not finite.any():
        return FREE
    room = np.where(finite, room_bytes, 1).astype(float)
    unit = best / np.maximum(room, 1.0)  # a price at which the room is worth all the time
    found, centre, width = begin, _floats(begin, len(room)) / unit, FIRST_WIDTH
    heights, slopes = list[float](), list[Floats]()
    now, total, time = centre, best, float(best)
    for _ in range(MOST_TRIALS):
        slope = np.where(finite, used / np.maximum(room, 1.0) - 1.0, 0.0)
        heights.append(total / time - float(slope @ now))
        slopes.append(slope)
        promised, point = _highest(np.array(heights), np.array(slopes), centre, width, finite)
        if promised - best / time < LEAST_GAIN:
            break
        prices = whole_prices(point * unit, all_bytes)
        if stop() or not prices.each:
            break
        total, used = trial(prices)
        if total >= NO_WAY:  # dearer than numbers reach: it says nothing
            break
        now = _floats(prices, len(room)) / unit
        if total - best >= KEPT * (promised * time - best):
            width *= 2
        else:
            width /= 2
        if total > best:
            best, found, centre = total, prices, now
    return found


def _highest(
    heights: Floats, slopes: Floats, centre: Floats, width: float, finite: Flags
) -> tuple[float, Floats]:
    """Where the planes allow most within a box, and how much."""
    low, high = np.maximum(centre - width, 0.0), centre + width
    bounds = [(a, b) if here else (0.0, 0.0) for a, b, here in zip(low, high, finite, strict=True)]
    answer = linprog(
        [-1.0] + [0.0] * len(centre),
        A_ub=np.hstack([np.ones((len(heights), 1)), -slopes]),
        b_ub=heights,
        bounds=[(None, None), *bounds],
        method="highs",
    )
    if answer.x is None:
        return -np.inf, centre
    return float(answer.x[0]), np.asarray(answer.x[1:], np.float64)


def _floats(prices: RoomPrices, num: int) -> Floats:
    each = prices.each or (0,) * num
    return np.array(each, np.float64) / 2.0**prices.shift
