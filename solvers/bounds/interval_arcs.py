"""Intervals as arcs: the least time between the end of one op and the start of another.

Let u and v be ops, and X the ops strictly between them. All of X starts after the end of u and ends
before the start of v. With u on device a and v on device b, G being the time between:

- **Paths.** With x on device c a longest path from u over x to v takes through(x, c); G is at least
  the least of these over c, for every x.
- **Forced ops.** If through(x, c') > G for all devices c' but c, x is on c. All such ops run on c
  one after the other: G >= least head + sum of their times there + least tail. So G is at least the
  smallest number that keeps this condition. Where transfers are dear, it says that all of X runs
  on one device.
- **Work.** Device c can start with X only after h[c], the least head of any x there, and must end
  t[c], the least tail, before v starts: sum over X of the masses <= sum of w[c] (G - h[c] - t[c])
  over the c with G > h[c] + t[c] (masses and weights as in `work_windows`).

Every condition holds in every schedule under every semantics of the makespan, so that the arcs may
be counted beside the edges by longest paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.sections import Interval, Section

MOST_STEPS = 300_000_000
"""Edges of all intervals times devices cubed, a second's worth."""

MOST_CELLS = 20_000_000
"""Of all tables together."""


class IntervalArcs(NamedTuple):
    """Pairs of ops, and what lies between the end of the first and the start of the second.

    ``gap_ns[r, a, b]``: the least time with the first on device a and the second on b.
    ``apart_ns[r, a]``: with both on a, and at least one op between them elsewhere; `NO_WAY` if none
    can be. ``head_ns[x, a, c]`` and ``tail_ns[x, b, c]``, a row for each op between, in the order
    of the arcs: the least time from the end of the first op to its start on c, and from its end to
    the start of the second. Where devices are alike there are fewer of them, and with many ops
    none.
    """

    entry: Ints
    exit: Ints
    gap_ns: Ints
    apart_ns: Ints
    head_ns: Ints
    tail_ns: Ints


def interval_arcs(
    instance: Instance, parts: Sequence[Interval], time: Ints, mass: Ints, weights: Ints
) -> IntervalArcs:
    """Arcs of some intervals, in their order, as many as `MOST_STEPS` allow.

    Parameters
    ----------
    instance : Instance
    parts : sequence of Interval
    time : (n, K) int64
        Times, `NO_WAY` where an op cannot be.
    mass, weights : (n,) and (K,) int64
        As in `work_windows`; products with all times together must fit into 2**61.

    Examples
    --------
    In the middle of the diamond 20 ns and 10 ns are side by side. With transfers they take 22 ns
    between ends on one device, and 21 ns between ends on two:

    >>> from placegap.instances import example
    >>> from placegap.instances.problem.sections import intervals
    >>> times, weights = example().arrays.time_ns.copy(), np.ones(2, np.int64)
    >>> mass = times[:, 0].copy()
    >>> interval_arcs(example(), intervals(example()), times, mass, weights).gap_ns.tolist()
    [[[22, 21], [21, 22]]]
    """
    arrays, index, num_devices = instance.arrays, instance.arrays.index, instance.num_devices
    link, classes, multiple = arrays.link_class, num_devices, np.ones(num_devices, np.int64)
    alike = num_devices > 3 and _alike(instance, time, weights)
    if alike:  # the device of u, that of v, and all others
        classes, multiple = 3, np.array([1, 1, num_devices - 2], np.int64)
        link = link[:3, :3]
    degree, steps, chosen = np.diff(index.pred_ptr), 0, list[Interval]()
    for part in parts:
        edges = int(degree[list(part.inner)].sum() + degree[part.exit])
        steps += 2 * edges * classes**3
        if steps > MOST_STEPS or (len(chosen) + 1) * num_devices**2 > MOST_CELLS:
            break
        chosen.append(part)
    entry = np.array([part.entry for part in chosen], np.int64)
    leave = np.array([part.exit for part in chosen], np.int64)
    inner = np.array([i for part in chosen for i in part.inner], np.int64)
    pointer = np.concatenate([[0], np.cumsum([len(part.inner) for part in chosen])])
    keep = len(inner) if len(inner) * classes**2 <= MOST_CELLS else 0
    gap, apart, head, tail = _gaps(
        entry,
        leave,
        inner,
        pointer.astype(np.int64),
        np.ascontiguousarray(time[:, :classes]),
        mass,
        weights[:classes] * multiple,
        index.pred_ptr,
        index.pred_edge,
        index.producer,
        index.tensor,
        np.ascontiguousarray(link),
        arrays.transfer_ns,
        2 if alike else classes,
        keep,
    )
    if alike:
        stay = np.eye(num_devices, dtype=np.bool_)
        gap = np.where(stay, gap[:, 0, 0, None, None], gap[:, 0, 1, None, None])
        apart = np.repeat(apart[:, :1], num_devices, axis=1)
    return IntervalArcs(entry, leave, gap, apart, head, tail)


