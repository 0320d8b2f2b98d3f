"""What nested layers prove of every makespan: a chain there and back, and the work beside it.

In a training step the gradients of a layer's weights are in no path: they wait for what comes back
to the layer, and nothing waits for them. But they are on the layer's device. So either the chain
changes devices often, and pays for it twice, forward and back; or some device has so much left to
do when the chain leaves it that all others wait in the end.

Let g be the inner gate of a layer on the way back, and d any device. Ops on d that g precedes
start after g ends, one after the other; on the device of g, so does g itself:

    makespan  >=  start of g  +  (g, and) work of the ops on d that g precedes.

Layer by layer, outermost first, labels add up when the chain gets inside, what follows once it
comes out, and the work on each device. The least sum of any label is a bound. It is looked
for below thresholds: each is proven where no label is below it.

Where memory binds, options pay for the bytes that they hold, as if these took time. For any prices
per byte of the devices, what a plan takes, plus the price of all bytes where it has them, less the
price of all room, is no more than what it takes. The chain alone is then a shortest path through
the layers: it finds the prices. Groups that no option places pay the least price.

A *label* stands for options of the layers so far, outermost first. It knows

- the devices of the two inner gates;
- when the gate of the way forward starts at the earliest;
- what follows the start of the gate on the way back at least: the rest of the chain, and on every
  device all of the work that can only begin then, one op after the other;
- the work on each device, and where memory binds the bytes there.

The sum of both times and of the least time between the gates is a lower bound on the makespan of
all plans with these options. Labels with a sum above the threshold are left out. Of those that
agree in devices, work and about the bytes, one that another is no worse than in both times is left
out as well, and the others hold the least bytes of any. A label with more bytes than a device has
room for is none.

Devices that are identical have no names: those of a class are numbered by their work. A path knows
how devices were renamed, layer by layer.

Where memory binds, bytes have prices. What the layers further inside take, and
pay, is then no less than a shortest path; so that a label is left out whose times, price and that
path together are above the threshold and what all room is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.labels.nested_layers import (
    MOST_ALIKE,
    LayerOptions,
    LayerTable,
    NestedLayers,
    layer_chains,
    layer_table,
    nested_layers,
)
from placegap.solvers.bounds.labels.room_prices import RoomPrices, climb_prices
from placegap.solvers.bounds.work_windows import WorkWindows
from placegap.solvers.core.clock import never

STATE, START, LEFT, SOURCE, OPTION, NAMES, WORK = range(7)
"""Columns of labels: the device of the gate forward times K, plus that of the gate back; both
times; the label of the layer before that each goes on from, and with which option; how its devices
are named here, as digits; from `WORK` on the work on the devices, and bytes, if memory binds."""

MOST_CELLS, MOST_TRIALS = 12_000_000, 200_000_000
"""Of the new labels of one layer, and labels times options and gates of all layers that seem to be
below the threshold, of which a new label counts as half of its cells; with more there is no bound.
The latter are some eight seconds' worth."""

CHUNK = 16_384
"""Labels that grow at a time, between two looks at `stop`."""

MOST_KEY = 2**62

SHARES = 128
"""Of a device's room: labels with as many of them there hold about the same bytes."""


@dataclass
class Effort:
    """Labels times options and gates that may still be tried."""

    left: int = MOST_TRIALS


class LayerPath(NamedTuple):
    """Of each layer where its groups are, and the devices of its inner gates, forward and back."""

    devices: list[Ints]
    gates: list[tuple[int, int]]


class Least(NamedTuple):
    """The least bound of all options, `NO_WAY` if all are above the threshold; and paths to the
    labels with the least bounds, as many as requested.
    """

    ns: int
    paths: list[LayerPath]


# ------------------------------------------------------------------------------- the chain alone


class LayerWays(NamedTuple):
    """The least of any option forward from a to a2, and back from b2 to b, and which, (K, ...)."""

    least_ns: Ints
    option: Ints


def layer_ways(table: LayerTable) -> list[LayerWays]:
    """Of each layer; layers that are alike have the same object."""
    known: dict[int, LayerWays] = {}
    for one in table.options:
        if id(one) not in known:
            known[id(one)] = LayerWays(*_least_ways(one.forward_ns, one.back_ns, one.paid_ns))
    return [known[id(one)] for one in table.options]


def rest_of(table: LayerTable, ways: list[LayerWays]) -> list[Ints]:
    """Least time between the gates of each frame, by devices: layer by layer, and the core last."""
    rest = [table.core_ns]
    for way in reversed(ways):  # a to a2, what is inside, and b2 to b
        whole = (way.least_ns + rest[-1][None, :, :, None]).min(axis=(1, 2))
        rest.append(np.minimum(whole, NO_WAY))
    return rest[::-1]


