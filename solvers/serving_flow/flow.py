"""The flow of a plan for searches, as kernels: fast, and apart from the referee."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem.flow_problem import FlowProblem, Range, Ranges


class MachineArrays(NamedTuple):
    """A problem as arrays."""

    #: (n, most layers) What a machine with h layers passes, at h - 1; 0 where it holds fewer.
    passes: Ints
    rates: Ints
    num_layers: int
    partial: bool


def machines_of(problem: FlowProblem) -> MachineArrays:
    """A problem as arrays."""
    most = max(problem.most_layers(i) for i in range(problem.num_machines))
    passes = np.zeros((problem.num_machines, most), np.int64)
    for i in range(problem.num_machines):
        for h in range(1, problem.most_layers(i) + 1):
            passes[i, h - 1] = problem.throughput(i, h)
    return MachineArrays(passes, problem.rates, problem.num_layers, problem.partial)


def to_arrays(ranges: Ranges) -> tuple[Ints, Ints]:
    """First layers and numbers of layers; 0 layers where a machine holds nothing."""
    both = [(0, 0) if held is None else (held.start, held.layers) for held in ranges]
    columns = np.array(both, np.int64).reshape(-1, 2)
    return columns[:, 0].copy(), columns[:, 1].copy()


def to_ranges(start: Ints, layers: Ints) -> Ranges:
    """What each machine holds."""
    pairs = zip(start.tolist(), layers.tolist(), strict=True)
    return tuple(Range(s, h) if h else None for s, h in pairs)


def flow_of(machines: MachineArrays, ranges: Ranges) -> int:
    """The most tokens that a plan passes."""
    size = 2 * len(machines.passes) + 2
    return int(flow(machines, *to_arrays(ranges), np.zeros((size, size), np.int64)))


@kernel(nogil=True)
def flow(machines: MachineArrays, start: Ints, layers: Ints, left: Ints) -> int:
    """Maximum flow along shortest paths (Edmonds and Karp 1972); `left` is scratch."""
    # a machine i is an arc from node i to node n + i; source and sink are 2n and 2n + 1
    n, rates = len(machines.passes), machines.rates
    size = 2 * n + 2
    for a in range(size):
        for b in range(size):
            left[a, b] = 0
    for i in range(n):
        h = layers[i]
        if h == 0:
            continue
        left[i, n + i] = machines.passes[i, h - 1]
        end = start[i] + h
        if start[i] == 0:
            left[2 * n, i] = rates[n, i]
        if end == machines.num_layers:
            left[n + i, 2 * n + 1] = rates[i, n + 1]
        for j in range(n):
            if layers[j] and (
                start[j] == end
                or (machines.partial and start[j] <= end and end < start[j] + layers[j])
            ):
                left[n + i, j] = rates[i, j]
    queue, before = np.empty(size, np.int64), np.empty(size, np.int64)
    total = 0
    while True:
        for a in range(size):
            before[a] = -1
        queue[0], first, last = 2 * n, 0, 1
        before[2 * n] = 2 * n
        while first < last and before[2 * n + 1] < 0:
            a = queue[first]
            first += 1
            for b in range(size):
                if before[b] < 0 and left[a, b] > 0:
                    before[b] = a
                    queue[last] = b
                    last += 1
        if before[2 * n + 1] < 0:
            return total
        least, b = 2**62, 2 * n + 1
        while b != 2 * n:
            least = min(least, left[before[b], b])
            b = before[b]
        b = 2 * n + 1
        while b != 2 * n:
            left[before[b], b] -= least
            left[b, before[b]] += least
            b = before[b]
        total += least
