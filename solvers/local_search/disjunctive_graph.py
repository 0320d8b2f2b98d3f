"""A schedule as a disjunctive graph: orders on devices and channels, starts and tails of all items.

Items are the ops and, unless channels are free, the remote transfers. All of them stand in one
topological order, a linked list with labels; each machine (device or channel) has the list of its
own items. The start of an item is the longest path to it, its tail the longest path from its start
to the end (Balas and Vazacopoulos 1998), so start + tail is the longest path through it, and the
largest such sum is the makespan. After a change only the starts and tails that differ are
recomputed.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import copy_to, kernel
from placegap.instances.problem import Channels, Instance, Makespan
from placegap.instances.referee.channels import NO_CHANNEL, channels_of, num_channels

NONE = -1

START, DURATION, TAIL, LABEL, BEFORE, AFTER = 0, 1, 2, 3, 4, 5
# Columns of an item; the last three have two columns each, one per machine that it occupies.
PREV, NEXT, MACHINE = 6, 8, 10

COLUMNS = 12

# Counters: items whose tail may change, items whose start may change, items in the heap, changes of
# the structure and of starts that can be undone; and the last label where the structure changed.
SEEDS, DIRTY, HEAPED, CHANGES, STARTS, HIGHEST = 0, 1, 2, 3, 4, 5
SPACE = 2**36  # distance of neighbouring labels when all are renumbered

LAST_LABEL = 2**62

MOST_TOUCHED = 20_000  # most edges at the ops of one move
LONGEST_WALK = 256  # most items of a machine that are tried to find a place; each place is valid
HINTS = 1024  # most parts of the labels for which a machine has a hint


class Machines(NamedTuple):
    """An instance with n ops, m edges, t tensors and K devices, as the kernels take it."""

    # Item n + e is the transfer of edge e (per_edge), n + t * K + k that of tensor t to device k.
    # `channel` (K * K, 2) numbers the channels between two devices from K on. With `free` channels
    # transfers are no items.
    time_ns: Ints
    transfer_ns: Ints
    link_class: Ints
    producer: Ints
    consumer: Ints
    tensor: Ints
    succ_ptr: Ints
    succ_edge: Ints
    pred_ptr: Ints
    pred_edge: Ints
    tensor_ptr: Ints
    tensor_edge: Ints
    topological_order: Ints
    channel: Ints
    free: bool
    per_tensor: bool
    num_items: int


class Orders(NamedTuple):
    """A schedule that can be changed; `item` has one row per item, and two that end the order."""

    # `ends` (machines, 2) are the first and the last item of each machine; `device` (n,) is that of
    # each op. `hint` (machines, h) has an item of the machine for each h-th part of the labels,
    # which may be stale. The rest is scratch: heap and keys, marks (`marked`: in the heap;
    # `touched`: taken out or put in by the move), and the records that undo a move.
    item: Ints
    ends: Ints
    device: Ints
    hint: Ints
    heap: Ints
    key: Ints
    marked: NDArray[np.int8]
    touched: NDArray[np.int8]
    change: Ints
    old_start: Ints
    noted: Ints
    counter: Ints


def machines_of(instance: Instance, semantics: Makespan) -> Machines:
    """The arrays of an instance under a makespan semantics."""
    free = semantics.channels == "free"
    return Machines(
        **instance.arrays.named(Machines._fields),
        channel=channel_table(semantics.channels, instance.num_devices),
        free=free,
        per_tensor=semantics.transfers == "per_tensor",
        num_items=instance.num_ops + (0 if free else num_transfers(instance, semantics)),
    )


def num_transfers(instance: Instance, semantics: Makespan) -> int:
    """Number of possible transfers, remote or not."""
    index = instance.arrays.index
    if semantics.transfers == "per_tensor":
        return len(index.tensor_producer) * instance.num_devices
    return len(index.producer)


def channel_table(channels: Channels, num_devices: int) -> Ints:
    """The machines (K * K, 2) that a transfer between two devices holds: K + channel, or `NONE`."""
    table = np.full((num_devices * num_devices, 2), NONE, np.int64)
    for a, b in permutations(range(num_devices), 2):
        for slot, number in enumerate(channels_of(channels, num_devices, a, b)):
            if number != NO_CHANNEL:
                table[a * num_devices + b, slot] = num_devices + number
    return table


def empty_orders(instance: Instance, semantics: Makespan, machines: Machines) -> Orders:
    """Orders without items, to be filled by `fill`."""
    size, k = machines.num_items, instance.num_devices
    item = np.full((size + 2, COLUMNS), NONE, np.int64)
    num_machines = k + num_channels(semantics.channels, k)
    return Orders(
        item,
        np.full((num_machines, 2), NONE, np.int64),
        np.zeros(instance.num_ops, np.int64),
        np.full((num_machines, min(HINTS, 1 + size // num_machines)), NONE, np.int64),
        np.empty(size + 2, np.int64),
        np.empty(size + 2, np.int64),
        np.zeros(size + 2, np.int8),
        np.zeros(size + 2, np.int8),
        np.empty((6 * MOST_TOUCHED, 6), np.int64),
        np.empty((size + 6 * MOST_TOUCHED, 2), np.int64),
        np.empty((2, 24 * MOST_TOUCHED), np.int64),
        np.zeros(6, np.int64),
    )


@kernel(nogil=True, allocates=False)
def fill(machines: Machines, orders: Orders, device: Ints, sequence: Ints) -> None:
    """Put all items into a topological order, and compute their starts and tails."""
    # `sequence` has the ops and the remote transfers; machines work in this order.
    # Labels are spaced so that moves find free ones between neighbours. The two last rows of `item`
    # are the ends of the list: they belong to no machine.
    n, k = machines.time_ns.shape
    item, ends = orders.item, orders.ends
    first, last = machines.num_items, machines.num_items + 1
    item[:] = NONE
    ends[:] = NONE
    copy_to(orders.device, device)
    orders.marked[:] = 0
    orders.touched[:] = 0
    orders.counter[:] = 0
    before = first
    item[first, LABEL], item[last, LABEL] = 0, LAST_LABEL
    for at in range(len(sequence)):
        x = sequence[at]
        item[x, LABEL] = (at + 1) * SPACE
        item[x, BEFORE] = before
        item[before, AFTER] = x
        before = x
        if x < n:
            item[x, MACHINE], item[x, DURATION] = device[x], machines.time_ns[x, device[x]]
        else:
            _, a, b, t = ends_of(machines, device, x)
            item[x, MACHINE] = machines.channel[a * k + b, 0]
            item[x, MACHINE + 1] = machines.channel[a * k + b, 1]
            item[x, DURATION] = machines.transfer_ns[t, machines.link_class[a, b]]
        for slot in range(2):
            r = item[x, MACHINE + slot]
            if r >= 0:
                # The sequence is in topological order, so each item is appended to its machines.
                p = ends[r, 1]
                item[x, PREV + slot] = p
                if p >= 0:
                    item[p, NEXT + slot_of(item, p, r)] = x
                else:
                    ends[r, 0] = x
                ends[r, 1] = x
    item[before, AFTER], item[last, BEFORE] = last, before
    note_hints(orders)
    all_starts(machines, orders, first)
    all_tails(machines, orders)


@kernel(nogil=True, allocates=False)
def note_hints(orders: Orders) -> None:
    """Note an item of each machine for each part of the labels that has one."""
    item = orders.item
    orders.hint[:] = NONE
    for r in range(len(orders.ends)):
        x = orders.ends[r, 0]
        while x >= 0:
            orders.hint[r, place_of(orders, x)] = x
            x = item[x, NEXT + slot_of(item, x, r)]


@kernel(nogil=True, allocates=False)
def place_of(orders: Orders, x: int) -> int:
    """The part of the labels that an item's label is in."""
    item, parts = orders.item, orders.hint.shape[1]
    last = item[item[len(item) - 1, BEFORE], LABEL]
    return int(min(parts - 1, int(parts * (item[x, LABEL] / (last + 1.0)))))


