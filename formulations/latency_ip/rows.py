"""The latency IP of Tarnawski et al. (2020): index sets, windows, variables and rows of both forms.

`latency_ip` lists the components and the claim of the model; `objectives.calls.referee` has
the duration of a call. In all bounds an op counts as done when its call has brought in its inputs
and run its members up to this op, in topological order: no later than the call ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.old_families import Linear, first_of_group
from placegap.formulations.shared.pairs import consumers_of_tensors, edge_ends, tensor_edges
from placegap.formulations.shared.times import (
    Windows,
    granularity_ns,
    settled_windows,
    time_unit_ns,
)
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, LatencySubgraphs
from placegap.instances.problem.device_classes import identical_devices
from placegap.instances.problem.graph_index import all_by
from placegap.instances.problem.integers import UNSUPPORTED

Pair = tuple[int, int]


NEXT_TO_NOTHING = 0.1
"""Times up to this many units may vanish in solvers' tolerances; a horizon has up to 1000 units."""


# --------------------------------------------------------------------------------------- index sets


@dataclass(frozen=True)
class CallSets:
    """Index sets and data of a model."""

    instance: Instance
    #: Calls per accelerator, q.
    num_calls: int
    #: unit_ns, horizon: Nanoseconds per unit; the horizon in units.
    unit_ns: float
    horizon: float
    window: Windows
    #: (k, c)
    calls: list[Pair]
    #: producer, consumers: Producer and consumers of each tensor, every op once.
    producer: list[int]
    consumers: list[list[int]]
    #: entering, leaving: (u, k): Tensors that may enter accelerator k; that may leave it, and take
    #: time to do so.
    entering: list[Pair]
    leaving: list[Pair]
    #: time, host: Times of op i on device k and of tensor u at device k, in units.
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
    """Sets and data; `windowed`: without what the horizon excludes. O(m K) per round of windows."""
    arrays, index = instance.arrays, instance.arrays.index
    unit_ns = model_unit_ns(instance, horizon_ns)
    window = call_windows(instance, horizon_ns if windowed else serial_horizon_ns(instance))
    accelerators = [k for k in range(instance.num_devices) if not arrays.is_host[k]]
    consumers = consumers_of_tensors(instance)
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
    """Tarnawski et al., x, CommIn, CommOut: ``in_call[i, k, c]``, ``enters[u, k, c]`` and
    ``leaves[u, k, c]``.
    """
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


# --------------------------------------------------------------------------------- who is in a call


