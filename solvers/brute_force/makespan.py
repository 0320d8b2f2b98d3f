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

from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import NO_CHANNEL, channels_of, plan_from_times
from placegap.solvers.brute_force.placements import (
    PeakSizes,
    item_touches,
    peak_sizes,
    state_of,
    too_full,
)


def best_schedule(instance: Instance, semantics: Makespan) -> tuple[int, Plan] | None:
    """Optimal makespan in ns and a plan with all its orders, or None if no placement is feasible.

    Exponential: meant for the sizes that `brute_force.applies` admits.

    Examples
    --------
    >>> from placegap.instances import example
    >>> best_schedule(example(), Makespan())[0]
    34
    """
    arrays, index = instance.arrays, instance.arrays.index
    order, position = index.topological_order, index.topological_position
    per_tensor = semantics.transfers == "per_tensor"
    carried = index.tensor if per_tensor else np.arange(len(index.tensor))
    edges = np.column_stack(
        [position[index.producer], position[index.consumer], carried, index.tensor]
    )
    value, device, start, duration, move = _search(
        arrays.time_ns[order],
        arrays.resident_bytes[order],
        arrays.memory_bytes,
        arrays.group[order],
        np.ascontiguousarray(edges[np.argsort(edges[:, 0], kind="stable")]),
        arrays.transfer_ns,
        arrays.link_class,
        _channel_table(instance, semantics),
        peak_sizes(instance, semantics, order),
    )
    if value == NEVER:
        return None
    is_op, end = move[:, 0] < 0, start + duration
    device, op_times = device[position], np.column_stack([start, end])[is_op][position].tolist()
    moves = np.column_stack([move, start, end])[~is_op].tolist()
    transfers = [(Transfer(item, to), began, ended) for item, to, began, ended in moves]
    return int(value), plan_from_times(instance, semantics, device.tolist(), op_times, transfers)


def _channel_table(instance: Instance, semantics: Makespan) -> Ints:
    k = instance.num_devices
    table = np.full((k, k, 2), NO_CHANNEL, np.int64)
    for a in range(k):
        for b in range(k):
            if a != b:
                table[a, b] = channels_of(semantics.channels, k, a, b)
    return table


@kernel
def _search(
    time_ns: Ints,
    resident_bytes: Ints,
    memory_bytes: Ints,
    group: Ints,
    edges: Ints,
    transfer_ns: Ints,
    link_class: Ints,
    channels: Ints,
    sizes: PeakSizes,
) -> tuple[int, Ints, Ints, Ints, Ints]:
    """Try every placement of the ops, which are numbered topologically.

    Row e of `edges` is (producer, consumer, carried, tensor), ordered by producer; edges with the
    same `carried` to one destination share a transfer. Returns the value, the device of each op,
    and the starts, durations and `move` of the items (see `_items`).
    """
    num_devices = len(memory_bytes)
    num_resources = num_devices + channels.max() + 1
    home, device = np.zeros(group.max() + 1, np.int64), np.zeros(len(group), np.int64)
    best: Any = np.int64(NEVER)  # no literal: `_best_order` is compiled once
    best_device = home
    best_start, best_duration, best_move = home, home, edges
    while True:
        if may_fit(device, time_ns, resident_bytes, memory_bytes, sizes):
            left = memory_bytes - state_of(device, sizes, num_devices)
            duration, resources, lag, move = _items(
                device, time_ns, edges, transfer_ns, link_class, channels
            )
            tail = _tails(duration, lag)
            touches = item_touches(device, edges, move, duration, transfer_ns, link_class)
            value, start = _best_order(
                duration, resources, lag, tail, num_resources, best, sizes, touches, left
            )
            if value < best:
                best, best_device = value, device.copy()
                best_start, best_duration, best_move = start, duration, move
        if not next_placement(home, num_devices, group, device):
            return best, best_device, best_start, best_duration, best_move


@kernel(allocates=False)
def next_placement(home: Ints, num_devices: int, group: Ints, device: Ints) -> bool:
    """Move on to the next device of each group (`home`) and op (`device`); False after the last."""
    at = 0
    while at < len(home) and home[at] == num_devices - 1:
        home[at] = 0
        at += 1
    if at == len(home):
        return False
    home[at] += 1
    for i in range(len(group)):
        device[i] = home[group[i]]
    return True


@kernel
def fits(device: Ints, time_ns: Ints, resident_bytes: Ints, memory_bytes: Ints) -> bool:
    """Every op runs where it is, and the memory suffices."""
    left = memory_bytes.copy()
    for i in range(len(device)):
        left[device[i]] -= resident_bytes[i]
        if time_ns[i, device[i]] == UNSUPPORTED or left[device[i]] < 0:
            return False
    return True


@kernel
def may_fit(
    device: Ints, time_ns: Ints, resident_bytes: Ints, memory_bytes: Ints, sizes: PeakSizes
) -> bool:
    """Every op runs where it is, and the memory suffices as far as the placement alone tells."""
    if not sizes.counts:
        return fits(device, time_ns, resident_bytes, memory_bytes)
    for i in range(len(device)):
        if time_ns[i, device[i]] == UNSUPPORTED:
            return False
    return bool((state_of(device, sizes, len(memory_bytes)) <= memory_bytes).all())


