"""Local search over ranges of layers: simulated annealing with the flow of the plan as its value."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel
from placegap.instances.problem.flow_problem import Ranges
from placegap.solvers.serving_flow.flow import Machines, flow, to_arrays, to_ranges

FIRST_TEMPERATURE = 0.02  # of the value, by which a move may lower it with a chance of 1 in e


def improve(
    machines: Machines, ranges: Ranges, steps: int, seed: int, enough: int
) -> tuple[int, Ranges]:
    """The best plan of a walk from a given one, and its flow; it ends early at `enough`."""
    start, layers = to_arrays(ranges)
    rng = np.random.default_rng(seed)
    value = _walk(machines, start, layers, steps, enough, rng)
    return int(value), to_ranges(start, layers)


@kernel(nogil=True)
def _walk(
    machines: Machines, start: Ints, layers: Ints, steps: int, enough: int, rng: np.random.Generator
) -> int:
    """Anneal in place; ends with the best plan in `start` and `layers`."""
    n, num_layers = len(machines.passes), machines.num_layers
    left = np.zeros((2 * n + 2, 2 * n + 2), np.int64)
    s, h = start.copy(), layers.copy()
    old_s, old_h = start.copy(), layers.copy()
    value = flow(machines, s, h, left)
    best = value
    for step in range(steps):
        if best >= enough:
            break
        copy_to(old_s, s)
        copy_to(old_h, h)
        i, j, move = draw(rng, n), draw(rng, n), draw(rng, 4)
        if move == 0 or move == 1:  # exchange what two machines hold
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
            most = len(machines.passes[i])
            h[i] = 1 + draw(rng, most)
            end = old_s[j] + old_h[j]
            at = draw(rng, 3)
            s[i] = old_s[j] if at == 0 else end if at == 1 else end - h[i]
        fits = True
        for k in range(n):
            if h[k] == 0:
                continue
            passes = machines.passes[k]
            if s[k] < 0 or h[k] < 0 or s[k] + h[k] > num_layers or h[k] > len(passes):
                fits = False
            elif passes[h[k] - 1] == 0:
                fits = False
        found = flow(machines, s, h, left) if fits else -1
        slack = FIRST_TEMPERATURE * value * (1.0 - step / steps)
        lost = value - found
        if found >= 0 and (lost <= 0 or rng.random() < np.exp(-lost / max(slack, 1e-9))):
            value = found
            if value > best:
                best = value
                copy_to(start, s)
                copy_to(layers, h)
        else:
            copy_to(s, old_s)
            copy_to(h, old_h)
    return best
