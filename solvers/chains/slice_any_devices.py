"""Cut one topological order into segments, optimally, whatever the devices are.

Where accelerators are alike, and hosts are, `slice_two_kinds.best_slices` finds the best segments
on them in any succession. Other devices come in a few fixed sequences, each device with its own
times, memory and host times; it takes one segment, which may be empty.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.nets import build_nets
from placegap.instances.problem.semantics import MaxLoad
from placegap.solvers.chains.orders import places_to_cut
from placegap.solvers.chains.problem import CutNets, build_problem, why_not_two_kinds
from placegap.solvers.chains.slices import best_slices, joining_costs, leave_behind, touched_nets
from placegap.solvers.core.method import Task

SEQUENCES = 8
"""Sequences of devices that are not alike: four rules, the others at random."""


class Slicer:
    """Best slices of orders of one task's blocks.

    Attributes
    ----------
    problem : ChainProblem
        The blocks and their arcs. Its times are those of the first accelerator and host.
    largest : int
        No load is larger.
    """

    def __init__(self, task: Task[MaxLoad]) -> None:
        instance, self.overlap = task.instance, task.semantics.load == "overlap"
        self.problem = build_problem(instance, overlap=self.overlap)
        self.alike = why_not_two_kinds(instance) is None
        arrays, blocks = instance.arrays, self.problem.blocks
        self.time_ns, self.size, self.memory = (
            blocks.time_ns,
            blocks.resident_bytes,
            arrays.memory_bytes,
        )
        paid = np.where(arrays.is_host, 0, arrays.host_ns).max(axis=1, initial=0)
        self.largest = int(self.time_ns.max(axis=1, initial=0).sum()) + 2 * int(paid.sum())
        if not self.alike:
            self.weight = build_nets(instance, blocks.block).weight_ns
            self.sequences = _sequences(instance, task.limits.seed)

    def slices(self, order: Ints, limit: int | None = None) -> tuple[int, Ints] | None:
        """Least max_load of at most `limit`, and the device of each op; None if there is none.

        Without a limit a low one is tried at first, which ends segments early.
        """
        if limit is not None:
            return self._within(order, min(limit, self.largest))
        guess = 2 * self.largest // len(self.memory) + 1
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
            value, origin = _in_sequence(
                order,
                stops,
                self.time_ns,
                self.size,
                self.memory,
                self.problem.nets,
                self.weight,
                sequence,
                self.overlap,
                limit,
            )
            if value <= limit:
                best = value, _devices(order, stops, sequence, origin)[self.problem.blocks.block]
                limit = value - 1
        return best


def _sequences(instance: Instance, seed: int) -> list[Ints]:
    """Devices as they are, backwards, the fastest first or last, then at random."""
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


@kernel
def _in_sequence(
    order: Ints,
    stops: Ints,
    time: Ints,
    size: Ints,
    memory: Ints,
    nets: CutNets,
    weight: Ints,
    sequence: Ints,
    overlap: bool,
    limit: int,
) -> tuple[int, Ints]:
    """Least max_load of devices in sequence, and where the last segment of each state begins.

    ``value[p, j]`` is that of the first p devices with the order up to stop j. O((s^2 + pins) K)
    for s stops, less where the limit ends the segments.
    """
    last, k_count = len(stops) - 1, len(sequence)
    value = np.full((k_count + 1, last + 1), limit + 1, np.int64)
    origin = np.zeros((k_count + 1, last + 1), np.int64)
    value[0, 0] = 0
    mine = weight[:, sequence]
    touched = touched_nets(order, stops, nets)
    joining = joining_costs(touched, mine)
    work, cut = np.zeros(k_count, np.int64), np.zeros(k_count, np.int64)
    able = np.zeros(k_count, np.bool_)
    time_of, size_of = _in_buckets(order, stops, time, size, sequence)
    for i in range(last + 1):
        if i > 0:
            leave_behind(touched, mine, joining, i - 1)
        for p in range(k_count):
            if value[p, i] < value[p + 1, i]:
                value[p + 1, i], origin[p + 1, i] = value[p, i], i
            able[p] = value[p, i] <= limit
        work[:], cut[:] = 0, 0
        held = np.int64(0)
        for j in range(i + 1, last + 1):
            held += size_of[j - 1]
            for p in range(k_count):
                cut[p] += joining[j - 1, p]
                work[p] += max(time_of[j - 1, p], 0)
                able[p] &= time_of[j - 1, p] >= 0 and held <= memory[sequence[p]]
                able[p] &= work[p] <= limit
            if not able.any():
                break
            for p in range(k_count):
                if able[p]:
                    load = max(work[p], cut[p]) if overlap else work[p] + cut[p]
                    now = max(value[p, i], load)
                    if now < value[p + 1, j]:
                        value[p + 1, j], origin[p + 1, j] = now, i
    return value[k_count, last], origin


@kernel
def _in_buckets(
    order: Ints, stops: Ints, time: Ints, size: Ints, sequence: Ints
) -> tuple[Ints, Ints]:
    """Time on each device of the sequence, -1 where it cannot run, and bytes, between two stops."""
    time_of = np.zeros((len(stops) - 1, len(sequence)), np.int64)
    size_of = np.zeros(len(stops) - 1, np.int64)
    for j in range(len(stops) - 1):
        for v in order[stops[j] : stops[j + 1]]:
            size_of[j] += size[v]
            for p in range(len(sequence)):
                own = time[v, sequence[p]]
                if own < 0 or time_of[j, p] < 0:
                    time_of[j, p] = UNSUPPORTED
                else:
                    time_of[j, p] += own
    return time_of, size_of
