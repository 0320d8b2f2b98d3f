"""One mode for each layer of a stage: times within a budget, and bytes within the memory.

A multiple-choice knapsack: one row of each item, with the sum of costs within a budget and the sum
of sizes within the room. Tests of growing effort decide it: all fastest rows, all smallest rows,
the Lagrange relaxation (its bound is that of the LP) and what it rounds to, then lists of
undominated sums (Nemhauser and Ullmann 1969), from which the relaxation drops what cannot be
completed. Sums are integers. The relaxation is in floating point, and a choice is only dropped if
it misses by more than a margin far above the rounding error.

Example by hand: two equal items with rows (cost, size) of (1, 4) and (3, 1), budget 4, room 5. All
fastest rows have (2, 8), all smallest (6, 2): neither fits. The price (8 - 2) / (6 - 2) = 1.5 per
unit of cost gives each row 5.5, so every choice is worth 11 <= 5 + 1.5 * 4, and nothing is refuted.
One switch gives (4, 5), which fits: yes. With room 4, 11 > 4 + 6: no.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import kernel

NO, YES, UNKNOWN = 0, 1, 2

MOST_LISTED = 200_000  # entries of a list beyond which the answer is `UNKNOWN`
MARGIN = 1e-9  # share of a sum that a comparison must miss by: 1,000 doubles err by less than 1e-12


@kernel
def can_choose(cost: Ints, size: Ints, ptr: Ints, budget: int, room: int) -> int:
    """Whether one row of each item fits both limits: `NO`, `YES`, or `UNKNOWN`."""
    # Rows of item i are ``ptr[i]`` to ``ptr[i + 1] - 1``, at least one.
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
    # `fast` meets the budget and not the room, `small` the room and not the budget. The price of a
    # unit of cost, in bytes, is the slope of the line between the two points (cost, size); the rows
    # of least size + price * cost are then a point on the lower hull. It replaces the end on its
    # side, until the line is an edge of the hull: there the relaxation is strongest.
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
        # `worth` is the least of size + price * cost over all choices; one that fits both limits
        # has at most `most`.
        most = room + price * budget
        if worth > most + MARGIN * (most + worth):
            return NO
        if now_cost <= budget and now_size <= room:
            return YES
        # Nothing lies below the line: it is an edge of the hull.
        between = fast_size + price * fast_cost
        if worth >= between - MARGIN * between:
            break
        if now_cost <= budget:
            fast, fast_cost, fast_size = now, now_cost, now_size
        elif now_size <= room:
            small, small_cost, small_size = now, now_cost, now_size
        else:  # both sums are over, by less than the margin: the lists decide
            break
    # Rounding: from `fast`, which meets the budget, items switch to their row of `small` as long as
    # the budget allows it; then to any row that saves bytes.
    for i in range(n):
        more = cost[small[i]] - cost[fast[i]]
        if size[small[i]] < size[fast[i]] and fast_cost + more <= budget:
            fast_cost += more
            fast_size += size[small[i]] - size[fast[i]]
            fast[i] = small[i]
    for i in range(n):
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
    """A lower bound on the cost of a choice within the room, by the number of items that switch."""
    # Enough items must leave their fastest row to save the missing bytes. The number is least if
    # those that can save most switch first, and the cost is least if the cheapest switches do:
    # taking both, of whichever items, is a bound. It decides rows of equal layers, where the LP
    # would switch a fraction of a layer and the lists would grow long.
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
        # Without a smaller row an item cannot switch; it comes last.
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
    """Decide by lists of undominated sums (cost, size), item by item."""
    # A sum that another one is at most in both is never needed. A sum is also dropped if the items
    # that follow cannot complete it: by their least costs, their least sizes, or, most often, the
    # least of size + price * cost at the price where the relaxation ended.
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
        # Each row of the item makes a list of the sums so far, sorted by cost as they are. They are
        # merged by cost, and a sum stays if its size is below all before it: at most one for each
        # cost and each size, so lists are short where layers repeat.
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
            # With the smallest rows of all that follow, the size fits; here the cost does, too.
            if c + of_small[i + 1] <= budget:
                return YES
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
    """Piper's rule: the fastest rows, then switches by least time per byte saved until they fit."""
    # As published, a switch is never taken back, and the last one is kept even if it saves far more
    # than is missing: so the result need not be optimal.
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
    # First the least budget for which there is a choice, by bisection, then its rows, item by item:
    # the cheapest row that leaves the other items a choice within what remains.
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
