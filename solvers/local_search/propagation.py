"""Starts and tails after a change: only what it changes is computed again."""

from __future__ import annotations

from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.local_search.disjunctive_graph import (
    DIRTY,
    DURATION,
    HEAPED,
    HIGHEST,
    LABEL,
    MACHINE,
    NEXT,
    NONE,
    PREV,
    SEEDS,
    START,
    TAIL,
    Machines,
    Orders,
    carrier,
    ends_of,
    slot_of,
    start_of,
    tail_of,
)
from placegap.solvers.local_search.schedule_changes import (
    clear,
    note_start,
)


@kernel(nogil=True, allocates=False)
def push(orders: Orders, x: int, sign: int) -> None:
    """Put an item into the heap of those to compute again, unless it is there: by label."""
    heap, item = orders.heap, orders.item
    if orders.marked[x]:
        return
    orders.marked[x] = 1
    at = orders.counter[HEAPED]
    orders.counter[HEAPED] = at + 1
    label = sign * item[x, LABEL]
    while at > 0:
        parent = (at - 1) // 2
        if sign * item[heap[parent], LABEL] <= label:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = x


@kernel(nogil=True, allocates=False)
def pop(orders: Orders, sign: int) -> int:
    """The first item of the heap: of the least label, of the largest for sign -1."""
    heap, item = orders.heap, orders.item
    top = heap[0]
    left = orders.counter[HEAPED] - 1
    orders.counter[HEAPED] = left
    orders.marked[top] = 0
    last = heap[left]
    label, at = sign * item[last, LABEL], 0
    while True:
        child = 2 * at + 1
        if child >= left:
            break
        other = min(child + 1, left - 1)
        if sign * item[heap[other], LABEL] < sign * item[heap[child], LABEL]:
            child = other
        if sign * item[heap[child], LABEL] >= label:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return int(top)


@kernel(nogil=True, allocates=False)
def push_after(machines: Machines, orders: Orders, x: int) -> None:
    """What follows an item may start at another time."""
    sign: Any = np.int64(1)  # no literal: `push` and `pop` are compiled once
    item, device = orders.item, orders.device
    n, k = machines.time_ns.shape
    for slot in range(2):
        y = item[x, NEXT + slot]
        if y >= 0:
            push(orders, y, sign)
    if x < n:
        for at in range(machines.succ_ptr[x], machines.succ_ptr[x + 1]):
            e = machines.succ_edge[at]
            w = machines.consumer[e]
            if device[w] == device[x] or machines.free:
                push(orders, w, sign)
            else:
                push(orders, carrier(machines, e, device[w]), sign)
    elif machines.per_tensor:
        t, b = divmod(x - n, k)
        for at in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
            w = machines.consumer[machines.tensor_edge[at]]
            if device[w] == b:
                push(orders, w, sign)
    else:
        push(orders, machines.consumer[x - n], sign)


