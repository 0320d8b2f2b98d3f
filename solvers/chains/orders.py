"""Topological orders of blocks that are worth cutting into segments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import ChainProblem, CutNets, added_cut, put_in

DEPTH_FIRST, BREADTH_FIRST, LEAST_CUT = 0, 1, 2
NUM_RANDOM = 3
"""Orders per rule and direction in which ties are broken at random."""

LOOK = 256
"""Most ready blocks that are compared."""

NUM_ORDERS = 2 * (3 + 2 * NUM_RANDOM)
"""How many orders `orders` yields."""


def orders(problem: ChainProblem, seed: int = 0) -> Iterator[Ints]:
    """Depth first, breadth first and greedily by least cut, from both ends; then random variants.

    Deterministic for a seed. O(b x width x degree) each.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> next(orders(build_problem(example()))).tolist()
    [0, 1, 2, 3]
    """
    generator = np.random.default_rng(seed)
    forwards = problem.succ_ptr, problem.succ, problem.num_preds
    backwards = problem.pred_ptr, problem.pred, problem.num_succs
    for repeat in range(1 + NUM_RANDOM):
        for rule in (DEPTH_FIRST, LEAST_CUT) if repeat else (DEPTH_FIRST, LEAST_CUT, BREADTH_FIRST):
            tie = np.zeros(problem.num_blocks, np.int64)
            if repeat:
                tie = generator.permutation(problem.num_blocks).astype(np.int64)
            yield _grow(*forwards, problem.nets, rule, tie)
            yield _grow(*backwards, problem.nets, rule, tie)[::-1].copy()


@kernel
def _grow(succ_ptr: Ints, succ: Ints, num_preds: Ints, nets: CutNets, rule: int, tie: Ints) -> Ints:
    """Take ready blocks one by one: the last ready, the first ready, or the least added cut.

    Ties: by `tie`, then the last ready. Of many ready blocks only `LOOK` are compared.
    """
    b = len(num_preds)
    waiting, pins_in = num_preds.copy(), np.zeros(len(nets.size), np.int64)
    ready, since = np.zeros(b, np.int64), np.zeros(b, np.int64)
    head, end = 0, 0  # the ready blocks are ready[head:end], the last ready at the end
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
                key = added_cut(nets, pins_in, v)
            if chosen < 0 or key < best or (key == best and tie[v] <= tie[ready[chosen]]):
                chosen, best = at, key
        v = ready[chosen]
        order[step] = v
        put_in(nets, pins_in, v)
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
