"""Orders of the blocks in which few nets are open at any time.

A net is open between its first block and its last. What a set of blocks does later depends on what
it did before only through the open nets, so a DP over the order has few states (`frontier`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placegap.instances.structure.nets import Nets

STARTS, MOST_STEPS = 24, 40_000
"""How many blocks the greedy orders start from, evenly spread, and their steps in all."""


def elimination_orders(nets: Nets, num_blocks: int) -> list[tuple[int, ...]]:
    """Greedy orders, those with fewest open nets first; each a permutation of the blocks.

    From a start, the next block is the one that opens least beyond what it closes; of equal ones
    the one whose nets have been open longest. The measure is the sum over the steps of
    2^(number of blocks behind that are in open nets, or of open nets if they are fewer).
    O(b d s) per start, for s blocks at the frontier and d nets per block.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> elimination_orders(build_split_problem(example()).nets, 4)[0]
    (0, 1, 2, 3)
    """
    pins = [
        tuple(nets.pin[nets.net_ptr[e] : nets.net_ptr[e + 1]].tolist())
        for e in range(nets.num_nets)
    ]
    nets_of = [
        tuple(nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]].tolist())
        for v in range(num_blocks)
    ]
    found = {}
    starts = max(1, min(STARTS, MOST_STEPS // num_blocks))
    for start in range(0, num_blocks, -(-num_blocks // starts)):
        order = _greedy(start, pins, nets_of)
        found[order] = frontier_cost(order, pins, nets_of)
    return sorted(found, key=lambda order: (found[order], order))


def _greedy(
    start: int, pins: list[tuple[int, ...]], nets_of: list[tuple[int, ...]]
) -> tuple[int, ...]:
    left = [len(own) for own in pins]
    opened: dict[int, int] = {}
    done = [False] * len(nets_of)
    order: list[int] = []
    fresh = iter(range(len(nets_of)))

    def growth(v: int) -> tuple[int, int, int]:
        opens = sum(e not in opened and len(pins[e]) > 1 for e in nets_of[v])
        closes = sum(left[e] == 1 for e in nets_of[v])
        oldest = min((opened[e] for e in nets_of[v] if e in opened), default=len(order))
        return opens - closes, oldest, v

    candidates = {start: None}
    while len(order) < len(nets_of):
        if not candidates:
            candidates = {_next_undone(fresh, done): None}
        v = min(candidates, key=growth)
        del candidates[v]
        done[v] = True
        order.append(v)
        for e in nets_of[v]:
            left[e] -= 1
            opened.setdefault(e, len(order))
            candidates.update((w, None) for w in pins[e] if not done[w])
    return tuple(order)


def _next_undone(fresh: Iterator[int], done: list[bool]) -> int:
    return next(v for v in fresh if not done[v])


def frontier_cost(
    order: tuple[int, ...], pins: list[tuple[int, ...]], nets_of: list[tuple[int, ...]]
) -> int:
    """Estimate of the number of states along an order."""
    left = [len(own) for own in pins]
    waiting: dict[int, int] = {}  # blocks behind, and in how many open nets they are
    seen: list[list[int]] = [[] for _ in pins]
    opened, total = 0, 0
    for v in order:
        for e in nets_of[v]:
            opened += left[e] == len(pins[e])
            left[e] -= 1
            seen[e].append(v)
            waiting[v] = waiting.get(v, 0) + 1
            if left[e] == 0:
                opened -= 1
                for w in seen[e]:
                    waiting[w] -= 1
                    if waiting[w] == 0:
                        del waiting[w]
        total += 1 << min(len(waiting), opened, 60)
    return total
