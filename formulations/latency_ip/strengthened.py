"""Rows that strengthen the latency IP of Tarnawski et al.; `latency_ip` says what they are for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.latency_ip.rows import CallSets, equal_accelerators
from placegap.formulations.shared.families import Linear


def done_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """done[j] >= done[i] + sum over k of p_jk x[j, k] + moves, for edges (i, j); done[j] <= end[j].

    A call brings its inputs in, runs its members in topological order, takes its outputs out. Moves
    are host_uk (leaves[u, k, c] + enters[u, k, c]) over all calls, for a tensor u without other
    consumers, which could be what leaves or enters.
    """
    instance, index = sets.instance, sets.instance.arrays.index
    model.done = pyo.Var(range(instance.num_ops), bounds=(0, sets.horizon))
    moves: list[list[Linear]] = [[] for _ in sets.producer]
    for crossing in (model.leaves, model.enters):
        for (u, k, _), variable in crossing.items():
            if sets.host[u][k] and len(sets.consumers[u]) == 1:
                moves[u].append(sets.host[u][k] * variable)
    edges = {
        (i, j, u if moves[u] else -1): None
        for i, j, u in zip(
            index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist(), strict=True
        )
    }

    @model.Constraint(list(edges))
    def done_in_order(model: pyo.ConcreteModel, i: int, j: int, u: int) -> Linear:
        moved = sum(moves[u]) if u >= 0 else 0
        return model.done[j] >= model.done[i] + _per_device(model, sets, sets.time, j) + moved

    @model.Constraint(range(instance.num_ops))
    def done_by_end(model: pyo.ConcreteModel, j: int) -> Linear:
        return model.done[j] <= model.end[j]


def _per_device(
    model: pyo.ConcreteModel, sets: CallSets, values: list[list[float]], i: int
) -> Linear:
    """Sum over k of values[i][k] x[i, k]."""
    there = np.flatnonzero(sets.window.possible[i]).tolist()
    return sum(values[i][k] * model.x[i, k] for k in there)


def done_in_window(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Heads and tails by device: done[i] >= head + p, done[i] + tail <= latency."""
    unit_ns, window = sets.unit_ns, sets.window
    first = ((window.head_ns + sets.instance.arrays.time_ns) / unit_ns).tolist()
    tail = (window.tail_ns / unit_ns).tolist()

    @model.Constraint(range(sets.instance.num_ops))
    def done_after_head(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.done[i] >= _per_device(model, sets, first, i)

    @model.Constraint(range(sets.instance.num_ops))
    def done_before_tail(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.done[i] + _per_device(model, sets, tail, i) <= model.latency


def work_covers(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Latency >= sum over c of finish[k, c] - start[k, c], for every accelerator k."""
    calls = range(sets.num_calls)

    @model.Constraint([k for k, c in sets.calls if c == 0])
    def work_covers(model: pyo.ConcreteModel, k: int) -> Linear:
        return model.latency >= sum(model.finish[k, c] - model.start[k, c] for c in calls)


def chain_covers(model: pyo.ConcreteModel, sets: CallSets, bound_ns: int) -> None:
    """Latency >= `latency_ip.chain_bound.chain_bound_ns`; what is above the horizon is not in the
    model.
    """
    bound = min(bound_ns / sets.unit_ns, 2 * sets.horizon + 1)
    model.chain_covers = pyo.Constraint(expr=model.latency >= bound)


def equal_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Equal accelerators are numbered by their first call: start[k, 0] <= start[l, 0] for k < l.

    With one call each, no edge (i, j) leads back: for the part L of a class from its p-th member
    on, sum over k in L of x[i, k] + sum over the members before of x[j, k] <= 1.
    """
    classes = equal_accelerators(sets.instance)
    index = sets.instance.arrays.index
    ends = list(dict.fromkeys(zip(index.producer.tolist(), index.consumer.tolist(), strict=True)))

    @model.Constraint([pair for members in classes for pair in pairwise(members)])
    def equal_in_order_starts(model: pyo.ConcreteModel, k: int, other: int) -> Linear:
        return model.start[k, 0] <= model.start[other, 0]

    if sets.num_calls > 1:
        return
    rows = [
        (g, p, i, j)
        for g, members in enumerate(classes)
        for p in range(1, len(members))
        for i, j in ends
    ]

    @model.Constraint(rows)
    def equal_in_order(model: pyo.ConcreteModel, g: int, p: int, i: int, j: int) -> Linear:
        late = sum(model.x[i, k] for k in classes[g][p:])
        return late + sum(model.x[j, k] for k in classes[g][:p]) <= 1


def calls_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Where there are several calls: edges lead to later ones, and those without an op come last.

    For an edge (i, j), sum over c' >= c of in_call[i, k, c'] + sum over c' < c of in_call[j, k, c']
    <= 1; in_call[i, k, c] <= used[k, c - 1] <= sum over i of in_call[i, k, c - 1].
    """
    if sets.num_calls == 1:
        return
    index, num_calls = sets.instance.arrays.index, sets.num_calls
    ends = dict.fromkeys(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))
    may = sets.window.possible
    later = [(k, c) for k, c in sets.calls if c]
    model.used = pyo.Var([(k, c - 1) for k, c in later], bounds=(0, 1))

    @model.Constraint([(i, j, k, c) for i, j in ends for k, c in later if may[i, k] and may[j, k]])
    def calls_in_order(model: pyo.ConcreteModel, i: int, j: int, k: int, c: int) -> Linear:
        late = sum(model.in_call[i, k, d] for d in range(c, num_calls))
        return late + sum(model.in_call[j, k, d] for d in range(c)) <= 1

    @model.Constraint([(i, k, c) for k, c in later for i in sets.on(k)])
    def calls_in_order_follow(model: pyo.ConcreteModel, i: int, k: int, c: int) -> Linear:
        return model.in_call[i, k, c] <= model.used[k, c - 1]

    @model.Constraint([(k, c) for k, c in model.used if sets.on(k)])
    def calls_in_order_used(model: pyo.ConcreteModel, k: int, c: int) -> Linear:
        return model.used[k, c] <= sum(model.in_call[i, k, c] for i in sets.on(k))
