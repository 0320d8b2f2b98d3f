"""Moirai's MILP, strengthened: which ops and flows compete, by what their windows say.

An *item* is an op or a flow; it competes for devices or channels with the items whose windows
overlap its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.families import Linear
from placegap.formulations.shared.times import Windows
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Channels
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

Pair = tuple[int, int]

Arcs = list[Pair]
"""Device pairs (a, b) that an edge may take."""


@dataclass(frozen=True)
class Item:
    """When an op or a flow can run, in ns, and what it can occupy.

    Attributes
    ----------
    earliest_ns, latest_ns : int
        It starts no earlier, and ends no later.
    shortest_ns, longest_ns : int
        Its durations while it occupies anything.
    resources : frozenset of int
        An op's devices; a flow's channels, by their numbers (`channels_of`).
    """

    earliest_ns: int
    latest_ns: int
    shortest_ns: int
    longest_ns: int
    resources: frozenset[int]


def possible_arcs(instance: Instance, window: Windows, horizon_ns: int) -> list[Arcs]:
    """The device pairs that each edge can take in a plan of at most the horizon; O(m K^2)."""
    arrays = instance.arrays
    index, found = arrays.index, []
    until, since = window.head_ns + arrays.time_ns, window.tail_ns + arrays.time_ns
    for i, j, u in zip(index.producer, index.consumer, index.tensor, strict=True):
        length = until[i][:, None] + arrays.transfer_ns[u][arrays.link_class] + since[j]
        both = window.possible[i][:, None] & window.possible[j]
        found.append([(a, b) for a, b in np.argwhere(both & (length <= horizon_ns)).tolist()])
    return found


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
    """The orders (first, second) that the model must decide on, and the pairs they belong to.

    Left out are pairs that share no resource, that both take no time, or that the windows order;
    and an order that the windows rule out.
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
