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

Windows, pairs and big-M come from the times: ``duration_ns`` and ``transfer_ns`` may only grow once
the model is built. A shorter time is refused, for it needs a new model, or the published form.

An *item* is an op or a flow; it competes for devices or channels with the items whose windows
overlap its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.moirai.published import precedence_flows
from placegap.formulations.shared import families
from placegap.formulations.shared.data import (
    duration_data,
    family,
    model_of_flows,
    names_of,
    transfer_data,
    window_data,
)
from placegap.formulations.shared.devices import count_symmetry_rows, representative_devices
from placegap.formulations.shared.families import Linear, op_work
from placegap.formulations.shared.pairs import (
    count_unordered_pairs,
    flow_reach,
    grouped,
    op_reach,
    unordered_pairs,
)
from placegap.formulations.shared.times import Windows, moves_in_time, windows
from placegap.instances.problem import Channels, Instance, Makespan
from placegap.instances.problem.device_classes import identical_devices
from placegap.instances.referee.channels import NO_CHANNEL, channel_name, channels_of

Pair = tuple[int, int]
Place = tuple[str, str]  # an edge and a device
Link = tuple[str, str, str]  # an edge and two devices
Slacks = dict[tuple[str, str], int]  # by open order of two ops or flows, in ns
Arcs = list[Pair]  # device pairs (a, b) that an edge may take


def build(
    instance: Instance, semantics: Makespan, horizon_ns: int, *, symmetry: bool
) -> pyo.ConcreteModel:
    """The strengthened model; see `moirai.build`."""
    classes = identical_devices(instance) if symmetry else ()
    window = windows(instance, horizon_ns)
    kept = representative_devices(instance, window.possible, classes)
    window = replace(window, possible=kept)
    routes = possible_arcs(instance, window, horizon_ns)
    ops = op_items(instance, window, horizon_ns)
    flows = flow_items(instance, window, routes, horizon_ns, semantics.channels)
    names, index = names_of(instance), instance.arrays.index
    model = model_of_flows("moirai strengthened", instance, semantics, horizon_ns)
    duration_data(model, instance, only_longer=True)
    arcs = [(q, a, b) for q, pairs in enumerate(routes) for a, b in pairs]
    transfer_data(model, instance, arcs, only_longer=True)
    families.place_ops(model, window.possible)
    window_data(model, window)
    route_flows(model, [(names.edges[q], names.devices[a], names.devices[b]) for q, a, b in arcs])
    time_variables(model)
    families.assign_once(model)
    families.colocate_ops(model, instance)
    families.memory_capacity(model, instance)
    route_links(model)
    add_durations(model)
    precedence_flows(model)
    device_work(model)
    channel_work(model, instance)
    critical_path(model, instance)
    shared = competing(ops, unordered_pairs(*op_reach(index)))
    device_no_overlap(model, ops, *shared)
    shared = competing(flows, unordered_pairs(*flow_reach(index)))
    channel_no_overlap(model, flows, shared[0])
    channel_sharing(model, instance, flows, shared[1])
    if classes:
        families.symmetry_order(model, instance, window.possible, classes)
    families.makespan_value(model, "Moirai (4): the makespan")
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


# ------------------------------------------------------------------------- sets, data and variables


@family
def route_flows(model: pyo.ConcreteModel, arcs: list[tuple[str, str, str]]) -> None:
    r"""route[q, a, b] in [0, 1]: edge q goes from a to b, a == b included; integral where x is.

    $0 \le w_{qab} \le 1$
    """
    model.ROUTES = pyo.Set(initialize=arcs, dimen=3, doc="routes that edges can take")
    model.route = pyo.Var(model.ROUTES, bounds=(0, 1))


@family
def time_variables(model: pyo.ConcreteModel) -> None:
    r"""Starts of ops and flows, and the makespan, all in [0, horizon].

    $0 \le S_i, S_q, T \le H$
    """
    bounds = (0, model.horizon.value)
    model.op_start = pyo.Var(model.OPS, bounds=bounds, doc="op_start[i]: start of op i")
    model.flow_start = pyo.Var(model.EDGES, bounds=bounds, doc="flow_start[q]: start of flow q")
    model.makespan = pyo.Var(bounds=bounds, doc="makespan, in units")