def colocate_pooled(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Tarnawski et al., colour classes: x[i, k] == x[j, k] on accelerators k, for every op i of a
    group and its first op j.

    So if one op is on a host, all are on hosts.
    """
    home = first_of_group(instance)
    x, accelerators = model.x, np.flatnonzero(~instance.arrays.is_host).tolist()

    @model.Constraint([i for i, j in enumerate(home) if i != j], accelerators)
    def colocate_pooled(_: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return x[i, k] == x[home[i], k]


def call_of_op(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Tarnawski et al., x: sum over c of in_call[i, k, c] == x[i, k], where there are several
    calls.
    """
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
    """Tarnawski et al., CommIn: enters[u, k, c] >= in_call[j, k, c] - in_call[i, k, c], i producer,
    j consumer of u.
    """
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
    """Tarnawski et al., CommOut: leaves[u, k, c] >= in_call[i, k, c] - in_call[j, k, c], i
    producer, j consumer of u.
    """
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
    """Tarnawski et al., contiguity, z: calls are convex, reached[i, k, c] falls along no path that
    leaves the call.

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


# ------------------------------------------------------------------------------------------- clocks


def call_waits(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Tarnawski et al., SubgraphStart: start[k, c] >= end[i] - horizon (1 - enters[u, k, c]), i the
    producer of tensor u.
    """

    @model.Constraint(list(model.enters))
    def call_waits(model: pyo.ConcreteModel, u: int, k: int, c: int) -> Linear:
        outside = sets.horizon * (1 - model.enters[u, k, c])
        return model.start[k, c] >= model.end[sets.producer[u]] - outside


def call_duration(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Tarnawski et al., SubgraphFinish: finish[k, c] - start[k, c] == inputs + compute + outputs.

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
    """Tarnawski et al., SubgraphStart: start[k, c] >= finish[k, c - 1]."""

    @model.Constraint([(k, c) for k, c in sets.calls if c])
    def call_after_call(model: pyo.ConcreteModel, k: int, c: int) -> Linear:
        return model.start[k, c] >= model.finish[k, c - 1]


def end_of_call(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Tarnawski et al., Latency: end[i] >= finish[k, c] - horizon (1 - in_call[i, k, c])."""

    @model.Constraint(list(model.in_call))
    def end_of_call(model: pyo.ConcreteModel, i: int, k: int, c: int) -> Linear:
        return model.end[i] >= model.finish[k, c] - sets.horizon * (1 - model.in_call[i, k, c])


def end_on_host(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Tarnawski et al., Latency: end[j] >= end[i] + sum over hosts h of p_jh x[j, h], for edges
    (i, j); without i for all j.

    The first holds on accelerators, too: an op ends no earlier than its producers.
    """
    hosts = np.flatnonzero(sets.instance.arrays.is_host).tolist()
    on_host = [
        sum(sets.time[i][h] * model.x[i, h] for h in hosts if sets.window.possible[i, h])
        for i in range(sets.instance.num_ops)
    ]

    @model.Constraint(list(dict.fromkeys(edge_ends(sets.instance))))
    def end_on_host(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        return model.end[j] >= model.end[i] + on_host[j]

    @model.Constraint([j for j in range(sets.instance.num_ops) if not isinstance(on_host[j], int)])
    def end_first_on_host(model: pyo.ConcreteModel, j: int) -> Linear:
        return model.end[j] >= on_host[j]


def latency_covers(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Tarnawski et al., TotalLatency: latency >= end[i]."""

    @model.Constraint(range(sets.instance.num_ops))
    def latency_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.latency >= model.end[i]


def empty_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Placegap's own: ranks of ops and calls rise along `empty_edges`: calls without time do not
    wait in a cycle.

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


# ------------------------------------------------------------------------------------- strengthened


def done_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Placegap's own: done[j] >= done[i] + sum over k of p_jk x[j, k] + moves, for edges (i, j);
    done[j] <= end[j].

    A call brings its inputs in, runs its members in topological order, takes its outputs out. Moves
    are host_uk (leaves[u, k, c] + enters[u, k, c]) over all calls, for a tensor u without other
    consumers, which could be what leaves or enters.
    """
    instance = sets.instance
    model.done = pyo.Var(range(instance.num_ops), bounds=(0, sets.horizon))
    moves: list[list[Linear]] = [[] for _ in sets.producer]
    for crossing in (model.leaves, model.enters):
        for (u, k, _), variable in crossing.items():
            if sets.host[u][k] and len(sets.consumers[u]) == 1:
                moves[u].append(sets.host[u][k] * variable)
    moved_along = [(i, j, u if moves[u] else -1) for i, j, u in tensor_edges(instance)]

    @model.Constraint(list(dict.fromkeys(moved_along)))
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
    """Placegap's own, heads and tails by device: done[i] >= head + p, done[i] + tail <= latency."""
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
    """Placegap's own: latency >= sum over c of finish[k, c] - start[k, c], for every accelerator
    k.
    """
    calls = range(sets.num_calls)

    @model.Constraint([k for k, c in sets.calls if c == 0])
    def work_covers(model: pyo.ConcreteModel, k: int) -> Linear:
        return model.latency >= sum(model.finish[k, c] - model.start[k, c] for c in calls)


def chain_covers(model: pyo.ConcreteModel, sets: CallSets, bound_ns: int) -> None:
    """Latency >= `latency_ip.chain_bound.chain_bound_ns`; what is above the horizon is not in the
    model.
    """
    bound = min(bound_ns / sets.unit_ns, 2 * sets.horizon + 1)
    model.chain_covers = pyo.Constraint(
        expr=model.latency >= bound, doc="Placegap's own: the bound of chains of calls"
    )


def equal_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """Placegap's own: equal accelerators are numbered by their first call, start[k, 0] <= start[l,
    0] for k < l.

    With one call each, no edge (i, j) leads back: for the part L of a class from its p-th member
    on, sum over k in L of x[i, k] + sum over the members before of x[j, k] <= 1.
    """
    classes = equal_accelerators(sets.instance)
    ends = list(dict.fromkeys(edge_ends(sets.instance)))

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
    """Placegap's own: of several calls, edges lead to later ones, and those without an op come
    last.

    For an edge (i, j), sum over c' >= c of in_call[i, k, c'] + sum over c' < c of in_call[j, k, c']
    <= 1; in_call[i, k, c] <= used[k, c - 1] <= sum over i of in_call[i, k, c - 1].
    """
    if sets.num_calls == 1:
        return
    num_calls, ends = sets.num_calls, dict.fromkeys(edge_ends(sets.instance))
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


# ----------------------------------------------------------------------------------- where and when


def serial_horizon_ns(instance: Instance) -> int:
    """An upper bound on every latency: all ops in a row, tensors out once and in per consumer."""
    arrays = instance.arrays
    ops = np.where(arrays.time_ns == UNSUPPORTED, 0, arrays.time_ns).max(axis=1).tolist()
    tensors = _host_ns(instance).max(axis=1, initial=0).tolist()
    return int(sum(ops) + sum(tensors) + sum(tensors[u] for u in arrays.index.tensor.tolist()))


def _host_ns(instance: Instance) -> Ints:
    """Time of each tensor into and out of each device, 0 on hosts."""
    return np.where(instance.arrays.is_host, 0, instance.arrays.host_ns)


def where_needed(instance: Instance) -> Flags:
    """Devices that some optimal plan may use for an op, (n, K).

    Hosts are one pool: a group may be spread over them. If a host can hold all ops, no other host
    is needed for the ops that it runs at least as fast (the first one is kept if several tie).
    """
    arrays = instance.arrays
    possible = arrays.time_ns != UNSUPPORTED
    total = int(arrays.resident_bytes.sum())
    roomy = np.flatnonzero(arrays.is_host & (arrays.memory_bytes >= total)).tolist()
    for i in range(instance.num_ops):
        able = [k for k in roomy if possible[i, k]]
        if able:
            best = min(able, key=lambda k: arrays.time_ns[i, k])
            slower = arrays.is_host & (arrays.time_ns[i] >= arrays.time_ns[i, best])
            slower[best] = False
            possible[i, slower] = False
    return _for_pooled_groups(instance, possible)


def _for_pooled_groups(instance: Instance, possible: Flags) -> Flags:
    """Devices possible for whole groups: one accelerator for all ops, or a host for each op."""
    group, is_host = instance.arrays.group, instance.arrays.is_host
    num_groups = instance.arrays.num_groups
    together = all_by(group, np.where(is_host, True, possible), num_groups)
    pooled = all_by(group, possible[:, is_host].any(axis=1), num_groups)
    together[~pooled] &= ~is_host
    return possible & together[group]


def call_windows(instance: Instance, horizon_ns: int) -> Windows:
    """Propagate heads, tails and the horizon until nothing changes; O(m K) per round.

    Along an edge the consumer is on the same device (perhaps in the same call), or pays host_time
    out of an accelerator and into one. Heads are times before the op, tails times between its being
    done and the end of the plan.
    """
    host = _host_ns(instance)

    def cross(done: Ints, tensor: int, back: bool) -> Ints:  # the same in both directions
        least: Ints = np.minimum(done, (done + host[tensor]).min() + host[tensor])
        return least

    whole_groups = partial(_for_pooled_groups, instance)
    return settled_windows(instance.arrays, where_needed(instance), horizon_ns, cross, whole_groups)


def empty_edges(instance: Instance, possible: Flags, largest_ns: int) -> list[int]:
    """Edges that may form a cycle of calls without any time, in input order.

    Times up to `largest_ns` count as none. Both ends of such an edge take no time on devices where
    the tensor takes none. Clocks exclude every other cycle, since some time passes on it.
    """
    index, is_host = instance.arrays.index, instance.arrays.is_host
    idle = (np.asarray(possible) > 0) & (instance.arrays.time_ns <= largest_ns)
    if not idle[:, ~is_host].any():  # hosts alone have no cycle
        return []
    free = _host_ns(instance)[index.tensor] <= largest_ns
    ends = [(idle[op] & free).any(axis=1) for op in (index.producer, index.consumer)]
    return np.flatnonzero(ends[0] & ends[1]).tolist()


def equal_accelerators(instance: Instance) -> list[tuple[int, ...]]:
    """Classes of two or more equal accelerators."""
    is_host = instance.arrays.is_host
    return [members for members in identical_devices(instance) if not is_host[members[0]]]
