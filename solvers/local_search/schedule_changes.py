"""Changes of a schedule in the disjunctive graph, and their undoing.

Ops move to any place on any device (Mastrolilli and Gambardella 2000) with their transfers, and
items to other places in their orders. A change notes the items whose start or tail may change. Then
starts are recomputed as far as they change, and tails once the change is kept.

Labels: all items are in one topological order with increasing labels. An item may stand anywhere
between the last item that it waits for and the first one that waits for it, so every place that a
move chooses keeps the graph acyclic without a search for cycles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.kernels.kernel import pop as pop_from
from placegap.instances.kernels.kernel import push as push_to
from placegap.solvers.local_search.disjunctive_graph import (
    AFTER,
    BEFORE,
    CHANGES,
    DIRTY,
    DURATION,
    HEAPED,
    HIGHEST,
    LABEL,
    LAST_LABEL,
    LONGEST_WALK,
    MACHINE,
    NEXT,
    NONE,
    PREV,
    SEEDS,
    SPACE,
    START,
    STARTS,
    TAIL,
    Machines,
    Orders,
    carrier,
    ends_of,
    place_of,
    slot_of,
    start_of,
    tail_of,
)


@kernel(nogil=True, allocates=False)
def move_op(machines: Machines, orders: Orders, v: int, b: int, early: float) -> None:
    """Move an op to a device, with the transfers of its inputs and outputs."""
    # It goes before the first op there that starts once its inputs have come, or later if that one
    # is more urgent (has a longer tail). With `early` in [0, 1], an op that is running then goes
    # behind it if at most that share of it is done. Transfers go to the time when their tensor is
    # made, behind more urgent ones on their channels.
    # `low` is the last producer and `high` the first consumer by label: between them any place on
    # the device is valid. `ready` is when the inputs are there, with transfers as yet unbooked.
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
    # Walk along the device's order from `low` to the item y that v is put before.
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
            note(orders, DIRTY, machines.consumer[machines.succ_edge[at]])
        for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
            note(orders, SEEDS, machines.producer[machines.pred_edge[at]])
    highest = item[v, LABEL]
    orders.counter[HIGHEST] = max(orders.counter[HIGHEST], highest)


@kernel(nogil=True, allocates=False)
def _detach(machines: Machines, orders: Orders, v: int) -> None:
    """Take out an op, and the transfers that no other op needs."""
    item, device = orders.item, orders.device
    a = device[v]
    remove(orders, v)
    if machines.free:
        return
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        if device[u] == a:
            note(orders, SEEDS, u)
            continue
        c = carrier(machines, e, a)
        note(orders, SEEDS, c)
        if machines.per_tensor:  # the transfer stays if another op on the device reads the tensor
            t, shared = machines.tensor[e], False
            for other in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
                w = machines.consumer[machines.tensor_edge[other]]
                if w != v and device[w] == a:
                    shared = True
                    break
            if shared:
                continue
        if item[c, MACHINE] >= 0:
            note(orders, SEEDS, u)
            remove(orders, c)
    for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
        e = machines.succ_edge[at]
        b = device[machines.consumer[e]]
        if b != a:
            c = carrier(machines, e, b)
            if item[c, MACHINE] >= 0:
                remove(orders, c)


@kernel(nogil=True, allocates=False)
def _attach(machines: Machines, orders: Orders, v: int) -> None:
    """Put in the transfers that an op needs on its new device."""
    item, device = orders.item, orders.device
    b = device[v]
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        u = machines.producer[e]
        if device[u] == b:
            note(orders, SEEDS, u)
            continue
        c = carrier(machines, e, b)
        if item[c, MACHINE] >= 0:
            note(orders, SEEDS, c)
            # The tensor already comes for another op: kept if it comes before v, else sent again
            # earlier.
            if item[c, LABEL] < item[v, LABEL]:
                continue
            remove(orders, c)
        _send(machines, orders, c, u, v, item[v, TAIL])
    for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
        e = machines.succ_edge[at]
        w = machines.consumer[e]
        if device[w] == b:
            note(orders, DIRTY, w)
            continue
        c = carrier(machines, e, device[w])
        if item[c, MACHINE] >= 0:
            continue
        # The urgency of a transfer is the longest tail of its consumers there.
        first, tail = w, item[w, TAIL]
        if machines.per_tensor:
            t = machines.tensor[e]
            for other in range(machines.tensor_ptr[t], machines.tensor_ptr[t + 1]):
                x = machines.consumer[machines.tensor_edge[other]]
                if device[x] == device[w]:
                    tail = max(tail, item[x, TAIL])
                    note(orders, DIRTY, x)
                    if item[x, LABEL] < item[first, LABEL]:
                        first = x
        note(orders, DIRTY, w)
        _send(machines, orders, c, v, first, tail)


@kernel(nogil=True, allocates=False)
def _send(machines: Machines, orders: Orders, c: int, u: int, before: int, tail: int) -> None:
    """Put a transfer between its producer and its first consumer."""
    # It may hold two machines: y runs through the merged order of both, by label, to the first item
    # that starts once the tensor is made and is not more urgent.
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
    note(orders, SEEDS, u)


@kernel(nogil=True, allocates=False)
def _next_behind(orders: Orders, r: int, x: int) -> int:
    """The first item of a machine behind x, or NONE."""
    p = last_before(orders, r, x)
    if p < 0:
        return int(orders.ends[r, 0])
    return int(orders.item[p, NEXT + slot_of(orders.item, p, r)])


@kernel(nogil=True, allocates=False)
def move_along(
    machines: Machines, orders: Orders, x: int, slot: int, steps: int, later: bool
) -> bool:
    """Move an item by up to `steps` places in its machine's order; False if it cannot move."""
    # It moves later or sooner.
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
    """The least label of the items that wait for x, or the largest of those that x waits for."""
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


