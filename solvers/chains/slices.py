"""Upper bounds on max_load: cut one topological order into segments, optimally.

Every segment of a topological order is the difference of two ideals, so this restricts the ideal DP
to one chain of ideals. If all accelerators are alike and all hosts are, `best_slices` finds the
best segments on them in any succession. Other devices come in a few fixed sequences (`Slicer`),
each device with its own times, memory and host times; it takes one segment, which may be empty.

An order is cut at some stops; a bucket lies between two of them, and a segment is a run of buckets.
A segment pays for a net that has a pin in it and one outside. With the first bucket of the segment
fixed, bucket j adds the nets whose first pin from there on is in j, and removes the nets whose last
pin is in j if the segment began at or before their first one (`joining`). When the segment begins
one bucket later, this changes for the nets of that bucket alone: all segments together take
O(s^2 + pins) for s stops instead of O(s pins).

Example by hand: buckets 0, 1, 2 and a net of weight 5 with pins in 0 and 2. From bucket 0 on,
joining is 5, 0, -5: the segments 0, 01 and 012 pay 5, 5 and 0. From bucket 1 on it is -, 0, 5: the
segments 1 and 12 pay 0 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, MaxLoad
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets
from placegap.solvers.chains.orders import places_to_cut
from placegap.solvers.chains.problem import (
    ACCELERATOR,
    HOST,
    ChainProblem,
    CutNets,
    Indices,
    build_problem,
    why_not_two_kinds,
)
from placegap.solvers.core.method import Task


class Touched(NamedTuple):
    """Which nets have pins in each of B buckets."""

    #: ptr, net, next: (B + 1,): Nets of bucket j are ``net[ptr[j]:ptr[j + 1]]``, and ``next`` is
    #: the bucket that each of them comes to after it, or -1.
    ptr: Ints
    net: Ints
    next: Ints
    #: first, last: (e,) int64: Buckets of each net's first and last pin.
    first: Ints
    last: Ints


@kernel
def touched_nets(order: Ints, stops: Ints, nets: CutNets) -> Touched:
    """The nets of each bucket; O(pins)."""
    ptr = np.zeros(len(stops), np.int64)
    net, follows = np.zeros(len(nets.net), np.int64), np.full(len(nets.net), -1)
    first, last = np.full(len(nets.size), -1), np.full(len(nets.size), -1)
    latest = np.full(len(nets.size), -1)  # entry of each net
    count = 0
    for j in range(len(stops) - 1):
        for v in order[stops[j] : stops[j + 1]]:
            for e in nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]]:
                if last[e] == j:
                    continue
                if latest[e] < 0:
                    first[e] = j
                else:
                    follows[latest[e]] = j
                net[count], latest[e], last[e] = e, count, j
                count += 1
        ptr[j + 1] = count
    return Touched(ptr, net[:count], follows[:count], first, last)


@kernel
def joining_costs(touched: Touched, weight: Ints) -> Ints:
    """The change of the cut by each bucket for segments that begin with the first one, (B, d)."""
    # `weight` is the cost of a cut net for each of d payers.
    joining = np.zeros((len(touched.ptr) - 1, weight.shape[1]), np.int64)
    for e in range(len(weight)):
        for payer in range(weight.shape[1]):
            joining[touched.first[e], payer] += weight[e, payer]
            joining[touched.last[e], payer] -= weight[e, payer]
    return joining


@kernel(allocates=False)
def leave_behind(touched: Touched, weight: Ints, joining: Ints, bucket: int) -> None:
    """Update `joining` for segments that begin behind a bucket instead of with it."""
    # A net of this bucket now opens at its next bucket. If this was its first one, it lies partly
    # outside of every later segment, so its last bucket no longer removes it.
    for at in range(touched.ptr[bucket], touched.ptr[bucket + 1]):
        e = touched.net[at]
        for p in range(weight.shape[1]):
            if touched.next[at] >= 0:
                joining[touched.next[at], p] += weight[e, p]
            if touched.first[e] == bucket:
                joining[touched.last[e], p] += weight[e, p]


@dataclass(frozen=True)
class Slices:
    """The device of each block: its kind, and its number among the devices of that kind."""

    value: int
    kind: Ints
    number: Ints

    def devices(self, problem: ChainProblem) -> Ints:
        table = [np.array(own, np.int64) for own in problem.devices]
        of_block = np.empty(problem.num_blocks, np.int64)
        for kind in (ACCELERATOR, HOST):
            here = self.kind == kind
            of_block[here] = table[kind][self.number[here]]
        return of_block[problem.blocks.block]


def best_slices(problem: ChainProblem, order: Ints, limit: int) -> Slices | None:
    """Least max_load over all ways to cut the order, or None if none has at most `limit`."""
    stops = places_to_cut(order, problem.time.max(axis=0), problem.nets)
    tables = _TwoKinds(problem.time, problem.need, problem.room, problem.nets, problem.overlap)
    value, k, c, origin = _slice(order, stops, tables, *problem.counts, limit)
    if value > limit:
        return None
    kind, number = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    at = len(stops) - 1
    while at > 0:
        before, its_kind = divmod(int(origin[at, k, c]), 2)
        k, c = (k, c - 1) if its_kind == HOST else (k - 1, c)
        segment = order[stops[before] : stops[at]]
        kind[segment], number[segment] = its_kind, c if its_kind == HOST else k
        at = before
    return Slices(int(value), kind, number)


class _TwoKinds(NamedTuple):
    """Arrays for the kernel: costs on accelerators and hosts, as in `ChainProblem`."""

    time: Ints
    need: Ints
    room: Ints
    nets: CutNets
    overlap: bool


@kernel
def _slice(
    order: Ints, stops: Ints, tables: _TwoKinds, accelerators: int, hosts: int, limit: int
) -> tuple[int, int, int, Indices]:
    """The chain of segments of least max_load: its value, the devices of each kind, the origins."""
    # ``value[j, k, c]`` is the least max_load of k accelerators and c hosts that take the order up
    # to stop j, and ``origin[j, k, c]`` 2 * (stop before) + kind of the last device.
    last = len(stops) - 1
    value = np.full((last + 1, accelerators + 1, hosts + 1), limit + 1, np.int64)
    origin = np.zeros(value.shape, np.int32)
    value[0, 0, 0] = 0
    nets, room = tables.nets, tables.room
    weight = np.empty((len(nets.weight), 1), np.int64)
    for e in range(len(weight)):
        weight[e, 0] = nets.weight[e]
    touched = touched_nets(order, stops, nets)
    joining = joining_costs(touched, weight)
    time_of, need_of = (
        _sums_in_buckets(order, stops, tables.time),
        _sums_in_buckets(order, stops, tables.need),
    )
    for i in range(last):
        if i > 0:
            leave_behind(touched, weight, joining, i - 1)
        # A segment begins only where some state is within the limit.
        least = limit + 1
        for k in range(accelerators + 1):
            for c in range(hosts + 1):
                least = min(least, value[i, k, c])
        if least > limit:
            continue
        work = host_work = size = host_size = cut = np.int64(0)
        for j in range(i + 1, last + 1):
            cut += joining[j - 1, 0]
            work += time_of[ACCELERATOR, j - 1]
            host_work += time_of[HOST, j - 1]
            size += need_of[ACCELERATOR, j - 1]
            host_size += need_of[HOST, j - 1]
            on_accelerator = size <= room[ACCELERATOR] and work <= limit and accelerators > 0
            on_host = host_size <= room[HOST] and host_work <= limit and hosts > 0
            # Work and bytes grow with the segment, so they end it. The cut may fall again.
            if not on_accelerator and not on_host:
                break
            load = max(work, cut) if tables.overlap else work + cut
            for k in range(accelerators + 1):
                for c in range(hosts + 1):
                    before = value[i, k, c]
                    if before > limit:
                        continue
                    if on_accelerator and k < accelerators and load <= limit:
                        now = max(before, load)
                        if now < value[j, k + 1, c]:
                            value[j, k + 1, c], origin[j, k + 1, c] = now, 2 * i + ACCELERATOR
                    if on_host and c < hosts:
                        now = max(before, host_work)
                        if now < value[j, k, c + 1]:
                            value[j, k, c + 1], origin[j, k, c + 1] = now, 2 * i + HOST
    # Any number of devices may do; on ties the fewest are used.
    best, best_k, best_c = limit + 1, 0, 0
    for k in range(accelerators + 1):
        for c in range(hosts + 1):
            if value[last, k, c] < best:
                best, best_k, best_c = value[last, k, c], k, c
    return best, best_k, best_c, origin


@kernel
def _sums_in_buckets(order: Ints, stops: Ints, quantity: Ints) -> Ints:
    """Sums of each row of a quantity over the blocks of a bucket; -1 if one of them is -1."""
    total = np.zeros((len(quantity), len(stops) - 1), np.int64)
    for j in range(len(stops) - 1):
        for at in range(stops[j], stops[j + 1]):
            for row in range(len(quantity)):
                own = quantity[row, order[at]]
                total[row, j] = -1 if own < 0 or total[row, j] < 0 else total[row, j] + own
    return total


SEQUENCES = 8  # sequences of devices that are not alike: four by rule, the others at random


class Slicer:
    """Best slices of orders of one task's blocks."""

    def __init__(self, task: Task[MaxLoad]) -> None:
        instance, overlap = task.instance, task.semantics.load == "overlap"
        #: The blocks and their arcs; times are those of the first accelerator and the first host.
        self.problem = build_problem(instance, overlap=overlap)
        self.alike = why_not_two_kinds(instance) is None
        arrays, blocks = instance.arrays, self.problem.blocks
        self.time_ns, self.num_devices = blocks.time_ns, instance.num_devices
        paid = np.where(arrays.is_host, 0, arrays.host_ns).max(axis=1, initial=0)
        #: Upper bound on every load.
        self.largest = int(self.time_ns.max(axis=1, initial=0).sum()) + 2 * int(paid.sum())
        self.sequences = _sequences(instance, task.limits.seed)
        self.tables = _Devices(
            np.ascontiguousarray(self.time_ns.T),
            blocks.resident_bytes[None, :],
            arrays.memory_bytes,
            self.problem.nets,
            build_nets(instance, blocks.block).weight_ns,
            overlap,
        )

    def slices(self, order: Ints, limit: int | None = None) -> tuple[int, Ints] | None:
        """Least max_load of at most `limit`, and the device of each op; None if there is none."""
        # The time is that of all segments within the limit. So without one, twice the mean load is
        # tried first, then four times as much, and so on.
        if limit is not None:
            return self._within(order, min(limit, self.largest))
        guess = 2 * self.largest // self.num_devices + 1
        while guess < self.largest:
            found = self._within(order, guess)
            if found is not None:
                return found
            guess *= 4
        return self._within(order, self.largest)

    def _within(self, order: Ints, limit: int) -> tuple[int, Ints] | None:
        if limit < 0:
            return None
        if self.alike:
            split = best_slices(self.problem, order, limit)
            return None if split is None else (split.value, split.devices(self.problem))
        best: tuple[int, Ints] | None = None
        stops = places_to_cut(order, self.problem.time.max(axis=0), self.problem.nets)
        for sequence in self.sequences:
            value, origin = _in_sequence(order, stops, self.tables, sequence, limit)
            if value <= limit:
                best = value, _devices(order, stops, sequence, origin)[self.problem.blocks.block]
                limit = value - 1
        return best


