"""Lower bounds from nested layers: a chain there and back, and the work beside it.

In a training step the gradients of a layer's weights are on no path: they wait for what comes back
to the layer, and nothing waits for them. But they are on the layer's device. So either the chain
changes devices often, and pays for it twice, forward and back; or some device has so much left to
do when the chain leaves it that all others wait in the end.

*Relaxation.* A chain of gates passes the layers forward and then backward (`nested_layers`). An
*option* puts the largest groups of a layer on devices. What counts are the least times through the
sections of the chain, by the devices of their gates; and for any gate g and device d the ops on d
that g precedes. These start after g ends, one after the other; on the device of g, so does g:

    makespan  >=  start of g  +  (g, and) work of the ops on d that g precedes.

*State.* A label stands for options of the layers so far, outermost first. It has

- the devices of the two inner gates;
- the earliest start of the gate of the way forward;
- the least time from the start of the gate of the way back to the end of everything: the rest of
  the chain, and on every device the work that can only begin then;
- the work on each device, and where memory binds the bytes there.

*Why it is a bound.* Both times and the least time between the two gates add up to no more than the
makespan of any plan with these options. Labels above a *threshold* are left out; where none is
left, the threshold is proven, and the next one is higher. Among labels with equal devices, work and
about equal bytes, one goes if another is no worse in both times, and those that stay get the least
bytes of any. A label with more bytes than a device has room for is dropped. Identical devices are
numbered by their work, so that labels that differ in names alone are equal; a path remembers how
devices were renamed, layer by layer.

*Memory.* Where memory binds, bytes have prices (`room_prices`), as if they took time: what a plan
takes, plus the price of all its bytes, less the price of all room, is no more than its makespan.
The chain alone is then a shortest path through the layers, which finds the prices; and what the
layers further inside take and pay is no less than the rest of that path.

*Example.* Two layers on two equal devices: f0, f1, b1, b0, and the gradients w0 and w1 after b0 and
b1, 10 ns each; a layer stays together, a transfer takes 3 ns. Paths prove 50 ns. Apart, the chain
takes 10 + 3 + 10 + 10 + 3, and then b0 and w0 are left on their device: 56. Together, all six ops
run one after the other: 60. The bound, and the optimum, is 56; with transfers of 5 ns it is 60.
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
    FREE,
    MOST_ALIKE,
    MOST_STEPS,
    LayerOptions,
    LayerTable,
    NestedLayers,
    layer_chains,
    layer_table,
    nested_layers,
    without_weak_end,
)
from placegap.solvers.bounds.work_windows import WorkWindows
from placegap.solvers.core.clock import never
from placegap.solvers.core.room_prices import RoomPrices, climb_prices

# Columns of labels: the device of the gate forward times K, plus that of the gate back; both times;
# the label of the layer before, and the option that was added; the new names of its devices, as
# digits; from `WORK` on the work on the devices, and their bytes, if memory binds.
STATE, START, LEFT, SOURCE, OPTION, NAMES, WORK = range(7)

# Cells of the new labels of one layer; and trials of all layers, about eight seconds: pairs of a
# label and an option, or of gates of one, and half of the cells of each new label. With more there
# is no bound.
MOST_CELLS, MOST_TRIALS = 12_000_000, 200_000_000
# Labels of a layer, if memory does not bind; with more, some become one. Of T5-small's step 22.93
# ms are proven so, and 22.92 with all labels, until they are too many.
MOST_LABELS = 20_000
CHUNK = 16_384  # labels that grow at a time, between two looks at `stop`

MOST_KEY = 2**62

SHARES = 128  # parts of a device's room: labels hold about the same if their full parts agree


@dataclass
class Effort:
    """Labels times options and gates that may still be tried."""

    left: int = MOST_TRIALS


class LayerPath(NamedTuple):
    """The devices of each layer's groups, and those of its inner gates, forward and back."""

    devices: list[Ints]
    gates: list[tuple[int, int]]


class Least(NamedTuple):
    """The least bound of all labels, and the paths of the labels with the least bounds."""

    # `NO_WAY` if all are above the threshold; as many paths as requested.
    ns: int
    paths: list[LayerPath]
    is_merged: bool  # labels were too many, and some of them became one


# ------------------------------------------------------------------------------- the chain alone


class LayerWays(NamedTuple):
    """The least time of any option forward from a to a2 plus back from b2 to b; that option."""

    # Both are (K, K, K, K).
    least_ns: Ints
    option: Ints