def _alike(instance: Instance, time: Ints, weights: Ints) -> bool:
    """Whether no device can be told from another, nor any link."""
    link = instance.arrays.link_class
    away = link[~np.eye(len(link), dtype=np.bool_)]
    same = bool((away == away[0]).all()) and bool((weights == weights[0]).all())
    return same and bool((time == time[:, :1]).all())


def chain_arcs(
    instance: Instance, chain: Sequence[Section], time: Ints, mass: Ints, weights: Ints
) -> tuple[list[Interval], IntervalArcs, Ints]:
    """The arcs of a chain's intervals, as many as there are, and their tables.

    Returns
    -------
    tuple of (list of Interval, IntervalArcs, (r, K, K) int64)
        Tables have the least time from the end of an arc's first op to the end of its second one,
        by their devices; `NO_WAY` where colocated ops would be apart.
    """
    parts = [
        Interval(part.entry, part.exit, tuple(part.ops[1:-1]))
        for part in chain
        if part.entry is not None and part.exit is not None
    ]
    arcs = interval_arcs(instance, parts, time, mass, weights)
    tables = np.minimum(arcs.gap_ns + time[arcs.exit][:, None, :], NO_WAY)
    group, stay = instance.arrays.group, np.eye(instance.num_devices, dtype=np.bool_)
    tables[(group[arcs.entry] == group[arcs.exit])[:, None, None] & ~stay] = NO_WAY
    return parts[: len(arcs.entry)], arcs, tables


