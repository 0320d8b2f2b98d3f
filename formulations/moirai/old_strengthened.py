"""Moirai's MILP, strengthened: the same optima, fewer rows and a better LP bound.

Claim: exact for ``makespan C per_edge``, C any of ``free``, ``link``, ``port``, ``half_duplex``,
among the plans of at most the horizon. It is the published model (`moirai.published`) with these
changes:

- transport linking: ``route[q, a, b]`` stands for x[i, a] x[j, b], q = (i, j), a == b included, and
  is tied to x by its row and column sums;
- windows (`windows`): a choice that no plan of at most the horizon makes has no variable, and each
  pair of ops or flows has its own big-M;
- transitive pruning: no row for what a path or the windows order already; one big-M row per order
  of a pair instead of one per device;
- work rows: no device and no channel is busy for longer than the makespan;
- head and tail rows: the device-indexed critical paths into and out of an op;
- channels other than ports, for which flows compete in the same way; a flow from device a to
  device b occupies the ``link`` (a, b), or the ``port`` out of a and the one into b, or the only
  port of a and that of b (``half_duplex``), or nothing (``free``);
- symmetry breaking: of placements that differ in the names of identical devices, one
  (`shared.devices`).

Components of the model:

- ``x[i, k]``: op i is on device k; ``route[q, a, b]``: edge q goes from device a to device b;
- ``op_start[i]``, ``flow_start[q]``, ``makespan``: times;
- ``op_before[i, j]``, ``flow_before[q, r]``, on ordered pairs: the first ends before the second
  starts.

An *item* is an op or a flow; it competes for devices or channels with the items whose windows
overlap its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.devices import (
    count_symmetry_rows,
    representative_devices,
    symmetry_order,
)
from placegap.formulations.shared.old_families import (
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
from placegap.formulations.shared.times import (
    ScaledTimes,
    Windows,
    moves_in_time,
    scale_times,
    windows,
)
from placegap.instances.problem import Channels, Instance
from placegap.instances.problem.device_classes import identical_devices
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

Pair = tuple[int, int]


Arcs = list[Pair]
"""Device pairs (a, b) that an edge may take."""


def build(
    instance: Instance, horizon_ns: int, channels: Channels, symmetry: bool
) -> pyo.ConcreteModel:
    """The strengthened model; see `moirai.build`."""
    classes = identical_devices(instance) if symmetry else ()
    window, times = windows(instance, horizon_ns), scale_times(instance, horizon_ns)
    kept = representative_devices(instance, window.possible, classes)
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
        symmetry_order(model, instance, window.possible, classes)
    model.objective = pyo.Objective(expr=model.makespan, doc="Moirai (4): the makespan")
    return model


def count_rows(instance: Instance, channels: Channels, symmetry: bool) -> int:
    """An upper bound on the rows, without memory and colocation; O(m^2 / 64), nothing is built."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m = len(index.producer)
    rows = 3 * n + (2 * k + 2) * m + k
    rows += (k + 2) * count_unordered_pairs(op_reach(index)[1])
    num_channels = {"free": 0, "link": k * (k - 1), "port": 2 * k, "half_duplex": k}[channels]
    if num_channels:
        pairs = count_unordered_pairs(flow_reach(index)[1])
        rows += num_channels + (num_channels + 2) * pairs
    return rows + symmetry * count_symmetry_rows(instance)


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
    """Moirai (4b), (7), expressions: op_end[i] = op_start[i] + sum over k of p_ik x[i, k],
    flow_end[q] likewise.
    """
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
    """Moirai (7): an edge q = (i, j) leaves the device of i and enters the device of j.

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
    """Moirai (4a): op_end[i] <= flow_start[q] and flow_end[q] <= op_start[j] for every flow q = (i,
    j).
    """
    index = instance.arrays.index
    producer, consumer = index.producer.tolist(), index.consumer.tolist()

    @model.Constraint(model.flow_start.index_set())
    def precedence_producer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.op_end[producer[q]] <= model.flow_start[q]

    @model.Constraint(model.flow_start.index_set())
    def precedence_consumer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.flow_end[q] <= model.op_start[consumer[q]]


def device_work(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Placegap's own: sum over i of p_ik x[i, k] <= makespan for every device k."""
    ops, devices = range(len(times.op)), range(len(times.op[0]))

    @model.Constraint(devices)
    def device_work(model: pyo.ConcreteModel, k: int) -> Linear:
        return sum(times.op[i][k] * model.x[i, k] for i in ops) <= model.makespan


