"""Local search over ranges of layers: simulated annealing of the flow, and of links that lack."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel
from placegap.instances.problem.flow_problem import Ranges
from placegap.solvers.serving_flow.flow import MachineArrays, flow, to_arrays, to_ranges

# Of the rate wanted, by which the value may fall with a chance of 1 in e, at first. With 0.02 and
# 0.2 walks through a network of few links end at half the flow.
FIRST_TEMPERATURE = 0.002


def improve(
    machines: MachineArrays, ranges: Ranges, steps: int, seed: int, enough: int
) -> tuple[int, Ranges]:
    """The best plan of a walk from a given one, and its flow; it ends early at `enough`."""
    start, layers = to_arrays(ranges)
    rng = np.random.default_rng(seed)
    value = _walk(machines, start, layers, steps, enough, rng)
    return int(value), to_ranges(start, layers)


@kernel(nogil=True, allocates=False)
def _lack(machines: MachineArrays, start: Ints, layers: Ints, most: int, sums: Ints) -> int:
    """How much of a rate links do not carry, over all layers where machines end and begin."""
    n, rates, num_layers = len(machines.passes), machines.rates, machines.num_layers
    for e in range(num_layers + 1):
        for row in range(3):  # what machines that end here pass, those that begin, and their links
            sums[row, e] = 0
    for i in range(n):
        if layers[i] == 0:
            continue
        end, passes = start[i] + layers[i], machines.passes[i, layers[i] - 1]
        sums[0, end] += passes
        sums[1, start[i]] += passes
        if start[i] == 0:
            sums[2, 0] += min(rates[n, i], passes)
        if end == num_layers:
            sums[2, end] += min(rates[i, n + 1], passes)
            continue
        for j in range(n):
            if layers[j] and start[j] == end:
                sums[2, end] += min(rates[i, j], passes)
    total = 0
    for e in range(num_layers + 1):
        ends, begins = sums[0, e], sums[1, e]
        asked = min(ends, begins) if ends and begins else max(ends, begins)
        if e in (0, num_layers):
            asked = most
        total += max(0, min(most, asked) - sums[2, e])
    return total


@kernel(nogil=True)
def _walk(
    machines: MachineArrays,
    start: Ints,
    layers: Ints,
    steps: int,
    enough: int,
    rng: np.random.Generator,
) -> int:
    """Anneal in place; ends with the best plan in `start` and `layers`."""
    n, num_layers = len(machines.passes), machines.num_layers
    left = np.zeros((2 * n + 2, 2 * n + 2), np.int64)
    sums = np.zeros((3, num_layers + 1), np.int64)
    s, h = start.copy(), layers.copy()
    old_s, old_h = start.copy(), layers.copy()
    best = flow(machines, s, h, left)
    # where links lack, a plan may pass nothing: then fewer of these are better
    value = best - _lack(machines, s, h, enough, sums)
    for step in range(steps):
        if best >= enough:
            break
        copy_to(old_s, s)
        copy_to(old_h, h)
        i, j, move = draw(rng, n), draw(rng, n), draw(rng, 4)
        if move < 2:  # exchange what two machines hold
            s[i], s[j] = s[j], s[i]
            h[i], h[j] = h[j], h[i]
        elif move == 2:  # all that end or begin at an end of i's range do so a layer further
            by = 1 if draw(rng, 2) else -1
            at = s[i] + h[i]
            for k in range(n):
                if h[k] and s[k] + h[k] == at:
                    h[k] += by
                elif h[k] and s[k] == at:
                    s[k] += by
                    h[k] -= by
        else:  # begin where j ends or begins, with any number of layers, or end where j ends
            h[i] = 1 + draw(rng, len(machines.passes[i]))
            end = old_s[j] + old_h[j]
            at = draw(rng, 3)
            s[i] = old_s[j] if at == 0 else end if at == 1 else end - h[i]
        fits = True
        for k in range(n):
            passes, inside = machines.passes[k], s[k] >= 0 and s[k] + h[k] <= num_layers
            if not (inside and 0 <= h[k] <= len(passes) and (not h[k] or passes[h[k] - 1])):
                fits = False
        lack = _lack(machines, s, h, enough, sums) if fits else 0
        slack = FIRST_TEMPERATURE * enough * (1.0 - step / steps) * -np.log(1.0 - rng.random())
        if not fits or enough - lack < value - slack:
            copy_to(s, old_s)
            copy_to(h, old_h)
            continue
        passed = flow(machines, s, h, left)
        if passed - lack < value - slack:
            copy_to(s, old_s)
            copy_to(h, old_h)
            continue
        value = passed - lack
        if passed > best:
            best = passed
            copy_to(start, s)
            copy_to(layers, h)
    return best
