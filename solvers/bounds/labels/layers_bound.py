"""What nested layers prove of every makespan: a chain there and back, and the work beside it.

In a training step the gradients of a layer's weights are in no path: they wait for what comes back
to the layer, and nothing waits for them. But they are on the layer's device. So either the chain
changes devices often, and pays for it twice, forward and back; or some device has so much left to
do when the chain leaves it that all others wait in the end.

Let g be the inner gate of a layer on the way back, and d any device. Ops on d that g precedes
start after g ends, one after the other; on the device of g, so does g itself:

    makespan  >=  start of g  +  (g, and) work of the ops on d that g precedes.

Layer by layer, outermost first, `layer_labels` adds up when the chain gets inside, what follows
once it comes out, and the work on each device. The least sum of any label is a bound. It is looked
for below thresholds: each is proven where no label is below it.

Where memory binds, options pay for the bytes that they hold, as if these took time. For any prices
per byte of the devices, what a plan takes, plus the price of all bytes where it has them, less the
price of all room, is no more than what it takes. The chain alone is then a shortest path through
the layers: it finds the prices. Groups that no option places pay the least price.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.labels.layer_labels import (
    MOST_TRIALS,
    Effort,
    LayerPath,
    layer_ways,
    least_by_option,
    least_within,
    rest_of,
)
from placegap.solvers.bounds.labels.layer_options import LayerTable, layer_table
from placegap.solvers.bounds.labels.nested_layers import NestedLayers, layer_chains, nested_layers
from placegap.solvers.bounds.labels.room_prices import RoomPrices, climb_prices
from placegap.solvers.bounds.work_windows import WorkWindows
from placegap.solvers.core.clock import never

MOST_OPS = 20_000

STRIDE, LEAST_STRIDE = 0.003, 0.0005
"""A threshold is so much above what is known, or half as much where there were too many labels:
their number grows fast with what is between a threshold and the least bound of any."""

EASY, FAR = 0.001, 0.03
"""After a threshold that takes no more of the effort, the next one is twice as far away, and has so
much of it at most."""


class NestedSearch(NamedTuple):
    """What nested layers prove, in ns, and the paths of labels with the least bounds, if any."""

    ns: int
    nested: NestedLayers
    table: LayerTable
    paths: list[LayerPath]


def layers_bound(
    instance: Instance,
    semantics: Makespan,
    windows: WorkWindows,
    known_ns: int,
    stop: Callable[[], bool] = never,
) -> int:
    """What nested layers prove of every makespan, in ns, or what is known if that is more.

    Parameters
    ----------
    known_ns : int
        A bound.
    stop : callable
        Asked between layers; then the best bound so far is returned.
    """
    found = search_layers(instance, semantics, windows, known_ns, stop)
    return known_ns if found is None else found.ns


def search_layers(
    instance: Instance,
    semantics: Makespan,
    windows: WorkWindows,
    known_ns: int,
    stop: Callable[[], bool] = never,
    num_paths: int = 0,
) -> NestedSearch | None:
    """The bound, and so many of the paths that are nearest to it; None where there is nothing.

    It ends with the first threshold that a label is below: the least one is exact.
    """
    if instance.num_ops > MOST_OPS or instance.num_devices < 2:
        return None
    is_tight = not instance.arrays.memory_is_slack
    for chain in layer_chains(instance, windows.intervals):
        nested = nested_layers(instance, chain, windows.time_ns, with_core=is_tight)
        if nested is not None:
            break
    else:
        return None
    table = layer_table(instance, semantics, chain, nested, windows, stop)
    if table is None:
        return None
    if is_tight and not stop():
        table = priced(table, instance, stop)
    ways = layer_ways(table)
    rest = rest_of(table, ways)
    head, tail = table.outer_ns
    through = int((head[:, None] + rest[0] + tail[None, :]).min())
    if through >= NO_WAY:  # no plan at all: nothing that this bound says
        return None
    least = least_by_option(table, ways, rest)
    best, stride, effort = max(known_ns, through - table.worth_ns), STRIDE, Effort()
    longest, last = serial_horizon_ns(instance), 0
    while stride >= LEAST_STRIDE and effort.left > 1 and best <= longest and not stop():
        aim = min(int(best * (1 + stride)), longest) + 1
        given = effort.left // 2 if stride <= STRIDE else min(effort.left, int(FAR * MOST_TRIALS))
        trial = Effort(given)
        near = [
            options.only(np.flatnonzero(by_option <= aim + table.worth_ns))
            for options, by_option in zip(table.options, least, strict=True)
        ]
        trimmed = table._replace(options=near)
        found = least_within(trimmed, rest, aim, trial, stop, num_paths)
        spent = given - trial.left
        effort.left -= spent
        if found is None:
            stride = STRIDE if stride > STRIDE else stride / 2
            if last > effort.left:  # what is nearer takes more than the last threshold did
                break
        elif found.ns < NO_WAY:
            return NestedSearch(max(best, found.ns), nested, trimmed, found.paths)
        else:
            best, last = aim + 1, spent
            stride = 2 * stride if spent < EASY * MOST_TRIALS else min(stride, STRIDE)
    if best > longest:  # no plan fits into memory
        return None
    return NestedSearch(best, nested, table, [])


def priced(table: LayerTable, instance: Instance, stop: Callable[[], bool]) -> LayerTable:
    """The table with prices of bytes.

    Devices that are all alike need none: the same price on all of them adds nothing.
    """
    arrays = instance.arrays
    placed = {g for groups in table.groups for g in groups}
    others = [g for g in range(arrays.num_groups) if g not in placed]
    size, runs = arrays.group_bytes[others], arrays.group_runs[others]
    room = table.room_bytes
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
    ways = layer_ways(table)
    rest = rest_of(table, ways)
    head, tail = table.outer_ns
    whole = np.minimum(head[:, None] + rest[0] + tail[None, :], NO_WAY)
    a, b = np.unravel_index(int(whole.argmin()), whole.shape)
    option = list[int]()
    if whole[a, b] >= NO_WAY:
        return NO_WAY, option
    for way, inside in zip(ways, rest[1:], strict=True):
        a2, b2 = np.unravel_index(int((way.least_ns[a, :, :, b] + inside).argmin()), inside.shape)
        option.append(int(way.option[a, a2, b2, b]))
        a, b = a2, b2
    return int(whole.min()), option
