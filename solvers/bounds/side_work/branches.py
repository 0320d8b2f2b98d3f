"""Branch and bound over sides: a chain on one device or elsewhere, and the work beside it.

A node fixes the sides of some ops. Its bound is the highest over weights of what `two_sides`
proves: a linear program over the sides that cuts have found proposes weights, and a cut with these
confirms the bound or adds sides. A mean of two plans, all here and all elsewhere, can hide all of
the work; so nodes branch, over the op of the chain about which the sides differ most.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from scipy.optimize import linprog

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.integers import ceil_div
from placegap.solvers.bounds.side_work.two_sides import ELSEWHERE, FREE, HERE, SideArcs, TwoSides

MOST_NODES, MOST_CUTS = 1_000, 25
"""Of a search; and of the cuts for one node."""

CLOSE = 2e-4
"""A node's bound is not raised any more by a smaller share."""

FEW_BITS = 6
"""Weights of fewer bits are too coarse."""

MOST_KEPT = 400
"""Sides that are kept from one search to the next."""


@dataclass(order=True)
class _Node:
    """Sides that are fixed, the bound, and how much of each group is here in its mean of sides."""

    bound_ns: int
    number: int
    fixed: Ints = field(compare=False)
    share: np.ndarray[tuple[int], np.dtype[np.float64]] = field(compare=False)


@dataclass(frozen=True)
class LeastSides:
    """What a search proves, and of the ops of the chain which are here where it is least.

    Attributes
    ----------
    bound_ns : int
    here : (ops of the chain,) bool
    """

    bound_ns: int
    here: Flags


class Branches:
    """Searches over the sides of one problem, for arcs of which more and more is known.

    Parameters
    ----------
    sides : TwoSides
    begin : (groups,) int64, optional
        Sides that are known beforehand, such as by symmetry.
    """

    def __init__(self, sides: TwoSides, begin: Ints | None = None) -> None:
        self.sides, self.begin = sides, sides.fixed if begin is None else begin
        self.kept: list[Flags] = []
        self._loads: list[Ints] = []  # of those, by the arcs of this search
        self._bits = 0

    def search(
        self,
        arcs: SideArcs,
        target_ns: int,
        is_over: Callable[[], bool],
        most_nodes: int = MOST_NODES,
    ) -> LeastSides:
        """The least bound of a tree of nodes that covers all plans.

        Parameters
        ----------
        arcs : SideArcs
            What is proven of the chain by now.
        target_ns : int
            A bound that suffices.
        is_over : callable
            Whether time is over.
        most_nodes : int
        """
        arcs, number = arcs.fit_for_cuts(), count()
        self.kept = self.kept[-MOST_KEPT:]
        self._loads = [self.sides.loads(here, arcs) for here in self.kept]
        self._bits = self.sides.weight_bits(arcs)
        if self._bits < FEW_BITS:
            return LeastSides(0, np.ones(len(self.sides.chain), np.bool_))
        heap = [self._node(arcs, self.begin, 0, next(number), target_ns)]
        while heap[0].bound_ns < target_ns and len(heap) < most_nodes and not is_over():
            group = self._unsure(heap[0])
            if group is None:
                break
            node = heapq.heappop(heap)
            for side in (HERE, ELSEWHERE):
                fixed = node.fixed.copy()
                fixed[group] = side
                heapq.heappush(
                    heap, self._node(arcs, fixed, node.bound_ns, next(number), target_ns)
                )
        return LeastSides(heap[0].bound_ns, heap[0].share[self.sides.chain] > 0.5)

    def _node(
        self, arcs: SideArcs, fixed: Ints, known_ns: int, number: int, target_ns: int
    ) -> _Node:
        """Cuts with better and better weights, until they prove no more."""
        sides = self.sides
        rows = [at for at, here in enumerate(self.kept) if _keeps(here, fixed)]
        known, loads = [self.kept[at] for at in rows], [self._loads[at] for at in rows]
        weights, share = np.full(sides.num_rows, 1.0 / sides.num_rows), None
        best, promised = known_ns, float("inf")
        for _ in range(MOST_CUTS):
            if loads:
                weights, promised, share = _weights(np.array(loads))
                if promised <= best * (1 + CLOSE) or best >= target_ns:
                    break
            whole = np.rint(weights * 2**self._bits).astype(np.int64)
            value, here = sides.least(arcs, whole, fixed)
            best = max(best, ceil_div(value, int(whole.sum())))
            known.append(here)
            loads.append(sides.loads(here, arcs))
            self.kept.append(here)
            self._loads.append(loads[-1])
        assert known
        if share is None or len(share) != len(known):
            _, _, share = _weights(np.array(loads))
        mean = np.einsum("c,cg->g", share, np.array(known, np.float64))
        return _Node(best, number, fixed, mean)

    def _unsure(self, node: _Node) -> int | None:
        """The group to branch over: of the chain, in the middle of where sides differ most."""
        chain = self.sides.chain
        differ = np.minimum(node.share, 1 - node.share)
        differ[node.fixed != FREE] = 0.0
        along = differ[chain]
        if along.max() > CLOSE:
            near = np.flatnonzero(along >= along.max() - CLOSE)
            runs = np.split(near, np.flatnonzero(np.diff(near) > 1) + 1)
            longest = max(runs, key=len)
            return int(chain[longest[len(longest) // 2]])
        beside = int((differ * self.sides.work_ns).argmax())
        return beside if differ[beside] > CLOSE else None


def _keeps(here: Flags, fixed: Ints) -> bool:
    return bool((here[fixed == HERE]).all() and not here[fixed == ELSEWHERE].any())


def _weights(loads: Ints) -> tuple[Ints, float, Ints]:
    """Weights under which the least of known sides takes longest; that time, and the sides' shares.

    They only propose: what they prove is worked out in integers.
    """
    num, rows = loads.shape
    unit = max(1.0, float(loads.max()))
    found = linprog(
        [-1.0] + [0.0] * rows,
        A_ub=np.hstack([np.ones((num, 1)), -loads / unit]),
        b_ub=np.zeros(num),
        A_eq=[[0.0] + [1.0] * rows],
        b_eq=[1.0],
        bounds=[(None, None)] + [(0.0, 1.0)] * rows,
        method="highs",
    )
    share = np.maximum(-found.ineqlin.marginals, 0.0)
    weights = np.maximum(found.x[1:], 0.0)
    return weights / weights.sum(), float(found.x[0]) * unit, share / max(share.sum(), 1e-12)
