"""The latency IP of Tarnawski et al.: index sets, variables and rows of the published model.

`latency_ip` lists the components and says what the model claims.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.latency_ip.rows import (
    CallWindows,
    call_windows,
    empty_edges,
    serial_horizon_ns,
)
from placegap.formulations.shared.families import Linear
from placegap.formulations.shared.pairs import edge_ends
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import LatencySubgraphs

Pair = tuple[int, int]

NEXT_TO_NOTHING = 0.1
"""Units of time (of which a horizon has up to 1000) that solvers' tolerances may hide."""


@dataclass(frozen=True)
class CallSets:
    """Index sets and data of a model.

    Attributes
    ----------
    instance : Instance
    num_calls : int
        q.
    unit_ns, horizon : float
        Nanoseconds per unit; the horizon in units.
    window : CallWindows
    calls : list of (k, c)
    producer, consumers : list of int, list of lists of int
        Of each tensor, every op once.
    entering, leaving : list of (u, k)
        Tensors that may enter accelerator k; that may leave it, and take time to do so.
    time, host : nested lists of float
        Of op i on device k and of tensor u at device k, in units.
    """

    instance: Instance
    num_calls: int
    unit_ns: float
    horizon: float
    window: CallWindows
    calls: list[Pair]
    producer: list[int]
    consumers: list[list[int]]
    entering: list[Pair]
    leaving: list[Pair]
    time: list[list[float]]
    host: list[list[float]]

    def on(self, k: int) -> list[int]:
        """Ops that may be on a device."""
        ops: list[int] = np.flatnonzero(self.window.possible[:, k]).tolist()
        return ops


def model_unit_ns(instance: Instance, horizon_ns: int | None) -> float:
    """Nanoseconds per unit of model time; of the model without a horizon by default."""
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    return time_unit_ns(horizon, granularity_ns(instance, transfers=False))


def index_sets(
    instance: Instance, semantics: LatencySubgraphs, horizon_ns: int, *, windowed: bool = True
) -> CallSets:
    """Sets and data; `windowed`: without what the horizon rules out. O(m K) per round of these."""
    arrays, index = instance.arrays, instance.arrays.index
    unit_ns = model_unit_ns(instance, horizon_ns)
    window = call_windows(instance, horizon_ns if windowed else serial_horizon_ns(instance))
    accelerators = [k for k in range(instance.num_devices) if not arrays.is_host[k]]
    consumers = [
        sorted(set(index.consumer[index.tensor_edge[a:b]].tolist()))
        for a, b in zip(index.tensor_ptr[:-1], index.tensor_ptr[1:], strict=True)
    ]
    producer, may = index.tensor_producer.tolist(), window.possible
    tensors = range(len(producer))
    return CallSets(
        instance,
        semantics.subgraphs,
        unit_ns,
        horizon_ns / unit_ns,
        window,
        calls=[(k, c) for k in accelerators for c in range(semantics.subgraphs)],
        producer=producer,
        consumers=consumers,
        entering=[(u, k) for u in tensors for k in accelerators if may[consumers[u], k].any()],
        leaving=[
            (u, k)
            for u in tensors
            for k in accelerators
            if may[producer[u], k] and arrays.host_ns[u, k]
        ],
        time=(arrays.time_ns / unit_ns).tolist(),
        host=(arrays.host_ns / unit_ns).tolist(),
    )


# ---------------------------------------------------------------------------------------- variables


