"""One mode for each layer of a stage: times that fit a budget, and bytes that fit the memory.

A multiple-choice knapsack: of each item one row, the sum of costs within a budget and the sum of
sizes within the room. The fastest rows, the smallest, Lagrange's relaxation (which is the LP's
bound) with what it rounds to decide most of them; the rest goes to lists of Nemhauser and Ullmann,
from which the relaxation drops what cannot be completed. Sums are integers; the relaxation is in
floating point, with a margin far above its rounding, and only ever drops what misses by more.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import kernel

NO, YES, UNKNOWN = 0, 1, 2

MOST_LISTED = 200_000
"""Entries of a list beyond which the answer is `UNKNOWN`."""

MARGIN = 1e-9
"""Of all that is summed up: sums of 1,000 doubles err by less than 1e-12 of it."""


@kernel
def can_choose(cost: Ints, size: Ints, ptr: Ints, budget: int, room: int) -> int:
    """Whether one row of each item fits both limits: `NO`, `YES`, or `UNKNOWN`.

    Rows of item i are ``ptr[i]`` to ``ptr[i + 1] - 1``, at least one.
    """
    n = len(ptr) - 1
    fast, small = np.empty(n, np.int64), np.empty(n, np.int64)
    fast_cost = fast_size = small_cost = small_size = np.int64(0)
    for i in range(n):
        f = s = ptr[i]
        for r in range(ptr[i] + 1, ptr[i + 1]):
            if cost[r] < cost[f] or (cost[r] == cost[f] and size[r] < size[f]):
                f = r
            if size[r] < size[s] or (size[r] == size[s] and cost[r] < cost[s]):
                s = r
        fast[i], small[i] = f, s
        fast_cost += cost[f]
        fast_size += size[f]
        small_cost += cost[s]
        small_size += size[s]
    if fast_cost > budget or small_size > room:
        return NO
    if fast_size <= room or small_cost <= budget:
        return YES
    # `fast` has the cost and not the size, `small` the size and not the cost: between them the
    # price of a unit of cost, in bytes, is raised or lowered until neither side improves
    price = 0.0
    while True:
        price = (fast_size - small_size) / (small_cost - fast_cost)
        worth = between = 0.0
        now_cost = now_size = np.int64(0)
        now = np.empty(n, np.int64)
        for i in range(n):
            best = ptr[i]
            least = size[best] + price * cost[best]
            for r in range(ptr[i] + 1, ptr[i + 1]):
                here = size[r] + price * cost[r]
                if here < least:
                    best, least = r, here
            now[i] = best
            worth += least
            now_cost += cost[best]
            now_size += size[best]
        most = room + price * budget
        if worth > most + MARGIN * (most + worth):
            return NO
        if now_cost <= budget and now_size <= room:
            return YES
        between = fast_size + price * fast_cost
        if worth >= between - MARGIN * between:
            break
        if now_cost <= budget:
            fast, fast_cost, fast_size = now, now_cost, now_size
        elif now_size <= room:
            small, small_cost, small_size = now, now_cost, now_size
        else:  # both sums are over: so is every mixture of it with the others
            break
    for i in range(n):  # as much of the smaller side as the budget allows
        more = cost[small[i]] - cost[fast[i]]
        if size[small[i]] < size[fast[i]] and fast_cost + more <= budget:
            fast_cost += more
            fast_size += size[small[i]] - size[fast[i]]
            fast[i] = small[i]
    for i in range(n):  # and whatever saves more bytes within what is left
        for r in range(ptr[i], ptr[i + 1]):
            more = cost[r] - cost[fast[i]]
            if size[r] < size[fast[i]] and fast_cost + more <= budget:
                fast_cost += more
                fast_size += size[r] - size[fast[i]]
                fast[i] = r
    if fast_size <= room:
        return YES
    if _least_switches(cost, size, ptr, room) > budget:
        return NO
    return _by_lists(cost, size, ptr, budget, room, price)


@kernel
def _least_switches(cost: Ints, size: Ints, ptr: Ints, room: int) -> int:
    """A cost that no choice within the room is below: several items have to leave their fastest
    row, be it for what saves most, and each costs something. Equal layers are decided by it.
    """
    n = len(ptr) - 1
    saved, extra = np.zeros(n, np.int64), np.zeros(n, np.int64)
    missing, total = -room, np.int64(0)
    for i in range(n):
        f = ptr[i]
        for r in range(ptr[i] + 1, ptr[i + 1]):
            if cost[r] < cost[f] or (cost[r] == cost[f] and size[r] < size[f]):
                f = r
        missing += size[f]
        total += cost[f]
        least = np.int64(-1)
        for r in range(ptr[i], ptr[i + 1]):
            if size[r] < size[f]:
                saved[i] = max(saved[i], size[f] - size[r])
                if least < 0 or cost[r] - cost[f] < least:
                    least = cost[r] - cost[f]
        extra[i] = least if least >= 0 else 2**61
    saved.sort()
    extra.sort()
    for i in range(n):
        if missing <= 0:
            break
        missing -= saved[n - 1 - i]
        if extra[i] < 2**61:
            total += extra[i]
    return int(total)


@kernel
def _by_lists(cost: Ints, size: Ints, ptr: Ints, budget: int, room: int, price: float) -> int:
    """The sums that no others are below in both, item by item, as far as they may be completed."""
    n = len(ptr) - 1
    least_cost, least_size = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    least_worth: Floats = np.zeros(n + 1)
    of_small = np.zeros(n + 1, np.int64)
    for i in range(n - 1, -1, -1):
        s = ptr[i]
        c, worth = cost[s], size[s] + price * cost[s]
        for r in range(ptr[i] + 1, ptr[i + 1]):
            if size[r] < size[s] or (size[r] == size[s] and cost[r] < cost[s]):
                s = r
            c = min(c, cost[r])
            worth = min(worth, size[r] + price * cost[r])
        least_cost[i] = least_cost[i + 1] + c
        least_size[i] = least_size[i + 1] + size[s]
        least_worth[i] = least_worth[i + 1] + worth
        of_small[i] = of_small[i + 1] + cost[s]
    most = room + price * budget
    most += MARGIN * most
    now_cost, now_size = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for i in range(n):
        first, rows = ptr[i], ptr[i + 1] - ptr[i]
        length = len(now_cost)
        at = np.zeros(rows, np.int64)
        next_cost = np.empty(min(MOST_LISTED, rows * length), np.int64)
        next_size = np.empty(len(next_cost), np.int64)
        count, smallest = 0, np.int64(2**62)
        # merge the lists that each row makes of the sums so far, by cost, and keep what is smaller
        # than all before it
        while True:
            turn = -1
            c = s = np.int64(0)
            for row in range(rows):
                if at[row] < length:
                    c_here = now_cost[at[row]] + cost[first + row]
                    s_here = now_size[at[row]] + size[first + row]
                    if turn < 0 or c_here < c or (c_here == c and s_here < s):
                        turn, c, s = row, c_here, s_here
            if turn < 0 or c + least_cost[i + 1] > budget:
                break
            at[turn] += 1
            if s >= smallest or s + least_size[i + 1] > room:
                continue
            if c + of_small[i + 1] <= budget:  # the smallest rows of all that follow
                return YES
            # bytes and time, priced, are more than room and budget: no way to complete it fits both
            if s + price * c + least_worth[i + 1] > most:
                continue
            if count == MOST_LISTED:
                return UNKNOWN
            next_cost[count], next_size[count], smallest = c, s, s
            count += 1
        if count == 0:
            return NO
        now_cost, now_size = next_cost[:count], next_size[:count]
    return YES


@kernel
def greedy_rows(cost: Ints, size: Ints, ptr: Ints, room: int) -> Ints:
    """Piper's rule: the fastest rows, then the switches of least time per byte, until they fit.

    None is taken back, and no other is tried in place of the last one.
    """
    n = len(ptr) - 1
    now, total = np.empty(n, np.int64), np.int64(0)
    for i in range(n):
        now[i] = ptr[i]
        for r in range(ptr[i] + 1, ptr[i + 1]):
            if cost[r] < cost[now[i]] or (cost[r] == cost[now[i]] and size[r] < size[now[i]]):
                now[i] = r
        total += size[now[i]]
    while total > room:
        item, row, least = -1, 0, 0.0
        for i in range(n):
            for r in range(ptr[i], ptr[i + 1]):
                saved = size[now[i]] - size[r]
                if saved > 0:
                    ratio = (cost[r] - cost[now[i]]) / saved
                    if item < 0 or ratio < least:
                        item, row, least = i, r, ratio
        if item < 0:
            break
        total += size[row] - size[now[item]]
        now[item] = row
    return now


def choose(cost: Ints, size: Ints, ptr: Ints, budget: int, room: int) -> Ints | None:
    """Rows of the least cost that fit, one of each item; None if none are known to fit."""
    if can_choose(cost, size, ptr, budget, room) != YES:
        return None
    low, high = int(np.minimum.reduceat(cost, ptr[:-1]).sum()), budget
    while low < high:
        middle = (low + high) // 2
        if can_choose(cost, size, ptr, middle, room) == YES:
            high = middle
        else:
            low = middle + 1
    chosen = np.zeros(len(ptr) - 1, np.int64)
    for i, (begin, end) in enumerate(zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)):
        left = ptr[i + 1 :] - end
        for r in sorted(range(begin, end), key=lambda row: (cost[row], size[row])):
            rest = high - int(cost[r]), room - int(size[r])
            if len(left) == 1:
                works = min(rest) >= 0
            else:
                works = can_choose(cost[end:], size[end:], left, *rest) == YES
            if works:
                chosen[i], high, room = r, *rest
                break
        else:
            return None  # a list was too long for an answer
    return chosen
