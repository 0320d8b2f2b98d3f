"""The kernels of `memory_runs`: a shortest path whose resources are bytes, and what bytes cost.

A label of `least_runs` knows the bytes of the current run, and those of all runs since the path
came to a pool of devices. With prices, what lies between two stops takes at least some length, and
each group is on a device over which a way takes no longer than that: it pays to be longer where
that reaches cheaper memory (`price_links`).
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel


@kernel
def least_runs(
    unary: Ints,
    pair: Ints,
    cost: Ints,
    held: Ints,
    size: Ints,
    room: Ints,
    pool: Ints,
    pool_room: Ints,
    most: int,
) -> tuple[int, Ints, Ints]:
    """Least cost of runs that fit, the device of each stop, and the mode after it, -1 for a cut.

    A label is the cost so far, the bytes of the current run, and those of all runs since the path
    came to the device's pool. Labels of a stop and device are sorted by cost; none has as much of
    everything as one before it.
    """
    num, num_devices = unary.shape
    modes = cost.shape[2]
    count = np.zeros((num, num_devices), np.int64)
    spent = np.zeros((num, num_devices, most), np.int64)
    bytes_ = np.zeros((num, num_devices, most), np.int64)
    pooled = np.zeros((num, num_devices, most), np.int64)
    from_device = np.zeros((num, num_devices, most), np.int64)
    from_label = np.zeros((num, num_devices, most), np.int64)
    from_mode = np.full((num, num_devices, most), -1)
    for a in range(num_devices):
        if unary[0, a] < NO_WAY and size[0] <= room[a]:
            count[0, a], spent[0, a, 0], bytes_[0, a, 0] = 1, unary[0, a], size[0]
            pooled[0, a, 0] = size[0]
    wide = most * (modes + num_devices) + 1
    c_spent, c_bytes, c_pooled = np.zeros((3, wide), np.int64)
    c_device, c_label, c_mode = np.zeros((3, wide), np.int64)
    for c in range(1, num):
        for b in range(num_devices):
            if unary[c, b] >= NO_WAY or size[c] > room[b]:
                continue
            n, best, most_pooled = 0, NO_WAY, pool_room[pool[b]]
            for a in range(num_devices):
                if pool[a] != pool[b] and count[c - 1, a] > 0:
                    total = spent[c - 1, a, 0] + pair[c - 1, a, b] + unary[c, b]
                    if total < best:
                        best, n = total, 1
                        c_spent[0], c_bytes[0], c_device[0], c_label[0] = total, size[c], a, 0
                        c_pooled[0], c_mode[0] = size[c], -1
            for a in range(num_devices):
                if pool[a] != pool[b] or a == b:
                    continue
                for at in range(count[c - 1, a]):
                    total = spent[c - 1, a, at] + pair[c - 1, a, b] + unary[c, b]
                    load = pooled[c - 1, a, at] + size[c]
                    if total < NO_WAY and load <= most_pooled:
                        c_spent[n], c_bytes[n], c_device[n], c_label[n] = total, size[c], a, at
                        c_pooled[n], c_mode[n] = load, -1
                        n += 1
            for at in range(count[c - 1, b]):
                for mode in range(modes):
                    total = spent[c - 1, b, at] + cost[c - 1, b, mode] + unary[c, b]
                    more = held[c - 1, b, mode] + size[c]
                    load, in_pool = bytes_[c - 1, b, at] + more, pooled[c - 1, b, at] + more
                    if total < NO_WAY and load <= room[b] and in_pool <= most_pooled:
                        c_spent[n], c_bytes[n], c_device[n], c_label[n] = total, load, b, at
                        c_pooled[n], c_mode[n] = in_pool, mode
                        n += 1
            order = np.argsort(c_spent[:n], kind="mergesort")
            kept = 0
            for q in order:
                below = False
                for r in order[:kept]:
                    if c_bytes[r] <= c_bytes[q] and c_pooled[r] <= c_pooled[q]:
                        below = True
                        break
                if not below:
                    order[kept] = q
                    kept += 1
            step = 1
            while (kept + step - 1) // step > most:
                step *= 2
            m = 0
            for q in range(0, kept, step):  # of neighbours the least of everything
                first = order[q]
                spent[c, b, m] = c_spent[first]
                bytes_[c, b, m], pooled[c, b, m] = c_bytes[first], c_pooled[first]
                for r in order[q : min(q + step, kept)]:
                    bytes_[c, b, m] = min(bytes_[c, b, m], c_bytes[r])
                    pooled[c, b, m] = min(pooled[c, b, m], c_pooled[r])
                from_device[c, b, m], from_label[c, b, m] = c_device[first], c_label[first]
                from_mode[c, b, m] = c_mode[first]
                m += 1
            count[c, b] = m
    at_device, least = -1, NO_WAY
    for a in range(num_devices):
        if count[num - 1, a] > 0 and spent[num - 1, a, 0] < least:
            at_device, least = a, spent[num - 1, a, 0]
    device, passed, label = np.zeros(num, np.int64), np.full(num, -1), 0
    if at_device >= 0:
        for c in range(num - 1, -1, -1):
            device[c] = at_device
            if c > 0:
                passed[c - 1] = from_mode[c, at_device, label]
            at_device, label = from_device[c, at_device, label], from_label[c, at_device, label]
    return least, device, passed


NOTHING = 2**62
"""More than every price."""


@kernel
def price_links(
    cut: Ints,
    stay: Ints,
    size: Ints,
    pointer: Ints,
    ways: Ints,
    price: Ints,
    shift: int,
    at: Ints,
    mode: Ints,
) -> tuple[Ints, Ints, Ints]:
    """Lengths (c, K, K) and (c, K, modes) with what bytes cost, rounded down; bytes by device.

    Groups of link r are those from ``pointer[r]`` on, with ways (K, K, K) as in `Passage`; where
    these are (K, 1, K), bytes between two devices cost least. The bytes are those of stops on the
    devices `at`, with the modes between; they are not counted where `at` is negative.
    """
    num_links, num_devices = len(cut), cut.shape[1]
    cuts, stays, used = cut.copy(), stay.copy(), np.zeros(num_devices, np.int64)
    cheapest, wide = np.argmin(price), ways.shape[2] > 1
    for r in range(num_links):
        first, last = pointer[r], pointer[r + 1]
        if first == last:
            continue
        total = size[first:last].sum()
        for a in range(num_devices):
            for b in range(num_devices):
                if a == b or cut[r, a, b] >= NO_WAY:
                    continue
                counts = at[r] == a and at[r + 1] == b
                if wide:
                    cuts[r, a, b] = _pay(
                        cut[r, a, b],
                        size[first:last],
                        ways[first:last, a, b],
                        price,
                        shift,
                        used,
                        counts,
                    )
                else:
                    cuts[r, a, b] = min(NO_WAY, cut[r, a, b] + ((total * price[cheapest]) >> shift))
                    if counts:
                        used[cheapest] += total
            for m in range(stay.shape[2]):
                if stay[r, a, m] >= NO_WAY:
                    continue
                counts = at[r] == a and at[r + 1] == a and mode[r] == m
                if m > 0:
                    stays[r, a, m] = _pay(
                        stay[r, a, m],
                        size[first:last],
                        ways[first:last, a, a if wide else 0],
                        price,
                        shift,
                        used,
                        counts,
                    )
                else:  # all on the device of the run
                    stays[r, a, m] = min(NO_WAY, stay[r, a, m] + ((total * price[a]) >> shift))
                    if counts:
                        used[a] += total
    return cuts, stays, used


@kernel
def _pay(
    start: int, size: Ints, ways: Ints, price: Ints, shift: int, used: Ints, counts: bool
) -> int:
    """The least of a length from `start` on and of the price of bytes that it leaves."""
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
        for c in np.argsort(ways[x], kind="mergesort"):
            if ways[x, c] < NO_WAY and price[c] < now:
                when.append(ways[x, c])
                saved.append(size[x] * (now - price[c]))
                now = price[c]
    at, gain, length = start, np.int64(0), start
    best, times = int(start + (paid >> shift)), np.array(when)
    for e in np.argsort(times, kind="mergesort"):
        at, gain = max(at, times[e]), gain + saved[e]
        if at + ((paid - gain) >> shift) < best:
            best, length = int(at + ((paid - gain) >> shift)), at
    if counts:
        for x in range(num):
            where, least = int(np.argmin(price)), NOTHING
            for c in range(num_devices):
                if ways[x, c] <= length and price[c] < least:
                    least, where = price[c], c
            used[where] += size[x]
    return min(NO_WAY, best)
