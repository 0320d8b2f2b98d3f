"""Where memory binds, options pay for the bytes that they hold, as if these took time.

For any prices per byte of the devices, what a plan takes, plus the price of all bytes where it has
them, less the price of all room, is no more than what it takes. The chain alone is then a shortest
path through the layers: it finds the prices. Groups that no option places pay the least price.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY
from placegap.solvers.bounds.nested_layers.options import LayerTable
from placegap.solvers.bounds.nested_layers.shortest import least_ways, over_layer
from placegap.solvers.bounds.prices.rooms import RoomPrices, climb_prices


def priced(table: LayerTable, instance: Instance, stop: Callable[[], bool]) -> LayerTable:
    """The table with prices of bytes.

    Devices that are all alike need none: the same price on all of them adds nothing.
    """
    arrays = instance.arrays
    placed = {g for groups in table.groups for g in groups}
    others = [g for g in range(arrays.num_groups) if g not in placed]
    size, runs = arrays.group_bytes[others], arrays.group_runs[others]
    room = np.where(table.room_bytes == NO_LIMIT, np.iinfo(np.int64).max, table.room_bytes)
    kinds = list({id(options): options for options in table.options}.values())
    kind = [next(x for x, one in enumerate(kinds) if one is own) for own in table.options]

    def at(prices: RoomPrices) -> LayerTable:
        each = np.array(prices.each or (0,) * len(room), np.int64)
        paid = [one._replace(paid_ns=(one.held_bytes @ each) >> prices.shift) for one in kinds]
        cost = (size[:, None] * each) >> prices.shift
        beside = np.where(runs, cost, NO_WAY).min(axis=1, initial=NO_WAY)
        worth = prices.worth_ns(room) if prices.each else 0
        return table._replace(
            options=[paid[x] for x in kind],
            price=each,
            shift=prices.shift,
            worth_ns=worth - int(beside[beside < NO_WAY].sum()),
        )

    def trial(prices: RoomPrices) -> tuple[int, Ints]:
        trial_table = at(prices)
        least, option = _chain(trial_table)
        used = np.zeros(len(room), np.int64)
        if least >= NO_WAY:
            return NO_WAY, used
        for own, p in zip(table.options, option, strict=True):
            used += own.held_bytes[p]
        cheapest = np.where(runs, trial_table.price, np.iinfo(np.int64).max).argmin(axis=1)
        np.add.at(used, cheapest, np.where(runs.any(axis=1), size, 0))
        return max(0, least - trial_table.worth_ns), used

    prices = climb_prices(trial, room, int(arrays.group_bytes.sum()), stop=stop)
    return at(prices) if prices.each else table


def _chain(table: LayerTable) -> tuple[int, list[int]]:
    """What the chain takes and pays at least, and the options that attain it."""
    known: dict[int, tuple[Ints, Ints]] = {}
    for one in table.options:
        if id(one) not in known:
            known[id(one)] = least_ways(one.forward_ns, one.back_ns, one.paid_ns)
    ways = [known[id(one)] for one in table.options]
    rest = [table.core_ns]
    for least, _ in reversed(ways):
        rest.append(over_layer(least, rest[-1]))
    head, tail = table.outer_ns
    whole = np.minimum(head[:, None] + rest[-1] + tail[None, :], NO_WAY)
    a, b = np.unravel_index(int(whole.argmin()), whole.shape)
    option = list[int]()
    if whole[a, b] >= NO_WAY:
        return NO_WAY, option
    for (least, chosen), inside in zip(ways, rest[-2::-1], strict=True):
        a2, b2 = np.unravel_index(int((least[a, :, :, b] + inside).argmin()), inside.shape)
        option.append(int(chosen[a, a2, b2, b]))
        a, b = a2, b2
    return int(whole.min()), option
