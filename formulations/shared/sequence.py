"""From decided pairs and start times to one order: what models with pair variables share."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

Key = tuple[float, float, int, int]
"""Start, end, topological position, number of an item."""


def sequence(keys: Mapping[int, Key], arcs: Iterable[tuple[int, int]]) -> list[int]:
    """Items in an order that respects the arcs, of the available ones the least key first.

    Items on a circle of arcs, and what follows them, are missing. O((items + arcs) log items).

    Parameters
    ----------
    keys : mapping from item to Key
        The last part of a key is the item.
    arcs : iterable of (first, second)

    Examples
    --------
    >>> keys = {7: (0.0, 1.0, 0, 7), 8: (2.0, 3.0, 1, 8), 9: (1.0, 2.0, 2, 9)}
    >>> sequence(keys, []), sequence(keys, [(8, 9)]), sequence(keys, [(8, 9), (9, 8)])
    ([7, 9, 8], [7, 8, 9], [7])
    """
    waiting = dict.fromkeys(keys, 0)
    after: dict[int, list[int]] = {item: [] for item in keys}
    for first, second in arcs:
        waiting[second] += 1
        after[first].append(second)
    ready = [keys[item] for item, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        item = heapq.heappop(ready)[-1]
        order.append(item)
        for follower in after[item]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, keys[follower])
    return order
