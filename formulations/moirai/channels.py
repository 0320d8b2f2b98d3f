"""Moirai's MILP, strengthened: the channels that its flows compete for.

Equation (8) of the paper states ports. What a flow occupies is all that tells the channels apart:
a flow from device a to device b takes ``link`` (a, b); or the ``port`` out of a and the one into b;
or the only port of a and that of b (``half_duplex``); or nothing (``free``).
"""

from __future__ import annotations

import pyomo.environ as pyo

from placegap.formulations.moirai.strengthened import Item, Pair, competing, either
from placegap.formulations.shared.families import Linear
from placegap.formulations.shared.pairs import flow_reach, unordered_pairs
from placegap.formulations.shared.times import ScaledTimes
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Channels
from placegap.instances.referee.channels import NO_CHANNEL, channels_of


def channel_work(model: pyo.ConcreteModel, times: ScaledTimes, channels: Channels) -> None:
    """Sum of p_qab route[q, a, b] <= makespan, over the flows q and arcs (a, b) of a channel."""
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


def channel_no_overlap(
    model: pyo.ConcreteModel, instance: Instance, items: list[Item], channels: Channels
) -> None:
    """(8): of two remote flows that share a channel, one starts after the other ends.

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
    """flow_before[q, r] + flow_before[r, q] >= use(q) + use(r) - 1 for every use that they share.

    For q = (i, j), use(q) is

    - of link (a, b): route[q, a, b];
    - of the port out of k: x[i, k] - route[q, k, k]; of the port into k: x[j, k] - route[q, k, k];
    - of the only port of k: the sum of these two.

    With an end in common, fewer rows do. Flows of one producer share a port as soon as both are
    remote: use(q) = 1 - sum over k of route[q, k, k]. They share a link as soon as both go into one
    device k: use(q) = x[j, k] - route[q, k, k]. Likewise flows into one consumer.
    """
    index, num_devices = instance.arrays.index, instance.num_devices
    before, x = model.flow_before, model.x
    ends = index.producer.tolist(), index.consumer.tolist()
    local_route = {key: route for key, route in model.route.items() if key[1] == key[2]}
    enough = 2 if channels == "link" else 1  # common ends that make remote flows share a channel
    common = {(q, r): [end[q] == end[r] for end in ends] for q, r in pairs}
    akin = [pair for pair, same in common.items() if sum(same) >= enough]
    half = [pair for pair, same in common.items() if 0 < sum(same) < enough]
    other = [pair for pair, same in common.items() if not any(same)]
    shared = {(q, r): sorted(items[q].resources & items[r].resources) for q, r in pairs}

    def other_end(q: int, r: int) -> int:
        return 1 if common[q, r][0] else 0  # the end that the two do not have in common

    def local(q: int, k: int) -> Linear:
        return local_route.get((q, k, k), 0)

    def remote(q: int) -> Linear:
        return 1 - sum(local(q, k) for k in range(num_devices))

    def at(q: int, side: int, k: int) -> Linear:
        return x[ends[side][q], k] - local(q, k)

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