def layer_ways(table: LayerTable) -> list[LayerWays]:
    """The ways of each layer; equal layers share an object."""
    known: dict[int, LayerWays] = {}
    for one in table.options:
        if id(one) not in known:
            known[id(one)] = LayerWays(*_least_ways(one.forward_ns, one.back_ns, one.paid_ns))
    return [known[id(one)] for one in table.options]


def rest_of(table: LayerTable, ways: list[LayerWays]) -> list[Ints]:
    """Least time between the gates of each frame, by devices: layer by layer, and the core last."""
    # Backwards from the core: gates inside depend on nothing outside them. One option per layer has
    # both directions and its price, so forward and back are not minimized apart.
    rest = [table.core_ns]
    for way in reversed(ways):  # a to a2, what is inside, and b2 to b
        whole = (way.least_ns + rest[-1][None, :, :, None]).min(axis=(1, 2))
        rest.append(np.minimum(whole, NO_WAY))
    return rest[::-1]


def least_by_option(table: LayerTable, ways: list[LayerWays], rest: list[Ints]) -> list[Ints]:
    """The least bound, by the chain alone, of any label with each option of each layer, (p,)."""
    # from the outside in: the least time of all that is outside a frame, by the devices of its
    # gates
    around = np.minimum(table.outer_ns[0][:, None] + table.outer_ns[1][None, :], NO_WAY)
    found = list[Ints]()
    for options, way, inside in zip(table.options, ways, rest[1:], strict=True):
        through = _least_inside(options.forward_ns, options.back_ns, options.paid_ns, inside)
        found.append((around[:, :, None] + through).min(axis=(0, 1)))
        around = np.minimum((around[:, None, None, :] + way.least_ns).min(axis=(0, 3)), NO_WAY)
    return found


