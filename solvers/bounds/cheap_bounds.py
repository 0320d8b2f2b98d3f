"""Bounds that cost next to nothing beside any exact method, for every objective.

Paths and work, in integers, and then the registry's own cheap methods.

*Work* spread over devices of different kinds, each block split at will, is a bound in exact
integers: min T such that every block b is shared out, sum over k of x[b, k] == 1, and no device has
more than T to do. For any weights w[k] >= 0 of the devices, not all 0,

    T sum of w[k]  >=  sum over k of w[k] sum over b of p[b, k] x[b, k]  >=  sum over b of min w p,

so any weights prove something. The best ones are the duals of that LP, one per kind of device. Two
kinds need a sort, more of them some cutting planes; either way only the weights come from floating
point, and the sum is in integers.

*Example.* Each of two blocks takes 10 ns on a fast device, and 30 on a slow one. With equal weights
work proves 20 / 2 = 10 ns. With weights 3 and 1 a block has mass 30 on either: 60 / 4 = 15, the
least if blocks may be split (three quarters of the work on the fast device). The optimum is 20.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Semantics
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.integers import NO_WAY, ceil_div, to_whole
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import solvers_of, strategy
from placegap.solvers.core.registry import METHODS, why_not
from placegap.solvers.core.result import Bound

# Origins of bounds: the longest path of least times; all work spread over the devices; the longest
# op where it is fastest; all ops one after another, each where it is fastest; the memory of all
# devices together.
PATH, WORK, LONGEST, ONE, ROOM = "critical path", "work", "longest op", "one microbatch", "room"


def quick_bound(instance: Instance, semantics: Semantics) -> Bound:
    """The best of the critical path, the work and the longest op; integers throughout."""
    # O(m K^2) for m edges and K devices, beside the work (`spread_bound`).
    # Of equal bounds the first one counts, as it has the simpler reason. Memory is only what every
    # plan must hold (its floor), so that bounds hold at the peak, too.
    instance, semantics = relax_memory(instance, semantics)
    return solvers_of(semantics).quick_bound(instance, semantics)


# -------------------------------------------------------------------------------------------- paths


def path_ns(instance: Instance, *, transfers: bool) -> int:
    """The longest path, every op on the device that is best for the path as a whole."""
    # With `transfers`, those between the devices of a path are counted, and colocated ops are on
    # the same device. A bound on every makespan; without transfers also on every latency.
    arrays, possible = instance.arrays, instance.arrays.possible
    time = np.where(possible, arrays.time_ns, NO_WAY)
    if not transfers:
        time = time.min(axis=1, keepdims=True)
    # The longest path through an op on a device is at least that of any schedule which has it
    # there; ops of a group are on one device, so the longest of theirs counts for each device, and
    # then the best device.
    head, tail = (least_starts(graph, time) for graph in directions(instance, transfers=transfers))
    through = np.minimum(head + time + tail, NO_WAY)
    if not transfers:
        return int(through.max())
    of_group = np.zeros((arrays.num_groups, time.shape[1]), np.int64)
    np.maximum.at(of_group, arrays.group, through)
    return int(of_group.min(axis=1).max())


class Direction(NamedTuple):
    """Edges as they lead to ops, from the beginning, or from the end back."""

    order: Ints  # (n,) int64: Ops, each after all that edges lead from
    #: pointer, edge: Edges to op v are those in ``edge[pointer[v] : pointer[v + 1]]``.
    pointer: Ints
    edge: Ints
    #: other, tensor: (m,) int64: Where each edge comes from, and what it carries.
    other: Ints
    tensor: Ints
    #: link_class, transfer_ns: As in `Arrays`; in the way that time goes here.
    link_class: Ints
    transfer_ns: Ints


def directions(instance: Instance, *, transfers: bool = True) -> list[Direction]:
    """The graph forward, where least starts are heads, and back, where they are tails."""
    # Without transfers there is one device, and nothing takes time between ops.
    arrays, index = instance.arrays, instance.arrays.index
    # copies, which may be written to, as the arrays of the second: one kernel for both
    order, link = index.topological_order.copy(), arrays.link_class.copy()
    moves = arrays.transfer_ns.copy()
    if not transfers:
        link, moves = np.zeros((1, 1), np.int64), np.zeros((len(moves), 1), np.int64)
    return [
        Direction(
            order, index.pred_ptr, index.pred_edge, index.producer, index.tensor, link, moves
        ),
        Direction(
            np.ascontiguousarray(order[::-1]),
            index.succ_ptr,
            index.succ_edge,
            index.consumer,
            index.tensor,
            np.ascontiguousarray(link.T),
            moves,
        ),
    ]


@kernel(allocates=False)
def arrive(graph: Direction, time: Ints, start: Ints, v: int) -> None:
    """Raise the least start of an op on each device by paths; at most `NO_WAY`."""
    # Each edge takes the best device of its producer, so that different edges may have it in
    # different places: O(K^2) per edge, and a bound.
    num_devices = time.shape[1]
    for e in graph.edge[graph.pointer[v] : graph.pointer[v + 1]]:
        u, to = graph.other[e], graph.transfer_ns[graph.tensor[e]]
        for b in range(num_devices):
            least = NO_WAY
            for a in range(num_devices):
                least = min(least, start[u, a] + time[u, a] + to[graph.link_class[a, b]])
            start[v, b] = max(start[v, b], least)


@kernel(bounded=True)
def least_starts(graph: Direction, time: Ints) -> Ints:
    """Least start of every op on every device, by paths."""
    start = np.zeros(time.shape, np.int64)
    for v in graph.order:
        arrive(graph, time, start, v)
    return start


# ------------------------------------------------------------------------------ of the registry


def method_bound(task: Task, known: Bound, share_s: float) -> Bound:
    """The best of a bound and of the registry's cheap methods, those that fit into some seconds."""
    best = known
    relaxed, plain = relax_memory(task.instance, task.semantics)  # methods take the rule `sum`
    task = replace(task, instance=relaxed, semantics=plain)
    parts = task.instance.num_parts
    for name, us_per_part, most_parts in strategy(task).bound_methods:
        method = METHODS[name]
        params = method.params()
        if parts > most_parts or 1e-6 * us_per_part * parts > share_s:
            continue
        limited = replace(task, limits=replace(task.limits, time_limit_s=max(share_s, 0.05)))
        if why_not(method, limited, params) is None:
            found = method.run(limited, params)
            if found.bound is not None and not found.proven_infeasible:
                best = max(best, found.bound, key=Bound.rank)
    return best