def _sequences(instance: Instance, seed: int) -> list[Ints]:
    """Devices in the cluster's order, reversed, fastest first, slowest first, then at random."""
    time_ns = np.maximum(instance.arrays.time_ns, 0).sum(axis=0)
    refused = (instance.arrays.time_ns == UNSUPPORTED).sum(axis=0)
    by_speed = np.lexsort((time_ns, refused))
    every = np.arange(instance.num_devices)
    generator = np.random.default_rng(seed)
    found = [every, every[::-1].copy(), by_speed, by_speed[::-1].copy()]
    found += [generator.permutation(every) for _ in range(SEQUENCES - len(found))]
    return list({sequence.tobytes(): sequence for sequence in found}.values())


def _devices(order: Ints, stops: Ints, sequence: Ints, origin: Ints) -> Ints:
    """Device of each block, from where the segment of each device begins."""
    device, at = np.zeros(len(order), np.int64), len(stops) - 1
    for p in range(len(sequence) - 1, -1, -1):
        before = int(origin[p + 1, at])
        device[order[stops[before] : stops[at]]] = sequence[p]
        at = before
    return device


class _Devices(NamedTuple):
    """Arrays for the kernel: costs of blocks (columns) and nets on each device."""

    time: Ints
    size: Ints
    memory: Ints
    nets: CutNets
    weight: Ints
    overlap: bool


