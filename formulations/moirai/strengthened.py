"""Moirai's MILP, strengthened: the same optima, fewer rows and a better LP bound.

Claim: exact for ``makespan C per_edge``, C any of ``free``, ``link``, ``port``, ``half_duplex``,
among the plans of at most the horizon. It is the published model (`moirai.published`) with these
changes:

- transport linking: ``route[q, a, b]`` stands for x[i, a] x[j, b], q = (i, j), a == b included, and
  is tied to x by its row and column sums;
- windows (`windows`): what cannot belong to a plan of at most the horizon gets no variable, and
  every pair of ops or flows has a big-M of its own;
- transitive pruning: no row for what a path or the windows order already; one big-M row per order
  of a pair instead of one per device;
- work rows: no device and no channel is busy for longer than the makespan;
- head and tail rows: the device-indexed critical paths into and out of an op;
- channels other than ports, which flows compete for in the same way (`moirai.channels`);
- symmetry breaking: of placements that differ in the names of identical devices, one (`symmetry`).

Components of the model:

- ``x[i, k]``: op i is on device k; ``route[q, a, b]``: edge q goes from device a to device b;
- ``op_start[i]``, ``flow_start[q]``, ``makespan``: times;
- ``op_before[i, j]``, ``flow_before[q, r]``, on ordered pairs: the first ends before the second
  starts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.moirai.strengthened import (
    Arcs,
    Item,
    channel_no_overlap,
    channel_work,
    competing,
    either,
    flow_items,
    op_items,
    possible_arcs,
)
from placegap.formulations.shared import symmetry as symmetries
from placegap.formulations.shared.families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
)
from placegap.formulations.shared.pairs import (
    count_unordered_pairs,
    flow_reach,
    op_reach,
    unordered_pairs,
)
from placegap.formulations.shared.times import ScaledTimes, Windows, scale_times, windows
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Channels


def build(
    instance: Instance, horizon_ns: int, channels: Channels, symmetry: bool
) -> pyo.ConcreteModel:
    """The strengthened model; see `moirai.build`."""
    classes = symmetries.identical_devices(instance) if symmetry else ()
    window, times = windows(instance, horizon_ns), scale_times(instance, horizon_ns)
    kept = symmetries.representative_devices(instance, window.possible, classes)
    window = replace(window, possible=kept)
    arcs = possible_arcs(instance, window, horizon_ns)
    model = pyo.ConcreteModel(name=f"moirai strengthened: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, window.possible)
    route_flows(model, arcs)
    time_variables(model, times)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    route_links(model, instance, arcs)
    add_durations(model, times, arcs)
    precedence_flows(model, instance)
    device_work(model, times)
    channel_work(model, times, channels)
    critical_path(model, instance, window, times)
    device_no_overlap(model, instance, op_items(instance, window, horizon_ns))
    channel_no_overlap(
        model, instance, flow_items(instance, window, arcs, horizon_ns, channels), channels
    )
    if classes:
        symmetries.symmetry_order(model, instance, window.possible, classes)
    model.objective = pyo.Objective(expr=model.makespan)
    return model


def count_rows(instance: Instance, channels: Channels, symmetry: bool) -> int:
    """At most so many rows, those of memory and colocation aside; O(m^2 / 64), nothing is built."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m = len(index.producer)
    rows = 3 * n + (2 * k + 2) * m + k
    rows += (k + 2) * count_unordered_pairs(op_reach(index)[1])
    num_channels = {"free": 0, "link": k * (k - 1), "port": 2 * k, "half_duplex": k}[channels]
    if num_channels:
        pairs = count_unordered_pairs(flow_reach(index)[1])
        rows += num_channels + (num_channels + 2) * pairs
    return rows + symmetry * symmetries.count_rows(instance)


# ---------------------------------------------------------------------------------------- variables


def route_flows(model: pyo.ConcreteModel, arcs: list[Arcs]) -> None:
    """``route[q, a, b]`` in [0, 1] for the possible device pairs; integral where x is."""
    routes = [(q, a, b) for q, pairs in enumerate(arcs) for a, b in pairs]
    model.route = pyo.Var(routes, bounds=(0, 1))


