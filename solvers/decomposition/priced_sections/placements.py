"""The cheapest placement of a section's ops, by its time and by prices of bytes: branch and bound.

Ops are placed one by one, in topological order. Whatever follows, the section takes at least its
longest path, what the ops of a device take one after the other, and what the transfers of a channel
take; with all ops in their places, these count from when each can begin to what it leaves behind.
That is no schedule, so what comes out is a bound on the section's time and price.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.solvers.decomposition.priced_sections.section_ops import (
    WITH_ENTRY,
    WITH_EXIT,
    SectionOps,
)


@kernel(nogil=True)
def cheapest_placement(
    ops: SectionOps,
    channel: Ints,
    num_channels: int,
    charge: Ints,
    entry: int,
    leave: int,
    floor_ns: int,
    most: int,
    most_nodes: int,
    place: Ints,
) -> int:
    """No placement of a section takes, and pays, less than this in all.

    Parameters
    ----------
    ops : SectionOps
    channel, num_channels
        As in `nested_layers.ports`.
    charge : (m, K) int64
        What each op pays for its bytes on each device.
    entry, leave : int
        Devices of the section's ends.
    floor_ns : int
        It takes no less, whatever the placement.
    most : int
        More is of no interest: what comes back is at most that.
    most_nodes : int
        Of the search; exponential in the ops at worst, and in O(edges + channels) for each node.
    place : (m,) int64
        A placement that is known, or -1 first. The best one stands here in the end.

    Returns
    -------
    int
        If the nodes did not suffice: minus the least that was found by then, less 1.
    """
    size, num_devices = ops.time_ns.shape
    machines = num_channels + num_devices
    tail, rest = _least_rests(ops, charge, entry, leave)
    device, head = np.full(size, -1), np.zeros(size, np.int64)
    busy = np.zeros((size + 1, machines), np.int64)
    begin, after = np.full((size + 1, machines), NO_WAY), np.full((size + 1, machines), NO_WAY)
    takes, paid = np.full(size + 1, floor_ns), np.zeros(size + 1, np.int64)
    choice, guess = np.zeros((size, num_devices), np.int64), np.zeros(num_devices, np.int64)
    count, at = np.full(size, -1), np.zeros(size, np.int64)
    items = np.zeros((6, size + len(ops.producer)), np.int64)
    best = most
    if place[0] >= 0:
        known = max(floor_ns, _time_of(ops, channel, num_channels, entry, place, head, items))
        for x in range(size):
            known += charge[x, place[x]]
        best = min(best, known)
    x = nodes = 0
    while x >= 0:
        if count[x] < 0:  # likely devices first
            count[x] = at[x] = 0
            for d in range(num_devices):
                if not _may_be(ops, x, d, entry, leave, device):
                    continue
                ready = _ready(ops, x, d, entry, device, head)
                guess[d] = max(takes[x], ready + ops.time_ns[x, d] + tail[x, d]) + charge[x, d]
                y = count[x]
                while y > 0 and guess[choice[x, y - 1]] > guess[d]:
                    choice[x, y] = choice[x, y - 1]
                    y -= 1
                choice[x, y] = d
                count[x] += 1
        if at[x] == count[x]:
            count[x] = device[x] = -1
            x -= 1
            continue
        d = choice[x, at[x]]
        at[x] += 1
        nodes += 1
        if nodes > most_nodes:
            return int(-best - 1)
        device[x], head[x] = d, _ready(ops, x, d, entry, device, head)
        paid[x + 1] = paid[x] + charge[x, d]
        least = max(takes[x], head[x] + ops.time_ns[x, d] + tail[x, d])
        if least + paid[x + 1] + rest[x + 1] >= best:
            continue
        busy[x + 1], begin[x + 1], after[x + 1] = busy[x], begin[x], after[x]
        _add(
            busy[x + 1],
            begin[x + 1],
            after[x + 1],
            num_channels + d,
            ops.time_ns[x, d],
            head[x],
            tail[x, d],
        )
        for e in range(ops.way_ptr[x], ops.way_ptr[x + 1]):
            y = ops.producer[e]
            source = entry if y < 0 else device[y]
            takes_e = ops.sent_ns[e, source, d]
            if source == d or takes_e == 0 or _is_shared(ops, e, d, device):
                continue
            sent = 0 if y < 0 else head[y] + ops.time_ns[y, source]
            for c in channel[source, d]:
                if c >= 0:
                    _add(
                        busy[x + 1],
                        begin[x + 1],
                        after[x + 1],
                        c,
                        takes_e,
                        sent,
                        ops.time_ns[x, d] + tail[x, d],
                    )
        for c in range(machines):
            if busy[x + 1, c] > 0:
                least = max(least, begin[x + 1, c] + busy[x + 1, c] + after[x + 1, c])
        takes[x + 1] = least
        if least + paid[x + 1] + rest[x + 1] >= best:
            continue
        if x + 1 < size:
            x += 1
            continue
        least = max(least, _time_of(ops, channel, num_channels, entry, device, head, items))
        if least + paid[size] < best:
            best = least + paid[size]
            place[:] = device
    return int(best)


@kernel(nogil=True)
def _least_rests(ops: SectionOps, charge: Ints, entry: int, leave: int) -> tuple[Ints, Ints]:
    """The least way from the end of each op on each device to that of the exit, (m, K), and what
    ops from each on pay at least, (m + 1,).
    """
    size, num_devices = ops.time_ns.shape
    tail, rest = np.zeros((size, num_devices), np.int64), np.zeros(size + 1, np.int64)
    nowhere = np.full(size, -1)
    for x in range(size - 1, -1, -1):
        least = NO_WAY
        for d in range(num_devices):
            if _may_be(ops, x, d, entry, leave, nowhere):
                least = min(least, charge[x, d])
        rest[x] = min(NO_WAY, rest[x + 1] + least)
        for e in range(ops.way_ptr[x], ops.way_ptr[x + 1]):
            y = ops.producer[e]
            if y < 0:
                continue
            for a in range(num_devices):
                way = NO_WAY
                for d in range(num_devices):
                    if _may_be(ops, x, d, entry, leave, nowhere):
                        way = min(way, ops.way_ns[e, a, d] + ops.time_ns[x, d] + tail[x, d])
                tail[y, a] = max(tail[y, a], way)
    return tail, rest


@kernel(nogil=True, allocates=False)
def _may_be(ops: SectionOps, x: int, d: int, entry: int, leave: int, device: Ints) -> bool:
    """Whether an op may be on a device, beside those that have one."""
    if ops.time_ns[x, d] >= NO_WAY or (x == len(ops.tied) - 1 and d != leave):
        return False
    tied = ops.tied[x]
    if tied == WITH_ENTRY:
        return bool(d == entry)
    if tied == WITH_EXIT:
        return bool(d == leave)
    return bool(tied < 0 or device[tied] < 0 or device[tied] == d)


@kernel(nogil=True, allocates=False)
def _ready(ops: SectionOps, x: int, d: int, entry: int, device: Ints, head: Ints) -> int:
    """When all that an op reads can be on a device at the earliest."""
    ready = np.int64(0)
    for e in range(ops.way_ptr[x], ops.way_ptr[x + 1]):
        y = ops.producer[e]
        if y < 0:
            ready = max(ready, ops.way_ns[e, entry, d])
        else:
            ready = max(ready, head[y] + ops.time_ns[y, device[y]] + ops.way_ns[e, device[y], d])
    return int(ready)


@kernel(nogil=True, allocates=False)
def _is_shared(ops: SectionOps, e: int, d: int, device: Ints) -> bool:
    """Whether what an edge carries to a device goes there for an earlier edge."""
    e = ops.previous[e]
    while e >= 0:
        if device[ops.consumer[e]] == d:
            return True
        e = ops.previous[e]
    return False


@kernel(nogil=True, allocates=False)
def _add(busy: Ints, begin: Ints, after: Ints, c: int, takes: int, ready: int, left: int) -> None:
    """Another item that one machine does: from when on, how long, and what it leaves behind."""
    busy[c] += takes
    begin[c], after[c] = min(begin[c], ready), min(after[c], left)


@kernel(nogil=True, allocates=False)
def _time_of(
    ops: SectionOps,
    channel: Ints,
    num_channels: int,
    entry: int,
    device: Ints,
    head: Ints,
    items: Ints,
) -> int:
    """What a section takes at least with all ops in their places; writes to `head` and `items`.

    Of all items of a machine that begin, and leave behind, at least so much: begin + sum + after.
    `nested_layers.ports` sorts for that; here there are few, and no room is made for them.
    """
    size, num_devices = ops.time_ns.shape
    begin, takes, after, one, other, mine = items
    for x in range(size):
        head[x] = _ready(ops, x, device[x], entry, device, head)
        after[x] = 0
    num = size
    for x in range(size - 1, -1, -1):
        begin[x], takes[x] = head[x], ops.time_ns[x, device[x]]
        one[x], other[x] = num_channels + device[x], -1
        for e in range(ops.way_ptr[x], ops.way_ptr[x + 1]):
            y, left = ops.producer[e], takes[x] + after[x]
            source = entry if y < 0 else device[y]
            if y >= 0:
                after[y] = max(after[y], ops.way_ns[e, source, device[x]] + left)
            sent = ops.sent_ns[e, source, device[x]]
            if source == device[x] or sent == 0 or _is_shared(ops, e, device[x], device):
                continue
            begin[num] = 0 if y < 0 else head[y] + ops.time_ns[y, source]
            takes[num], after[num] = sent, left
            one[num], other[num] = channel[source, device[x], 0], channel[source, device[x], 1]
            num += 1
    least = np.int64(0)
    for i in range(num):
        least = max(least, begin[i] + takes[i] + after[i])
    for c in range(num_channels + num_devices):
        held = 0
        for i in range(num):
            if one[i] == c or other[i] == c:
                mine[held] = i
                held += 1
        for i in mine[:held]:
            for j in mine[:held]:
                total = np.int64(0)
                for z in mine[:held]:
                    if begin[z] >= begin[i] and after[z] >= after[j]:
                        total += takes[z]
                if total > 0:  # there is such an item
                    least = max(least, begin[i] + total + after[j])
    return int(least)
