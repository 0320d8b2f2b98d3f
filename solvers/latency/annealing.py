"""Simulated annealing of plans for latency_subgraphs: groups of ops move between calls and hosts.

Every plan is evaluated as a whole, in O(n + m). The energy is the latency plus a small part of all
calls' time, so that calls off the longest path get shorter, too. A call is convex, so most single
moves into its middle close a cycle: groups are what comes before or after an op in its place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.instances.problem.kernels import copy_to, draw, kernel
from placegap.solvers.latency.calls import CallData, CallProblem, Scratch, call_latency, new_scratch

COLD = 1e-5
"""Temperature at the end, relative to the start's latency."""

SIDE = 0.02
"""What the sum of all calls counts beside the latency."""

ALONE, AROUND, LATER, EARLIER, WHOLE = range(5)
"""Groups: an op; with connected ones; with what comes after it, before it; its whole call."""


TO, LIKE, NEAR = range(3)
"""Where the others of a colocation group go: along; to the call of their number; to a neighbour."""


class _Group(NamedTuple):
    """Ops that move, where they were, where they go, and marks of those among them."""

    op: Ints
    source: Ints
    target: Ints
    mark: Ints


def anneal_calls(
    problem: CallProblem, start: Ints, *, seed: int, moves: int, hot: float = 0.01
) -> Ints:
    """The best plan seen, never slower than the start.

    Parameters
    ----------
    problem : CallProblem
    start : (n,) int64
        Place of each op, feasible: every plan that is taken is.
    seed, moves : int
        Random numbers, and how many moves are tried.
    hot : float
        Temperature at the beginning, relative to the start's latency; it falls to `COLD`.

    Notes
    -----
    O(n + m) per move that fits: 30 to 200 thousand a second on graphs of 800 to 180 ops.

    Examples
    --------
    Two ops of 5 and 5 ns that have nothing to do with each other are better apart:

    >>> from placegap.instances import Cluster, Device, Graph, Instance, Op
    >>> from placegap.solvers.latency.calls import build_call_problem
    >>> graph = Graph(name="two", ops=tuple(Op(name=x, time_ns={"gpu": 5}) for x in "ab"))
    >>> pair = Cluster(name="pair", devices=tuple(Device(name=x, kind="gpu") for x in "01"))
    >>> problem = build_call_problem(Instance(name="two", graph=graph, cluster=pair), 1)
    >>> problem.latency_ns(anneal_calls(problem, np.zeros(2, np.int64), seed=0, moves=100))
    5
    """
    if len(problem.data.device) < 2 or moves == 0:
        return start.copy()
    held = np.zeros(len(problem.data.memory_bytes), np.int64)
    np.add.at(held, problem.data.device[start], problem.data.size_bytes)
    best: Ints = _anneal(
        problem.data,
        new_scratch(problem.data),
        problem.group,
        problem.group_ptr,
        problem.member,
        start.copy(),
        held,
        np.random.default_rng(seed),
        moves,
        hot,
    )
    return best


@kernel(nogil=True)
def _anneal(
    data: CallData,
    scratch: Scratch,
    group: Ints,
    group_ptr: Ints,
    member: Ints,
    place: Ints,
    held: Ints,
    rng: np.random.Generator,
    moves: int,
    hot: float,
) -> Ints:
    n = len(place)
    zero = np.zeros(n, np.int64)
    chosen = _Group(zero, zero.copy(), zero.copy(), zero.copy())
    latency, total = call_latency(data, place, scratch)
    best, least, energy = place.copy(), latency, latency + SIDE * total
    unit, temperature = max(1.0, float(latency)), 0.0
    for step in range(moves):
        if step % 256 == 0:
            temperature = unit * hot * (COLD / hot) ** (step / moves)
        leaders = _choose(data, place, rng, chosen, step + 1)
        count = _with_groups(group, group_ptr, member, chosen, leaders, step + 1)
        to = _target(data, place, rng, chosen, count)
        chosen.target[:count] = to
        if data.subgraphs > 1 and count > leaders and to < data.num_calls:
            _followers(data, place, rng, chosen, leaders, count, to)
        if not _put(data, place, held, chosen, count, data.device[to]):
            continue
        latency, total = call_latency(data, place, scratch)
        after = latency + SIDE * total
        if latency < NEVER and (
            after <= energy or rng.random() < np.exp((energy - after) / temperature)
        ):
            energy = after
            if latency < least:
                least = latency
                copy_to(best, place)
        else:
            _put_back(data, place, held, chosen, count)
    return best


