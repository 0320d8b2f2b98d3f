"""Least times through a section, for all ways to place some colocation groups of its ops.

With u and v the section's ends, every op of a placed group is on one device, and every other op
anywhere. Longest paths, what the ops of a device take one after the other, what all devices do
together (`interval_arcs`), and transfers that share a channel (`port_gap`) each say what the
section takes at least.

With the devices of some ops given, some tensors must be sent inside a section. Each transfer
begins when its producer ends at the earliest, and its consumer runs after it. Those that hold the
same channel follow each other: of all that begin after r and leave at least q behind, r + the sum
of the transfers + q is no more than the time between the section's ends. So do the ops of a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import channels_of, num_channels
from placegap.instances.structure.sections import Section
from placegap.solvers.bounds.interval_arcs import by_work, forced
from placegap.solvers.bounds.work_windows import WorkWindows

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


class PlacedSection(NamedTuple):
    """A section with an entry, s inner ops and an exit, as a kernel reads it.

    Attributes
    ----------
    enter_ns, leave_ns : (K,) int64
        What the ends take; `NO_WAY` where they cannot be.
    own_ns : (s, K) int64
        What the inner ops take.
    mass : int
        Of the inner ops together, as in `work_windows`.
    edges : SectionEdges
        By consumers in topological order.
    group : (s + 2,) int64
        Colocation groups of the entry, the inner ops and the exit.
    """

    enter_ns: Ints
    leave_ns: Ints
    own_ns: Ints
    mass: int
    edges: SectionEdges
    group: Ints

    def key(self, names: dict[int, int]) -> tuple[object, ...]:
        """What two sections agree in that take the same times, with the groups' own names."""
        named = tuple(names.get(g, -1) for g in self.group.tolist())
        parts = (self.enter_ns, self.leave_ns, self.own_ns, *self.edges)
        return (named, self.mass, *(part.tobytes() for part in parts))


class SectionTimes:
    """Least times through the sections of a chain, with some groups on given devices."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        chain: Sequence[Section],
        windows: WorkWindows,
    ) -> None:
        self.time, self.weights = windows.time_ns, windows.weights
        self.parts = [_placed(instance, semantics, part, windows) for part in chain]
        self.last, self.last_group = (
            chain[-1].ops[-1],
            int(instance.arrays.group[chain[-1].ops[-1]]),
        )
        self.channel = channel_table(semantics, instance.num_devices)

    def num_edges(self, sections: Sequence[int]) -> int:
        """Of all these sections."""
        return sum(len(self.parts[s].edges.producer) for s in sections if s < len(self.parts))

    def key(self, sections: range, names: dict[int, int]) -> tuple[object, ...]:
        """What ranges of sections agree in that take the same times."""
        inner = [self.parts[s].key(names) for s in sections if s < len(self.parts)]
        if sections.stop > len(self.parts):
            inner.append((names.get(self.last_group, -1), self.time[self.last].tobytes()))
        return (*inner, sections.stop > len(self.parts))

    def through(self, sections: range, groups: Sequence[int], devices: Ints) -> Ints:
        """From the start of the first one's entry to that of the last one's exit.

        Parameters
        ----------
        sections : range
            One behind the last is the chain's last op.
        groups : sequence of int
        devices : (p, groups) int64
            Ways to place them. The last exit is anywhere.

        Returns
        -------
        (p, K, K) int64
            By the devices of both ends; `NO_WAY` where they cannot be.
        """
        num_devices = self.time.shape[1]
        stay = np.where(np.eye(num_devices, dtype=np.bool_), 0, NO_WAY)
        least = np.repeat(stay[None], len(devices), axis=0)
        place = {g: x for x, g in enumerate(groups)}
        for s in sections:
            if s == len(self.parts):  # the last op, which must be where it is
                table, at = self._last_one(place.get(self.last_group, -1), devices)
            else:
                table, at = self._one(self.parts[s], s + 1 == sections.stop, place, devices)
            least = _joined(least, table, at)
        return least

    def _one(
        self, part: PlacedSection, is_last: bool, place: dict[int, int], devices: Ints
    ) -> tuple[Ints, Ints]:
        """A table for each way to place the section's own groups, and which one a row has."""
        named = np.array([place.get(g, -1) for g in part.group.tolist()], np.int64)
        if is_last:
            named[-1] = -1
        mine = np.unique(named[named >= 0])
        rows, at = np.unique(devices[:, mine], axis=0, return_inverse=True)
        column = np.append(np.searchsorted(mine, named), 0)[:-1]
        column[named < 0] = -1
        tables = _tables(
            np.ascontiguousarray(rows),
            column,
            part.enter_ns,
            part.leave_ns,
            part.own_ns,
            part.mass,
            self.weights,
            *part.edges,
            *self.channel,
        )
        return tables, at.reshape(-1)

    def _last_one(self, column: int, devices: Ints) -> tuple[Ints, Ints]:
        num_devices = self.time.shape[1]
        can = self.time[self.last] < NO_WAY
        tables = np.full((num_devices + 1, num_devices, num_devices), NO_WAY)
        for d in np.flatnonzero(can).tolist():
            tables[d, d, d] = tables[-1, d, d] = 0
        free = np.full(len(devices), num_devices)
        return tables, free if column < 0 else devices[:, column]


