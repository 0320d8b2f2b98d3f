"""Changes of orders, and their undoing: items come out, go in, and are noted for what follows."""

from __future__ import annotations

from placegap.instances.problem.kernels import kernel
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
    MACHINE,
    NEXT,
    NONE,
    PREV,
    SEEDS,
    SPACE,
    START,
    STARTS,
    Orders,
    place_of,
    slot_of,
)


@kernel(nogil=True, allocates=False)
def clear(orders: Orders) -> None:
    """Empty the heap."""
    for at in range(orders.counter[HEAPED]):
        orders.marked[orders.heap[at]] = 0
    orders.counter[HEAPED] = 0


@kernel(nogil=True, allocates=False)
def remove(orders: Orders, x: int) -> None:
    """Take an item out of all orders; `undo` puts it back."""
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
    """Put an item, whose machines and duration are set, behind another one into all orders."""
    item, at = orders.item, orders.counter[CHANGES]
    orders.change[at, 0], orders.change[at, 1] = x, NONE
    orders.counter[CHANGES] = at + 1
    orders.touched[x] = 1
    link(orders, x, before)
    orders.counter[HIGHEST] = max(orders.counter[HIGHEST], item[x, LABEL])
    add_seed(orders, x)
    mark_neighbours(orders, x)
    add_dirty(orders, x)


@kernel(nogil=True, allocates=False)
def mark_neighbours(orders: Orders, x: int) -> None:
    """Note the items beside one on its machines: what a change of its place may change."""
    item = orders.item
    for slot in range(2):
        if item[x, MACHINE + slot] >= 0:
            p, y = item[x, PREV + slot], item[x, NEXT + slot]
            if p >= 0:
                add_seed(orders, p)
            if y >= 0:
                add_dirty(orders, y)


@kernel(nogil=True, allocates=False)
def note_start(orders: Orders, x: int) -> None:
    """Note when an item starts, so that `undo` can bring it back."""
    at = orders.counter[STARTS]
    orders.old_start[at, 0], orders.old_start[at, 1] = x, orders.item[x, START]
    orders.counter[STARTS] = at + 1


@kernel(nogil=True, allocates=False)
def add_seed(orders: Orders, x: int) -> None:
    """Note an item whose tail a change may change."""
    at = orders.counter[SEEDS]
    orders.seed[at] = x
    orders.counter[SEEDS] = at + 1


@kernel(nogil=True, allocates=False)
def add_dirty(orders: Orders, x: int) -> None:
    """Note an item that may start at another time after a change."""
    at = orders.counter[DIRTY]
    orders.dirty[at] = x
    orders.counter[DIRTY] = at + 1


@kernel(nogil=True, allocates=False)
def undo(orders: Orders) -> None:
    """Take back all changes since the counters were set to 0."""
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
    """From here on is what `undo` takes back."""
    for at in range(orders.counter[CHANGES]):
        orders.touched[orders.change[at, 0]] = 0
    orders.counter[:] = 0


@kernel(nogil=True, allocates=False)
def unlink(orders: Orders, x: int) -> None:
    """Take an item out of the order of all and out of its machines' orders."""
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
    """Put an item behind another one in the order of all, and into its machines' orders."""
    item, ends = orders.item, orders.ends
    after = item[before, AFTER]
    if item[after, LABEL] - item[before, LABEL] < 2:
        relabel(orders)
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
    item, label = orders.item, orders.item[x, LABEL]
    y = NONE
    for part in range(place_of(orders, x), -1, -1):
        y = orders.hint[r, part]
        there = y >= 0 and r in (item[y, MACHINE], item[y, MACHINE + 1])
        if there and item[item[y, BEFORE], AFTER] == y:  # not if it is just being put in
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
def relabel(orders: Orders) -> None:
    """Give all items labels with space between them."""
    item = orders.item
    first = len(item) - 2
    x, label = item[first, AFTER], SPACE
    while x != first + 1:
        item[x, LABEL] = label
        label += SPACE
        x = item[x, AFTER]
    orders.counter[HIGHEST] = LAST_LABEL  # labels from before mean nothing now
