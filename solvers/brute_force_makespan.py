"""Every schedule worth looking at: placements x op orders x transfer orders, for makespan.

Ops and the transfers that hold a channel are *items*; a transfer without a channel is a mere delay.
Items are numbered so that each one follows what it waits for.

A schedule is built by appending items: each starts as soon as what it waits for has ended and its
device or channels have served all items appended before. Appending the items of any feasible
schedule in the order (start, end, number) delays none of them, so it may be repeated until nothing
moves: some optimal schedule is its own result. Hence it is enough to append in increasing
(start, end, number). A branch is cut only if a longest path through it reaches the best value.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.channels import NO_CHANNEL, channels_of
from placegap.instances.index import Ints
from placegap.instances.model import Instance
from placegap.instances.orders import plan_from_times
from placegap.instances.plan import Plan, Transfer
from placegap.instances.semantics import Semantics

NO_SCHEDULE = 2**62


def best_schedule(instance: Instance, semantics: Semantics) -> tuple[int, Plan] | None:
    """Optimal makespan in ns and a plan with all its orders, or None if no placement is feasible.

    Exponential: meant for the sizes that `brute_force.applies` admits.

    Examples
    --------
    >>> from placegap.instances import example
    >>> best_schedule(example(), Semantics(objective="makespan"))[0]
    35
    """
    arrays, index, k = instance.arrays, instance.arrays.index, instance.num_devices
    channels = np.full((k, k, 2), NO_CHANNEL, np.int64)
    for a in range(k):
        for b in range(k):
            if a != b:
                channels[a, b] = channels_of(semantics.channels, k, a, b)
    per_tensor = semantics.transfers == "per_tensor"
    value, device, op_start, item, destination, start, end = _search(
        arrays.time_ns, arrays.resident_bytes, arrays.memory_bytes, arrays.group, index.producer,
        index.consumer, index.tensor if per_tensor else np.arange(len(index.producer)),
        index.tensor, index.topological_order, index.succ_ptr, index.succ_edge,
        arrays.transfer_ns, arrays.link_class, channels,
    )  # fmt: skip
    if value == NO_SCHEDULE:
        return None
    op_end = op_start + arrays.time_ns[np.arange(instance.num_ops), device]
    transfers = [
        (Transfer(*row[:2]), *row[2:])
        for row in np.column_stack([item, destination, start, end]).tolist()
    ]
    op_times = list(zip(op_start.tolist(), op_end.tolist(), strict=True))
    return int(value), plan_from_times(instance, semantics, device.tolist(), op_times, transfers)


@njit(cache=True)
def _search(
    time_ns: Ints, resident_bytes: Ints, memory_bytes: Ints, group: Ints, producer: Ints,
    consumer: Ints, carried: Ints, tensor: Ints, topological_order: Ints, succ_ptr: Ints,
    succ_edge: Ints, transfer_ns: Ints, link_class: Ints, channels: Ints,
) -> tuple[int, Ints, Ints, Ints, Ints, Ints, Ints]:  # fmt: skip
    """Enumerate the placements; `carried` is the edge or tensor that a transfer is called by."""
    n, num_devices = time_ns.shape
    num_edges = len(producer)
    most = n + num_edges
    home = np.zeros(group.max() + 1, np.int64)
    device = np.empty(n, np.int64)
    best_device, best_ops = np.zeros(n, np.int64), np.zeros(n, np.int64)
    best_transfers = np.zeros((0, 4), np.int64)
    best = np.array([NO_SCHEDULE])
    while True:
        for i in range(n):
            device[i] = home[group[i]]
        if _fits(device, time_ns, resident_bytes, memory_bytes):
            # number the items: each op in topological order, then its transfers
            item_of_op = np.empty(n, np.int64)
            served = np.full(num_edges, -1, np.int64)  # the item that brings each remote edge
            duration = np.empty(most, np.int64)
            resources = np.full((most, 2), NO_CHANNEL, np.int64)
            row = np.zeros((most, 2), np.int64)  # (carried, destination) of a transfer
            size = 0
            for op in topological_order:
                item_of_op[op] = size
                duration[size] = time_ns[op, device[op]]
                resources[size, 0] = device[op]
                size += 1
                out = succ_edge[succ_ptr[op] : succ_ptr[op + 1]]
                for e in out:
                    to = device[consumer[e]]
                    if channels[device[op], to, 0] == NO_CHANNEL:
                        continue
                    for f in out:
                        if served[f] >= 0 and carried[f] == carried[e] and row[served[f], 1] == to:
                            served[e] = served[f]
                    if served[e] < 0:
                        served[e] = size
                        row[size] = carried[e], to
                        duration[size] = transfer_ns[tensor[e], link_class[device[op], to]]
                        for c in range(2):
                            if channels[device[op], to, c] != NO_CHANNEL:
                                resources[size, c] = num_devices + channels[device[op], to, c]
                        size += 1
            # lag[j, i]: item i starts at least this long after the end of item j; -1: it may not
            lag = np.full((size, size), -1, np.int64)
            for e in range(num_edges):
                a, b, via = item_of_op[producer[e]], item_of_op[consumer[e]], served[e]
                if via >= 0:
                    lag[a, via], lag[via, b] = 0, 0
                else:
                    direct = transfer_ns[tensor[e], link_class[device[producer[e]], device[consumer[e]]]]
                    lag[a, b] = max(lag[a, b], direct)
            tail = _tails(duration[:size], lag)
            before, start = best[0], np.full(size, -1, np.int64)
            free = np.zeros(num_devices + num_devices * (num_devices + 2), np.int64)
            found = np.empty(size, np.int64)
            _append(
                0, 0, 0, -1, start, free, duration[:size], resources[:size], lag, tail, best, found
            )
            if best[0] < before:
                best_device[:] = device
                best_ops[:] = found[item_of_op]
                moves = np.array([i for i in range(size) if resources[i, 0] >= num_devices], np.int64)
                best_transfers = np.empty((len(moves), 4), np.int64)
                best_transfers[:, :2] = row[moves]
                best_transfers[:, 2] = found[moves]
                best_transfers[:, 3] = found[moves] + duration[moves]
        at = 0
        while at < len(home) and home[at] == num_devices - 1:
            home[at] = 0
            at += 1
        if at == len(home):
            break
        home[at] += 1
    return (
        best[0], best_device, best_ops, best_transfers[:, 0], best_transfers[:, 1],
        best_transfers[:, 2], best_transfers[:, 3],
    )  # fmt: skip