@kernel
def _gaps(
    entry: Ints,
    leave: Ints,
    inner: Ints,
    pointer: Ints,
    time: Ints,
    mass: Ints,
    weights: Ints,
    pred_ptr: Ints,
    pred_edge: Ints,
    producer: Ints,
    tensor: Ints,
    link: Ints,
    moves: Ints,
    ends: int,
    keep: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Least times of all intervals, for the first `ends` devices as ends; and with an op apart."""
    num_devices = time.shape[1]
    gap = np.zeros((len(entry), ends, ends), np.int64)
    apart = np.full((len(entry), ends), NO_WAY)
    heads = np.zeros((keep, ends, num_devices), np.int64)
    tails = np.zeros((keep, ends, num_devices), np.int64)
    local = np.full(len(time), -1)
    for r in range(len(entry)):
        ops = inner[pointer[r] : pointer[r + 1]]
        size = len(ops)
        local[entry[r]] = size
        for x in range(size):
            local[ops[x]] = x
        own, away = np.empty((size, num_devices), np.int64), np.empty(size, np.int64)
        for x in range(size):
            own[x] = time[ops[x]]
        head, direct = _from_entry(
            entry[r],
            leave[r],
            ops,
            own,
            local,
            pred_ptr,
            pred_edge,
            producer,
            tensor,
            link,
            moves,
            ends,
        )
        tail = _to_exit(
            leave[r], ops, own, local, pred_ptr, pred_edge, producer, tensor, link, moves, ends
        )
        total: Any = np.int64(0)  # no literal: `by_work` is compiled once
        for x in range(size):
            total += mass[ops[x]]
            if keep:
                heads[pointer[r] + x], tails[pointer[r] + x] = head[:, x], tail[:, x]
        for a in range(ends):
            for b in range(ends):
                least = direct[a, b]
                for x in range(size):
                    through = NO_WAY
                    for c in range(num_devices):
                        through = min(through, head[a, x, c] + own[x, c] + tail[b, x, c])
                    least = max(least, through)
                for c in (a, b):
                    for x in range(size):
                        away[x] = NO_WAY
                        for other in range(num_devices):
                            if other != c:
                                way = head[a, x, other] + own[x, other] + tail[b, x, other]
                                away[x] = min(away[x], way)
                        if a == b:
                            apart[r, a] = min(apart[r, a], away[x])
                    least = max(least, forced(away, head[a, :, c], own[:, c], tail[b, :, c]))
                least = max(least, by_work(total, weights, head[a], tail[b]))
                gap[r, a, b] = min(NO_WAY, least)
        local[entry[r]] = -1
        for x in range(size):
            local[ops[x]] = -1
    return gap, apart, heads, tails


@kernel
def _from_entry(
    entry: int,
    leave: int,
    ops: Ints,
    own: Ints,
    local: Ints,
    pred_ptr: Ints,
    pred_edge: Ints,
    producer: Ints,
    tensor: Ints,
    link: Ints,
    moves: Ints,
    ends: int,
) -> tuple[Ints, Ints]:
    """Least time from the end of the entry on a to the start of x on c, and to that of the exit."""
    size, num_devices = own.shape
    head = np.zeros((ends, size, num_devices), np.int64)
    direct = np.zeros((ends, ends), np.int64)
    for x in range(size + 1):
        op = leave if x == size else ops[x]
        for e in pred_edge[pred_ptr[op] : pred_ptr[op + 1]]:
            y, to = local[producer[e]], moves[tensor[e]]
            if y < 0:
                continue
            for a in range(ends):
                for c in range(ends if x == size else num_devices):
                    least = NO_WAY
                    if y == size:
                        least = to[link[a, c]]
                    else:
                        for d in range(num_devices):
                            least = min(least, head[a, y, d] + own[y, d] + to[link[d, c]])
                    if x == size:
                        direct[a, c] = max(direct[a, c], least)
                    else:
                        head[a, x, c] = min(NO_WAY, max(head[a, x, c], least))
    return head, direct


@kernel
def _to_exit(
    leave: int,
    ops: Ints,
    own: Ints,
    local: Ints,
    pred_ptr: Ints,
    pred_edge: Ints,
    producer: Ints,
    tensor: Ints,
    link: Ints,
    moves: Ints,
    ends: int,
) -> Ints:
    """Least time from the end of x on c to the start of the exit on b."""
    size, num_devices = own.shape
    tail = np.zeros((ends, size, num_devices), np.int64)
    for x in range(size, -1, -1):
        op = leave if x == size else ops[x]
        for e in pred_edge[pred_ptr[op] : pred_ptr[op + 1]]:
            y, to = local[producer[e]], moves[tensor[e]]
            if y < 0 or y == size:
                continue
            for b in range(ends):
                for d in range(num_devices):
                    least = NO_WAY
                    if x == size:
                        least = to[link[d, b]]
                    else:
                        for c in range(num_devices):
                            least = min(least, to[link[d, c]] + own[x, c] + tail[b, x, c])
                    tail[b, y, d] = min(NO_WAY, max(tail[b, y, d], least))
    return tail


@kernel
def forced(away: Ints, head: Ints, time: Ints, tail: Ints) -> int:
    """Smallest G >= least head + sum of times + least tail of the ops with away > G."""
    order = np.argsort(-away, kind="mergesort")
    before, after, work, least = NO_WAY, NO_WAY, 0, 0
    for at in range(len(order)):
        x = order[at]
        before, after = min(before, head[x]), min(after, tail[x])
        work = min(NO_WAY, work + time[x])
        # with G below away[x], all up to x are forced
        bound = min(away[x], before + work + after)
        least = max(least, bound)
    return least


@kernel
def by_work(total: int, weights: Ints, head: Ints, tail: Ints) -> int:
    """Smallest G with total <= sum over c of weights[c] (G - h[c] - t[c]), where positive."""
    if total == 0:  # ops that devices of weight 0 can do
        return 0
    num_devices = len(weights)
    closed = np.empty(num_devices, np.int64)
    for c in range(num_devices):
        closed[c] = min(NO_WAY, head[:, c].min() + tail[:, c].min())
    width, shut, best = 0, 0, NO_WAY
    for c in np.argsort(closed, kind="mergesort"):
        if closed[c] >= NO_WAY or weights[c] == 0:
            continue
        width += weights[c]
        shut += weights[c] * closed[c]
        best = min(best, -(-(total + shut) // width))
    return best if best < NO_WAY else 0