@kernel(nogil=True, allocates=False)
def all_starts(machines: Machines, orders: Orders, begin: int) -> None:
    """Recompute the starts of all items behind one. O(n + m)."""
    item = orders.item
    x = item[begin, AFTER]
    while x != machines.num_items + 1:
        item[x, START] = start_of(machines, orders, x, LAST_LABEL)
        x = item[x, AFTER]


@kernel(nogil=True, allocates=False)
def all_tails(machines: Machines, orders: Orders) -> None:
    """Recompute all tails. O(n + m)."""
    item = orders.item
    x = item[machines.num_items + 1, BEFORE]
    while x != machines.num_items:
        item[x, TAIL] = tail_of(machines, orders, x)
        x = item[x, BEFORE]


@kernel(nogil=True, allocates=False)
def ends_of(machines: Machines, device: Ints, x: int) -> tuple[int, int, int, int]:
    """Producer, source, destination and tensor of a transfer."""
    n, k = machines.time_ns.shape
    if machines.per_tensor:
        t, b = divmod(x - n, k)
        u = machines.producer[machines.tensor_edge[machines.tensor_ptr[t]]]
    else:
        t, b = machines.tensor[x - n], device[machines.consumer[x - n]]
        u = machines.producer[x - n]
    return u, device[u], b, t