def ways_to_place(allowed: Sequence[Sequence[int]]) -> Ints:
    """All ways to choose one device for each group, a row for each.

    Examples
    --------
    >>> ways_to_place([[0, 1], [1]]).tolist()
    [[0, 1], [1, 1]]
    """
    rows = list(product(*allowed))
    return np.array(rows, np.int64).reshape(len(rows), len(allowed))


def _placed(
    instance: Instance, semantics: Makespan, part: Section, windows: WorkWindows
) -> PlacedSection:
    inner = np.array(part.ops[1:-1], np.int64)
    edges = section_edges(instance, part, semantics)
    order = np.argsort(edges.consumer, kind="stable")
    return PlacedSection(
        windows.time_ns[part.ops[0]],
        windows.time_ns[part.ops[-1]],
        windows.time_ns[inner],
        int(windows.mass[inner].sum()),
        SectionEdges(*(np.ascontiguousarray(column[order]) for column in edges)),
        instance.arrays.group[list(part.ops)],
    )


@kernel
def _joined(least: Ints, table: Ints, at: Ints) -> Ints:
    """The least sums of a way so far and one through the next section."""
    num_devices = least.shape[1]
    found = np.full(least.shape, NO_WAY)
    for p in range(len(least)):
        for a in range(num_devices):
            for c in range(num_devices):
                if least[p, a, c] >= NO_WAY:
                    continue
                for b in range(num_devices):
                    way = least[p, a, c] + table[at[p], c, b]
                    found[p, a, b] = min(found[p, a, b], way)
    return found


@kernel
def _tables(
    devices: Ints,
    column: Ints,
    enter: Ints,
    leave: Ints,
    own: Ints,
    mass: int,
    weights: Ints,
    producer: Ints,
    consumer: Ints,
    tensor: Ints,
    move: Ints,
    least_move: Ints,
    channel: Ints,
    num_channels: int,
    ways: bool,
) -> Ints:
    """From the start of the entry to that of the exit, (p, K, K), with the groups placed.

    `column` has the group of the entry, of each inner op and of the exit; -1: anywhere.
    """
    size, num_devices = own.shape
    found = np.full((len(devices), num_devices, num_devices), NO_WAY)
    every = np.empty((size + 2, num_devices), np.int64)
    for p in range(len(devices)):
        every[0], every[1 : size + 1], every[size + 1] = enter, own, leave
        is_free = False
        for x in range(size + 2):
            for d in range(num_devices):
                if column[x] >= 0 and devices[p, column[x]] != d:
                    every[x, d] = NO_WAY
            is_free = is_free or (column[x] < 0 and 0 < x <= size)
        gap = _gap(
            every[0],
            every[1 : size + 1],
            every[size + 1],
            mass,
            weights,
            producer,
            consumer,
            tensor,
            move,
            least_move,
            channel,
            num_channels,
            ways,
            is_free,
        )
        for a in range(num_devices):
            for b in range(num_devices):
                if gap[a, b] < NO_WAY:
                    found[p, a, b] = min(NO_WAY, every[0, a] + gap[a, b])
    return found


