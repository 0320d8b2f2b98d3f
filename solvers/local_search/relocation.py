"""Changes of a schedule: ops go to other devices with their transfers, items to other places.

An op may go to any place on any device (Mastrolilli and Gambardella 2000).
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.local_search.disjunctive_graph import (
    BEFORE,
    DURATION,
    HIGHEST,
    LABEL,
    LAST_LABEL,
    LONGEST_WALK,
    MACHINE,
    NEXT,
    NONE,
    PREV,
    START,
    TAIL,
    Machines,
    Orders,
    carrier,
    ends_of,
    slot_of,
)
from placegap.solvers.local_search.schedule_changes import (
    add_dirty,
    add_seed,
    insert,
    last_before,
    remove,
)


@kernel(nogil=True, allocates=False)
def move_op(machines: Machines, orders: Orders, v: int, b: int, early: float) -> None:
    """Move an op to a device, with the transfers of what it reads and makes.

    It goes where it would be ready, or behind what is more urgent there; `early` in [0, 1] says
    how long an op may have run there that goes behind it. Transfers go where their tensor is made,
    behind what is more urgent on their channels.
    """
    item, device = orders.item, orders.device
    free = machines.free
    _detach(machines, orders, v)
    item[v, MACHINE], item[v, DURATION] = b, machines.time_ns[v, b]
    device[v] = b
    low, high, ready = machines.num_items, machines.num_items + 1, np.int64(0)
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        if item[u, LABEL] > item[low, LABEL] or low == machines.num_items:
            low = u
        sent = item[u, START] + item[u, DURATION]
        if device[u] != b:
            c = u if free else carrier(machines, e, b)
            if not free and item[c, MACHINE] >= 0:
                sent = max(sent, item[c, START] + item[c, DURATION])
            else:
                t = machines.tensor[e]
                sent += machines.transfer_ns[t, machines.link_class[device[u], b]]
        ready = max(ready, sent)
    for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
        w = machines.consumer[machines.succ_edge[at]]
        if high == machines.num_items + 1 or item[w, LABEL] < item[high, LABEL]:
            high = w
    y, further = high, _next_behind(orders, b, low)
    for _ in range(LONGEST_WALK):
        if further < 0 or item[further, LABEL] >= item[high, LABEL]:
            y = high
            break
        y = further
        urgent = item[y, START] >= ready and item[y, TAIL] > item[v, TAIL]
        if item[y, START] + early * item[y, DURATION] >= ready and not urgent:
            break
        further = item[y, NEXT]
    item[v, START] = ready
    insert(orders, v, item[y, BEFORE])
    if not free:
        _attach(machines, orders, v)
    else:
        for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
            add_dirty(orders, machines.consumer[machines.succ_edge[at]])
        for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
            add_seed(orders, machines.producer[machines.pred_edge[at]])
    highest = item[v, LABEL]
    orders.counter[HIGHEST] = max(orders.counter[HIGHEST], highest)


@kernel(nogil=True, allocates=False)
def _detach(machines: Machines, orders: Orders, v: int) -> None:
    """Take an op out, and the transfers that nothing needs without it."""
    item, device = orders.item, orders.device
    a = device[v]
    remove(orders, v)
    if machines.free:
        return
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        if device[u] == a:
            add_seed(orders, u)
            continue
        c = carrier(machines, e, a)
        add_seed(orders, c)
        if machines.per_tensor and _is_shared(machines, device, e, v, a):
            continue
        if item[c, MACHINE] >= 0:
            add_seed(orders, u)
            remove(orders, c)
    for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
        e = machines.succ_edge[at]
        b = device[machines.consumer[e]]
        if b != a:
            c = carrier(machines, e, b)
            if item[c, MACHINE] >= 0:
                remove(orders, c)


@kernel(nogil=True, allocates=False)
def _is_shared(machines: Machines, device: Ints, e: int, v: int, a: int) -> bool:
    """Whether another op than v reads the tensor of an edge on device a."""
    t = machines.tensor[e]
    for at in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
        w = machines.consumer[machines.tensor_edge[at]]
        if w != v and device[w] == a:
            return True
    return False


@kernel(nogil=True, allocates=False)
def _attach(machines: Machines, orders: Orders, v: int) -> None:
    """Put in the transfers that an op needs where it is now."""
    item, device = orders.item, orders.device
    b = device[v]
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        if device[u] == b:
            add_seed(orders, u)
            continue
        c = carrier(machines, e, b)
        if item[c, MACHINE] >= 0:
            add_seed(orders, c)
            if item[c, LABEL] < item[v, LABEL]:
                continue
            remove(orders, c)
        _send(machines, orders, c, u, v, item[v, TAIL])
    for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
        e = machines.succ_edge[at]
        w = machines.consumer[e]
        if device[w] == b:
            add_dirty(orders, w)
            continue
        c = carrier(machines, e, device[w])
        if item[c, MACHINE] >= 0:
            continue
        first, tail = w, item[w, TAIL]
        if machines.per_tensor:
            t = machines.tensor[e]
            for other in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
                x = machines.consumer[machines.tensor_edge[other]]
                if device[x] == device[w]:
                    tail = max(tail, item[x, TAIL])
                    add_dirty(orders, x)
                    if item[x, LABEL] < item[first, LABEL]:
                        first = x
        add_dirty(orders, w)
        _send(machines, orders, c, v, first, tail)


@kernel(nogil=True, allocates=False)
def _send(machines: Machines, orders: Orders, c: int, u: int, before: int, tail: int) -> None:
    """Put a transfer between its producer and its first consumer."""
    item, device = orders.item, orders.device
    k = machines.time_ns.shape[1]
    _, a, b, t = ends_of(machines, device, c)
    one, two = machines.channel[a * k + b, 0], machines.channel[a * k + b, 1]
    duration = machines.transfer_ns[t, machines.link_class[a, b]]
    item[c, MACHINE], item[c, MACHINE + 1], item[c, DURATION] = one, two, duration
    ready, tail = item[u, START] + item[u, DURATION], tail + duration
    first = _next_behind(orders, one, u)
    second = _next_behind(orders, two, u) if two >= 0 else NONE
    y = before
    for _ in range(LONGEST_WALK):
        y = first
        if y < 0 or (second >= 0 and item[second, LABEL] < item[y, LABEL]):
            y = second
        if y < 0 or item[y, LABEL] >= item[before, LABEL]:
            y = before
            break
        if item[y, START] >= ready and item[y, TAIL] <= tail:
            break
        if y == first:
            first = item[y, NEXT + slot_of(item, y, one)]
        if y == second:
            second = item[y, NEXT + slot_of(item, y, two)]
    item[c, START] = ready
    insert(orders, c, item[y, BEFORE])
    add_seed(orders, u)


@kernel(nogil=True, allocates=False)
def _next_behind(orders: Orders, r: int, x: int) -> int:
    """The first item of a machine that stands behind x, or NONE."""
    p = last_before(orders, r, x)
    if p < 0:
        return int(orders.ends[r, 0])
    return int(orders.item[p, NEXT + slot_of(orders.item, p, r)])


@kernel(nogil=True, allocates=False)
def move_along(
    machines: Machines, orders: Orders, x: int, slot: int, steps: int, later: bool
) -> bool:
    """Put an item behind up to `steps` others that its machine does later, or before as many that
    it does sooner; whether it moved.
    """
    item = orders.item
    r, side, sign = item[x, MACHINE + slot], NEXT if later else PREV, 1 if later else -1
    y = item[x, side + slot]
    if y < 0:
        return False
    limit = sign * _limit(machines, orders, x, later)
    if sign * item[y, LABEL] >= limit:
        return False
    for _ in range(steps - 1):
        further = item[y, side + slot_of(item, y, r)]
        if further < 0 or sign * item[further, LABEL] >= limit:
            break
        y = further
    one, two = item[x, MACHINE], item[x, MACHINE + 1]
    remove(orders, x)
    item[x, MACHINE], item[x, MACHINE + 1] = one, two
    insert(orders, x, y if later else item[y, BEFORE])
    return True


@kernel(nogil=True, allocates=False)
def _limit(machines: Machines, orders: Orders, x: int, later: bool) -> int:
    """The least label of an item that waits for another one, or the largest that it waits for."""
    item, device = orders.item, orders.device
    n, k = machines.time_ns.shape
    limit = LAST_LABEL if later else 0
    if x < n:
        pointer = machines.succ_ptr if later else machines.pred_ptr
        edges = machines.succ_edge if later else machines.pred_edge
        for at in range(pointer[x], pointer[x + 1]):
            e = edges[at]
            w = machines.consumer[e]
            y = w if later else machines.producer[e]
            if device[y] != device[x] and not machines.free:
                y = carrier(machines, e, device[w])
            limit = min(limit, item[y, LABEL]) if later else max(limit, item[y, LABEL])
    elif not later:
        limit = item[ends_of(machines, device, x)[0], LABEL]
    elif machines.per_tensor:
        t, b = divmod(x - n, k)
        for at in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
            w = machines.consumer[machines.tensor_edge[at]]
            if device[w] == b:
                limit = min(limit, item[w, LABEL])
    else:
        limit = item[machines.consumer[x - n], LABEL]
    return int(limit)