@kernel(nogil=True, allocates=False)
def carrier(machines: Machines, e: int, to: int) -> int:
    """The transfer that carries an edge to a device."""
    n, k = machines.time_ns.shape
    if machines.per_tensor:
        return int(n + machines.tensor[e] * k + to)
    return int(n + e)


@kernel(nogil=True, allocates=False)
def slot_of(item: Ints, x: int, r: int) -> int:
    """Which of an item's two machines is r."""
    return 0 if item[x, MACHINE] == r else 1


@kernel(nogil=True, allocates=False)
def start_of(machines: Machines, orders: Orders, x: int, border: int) -> int:
    """The earliest start of an item, from the starts of those before it and before a label."""
    item, device = orders.item, orders.device
    n = len(device)
    start = np.int64(0)
    for slot in range(2):
        p = item[x, PREV + slot]
        if p >= 0 and item[p, LABEL] < border:
            start = max(start, item[p, START] + item[p, DURATION])
    if x >= n:
        u = ends_of(machines, device, x)[0]
        if item[u, LABEL] < border:
            start = max(start, item[u, START] + item[u, DURATION])
        return int(start)
    b = device[x]
    for at in range(machines.pred_ptr[x], machines.pred_ptr[x + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        a, ready = device[u], np.int64(0)
        if a != b and not machines.free:
            u = carrier(machines, e, b)
        elif a != b:
            ready = machines.transfer_ns[machines.tensor[e], machines.link_class[a, b]]
        if item[u, LABEL] < border:
            start = max(start, ready + item[u, START] + item[u, DURATION])
    return int(start)


@kernel(nogil=True, allocates=False)
def tail_of(machines: Machines, orders: Orders, x: int) -> int:
    """The longest path from the start of an item to the end, from the tails of those after it."""
    item, device = orders.item, orders.device
    n, k = machines.time_ns.shape
    after = np.int64(0)
    for slot in range(2):
        y = item[x, NEXT + slot]
        if y >= 0:
            after = max(after, item[y, TAIL])
    if x >= n:
        if machines.per_tensor:
            t, b = divmod(x - n, k)
            for at in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
                w = machines.consumer[machines.tensor_edge[at]]
                if device[w] == b:
                    after = max(after, item[w, TAIL])
        else:
            after = max(after, item[machines.consumer[x - n], TAIL])
        return int(after + item[x, DURATION])
    a = device[x]
    for at in range(machines.succ_ptr[x], machines.succ_ptr[x + 1]):
        e = machines.succ_edge[at]
        w = machines.consumer[e]
        b = device[w]
        if a == b:
            rest = item[w, TAIL]
        elif machines.free:
            rest = item[w, TAIL]
            rest += machines.transfer_ns[machines.tensor[e], machines.link_class[a, b]]
        else:
            rest = item[carrier(machines, e, b), TAIL]
        after = max(after, rest)
    return int(after + item[x, DURATION])