@family
def add_durations(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4b), (7), expressions: op_end[i] = op_start[i] + sum over k of p_ik x[i, k],
    flow_end[q] likewise.

    $C_i = S_i + \sum_k p_{ik} x_{ik}, \quad C_q = S_q + \sum_{a \ne b} p_{qab} w_{qab}$
    """
    work, sent = op_work(model, by=0), grouped((at[0], term) for at, term in sent_work(model))

    @model.Expression(model.OPS)
    def op_end(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.op_start[i] + sum(work.get(i, ()))

    @model.Expression(model.EDGES)
    def flow_end(model: pyo.ConcreteModel, q: str) -> Linear:
        return model.flow_start[q] + sum(sent.get(q, ()))


def sent_work(model: pyo.ConcreteModel) -> Iterator[tuple[Link, Linear]]:
    """The terms p_qab route[q, a, b], in units, by (q, a, b)."""
    unit_ns, route = model.unit_ns.value, model.route
    return ((at, time_ns / unit_ns * route[at]) for at, time_ns in model.transfer_ns.items())


# -------------------------------------------------------------------------------------- constraints


@family
def route_links(model: pyo.ConcreteModel) -> None:
    r"""Moirai (7): an edge q = (i, j) leaves the device of i and enters the device of j.

    Sum over b of route[q, a, b] == x[i, a] for every a, and
    sum over a of route[q, a, b] == x[j, b] for every b.

    $\sum_b w_{qab} = x_{ia}, \quad \sum_a w_{qab} = x_{jb}$
    """
    out, into = routes_at(model)

    @model.Constraint(model.EDGES, model.DEVICES)
    def route_leaves(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        return model.x[model.producer[q], k] == sum(out.get((q, k), ()))

    @model.Constraint(model.EDGES, model.DEVICES)
    def route_enters(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        return model.x[model.consumer[q], k] == sum(into.get((q, k), ()))


def routes_at(model: pyo.ConcreteModel) -> tuple[dict[Place, list[Linear]], ...]:
    """The routes of each edge out of each device, and into each."""
    routes = list(model.route.items())
    return tuple(grouped(((at[0], at[side]), route) for at, route in routes) for side in (1, 2))


@family
def device_work(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: sum over i of p_ik x[i, k] <= makespan for every device k.

    $\sum_i p_{ik} x_{ik} \le T$
    """
    work = op_work(model, by=1)

    @model.Constraint(model.DEVICES)
    def device_work(model: pyo.ConcreteModel, k: str) -> Linear:
        return sum(work.get(k, ())) <= model.makespan


