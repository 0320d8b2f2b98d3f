"""Pesto's ILP, strengthened: which pairs the windows leave undecided, by device and by link.

An *item* is an op or an edge, a *place* a device or a link. Two items compete for a place if some
plan of at most the horizon has both there and the windows do not say which is first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.times import Windows
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance


@dataclass(frozen=True)
class Slots:
    """When each of v items, ops or edges, can be at each of p places, devices or links; in ns.

    Attributes
    ----------
    possible : (v, p) bool
        Whether a plan of at most the horizon may have the item there.
    earliest_ns, latest_ns, duration_ns : (v, p) int64
        There it starts no earlier, ends no later and takes so long; of no meaning where it is not
        possible.
    """

    possible: Flags
    earliest_ns: Ints
    latest_ns: Ints
    duration_ns: Ints


@dataclass(frozen=True)
class Pairs:
    """Pairs of items that some plan of interest has at one place, in an order yet to be decided.

    Attributes
    ----------
    shared : list of (i, j, place)
    orders : list of (i, j)
        Item i can end before j starts, at some place that they share.
    open_at : frozenset of (i, j, place)
        Item i can end before j starts there.
    slack_ns : dict from (i, j)
        What end of i - start of j can be at most.
    """

    shared: list[tuple[int, int, int]]
    orders: list[tuple[int, int]]
    open_at: frozenset[tuple[int, int, int]]
    slack_ns: dict[tuple[int, int], int]


def op_slots(instance: Instance, window: Windows, horizon_ns: int) -> Slots:
    """Where and when the ops can be; places are devices."""
    latest_ns = horizon_ns - window.tail_ns
    return Slots(window.possible, window.head_ns, latest_ns, instance.arrays.time_ns)


def edge_slots(instance: Instance, window: Windows, horizon_ns: int) -> Slots:
    """Where and when the edges can be; place a * K + b is the link from a to b.

    Places a * K + a are kept for edges that stay on device a. O(m K^2).
    """
    arrays, k = instance.arrays, instance.num_devices
    index = arrays.index
    until, since = window.head_ns + arrays.time_ns, window.tail_ns + arrays.time_ns
    i, j = index.producer, index.consumer
    move = arrays.transfer_ns[index.tensor][:, arrays.link_class]
    earliest = np.broadcast_to(until[i][:, :, None], move.shape)
    latest = np.broadcast_to(horizon_ns - since[j][:, None, :], move.shape)
    possible = window.possible[i][:, :, None] & window.possible[j][:, None, :]
    possible = possible & (earliest + move <= latest)
    at = (len(i), k * k)
    return Slots(possible.reshape(at), earliest.reshape(at), latest.reshape(at), move.reshape(at))


def compete(slots: Slots, unordered: Iterator[tuple[int, int]]) -> Pairs:
    """The pairs whose order is to be decided, and the orders that are open.

    Left out are places where both items take no time, where the windows order them, and (in
    `edge_slots`) devices. O(pairs * places).
    """
    pairs = np.array(list(unordered), np.int64).reshape(-1, 2)
    i, j = pairs.T
    early, late, time = slots.earliest_ns, slots.latest_ns, slots.duration_ns
    both = slots.possible[i] & slots.possible[j] & (time[i] + time[j] > 0)
    both &= (late[i] > early[j]) & (late[j] > early[i])
    forth = both & (early[i] + time[i] + time[j] <= late[j])
    back = both & (early[j] + time[j] + time[i] <= late[i])
    first = np.where(slots.possible, early, np.iinfo(np.int64).max).min(axis=1).tolist()
    last = np.where(slots.possible, late, np.iinfo(np.int64).min).max(axis=1).tolist()

    def triples(where: Flags, one: Ints, two: Ints) -> list[tuple[int, int, int]]:
        at, place = np.nonzero(where)
        return list(zip(one[at].tolist(), two[at].tolist(), place.tolist(), strict=True))

    ahead = triples(forth, i, j) + triples(back, j, i)
    orders = sorted({(before, after) for before, after, _ in ahead})
    slack = {(before, after): last[before] - first[after] for before, after in orders}
    return Pairs(triples(both, i, j), orders, frozenset(ahead), slack)
