"""Intervals: pairs of ops that close a part of a graph, and a chain of them along a long path.

For ops u before v, the ops strictly between them can only start after u and must end before v. A
graph without bottlenecks still has many such intervals, and whatever is proven of each adds up
along a chain u0 < u1 < u2 < ... (`bottlenecks`: what remains without the conditions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.sections import Section, interval

MOST_OPS = 100
"""Intervals with more ops strictly between their ends are no candidates."""

MOST_WORK = 200_000_000
"""Edges that all forks together look at, about two seconds' worth."""

MOST_MEMBERS = 2_000_000
"""Inner ops of all candidates together."""

CHUNK = 4096
"""Candidates that are guessed at once."""


class Interval(NamedTuple):
    """Two ops and the ops strictly between them."""

    entry: int
    exit: int
    inner: tuple[int, ...]


def intervals(instance: Instance, most_ops: int = MOST_OPS) -> list[Interval]:
    """The candidates: a fork u, and a join v whose immediate dominator below u is u.

    No single op between the two closes the paths from u to v earlier. Dominators of an acyclic
    graph take one pass in topological order (Cooper, Harvey, Kennedy 2001): O(forks x m) for all
    forks. In graphs where that is more than `MOST_WORK`, each fork looks only so far ahead that it
    is not, and where the candidates hold more than `MOST_MEMBERS` ops together, only smaller ones
    count: candidates are missed, which does no harm to a bound's validity.

    Examples
    --------
    >>> from placegap.instances import example
    >>> intervals(example())
    [Interval(entry=0, exit=3, inner=(1, 2))]
    """
    index, n = instance.arrays.index, instance.num_ops
    position, order = index.topological_position, index.topological_order
    # ops are numbered by topological position from here on
    preds = position[index.producer]
    pred_ptr, by_consumer = group_by(position[index.consumer], n)
    num_succs = np.bincount(preds, minlength=n)
    forks = max(1, int((num_succs > 1).sum()))
    ahead = max(most_ops + 1, MOST_WORK * n // (forks * (n + len(preds) + 1)))
    while True:
        entries, exits, inner_ptr, inner = _find(
            pred_ptr, preds[by_consumer], num_succs, most_ops, ahead
        )
        if len(inner) <= MOST_MEMBERS:
            break
        most_ops //= 2
    op, members = order.tolist(), order[inner].tolist()
    return [
        Interval(op[u], op[v], tuple(members[first:last]))
        for u, v, first, last in zip(
            entries.tolist(),
            exits.tolist(),
            inner_ptr[:-1].tolist(),
            inner_ptr[1:].tolist(),
            strict=True,
        )
    ]


@kernel
def _find(
    pred_ptr: Ints, pred: Ints, num_succs: Ints, most: int, ahead: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Ends and inner ops of all candidates, as pairs and as a CSR list."""
    n = len(num_succs)
    root, dominator, depth = np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64)
    seen, stamp, stack = np.full(n, -1), 0, np.zeros(n + 1, np.int64)
    entries, exits, inner_ptr, inner = [0], [0], [0], [0]
    for u in range(n):
        if num_succs[u] < 2 or len(inner) > MOST_MEMBERS + 1:
            continue
        root[u], depth[u] = u, 0
        for v in range(u + 1, min(n, u + 1 + ahead)):
            found = -1
            for w in pred[pred_ptr[v] : pred_ptr[v + 1]]:
                if root[w] != u:
                    continue
                if found < 0:
                    found = w
                while found != w:  # up to where the two meet
                    if depth[found] >= depth[w]:
                        found = dominator[found]
                    else:
                        w = dominator[w]
            if found < 0:
                continue
            root[v], dominator[v], depth[v] = u, found, depth[found] + 1
            if found != u or pred_ptr[v + 1] - pred_ptr[v] < 2:
                continue
            stamp += 1
            stack[0], count, at = v, 1, 0
            while at < count <= most + 1:
                for w in pred[pred_ptr[stack[at]] : pred_ptr[stack[at] + 1]]:
                    if w != u and root[w] == u and seen[w] != stamp and count <= most + 1:
                        seen[w] = stamp
                        stack[count] = w
                        count += 1
                at += 1
            if 1 < count <= most + 1:
                entries.append(u)
                exits.append(v)
                inner.extend(np.sort(stack[1:count]))
                inner_ptr.append(len(inner) - 1)
    # all lists begin with a number that types them
    return np.array(entries)[1:], np.array(exits)[1:], np.array(inner_ptr), np.array(inner)[1:]


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
    for (entry, leave, inner), guess in zip(
        candidates, _guesses(instance, candidates), strict=True
    ):
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


def _guesses(instance: Instance, candidates: Sequence[Interval]) -> Iterator[int]:
    """What each interval, its first op aside, takes on the best device that runs all of it."""
    times = instance.arrays.time_ns
    supported = times != UNSUPPORTED
    least = np.where(supported, times, np.iinfo(np.int64).max).min(axis=1)
    for begin in range(0, len(candidates), CHUNK):
        chunk = candidates[begin : begin + CHUNK]
        sizes = [len(inner) + 1 for _, _, inner in chunk]
        ops = np.array([i for _, leave, inner in chunk for i in (*inner, leave)], np.int64)
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        able = np.logical_and.reduceat(supported[ops], first)
        serial = np.where(able, np.add.reduceat(times[ops], first), np.iinfo(np.int64).max)
        alone = np.add.reduceat(least[ops], first)
        yield from np.where(able.any(axis=1), serial.min(axis=1), alone).tolist()
