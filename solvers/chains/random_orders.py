"""Topological orders from keys: of the ready blocks, always the one of the least key."""

from __future__ import annotations

import heapq

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel


@kernel
def order_of_keys(succ_ptr: Ints, succ: Ints, num_preds: Ints, keys: Ints) -> Ints:
    """A topological order; every order is reached by some keys. O((b + a) log b).

    Parameters
    ----------
    succ_ptr, succ : (b + 1,), (a,) int64
        Arcs out of each block.
    num_preds : (b,) int64
    keys : (b,) int64
        A permutation of the blocks: the smaller, the sooner.

    Examples
    --------
    Blocks 0 and 1 are ready at first, and only 1 leads to 2:

    >>> arcs = np.array([0, 0, 1, 1]), np.array([2]), np.array([0, 0, 1])
    >>> order_of_keys(*arcs, np.array([2, 1, 0])).tolist()
    [1, 2, 0]
    """
    waiting, block_of = num_preds.copy(), np.zeros(len(keys), np.int64)
    ready = [np.int64(0) for _ in range(0)]
    for v in range(len(keys)):
        block_of[keys[v]] = v
        if waiting[v] == 0:
            ready.append(keys[v])
    heapq.heapify(ready)
    order = np.zeros(len(keys), np.int64)
    for step in range(len(keys)):
        v = block_of[heapq.heappop(ready)]
        order[step] = v
        for at in range(succ_ptr[v], succ_ptr[v + 1]):
            waiting[succ[at]] -= 1
            if waiting[succ[at]] == 0:
                heapq.heappush(ready, keys[succ[at]])
    return order
