"""Fewer labels of a step: without those that another one is below, and joined where too many stay.

What is left proves no more than all of them do.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.solvers.bounds.frontier.labels import FrontierLabels, PlacedGraph

MOST_SHARE = 4
"""Labels of one signature are at most this part of all."""

POOL_PARTS = 64, 16, 4, 0
"""Of the room of a pool: where there are too many labels, those with as many whole parts hold the
least of any; 0 forgets what they hold."""


def few_labels(
    graph: PlacedGraph, labels: FrontierLabels, signature: Ints, cost: Ints, rows: int
) -> tuple[FrontierLabels, bool]:
    """At most so many labels, if not one for each signature; and whether anything was lost."""
    most, lost = max(1, rows // MOST_SHARE), False
    few, joined = thinned(labels, signature, cost, most)
    for parts in POOL_PARTS if len(graph.pool_room_bytes) else ():
        if not joined and len(few.done_ns) <= rows:
            break
        pooled, lost = _alike_pools(graph, labels.pool_bytes, signature, parts), True
        labels = labels._replace(pool_bytes=pooled)
        few, joined = thinned(labels, signature, cost, most)
    while len(few.done_ns) > rows and most > 1:
        most //= 2
        few, joined = thinned(labels, signature, cost, most)
    return few, lost or bool(joined)


def _alike_pools(graph: PlacedGraph, pool_bytes: Ints, signature: Ints, parts: int) -> Ints:
    """What pools hold, (L, S): the least of all labels of a signature that agree in whole parts."""
    if not parts:
        return np.zeros_like(pool_bytes)
    whole = pool_bytes // np.maximum(1, graph.pool_room_bytes // parts)
    same = np.unique(np.column_stack([signature, whole]), axis=0, return_inverse=True)[1].ravel()
    least = np.full((same.max() + 1, pool_bytes.shape[1]), NO_WAY)
    np.minimum.at(least, same, pool_bytes)
    return least[same]


@kernel
def thinned(
    labels: FrontierLabels, signature: Ints, cost: Ints, most: int
) -> tuple[FrontierLabels, bool]:
    """Of the labels of each signature those that no other one is below, and whether any are joined.

    Where more than `most` are left, neighbours by cost are joined, with the least of each: no
    completion of a joined label costs more than those of its parts.
    """
    by_cost = np.argsort(cost, kind="mergesort")
    order = by_cost[np.argsort(signature[by_cost], kind="mergesort")]
    kept = np.empty(len(order), np.int64)
    count, at, joined = 0, 0, False
    device, way = labels.device.copy(), labels.way_ns.copy()
    held, done = labels.held_bytes.copy(), labels.done_ns.copy()
    pooled = labels.pool_bytes.copy()
    since, base = labels.since_ns.copy(), labels.base_ns.copy()
    while at < len(order):
        first = count
        code = signature[order[at]]
        while at < len(order) and signature[order[at]] == code:
            row = order[at]
            at += 1
            below = False
            for q in range(first, count):
                below = below or _is_below(labels, kept[q], row)
            if not below:
                kept[count] = row
                count += 1
        size, stride = count - first, 1
        while (size + stride - 1) // stride > most:
            stride *= 2
        if stride > 1:
            joined = True
            target = first
            for q in range(first, count, stride):
                row = kept[q]
                for r in range(q + 1, min(count, q + stride)):
                    other = kept[r]
                    for s in range(way.shape[1]):
                        way[row, s] = min(way[row, s], way[other, s])
                    for b in range(held.shape[1]):
                        held[row, b] = min(held[row, b], held[other, b])
                    for x in range(pooled.shape[1]):
                        pooled[row, x] = min(pooled[row, x], pooled[other, x])
                    for b in range(since.shape[1]):
                        since[row, b] = min(since[row, b], since[other, b])
                    for b in range(2):
                        base[row, b] = min(base[row, b], base[other, b])
                    done[row] = min(done[row], done[other])
                kept[target] = row
                target += 1
            count = target
    rows = kept[:count]
    left = FrontierLabels(
        _rows(device, rows),
        _rows(way, rows),
        _rows(held, rows),
        _rows(pooled, rows),
        _rows(since, rows),
        _rows(base, rows),
        done[rows],
        labels.source[rows],
        labels.on[rows],
    )
    return left, joined


@kernel
def _rows(table: Ints, rows: Ints) -> Ints:
    """Some rows of a table; numba compiles this loop sooner than an index of rows."""
    chosen = np.empty((len(rows), table.shape[1]), np.int64)
    for at in range(len(rows)):
        for column in range(table.shape[1]):
            chosen[at, column] = table[rows[at], column]
    return chosen


@kernel(allocates=False)
def _is_below(labels: FrontierLabels, a: int, b: int) -> bool:
    """Whether label a has at most as much of everything as label b."""
    if labels.done_ns[a] > labels.done_ns[b]:
        return False
    for s in range(labels.way_ns.shape[1]):
        if labels.way_ns[a, s] > labels.way_ns[b, s]:
            return False
    for k in range(labels.held_bytes.shape[1]):
        if labels.held_bytes[a, k] > labels.held_bytes[b, k]:
            return False
    for x in range(labels.pool_bytes.shape[1]):
        if labels.pool_bytes[a, x] > labels.pool_bytes[b, x]:
            return False
    for x in range(2):
        if labels.base_ns[a, x] > labels.base_ns[b, x]:
            return False
    for x in range(labels.since_ns.shape[1]):
        if labels.since_ns[a, x] > labels.since_ns[b, x]:
            return False
    return True
