"""A lower bound on latency_subgraphs from chains of ops, each of which comes after the one before.

Relaxation: a call is convex, so it meets a chain in an interval, and calls that meet the chain run
one after the other. The latency is at least the least sum of durations over all ways to cut the
chain into intervals, at most one per call, each within the largest memory, with single ops on hosts
between them. A DP over the chain finds it: value[j, s] for the first j ops and s calls.

A lower bound on the cost of an interval from op a to op b needs no solver: all ops between a and b
(after a and before b) are in its call; ops after the successor of b on the chain are not, nor are
those before the predecessor of a; a tensor with ends in both sets is paid. The other ops are on the
side where they cost least, which is a minimum cut (`CallCuts`). It is computed only for the
intervals of the best ways to cut the chain, and the DP is repeated.

Example by hand: the row a, b, c of docs/exact.md (1 ns and 1 byte each, tensors of 9 and 2 ns, two
calls of 2 bytes). Intervals cost a: 1 + 9, ab: 2 + 2, bc: 2 + 9, c: 1 + 2. So a | bc takes 21 and
ab | c takes 7 ns, which is the bound.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python import max_flow

from placegap.formulations.shared.pairs import reach_matrix
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, LatencySubgraphs
from placegap.instances.problem.graph_index import GraphIndex, sum_by
from placegap.instances.problem.integers import NEVER, UNSUPPORTED

MOST_OPS = 2500  # with more ops the bound is 0: reachability is a matrix of ops by ops
MOST_CUTS = 20_000  # most intervals per chain whose cost is refined by a minimum cut
INSIDE, OUTSIDE = 1, 2  # sides of ops that are surely in a call, and surely not; 0 for all others
Sides = NDArray[np.int8]


def chain_bound_ns(
    instance: Instance, semantics: LatencySubgraphs, time_limit_s: float | None = None
) -> int:
    """A lower bound on the latency, `NEVER` if no plan fits: the best bound of a few long paths."""
    # Paths of most accelerator time, of most time with transfers, of most bytes, of most ops. O(L^2
    # (n + m)) for a path of length L, and up to `MOST_CUTS` minimum cuts, fewer if the time is
    # over: the bound is valid after any number. Deterministic without a time limit.
    index, n = instance.arrays.index, instance.num_ops
    if n > MOST_OPS:
        return 0
    after = reach_matrix(index)
    chains = dict.fromkeys(tuple(_longest_path(index, w)) for w in _weights(instance))
    until = None if time_limit_s is None else time.perf_counter() + time_limit_s
    best = 0
    for chain in chains:
        if best == 0 or until is None or time.perf_counter() < until:
            bound = _ChainBound(instance, semantics, np.array(chain), after)
            best = max(best, bound.refined(MOST_CUTS, until))
    return best


def _weights(instance: Instance) -> list[Ints]:
    """The weights by which long paths are chosen, (n,) each."""
    arrays, index = instance.arrays, instance.arrays.index
    times = np.where(arrays.time_ns == UNSUPPORTED, NEVER, arrays.time_ns).min(axis=1)
    least = arrays.host_ns.min(axis=1, initial=NEVER)
    moves = sum_by(index.tensor_producer, least, instance.num_ops)
    one = np.ones_like(times)
    return [times, times + moves, arrays.resident_bytes, one]


def _longest_path(index: GraphIndex, weight: Ints) -> list[int]:
    """Ops of a path of most weight, then of most ops."""
    n = len(weight)
    length: list[tuple[int, int]] = [(0, 0)] * n
    before = [-1] * n
    for i in index.topological_order.tolist():
        best = (0, 0)
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            j = int(index.producer[e])
            if length[j] > best:
                best, before[i] = length[j], j
        length[i] = best[0] + int(weight[i]), best[1] + 1
    at = max(range(n), key=lambda i: length[i])
    path = []
    while at >= 0:
        path.append(at)
        at = before[at]
    return path[::-1]


class ChainOps(NamedTuple):
    """Least costs of n ops in a call: time of those that are `able`, bytes of their groups."""

    own_ns: Ints
    able: Flags
    group: Ints
    group_bytes: Ints


class ChainTensors(NamedTuple):
    """Producers, consumers and least move times of t tensors."""

    ptr: Ints
    consumer: Ints
    producer: Ints
    move_ns: Ints


class _ChainBound:
    """The bound of one chain of ops, (L,); `after`: whether op j comes after op i."""

    def __init__(
        self, instance: Instance, semantics: LatencySubgraphs, chain: Ints, after: Flags
    ) -> None:
        arrays, index = instance.arrays, instance.arrays.index
        accelerators = np.flatnonzero(~arrays.is_host)
        times = np.where(arrays.time_ns == UNSUPPORTED, NEVER, arrays.time_ns)
        own = times[:, accelerators].min(axis=1, initial=NEVER)
        able: Flags = np.asarray(own < NEVER)
        own = np.where(able, own, 0)
        room = int(arrays.memory_bytes[accelerators].max(initial=0))
        # without accelerators no call moves anything
        most = NEVER if len(accelerators) else 0
        move = arrays.host_ns[:, accelerators].min(axis=1, initial=most)
        self.chain, self.after, self.own = chain, after, own
        self.alone = times[:, arrays.is_host].min(axis=1, initial=NEVER)[chain]
        self.calls = min(len(accelerators) * semantics.subgraphs, len(chain))
        ops = ChainOps(own, able, arrays.group, arrays.group_bytes)
        consumer = index.consumer[index.tensor_edge]
        tensors = ChainTensors(index.tensor_ptr, consumer, index.tensor_producer, move)
        once = semantics.subgraphs == 1
        self.costs = _intervals(chain, after, ops, tensors, once, room)
        self.cuts = CallCuts(index, own, able, move)

    def value(self) -> tuple[int, list[tuple[int, int]]]:
        """The bound, and the intervals of a way to cut the chain that has it."""
        value, intervals = _cut_chain(self.costs, self.alone, self.calls)
        return int(value), [(i, j) for i, j in intervals.tolist()]

    def refined(self, most_cuts: int, until: float | None) -> int:
        """The bound once the intervals that decide it have their minimum cuts."""
        # Costs only rise, so the value is a bound at any time. It is final when all intervals of
        # the best way to cut the chain are refined: no other way is cheaper.
        value, intervals = self.value()
        done: dict[tuple[int, int], None] = {}
        while any(interval not in done for interval in intervals) and len(done) < most_cuts:
            if until is not None and time.perf_counter() > until:
                break
            for i, j in intervals:
                if (i, j) not in done:
                    done[i, j] = None
                    side = _sides(self.chain, i, j, self.after)
                    first, last = int(self.chain[i]), int(self.chain[j])
                    cut = self.cuts.least_ns(side, self.after[first], self.after[:, last])
                    base = int(self.own[side == INSIDE].sum())
                    self.costs[i, j] = max(self.costs[i, j], base + cut)
            value, intervals = self.value()
        return value


@kernel
def _sides(chain: Ints, i: int, j: int, after: Flags) -> Sides:
    """The sides of all ops for a call that meets the chain from i to j, (n,)."""
    first, last = chain[i], chain[j]
    side = np.zeros(len(after), np.int8)
    for v in range(len(after)):
        if (v == first or after[first, v]) and (v == last or after[v, last]):
            side[v] = INSIDE
        elif (i > 0 and (v == chain[i - 1] or after[v, chain[i - 1]])) or (
            j + 1 < len(chain) and (v == chain[j + 1] or after[chain[j + 1], v])
        ):
            side[v] = OUTSIDE
    return side


@kernel
def _intervals(
    chain: Ints, after: Flags, ops: ChainOps, tensors: ChainTensors, once: bool, room: int
) -> Ints:
    """Least times of calls that meet the chain from i to j, (L, L); `NEVER` if there is none."""
    # A call has the memory of all colocation groups of which it holds an op, and all their ops if
    # accelerators make one call. `seen` marks the groups counted for this interval.
    costs = np.full((len(chain), len(chain)), NEVER, np.int64)
    group = ops.group
    seen, stamp = np.full(len(ops.group_bytes), -1, np.int64), 0
    for i in range(len(chain)):
        for j in range(i, len(chain)):
            side = _sides(chain, i, j, after)
            total, used, fits, whole = np.int64(0), np.int64(0), True, True
            for v in range(len(side)):
                if side[v] == INSIDE:
                    total += ops.own_ns[v]
                    used += ops.group_bytes[group[v]] if seen[group[v]] != stamp else 0
                    seen[group[v]] = stamp
                    fits = bool(fits and ops.able[v] and used <= room)
            for v in range(len(side)):
                if once and side[v] == OUTSIDE and seen[group[v]] == stamp:
                    whole = False
            stamp += 1
            if not fits:  # nor does any longer interval
                break
            if not whole:
                continue
            for u in range(len(tensors.producer)):  # paid with one end inside and one outside
                maker = side[tensors.producer[u]]
                inside, outside = maker == INSIDE, maker == OUTSIDE
                for at in range(tensors.ptr[u], tensors.ptr[u + 1]):
                    inside |= side[tensors.consumer[at]] == INSIDE
                    outside |= side[tensors.consumer[at]] == OUTSIDE
                if inside and outside:
                    total += tensors.move_ns[u]
            costs[i, j] = total
    return costs


@kernel
def _cut_chain(costs: Ints, alone: Ints, calls: int) -> tuple[int, Ints]:
    """Least time to cut the chain into a limited number of intervals, and the intervals, (c, 2)."""
    # ``value[j, s]`` is that of the first j ops with s calls; ``origin[j, s]`` is the first op of
    # the last interval, -1 if the last op is on a host.
    length = len(alone)
    value = np.full((length + 1, calls + 1), NEVER, np.int64)
    origin = np.full((length + 1, calls + 1), -1, np.int64)
    value[0, 0] = 0
    for i in range(length):
        for s in range(calls + 1):
            before = value[i, s]
            if before < NEVER and alone[i] < NEVER and before + alone[i] < value[i + 1, s]:
                value[i + 1, s], origin[i + 1, s] = before + alone[i], -1
        for j in range(i, length):
            if costs[i, j] == NEVER:
                continue
            for s in range(calls):
                now = value[i, s] + costs[i, j]
                if value[i, s] < NEVER and now < value[j + 1, s + 1]:
                    value[j + 1, s + 1], origin[j + 1, s + 1] = now, i
    best = int(np.argmin(value[length]))
    intervals, found = np.zeros((calls, 2), np.int64), 0
    at, s = length, best
    while at > 0 and value[length, best] < NEVER:
        i = origin[at, s]
        if i < 0:
            at -= 1
        else:
            intervals[found, 0], intervals[found, 1] = i, at - 1
            at, s, found = i, s - 1, found + 1
    return value[length, best], intervals[:found]


class CallCuts:
    """Networks whose cuts are calls: the members of the call are on the source's side.

    A member costs its time. A tensor costs its move if it has ends on both sides: of its two nodes
    the first is on the source's side if some end is, the second on the sink's side if some end is,
    and then the arc between them is cut. `own_ns` and `move_ns` are lower bounds on the times of
    ops and tensors; `able` are the ops that an accelerator can run.
    """

    def __init__(self, index: GraphIndex, own_ns: Ints, able: Flags, move_ns: Ints) -> None:
        n, t = len(own_ns), len(move_ns)
        self.index, self.num_ops = index, n
        self.never = sum(own_ns.tolist()) + sum(move_ns.tolist()) + 1
        self.source, self.sink = n + 2 * t, n + 2 * t + 1
        first = n + np.arange(t)
        ends = np.concatenate([index.tensor_producer, index.consumer])
        of = np.concatenate([np.arange(t), index.tensor])
        always = np.full(2 * len(ends), self.never)
        self.tail = np.concatenate([np.arange(n), first, ends, n + t + of])
        self.head = np.concatenate([np.full(n, self.sink), first + t, n + of, ends])
        own = np.where(able, own_ns, self.never)
        self.capacity = np.concatenate([own, move_ns, always])

    def least_ns(self, side: NDArray[np.int8], after: Flags, before: Flags) -> int:
        """A lower bound on the time of a call without that of the ops surely in it."""
        # `side` is `INSIDE`, `OUTSIDE` or 0 for each op; `after` and `before` are the ops after and
        # before some op inside.
        # Arcs of convexity: if a member comes after an op inside, its producers that also come
        # after that op are members, and likewise backwards. So the cut cannot leave and come back.
        index, n = self.index, self.num_ops
        forward = after[index.producer] & after[index.consumer]
        back = before[index.producer] & before[index.consumer]
        tail = np.concatenate([self.tail, index.consumer[forward], index.producer[back]])
        head = np.concatenate([self.head, index.producer[forward], index.consumer[back]])
        more = np.full(len(tail) - len(self.tail), self.never)
        capacity = np.concatenate([self.capacity, more])
        node = np.arange(self.sink + 1)
        node[:n][side == INSIDE], node[:n][side == OUTSIDE] = self.source, self.sink
        own = np.arange(len(tail)) < n  # ops inside: their time is counted by the caller
        tail, head = node[tail], node[head]
        kept = (tail != self.sink) & (head != self.source) & (tail != head)
        kept &= ~(own & (tail == self.source))
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(tail[kept], head[kept], capacity[kept])
        if flow.solve(self.source, self.sink) != flow.OPTIMAL:  # sums beyond 64 bits
            return 0
        return int(flow.optimal_flow())
