"""Prices per byte of the devices' memory, by a subgradient method (Lagrangian relaxation).

For any prices, the least of cost and price of the bytes, less the price of all room, is a bound: a
plan that fits pays for no more bytes than there is room. Where bytes overfill a device, its price
rises, and where there is room left, it falls. Steps are those of Polyak (1969) towards the value of
a known plan, or towards a value that is a share above the bound by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY, ceil_div, to_whole
from placegap.solvers.core.clock import never

# Bits of a price, an integer over a power of two, and most bits of its product with bytes.
PRICE_BITS, MOST_BITS = 20, 60
# Steps of the subgradient method; steps without progress after which their length is halved; where
# no plan is known, its value is assumed to be this share above the bound.
MOST_STEPS, STALL, HOPED = 120, 12, 0.5


class RoomPrices(NamedTuple):
    """The price of a byte on each device, in ns times 2**shift; empty: bytes cost nothing."""

    each: tuple[int, ...] = ()
    shift: int = 0

    def worth_ns(self, room_bytes: Ints) -> int:
        """The price of all room, in ns, rounded up: a bound subtracts it."""
        rooms = zip(self.each, room_bytes.tolist(), strict=True)
        worth: int = sum(each * room for each, room in rooms if each)
        return ceil_div(worth, 1 << self.shift)


FREE = RoomPrices()

# The bound at some prices, `NO_WAY` if a sum is beyond the numbers' range; and the bytes on each
# device in the solution that attains it.
Trial = Callable[[RoomPrices], tuple[int, Ints]]


def climb_prices(
    trial: Trial,
    room_bytes: Ints,
    all_bytes: int,
    value_ns: int | None = None,
    stop: Callable[[], bool] = never,
    most_shift: int = MOST_BITS,
) -> RoomPrices:
    """The prices with the largest bound of those that are tried, until `stop`."""
    # There are at most `all_bytes` on all devices together; `value_ns` is the value of a plan.
    # Times may be shifted by at most `most_shift` bits.
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
        # the bound need not rise with each step: what counts is the best prices of all
        stalled += 1
        if total > best:
            best, found, at_best, stalled = total, now, price, 0
        if stalled == STALL:  # steps are too long: again from the best prices, by half
            scale, stalled, price = scale / 2, 0, at_best
        else:
            # The bytes over the room are a subgradient of the bound. Devices without a limit, and
            # free ones with room left, keep price 0: a negative price would make the bound wrong.
            slope = np.where(finite, used - np.where(finite, room_bytes, 0), 0.0).astype(float)
            slope[(price == 0) & (slope < 0)] = 0.0
            steep = float(slope @ slope)
            aim = best * (1 + HOPED * scale) if value_ns is None else value_ns
            if steep == 0.0 or aim <= total:
                break
            price = np.maximum(0.0, price + scale * (aim - total) / steep * slope)
        now = whole_prices(price, all_bytes, most_shift)
    return found


def whole_prices(price: Floats, all_bytes: int, most_shift: int) -> RoomPrices:
    """The prices as integers times 2**-shift, rounded down."""
    # Any prices are valid, so rounding loses a little of the bound and no more. The shift keeps
    # `PRICE_BITS` bits of the highest price, unless price times bytes would exceed `MOST_BITS`.
    most = float(price.max())
    if most <= 0.0:
        return FREE
    highest, exponent = MOST_BITS - all_bytes.bit_length(), math.frexp(most)[1]
    shift = max(0, min(min(PRICE_BITS, highest) - exponent, most_shift))
    if exponent > highest or shift >= MOST_BITS:  # prices too high, or too low, for integers
        return FREE
    return RoomPrices(tuple(to_whole(price * 2.0**shift).tolist()), shift)
