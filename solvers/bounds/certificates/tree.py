"""A tree of cases: the relaxation of a section, branched over the devices of its ops."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from placegap.instances.io.certificate_checker import Able
from placegap.instances.io.certificate_file import Branch, Leaf
from placegap.solvers.bounds.certificates.multipliers import SectionLp
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.interrupts import stop_asked

INTEGRAL = 1e-6
"""Shares so close to 0 or 1 are not branched over."""


@dataclass
class _Node:
    able: Able
    leaf: Leaf
    bound: Any  # an integer, or infinite
    shares: dict[int, dict[int, float]]
    branch: tuple[int, tuple[frozenset[int], ...]] | None = None
    children: list[_Node] = field(default_factory=list)


def grow_tree(
    lp: SectionLp,
    able: Able,
    *,
    most_leaves: int = 1,
    target_ns: float = math.inf,
    clock: Clock | None = None,
) -> tuple[Branch | Leaf, Any]:
    """Branch over devices, the lowest leaf first; the tree and the bound that it proves, in ns.

    Parameters
    ----------
    lp : SectionLp
    able : dict of int to set of int
        Devices of each op at the root.
    most_leaves : int
    target_ns : float
        A bound that suffices.
    clock : Clock, optional
        When it is over, the tree so far is returned.
    """
    root = _solved(lp, able, None, clock)
    number, heap = count(), list[tuple[Any, int, _Node]]()
    heap.append((root.bound, next(number), root))
    leaves = 1
    least: Any = math.inf
    while heap and leaves < most_leaves:
        bound, _, node = heap[0]
        if (
            bound >= min(target_ns, least)
            or stop_asked()
            or (clock is not None and clock.left_s == 0)
        ):
            break
        heapq.heappop(heap)
        chosen = _choose(lp, node)
        if chosen is None:  # nothing to branch over: this leaf is what the tree proves
            least = min(least, bound)
            continue
        i, k = chosen
        node.branch = i, (frozenset({k}), node.able[i] - {k})
        for case in node.branch[1]:
            child = _solved(lp, node.able | {i: case}, node, clock)
            node.children.append(child)
            heapq.heappush(heap, (child.bound, next(number), child))
        leaves += 1
    return _written(root), min(least, min((bound for bound, _, _ in heap), default=math.inf))


def _solved(lp: SectionLp, able: Able, parent: _Node | None, clock: Clock | None) -> _Node:
    """The leaf of some cases: new multipliers, or those of the parent where they prove more."""
    left_s = math.inf if clock is None or clock.left_s is None else clock.left_s
    found = lp.solve(able, left_s)
    leaf, shares = found if found is not None else (Leaf(), {})
    bound = lp.proven(leaf, able)
    if parent is not None and bound < (old := lp.proven(parent.leaf, able)):
        leaf, bound = parent.leaf, old
    return _Node(able, leaf, bound, shares)


def _choose(lp: SectionLp, node: _Node) -> tuple[int, int] | None:
    """The op whose split over devices hides the most work, and the device that has most of it."""
    best, chosen = 0.0, None
    for i, shares in node.shares.items():
        k = max(sorted(node.able[i]), key=shares.__getitem__)
        worth = (1 - shares[k]) * (1 + lp.time(i, k))
        if len(node.able[i]) > 1 and shares[k] < 1 - INTEGRAL and worth > best:
            best, chosen = worth, (i, k)
    return chosen


def _written(node: _Node) -> Branch | Leaf:
    if node.branch is None:
        return node.leaf
    op, cases = node.branch
    return Branch(
        op=op,
        cases=tuple(tuple(sorted(case)) for case in cases),
        nodes=tuple(_written(child) for child in node.children),
    )
