"""Prices per byte of the devices' memory that prove much: a subgradient method.

For any prices, the least of cost and price of the bytes, less the price of all room, is a bound.
Where bytes overfill a device, its price rises, and where there is room left, it falls. Steps are
those of Polyak (1969) towards the value of a known plan, or towards a value that is a share above
what is proven by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY, ceil_div, to_whole
from placegap.solvers.core.clock import never

PRICE_BITS, MOST_BITS = 20, 60
"""Bits of a price, an integer over a power of two, and most bits of its product with bytes."""

MOST_STEPS, STALL, HOPED = 120, 12, 0.5
"""Steps of the subgradient method; steps without progress after which they are halved. Where no
plan is known, its value is taken to be this share above the bound."""


class RoomPrices(NamedTuple):
    """Of a byte on each device, in ns times 2 to the power of `shift`; empty: nothing."""

    each: tuple[int, ...] = ()
    shift: int = 0

    def worth_ns(self, room_bytes: Ints) -> int:
        """Of all room, rounded up."""
        rooms = zip(self.each, room_bytes.tolist(), strict=True)
        worth: int = sum(each * room for each, room in rooms if each)
        return ceil_div(worth, 1 << self.shift)


FREE = RoomPrices()

Trial = Callable[[RoomPrices], tuple[int, Ints]]
"""The bound at some prices, `NO_WAY` if they are too high for numbers; and the bytes on each device
in what attains it."""


def climb_prices(
    trial: Trial,
    room_bytes: Ints,
    all_bytes: int,
    value_ns: int | None = None,
    stop: Callable[[], bool] = never,
    most_shift: int = MOST_BITS,
) -> RoomPrices:
    """The prices with the largest bound of those that are tried, until `stop`.

    There are at most `all_bytes` on all devices together; `value_ns` is that of a plan. Times
    shifted by `most_shift` bits still fit.
    """
    best = trial(FREE)[0]
    if best >= NO_WAY:
        return FREE
    finite, price = room_bytes < NO_LIMIT, np.zeros(len(room_bytes))
    at_best, now, found, scale, stalled = price, FREE, FREE, 1.0, 0
    for _ in range(MOST_STEPS):
        if stop():
            break
        total, used = trial(now)
        if total >= NO_WAY:  # beyond the range of numbers: it proves nothing
            break
        stalled += 1
        if total > best:
            best, found, at_best, stalled = total, now, price, 0
        if stalled == STALL:
            scale, stalled, price = scale / 2, 0, at_best
        else:
            slope = np.where(finite, used - np.where(finite, room_bytes, 0), 0.0).astype(float)
            slope[(price == 0) & (slope < 0)] = 0.0
            steep = float(slope @ slope)
            aim = best * (1 + HOPED * scale) if value_ns is None else value_ns
            if steep == 0.0 or aim <= total:
                break
            price = np.maximum(0.0, price + scale * (aim - total) / steep * slope)
        now = _whole_prices(price, all_bytes, most_shift)
    return found


def _whole_prices(price: Floats, all_bytes: int, most_shift: int) -> RoomPrices:
    """Integers over a power of two that are near the prices, and not above them."""
    most = float(price.max())
    if most <= 0.0:
        return FREE
    highest, exponent = MOST_BITS - all_bytes.bit_length(), math.frexp(most)[1]
    shift = max(0, min(min(PRICE_BITS, highest) - exponent, most_shift))
    if exponent > highest or shift >= MOST_BITS:
        return FREE
    return RoomPrices(tuple(to_whole(price * 2.0**shift).tolist()), shift)
