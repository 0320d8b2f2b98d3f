"""Simulated annealing of plans for latency_subgraphs: groups of ops move between calls and hosts.

Every plan is evaluated as a whole, in O(n + m). The energy is the latency plus a small share of the
sum of all calls, so that calls off the longest path get shorter, too. A call is convex, so taking a
single op out of its middle mostly closes a cycle: groups are therefore all ops of a place that come
before an op, or after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.solvers.latency.calls import CallProblem, Scratch, call_latency, new_scratch
from placegap.solvers.local_search.cooling import heat_at

COLD = 1e-5  # temperature at the end, relative to the start's latency
SIDE = 0.02  # weight of the sum of all calls beside the latency
# Groups: an op alone; with connected ops; with those after it; with those before it; all of its
# call.
ALONE, AROUND, LATER, EARLIER, WHOLE = range(5)


# Targets of the other ops of a colocation group: the same call; the call of their old number; the
# call of a neighbour.
TO, LIKE, NEAR = range(3)


class _Group(NamedTuple):
    """Ops that move, their old and new places, and marks of the ops among them."""

    op: Ints
    source: Ints
    target: Ints
    mark: Ints


def anneal_calls(
    problem: CallProblem, start: Ints, *, seed: int, moves: int, hot: float = 0.01
) -> Ints:
    """The best plan found, never slower than the start."""
    # The start must be feasible, and all accepted plans are. The temperature falls from `hot`,
    # relative to the start's latency, to `COLD`. O(n + m) per move that fits: 30 to 200 thousand a
    # second on graphs of 800 to 180 ops.
    if len(problem.device) < 2 or moves == 0:
        return start.copy()
    held = sum_by(problem.device[start], problem.resident_bytes, len(problem.memory_bytes))
    rng = np.random.default_rng(seed)
    best: Ints = _anneal(problem, new_scratch(problem), start.copy(), held, rng, moves, hot)
    return best


@kernel(nogil=True)
def _anneal(
    problem: CallProblem,
    scratch: Scratch,
    place: Ints,
    held: Ints,
    rng: np.random.Generator,
    moves: int,
    hot: float,
) -> Ints:
    n = len(place)
    zero = np.zeros(n, np.int64)
    chosen = _Group(zero, zero.copy(), zero.copy(), zero.copy())
    latency, total = call_latency(problem, place, scratch)
    best, least, energy = place.copy(), latency, latency + SIDE * total
    unit, temperature = max(1.0, float(latency)), 0.0
    for step in range(moves):
        if step % 256 == 0:
            temperature = heat_at(unit * hot, COLD / hot, step / moves)
        leaders = _choose(problem, place, rng, chosen, step + 1)
        count = leaders
        # A colocation group moves as a whole: its other ops follow after the chosen ones.
        for at in range(leaders):
            g = problem.group[chosen.op[at]]
            for index in range(problem.group_ptr[g], problem.group_ptr[g + 1]):
                v = problem.member[index]
                if chosen.mark[v] != step + 1:
                    chosen.op[count], chosen.mark[v] = v, step + 1
                    count += 1
        to = _aim(problem, place, rng, chosen, leaders, count)
        device, more, goes, runs = problem.device[to], np.int64(0), False, True
        for at in range(count):
            v = chosen.op[at]
            runs = runs and problem.time_ns[v, device] != UNSUPPORTED
            goes |= place[v] != chosen.target[at]
            if problem.device[place[v]] != device:
                more += problem.resident_bytes[v]
        # Support and memory are checked before the evaluation, which takes nearly all time.
        if not runs or not goes or held[device] + more > problem.memory_bytes[device]:
            continue
        for at in range(count):
            v = chosen.op[at]
            chosen.source[at] = place[v]
            held[problem.device[place[v]]] -= problem.resident_bytes[v]
            place[v] = chosen.target[at]
            held[device] += problem.resident_bytes[v]
        latency, total = call_latency(problem, place, scratch)
        after = latency + SIDE * total
        if latency < NEVER and (
            after <= energy or rng.random() < np.exp((energy - after) / temperature)
        ):
            energy = after
            if latency < least:
                least = latency
                copy_to(best, place)
        else:
            # The move is made in place, and undone below if it is rejected or closes a cycle.
            for at in range(count):
                v = chosen.op[at]
                held[device] -= problem.resident_bytes[v]
                place[v] = chosen.source[at]
                held[problem.device[place[v]]] += problem.resident_bytes[v]
    return best


@kernel(nogil=True, allocates=False)
def _choose(
    problem: CallProblem, place: Ints, rng: np.random.Generator, chosen: _Group, stamp: int
) -> int:
    """Choose an op and others of its place, on one side or around it; returns their number."""
    # Of 20 moves 6 take one op, 4 a connected group, 5 what comes after it and 5 what comes before
    # it; rarely a whole call. Later and earlier parts of a call are complete half of the time, so
    # that what remains is convex; otherwise their size is drawn on a logarithmic scale.
    v = draw(rng, len(place))
    kind = draw(rng, 20)
    kind = ALONE if kind < 6 else AROUND if kind < 10 else LATER if kind < 15 else EARLIER
    if kind == EARLIER and place[v] < problem.num_calls and draw(rng, 40) == 0:
        kind = WHOLE
    most = len(place)
    if kind == AROUND or (place[v] >= problem.num_calls or draw(rng, 2) == 0):
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
        for back in range(2):  # first the consumers of w, then its producers
            if kind == (EARLIER, LATER)[back]:
                continue
            ptr, near = (problem.succ_ptr, problem.succ)
            if back:
                ptr, near = (problem.pred_ptr, problem.pred)
            for e in range(ptr[w], ptr[w + 1]):
                u = near[e]
                if count < most and chosen.mark[u] != stamp and place[u] == place[w]:
                    chosen.op[count], chosen.mark[u] = u, stamp
                    count += 1
    return count


@kernel(nogil=True, allocates=False)
def _aim(
    problem: CallProblem,
    place: Ints,
    rng: np.random.Generator,
    chosen: _Group,
    leaders: int,
    count: int,
) -> int:
    """Draw targets: the place of a neighbour of the group, three times out of four; else any."""
    # Next to a neighbour fewer tensors are paid. Ops that only their colocation group adds must be
    # on the same accelerator, but may be in other calls of it (`TO`, `LIKE`, `NEAR`).
    to = draw(rng, len(problem.device)) if draw(rng, 4) == 0 else -1
    tries = 4 if to < 0 else 0
    for _ in range(tries):
        v = chosen.op[draw(rng, count)]
        degree = _degree(problem, v)
        if degree > 0:
            w = _neighbour(problem, v, draw(rng, degree))
            if place[w] != place[v]:
                to = place[w]
                break
    if to < 0:
        to = draw(rng, len(problem.device))
    chosen.target[:count] = to
    if problem.subgraphs == 1 or count == leaders or to >= problem.num_calls:
        return int(to)
    kind, first = draw(rng, 3), to - to % problem.subgraphs
    for at in range(leaders, count if kind != TO else leaders):
        v = chosen.op[at]
        if place[v] < problem.num_calls:
            chosen.target[at] = first + place[v] % problem.subgraphs
        if kind == NEAR:
            degree = _degree(problem, v)
            begin = draw(rng, max(degree, 1))
            for turn in range(degree):
                w = _neighbour(problem, v, (begin + turn) % degree)
                if first <= place[w] < first + problem.subgraphs:
                    chosen.target[at] = place[w]
                    break
    return int(to)


@kernel(inline="always", allocates=False)
def _degree(problem: CallProblem, v: int) -> int:
    """Number of edges out of an op and into it."""
    out = problem.succ_ptr[v + 1] - problem.succ_ptr[v]
    return int(out + problem.pred_ptr[v + 1] - problem.pred_ptr[v])


@kernel(inline="always", allocates=False)
def _neighbour(problem: CallProblem, v: int, at: int) -> int:
    """The other end of one of an op's edges, those that lead out of it first."""
    out = problem.succ_ptr[v + 1] - problem.succ_ptr[v]
    if at < out:
        w = problem.succ[problem.succ_ptr[v] + at]
    else:
        w = problem.pred[problem.pred_ptr[v] + at - out]
    return int(w)
