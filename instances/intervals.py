"""Intervals: pairs of ops that close a part of a graph, and a chain of them along a long path.

For ops u before v, the ops strictly between them can only start after u and must end before v. A
graph without bottlenecks still has many such intervals, and whatever is proven of each adds up
along a chain u0 < u1 < u2 < ... (`bottlenecks`: what remains without the conditions).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np

from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.model import Instance
from placegap.instances.sections import Section, interval

MOST_OPS = 100
"""Intervals with more ops strictly between their ends are no candidates."""


class Interval(NamedTuple):
    """Two ops and the ops strictly between them."""

    entry: int
    exit: int
    inner: tuple[int, ...]


def intervals(instance: Instance, most_ops: int = MOST_OPS) -> list[Interval]:
    """The candidates: a fork u, and a join v whose immediate dominator below u is u.

    No single op between the two closes the paths from u to v earlier. O(forks x m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> intervals(example())
    [Interval(entry=0, exit=3, inner=(1, 2))]
    """
    index = instance.arrays.index
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(instance.num_ops))
    graph.add_edges_from(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))
    position, found = index.topological_position.tolist(), []
    for u in index.topological_order.tolist():
        if graph.out_degree(u) > 1:
            below = nx.immediate_dominators(graph, u)
            joins = [v for v, w in below.items() if w == u and v != u and graph.in_degree(v) > 1]
            for v in sorted(joins, key=position.__getitem__):
                inner = _between(graph, below, v, u, most_ops)
                if inner:
                    found.append(Interval(u, v, tuple(sorted(inner, key=position.__getitem__))))
    return found


def _between(graph: nx.DiGraph[int], below: dict[int, int], v: int, u: int, most: int) -> list[int]:
    """Ancestors of v that u reaches, u aside; none if there are too many."""
    seen: dict[int, None] = {}
    stack = [v]
    while stack:
        for w in graph.pred[stack.pop()]:
            if w != u and w in below and w not in seen:
                seen[w] = None
                stack.append(w)
        if len(seen) > most:
            return []
    return list(seen)


def choose_chain(instance: Instance, candidates: Sequence[Interval]) -> tuple[Section, ...]:
    """A chain of intervals and edges through the graph that promises a long bound.

    A longest path in which an edge counts the least time of its consumer, and an interval the time
    of its ops one after the other on their best device: it is guessed that a section stays
    together. The guess only guides; every chain gives a valid bound. O(n + m + intervals).

    Examples
    --------
    >>> from placegap.instances import example
    >>> [section.ops for section in choose_chain(example(), intervals(example()))]
    [(0, 1, 2, 3)]
    """
    arrays, index = instance.arrays, instance.arrays.index
    supported = arrays.time_ns != UNSUPPORTED
    least = np.where(supported, arrays.time_ns, np.iinfo(np.int64).max).min(axis=1)
    into: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in range(instance.num_ops)]
    for i, j in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        into[j].append((int(least[j]), i, ()))
    for entry, leave, inner in candidates:
        ops = [*inner, leave]
        able = supported[ops].all(axis=0)
        serial = arrays.time_ns[ops][:, able].sum(axis=0)
        guess = int(serial.min()) if able.any() else int(least[ops].sum())
        into[leave].append((guess, entry, inner))
    longest = least.tolist()
    step: list[tuple[int, tuple[int, ...]] | None] = [None] * instance.num_ops
    for j in index.topological_order.tolist():
        for guess, i, inner in into[j]:
            length = longest[i] + guess
            if length > longest[j] or (length == longest[j] and step[j] is None):
                longest[j], step[j] = length, (i, inner)
    at, chain = max(range(instance.num_ops), key=lambda j: (longest[j], -j)), []
    while (last := step[at]) is not None:
        chain.append(interval(instance, last[1], last[0], at))
        at = last[0]
    return tuple(reversed(chain))
