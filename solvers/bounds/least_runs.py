"""The kernel of `memory_runs`: a shortest path whose resource is the bytes of the current run."""

from __future__ import annotations

import numpy as np

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.kernels import kernel


@kernel
def least_runs(
    unary: Ints, pair: Ints, cost: Ints, held: Ints, size: Ints, room: Ints, most: int
) -> tuple[int, Ints, Ints]:
    """Least cost of runs that fit, the device of each stop, and the mode after it, -1 for a cut.

    A label is the cost so far and the bytes of the current run; labels of a stop and device are
    sorted by cost, and of rising cost each has fewer bytes.
    """
    num, num_devices = unary.shape
    modes = cost.shape[2]
    count = np.zeros((num, num_devices), np.int64)
    spent = np.zeros((num, num_devices, most), np.int64)
    bytes_ = np.zeros((num, num_devices, most), np.int64)
    from_device = np.zeros((num, num_devices, most), np.int64)
    from_label = np.zeros((num, num_devices, most), np.int64)
    from_mode = np.full((num, num_devices, most), -1)
    for a in range(num_devices):
        if unary[0, a] < NEVER and size[0] <= room[a]:
            count[0, a], spent[0, a, 0], bytes_[0, a, 0] = 1, unary[0, a], size[0]
    wide = most * modes + 1
    c_spent, c_bytes = np.zeros(wide, np.int64), np.zeros(wide, np.int64)
    c_device, c_label = np.zeros(wide, np.int64), np.zeros(wide, np.int64)
    c_mode = np.zeros(wide, np.int64)
    for c in range(1, num):
        for b in range(num_devices):
            if unary[c, b] >= NEVER or size[c] > room[b]:
                continue
            n, best = 0, NEVER
            for a in range(num_devices):
                if a != b and count[c - 1, a] > 0:
                    total = spent[c - 1, a, 0] + pair[c - 1, a, b] + unary[c, b]
                    if total < best:
                        best, n = total, 1
                        c_spent[0], c_bytes[0], c_device[0], c_label[0] = total, size[c], a, 0
                        c_mode[0] = -1
            for at in range(count[c - 1, b]):
                for mode in range(modes):
                    total = spent[c - 1, b, at] + cost[c - 1, b, mode] + unary[c, b]
                    load = bytes_[c - 1, b, at] + held[c - 1, b, mode] + size[c]
                    if total < NEVER and load <= room[b]:
                        c_spent[n], c_bytes[n], c_device[n], c_label[n] = total, load, b, at
                        c_mode[n] = mode
                        n += 1
            order = np.argsort(c_spent[:n], kind="mergesort")
            kept = 0
            for q in order:
                if kept == 0 or c_bytes[q] < c_bytes[order[kept - 1]]:
                    order[kept] = q
                    kept += 1
            step = 1
            while (kept + step - 1) // step > most:
                step *= 2
            m = 0
            for q in range(0, kept, step):  # of neighbours the least cost and the fewest bytes
                last = order[min(q + step, kept) - 1]
                spent[c, b, m], bytes_[c, b, m] = c_spent[order[q]], c_bytes[last]
                from_device[c, b, m], from_label[c, b, m] = c_device[order[q]], c_label[order[q]]
                from_mode[c, b, m] = c_mode[order[q]]
                m += 1
            count[c, b] = m
    at_device, least = -1, NEVER
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