def least_by_option(table: LayerTable, ways: list[LayerWays], rest: list[Ints]) -> list[Ints]:
    """Of each layer, the least bound of any label with each option, (p,), by the chain alone."""
    around = np.minimum(table.outer_ns[0][:, None] + table.outer_ns[1][None, :], NO_WAY)
    found = list[Ints]()
    for options, way, inside in zip(table.options, ways, rest[1:], strict=True):
        through = _least_inside(options.forward_ns, options.back_ns, options.paid_ns, inside)
        found.append((around[:, :, None] + through).min(axis=(0, 1)))
        around = np.minimum((around[:, None, None, :] + way.least_ns).min(axis=(0, 3)), NO_WAY)
    return found


@kernel
def _least_ways(forward: Ints, back: Ints, paid: Ints) -> tuple[Ints, Ints]:
    """The least of any option forward from a to a2, and back from b2 to b, and which one; K^4."""
    num_devices = forward.shape[1]
    least = np.full((num_devices, num_devices, num_devices, num_devices), NO_WAY)
    chosen = np.full(least.shape, -1)
    for p in range(len(forward)):
        for a in range(num_devices):
            for a2 in range(num_devices):
                if forward[p, a, a2] >= NO_WAY:
                    continue
                there = forward[p, a, a2] + paid[p]
                for b2 in range(num_devices):
                    for b in range(num_devices):
                        way = there + back[p, b2, b]
                        if way < least[a, a2, b2, b]:
                            least[a, a2, b2, b], chosen[a, a2, b2, b] = way, p
    return least, chosen


@kernel
def _least_inside(forward: Ints, back: Ints, paid: Ints, rest: Ints) -> Ints:
    """The least from outer gate a to outer gate b with each option, (K, K, p)."""
    num_devices = forward.shape[1]
    least = np.full((num_devices, num_devices, len(forward)), NO_WAY)
    for p in range(len(forward)):
        for b2 in range(num_devices):
            for a in range(num_devices):
                inside = NO_WAY
                for a2 in range(num_devices):
                    inside = min(inside, forward[p, a, a2] + rest[a2, b2])
                if inside >= NO_WAY:
                    continue
                inside += paid[p]
                for b in range(num_devices):
                    least[a, b, p] = min(least[a, b, p], inside + back[p, b2, b])
    return least


# ------------------------------------------------------------------------------------ labels


