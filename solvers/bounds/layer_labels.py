"""Labels of nested layers: the least time that any options of them leave, up to a threshold.

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

Where memory binds, bytes have prices (`layers_bound`). What the layers further inside take, and
pay, is then no less than a shortest path; so that a label is left out whose times, price and that
path together are above the threshold and what all room is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.solvers.bounds.layer_options import MOST_ALIKE, LayerTable

WORK = 6
"""Columns before the work."""


@kernel
def grown_labels(
    state: Ints,
    start: Ints,
    left: Ints,
    work: Ints,
    held: Ints,
    forward: Ints,
    back: Ints,
    more: Ints,
    ready: Ints,
    bytes_more: Ints,
    least: Ints,
    order: Ints,
    step: Ints,
    room: Ints,
    unready: Ints,
    head: Ints,
    floor: Ints,
    gate: Ints,
    rest: Ints,
    price: Ints,
    shift: int,
    most: int,
    most_rows: int,
    most_tried: int,
) -> tuple[Ints, int]:
    """A row for each label one layer further in that is not above the threshold, at most so many.

    `order` has the options by what is `least` with them. Second, how many ways were looked at.
    """
    num_devices, num_rooms = len(step), len(room)
    width = WORK + num_devices + num_rooms
    rows, count, tried = np.empty((1024, width), np.int64), 0, 0
    for r in range(len(state)):
        a, b, cost = state[r] // num_devices, state[r] % num_devices, 0
        for d in range(len(price)):
            cost += price[d] * held[r, d]
        so_far = start[r] + left[r] + (cost >> shift)
        for p in order[a, b]:
            if so_far + least[a, b, p] > most or tried > most_tried:
                break
            tried += 1
            fits = True
            for d in range(num_rooms):
                fits = fits and held[r, d] + bytes_more[p, d] <= room[d]
            if not fits:
                continue
            paid = cost
            for d in range(len(price)):
                paid += price[d] * bytes_more[p, d]
            paid >>= shift
            for b2 in range(num_devices):
                if back[p, b2, b] >= NO_WAY:
                    continue
                remain = max(left[r] + back[p, b2, b], floor[b2])
                for d in range(num_devices):
                    ahead = (work[r, d] + ready[p, d]) * step[d] - unready[d]
                    if ahead > 0 and d != b2:  # not before the gate has ended
                        ahead = min(NO_WAY, ahead + gate[b2])
                    remain = max(remain, ahead)
                for a2 in range(num_devices):
                    if forward[p, a, a2] >= NO_WAY:
                        continue
                    tried += 1
                    begin = max(start[r] + forward[p, a, a2], head[a2])
                    if begin + paid + remain + rest[a2, b2] > most:
                        continue
                    if count == most_rows:
                        return rows, tried
                    if count == len(rows):
                        wider = np.empty((2 * count, width), np.int64)
                        wider[:count] = rows
                        rows = wider
                    rows[count, 0] = a2 * num_devices + b2
                    rows[count, 1], rows[count, 2] = begin, remain
                    rows[count, 3], rows[count, 4] = r, p
                    for d in range(num_devices):
                        rows[count, WORK + d] = work[r, d] + more[p, d]
                    for d in range(num_rooms):
                        rows[count, WORK + num_devices + d] = held[r, d] + bytes_more[p, d]
                    count += 1
    return rows[:count], tried


@kernel
def rename_alike(rows: Ints, kind: Ints, num_devices: int) -> None:
    """Number the devices of a kind by work, bytes, and whether they have a gate; in place."""
    num_rooms = rows.shape[1] - WORK - num_devices
    order, name = np.arange(num_devices), np.empty(num_devices, np.int64)
    kept = np.empty(rows.shape[1], np.int64)
    for row in rows:
        a, b = row[0] // num_devices, row[0] % num_devices
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
        row[0], row[WORK - 1] = name[a] * num_devices + name[b], code


@kernel
def first_of(key: Ints, left: Ints, held: Ints) -> Ints:
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


def rest_of(table: LayerTable) -> list[Ints]:
    """Least time between the gates of each frame, by devices: layer by layer, and the core last."""
    rest, least = [table.core_ns], dict[int, Ints]()
    for options in reversed(table.options):
        if id(options) not in least:
            least[id(options)] = least_ways(options.forward_ns, options.back_ns, options.paid_ns)[0]
        rest.append(over_layer(least[id(options)], rest[-1]))
    return rest[::-1]


def least_by_option(table: LayerTable, rest: list[Ints]) -> list[Ints]:
    """Of each layer, the least bound of any label with each option, (p,), by the chain alone."""
    around = np.minimum(table.outer_ns[0][:, None] + table.outer_ns[1][None, :], NO_WAY)
    found = list[Ints]()
    for options, inside in zip(table.options, rest[1:], strict=True):
        least, around = _through_options(
            options.forward_ns, options.back_ns, options.paid_ns, around, inside
        )
        found.append(least)
    return found


@kernel
def least_ways(forward: Ints, back: Ints, paid: Ints) -> tuple[Ints, Ints]:
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


def over_layer(ways: Ints, inside: Ints) -> Ints:
    """From the outer gates a to b: a to a2, what is inside, and b2 to b."""
    return np.asarray(np.minimum((ways + inside[None, :, :, None]).min(axis=(1, 2)), NO_WAY))


@kernel
def least_inside(forward: Ints, back: Ints, paid: Ints, rest: Ints) -> Ints:
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


@kernel
def _through_options(
    forward: Ints, back: Ints, paid: Ints, around: Ints, rest: Ints
) -> tuple[Ints, Ints]:
    """The least sum over each option, with what is around the outer gates and inside the inner
    ones; and what is around the inner ones.
    """
    num_devices = forward.shape[1]
    least, inner = np.full(len(forward), NO_WAY), np.full((num_devices, num_devices), NO_WAY)
    for p in range(len(forward)):
        for a2 in range(num_devices):
            for b in range(num_devices):
                outer = NO_WAY
                for a in range(num_devices):
                    outer = min(outer, around[a, b] + forward[p, a, a2])
                if outer >= NO_WAY:
                    continue
                outer += paid[p]
                for b2 in range(num_devices):
                    way = min(NO_WAY, outer + back[p, b2, b])
                    inner[a2, b2] = min(inner[a2, b2], way)
                    least[p] = min(least[p], way + rest[a2, b2])
    return least, inner


MOST_CELLS, MOST_TRIALS = 12_000_000, 200_000_000
"""Of the new labels of one layer, and labels times options and gates of all layers that seem to be
below the threshold, of which a new label counts as half of its cells; with more nothing is said.
The latter are some eight seconds' worth."""