def channel_work(model: pyo.ConcreteModel, times: ScaledTimes, channels: Channels) -> None:
    """Placegap's own: sum of p_qab route[q, a, b] <= makespan over the flows q, arcs (a, b) of a
    channel.
    """
    num_devices = len(times.op[0])
    work: dict[int, list[Linear]] = {}
    for (q, a, b), route in model.route.items():
        if times.move[q][a][b]:
            for channel in channels_of(channels, num_devices, a, b):
                work.setdefault(channel, []).append(times.move[q][a][b] * route)
    work.pop(NO_CHANNEL, None)

    @model.Constraint(sorted(work))
    def channel_work(model: pyo.ConcreteModel, channel: int) -> Linear:
        return sum(work[channel]) <= model.makespan


def critical_path(
    model: pyo.ConcreteModel, instance: Instance, window: Windows, times: ScaledTimes
) -> None:
    """Moirai (4), with heads and tails: the makespan covers every op.

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
    """Moirai (6): of two ops on one device, one starts after the other ends.

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


def channel_no_overlap(
    model: pyo.ConcreteModel, instance: Instance, items: list[Item], channels: Channels
) -> None:
    """Moirai (8): of two remote flows that share a channel, one starts after the other ends.

    flow_start[r] >= flow_end[q] - M_qr (1 - flow_before[q, r]) for both orders of the pair, and
    flow_before[q, r] + flow_before[r, q] >= use(q) + use(r) - 1 (`channel_sharing`).
    """
    orders, pairs = competing(items, unordered_pairs(*flow_reach(instance.arrays.index)))
    model.flow_before = pyo.Var(orders, domain=pyo.Binary)
    unit_ns, before = pyo.value(model.unit_ns), model.flow_before

    @model.Constraint(orders)
    def channel_no_overlap(model: pyo.ConcreteModel, q: int, r: int) -> Linear:
        slack = (items[q].latest_ns - items[r].earliest_ns) / unit_ns * (1 - before[q, r])
        return model.flow_start[r] >= model.flow_end[q] - slack

    channel_sharing(model, instance, items, channels, pairs)


def channel_sharing(
    model: pyo.ConcreteModel,
    instance: Instance,
    items: list[Item],
    channels: Channels,
    pairs: list[Pair],
) -> None:
    """Moirai (8): flow_before[q, r] + flow_before[r, q] >= use(q) + use(r) - 1 for every use that
    they share.

    For q = (i, j), use(q) is

    - of link (a, b): route[q, a, b];
    - of the port out of k: x[i, k] - route[q, k, k]; of the port into k: x[j, k] - route[q, k, k];
    - of the only port of k: the sum of these two.

    With an end in common, fewer rows do. Flows of one producer share a port as soon as both are
    remote: use(q) = 1 - sum over k of route[q, k, k]. They share a link as soon as both go into one
    device k: use(q) = x[j, k] - route[q, k, k]. Likewise flows into one consumer.
    """
    # Why fewer rows suffice: the published rows need a pair, a channel and both flows on it, which
    # an LP avoids by spreading x. If an end is common, the flows are on the same device there
    # whichever it is, so the sum over devices is a single row, and a stronger one.
    index, num_devices = instance.arrays.index, instance.num_devices
    before, x = model.flow_before, model.x
    ends = index.producer.tolist(), index.consumer.tolist()
    local_route = {key: route for key, route in model.route.items() if key[1] == key[2]}
    # A port belongs to one device, so one common end is enough to share it; a link needs both.
    enough = 2 if channels == "link" else 1
    common = {(q, r): [end[q] == end[r] for end in ends] for q, r in pairs}
    akin = [pair for pair, same in common.items() if sum(same) >= enough]
    half = [pair for pair, same in common.items() if 0 < sum(same) < enough]
    other = [pair for pair, same in common.items() if not any(same)]
    shared = {(q, r): sorted(items[q].resources & items[r].resources) for q, r in pairs}

    def other_end(q: int, r: int) -> int:  # the end that the two flows do not have in common
        return 1 if common[q, r][0] else 0

    def local(q: int, k: int) -> Linear:
        return local_route.get((q, k, k), 0)

    def remote(q: int) -> Linear:
        return 1 - sum(local(q, k) for k in range(num_devices))

    def at(q: int, side: int, k: int) -> Linear:
        return x[ends[side][q], k] - local(q, k)

    # Channels are numbered as in `channels_of`: link a K + b, port k out of device k and port K + k
    # into it, single port k.
    def use(q: int, channel: int) -> Linear:
        first, second = divmod(channel, num_devices)
        if channels == "link":
            return model.route[q, first, second]
        if channels == "port":
            return at(q, first, second)
        return at(q, 0, channel) + at(q, 1, channel)

    @model.Constraint(akin)
    def channel_shared_by_end(_: pyo.ConcreteModel, q: int, r: int) -> Linear:
        return either(before, q, r) >= remote(q) + remote(r) - 1

    @model.Constraint(
        [
            (q, r, k)
            for q, r in half
            for k in sorted({divmod(c, num_devices)[other_end(q, r)] for c in shared[q, r]})
        ]
    )
    def channel_shared_at_end(_: pyo.ConcreteModel, q: int, r: int, k: int) -> Linear:
        return either(before, q, r) >= at(q, other_end(q, r), k) + at(r, other_end(q, r), k) - 1

    @model.Constraint([(q, r, c) for q, r in other for c in shared[q, r]])
    def channel_shared(_: pyo.ConcreteModel, q: int, r: int, channel: int) -> Linear:
        return either(before, q, r) >= use(q, channel) + use(r, channel) - 1


