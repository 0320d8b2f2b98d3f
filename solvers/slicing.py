"""Upper bounds on max_load: cut one topological order into segments, optimally.

Every segment of a topological order is the difference of two ideals, so this is a restriction of
the ideal DP to one chain. For b blocks, a accelerators and h hosts O(b^2 (degree + a h)), less
where a limit T ends the segments early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from placegap.instances.index import Ints
from placegap.solvers.chain_problem import ACCELERATOR, HOST, ChainProblem

MOST_CUTS = 2000
"""Places where an order of more blocks may be cut: those of least communication, spread out."""


@dataclass(frozen=True)
class Split:
    """Blocks on devices: the kind, and the number among its kind, of each block's device."""

    value: int
    kind: Ints
    number: Ints

    def devices(self, problem: ChainProblem) -> Ints:
        """Device of each op."""
        table = [np.array(own, np.int64) for own in problem.devices]
        of_block = np.empty(problem.num_blocks, np.int64)
        for kind in (ACCELERATOR, HOST):
            here = self.kind == kind
            of_block[here] = table[kind][self.number[here]]
        return of_block[problem.blocks.block]


def best_slices(problem: ChainProblem, order: Ints, limit: int) -> Split | None:
    """Least max_load over all ways to cut the order, or None if none has at most `limit`.

    Examples
    --------
    The diamond's order 1, 2, 3, 4 of 5, 20, 10 and 8 ns; all on one device takes 43 ns:

    >>> from placegap.instances import example
    >>> from placegap.solvers.chain_problem import build_problem
    >>> best_slices(build_problem(example()), np.arange(4), 100).value
    36
    """
    stops = _places_to_cut(problem, order)
    accelerators, hosts = problem.counts
    value, origin = _slice(
        order, stops, problem.time, problem.need, problem.room, problem.nets.block_ptr,
        problem.nets.net, problem.net_size, problem.weight, accelerators, hosts, problem.overlap,
        limit,
    )  # fmt: skip
    if value > limit:
        return None
    kind, number = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    (c, k), at = origin[-1, 0, 0, 1:], len(stops) - 1
    while at > 0:
        before, its_kind = origin[at, c, k, 0] // 2, origin[at, c, k, 0] % 2
        c, k = (c - 1, k) if its_kind == HOST else (c, k - 1)
        segment = order[stops[before] : stops[at]]
        kind[segment], number[segment] = its_kind, c if its_kind == HOST else k
        at = before
    return Split(int(value), kind, number)