@kernel(nogil=True, allocates=False)
def remove(orders: Orders, x: int) -> None:
    """Take an item out of all orders, so that `undo` can put it back."""
    item, at = orders.item, orders.counter[CHANGES]
    change = orders.change
    orders.counter[CHANGES] = at + 1
    change[at, 0], change[at, 1] = x, item[x, BEFORE]
    change[at, 2], change[at, 3] = item[x, MACHINE], item[x, MACHINE + 1]
    change[at, 4], change[at, 5] = item[x, DURATION], item[x, LABEL]
    orders.counter[HIGHEST] = max(orders.counter[HIGHEST], item[x, LABEL])
    note_start(orders, x)
    orders.touched[x] = 1
    mark_neighbours(orders, x)
    unlink(orders, x)


@kernel(nogil=True, allocates=False)
def insert(orders: Orders, x: int, before: int) -> None:
    """Put an item with its machines and duration behind another one into all orders."""
    item, at = orders.item, orders.counter[CHANGES]
    orders.change[at, 0], orders.change[at, 1] = x, NONE
    orders.counter[CHANGES] = at + 1
    orders.touched[x] = 1
    link(orders, x, before)
    orders.counter[HIGHEST] = max(orders.counter[HIGHEST], item[x, LABEL])
    note(orders, SEEDS, x)
    mark_neighbours(orders, x)
    note(orders, DIRTY, x)


@kernel(nogil=True, allocates=False)
def unlink(orders: Orders, x: int) -> None:
    """Take an item out of the order of all items and out of its machines' orders."""
    item, ends = orders.item, orders.ends
    before, after = item[x, BEFORE], item[x, AFTER]
    item[before, AFTER], item[after, BEFORE] = after, before
    for slot in range(2):
        r = item[x, MACHINE + slot]
        if r >= 0:
            p, y = item[x, PREV + slot], item[x, NEXT + slot]
            part = place_of(orders, x)
            if orders.hint[r, part] == x:
                orders.hint[r, part] = p if p >= 0 else y
            if p >= 0:
                item[p, NEXT + slot_of(item, p, r)] = y
            else:
                ends[r, 0] = y
            if y >= 0:
                item[y, PREV + slot_of(item, y, r)] = p
            else:
                ends[r, 1] = p
        item[x, MACHINE + slot] = item[x, PREV + slot] = item[x, NEXT + slot] = NONE


@kernel(nogil=True, allocates=False)
def link(orders: Orders, x: int, before: int) -> None:
    """Put an item behind another one in the order of all items, and into its machines' orders."""
    item, ends = orders.item, orders.ends
    after = item[before, AFTER]
    # Without a free label between the two, all items get new ones, with equal spaces.
    if item[after, LABEL] - item[before, LABEL] < 2:
        first = len(item) - 2
        y, label = item[first, AFTER], SPACE
        while y != first + 1:
            item[y, LABEL] = label
            label += SPACE
            y = item[y, AFTER]
        orders.counter[HIGHEST] = LAST_LABEL  # its old label has no meaning any more
    low, high = item[before, LABEL], min(item[after, LABEL], item[before, LABEL] + 2 * SPACE)
    item[x, LABEL] = low + (high - low) // 2
    item[x, BEFORE], item[x, AFTER] = before, after
    for slot in range(2):
        r = item[x, MACHINE + slot]
        if r >= 0:
            p = last_before(orders, r, before)
            y = ends[r, 0] if p < 0 else item[p, NEXT + slot_of(item, p, r)]
            item[x, PREV + slot], item[x, NEXT + slot] = p, y
            orders.hint[r, place_of(orders, x)] = x
            if p >= 0:
                item[p, NEXT + slot_of(item, p, r)] = x
            else:
                ends[r, 0] = x
            if y >= 0:
                item[y, PREV + slot_of(item, y, r)] = x
            else:
                ends[r, 1] = x
    item[before, AFTER], item[after, BEFORE] = x, x


