"""Prices of bytes rise where a device is overfull, and a room without a limit costs nothing."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY
from placegap.solvers.bounds.labels.room_prices import FREE, RoomPrices, climb_prices

SPEED = np.array([1, 2, 4])


def halves(prices: RoomPrices, room: Ints) -> tuple[int, Ints]:
    """Eight ops of a byte each take as many ns as a device is slow; all go to the cheapest one."""
    each = np.array(prices.each or (0, 0, 0)) / 2**prices.shift
    at = int((SPEED + each).argmin())
    used = np.where(np.arange(3) == at, 8, 0)
    finite = np.where(each > 0, room, 0)
    return int(8 * (SPEED + each)[at] - each @ finite), used


def test_prices_find_what_fractions_of_ops_take() -> None:
    room = np.array([4, 2, NO_LIMIT])
    found = climb_prices(lambda prices: halves(prices, room), room, 8, value_ns=16)
    proven, _ = halves(found, room)
    assert 15 <= proven <= 4 * 1 + 2 * 2 + 2 * 4
    assert found.each[2] == 0


def test_worth_is_rounded_up() -> None:
    assert RoomPrices((3, 0), 2).worth_ns(np.array([3, 10**18])) == 3  # 9 / 4
    assert FREE.worth_ns(np.zeros(0, np.int64)) == 0


def test_nothing_is_said_where_there_is_no_plan() -> None:
    room = np.array([1, 1])
    assert climb_prices(lambda prices: (NO_WAY, room), room, 5) == FREE


def test_a_search_that_is_stopped_has_no_prices() -> None:
    room = np.array([4, 2, 10])
    assert climb_prices(lambda prices: halves(prices, room), room, 8, stop=lambda: True) == FREE