def call_variables(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """``in_call[i, k, c]``, ``enters[u, k, c]`` and ``leaves[u, k, c]``."""
    members = [(i, k, c) for k, c in sets.calls for i in sets.on(k)]
    if sets.num_calls == 1:
        model.in_call = pyo.Expression(members, rule=lambda model, i, k, c: model.x[i, k])
    else:
        model.in_call = pyo.Var(members, domain=pyo.Binary)
    calls = range(sets.num_calls)
    model.enters = pyo.Var([(u, k, c) for u, k in sets.entering for c in calls], bounds=(0, 1))
    model.leaves = pyo.Var([(u, k, c) for u, k in sets.leaving for c in calls], bounds=(0, 1))


def time_variables(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """``start``, ``finish``, ``end`` and ``latency``, from 0 to the horizon."""
    span = (0, sets.horizon)
    model.start = pyo.Var(sets.calls, bounds=span)
    model.finish = pyo.Var(sets.calls, bounds=span)
    model.end = pyo.Var(range(sets.instance.num_ops), bounds=span)
    model.latency = pyo.Var(bounds=span)


# -------------------------------------------------------------------------------- who is in a call


def colocate_pooled(model: pyo.ConcreteModel, instance: Instance) -> None:
    """x[i, k] == x[j, k] on accelerators k, for every op i of a group and its first op j.

    So if one op is on a host, all are on hosts.
    """
    first: dict[int, int] = {}
    home = [first.setdefault(g, i) for i, g in enumerate(instance.arrays.group.tolist())]
    x, accelerators = model.x, np.flatnonzero(~instance.arrays.is_host).tolist()

    @model.Constraint([i for i, j in enumerate(home) if i != j], accelerators)
    def colocate_pooled(_: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return x[i, k] == x[home[i], k]


def call_of_op(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Sum over c of in_call[i, k, c] == x[i, k], where there are several calls."""
    if sets.num_calls == 1:
        return
    rows = [(i, k) for k in {k: None for k, _ in sets.calls} for i in sets.on(k)]

    @model.Constraint(rows)
    def call_of_op(model: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return sum(model.in_call[i, k, c] for c in range(sets.num_calls)) == model.x[i, k]


def inside_call(model: pyo.ConcreteModel, i: int, k: int, c: int) -> Linear:
    """in_call[i, k, c], or 0 where the op cannot be."""
    members = model.in_call.index_set()
    return model.in_call[i, k, c] if (i, k, c) in members else 0


def tensor_enters(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """enters[u, k, c] >= in_call[j, k, c] - in_call[i, k, c], i producer, j consumer of u."""
    rows = [
        (u, j, k, c)
        for u, k in sets.entering
        for j in sets.consumers[u]
        if sets.window.possible[j, k]
        for c in range(sets.num_calls)
    ]

    @model.Constraint(rows)
    def tensor_enters(model: pyo.ConcreteModel, u: int, j: int, k: int, c: int) -> Linear:
        made_here = inside_call(model, sets.producer[u], k, c)
        return model.enters[u, k, c] >= model.in_call[j, k, c] - made_here


def tensor_leaves(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """leaves[u, k, c] >= in_call[i, k, c] - in_call[j, k, c], i producer, j consumer of u."""
    rows = [
        (u, j, k, c)
        for u, k in sets.leaving
        for j in sets.consumers[u]
        for c in range(sets.num_calls)
    ]

    @model.Constraint(rows)
    def tensor_leaves(model: pyo.ConcreteModel, u: int, j: int, k: int, c: int) -> Linear:
        return model.leaves[u, k, c] >= model.in_call[sets.producer[u], k, c] - inside_call(
            model, j, k, c
        )


def call_convex(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Calls are convex: reached[i, k, c] falls along no path that leaves the call.

    Their variable z: reached[i] >= in_call[i]; along an edge (i, j), reached[j] <= reached[i] and
    reached[j] <= in_call[j] - in_call[i] + 1. (So an op after the call is not reached.)
    """
    ends = edge_ends(sets.instance)
    ops = range(sets.instance.num_ops)
    model.reached = pyo.Var([(i, k, c) for i in ops for k, c in sets.calls], bounds=(0, 1))

    @model.Constraint(list(model.in_call))
    def call_convex_members(model: pyo.ConcreteModel, i: int, k: int, c: int) -> Linear:
        return model.reached[i, k, c] >= model.in_call[i, k, c]

    @model.Constraint(range(len(ends)), sets.calls)
    def call_convex_falls(model: pyo.ConcreteModel, e: int, k: int, c: int) -> Linear:
        i, j = ends[e]
        return model.reached[j, k, c] <= model.reached[i, k, c]

    @model.Constraint(
        [
            (e, k, c)
            for e in range(len(ends))
            for k, c in sets.calls
            if sets.window.possible[ends[e][0], k]
        ]
    )
    def call_convex_leaves(model: pyo.ConcreteModel, e: int, k: int, c: int) -> Linear:
        i, j = ends[e]
        return model.reached[j, k, c] <= inside_call(model, j, k, c) - model.in_call[i, k, c] + 1


# ------------------------------------------------------------------------------------------ clocks


def call_waits(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """start[k, c] >= end[i] - horizon (1 - enters[u, k, c]), i the producer of tensor u."""

    @model.Constraint(list(model.enters))
    def call_waits(model: pyo.ConcreteModel, u: int, k: int, c: int) -> Linear:
        outside = sets.horizon * (1 - model.enters[u, k, c])
        return model.start[k, c] >= model.end[sets.producer[u]] - outside


def call_duration(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """finish[k, c] - start[k, c] == inputs + compute + outputs.

    Sum over u of host_uk enters[u, k, c], over i of p_ik in_call[i, k, c], over u of
    host_uk leaves[u, k, c].
    """
    parts: dict[Pair, list[Linear]] = {call: [] for call in sets.calls}
    for (u, k, c), enters in model.enters.items():
        if sets.host[u][k]:
            parts[k, c].append(sets.host[u][k] * enters)
    for (i, k, c), member in model.in_call.items():
        parts[k, c].append(sets.time[i][k] * member)
    for (u, k, c), leaves in model.leaves.items():
        parts[k, c].append(sets.host[u][k] * leaves)

    @model.Constraint(sets.calls)
    def call_duration(model: pyo.ConcreteModel, k: int, c: int) -> Linear:
        return model.finish[k, c] - model.start[k, c] == sum(parts[k, c])


def call_after_call(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """start[k, c] >= finish[k, c - 1]."""

    @model.Constraint([(k, c) for k, c in sets.calls if c])
    def call_after_call(model: pyo.ConcreteModel, k: int, c: int) -> Linear:
        return model.start[k, c] >= model.finish[k, c - 1]


def end_of_call(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """end[i] >= finish[k, c] - horizon (1 - in_call[i, k, c])."""

    @model.Constraint(list(model.in_call))
    def end_of_call(model: pyo.ConcreteModel, i: int, k: int, c: int) -> Linear:
        return model.end[i] >= model.finish[k, c] - sets.horizon * (1 - model.in_call[i, k, c])


def end_on_host(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """end[j] >= end[i] + sum over hosts h of p_jh x[j, h], for edges (i, j); without i for all j.

    The first holds on accelerators, too: an op ends no earlier than its producers.
    """
    index = sets.instance.arrays.index
    hosts = np.flatnonzero(sets.instance.arrays.is_host).tolist()
    on_host = [
        sum(sets.time[i][h] * model.x[i, h] for h in hosts if sets.window.possible[i, h])
        for i in range(sets.instance.num_ops)
    ]
    pairs = dict.fromkeys(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))

    @model.Constraint(list(pairs))
    def end_on_host(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        return model.end[j] >= model.end[i] + on_host[j]

    @model.Constraint([j for j in range(sets.instance.num_ops) if not isinstance(on_host[j], int)])
    def end_first_on_host(model: pyo.ConcreteModel, j: int) -> Linear:
        return model.end[j] >= on_host[j]


def latency_covers(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Latency >= end[i]."""

    @model.Constraint(range(sets.instance.num_ops))
    def latency_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.latency >= model.end[i]


def empty_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Ranks of ops and calls rise along `empty_edges`: calls without time do not wait in a cycle.

    For an edge (i, j) of tensor u: rank_call[k, c] >= rank[i] + 1 if u enters the call, and
    rank[j] >= rank[i] + 1 if j is on a host; rank[j] >= rank_call[k, c] if j is in the call;
    rank_call[k, c] >= rank_call[k, c - 1] + 1.
    """
    instance, index = sets.instance, sets.instance.arrays.index
    largest_ns = int(NEXT_TO_NOTHING * sets.unit_ns)
    edges = empty_edges(instance, sets.window.possible, largest_ns)
    if not edges:
        return
    ends = [(int(index.producer[e]), int(index.consumer[e])) for e in edges]
    touched = sorted({i for pair in ends for i in pair})
    tensors = dict.fromkeys(index.tensor[edges].tolist())
    most = instance.num_ops + len(sets.calls)
    hosts = np.flatnonzero(instance.arrays.is_host).tolist()
    model.rank = pyo.Var(touched, bounds=(0, most))
    model.rank_call = pyo.Var(sets.calls, bounds=(0, most))

    @model.Constraint([(u, k, c) for u, k, c in model.enters if u in tensors])
    def empty_in_order_waits(model: pyo.ConcreteModel, u: int, k: int, c: int) -> Linear:
        outside = (most + 1) * (1 - model.enters[u, k, c])
        return model.rank_call[k, c] >= model.rank[sets.producer[u]] + 1 - outside

    @model.Constraint([(i, k, c) for i, k, c in model.in_call if i in model.rank])
    def empty_in_order_members(model: pyo.ConcreteModel, i: int, k: int, c: int) -> Linear:
        return model.rank[i] >= model.rank_call[k, c] - most * (1 - model.in_call[i, k, c])

    @model.Constraint(list(dict.fromkeys(ends)))
    def empty_in_order_hosts(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        return model.rank[j] >= model.rank[i] + sum(model.x[j, h] for h in hosts)

    @model.Constraint([(k, c) for k, c in sets.calls if c])
    def empty_in_order_calls(model: pyo.ConcreteModel, k: int, c: int) -> Linear:
        return model.rank_call[k, c] >= model.rank_call[k, c - 1] + 1