@kernel(nogil=True, allocates=False)
def last_before(orders: Orders, r: int, x: int) -> int:
    """The last item of a machine that is x or stands before it, or NONE."""
    # `hint` has an item for each part of the labels, so that the walk from there is short. A hint
    # may be stale: then the next lower part is tried, and the machine's first item last.
    item, label = orders.item, orders.item[x, LABEL]
    y = NONE
    for part in range(place_of(orders, x), -1, -1):
        y = orders.hint[r, part]
        there = y >= 0 and r in (item[y, MACHINE], item[y, MACHINE + 1])
        if there and item[item[y, BEFORE], AFTER] == y:  # linked, not just being put in
            break
        y = NONE
    if y == NONE:
        y = orders.ends[r, 0]
    if y == NONE or item[y, LABEL] > label:
        while y >= 0 and item[y, LABEL] > label:
            y = item[y, PREV + slot_of(item, y, r)]
        return int(y)
    while True:
        after = item[y, NEXT + slot_of(item, y, r)]
        if after < 0 or item[after, LABEL] > label:
            return int(y)
        y = after


@kernel(nogil=True, allocates=False)
def mark_neighbours(orders: Orders, x: int) -> None:
    """Note the neighbours of an item on its machines, whose tail or start may change with it."""
    item = orders.item
    for slot in range(2):
        if item[x, MACHINE + slot] >= 0:
            p, y = item[x, PREV + slot], item[x, NEXT + slot]
            if p >= 0:
                note(orders, SEEDS, p)
            if y >= 0:
                note(orders, DIRTY, y)


@kernel(nogil=True, allocates=False)
def note_start(orders: Orders, x: int) -> None:
    """Note the start of an item for `undo`."""
    at = orders.counter[STARTS]
    orders.old_start[at, 0], orders.old_start[at, 1] = x, orders.item[x, START]
    orders.counter[STARTS] = at + 1


@kernel(nogil=True, allocates=False)
def note(orders: Orders, what: int, x: int) -> None:
    """Note an item whose tail (`SEEDS`) or start (`DIRTY`) may change."""
    at = orders.counter[what]
    orders.noted[what, at] = x
    orders.counter[what] = at + 1


@kernel(nogil=True, allocates=False)
def undo(orders: Orders) -> None:
    """Undo all changes since the counters were set to 0, the last one first."""
    item, counter = orders.item, orders.counter
    clear(orders)
    for at in range(counter[STARTS] - 1, -1, -1):
        item[orders.old_start[at, 0], START] = orders.old_start[at, 1]
    for at in range(counter[CHANGES] - 1, -1, -1):
        x, before = orders.change[at, 0], orders.change[at, 1]
        if before == NONE:
            unlink(orders, x)
        else:
            item[x, MACHINE], item[x, MACHINE + 1] = orders.change[at, 2], orders.change[at, 3]
            item[x, DURATION] = orders.change[at, 4]
            link(orders, x, before)
            if x < len(orders.device):
                orders.device[x] = item[x, MACHINE]
    forget(orders)


@kernel(nogil=True, allocates=False)
def forget(orders: Orders) -> None:
    """Keep all changes: `undo` goes back to here from now on."""
    for at in range(orders.counter[CHANGES]):
        orders.touched[orders.change[at, 0]] = 0
    orders.counter[:] = 0


@kernel(nogil=True, allocates=False)
def clear(orders: Orders) -> None:
    """Empty the heap."""
    for at in range(orders.counter[HEAPED]):
        orders.marked[orders.heap[at]] = 0
    orders.counter[HEAPED] = 0


