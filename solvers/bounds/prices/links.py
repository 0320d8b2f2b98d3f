"""The kernel of `memory_runs` for prices: what the bytes between two stops cost.

What lies between them takes at least some length, and each group is on a device over which a way
takes no longer than that: it pays to be longer where that reaches cheaper memory.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel

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

    Groups of link r are those from ``pointer[r]`` on, with ways (K, K, K) as in `passages`; where
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
