"""The kernels of `memory_runs`: a shortest path whose resources are bytes, and what bytes cost.

A label of `least_runs` has the bytes of the current run, and those of all runs since the path
came to a pool of devices. With prices, what lies between two stops takes at least some length, and
each group is on a device over which a way takes no longer than that: it pays to be longer where
that reaches cheaper memory (`price_links`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, stable_order
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.labels.dominance import fewer_labels

NOTHING = 2**62
"""More than every price."""


class RunTerms(NamedTuple):
    """What runs cost and hold, for c stops, K devices and some modes."""

    #: (c, K) int64: Of each stop on each device.
    stop_ns: Ints
    #: (c - 1, K, K) int64: Between neighbouring stops on two devices; where these are one, see
    #: `stay_ns`.
    cut_ns: Ints
    #: stay_ns, held_bytes: (c - 1, K, modes) int64: Between neighbouring stops on one device, and
    #: the bytes of their link that are there too.
    stay_ns: Ints
    held_bytes: Ints
    #: (c,) int64: Of each stop's group.
    size_bytes: Ints
    #: room_bytes, pool, pool_room_bytes: Of devices, the pool of each, and of pools.
    room_bytes: Ints
    pool: Ints
    pool_room_bytes: Ints


@kernel
def least_runs(terms: RunTerms, most: int) -> tuple[int, Ints, Ints]:
    """Least cost of runs that fit, the device of each stop, and the mode after it, -1 for a cut.

    A label is the cost so far, the bytes of the current run, and those of all runs since the path
    came to the device's pool; a limited number is kept at a stop and device, the cheapest first.
    """
    stop, cut, stay, held = terms.stop_ns, terms.cut_ns, terms.stay_ns, terms.held_bytes
    size, room, pool = terms.size_bytes, terms.room_bytes, terms.pool
    num, num_devices = stop.shape
    modes = stay.shape[2]
    count = np.zeros((num, num_devices), np.int64)
    label = np.zeros((num, num_devices, most, 3), np.int64)  # cost, bytes of the run, of its pool
    origin = np.zeros((num, num_devices, most, 3), np.int64)  # device, label and mode before
    for a in range(num_devices):
        if stop[0, a] < NO_WAY and size[0] <= room[a]:
            count[0, a] = 1
            label[0, a, 0] = stop[0, a], size[0], size[0]
    wide = most * (modes + num_devices) + 1
    trial, came = np.zeros((wide, 3), np.int64), np.zeros((wide, 3), np.int64)
    rows, least_of = np.empty(wide, np.int64), np.empty((wide, 3), np.int64)
    for c in range(1, num):
        for b in range(num_devices):
            if stop[c, b] >= NO_WAY or size[c] > room[b]:
                continue
            n, best, most_pooled = 0, NO_WAY, terms.pool_room_bytes[pool[b]]
            for a in range(num_devices):
                if pool[a] != pool[b] and count[c - 1, a] > 0:
                    total = label[c - 1, a, 0, 0] + cut[c - 1, a, b] + stop[c, b]
                    if total < best:  # from other pools the cheapest: all bytes begin anew
                        best, n = total, 1
                        trial[0] = total, size[c], size[c]
                        came[0] = a, 0, -1
            for a in range(num_devices):
                if pool[a] != pool[b] or a == b:
                    continue
                for at in range(count[c - 1, a]):
                    total = label[c - 1, a, at, 0] + cut[c - 1, a, b] + stop[c, b]
                    load = label[c - 1, a, at, 2] + size[c]
                    if total < NO_WAY and load <= most_pooled:
                        trial[n] = total, size[c], load
                        came[n] = a, at, -1
                        n += 1
            for at in range(count[c - 1, b]):
                for mode in range(modes):
                    total = label[c - 1, b, at, 0] + stay[c - 1, b, mode] + stop[c, b]
                    more = held[c - 1, b, mode] + size[c]
                    load, in_pool = label[c - 1, b, at, 1] + more, label[c - 1, b, at, 2] + more
                    if total < NO_WAY and load <= room[b] and in_pool <= most_pooled:
                        trial[n] = total, load, in_pool
                        came[n] = b, at, mode
                        n += 1
            order = stable_order(trial[:n, 0])
            kept, _ = fewer_labels(trial, order, most, rows, least_of)
            for m in range(kept):
                label[c, b, m], origin[c, b, m] = least_of[m], came[rows[m]]
            count[c, b] = kept
    at_device, least = -1, NO_WAY
    for a in range(num_devices):
        if count[num - 1, a] > 0 and label[num - 1, a, 0, 0] < least:
            at_device, least = a, label[num - 1, a, 0, 0]
    device, passed, at = np.zeros(num, np.int64), np.full(num, -1), 0
    if at_device >= 0:
        for c in range(num - 1, -1, -1):
            device[c] = at_device
            before = origin[c, at_device, at]
            if c > 0:
                passed[c - 1] = before[2]
            at_device, at = before[0], before[1]
    return least, device, passed


class LinkWays(NamedTuple):
    """Groups between stops: those of link r are from ``pointer[r]`` on, with their bytes, and ways
    (K, K, K) as in `Passage`; where these are (K, 1, K), bytes between two devices cost least.
    """

    pointer: Ints
    size_bytes: Ints
    ways_ns: Ints


@kernel
def price_links(
    cut: Ints, stay: Ints, links: LinkWays, price: Ints, shift: int, at: Ints, mode: Ints
) -> tuple[Ints, Ints, Ints]:
    """Lengths (c, K, K) and (c, K, modes) with what bytes cost, rounded down; bytes by device.

    The bytes are those of stops on the devices `at`, with the modes between; they are not counted
    where `at` is negative.
    """
    num_links, num_devices = len(cut), cut.shape[1]
    cuts, stays, used = cut.copy(), stay.copy(), np.zeros(num_devices, np.int64)
    cheapest, wide = np.argmin(price), links.ways_ns.shape[2] > 1
    for r in range(num_links):
        first, last = links.pointer[r], links.pointer[r + 1]
        if first == last:
            continue
        size, ways = links.size_bytes[first:last], links.ways_ns[first:last]
        total = size.sum()
        for a in range(num_devices):
            for b in range(num_devices):
                if a == b or cut[r, a, b] >= NO_WAY:
                    continue
                if wide:
                    paid, where = _pay(cut[r, a, b], size, ways[:, a, b], price, shift)
                else:
                    paid = min(NO_WAY, cut[r, a, b] + ((total * price[cheapest]) >> shift))
                    where = np.full(last - first, cheapest)
                cuts[r, a, b] = paid
                if at[r] == a and at[r + 1] == b:
                    for x in range(last - first):
                        used[where[x]] += size[x]
            for m in range(stay.shape[2]):
                if stay[r, a, m] >= NO_WAY:
                    continue
                if m > 0:
                    way = ways[:, a, a if wide else 0]
                    paid, where = _pay(stay[r, a, m], size, way, price, shift)
                else:  # all on the device of the run
                    paid = min(NO_WAY, stay[r, a, m] + ((total * price[a]) >> shift))
                    where = np.full(last - first, a)
                stays[r, a, m] = paid
                if at[r] == a and at[r + 1] == a and mode[r] == m:
                    for x in range(last - first):
                        used[where[x]] += size[x]
    return cuts, stays, used


@kernel
def _pay(start: int, size: Ints, ways: Ints, price: Ints, shift: int) -> tuple[int, Ints]:
    """The least of a length from `start` on and of the price of bytes that it leaves; and where
    that has each group.
    """
    num, num_devices = ways.shape
    when, saved, paid = [start], [np.int64(0)], np.int64(0)
    for x in range(num):
        now = NOTHING
        for c in range(num_devices):
            if ways[x, c] <= start:
                now = min(now, price[c])
        if now == NOTHING:  # it takes longer than what is proven
            now = price.min()
        paid += size[x] * now
        for c in stable_order(ways[x]):
            if ways[x, c] < NO_WAY and price[c] < now:
                when.append(ways[x, c])
                saved.append(size[x] * (now - price[c]))
                now = price[c]
    at, gain, length = start, np.int64(0), start
    best, times = int(start + (paid >> shift)), np.array(when)
    for e in stable_order(times):
        at, gain = max(at, times[e]), gain + saved[e]
        if at + ((paid - gain) >> shift) < best:
            best, length = int(at + ((paid - gain) >> shift)), at
    where = np.full(num, np.argmin(price))
    for x in range(num):
        least = NOTHING
        for c in range(num_devices):
            if ways[x, c] <= length and price[c] < least:
                least, where[x] = price[c], c
    return min(NO_WAY, best), where