@family
def channel_work(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Placegap's own: sum of p_qab route[q, a, b] <= makespan over the flows q, arcs (a, b) of a
    channel.

    $\sum_{(q, a, b) \in c} p_{qab} w_{qab} \le T$
    """
    held = channels_by_link(model, instance)
    work = grouped((c, term) for at, term in sent_work(model) for c in held[at[1:]])

    model.CHANNELS = pyo.Set(initialize=list(work), doc="channels that a transfer may hold")

    @model.Constraint(model.CHANNELS)
    def channel_work(model: pyo.ConcreteModel, channel: str) -> Linear:
        return sum(work[channel]) <= model.makespan


def channels_by_link(
    model: pyo.ConcreteModel, instance: Instance
) -> dict[tuple[str, str], list[str]]:
    """Names of the channels that a transfer over each link holds."""
    kind, devices = model.semantics.channels, list(model.DEVICES)
    return {
        (a, b): [
            channel_name(kind, instance.cluster, c)
            for c in channels_of(kind, len(devices), devices.index(a), devices.index(b))
            if c != NO_CHANNEL
        ]
        for a, b in model.LINKS
    }


@family
def critical_path(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Moirai (4), with heads and tails: the makespan covers every op.

    op_start[i] >= sum over k of head_ik x[i, k] and
    makespan >= op_end[i] + sum over k of tail_ik x[i, k].
    With a single edge on that side of the op, `route` and `precedence_flows` imply the row.

    $S_i \ge \sum_k h_{ik} x_{ik}, \quad T \ge C_i + \sum_k t_{ik} x_{ik}$
    """
    index, ops, places = instance.arrays.index, list(model.OPS), grouped(model.PLACES)
    num_preds, num_succs = np.diff(index.pred_ptr), np.diff(index.succ_ptr)

    def at(level_ns: pyo.Param, i: str) -> Linear:
        return sum(level_ns[i, k] / model.unit_ns * model.x[i, k] for k in places.get(i, ()))

    @model.Constraint([ops[i] for i in np.flatnonzero(num_preds > 1)])
    def critical_path_head(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.op_start[i] >= at(model.head_ns, i)

    @model.Constraint([ops[i] for i in np.flatnonzero(num_succs != 1)])
    def makespan_covers(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.makespan >= model.op_end[i] + at(model.tail_ns, i)


@family
def device_no_overlap(
    model: pyo.ConcreteModel, items: list[Item], orders: list[Pair], pairs: list[Pair]
) -> None:
    r"""Moirai (6): of two ops on one device, one starts after the other ends.

    op_start[j] >= op_end[i] - M_ij (1 - op_before[i, j]) for both orders of the pair, and
    op_before[i, j] + op_before[j, i] >= x[i, k] + x[j, k] - 1 for every device k.

    $S_j \ge C_i - M_{ij} (1 - \delta_{ij}),
    \quad \delta_{ij} + \delta_{ji} \ge x_{ik} + x_{jk} - 1$
    """
    ops, devices, x = list(model.OPS), list(model.DEVICES), model.x
    model.device_no_overlap = order_rows(model, "op", slacks_ns(items, ops, orders))
    before = model.op_before

    @model.Constraint(
        [
            (ops[i], ops[j], devices[k])
            for i, j in pairs
            for k in sorted(items[i].resources & items[j].resources)
        ]
    )
    def device_shared(_: pyo.ConcreteModel, i: str, j: str, k: str) -> Linear:
        return either(before, i, j) >= x[i, k] + x[j, k] - 1


@family
def channel_no_overlap(model: pyo.ConcreteModel, items: list[Item], orders: list[Pair]) -> None:
    r"""Moirai (8): of two remote flows that share a channel, one starts after the other ends.

    flow_start[r] >= flow_end[q] - M_qr (1 - flow_before[q, r]) for both orders of the pair, and
    flow_before[q, r] + flow_before[r, q] >= use(q) + use(r) - 1 (`channel_sharing`).

    $S_r \ge C_q - M_{qr} (1 - \delta_{qr})$
    """
    slack_ns = slacks_ns(items, list(model.EDGES), orders)
    model.channel_no_overlap = order_rows(model, "flow", slack_ns)


def slacks_ns(items: list[Item], names: list[str], orders: list[Pair]) -> Slacks:
    """The big-M of each order: latest end of the first less earliest start of the second."""
    pairs = ((names[i], names[j], items[i].latest_ns - items[j].earliest_ns) for i, j in orders)
    return {(first, second): slack for first, second, slack in pairs}


def order_rows(model: pyo.ConcreteModel, what: str, slack_ns: Slacks) -> pyo.Constraint:
    """The Set of the open orders of two ops or flows, ``before`` on it, and the rows of these."""
    orders = pyo.Set(initialize=list(slack_ns), dimen=2, doc=f"open orders of two {what}s")
    model.add_component(f"{what.upper()}_ORDERS", orders)
    before = pyo.Var(
        orders, domain=pyo.Binary, doc=f"{what}_before[i, j]: {what} i ends before {what} j starts"
    )
    model.add_component(f"{what}_before", before)
    start, end = model.component(f"{what}_start"), model.component(f"{what}_end")
    big_m = {at: slack / model.unit_ns.value for at, slack in slack_ns.items()}
    return pyo.Constraint(
        orders, rule=lambda _, i, j: start[j] >= end[i] - big_m[i, j] * (1 - before[i, j])
    )


@family
def channel_sharing(
    model: pyo.ConcreteModel, instance: Instance, items: list[Item], pairs: list[Pair]
) -> None:
    r"""Moirai (8): flow_before[q, r] + flow_before[r, q] >= use(q) + use(r) - 1 for every use that
    they share.

    For q = (i, j), use(q) is

    - of link (a, b): route[q, a, b];
    - of the port out of k: x[i, k] - route[q, k, k]; of the port into k: x[j, k] - route[q, k, k];
    - of the only port of k: the sum of these two.

    With an end in common, fewer rows do. Flows of one producer share a port as soon as both are
    remote: use(q) = 1 - sum over k of route[q, k, k]. They share a link as soon as both go into one
    device k: use(q) = x[j, k] - route[q, k, k]. Likewise flows into one consumer.

    $\delta_{qr} + \delta_{rq} \ge v_{qc} + v_{rc} - 1$
    """
    # Why fewer rows suffice: the published rows need a pair, a channel and both flows on it, which
    # an LP avoids by spreading x. If an end is common, the flows are on the same device there
    # whichever it is, so the sum over devices is a single row, and a stronger one.
    channels, devices, edges = model.semantics.channels, list(model.DEVICES), list(model.EDGES)
    before, x, num_devices = model.flow_before, model.x, len(devices)
    end = dict(model.producer.items()), dict(model.consumer.items())
    local_route = {(q, a): route for (q, a, b), route in model.route.items() if a == b}
    enough = 2 if channels == "link" else 1
    named = [(edges[q], edges[r]) for q, r in pairs]
    shared = {
        (edges[q], edges[r]): sorted(items[q].resources & items[r].resources) for q, r in pairs
    }
    common = {(q, r): [side[q] == side[r] for side in end] for q, r in named}
    akin = [pair for pair in named if sum(common[pair]) >= enough]
    half = [pair for pair in named if 0 < sum(common[pair]) < enough]
    other = [pair for pair in named if not any(common[pair])]
    # channels by name, and what they are: devices that a transfer leaves, enters
    name = {c: channel_name(channels, instance.cluster, c) for own in shared.values() for c in own}
    number = {text: c for c, text in name.items()}

    def other_end(q: str, r: str) -> int:  # the end that the two flows do not have in common
        return 1 if common[q, r][0] else 0

    def local(q: str, k: str) -> Linear:
        return local_route.get((q, k), 0)

    def remote(q: str) -> Linear:
        return 1 - sum(local(q, k) for k in devices)

    def at(q: str, side: int, k: str) -> Linear:
        return x[end[side][q], k] - local(q, k)

    def use(q: str, channel: str) -> Linear:
        first, second = divmod(number[channel], num_devices)
        if channels == "link":
            return model.route[q, devices[first], devices[second]]
        if channels == "port":
            return at(q, first, devices[second])
        return at(q, 0, devices[second]) + at(q, 1, devices[second])

    @model.Constraint(akin)
    def channel_shared_by_end(_: pyo.ConcreteModel, q: str, r: str) -> Linear:
        return either(before, q, r) >= remote(q) + remote(r) - 1

    @model.Constraint(
        [
            (q, r, devices[k])
            for q, r in half
            for k in sorted({divmod(c, num_devices)[other_end(q, r)] for c in shared[q, r]})
        ]
    )
    def channel_shared_at_end(_: pyo.ConcreteModel, q: str, r: str, k: str) -> Linear:
        return either(before, q, r) >= at(q, other_end(q, r), k) + at(r, other_end(q, r), k) - 1

    @model.Constraint([(q, r, name[c]) for q, r in other for c in shared[q, r]])
    def channel_shared(_: pyo.ConcreteModel, q: str, r: str, channel: str) -> Linear:
        return either(before, q, r) >= use(q, channel) + use(r, channel) - 1


def either(before: pyo.Var, i: str, j: str) -> Linear:
    """before[i, j] + before[j, i], as far as these orders are possible."""
    return sum(before[pair] for pair in ((i, j), (j, i)) if pair in before)


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
    """The orders (first, second) that the model must decide on, and their pairs."""
    # Pairs are left out that share no resource, that take no time, or that the windows order; and
    # so are orders that the windows exclude.
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
