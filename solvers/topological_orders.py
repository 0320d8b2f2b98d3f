"""Topological orders of blocks that are worth cutting into segments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from placegap.instances.index import Ints
from placegap.solvers.chain_problem import ChainProblem

DEPTH_FIRST, BREADTH_FIRST, LEAST_CUT = 0, 1, 2
NUM_RANDOM = 3
"""Orders per rule and direction in which ties are broken at random."""


def orders(problem: ChainProblem, seed: int = 0) -> Iterator[Ints]:
    """Depth first, breadth first and greedily by least cut, from both ends; then random variants.

    Deterministic for a seed. O(b (width + degree)) each.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chain_problem import build_problem
    >>> next(orders(build_problem(example()))).tolist()
    [0, 1, 2, 3]
    """
    generator = np.random.default_rng(seed)
    forwards = problem.succ_ptr, problem.succ, problem.num_preds
    backwards = problem.pred_ptr, problem.pred, problem.num_succs
    nets = problem.nets.block_ptr, problem.nets.net, problem.net_size, problem.weight
    for repeat in range(1 + NUM_RANDOM):
        for rule in (DEPTH_FIRST, LEAST_CUT) if repeat else (DEPTH_FIRST, LEAST_CUT, BREADTH_FIRST):
            tie = np.zeros(problem.num_blocks, np.int64)
            if repeat:
                tie = generator.permutation(problem.num_blocks).astype(np.int64)
            yield _grow(*forwards, *nets, rule, tie)
            yield _grow(*backwards, *nets, rule, tie)[::-1].copy()


@njit(cache=True)
def _grow(
    succ_ptr: Ints, succ: Ints, num_preds: Ints,
    block_ptr: Ints, net: Ints, net_size: Ints, weight: Ints, rule: int, tie: Ints,
) -> Ints:  # fmt: skip
    """Take ready blocks one by one: the last ready, the first ready, or the least added cut.

    Ties: by `tie`, then the last ready.
    """
    b = len(num_preds)
    waiting, pins_in = num_preds.copy(), np.zeros(len(net_size), np.int64)
    ready, since, size = np.zeros(b, np.int64), np.zeros(b, np.int64), 0
    for v in range(b - 1, -1, -1):
        if waiting[v] == 0:
            ready[size] = v
            size += 1
    order = np.zeros(b, np.int64)
    for step in range(b):
        chosen, best, best_tie = -1, np.int64(0), np.int64(0)
        for at in range(size):
            v = ready[at]
            if rule == DEPTH_FIRST:
                key = -since[v]
            elif rule == BREADTH_FIRST:
                key = since[v]
            else:
                key = _added_cut(v, block_ptr, net, net_size, weight, pins_in)
            if chosen < 0 or key < best or (key == best and tie[v] <= best_tie):
                chosen, best, best_tie = at, key, tie[v]
        v = ready[chosen]
        ready[chosen : size - 1] = ready[chosen + 1 : size]
        size -= 1
        order[step] = v
        for at in range(block_ptr[v], block_ptr[v + 1]):
            pins_in[net[at]] += 1
        for at in range(succ_ptr[v + 1] - 1, succ_ptr[v] - 1, -1):
            w = succ[at]
            waiting[w] -= 1
            if waiting[w] == 0:
                ready[size], since[w] = w, step + 1
                size += 1
    return order


@njit(cache=True)
def _added_cut(
    v: int, block_ptr: Ints, net: Ints, net_size: Ints, weight: Ints, pins_in: Ints
) -> int:
    """Change of the cut if block v is taken."""
    change = np.int64(0)
    for at in range(block_ptr[v], block_ptr[v + 1]):
        e = net[at]
        if pins_in[e] == 0:
            change += weight[e]
        elif pins_in[e] == net_size[e] - 1:
            change -= weight[e]
    return change