# ------------------------------------------------------------------------------------ what competes


@dataclass(frozen=True)
class Item:
    """The window of an op or a flow, in ns, and the resources that it may occupy."""

    #: earliest_ns, latest_ns: Earliest start and latest end.
    earliest_ns: int
    latest_ns: int
    #: shortest_ns, longest_ns: Least and largest duration on a resource.
    shortest_ns: int
    longest_ns: int
    #: Devices of an op; channels of a flow, by their numbers (`channels_of`).
    resources: frozenset[int]


def possible_arcs(instance: Instance, window: Windows, horizon_ns: int) -> list[Arcs]:
    """The device pairs that each edge can take in a plan of at most the horizon; O(m K^2)."""
    tables = moves_in_time(instance, window, horizon_ns)
    return [[(a, b) for a, b in np.argwhere(may).tolist()] for may in tables]


def op_items(instance: Instance, window: Windows, horizon_ns: int) -> list[Item]:
    """Windows of the ops."""
    items = []
    for i, row in enumerate(window.possible):
        devices = np.flatnonzero(row)
        time_ns = instance.arrays.time_ns[i, devices]
        items.append(
            Item(
                int(window.head_ns[i, devices].min(initial=horizon_ns)),
                horizon_ns - int(window.tail_ns[i, devices].min(initial=horizon_ns)),
                int(time_ns.min(initial=horizon_ns)),
                int(time_ns.max(initial=0)),
                frozenset(devices.tolist()),
            )
        )
    return items


def flow_items(
    instance: Instance, window: Windows, arcs: list[Arcs], horizon_ns: int, channels: Channels
) -> list[Item]:
    """Windows of the flows, and the channels that they may take."""
    arrays, num_devices = instance.arrays, instance.num_devices
    until, since = window.head_ns + arrays.time_ns, window.tail_ns + arrays.time_ns
    index, items = arrays.index, []
    for q, pairs in enumerate(arcs):
        i, j = index.producer[q], index.consumer[q]
        move = arrays.transfer_ns[index.tensor[q]][arrays.link_class]
        remote = [(a, b) for a, b in pairs if a != b]
        durations = [int(move[arc]) for arc in remote]
        items.append(
            Item(
                min((int(until[i, a]) for a, _ in pairs), default=horizon_ns),
                horizon_ns - min((int(since[j, b]) for _, b in pairs), default=horizon_ns),
                min(durations, default=horizon_ns),
                max(durations, default=0),
                frozenset(
                    c for a, b in remote for c in channels_of(channels, num_devices, a, b)
                ).difference([NO_CHANNEL]),
            )
        )
    return items


def competing(items: list[Item], unordered: Iterable[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The orders (first, second) that the model must decide on, and their pairs.

    Pairs are left out that share no resource, that take no time, or that the windows order; and so
    are orders that the windows exclude.
    """
    orders, pairs = [], []
    for i, j in unordered:
        one, two = items[i], items[j]
        if (
            one.resources.isdisjoint(two.resources)
            or one.longest_ns + two.longest_ns == 0
            or one.latest_ns <= two.earliest_ns
            or two.latest_ns <= one.earliest_ns
        ):
            continue
        pairs.append((i, j))
        together = one.shortest_ns + two.shortest_ns
        if one.earliest_ns + together <= two.latest_ns:
            orders.append((i, j))
        if two.earliest_ns + together <= one.latest_ns:
            orders.append((j, i))
    return orders, pairs


def either(before: pyo.Var, i: int, j: int) -> Linear:
    """before[i, j] + before[j, i], as far as these orders are possible."""
    return sum(before[pair] for pair in ((i, j), (j, i)) if pair in before)