@kernel(nogil=True, allocates=False)
def _choose(
    data: CallData, place: Ints, rng: np.random.Generator, chosen: _Group, stamp: int
) -> int:
    """An op and others in its place, all on one side of it or all around it; how many."""
    v = draw(rng, len(place))
    kind = draw(rng, 20)
    kind = ALONE if kind < 6 else AROUND if kind < 10 else LATER if kind < 15 else EARLIER
    if kind == EARLIER and place[v] < data.num_calls and draw(rng, 40) == 0:
        kind = WHOLE
    most = len(place)
    if kind == AROUND or (place[v] >= data.num_calls or draw(rng, 2) == 0):
        most = 1 + draw(rng, 2 << draw(rng, 7))
    chosen.op[0], chosen.mark[v] = v, stamp
    count, at = 1, 0
    if kind == WHOLE:
        for w in range(len(place)):
            if place[w] == place[v] and w != v:
                chosen.op[count], chosen.mark[w] = w, stamp
                count += 1
        return count
    while kind != ALONE and at < count < most:
        w = chosen.op[at]
        at += 1
        if kind != EARLIER:
            count = _spread(data.succ_ptr, data.succ, place, chosen, w, count, most, stamp)
        if kind != LATER:
            count = _spread(data.pred_ptr, data.pred, place, chosen, w, count, most, stamp)
    return count


@kernel(nogil=True, allocates=False)
def _spread(
    ptr: Ints,
    neighbour: Ints,
    place: Ints,
    chosen: _Group,
    w: int,
    count: int,
    most: int,
    stamp: int,
) -> int:
    """Neighbours of an op in the same place join the group; how many are in it."""
    for at in range(ptr[w], ptr[w + 1]):
        u = neighbour[at]
        if count < most and chosen.mark[u] != stamp and place[u] == place[w]:
            chosen.op[count], chosen.mark[u] = u, stamp
            count += 1
    return count


@kernel(nogil=True, allocates=False)
def _with_groups(
    group: Ints, group_ptr: Ints, member: Ints, chosen: _Group, count: int, stamp: int
) -> int:
    """Whole colocation groups move."""
    for at in range(count):
        g = group[chosen.op[at]]
        for index in range(group_ptr[g], group_ptr[g + 1]):
            if chosen.mark[member[index]] != stamp:
                chosen.op[count], chosen.mark[member[index]] = member[index], stamp
                count += 1
    return count


@kernel(nogil=True, allocates=False)
def _target(
    data: CallData, place: Ints, rng: np.random.Generator, chosen: _Group, count: int
) -> int:
    """The place of a neighbour of the group, three times out of four; else any."""
    if draw(rng, 4) == 0:
        return draw(rng, len(data.device))
    for _ in range(4):
        v = chosen.op[draw(rng, count)]
        out = data.succ_ptr[v + 1] - data.succ_ptr[v]
        degree = out + data.pred_ptr[v + 1] - data.pred_ptr[v]
        if degree == 0:
            continue
        at = draw(rng, degree)
        w = data.succ[data.succ_ptr[v] + at] if at < out else data.pred[data.pred_ptr[v] + at - out]
        if place[w] != place[v]:
            return int(place[w])
    return draw(rng, len(data.device))


@kernel(nogil=True, allocates=False)
def _followers(
    data: CallData,
    place: Ints,
    rng: np.random.Generator,
    chosen: _Group,
    leaders: int,
    count: int,
    to: int,
) -> None:
    """The calls of one accelerator that the others of colocation groups go to."""
    kind, first = draw(rng, 3), to - to % data.subgraphs
    if kind == TO:
        return
    for at in range(leaders, count):
        v = chosen.op[at]
        if place[v] < data.num_calls:
            chosen.target[at] = first + place[v] % data.subgraphs
        if kind == NEAR:
            out = data.succ_ptr[v + 1] - data.succ_ptr[v]
            degree = out + data.pred_ptr[v + 1] - data.pred_ptr[v]
            begin = draw(rng, max(degree, 1))
            for turn in range(degree):
                e = (begin + turn) % degree
                if e < out:
                    w = data.succ[data.succ_ptr[v] + e]
                else:
                    w = data.pred[data.pred_ptr[v] + e - out]
                if first <= place[w] < first + data.subgraphs:
                    chosen.target[at] = place[w]
                    break


@kernel(nogil=True, allocates=False)
def _put(data: CallData, place: Ints, held: Ints, chosen: _Group, count: int, device: int) -> bool:
    """Move the group; False, and nothing moves, if it cannot or need not."""
    more, moved = np.int64(0), False
    for at in range(count):
        v = chosen.op[at]
        if data.time_ns[v, device] == UNSUPPORTED:
            return False
        moved |= place[v] != chosen.target[at]
        if data.device[place[v]] != device:
            more += data.size_bytes[v]
    if not moved or held[device] + more > data.memory_bytes[device]:
        return False
    for at in range(count):
        v = chosen.op[at]
        chosen.source[at] = place[v]
        held[data.device[place[v]]] -= data.size_bytes[v]
        held[device] += data.size_bytes[v]
        place[v] = chosen.target[at]
    return True


@kernel(nogil=True, allocates=False)
def _put_back(data: CallData, place: Ints, held: Ints, chosen: _Group, count: int) -> None:
    for at in range(count):
        v = chosen.op[at]
        held[data.device[place[v]]] -= data.size_bytes[v]
        place[v] = chosen.source[at]
        held[data.device[place[v]]] += data.size_bytes[v]
