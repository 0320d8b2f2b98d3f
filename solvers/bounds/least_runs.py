"""The kernel of `memory_runs`: a shortest path whose resources are bytes.

Those of the current run, and those of all runs since the path came to a pool of devices.
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