def least_within(
    table: LayerTable,
    rest: list[Ints],
    most_ns: int,
    effort: Effort,
    stop: Callable[[], bool],
    num_paths: int = 0,
) -> Least | None:
    """The least bound of all options, up to `most_ns`; None if it is stopped, or too large.

    `rest` is from `rest_of`; what is spent is taken off `effort`.
    """
    num_devices = len(table.step_ns)
    head, tail = table.outer_ns
    state = np.arange(num_devices**2)
    labels = np.zeros((len(state), WORK + num_devices + len(table.room_bytes)), np.int64)
    labels[:, STATE] = state
    labels[:, START], labels[:, LEFT] = head[state // num_devices], tail[state % num_devices]
    found = list[Ints]()
    for layer in range(len(table.options)):
        if stop() or effort.left < 0:
            return None
        grown = _grown(table, layer, labels, rest[layer + 1], most_ns, effort, stop)
        if grown is None:
            return None
        if not len(grown):
            return Least(NO_WAY, [])
        if num_devices <= MOST_ALIKE:
            _rename_alike(grown, table.kind, num_devices)
        labels = _thinned(grown, table.room_bytes)
        if num_paths:
            found.append(labels)
    there, back = np.divmod(labels[:, STATE], num_devices)
    work = labels[:, WORK : WORK + num_devices] * table.step_ns
    behind = _behind(work - table.unready_ns[-1], back, table.gate_ns[-2])
    through = np.maximum(labels[:, LEFT], behind) + table.core_ns[there, back]
    bound = labels[:, START] + np.maximum(through, _behind(work, there, table.gate_ns[-1]))
    best = np.argsort(bound, kind="stable")[:num_paths]
    ns = int(bound.min())
    return Least(
        ns if ns <= most_ns else NO_WAY, [_path(table, found, row) for row in best.tolist()]
    )


def _behind(work: Ints, gate: Ints, gate_ns: Ints) -> Ints:
    """What follows the start of a gate, by the work after it on each device, and its own device."""
    away = (work > 0) & (np.arange(work.shape[1]) != gate[:, None])
    return np.asarray((work + np.where(away, gate_ns[gate][:, None], 0)).max(axis=1))


def _path(table: LayerTable, found: list[Ints], row: int) -> LayerPath:
    """Back from a label of the last layer, by the names of its devices."""
    devices, gates = list[Ints](), list[tuple[int, int]]()
    num_devices = len(table.step_ns)
    name = np.arange(num_devices)
    for options, labels in zip(reversed(table.options), reversed(found), strict=True):
        a, b = divmod(int(labels[row, STATE]), num_devices)
        gates.append((int(name[a]), int(name[b])))
        if num_devices <= MOST_ALIKE:  # the names of more have too many digits
            here = int(labels[row, NAMES]) // num_devices ** np.arange(num_devices) % num_devices
            name = name[here]
        devices.append(name[options.devices[labels[row, OPTION]]])
        row = int(labels[row, SOURCE])
    return LayerPath(devices[::-1], gates[::-1])


class LayerFrame(NamedTuple):
    """What labels meet one layer further in: as in `LayerTable`, of this layer; `rest_ns` is the
    least time between its inner gates, `least_ns` that between the outer ones with each option,
    (K, K, p), and `order` has the options by that.
    """

    step_ns: Ints
    room_bytes: Ints
    unready_ns: Ints
    head_ns: Ints
    left_ns: Ints
    gate_ns: Ints
    price: Ints
    shift: int
    rest_ns: Ints
    least_ns: Ints
    order: Ints


def _grown(
    table: LayerTable,
    layer: int,
    labels: Ints,
    rest: Ints,
    most_ns: int,
    effort: Effort,
    stop: Callable[[], bool],
) -> Ints | None:
    """New labels; None if it is stopped, or if they are too many. Some labels at a time."""
    options = table.options[layer]
    least = _least_inside(options.forward_ns, options.back_ns, options.paid_ns, rest)
    frame = LayerFrame(
        table.step_ns,
        table.room_bytes,
        table.unready_ns[layer],
        table.head_ns[layer],
        table.left_ns[layer],
        table.gate_ns[layer],
        table.price,
        table.shift,
        rest,
        least,
        np.argsort(least, axis=2, kind="stable"),
    )
    left, found = MOST_CELLS // labels.shape[1], [labels[:0]]
    for begin in range(0, len(labels), CHUNK):
        if stop():
            return None
        some = labels[begin : begin + CHUNK]
        grown, tried = _grown_labels(
            some, options, frame, most_ns + table.worth_ns, left, effort.left
        )
        grown[:, SOURCE] += begin
        found.append(grown)
        left -= len(grown)
        effort.left -= tried + grown.size // 2
        if left <= 0 or effort.left < 0:
            return None
    return np.concatenate(found)


@kernel
def _grown_labels(
    labels: Ints,
    options: LayerOptions,
    frame: LayerFrame,
    most: int,
    most_rows: int,
    most_tried: int,
) -> tuple[Ints, int]:
    """A row for each label one layer further in that is not above the threshold, up to a limit;
    and how many ways were looked at.
    """
    forward, back, more_bytes = options.forward_ns, options.back_ns, options.held_bytes
    room, price, shift, rest = frame.room_bytes, frame.price, frame.shift, frame.rest_ns
    num_devices, num_rooms = len(frame.step_ns), len(room)
    width, held = labels.shape[1], WORK + num_devices
    rows, count, tried = np.empty((1024, width), np.int64), 0, 0
    for r in range(len(labels)):
        known = labels[r]
        a, b, cost = known[STATE] // num_devices, known[STATE] % num_devices, 0
        start, left = known[START], known[LEFT]
        for d in range(len(price)):
            cost += price[d] * known[held + d]
        so_far = start + left + (cost >> shift)
        # options by least time: the first that is too long ends the row
        for p in frame.order[a, b]:
            if so_far + frame.least_ns[a, b, p] > most or tried > most_tried:
                break
            tried += 1
            fits = True
            for d in range(num_rooms):
                fits = fits and known[held + d] + more_bytes[p, d] <= room[d]
            if not fits:
                continue
            paid = cost
            for d in range(len(price)):
                paid += price[d] * more_bytes[p, d]
            paid >>= shift
            for b2 in range(num_devices):
                if back[p, b2, b] >= NO_WAY:
                    continue
                # what is left: the chain back to here, or the work that a device has yet to do
                remain = max(left + back[p, b2, b], frame.left_ns[b2])
                for d in range(num_devices):
                    after = known[WORK + d] + options.ready[p, d]
                    ahead = after * frame.step_ns[d] - frame.unready_ns[d]
                    if ahead > 0 and d != b2:  # not before the gate has ended
                        ahead = min(NO_WAY, ahead + frame.gate_ns[b2])
                    remain = max(remain, ahead)
                for a2 in range(num_devices):
                    if forward[p, a, a2] >= NO_WAY:
                        continue
                    tried += 1
                    begin = max(start + forward[p, a, a2], frame.head_ns[a2])
                    if begin + paid + remain + rest[a2, b2] > most:
                        continue
                    if count == most_rows:
                        return rows, tried
                    if count == len(rows):
                        wider = np.empty((2 * count, width), np.int64)
                        wider[:count] = rows
                        rows = wider
                    row = rows[count]
                    row[STATE], row[START], row[LEFT] = a2 * num_devices + b2, begin, remain
                    row[SOURCE], row[OPTION] = r, p
                    for d in range(num_devices):
                        row[WORK + d] = known[WORK + d] + options.work[p, d]
                    for d in range(num_rooms):
                        row[held + d] = known[held + d] + more_bytes[p, d]
                    count += 1
    return rows[:count], tried


@kernel
def _rename_alike(rows: Ints, kind: Ints, num_devices: int) -> None:
    """Number the devices of a kind by work, bytes, and whether they have a gate; in place."""
    num_rooms = rows.shape[1] - WORK - num_devices
    order, name = np.arange(num_devices), np.empty(num_devices, np.int64)
    kept = np.empty(rows.shape[1], np.int64)
    for row in rows:
        a, b = row[STATE] // num_devices, row[STATE] % num_devices
        for d in range(num_devices):
            order[d] = d
        for d in range(1, num_devices):  # an insertion sort within each kind
            at = d
            for c in range(d - 1, -1, -1):
                if kind[c] != kind[d]:
                    continue
                one, other = order[c], order[at]
                less = row[WORK + other] - row[WORK + one]
                if less == 0 and num_rooms:
                    less = row[WORK + num_devices + other] - row[WORK + num_devices + one]
                if less == 0:
                    less = 2 * (int(other == a) - int(one == a)) + int(other == b) - int(one == b)
                if less >= 0:
                    break
                order[c], order[at] = other, one
                at = c
        kept[:] = row
        for d in range(num_devices):
            name[order[d]] = d
            row[WORK + d] = kept[WORK + order[d]]
            if num_rooms:
                row[WORK + num_devices + d] = kept[WORK + num_devices + order[d]]
        code = 0
        for d in range(num_devices - 1, -1, -1):
            code = code * num_devices + name[d]
        row[STATE], row[NAMES] = name[a] * num_devices + name[b], code


def _thinned(labels: Ints, room: Ints) -> Ints:
    """Without labels that another one of the same state, work and shares is no worse than."""
    key, held = labels[:, STATE], labels.shape[1] - len(room)
    shares = labels[:, held:] // np.maximum(1, room // SHARES)
    for column in (*labels[:, WORK:held].T, *shares.T):  # one number for all of them
        width = int(column.max()) + 1
        if int(key.max()) >= MOST_KEY // width:
            key = np.unique(key, return_inverse=True)[1]
        key = key * width + column
    order = np.lexsort((labels[:, LEFT], labels[:, START], key))
    rows = labels[order]
    bytes_held = np.ascontiguousarray(rows[:, held:])
    keep = _first_of(key[order], np.ascontiguousarray(rows[:, LEFT]), bytes_held)
    kept = rows[keep]
    kept[:, held:] = bytes_held[keep]
    return kept


@kernel
def _first_of(key: Ints, left: Ints, held: Ints) -> Ints:
    """Rows, by key and rising start, whose rest is less than that of all before them.

    They get the least bytes of any row of their key.
    """
    kept, count, least, begin = np.empty(len(key), np.int64), 0, 0, 0
    for r in range(len(key)):
        if r == 0 or key[r] != key[r - 1]:
            begin, least = count, left[r] + 1
            for d in range(held.shape[1]):
                z = r + 1
                while z < len(key) and key[z] == key[r]:
                    held[r, d] = min(held[r, d], held[z, d])
                    z += 1
        if left[r] < least:
            least = left[r]
            kept[count] = r
            for d in range(held.shape[1]):
                held[r, d] = held[kept[begin], d]
            count += 1
    return kept[:count]


MOST_OPS = 20_000

STRIDE, LEAST_STRIDE = 0.003, 0.0005
"""A threshold is this share above what is known, or half as much where there were too many labels:
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


def search_layers(
    instance: Instance,
    semantics: Makespan,
    windows: WorkWindows,
    known_ns: int,
    stop: Callable[[], bool] = never,
    num_paths: int = 0,
) -> NestedSearch | None:
    """What nested layers prove of every makespan; None where there is nothing.

    It ends with the first threshold that a label is below, the least one is exact, or at `stop`.
    With it come some of the paths that are nearest, and it is no less than what is known.
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
    if through >= NO_WAY:  # no plan at all: this bound proves nothing
        return None
    least = least_by_option(table, ways, rest)
    best, stride, effort = max(known_ns, through - table.worth_ns), STRIDE, Effort()
    longest, last = instance.arrays.serial_horizon_ns, 0
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