def time_variables(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Starts of ops and flows, and the makespan, all in [0, horizon]."""
    bounds = (0, times.horizon)
    model.op_start = pyo.Var(range(len(times.op)), bounds=bounds)
    model.flow_start = pyo.Var(range(len(times.move)), bounds=bounds)
    model.makespan = pyo.Var(bounds=bounds)


def add_durations(model: pyo.ConcreteModel, times: ScaledTimes, arcs: list[Arcs]) -> None:
    """Expressions: op_end[i] = op_start[i] + sum over k of p_ik x[i, k], flow_end[q] likewise."""
    devices = range(len(times.op[0]))

    @model.Expression(model.op_start.index_set())
    def op_end(model: pyo.ConcreteModel, i: int) -> Linear:
        possible = [k for k in devices if not model.x[i, k].fixed]
        return model.op_start[i] + sum(times.op[i][k] * model.x[i, k] for k in possible)

    @model.Expression(model.flow_start.index_set())
    def flow_end(model: pyo.ConcreteModel, q: int) -> Linear:
        remote = [(a, b) for a, b in arcs[q] if a != b]
        work = sum(times.move[q][a][b] * model.route[q, a, b] for a, b in remote)
        return model.flow_start[q] + work


# -------------------------------------------------------------------------------------- constraints


def route_links(model: pyo.ConcreteModel, instance: Instance, arcs: list[Arcs]) -> None:
    """An edge q = (i, j) leaves the device of i and enters the device of j.

    Sum over b of route[q, a, b] == x[i, a] for every a, and
    sum over a of route[q, a, b] == x[j, b] for every b.
    """
    index, flows, devices = instance.arrays.index, range(len(arcs)), range(instance.num_devices)
    producer, consumer, route = index.producer.tolist(), index.consumer.tolist(), model.route

    @model.Constraint(flows, devices)
    def route_leaves(model: pyo.ConcreteModel, q: int, k: int) -> Linear:
        total = sum(route[q, a, b] for a, b in arcs[q] if a == k)
        return model.x[producer[q], k] == total

    @model.Constraint(flows, devices)
    def route_enters(model: pyo.ConcreteModel, q: int, k: int) -> Linear:
        total = sum(route[q, a, b] for a, b in arcs[q] if b == k)
        return model.x[consumer[q], k] == total


def precedence_flows(model: pyo.ConcreteModel, instance: Instance) -> None:
    """(4a): op_end[i] <= flow_start[q] and flow_end[q] <= op_start[j] for every flow q = (i, j)."""
    index = instance.arrays.index
    producer, consumer = index.producer.tolist(), index.consumer.tolist()

    @model.Constraint(model.flow_start.index_set())
    def precedence_producer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.op_end[producer[q]] <= model.flow_start[q]

    @model.Constraint(model.flow_start.index_set())
    def precedence_consumer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.flow_end[q] <= model.op_start[consumer[q]]


def device_work(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Sum over i of p_ik x[i, k] <= makespan for every device k."""
    ops, devices = range(len(times.op)), range(len(times.op[0]))

    @model.Constraint(devices)
    def device_work(model: pyo.ConcreteModel, k: int) -> Linear:
        return sum(times.op[i][k] * model.x[i, k] for i in ops) <= model.makespan


def critical_path(
    model: pyo.ConcreteModel, instance: Instance, window: Windows, times: ScaledTimes
) -> None:
    """Heads and tails, and the makespan covers every op (4).

    op_start[i] >= sum over k of head_ik x[i, k] and
    makespan >= op_end[i] + sum over k of tail_ik x[i, k].
    With a single edge on that side of the op, `route` and `precedence_flows` imply the row.
    """
    index, devices = instance.arrays.index, range(instance.num_devices)
    head, tail = window.head_ns / times.unit_ns, window.tail_ns / times.unit_ns
    num_preds, num_succs = np.diff(index.pred_ptr), np.diff(index.succ_ptr)

    def at(level: np.ndarray, i: int) -> Linear:
        possible = [k for k in devices if window.possible[i, k]]
        return sum(float(level[i, k]) * model.x[i, k] for k in possible)

    @model.Constraint(np.flatnonzero(num_preds > 1).tolist())
    def critical_path_head(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.op_start[i] >= at(head, i)

    @model.Constraint(np.flatnonzero(num_succs != 1).tolist())
    def makespan_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.makespan >= model.op_end[i] + at(tail, i)


def device_no_overlap(model: pyo.ConcreteModel, instance: Instance, items: list[Item]) -> None:
    """(6): of two ops on one device, one starts after the other ends.

    op_start[j] >= op_end[i] - M_ij (1 - op_before[i, j]) for both orders of the pair, and
    op_before[i, j] + op_before[j, i] >= x[i, k] + x[j, k] - 1 for every device k.
    """
    orders, pairs = competing(items, unordered_pairs(*op_reach(instance.arrays.index)))
    model.op_before = pyo.Var(orders, domain=pyo.Binary)
    unit_ns, before, x = pyo.value(model.unit_ns), model.op_before, model.x
    shared = [(i, j, k) for i, j in pairs for k in sorted(items[i].resources & items[j].resources)]

    @model.Constraint(orders)
    def device_no_overlap(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        slack = (items[i].latest_ns - items[j].earliest_ns) / unit_ns * (1 - before[i, j])
        return model.op_start[j] >= model.op_end[i] - slack

    @model.Constraint(shared)
    def device_shared(_: pyo.ConcreteModel, i: int, j: int, k: int) -> Linear:
        return either(before, i, j) >= x[i, k] + x[j, k] - 1