@kernel
def _gap(
    enter: Ints,
    own: Ints,
    leave: Ints,
    mass: int,
    weights: Ints,
    producer: Ints,
    consumer: Ints,
    tensor: Ints,
    move: Ints,
    least_move: Ints,
    channel: Ints,
    num_channels: int,
    ways: bool,
    is_free: bool,
) -> Ints:
    """From the end of the entry to the start of the exit, (K, K).

    `is_free`: whether some inner op is in no placed group.
    """
    size, num_devices = own.shape
    gap = np.zeros((num_devices, num_devices), np.int64)
    for a in range(num_devices):
        for b in range(num_devices):
            if enter[a] >= NO_WAY or leave[b] >= NO_WAY:
                gap[a, b] = NO_WAY
    # [x, a, c]: x on c, the end on a; what is not zero where x cannot be, no one reads
    head = np.zeros((size, num_devices, num_devices), np.int64)
    tail = np.zeros((size, num_devices, num_devices), np.int64)
    for x in range(size):
        for c in range(num_devices):
            if own[x, c] >= NO_WAY:
                head[x, :, c] = tail[x, :, c] = NO_WAY
    for e in range(len(producer)):
        y, x = producer[e], consumer[e]
        for a in range(num_devices):
            if enter[a] >= NO_WAY:
                continue
            for c in range(num_devices):
                if (leave[c] if x == size else own[x, c]) >= NO_WAY:
                    continue
                least = NO_WAY
                if y < 0:
                    least = move[e, a, c]
                else:
                    for d in range(num_devices):
                        if own[y, d] < NO_WAY:
                            least = min(least, head[y, a, d] + own[y, d] + move[e, d, c])
                if x == size:
                    gap[a, c] = max(gap[a, c], least)
                else:
                    head[x, a, c] = max(head[x, a, c], least)
    for e in range(len(producer) - 1, -1, -1):
        y, x = producer[e], consumer[e]
        if y < 0:
            continue
        for b in range(num_devices):
            if leave[b] >= NO_WAY:
                continue
            for d in range(num_devices):
                if own[y, d] >= NO_WAY:
                    continue
                least = NO_WAY
                if x == size:
                    least = move[e, d, b]
                else:
                    for c in range(num_devices):
                        if own[x, c] < NO_WAY:
                            least = min(least, move[e, d, c] + own[x, c] + tail[x, b, c])
                tail[y, b, d] = max(tail[y, b, d], least)
    if size == 0:
        return gap
    if is_free:
        _by_all(gap, own, head, tail, mass, weights)
    return port_gap(
        gap,
        own,
        head,
        tail,
        producer,
        consumer,
        tensor,
        move,
        least_move,
        channel,
        num_channels,
        ways,
    )


@kernel
def _by_all(gap: Ints, own: Ints, head: Ints, tail: Ints, mass: int, weights: Ints) -> None:
    """What ops that may be anywhere say of the gaps: paths over each, and the work of all."""
    size, num_devices = own.shape
    away = np.empty(size, np.int64)
    total: Any = np.int64(mass)
    for a in range(num_devices):
        for b in range(num_devices):
            if gap[a, b] >= NO_WAY:
                continue
            least = gap[a, b]
            for x in range(size):
                through = NO_WAY
                for c in range(num_devices):
                    if own[x, c] < NO_WAY:
                        through = min(through, head[x, a, c] + own[x, c] + tail[x, b, c])
                least = max(least, through)
            for c in (a, b):
                for x in range(size):
                    away[x] = NO_WAY
                    for other in range(num_devices):
                        if other != c and own[x, other] < NO_WAY:
                            way = head[x, a, other] + own[x, other] + tail[x, b, other]
                            away[x] = min(away[x], way)
                least = max(least, forced(away, head[:, a, c], own[:, c], tail[:, b, c]))
            least = max(least, by_work(total, weights, head[:, a], tail[:, b]))
            gap[a, b] = min(NO_WAY, least)