@kernel(nogil=True, allocates=False)
def propagate(
    machines: Machines, orders: Orders, begin: int, end: int, most: int, exits: Ints
) -> bool:
    """Recompute starts as far as they change; False once a path longer than `most` is found."""
    # The items `begin` and `end` bound a window: tails are up to date behind the first one, and
    # starts behind the second one are not followed further. Items reached there are added to
    # `exits`, whose first entry is their number; False if there are too many. Only items before the
    # border count for their starts: a path through one behind it leads through another exit, and
    # the start of the one behind is that of before. None may move there: its tail is not known.
    # Items are taken by label, so each start is computed once, when all before it are final. A
    # change ends where a start stays the same.
    # To reject early: behind the last change of the structure (`HIGHEST`), start + tail is the
    # length of a path through the item, so that `most` is exceeded for certain. Before it tails may
    # be out of date, and a path is followed item by item (`_steps_on_way`). This is repeated only
    # after as many starts as the path had items, so that it at most doubles the work.
    sign: Any = np.int64(1)  # no literal: `push` is compiled once
    item, device = orders.item, orders.device
    n, k = machines.time_ns.shape
    for at in range(orders.counter[DIRTY]):
        x = orders.noted[DIRTY, at]
        if item[x, MACHINE] >= 0:
            push(orders, x, sign)
    orders.counter[DIRTY] = 0
    first, last = item[begin, LABEL], item[end, LABEL]
    first = max(first, orders.counter[HIGHEST])
    done, looked = 0, 0
    while orders.counter[HEAPED] > 0:
        x = pop(orders)
        label = item[x, LABEL]
        done += 1
        start = start_of(machines, orders, x, last)
        if label >= last:  # an exit, noted once
            known = False
            if orders.touched[x]:
                return False
            for at in range(1, exits[0] + 1):
                known = known or exits[at] == x
            if not known:
                if exits[0] + 1 >= len(exits):
                    return False
                exits[0] += 1
                exits[exits[0]] = x
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
        if label >= last:
            continue
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
    return True


@kernel(nogil=True, allocates=False)
def _steps_on_way(machines: Machines, orders: Orders, x: int, first: int, left: int) -> int:
    """Follow a long path from an item: -1 if longer than `left`, else its number of items."""
    # At each item it goes on where the tail from before the move is longest, up to the label
    # `first`, behind which tails are right. It is a path of the new schedule, whichever way it
    # goes, so the makespan is at least its length. With free channels its transfers are left out.
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
    """The successor of an item with the longest tail before the move, and the tail; or NONE."""
    # Transfers that the move has put in have no tail yet; that of their consumer is used instead.
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
def propagate_tails(machines: Machines, orders: Orders, begin: int) -> None:
    """Recompute the tails that an accepted move changes, down to the item `begin`."""
    sign: Any = np.int64(-1)  # no literal: `push` is compiled once
    item, device = orders.item, orders.device
    first = item[begin, LABEL]
    for at in range(orders.counter[SEEDS]):
        x = orders.noted[SEEDS, at]
        if item[x, MACHINE] >= 0:
            push(orders, x, sign)
    while orders.counter[HEAPED] > 0:
        x = pop(orders)
        if item[x, LABEL] <= first:
            clear(orders)
            return
        tail = tail_of(machines, orders, x)
        if tail == item[x, TAIL]:
            continue
        item[x, TAIL] = tail
        for slot in range(2):  # all that it waits for may have another tail now
            y = item[x, PREV + slot]
            if y >= 0:
                push(orders, y, sign)
        if x >= len(device):
            push(orders, ends_of(machines, device, x)[0], sign)
            continue
        for at in range(machines.pred_ptr[x], machines.pred_ptr[x + 1]):
            e = machines.pred_edge[at]
            u = machines.producer[e]
            if device[u] == device[x] or machines.free:
                push(orders, u, sign)
            else:
                push(orders, carrier(machines, e, device[x]), sign)


@kernel(nogil=True, allocates=False)
def push(orders: Orders, x: int, sign: int) -> None:
    """Put an item into the heap of items to recompute, by label, unless it is there."""
    if orders.marked[x]:
        return
    orders.marked[x] = 1
    orders.key[x] = sign * orders.item[x, LABEL]
    orders.counter[HEAPED] = push_to(orders.heap, orders.counter[HEAPED], orders.key, x)


@kernel(nogil=True, allocates=False)
def pop(orders: Orders) -> int:
    """Take the item of the least label from the heap, or of the largest one for sign -1."""
    top = orders.heap[0]
    orders.counter[HEAPED] = pop_from(orders.heap, orders.counter[HEAPED], orders.key)
    orders.marked[top] = 0
    return int(top)