CHUNK = 16_384
"""Labels that grow at a time, before a stop is asked for."""

MOST_KEY = 2**62

SHARES = 128
"""Of a device's room: labels with as many of them there hold about the same bytes."""


class LayerLabels(NamedTuple):
    """State (device of the gate forward times K, plus that of the gate back) and times; the label
    of the layer before that each goes on from, and with which option; how its devices are named
    here, as digits; work on the devices, and bytes, if memory binds.
    """

    state: Ints
    start_ns: Ints
    left_ns: Ints
    source: Ints
    option: Ints
    names: Ints
    work: Ints
    held_bytes: Ints


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
    labels with the least bounds, as many as asked for.
    """

    ns: int
    paths: list[LayerPath]


def least_within(
    table: LayerTable,
    rest: list[Ints],
    most_ns: int,
    effort: Effort,
    stop: Callable[[], bool],
    num_paths: int = 0,
) -> Least | None:
    """The least bound of all options, up to a threshold; None if it is stopped, or too large.

    Parameters
    ----------
    table : LayerTable
    rest : list of (K, K) int64
        By `rest_of`.
    most_ns : int
        The threshold.
    effort : Effort
        What is spent is taken off.
    stop : callable
        Asked once for each layer.
    num_paths : int
    """
    num_devices = len(table.step_ns)
    head, tail = table.outer_ns
    state = np.arange(num_devices**2)
    labels = LayerLabels(
        state,
        head[state // num_devices],
        tail[state % num_devices],
        state,
        state,
        state,
        np.zeros((len(state), num_devices), np.int64),
        np.zeros((len(state), len(table.room_bytes)), np.int64),
    )
    found = list[LayerLabels]()
    for layer, options in enumerate(table.options):
        if stop() or effort.left < 0:
            return None
        least = least_inside(options.forward_ns, options.back_ns, options.paid_ns, rest[layer + 1])
        grown = _grown(table, layer, labels, least, rest[layer + 1], most_ns, effort, stop)
        if grown is None:
            return None
        if not len(grown):
            return Least(NO_WAY, [])
        if num_devices <= MOST_ALIKE:
            rename_alike(grown, table.kind, num_devices)
        state, start, left, source, option, names = grown[:, :WORK].T
        work, held = np.split(grown[:, WORK:], [num_devices], axis=1)
        labels = _thinned(
            LayerLabels(state, start, left, source, option, names, work, held), table.room_bytes
        )
        if num_paths:
            found.append(labels)
    there, back = np.divmod(labels.state, num_devices)
    work = labels.work * table.step_ns
    behind = _behind(work - table.unready_ns[-1], back, table.gate_ns[-2])
    through = np.maximum(labels.left_ns, behind) + table.core_ns[there, back]
    bound = labels.start_ns + np.maximum(through, _behind(work, there, table.gate_ns[-1]))
    best = np.argsort(bound, kind="stable")[:num_paths]
    ns = int(bound.min())
    return Least(
        ns if ns <= most_ns else NO_WAY, [_path(table, found, row) for row in best.tolist()]
    )


def _grown(
    table: LayerTable,
    layer: int,
    labels: LayerLabels,
    least: Ints,
    inside: Ints,
    most_ns: int,
    effort: Effort,
    stop: Callable[[], bool],
) -> Ints | None:
    """Rows of new labels; None if it is stopped, or if they are too many. Some labels at a time."""
    options, order = table.options[layer], np.argsort(least, axis=2, kind="stable")
    width = WORK + len(table.step_ns) + len(table.room_bytes)
    left, found = MOST_CELLS // width, [np.zeros((0, width), np.int64)]
    for begin in range(0, len(labels.state), CHUNK):
        if stop():
            return None
        rows = slice(begin, begin + CHUNK)
        grown, tried = grown_labels(
            labels.state[rows],
            labels.start_ns[rows],
            labels.left_ns[rows],
            labels.work[rows],
            labels.held_bytes[rows],
            options.forward_ns,
            options.back_ns,
            options.work,
            options.ready,
            options.held_bytes,
            least,
            order,
            table.step_ns,
            table.room_bytes,
            table.unready_ns[layer],
            table.head_ns[layer],
            table.left_ns[layer],
            table.gate_ns[layer],
            inside,
            table.price,
            table.shift,
            most_ns + table.worth_ns,
            left,
            effort.left,
        )
        grown[:, 3] += begin
        found.append(grown)
        left -= len(grown)
        effort.left -= tried + grown.size // 2
        if left <= 0 or effort.left < 0:
            return None
    return np.concatenate(found)


def _behind(work: Ints, gate: Ints, gate_ns: Ints) -> Ints:
    """What follows the start of a gate, by the work after it on each device, and its own device."""
    away = (work > 0) & (np.arange(work.shape[1]) != gate[:, None])
    return np.asarray((work + np.where(away, gate_ns[gate][:, None], 0)).max(axis=1))


def _path(table: LayerTable, found: list[LayerLabels], row: int) -> LayerPath:
    """Back from a label of the last layer, by the names of its devices."""
    devices, gates = list[Ints](), list[tuple[int, int]]()
    num_devices = len(table.step_ns)
    name = np.arange(num_devices)
    for options, labels in zip(reversed(table.options), reversed(found), strict=True):
        a, b = divmod(int(labels.state[row]), num_devices)
        gates.append((int(name[a]), int(name[b])))
        if num_devices <= MOST_ALIKE:  # the names of more have too many digits
            here = int(labels.names[row]) // num_devices ** np.arange(num_devices) % num_devices
            name = name[here]
        devices.append(name[options.devices[labels.option[row]]])
        row = int(labels.source[row])
    return LayerPath(devices[::-1], gates[::-1])


def _thinned(labels: LayerLabels, room: Ints) -> LayerLabels:
    """Without labels that another one of the same state, work and shares is no worse than."""
    key = labels.state
    shares = labels.held_bytes // np.maximum(1, room // SHARES)
    for column in (*labels.work.T, *shares.T):  # one number for all of them
        width = int(column.max()) + 1
        if int(key.max()) >= MOST_KEY // width:
            key = np.unique(key, return_inverse=True)[1]
        key = key * width + column
    order = np.lexsort((labels.left_ns, labels.start_ns, key))
    held = labels.held_bytes[order]
    keep = first_of(key[order], labels.left_ns[order], held)
    rows = order[keep]
    return LayerLabels(*(part[rows] for part in labels))._replace(held_bytes=held[keep])
