"""Moirai's MILP as published (Zhang et al., section III-D, equations 4 to 8).

Claim: exact for ``makespan port per_edge``. Every data flow, that is every edge q = (i, j), is a
node of the augmented graph with a start and an end of its own. Components of the model:

- ``x[i, k]``: op i is on device k;
- ``op_start[i]``, ``op_end[i]``, ``flow_start[q]``, ``flow_end[q]``, ``makespan``: times;
- ``remote[q]`` (the paper's z): the ends of q are on different devices;
- ``channel[q, a, b]`` (u): q is sent from device a to device b;
- ``op_before[i, j]``, ``flow_before[q, r]`` (the indicators of 6 and 8): the first of an unordered
  pair runs first.

In place of the published 100,000 the big-M is a horizon: no plan of interest takes longer. Verbatim
it is 100,000 for all of M_s, M_l, M_r, and (8) has the published + x_b + x_d.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pyomo.environ as pyo

from placegap.formulations.shared.old_families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
)
from placegap.formulations.shared.pairs import (
    Ends,
    count_unordered_pairs,
    edge_ends,
    flow_reach,
    op_reach,
    unordered_pairs,
)
from placegap.formulations.shared.times import ScaledTimes, scale_times
from placegap.instances.problem import Instance

BIG_M = 100_000.0
"""The big-M of the paper's code, in its unit of time. Units of a model are such that no plan takes
more than 1,000 of them (`LARGEST_TIME`): nothing is cut off."""


def build(instance: Instance, horizon_ns: int, verbatim: bool = False) -> pyo.ConcreteModel:
    """The published model; see `moirai.build`."""
    ends, num_devices = edge_ends(instance), instance.num_devices
    times = scale_times(instance, horizon_ns)
    if verbatim:
        times = replace(times, horizon=BIG_M)
    form = "verbatim" if verbatim else "as published"
    model = pyo.ConcreteModel(name=f"moirai {form}: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, instance.arrays.able)
    time_variables(model, times)
    flow_variables(model, ends, num_devices)
    order_variables(model, instance)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    makespan_covers(model)
    op_duration(model, times)
    flow_duration(model, times)
    precedence_flows(model, ends)
    precedence_ops(model, instance)
    remote_flows(model, ends, num_devices)
    channel_choice(model, ends)
    device_no_overlap(model, times)
    channel_no_overlap(model, ends, times, verbatim)
    model.objective = pyo.Objective(expr=model.makespan, doc="Moirai (4): the makespan")
    return model


def count_rows(instance: Instance) -> int:
    """Rows of the model, those of memory and colocation aside; O(m^2 / 64), nothing is built."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m = len(index.producer)
    descendants, after = op_reach(index)[1], flow_reach(index)[1]
    times = (n + m) + 2 * n + m + 2 * m + sum(ops.bit_count() for ops in descendants)
    channels = m * (3 * k + k * (k - 1) + (k > 1))
    pairs = 2 * k * count_unordered_pairs(descendants) + 4 * k * count_unordered_pairs(after)
    return times + channels + pairs


# ---------------------------------------------------------------------------------------- variables