# Cutting planes at most, and the share of the bound that the search for weights may miss.
MOST_CUTS, ENOUGH = 50, 1e-6
MOST_BITS = 40  # bits of an integer weight at most


def spread_bound(time_ns: Ints, possible: Flags) -> int:
    """Least time in which devices can do all blocks, if blocks can be split; rounded up."""
    # A block that no device can hold counts for nothing.
    return spread_weights(time_ns, possible)[0]


def spread_weights(time_ns: Ints, possible: Flags) -> tuple[int, list[int]]:
    """The bound of `spread_bound`, and integer weights of the devices that prove it."""
    # devices with equal columns get one weight: the LP is convex, and the average of the weights of
    # such devices proves no less
    somewhere = possible.any(axis=1)
    masked = np.where(possible, time_ns, -1)[somewhere]
    columns = [column.tobytes() for column in masked.T]
    alike = Counter(
        name for name, column in zip(columns, masked.T, strict=True) if (column >= 0).any()
    )
    if not alike:
        return 0, [1] * len(columns)
    time = np.stack([np.frombuffer(column, np.int64) for column in alike], axis=1)
    count = np.array(list(alike.values()), np.int64)
    # equal weights are tried as well: they are best where devices are alike, and cost nothing
    trials = [np.ones(len(count))]
    if len(count) > 1:
        trials.append((_two_weights if len(count) == 2 else _weights)(time, count))
    bound, whole = max(
        (_proven(time, count, weights) for weights in trials), key=lambda found: found[0]
    )
    weight = dict(zip(alike, whole, strict=True))
    return bound, [weight.get(name, 0) for name in columns]