@kernel
def _in_sequence(
    order: Ints, stops: Ints, tables: _Devices, sequence: Ints, limit: int
) -> tuple[int, Ints]:
    """Least max_load of devices in sequence, and where the last segment of each state begins."""
    # ``value[p, j]`` is that of the first p devices with the order up to stop j. O((s^2 + pins) K)
    # for s stops, less where the limit ends the segments.
    # All devices p grow their segments from stop i side by side: value[p, i] is final then, as its
    # segments begin before i. `able` are the devices whose segment is still within the limits.
    last, k_count = len(stops) - 1, len(sequence)
    value = np.full((k_count + 1, last + 1), limit + 1, np.int64)
    origin = np.zeros((k_count + 1, last + 1), np.int64)
    value[0, 0] = 0
    mine = tables.weight[:, sequence]
    touched = touched_nets(order, stops, tables.nets)
    joining = joining_costs(touched, mine)
    work, cut = np.zeros(k_count, np.int64), np.zeros(k_count, np.int64)
    able = np.zeros(k_count, np.bool_)
    time_of = _sums_in_buckets(order, stops, tables.time)
    size_of = _sums_in_buckets(order, stops, tables.size)
    for i in range(last + 1):
        if i > 0:
            leave_behind(touched, mine, joining, i - 1)
        # The empty segment, first: in the order of p it can skip several devices.
        for p in range(k_count):
            if value[p, i] < value[p + 1, i]:
                value[p + 1, i], origin[p + 1, i] = value[p, i], i
            able[p] = value[p, i] <= limit
        work[:], cut[:] = 0, 0
        held = np.int64(0)
        for j in range(i + 1, last + 1):
            held += size_of[0, j - 1]
            for p in range(k_count):
                cut[p] += joining[j - 1, p]
                own = time_of[sequence[p], j - 1]
                work[p] += max(own, 0)
                able[p] &= own >= 0 and held <= tables.memory[sequence[p]] and work[p] <= limit
            # Work and bytes only grow, so a device that is out of its limits stays out.
            if not able.any():
                break
            for p in range(k_count):
                if able[p]:
                    load = max(work[p], cut[p]) if tables.overlap else work[p] + cut[p]
                    now = max(value[p, i], load)
                    if now < value[p + 1, j]:
                        value[p + 1, j], origin[p + 1, j] = now, i
    return value[k_count, last], origin