@kernel
def _items(
    device: Ints, time_ns: Ints, edges: Ints, transfer_ns: Ints, link_class: Ints, channels: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Items of a placement: each op, followed by the transfers of its outputs.

    Returns durations, resources (devices, then channels; two columns), lags, and (carried,
    destination) of each transfer, -1 for ops. ``lag[j, i]``: item i starts at least this long after
    the end of item j; -1: it does not wait for j.
    """
    n, num_devices = time_ns.shape
    most = n + len(edges)
    duration = np.zeros(most, np.int64)
    resources = np.full((most, 2), -1, np.int64)
    move = np.full((most, 2), -1, np.int64)
    item_of_op = np.zeros(n, np.int64)
    carrier = np.full(len(edges), -1, np.int64)
    size = 0
    for op in range(n):
        item_of_op[op] = size
        duration[size] = time_ns[op, device[op]]
        resources[size, 0] = device[op]
        first = size
        size += 1
        for e in range(len(edges)):
            source, target = device[edges[e, 0]], device[edges[e, 1]]
            if edges[e, 0] != op or channels[source, target, 0] == NO_CHANNEL:
                continue
            for item in range(first, size):
                if move[item, 0] == edges[e, 2] and move[item, 1] == target:
                    carrier[e] = item
            if carrier[e] < 0:
                carrier[e] = size
                move[size, 0], move[size, 1] = edges[e, 2], target
                duration[size] = transfer_ns[edges[e, 3], link_class[source, target]]
                for c in range(2):
                    if channels[source, target, c] != NO_CHANNEL:
                        resources[size, c] = num_devices + channels[source, target, c]
                size += 1
    lag = np.full((size, size), -1, np.int64)
    for e in range(len(edges)):
        a, b, via = item_of_op[edges[e, 0]], item_of_op[edges[e, 1]], carrier[e]
        if via >= 0:
            lag[a, via], lag[via, b] = 0, 0
        else:
            pair = link_class[device[edges[e, 0]], device[edges[e, 1]]]
            lag[a, b] = max(lag[a, b], transfer_ns[edges[e, 3], pair])
    return duration[:size], resources[:size], lag, move[:size]


@kernel
def _tails(duration: Ints, lag: Ints) -> Ints:
    """Longest path from the start of each item to the end of the graph."""
    tail = duration.copy()
    for j in range(len(tail) - 1, -1, -1):
        for i in range(j + 1, len(tail)):
            if lag[j, i] >= 0:
                tail[j] = max(tail[j], duration[j] + lag[j, i] + tail[i])
    return tail


@kernel
def _best_order(
    duration: Ints,
    resources: Ints,
    lag: Ints,
    tail: Ints,
    num_resources: int,
    best: int,
    sizes: PeakSizes,
    touches: Ints,
    left: Ints,
) -> tuple[int, Ints]:
    """Append items depth first; the least makespan below `best`, or `best`, and the starts.

    At depth d, `sequence[:d]` has been appended, and ``candidate[d]`` is the next item to try.
    Under the rule `peak` nothing is appended to what holds too much before the last item starts.
    """
    size = len(duration)
    start, found = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    earliest = np.zeros((size, size), np.int64)
    sequence, candidate = np.zeros(size, np.int64), np.zeros(size, np.int64)
    depth = 0
    if _earliest(start, duration, resources, lag, tail, num_resources, earliest[0]) >= best:
        return best, found
    while depth >= 0:
        i = candidate[depth]
        if i == size:
            depth -= 1
            start[sequence[depth]] = -1
            continue
        candidate[depth] += 1
        if start[i] >= 0 or not _may_follow(
            i, earliest[depth, i], sequence[depth - 1] if depth else -1, start, duration, lag
        ):
            continue
        start[i], sequence[depth] = earliest[depth, i], i
        below = earliest[min(depth + 1, size - 1)]
        bound = _earliest(start, duration, resources, lag, tail, num_resources, below)
        until = NEVER if depth + 1 == size else start[i]
        if bound < best and sizes.counts and too_full(start, duration, touches, sizes, left, until):
            bound = best
        if bound < best and depth + 1 < size:
            depth += 1
            candidate[depth] = 0
            continue
        if bound < best:  # all items have their start: the bound is the makespan
            best, found = bound, start.copy()
        start[i] = -1
    return best, found


@kernel(allocates=False)
def _may_follow(i: int, at: int, last: int, start: Ints, duration: Ints, lag: Ints) -> bool:
    """Whether item i, from time `at` on, comes after the item `last` in (start, end, number)."""
    for j in range(i):
        if lag[j, i] >= 0 and start[j] < 0:
            return False
    if last < 0 or at != start[last]:
        return last < 0 or at > start[last]
    return duration[i] > duration[last] or (duration[i] == duration[last] and i > last)


@kernel
def _earliest(
    start: Ints,
    duration: Ints,
    resources: Ints,
    lag: Ints,
    tail: Ints,
    num_resources: int,
    earliest: Ints,
) -> int:
    """Fill in when each item can start after those that have a start (>= 0); a makespan bound.

    A resource is free when the last started item on it has ended, as items are only appended.
    """
    free = np.zeros(num_resources, np.int64)
    for i in range(len(start)):
        for r in resources[i]:
            if r >= 0 and start[i] >= 0:
                free[r] = max(free[r], start[i] + duration[i])
    bound = 0
    for i in range(len(start)):
        earliest[i] = start[i]
        if start[i] < 0:
            for r in resources[i]:
                if r >= 0:
                    earliest[i] = max(earliest[i], free[r])
            for j in range(i):
                if lag[j, i] >= 0:
                    earliest[i] = max(earliest[i], earliest[j] + duration[j] + lag[j, i])
        bound = max(bound, earliest[i] + tail[i])
    return bound