@kernel(nogil=True, allocates=False)
def push_before(machines: Machines, orders: Orders, x: int) -> None:
    """What precedes an item may have another tail."""
    sign: Any = np.int64(-1)  # no literal: `push` and `pop` are compiled once
    item, device = orders.item, orders.device
    for slot in range(2):
        y = item[x, PREV + slot]
        if y >= 0:
            push(orders, y, sign)
    if x >= len(device):
        push(orders, ends_of(machines, device, x)[0], sign)
        return
    for at in range(machines.pred_ptr[x], machines.pred_ptr[x + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        if device[u] == device[x] or machines.free:
            push(orders, u, sign)
        else:
            push(orders, carrier(machines, e, device[x]), sign)


@kernel(nogil=True, allocates=False)
def propagate(
    machines: Machines, orders: Orders, begin: int, end: int, most: int, exits: Ints
) -> bool:
    """Compute starts again, as far as they change; whether no way is found to be above `most`.

    Behind the last change of the structure, start + tail is the length of a way through an item.
    Before it tails may be out of date, so that a way is followed; then again once as much has been
    computed as was followed.
    The items `begin` and `end` bound a window: tails are up to date behind the first, and behind
    the second no start is followed up. What is reached there is added to `exits`, whose first
    entry counts them; where they are full, the answer is no.
    """
    sign: Any = np.int64(1)  # no literal: `push` and `pop` are compiled once
    item = orders.item
    for at in range(orders.counter[DIRTY]):
        x = orders.dirty[at]
        if item[x, MACHINE] >= 0:
            push(orders, x, sign)
    orders.counter[DIRTY] = 0
    first, last = item[begin, LABEL], item[end, LABEL]
    first = max(first, orders.counter[HIGHEST])
    done, looked = 0, 0
    while orders.counter[HEAPED] > 0:
        x = pop(orders, sign)
        label = item[x, LABEL]
        done += 1
        start = start_of(machines, orders, x)
        if label >= last and not _note(exits, x):
            return False
        if start == item[x, START]:
            continue
        note_start(orders, x)
        item[x, START] = start
        if start + item[x, TAIL] > most:
            if label > first:
                return False
            if looked <= done:
                steps = _steps_on_way(machines, orders, x, first, most - start)
                if steps < 0:
                    return False
                looked += steps
        if label < last:
            push_after(machines, orders, x)
    return True


@kernel(nogil=True, allocates=False)
def _steps_on_way(machines: Machines, orders: Orders, x: int, first: int, left: int) -> int:
    """Follow a long way from an item on: -1 if it takes more than `left`, else its items.

    It goes where tails from before the move are longest, up to the label `first`, behind which they
    are right. A way of the schedule as it is, so that there is no shorter makespan. With free
    channels its transfers are not counted.
    """
    item = orders.item
    steps = 0
    while item[x, LABEL] <= first:
        left -= item[x, DURATION]
        if left < 0:
            return -1
        y, rest = _longest_onward(machines, orders, x)
        steps += 1
        if y == NONE or rest <= left:
            return steps
        x = y
    return -1 if item[x, TAIL] > left else steps


@kernel(nogil=True, allocates=False)
def _longest_onward(machines: Machines, orders: Orders, x: int) -> tuple[int, int]:
    """What follows an item with the longest tail from before a move, and this tail; or NONE.

    Transfers that the move has put in have no tail yet: that of their consumer stands for it.
    """
    item, device, touched = orders.item, orders.device, orders.touched
    n, k = machines.time_ns.shape
    onward, most = NONE, np.int64(-1)
    for slot in range(2):
        y, r = item[x, NEXT + slot], item[x, MACHINE + slot]
        while y >= n and touched[y]:
            y = item[y, NEXT + slot_of(item, y, r)]
        if y >= 0 and item[y, TAIL] > most:
            onward, most = y, item[y, TAIL]
    if x < n:
        for at in range(machines.succ_ptr[x], machines.succ_ptr[x + 1]):
            e = machines.succ_edge[at]
            y = machines.consumer[e]
            tail = item[y, TAIL]
            if device[y] != device[x] and not machines.free:
                y = carrier(machines, e, device[y])
                tail = tail + item[y, DURATION] if touched[y] else item[y, TAIL]
            if tail > most:
                onward, most = y, tail
    elif machines.per_tensor:
        t, b = divmod(x - n, k)
        for at in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
            y = machines.consumer[machines.tensor_edge[at]]
            if device[y] == b and item[y, TAIL] > most:
                onward, most = y, item[y, TAIL]
    else:
        y = machines.consumer[x - n]
        if item[y, TAIL] > most:
            onward, most = y, item[y, TAIL]
    return int(onward), int(most)


@kernel(nogil=True, allocates=False)
def _note(exits: Ints, x: int) -> bool:
    """Add an item to a list, unless it is there; False where the list is full."""
    for at in range(1, exits[0] + 1):
        if exits[at] == x:
            return True
    if exits[0] + 1 >= len(exits):
        return False
    exits[0] += 1
    exits[exits[0]] = x
    return True


@kernel(nogil=True, allocates=False)
def propagate_tails(machines: Machines, orders: Orders, begin: int) -> None:
    """Compute the tails again that an accepted move changes, down to the item `begin`."""
    sign: Any = np.int64(-1)  # no literal: `push` and `pop` are compiled once
    item = orders.item
    first = item[begin, LABEL]
    for at in range(orders.counter[SEEDS]):
        x = orders.seed[at]
        if item[x, MACHINE] >= 0:
            push(orders, x, sign)
    while orders.counter[HEAPED] > 0:
        x = pop(orders, sign)
        if item[x, LABEL] <= first:
            clear(orders)
            return
        tail = tail_of(machines, orders, x)
        if tail != item[x, TAIL]:
            item[x, TAIL] = tail
            push_before(machines, orders, x)
