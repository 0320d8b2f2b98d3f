"""Transfers inside a section, one after the other on the channels that they share.

With the devices of some ops given, some tensors must be sent inside a section. Each transfer
begins when its producer ends at the earliest, and its consumer runs after it. Those that hold the
same channel follow each other: of all that begin after r and leave at least q behind, r + the sum
of the transfers + q is no more than the time between the section's ends. So do the ops of a device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.sections import Section
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import channels_of, num_channels

FREE = -2
"""Of an op that may be on several devices."""


class SectionEdges(NamedTuple):
    """Edges of a section with s inner ops, as s or -1: the entry, 0 ... s - 1: inner, s: the exit.

    Attributes
    ----------
    producer, consumer : (e,) int64
        -1 is the entry.
    tensor : (e,) int64
        Edges of one number may share a transfer.
    move_ns : (e, K, K) int64
    least_ns : (e,) int64
        Of two devices that are not the same.
    """

    producer: Ints
    consumer: Ints
    tensor: Ints
    move_ns: Ints
    least_ns: Ints


def section_edges(instance: Instance, part: Section, semantics: Makespan) -> SectionEdges:
    """The edges of a section with an entry and an exit; O(its size)."""
    arrays, index = instance.arrays, instance.arrays.index
    place = {op: x for x, op in enumerate(part.ops, start=-1)}
    edges = np.array(part.edges, np.int64)
    producer = np.array([place[u] for u in index.producer[edges].tolist()], np.int64)
    consumer = np.array([place[v] for v in index.consumer[edges].tolist()], np.int64)
    tensor = index.tensor[edges]
    shared = semantics.transfers == "per_tensor"
    move = arrays.transfer_ns[tensor][:, arrays.link_class]
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    return SectionEdges(
        producer,
        consumer,
        tensor if shared else np.arange(len(edges)),
        move,
        move[:, apart].min(axis=1, initial=NO_WAY),
    )


def channel_table(semantics: Makespan, num_devices: int) -> tuple[Ints, int, bool]:
    """The channels of a transfer between two devices, (K, K, 2), -1 for none, and how many.

    Last, whether a way over other ops has a transfer on the channels of its two ends, which is no
    other way's.
    """
    every = range(num_devices)
    table = [[channels_of(semantics.channels, num_devices, a, b) for b in every] for a in every]
    own = semantics.transfers == "per_edge"
    ways = own and (num_devices == 2 or semantics.channels in ("port", "half_duplex"))
    return np.array(table, np.int64), num_channels(semantics.channels, num_devices), ways


@kernel
def port_gap(
    gap: Ints,
    own: Ints,
    head: Ints,
    tail: Ints,
    producer: Ints,
    consumer: Ints,
    tensor: Ints,
    move: Ints,
    least_move: Ints,
    channel: Ints,
    num_channels: int,
    ways: bool,
) -> Ints:
    """The least times between entry and exit, (K, K), with what channels make of transfers.

    `gap` is known of them; `own` has the times of the s inner ops by device, `NO_WAY` where one is
    not; `head` and `tail`, (s, K, K), are ways from the entry and to the exit by the device of that
    end and the op's. `ways`: whether ops between two that are given, each of which reads and feeds
    one op, make a transfer of theirs certain.
    """
    num_devices, size, most = len(gap), len(own), len(producer)
    least, on = gap.copy(), np.full(size, -1)
    for x in range(size):
        for d in range(num_devices):
            if own[x, d] < NO_WAY:
                on[x] = d if on[x] == -1 else FREE
    before, behind = np.zeros(size, np.int64), np.zeros(size, np.int64)
    into = np.zeros(size, np.int64)
    for e in range(most):
        if producer[e] >= 0:
            behind[producer[e]] += 1
        if consumer[e] < size:
            before[consumer[e]] += 1
            into[consumer[e]] = e
    rows = most + size
    begin, after = np.empty(rows, np.int64), np.empty(rows, np.int64)
    takes, to = np.empty(rows, np.int64), np.empty(rows, np.int64)
    of, by = np.empty(rows, np.int64), np.full((rows, 2), -1)
    for a in range(num_devices):
        for b in range(num_devices):
            if gap[a, b] >= NO_WAY:
                continue
            count = 0
            for e in range(most):
                y, x, takes_e, is_way = producer[e], consumer[e], NO_WAY, False
                target = b if x == size else on[x]
                at = e
                # back over ops that are anywhere: somewhere on such a way there is a transfer
                while ways and y >= 0 and on[y] == FREE and before[y] == 1 and behind[y] == 1:
                    takes_e, is_way = min(takes_e, least_move[at]), True
                    at = into[y]
                    y = producer[at]
                source = a if y < 0 else on[y]
                if source < 0 or target < 0 or source == target:
                    continue
                if is_way:
                    takes_e = min(takes_e, least_move[at])
                else:
                    takes_e = move[e, source, target]
                r = 0 if y < 0 else head[y, a, source] + own[y, source]
                q = 0 if x == size else own[x, target] + tail[x, b, target]
                same = -1
                for z in range(count):
                    if of[z] == tensor[e] and to[z] == target:
                        same = z
                if same >= 0:
                    after[same] = max(after[same], q)
                    takes[same] = min(takes[same], takes_e)
                    continue
                begin[count], after[count], takes[count] = r, q, takes_e
                by[count], to[count], of[count] = channel[source, target], target, tensor[e]
                count += 1
            for x in range(size):  # a device is a channel of its ops
                if on[x] >= 0:
                    begin[count], after[count] = head[x, a, on[x]], tail[x, b, on[x]]
                    takes[count] = own[x, on[x]]
                    by[count, 0], by[count, 1] = num_channels + on[x], -1
                    count += 1
            for c in range(num_channels + num_devices if count > 1 else 0):
                way = _one_by_one(by[:count] == c, begin[:count], takes[:count], after[:count])
                least[a, b] = min(NO_WAY, max(least[a, b], way))
    return least


@kernel
def _one_by_one(holds: Flags, begin: Ints, takes: Ints, after: Ints) -> int:
    """The least time that some items take one after the other: those that hold a channel. O(n^2).

    The most of begin + sum + after over the items that begin, and leave behind, at least so much.
    """
    mine = np.flatnonzero(holds[:, 0] | holds[:, 1])
    falling, least = mine[np.argsort(-begin[mine])], 0
    for j in mine:
        total = 0
        for z in falling:
            if after[z] >= after[j]:
                total += takes[z]
                least = max(least, begin[z] + total + after[j])
    return least