def _proven(time: Ints, count: Ints, weights: Floats) -> tuple[int, list[int]]:
    """The bound of weights after rounding them to integers, and these."""
    # a product with the longest time stays within 64 bits; sums are Python's integers
    bits = max(1, min(MOST_BITS, 61 - int(time.max()).bit_length()))
    whole = to_whole(np.rint(weights / weights.max() * 2.0**bits))
    products = np.where(time >= 0, time * whole, np.iinfo(np.int64).max)
    total = sum(products.min(axis=1).tolist())
    weight = sum(w * c for w, c in zip(whole.tolist(), count.tolist(), strict=True))
    return ceil_div(total, weight), whole.tolist()


def _two_weights(time: Ints, count: Ints) -> Floats:
    """The best weights of two kinds of devices."""
    # The bound as a function of the ratio of the weights has its maximum where some block costs the
    # same on either kind, or at an end.
    both = (time >= 0).all(axis=1)
    first, second = time[both, 0].astype(float), time[both, 1].astype(float)
    only: list[float] = [float(time[~both, k].clip(0).sum(dtype=float)) for k in (0, 1)]
    ratio = np.divide(first, second, out=np.full(len(first), np.inf), where=second > 0)
    order = np.argsort(ratio, kind="stable")
    first, second, ratio = first[order], second[order], ratio[order]
    # w = (1, r): blocks of a smaller ratio than r are cheaper on the first kind
    below = np.concatenate([[0.0], np.cumsum(first)])
    above = second.sum() - np.concatenate([[0.0], np.cumsum(second)])
    finite = np.isfinite(ratio) & (ratio > 0)
    trials = np.concatenate([[0.0], ratio[finite]])
    at = np.searchsorted(ratio, trials)
    proven = (below[at] + only[0] + trials * (above[at] + only[1])) / (count[0] + trials * count[1])
    best = trials[int(proven.argmax())]
    only_second = only[1] / count[1]  # w = (0, 1)
    return np.array([0.0, 1.0]) if only_second > proven.max() else np.array([1.0, best])


def _weights(time: Ints, count: Ints) -> Floats:
    """Weights that prove much, by cutting planes (Kelley 1960): LPs of one column per kind."""
    import highspy  # three kinds are rare, and HiGHS is slow to load

    from placegap.solvers.core.back_ends.outcome import THREADS
    from placegap.solvers.core.back_ends.silent_highs import silent_highs

    num, highs = len(count), silent_highs(threads=THREADS)
    columns = np.arange(num + 1, dtype=np.int32)
    for size in count.tolist():
        highs.addVar(0.0, 1 / size)
    highs.addVar(-highspy.kHighsInf, highspy.kHighsInf)
    highs.changeColCost(num, -1.0)
    # Maximize v over weights whose sum over devices is 1. Each block takes its cheapest kind, so
    # the bound is concave and piecewise linear in the weights: a cut v <= slope @ w for each point
    # tried. With one column per kind the LPs are tiny, however many blocks there are.
    highs.addRow(1.0, 1.0, num, columns[:-1], count.astype(float))
    scale = float(np.where(time >= 0, time, 0).max(axis=1).sum(dtype=float)) or 1.0
    share = np.where(time >= 0, time / scale, 1.0)
    best = trial = np.full(num, 1 / count.sum())
    least: float = float("-inf")
    for _ in range(MOST_CUTS):
        where = np.where(time >= 0, share * trial, np.inf).argmin(axis=1)
        slope = np.bincount(where, weights=share[np.arange(len(share)), where], minlength=num)
        value = float(slope @ trial)
        if value > least:
            best, least = trial, value
        highs.addRow(-highspy.kHighsInf, 0.0, num + 1, columns, np.append(-slope, 1.0))
        highs.run()
        solution = highs.getSolution().col_value
        # v is above the bound of any weights: near the best one found, no weights prove more
        if len(solution) != num + 1 or solution[num] <= least * (1 + ENOUGH):
            break
        trial = np.maximum(solution[:num], 0.0)
    return best