def time_variables(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Starts and ends of ops and flows, and the makespan, all in [0, horizon]."""
    ops, flows, bounds = range(len(times.op)), range(len(times.move)), (0, times.horizon)
    model.op_start = pyo.Var(ops, bounds=bounds)
    model.op_end = pyo.Var(ops, bounds=bounds)
    model.flow_start = pyo.Var(flows, bounds=bounds)
    model.flow_end = pyo.Var(flows, bounds=bounds)
    model.makespan = pyo.Var(bounds=bounds)


def flow_variables(model: pyo.ConcreteModel, ends: Ends, num_devices: int) -> None:
    """``remote[q]`` and ``channel[q, a, b]``, a != b, in {0, 1}."""
    pairs = list(permutations(range(num_devices), 2))
    model.remote = pyo.Var(range(len(ends)), domain=pyo.Binary)
    model.channel = pyo.Var(
        [(q, a, b) for q in range(len(ends)) for a, b in pairs], domain=pyo.Binary
    )


def order_variables(model: pyo.ConcreteModel, instance: Instance) -> None:
    """``op_before[i, j]`` and ``flow_before[q, r]`` in {0, 1} for pairs that no path orders."""
    index = instance.arrays.index
    op_pairs = list(unordered_pairs(*op_reach(index)))
    flow_pairs = list(unordered_pairs(*flow_reach(index)))
    model.op_before = pyo.Var(op_pairs, domain=pyo.Binary)
    model.flow_before = pyo.Var(flow_pairs, domain=pyo.Binary)


# -------------------------------------------------------------------------------------- constraints


def makespan_covers(model: pyo.ConcreteModel) -> None:
    """Moirai (4): makespan >= op_end[i] for all ops, makespan >= flow_end[q] for all flows."""

    @model.Constraint(model.op_end.index_set())
    def makespan_covers_ops(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.makespan >= model.op_end[i]

    @model.Constraint(model.flow_end.index_set())
    def makespan_covers_flows(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.makespan >= model.flow_end[q]


def op_duration(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Moirai (4b): op_end[i] == op_start[i] + sum over k of p_ik x[i, k]."""
    devices = range(len(times.op[0]))

    @model.Constraint(model.op_start.index_set())
    def op_duration(model: pyo.ConcreteModel, i: int) -> Linear:
        work = sum(times.op[i][k] * model.x[i, k] for k in devices)
        return model.op_end[i] == model.op_start[i] + work


def flow_duration(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Moirai (7), last line: flow_end[q] == flow_start[q] + sum over a, b of p_qab channel[q, a,
    b].
    """
    pairs = list(permutations(range(len(times.op[0])), 2))

    @model.Constraint(model.flow_start.index_set())
    def flow_duration(model: pyo.ConcreteModel, q: int) -> Linear:
        work = sum(times.move[q][a][b] * model.channel[q, a, b] for a, b in pairs)
        return model.flow_end[q] == model.flow_start[q] + work


def precedence_flows(model: pyo.ConcreteModel, ends: Ends) -> None:
    """Moirai (4a): op_end[i] <= flow_start[q] and flow_end[q] <= op_start[j] for every flow q = (i,
    j).
    """

    @model.Constraint(range(len(ends)))
    def precedence_producer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.op_end[ends[q][0]] <= model.flow_start[q]

    @model.Constraint(range(len(ends)))
    def precedence_consumer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.flow_end[q] <= model.op_start[ends[q][1]]


def precedence_ops(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Moirai (4a): op_end[i] <= op_start[j] for every op i and its direct and indirect successors
    j.
    """
    _, descendants = op_reach(instance.arrays.index)
    ops = range(instance.num_ops)

    @model.Constraint([(i, j) for i in ops for j in ops if descendants[i] >> j & 1])
    def precedence_ops(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        return model.op_end[i] <= model.op_start[j]


def remote_flows(model: pyo.ConcreteModel, ends: Ends, num_devices: int) -> None:
    """Moirai (7): remote[q] is 1 if and only if the ends of q = (i, j) are on different devices.

    For every device k: remote[q] >= x[i, k] - x[j, k], remote[q] >= x[j, k] - x[i, k] and
    remote[q] <= 2 - x[i, k] - x[j, k].
    """
    flows, devices, x = range(len(ends)), range(num_devices), model.x

    @model.Constraint(flows, devices)
    def remote_leaves(model: pyo.ConcreteModel, q: int, k: int) -> Linear:
        return model.remote[q] >= x[ends[q][0], k] - x[ends[q][1], k]

    @model.Constraint(flows, devices)
    def remote_enters(model: pyo.ConcreteModel, q: int, k: int) -> Linear:
        return model.remote[q] >= x[ends[q][1], k] - x[ends[q][0], k]

    @model.Constraint(flows, devices)
    def remote_not_within(model: pyo.ConcreteModel, q: int, k: int) -> Linear:
        return model.remote[q] <= 2 - x[ends[q][0], k] - x[ends[q][1], k]


def channel_choice(model: pyo.ConcreteModel, ends: Ends) -> None:
    """Moirai (7): a remote flow takes one channel, that of its ends' devices.

    Sum over a, b of channel[q, a, b] == remote[q], and
    channel[q, a, b] >= x[i, a] + x[j, b] - 1 for q = (i, j) and every a != b.
    """
    used: list[list[Linear]] = [[] for _ in ends]
    for (q, _, _), channel in model.channel.items():
        used[q].append(channel)

    @model.Constraint([q for q in range(len(ends)) if used[q]])
    def channel_once(model: pyo.ConcreteModel, q: int) -> Linear:
        return sum(used[q]) == model.remote[q]

    @model.Constraint(model.channel.index_set())
    def channel_joins(model: pyo.ConcreteModel, q: int, a: int, b: int) -> Linear:
        return model.channel[q, a, b] >= model.x[ends[q][0], a] + model.x[ends[q][1], b] - 1


def device_no_overlap(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Moirai (6): of two ops that no path orders, both on device k, one starts after the other
    ends.

    op_start[j] >= op_end[i] - H (1 - op_before[i, j]) - H (2 - x[i, k] - x[j, k]) and
    op_start[i] >= op_end[j] - H op_before[i, j] - H (2 - x[i, k] - x[j, k]).
    """
    horizon, x, devices = times.horizon, model.x, range(len(times.op[0]))
    start, end, before = model.op_start, model.op_end, model.op_before

    @model.Constraint(before.index_set(), devices)
    def device_no_overlap_forth(_: pyo.ConcreteModel, i: int, j: int, k: int) -> Linear:
        return start[j] >= end[i] - horizon * (3 - before[i, j] - x[i, k] - x[j, k])

    @model.Constraint(before.index_set(), devices)
    def device_no_overlap_back(_: pyo.ConcreteModel, i: int, j: int, k: int) -> Linear:
        return start[i] >= end[j] - horizon * (2 + before[i, j] - x[i, k] - x[j, k])


def channel_no_overlap(
    model: pyo.ConcreteModel, ends: Ends, times: ScaledTimes, verbatim: bool = False
) -> None:
    """Moirai (8): of two remote flows out of one device, or into one, one starts after the other
    ends.

    For i, j = the producers of q, r (or their consumers) and every device k:
    flow_start[r] >= flow_end[q]
    - H (1 - flow_before[q, r]) - H (4 - remote[q] - remote[r] - x[i, k] - x[j, k]), and likewise
    with q and r, flow_before and 1 - flow_before, exchanged. Verbatim the last sum also has
    + x[b, k] + x[d, k] of the flows' other ends b, d: 0 where both are remote and i, j on k.
    """
    horizon, x, remote = times.horizon, model.x, model.remote
    start, end, before = model.flow_start, model.flow_end, model.flow_before
    index = before.index_set(), range(2), range(len(times.op[0]))

    def elsewhere(q: int, r: int, side: int, k: int) -> Linear:
        tight = 4 - remote[q] - remote[r] - x[ends[q][side], k] - x[ends[r][side], k]
        return tight + (x[ends[q][1 - side], k] + x[ends[r][1 - side], k] if verbatim else 0)

    @model.Constraint(*index)
    def channel_no_overlap_forth(_: pyo.ConcreteModel, q: int, r: int, side: int, k: int) -> Linear:
        return start[r] >= end[q] - horizon * (1 - before[q, r] + elsewhere(q, r, side, k))

    @model.Constraint(*index)
    def channel_no_overlap_back(_: pyo.ConcreteModel, q: int, r: int, side: int, k: int) -> Linear:
        return start[q] >= end[r] - horizon * (before[q, r] + elsewhere(q, r, side, k))
