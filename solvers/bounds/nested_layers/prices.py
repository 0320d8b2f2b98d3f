"""Where memory binds, options pay for the bytes that they hold, as if these took time.

For any prices per byte of the devices, what a plan takes, plus the price of all bytes where it has
them, less the price of all room, is no more than what it takes. The chain alone is then a shortest
path through the layers: it finds the prices. Groups that no option places pay the least price.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.problem.kernels import kernel
from placegap.solvers.bounds.nested_layers.labels import over_layer
from placegap.solvers.bounds.nested_layers.options import LayerOptions, LayerTable
from placegap.solvers.bounds.prices.rooms import RoomPrices, climb_prices


def priced(
    table: LayerTable, instance: Instance, stop: Callable[[], bool]
) -> tuple[LayerTable, int]:
    """The table with options that pay for bytes, and what is to be taken off all bounds of labels.

    It is less than nothing where groups that no option places pay more than the room is worth.
    Devices that are all alike need no prices: the same one on all of them adds nothing.
    """
    arrays = instance.arrays
    placed = {g for groups in table.groups for g in groups}
    others = [g for g in range(arrays.num_groups) if g not in placed]
    size, runs = arrays.group_bytes[others], arrays.group_runs[others]
    room = np.where(table.room_bytes == NO_LIMIT, np.iinfo(np.int64).max, table.room_bytes)
    kinds = list({id(options): options for options in table.options}.values())
    kind = [next(x for x, one in enumerate(kinds) if one is own) for own in table.options]

    def charge(prices: RoomPrices) -> tuple[list[Ints], int]:
        each = np.array(prices.each, np.int64)
        costs = [(options.held_bytes @ each) >> prices.shift for options in kinds]
        least = np.where(runs, size[:, None] * each >> prices.shift, NEVER).min(
            axis=1, initial=NEVER
        )
        return costs, prices.worth_ns(room) - int(least[least < NEVER].sum())

    def trial(prices: RoomPrices) -> tuple[int, Ints]:
        if not prices.each:
            prices = RoomPrices((0,) * len(room), 0)
        costs, worth = charge(prices)
        ways = [_best_ways(one.forward_ns, one.back_ns, cost)
                for one, cost in zip(kinds, costs, strict=True)]  # fmt: skip
        least, option = _chain(table, kind, ways)
        if least >= NEVER:
            return NEVER, room
        used = np.zeros(len(room), np.int64)
        for own, p in zip(table.options, option, strict=True):
            used += own.held_bytes[p]
        each = np.array(prices.each)
        dearest = np.where(runs, each, np.iinfo(np.int64).max)
        np.add.at(used, dearest.argmin(axis=1), np.where(runs.any(axis=1), size, 0))
        return max(0, least - worth), used

    prices = climb_prices(trial, room, int(arrays.group_bytes.sum()), stop=stop)
    if not prices.each:
        return table, 0
    costs, worth = charge(prices)
    charged = [_charged(one, cost) for one, cost in zip(kinds, costs, strict=True)]
    return table._replace(options=[charged[x] for x in kind]), worth


def _charged(options: LayerOptions, cost: Ints) -> LayerOptions:
    forward = options.forward_ns
    paid = np.where(forward < NEVER, forward + cost[:, None, None], NEVER)
    return options._replace(forward_ns=np.minimum(paid, NEVER))


def _chain(
    table: LayerTable, kind: list[int], ways: list[tuple[Ints, Ints]]
) -> tuple[int, list[int]]:
    """The least bound of the chain, and the options that attain it."""
    rest = [table.core_ns]
    for x in reversed(kind):
        rest.append(over_layer(ways[x][0], rest[-1]))
    head, tail = table.outer_ns
    whole = np.minimum(head[:, None] + rest[-1] + tail[None, :], NEVER)
    a, b = np.unravel_index(int(whole.argmin()), whole.shape)
    option = list[int]()
    if whole[a, b] >= NEVER:
        return NEVER, option
    for x, inside in zip(kind, rest[-2::-1], strict=True):
        least, chosen = ways[x]
        a2, b2 = np.unravel_index(int((least[a, :, :, b] + inside).argmin()), inside.shape)
        option.append(int(chosen[a, a2, b2, b]))
        a, b = a2, b2
    return int(whole.min()), option


@kernel
def _best_ways(forward: Ints, back: Ints, cost: Ints) -> tuple[Ints, Ints]:
    """The least of any option forward from a to a2 and back from b2 to b, and which one; K^4."""
    num_devices = forward.shape[1]
    least = np.full((num_devices, num_devices, num_devices, num_devices), NEVER)
    chosen = np.full(least.shape, -1)
    for p in range(len(forward)):
        for a in range(num_devices):
            for a2 in range(num_devices):
                if forward[p, a, a2] >= NEVER:
                    continue
                there = forward[p, a, a2] + cost[p]
                for b2 in range(num_devices):
                    for b in range(num_devices):
                        way = there + back[p, b2, b]
                        if way < least[a, a2, b2, b]:
                            least[a, a2, b2, b], chosen[a, a2, b2, b] = way, p
    return least, chosen
