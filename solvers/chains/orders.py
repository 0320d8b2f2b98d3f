"""Topological orders of blocks that are cut well into segments, and the places to cut them at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push
from placegap.instances.problem.graph_index import inverse, sum_by
from placegap.solvers.chains.problem import ChainBlocks, CutNets, put_in

DEPTH_FIRST, BREADTH_FIRST, LEAST_CUT = 0, 1, 2
NUM_RANDOM = 3  # number of orders per rule and direction with ties broken at random
LOOK = 256  # most ready blocks that are compared
NUM_ORDERS = 2 * (3 + 2 * NUM_RANDOM)  # number of orders that `orders` yields


def orders(problem: ChainBlocks, seed: int = 0) -> Iterator[Ints]:
    """Depth first, breadth first, greedily by least cut, from both ends; then random variants."""
    # Deterministic for a seed. O(b x width x degree) each.
    generator = np.random.default_rng(seed)
    forwards, backwards = problem.arcs[:3], problem.arcs[3:]
    for repeat in range(1 + NUM_RANDOM):
        for rule in (DEPTH_FIRST, LEAST_CUT) if repeat else (DEPTH_FIRST, LEAST_CUT, BREADTH_FIRST):
            tie = np.zeros(problem.num_blocks, np.int64)
            if repeat:
                tie = generator.permutation(problem.num_blocks).astype(np.int64)
            yield _grow(*forwards, problem.nets, rule, tie)
            yield _grow(*backwards, problem.nets, rule, tie)[::-1].copy()


@kernel
def _grow(succ_ptr: Ints, succ: Ints, num_preds: Ints, nets: CutNets, rule: int, tie: Ints) -> Ints:
    """Take ready blocks one by one: the last ready, the first ready, or the least added cut."""
    # Ties: by `tie`, then the last ready. Of many ready blocks only `LOOK` are compared.
    # Depth first keeps branches together, so that few tensors are open at a time; breadth first
    # keeps levels together; the least cut looks at the nets themselves. Which one gives the best
    # segments depends on the graph, so `orders` yields all of them.
    b = len(num_preds)
    waiting, pins_in = num_preds.copy(), np.zeros(len(nets.size), np.int64)
    ready, since = np.zeros(b, np.int64), np.zeros(b, np.int64)
    # The ready blocks are ready[head:end], in the order in which they became ready.
    head, end = 0, 0
    for v in range(b - 1, -1, -1):
        if waiting[v] == 0:
            ready[end] = v
            end += 1
    order = np.zeros(b, np.int64)
    for step in range(b):
        chosen, best = -1, np.int64(0)
        first = head if rule == BREADTH_FIRST else max(head, end - LOOK)
        for at in range(first, min(end, first + LOOK)):
            v = ready[at]
            if rule == DEPTH_FIRST:
                key = -since[v]
            elif rule == BREADTH_FIRST:
                key = since[v]
            else:
                # What it adds to the cut: nets that it opens, less nets that it completes.
                key = np.int64(0)
                for e in nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]]:
                    if pins_in[e] == 0:
                        key += nets.weight[e]
                    elif pins_in[e] == nets.size[e] - 1:
                        key -= nets.weight[e]
            if chosen < 0 or key < best or (key == best and tie[v] <= tie[ready[chosen]]):
                chosen, best = at, key
        v = ready[chosen]
        order[step] = v
        put_in(nets, pins_in, v)
        # Close the gap from the side on which few blocks lie, and keep the order of the others.
        if rule == BREADTH_FIRST:
            for at in range(chosen, head, -1):
                ready[at] = ready[at - 1]
            head += 1
        else:
            for at in range(chosen, end - 1):
                ready[at] = ready[at + 1]
            end -= 1
        for at in range(succ_ptr[v + 1] - 1, succ_ptr[v] - 1, -1):
            w = succ[at]
            waiting[w] -= 1
            if waiting[w] == 0:
                ready[end], since[w] = w, step + 1
                end += 1
    return order


@kernel
def order_of_keys(succ_ptr: Ints, succ: Ints, num_preds: Ints, keys: Ints) -> Ints:
    """The topological order that takes ready blocks by least key; O((b + a) log b)."""
    waiting, ready, size = num_preds.copy(), np.empty(len(keys), np.int64), 0
    for v in range(len(keys)):
        if waiting[v] == 0:
            size = push(ready, size, keys, v)
    order = np.zeros(len(keys), np.int64)
    for step in range(len(keys)):
        v = ready[0]
        size = pop(ready, size, keys)
        order[step] = v
        for at in range(succ_ptr[v], succ_ptr[v + 1]):
            waiting[succ[at]] -= 1
            if waiting[succ[at]] == 0:
                size = push(ready, size, keys, succ[at])
    return order


MOST_CUTS = 2000  # most places where an order may be cut: those of least communication, spread out


def places_to_cut(order: Ints, work: Ints, nets: CutNets, most: int = MOST_CUTS) -> Ints:
    """Positions of an order where segments may begin and end, the ends included."""
    # All of them in a short order; else the place of least cut in each interval of equal work.
    if len(order) <= most:
        return np.arange(len(order) + 1)
    cut = prefix_cuts(order, nets)
    done = np.cumsum(work[order] + 1)
    bucket = done // (int(done[-1]) // most + 1)
    by_cut = np.lexsort((cut, bucket))
    best = by_cut[np.unique(bucket[by_cut], return_index=True)[1]] + 1
    return np.unique(np.concatenate([np.array([0, len(order)]), best]))


def prefix_cuts(order: Ints, nets: CutNets) -> Ints:
    """Cut of the first i + 1 blocks of an order, for each i. O(pins)."""
    at = np.repeat(inverse(order), np.diff(nets.block_ptr))
    first, last = np.full(len(nets.size), len(order)), np.full(len(nets.size), len(order))
    np.minimum.at(first, nets.net, at)
    last[nets.net] = -1
    np.maximum.at(last, nets.net, at)
    change = sum_by(first, nets.weight, len(order) + 1)
    np.subtract.at(change, last, nets.weight)
    return np.cumsum(change[:-1])
