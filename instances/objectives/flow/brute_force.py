"""Every plan of a few machines and layers: the largest flow of all."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.objectives.flow.referee import plan_of, problem_of
from placegap.instances.problem import Instance, Plan, ServingFlow
from placegap.instances.problem.flow_problem import FlowProblem, Range

MOST_LAYERS = 6


def count_plans(problem: FlowProblem) -> int:
    """How many plans there are in which every machine holds something."""
    number = 1
    for i in range(problem.num_machines):
        number *= sum(problem.num_layers - h for h in range(problem.most_layers(i)))
    return number


def best_ranges(instance: Instance, rules: ServingFlow) -> tuple[int, Plan] | None:
    """The largest flow and a plan of it; None where no plan holds all layers."""
    # A machine more never takes from a flow, so each holds something.
    problem = problem_of(instance, rules)
    layers, size = problem.num_layers, problem.num_machines
    choices = [
        [(s, h) for h in range(1, problem.most_layers(i) + 1) for s in range(layers - h + 1)]
        for i in range(size)
    ]
    most = max(map(len, choices))
    table = np.zeros((size, most, 3), np.int64)
    for i, own in enumerate(choices):
        for c, (s, h) in enumerate(own):
            table[i, c] = s, s + h, problem.throughput(i, h)
    counts = np.array(list(map(len, choices)), np.int64)
    value, chosen = _best(table, counts, problem.rates, layers, problem.partial)
    if value < 0:
        return None
    ranges = tuple(Range(choices[i][c][0], choices[i][c][1]) for i, c in enumerate(chosen.tolist()))
    plan = plan_of(instance, ranges)
    assert plan is not None
    return int(value), plan


@kernel
def _best(table: Ints, counts: Ints, rates: Ints, layers: int, partial: bool) -> tuple[int, Ints]:
    """Count through all choices; those that hold every layer get a flow."""
    n = len(table)
    at, best = np.zeros(n, np.int64), np.zeros(n, np.int64)
    value = -1
    left = np.zeros((2 * n + 2, 2 * n + 2), np.int64)
    came, queue = np.zeros(2 * n + 2, np.int64), np.zeros(2 * n + 2, np.int64)
    while True:
        held = 0
        for i in range(n):
            start, end = table[i, at[i], 0], table[i, at[i], 1]
            held |= (1 << end) - (1 << start)
        if held == (1 << layers) - 1:
            found = _flow(table, at, rates, layers, partial, left, came, queue)
            if found > value:
                value = found
                best[:] = at
        i = 0
        while i < n and at[i] == counts[i] - 1:
            at[i] = 0
            i += 1
        if i == n:
            return value, best
        at[i] += 1


@kernel
def _flow(
    table: Ints,
    at: Ints,
    rates: Ints,
    layers: int,
    partial: bool,
    left: Ints,
    came: Ints,
    queue: Ints,
) -> int:
    """The largest flow of one choice, by shortest augmenting paths."""
    # Node 2 i is the way into machine i and 2 i + 1 the way out; the source is 2 n, the sink next.
    n = len(table)
    source, sink = 2 * n, 2 * n + 1
    left[:] = 0
    for i in range(n):
        start, end, left[2 * i, 2 * i + 1] = table[i, at[i]]
        if start == 0:
            left[source, 2 * i] = rates[n, i]
        if end == layers:
            left[2 * i + 1, sink] = rates[i, n + 1]
        for j in range(n):
            begin, stop = table[j, at[j], 0], table[j, at[j], 1]
            if begin == end or (partial and begin <= end < stop):
                left[2 * i + 1, 2 * j] = rates[i, j]
    total = 0
    while True:
        came[:] = -1
        came[source], queue[0], head, tail = source, source, 0, 1
        while head < tail and came[sink] < 0:
            a = queue[head]
            head += 1
            for b in range(2 * n + 2):
                if came[b] < 0 and left[a, b] > 0:
                    came[b], queue[tail] = a, b
                    tail += 1
        if came[sink] < 0:
            return total
        amount, b = left[came[sink], sink], came[sink]
        while b != source:
            amount = min(amount, left[came[b], b])
            b = came[b]
        total += amount
        b = sink
        while b != source:
            left[came[b], b] -= amount
            left[b, came[b]] += amount
            b = came[b]
