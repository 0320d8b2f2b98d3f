"""Orders of the blocks in which few nets are open at any time.

A net is open between its first block and its last. What a set of blocks does later depends on what
it did before only through the open nets, so a DP over the order has few states (`frontier`).
"""

from __future__ import annotations

import heapq

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel, sizes_of
from placegap.instances.problem.nets import Nets
from placegap.solvers.core.clock import Clock

STARTS, MOST_STEPS = 24, 40_000
"""How many blocks the greedy orders start from, evenly spread, and their steps in all."""


def elimination_orders(
    nets: Nets, num_blocks: int, clock: Clock | None = None
) -> list[tuple[int, ...]]:
    """Greedy orders, those with fewest open nets first; each a permutation of the blocks.

    From a start, the next block is the one that opens least beyond what it closes; of equal ones
    the one whose nets have been open longest. The measure is the sum over the steps of
    2^(number of blocks behind that are in open nets, or of open nets if they are fewer).
    O(p log p) per start, for p pins. Once the clock is over, no further start is tried.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> elimination_orders(build_split_problem(example()).nets, 4)[0]
    (0, 1, 2, 3)
    """
    arrays = nets.net_ptr, nets.pin, nets.block_ptr, nets.net
    found: dict[tuple[int, ...], float] = {}
    starts = max(1, min(STARTS, MOST_STEPS // num_blocks))
    for start in range(0, num_blocks, -(-num_blocks // starts)):
        if found and clock is not None and clock.left_s == 0.0:
            break
        order = _greedy(start, *arrays)
        found[tuple(order.tolist())] = _cost(order, *arrays)
    return sorted(found, key=lambda order: (found[order], order))


@kernel
def _greedy(start: int, net_ptr: Ints, pin: Ints, block_ptr: Ints, net: Ints) -> Ints:
    """The order from a start; the heap may hold old keys of a block, which are passed over."""
    num_blocks = len(block_ptr) - 1
    left, opened = sizes_of(net_ptr), np.zeros(len(net_ptr) - 1, np.bool_)
    growth = sizes_of(block_ptr)  # nets that a block opens, less those that it closes
    since = np.zeros(num_blocks, np.int64)  # the step after which its first net was open
    done = np.zeros(num_blocks, np.bool_)
    order = np.empty(num_blocks, np.int64)
    waiting = [(growth[start], 0, start)]
    fresh = 0
    for at in range(num_blocks):
        v = -1
        while len(waiting) > 0:
            key = heapq.heappop(waiting)
            u = key[2]
            if not done[u] and key[0] == growth[u] and key[1] == since[u]:
                v = u
                break
        if v < 0:
            while done[fresh]:
                fresh += 1
            v = fresh
        done[v] = True
        order[at] = v
        for i in range(block_ptr[v], block_ptr[v + 1]):
            e = net[i]
            left[e] -= 1
            opens = not opened[e]
            opened[e] = True
            if not opens and left[e] != 1:
                continue
            for j in range(net_ptr[e], net_ptr[e + 1]):
                w = pin[j]
                if done[w]:
                    continue
                growth[w] -= int(opens) + int(left[e] == 1)
                if since[w] == 0:
                    since[w] = at + 1
                heapq.heappush(waiting, (growth[w], since[w], w))
    return order


@kernel
def _cost(order: Ints, net_ptr: Ints, pin: Ints, block_ptr: Ints, net: Ints) -> float:
    left = sizes_of(net_ptr)
    held = np.zeros(len(order), np.int64)  # open nets of each block behind
    waiting, opened, total = 0, 0, 0.0
    for at in range(len(order)):
        v = order[at]
        for i in range(block_ptr[v], block_ptr[v + 1]):
            e = net[i]
            size = net_ptr[e + 1] - net_ptr[e]
            opened += int(left[e] == size)
            left[e] -= 1
            waiting += int(held[v] == 0)
            held[v] += 1
            if left[e] > 0:
                continue
            opened -= 1
            for j in range(net_ptr[e], net_ptr[e + 1]):
                held[pin[j]] -= 1
                waiting -= int(held[pin[j]] == 0)
        total += 2.0 ** min(waiting, opened, 60)
    return total
