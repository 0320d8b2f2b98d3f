"""Ops, and transfers that must happen whatever the plan, with the device or channels each holds.

An op that one device alone can run holds it. A tensor of an op that cannot be on device d, with a
reader that can be nowhere else, enters d. If its producer can be on device d alone and no reader
there, the first transfer out of d comes before all readers. So with host-only ops and those of GPUs
some tensors enter the host's port and others leave it in every plan, one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.referee.channels import channels_of, num_channels


class QueuedItems(NamedTuple):
    """Ops and then transfers, N together, as time goes forward or back."""

    order: Ints  # (N,) int64: Topological; a transfer is between its producer and its readers
    #: pointer, other: What comes right before item v is ``other[pointer[v] : pointer[v + 1]]``.
    pointer: Ints
    other: Ints
    time_ns: Ints  # (N, K) int64: `NO_WAY` where an op cannot be; the least of a transfer
    least_ns: Ints  # (N,) int64: The least of these
    machine: Ints  # (N, 2) int64: What it is certain to hold: a device k, a channel K + c, or -1
    num_machines: int


def queued_items(
    instance: Instance, semantics: Makespan, time: Ints
) -> tuple[QueuedItems, QueuedItems]:
    """The items, forward and back; `time` (n, K) is `NO_WAY` where an op cannot be."""
    arrays, index, num_devices = instance.arrays, instance.arrays.index, instance.num_devices
    can, num_ops = time < NO_WAY, instance.num_ops
    only = np.where(can.sum(axis=1) == 1, can.argmax(axis=1), -1)
    u, v = index.producer, index.consumer
    source, target = only[u], only[v]
    item = index.tensor if semantics.transfers == "per_tensor" else np.arange(len(u))
    into = (target >= 0) & ~can[u, target]
    enters = np.zeros(len(u), np.bool_)
    enters[item[into]] = True
    # what enters a device leaves another: it would count twice
    out = (source >= 0) & ~can[v, source] & ~enters[item]
    edges = np.flatnonzero(into | out)
    u, v, source, target = u[edges], v[edges], source[edges], np.where(into, target, -1)[edges]
    _, first, number = np.unique(
        item[edges] * (num_devices + 1) + target, return_index=True, return_inverse=True
    )
    # one end is known; the least time is over all devices of the other one
    known = (target >= 0)[:, None]
    link = np.where(known, arrays.link_class[:, target].T, arrays.link_class[source])
    moves = arrays.transfer_ns[index.tensor[edges, None], link]
    moves = np.where(can[np.where(known[:, 0], u, v)], moves, NO_WAY)
    least = np.full(len(first), NO_WAY)
    np.minimum.at(least, number, moves.min(axis=1))
    # a port has one end; a link is known with both
    every, source, target = range(num_devices), source[first], target[first]
    table = [[channels_of(semantics.channels, num_devices, a, b) for b in every] for a in every]
    channel = np.array(table, np.int64)[source, target]
    unknown = np.stack([source < 0, target < 0], axis=1)
    if semantics.channels == "link":
        unknown |= unknown[:, ::-1]
    channel = np.where(unknown | (channel < 0), -1, num_devices + channel)
    place, num = index.topological_position, num_ops + len(first)
    order = np.argsort(np.concatenate([place, place[u[first]]]), kind="stable")
    producer = np.concatenate([index.producer, u[first], num_ops + number])
    consumer = np.concatenate([index.consumer, np.arange(num_ops, num), v])
    device = np.stack([only, np.full(num_ops, -1)], axis=1)
    times = np.concatenate([time, np.repeat(least[:, None], num_devices, axis=1)])
    forward, back = (
        QueuedItems(
            order,
            pointer,
            before[edge],
            times,
            times.min(axis=1),
            np.concatenate([device, channel]),
            num_devices + num_channels(semantics.channels, num_devices),
        )
        for before, (pointer, edge) in (
            (producer, group_by(consumer, num)),
            (consumer, group_by(producer, num)),
        )
    )
    return forward, back._replace(order=order[::-1].copy())