@kernel
def _least_ways(forward: Ints, back: Ints, paid: Ints) -> tuple[Ints, Ints]:
    """As in `LayerWays`; the four ends are kept apart, as both gates of a frame are."""
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
    """The least time from outer gate a to outer gate b with each option, (K, K, p)."""
    # min over a2 first: (K^3 + K^3) per option instead of K^4
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
    """The least bound of all labels, up to `most_ns`; None if it is stopped, or too large."""
    # `rest` is from `rest_of`; trials are subtracted from `effort`.
    num_devices = len(table.step_ns)
    head, tail = table.outer_ns
    # one label per pair of devices of the outermost gates, with heads and tails of work windows
    state = np.arange(num_devices**2)
    labels = np.zeros((len(state), WORK + num_devices + len(table.room_bytes)), np.int64)
    labels[:, STATE] = state
    labels[:, START], labels[:, LEFT] = head[state // num_devices], tail[state % num_devices]
    found, merged = list[Ints](), False
    for layer in range(len(table.options)):
        if stop() or effort.left < 0:
            return None
        grown = _grown(table, layer, labels, rest[layer + 1], most_ns, effort, stop)
        if grown is None:
            return None
        if not len(grown):
            return Least(NO_WAY, [], merged)
        # new names before thinning: what differs in names alone becomes equal
        if num_devices <= MOST_ALIKE:
            _rename_alike(grown, table.kind, num_devices)
        labels = _thinned(grown, table.room_bytes)
        # Among too many labels work is compared in larger steps, and those that agree get the least
        # of any. Not where memory binds: the least bytes of many labels fit anywhere.
        coarse = 1
        while len(labels) > MOST_LABELS and not len(table.room_bytes) and coarse < MOST_STEPS:
            coarse, merged = 2 * coarse, True
            labels = _thinned(labels, table.room_bytes, coarse)
        if num_paths:
            found.append(labels)
    # The core closes the chain. Two gates are left to count work after: the core's last gate, which
    # the groups' work without `unready` follows, and its first one, which all work follows.
    there, back = np.divmod(labels[:, STATE], num_devices)
    work = labels[:, WORK : WORK + num_devices] * table.step_ns
    behind = _behind(work - table.unready_ns[-1], back, table.gate_ns[-2])
    through = np.maximum(labels[:, LEFT], behind) + table.core_ns[there, back]
    bound = labels[:, START] + np.maximum(through, _behind(work, there, table.gate_ns[-1]))
    best = np.argsort(bound, kind="stable")[:num_paths]
    ns = int(bound.min())
    paths = [_path(table, found, row) for row in best.tolist()]
    return Least(ns if ns <= most_ns else NO_WAY, paths, merged)


def _behind(work: Ints, gate: Ints, gate_ns: Ints) -> Ints:
    """The least time from the start of a gate to the end of the work after it on any device."""
    # on its own device the gate is part of that work; elsewhere work begins after the gate ends
    away = (work > 0) & (np.arange(work.shape[1]) != gate[:, None])
    return np.asarray((work + np.where(away, gate_ns[gate][:, None], 0)).max(axis=1))


def _path(table: LayerTable, found: list[Ints], row: int) -> LayerPath:
    """The path of a label of the last layer, in the real names of devices."""
    # from the core outwards: `name[d]` is the real name of the device that the labels of a layer
    # call d. Each label stores how it renamed the devices of the label before it
    devices, gates = list[Ints](), list[tuple[int, int]]()
    num_devices = len(table.step_ns)
    name = np.arange(num_devices)
    for options, labels in zip(reversed(table.options), reversed(found), strict=True):
        a, b = divmod(int(labels[row, STATE]), num_devices)
        gates.append((int(name[a]), int(name[b])))
        if num_devices <= MOST_ALIKE:  # the names of more have too many digits
            here = int(labels[row, NAMES]) // num_devices ** np.arange(num_devices) % num_devices
            name = name[here]
        at = options.devices[labels[row, OPTION]]
        devices.append(np.where(at == FREE, FREE, name[at]))
        row = int(labels[row, SOURCE])
    return LayerPath(devices[::-1], gates[::-1])


class LayerFrame(NamedTuple):
    """One layer for a kernel: values of `LayerTable`, and ways between its gates."""

    # `rest_ns`: the least time between its inner gates; `least_ns`, (K, K, p): that between the
    # outer gates with each option; `order`: the options by rising `least_ns`.
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
    """New labels; None if it is stopped, or if they are too many."""
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
    # some labels at a time, with a look at `stop` between; the limits are for all of them together
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
    """Rows for labels one layer further in, not above the threshold; and the number of trials."""
    # There are no more of them than a limit.
    # For each label: options by rising least time, then the device of the inner gate back, then
    # that of the inner gate forward. What depends on the former alone is computed outside the
    # latter.
    forward, back, more_bytes = options.forward_ns, options.back_ns, options.held_bytes
    room, price, shift, rest = frame.room_bytes, frame.price, frame.shift, frame.rest_ns
    num_devices, num_rooms = len(frame.step_ns), len(room)
    width, held = labels.shape[1], WORK + num_devices
    rows, count, tried = np.empty((1024, width), np.int64), 0, 0
    for r in range(len(labels)):
        known = labels[r]
        a, b, cost = known[STATE] // num_devices, known[STATE] % num_devices, 0
        start, left = known[START], known[LEFT]
        # the price of all bytes so far; the room's worth is part of `most`, once
        for d in range(len(price)):
            cost += price[d] * known[held + d]
        so_far = start + left + (cost >> shift)
        # the first option that is too long by the chain alone ends the row: all others are longer
        for p in frame.order[a, b]:
            if so_far + frame.least_ns[a, b, p] > most or tried > most_tried:
                break
            tried += 1
            # the room itself is a limit as well: prices alone would let a device be overfilled
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
                # What follows the start of the gate back: the chain from here outwards; the tail of
                # work windows; or on some device all work that the gate precedes. That is all late
                # work of the layers further out, less what of it the gate need not precede
                # (`unready`, on whichever device it is), and this layer's work behind the gate.
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
                    # `rest` also has the prices of the layers further inside
                    if begin + paid + remain + rest[a2, b2] > most:
                        continue
                    if count == most_rows:
                        return rows, tried
                    if count == len(rows):  # their number is not known before
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
    """Number the devices of a kind by rising work, bytes, and gates; in place."""
    # Swapping identical devices changes no continuation, so every label may be replaced by its twin
    # in which they are sorted. Gates decide ties, so that twins always become equal.
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
        # the old names as digits, base K, from which `_path` finds the real devices; K**K is below
        # 2**62 up to `MOST_ALIKE` devices
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


def _thinned(labels: Ints, room: Ints, coarse: int = 1) -> Ints:
    """Labels without those that another one of equal state, work and shares is no worse than."""
    # Work counts in whole steps of a grid, and bytes in whole shares: else hardly two labels would
    # have the same key. All columns become one number, renumbered when it would grow too large.
    key, held = labels[:, STATE], labels.shape[1] - len(room)
    shares = labels[:, held:] // np.maximum(1, room // SHARES)
    for column in (*(labels[:, WORK:held] // coarse).T, *shares.T):
        width = int(column.max()) + 1
        if int(key.max()) >= MOST_KEY // width:
            key = np.unique(key, return_inverse=True)[1]
        key = key * width + column
    order = np.lexsort((labels[:, LEFT], labels[:, START], key))
    rows = labels[order]
    least = np.ascontiguousarray(rows[:, WORK:])
    keep = _first_of(key[order], np.ascontiguousarray(rows[:, LEFT]), least)
    kept = rows[keep]
    kept[:, WORK:] = least[keep]
    return kept


@kernel
def _first_of(key: Ints, left: Ints, held: Ints) -> Ints:
    """Rows, by key and rising start, whose rest is less than that of all before them."""
    # They get the least bytes of any row of their key.
    # The Pareto front of start and rest. Bytes of one key differ by less than a share of the room,
    # so the least of them loses little, and a third criterion would keep far more labels.
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

# A threshold is this share above the proven bound. The share is halved where labels were too many:
# their number grows fast with the distance from the threshold down to the least label.
STRIDE, LEAST_STRIDE = 0.003, 0.0005
# If a threshold takes less than `EASY` of all trials, the next one is twice as far away, and may
# take at most `FAR` of them.
EASY, FAR = 0.001, 0.03


class NestedSearch(NamedTuple):
    """The bound of nested layers, in ns, and the paths of the least labels, if any."""

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
    """The bound of nested layers on every makespan, at least `known_ns`; None if there is none."""
    # The search ends at `stop`, when trials run out, or at the first threshold that a label is
    # below: no higher one could be proven. Then the result has the paths of the `num_paths` least
    # labels.
    if instance.num_ops > MOST_OPS or instance.num_devices < 2:
        return None
    # the first chain that comes back: short sections prove more than long ones (`layer_chains`)
    is_tight = not instance.arrays.memory_is_slack
    for whole in layer_chains(instance, windows.intervals):
        chain = without_weak_end(instance, whole, windows)
        nested = nested_layers(instance, chain, windows.time_ns, with_core=True)
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
    # The chain alone is the first bound. From there thresholds rise by `stride`: small steps, as a
    # threshold far above the least label has too many labels to be decided at all.
    best, stride, effort = max(known_ns, through - table.worth_ns), STRIDE, Effort()
    longest, last = instance.arrays.serial_horizon_ns, 0
    trimmed, paths = table, list[LayerPath]()
    while stride >= LEAST_STRIDE and effort.left > 1 and best <= longest and not stop():
        aim = min(int(best * (1 + stride)), longest) + 1
        # half of what is left, so that a nearer threshold can be tried if this one is too expensive
        given = effort.left // 2 if stride <= STRIDE else min(effort.left, int(FAR * MOST_TRIALS))
        trial = Effort(given)
        # options that the chain alone puts above the aim are in no label of interest
        near = [
            options.only(np.flatnonzero(by_option <= aim + table.worth_ns))
            for options, by_option in zip(table.options, least, strict=True)
        ]
        near_table = table._replace(options=near)
        found = least_within(near_table, rest, aim, trial, stop, num_paths)
        spent = given - trial.left
        effort.left -= spent
        if found is None:  # too many labels to decide it: a nearer threshold has fewer
            stride = STRIDE if stride > STRIDE else stride / 2
            if last > effort.left:  # a nearer one takes at least what the last proven one did
                break
        elif found.ns < NO_WAY:
            best, trimmed, paths = max(best, found.ns), near_table, found.paths
            if not found.is_merged:
                break
            stride = STRIDE if stride > STRIDE else stride / 2
        else:  # labels up to the aim, and none of them is left
            best, last = aim + 1, spent
            stride = 2 * stride if spent < EASY * MOST_TRIALS else min(stride, STRIDE)
    if best > longest:  # no plan fits into memory
        return None
    return NestedSearch(best, nested, trimmed, paths)


def priced(table: LayerTable, instance: Instance, stop: Callable[[], bool]) -> LayerTable:
    """The table with the prices of bytes that prove most by the chain alone."""
    # Groups that no option places hold bytes, too, and pay at least the least price of any device
    # that can hold them. Where all devices are identical, so are the best prices, and the bytes
    # then cost no more than the room is worth: nothing is proven.
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
    """The least time and price of the chain, and the options that attain it."""
    ways = layer_ways(table)
    rest = rest_of(table, ways)
    head, tail = table.outer_ns
    whole = np.minimum(head[:, None] + rest[0] + tail[None, :], NO_WAY)
    a, b = np.unravel_index(int(whole.argmin()), whole.shape)
    option = list[int]()
    if whole[a, b] >= NO_WAY:
        return NO_WAY, option
    for way, inside in zip(ways, rest[1:], strict=True):  # inwards along the shortest path
        a2, b2 = np.unravel_index(int((way.least_ns[a, :, :, b] + inside).argmin()), inside.shape)
        option.append(int(way.option[a, a2, b2, b]))
        a, b = a2, b2
    return int(whole.min()), option
