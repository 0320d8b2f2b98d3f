"""Cutting planes find prices in few trials, and say nothing where there is nothing to say."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.prices.cuts import cut_prices
from placegap.solvers.bounds.room_prices import FREE, RoomPrices

SPEED = np.array([1, 2, 4])
ROOM = np.array([4, 2, np.iinfo(np.int64).max])


class Trials:
    """Eight ops of a byte each take as many us as a device is slow; all go to the cheapest one."""

    def __init__(self) -> None:
        self.prices: list[RoomPrices] = []

    def __call__(self, prices: RoomPrices) -> tuple[int, Ints]:
        self.prices.append(prices)
        each = np.array(prices.each or (0, 0, 0)) / 2**prices.shift
        cost = 1000 * SPEED + each
        used = np.where(np.arange(3) == cost.argmin(), 8, 0)
        return int(8 * cost.min() - each[:2] @ ROOM[:2]), used


def test_few_trials_find_what_fractions_of_ops_take() -> None:
    # 4 ops on the first device, 2 on the second, and 2 on the third, in us
    trials = Trials()
    found = cut_prices(trials, ROOM, 8)
    assert 15_900 <= trials(found)[0] <= 1000 * (4 * 1 + 2 * 2 + 2 * 4)
    assert found.each[2] == 0
    assert len(trials.prices) <= 15


def test_it_goes_on_from_known_prices() -> None:
    known = cut_prices(Trials(), ROOM, 8)
    trials = Trials()
    found = cut_prices(trials, ROOM, 8, begin=known)
    assert trials.prices[0] == known
    assert trials(found)[0] >= trials(known)[0]


def test_after_a_stop_the_first_prices_stand() -> None:
    assert cut_prices(Trials(), ROOM, 8, stop=lambda: True) == FREE


def test_nothing_is_said_where_there_is_no_plan_or_no_limit() -> None:
    assert cut_prices(lambda prices: (NO_WAY, ROOM), ROOM, 5) == FREE
    unlimited = np.full(3, np.iinfo(np.int64).max)
    assert cut_prices(Trials(), unlimited, 8) == FREE
