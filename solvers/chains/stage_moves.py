"""A better chain from a known one: single blocks change their stage, and loads follow.

The stages keep their devices. A block may go to any stage between those of its predecessors and
those of its successors, so that every state is a chain. Simulated annealing looks for a state in
which no load is above a target; where one is found, the target is lowered to just below its value.
Only the loads of two stages change with a move: O(nets of the block x pins to look at).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.kernels import copy_to, kernel
from placegap.solvers.chains.stage_lp import ChainCosts

HEATS = (3e-3, 1e-3, 3e-4, 1e-2)
"""First temperatures, in squares of what a load has above the target, the target being 1; a search
takes one after the other."""

COOLER = 1000.0
"""How many times lower the last temperature is."""

BELOW = 100
"""The target is below the best value by its share of one over this."""


class Moves(NamedTuple):
    """Blocks, arcs and nets in the form of the kernel; tables of stages, not of kinds."""

    #: time, need: (K, b) int64: Of each block in each stage.
    time: Ints
    need: Ints
    #: (K, b) bool
    able: Flags
    #: (K,) int64
    room: Ints
    #: (K, e) int64
    weight: Ints
    #: block_ptr, net, size: Nets of each block, and pins of each net.
    block_ptr: Ints
    net: Ints
    size: Ints
    pred_ptr: Ints
    pred: Ints
    succ_ptr: Ints
    succ: Ints
    overlap: bool


def moves(costs: ChainCosts, kinds: Ints) -> Moves:
    """The tables for stages whose devices are of these kinds."""
    b, sizes = costs.num_blocks, np.diff(costs.net_ptr)
    block_ptr, at = group_by(costs.pin, b)
    pred_ptr, pred_arc = group_by(costs.arcs.head, b)
    succ_ptr, succ_arc = group_by(costs.arcs.tail, b)
    return Moves(
        costs.time[kinds],
        costs.need[kinds],
        costs.fits[kinds],
        costs.room[kinds],
        costs.weight[kinds],
        block_ptr,
        np.repeat(np.arange(len(sizes)), sizes)[at],
        sizes,
        pred_ptr,
        costs.arcs.tail[pred_arc],
        succ_ptr,
        costs.arcs.head[succ_arc],
        costs.overlap,
    )


@kernel
def anneal(
    m: Moves, stage: Ints, best: int, steps: int, heat: float, rng: np.random.Generator
) -> tuple[int, Ints]:
    """The best value found in so many steps, and the stage of each block: O(steps x degree).

    Parameters
    ----------
    stage : (b,) int64
        A chain within all memory, of value `best`.
    heat : float
        First temperature.

    Returns
    -------
    value, stages
        As they came, if nothing is better.
    """
    num_stages, b = m.time.shape
    now, found = stage.copy(), stage.copy()
    pins = np.zeros((num_stages, len(m.size)), np.int32)
    work, moved = np.zeros(num_stages, np.int64), np.zeros(num_stages, np.int64)
    held = np.zeros(num_stages, np.int64)
    for v in range(b):
        s = now[v]
        work[s] += m.time[s, v]
        held[s] += m.need[s, v]
        for at in range(m.block_ptr[v], m.block_ptr[v + 1]):
            pins[s, m.net[at]] += 1
    for s in range(num_stages):
        for e in range(len(m.size)):
            if 0 < pins[s, e] < m.size[e]:
                moved[s] += m.weight[s, e]
    target = best - max(1, best // BELOW)
    cooling = (1.0 / COOLER) ** (1.0 / max(1, steps))
    temperature = heat
    for _ in range(steps):
        temperature *= cooling
        v = int(rng.random() * b)
        s = now[v]
        low, high = 0, num_stages - 1
        for at in range(m.pred_ptr[v], m.pred_ptr[v + 1]):
            low = max(low, now[m.pred[at]])
        for at in range(m.succ_ptr[v], m.succ_ptr[v + 1]):
            high = min(high, now[m.succ[at]])
        if low == high:
            continue
        t = low + int(rng.random() * (high - low))
        if t >= s:
            t += 1
        if not m.able[t, v] or held[t] + m.need[t, v] > m.room[t]:
            continue
        off = on = np.int64(0)
        for at in range(m.block_ptr[v], m.block_ptr[v + 1]):
            e = m.net[at]
            left, size = pins[s, e] - 1, m.size[e]
            if left == 0 and size > 1:
                off -= m.weight[s, e]
            elif left == size - 1 and left > 0:
                off += m.weight[s, e]
            here = pins[t, e]
            if here == 0 and size > 1:
                on += m.weight[t, e]
            elif here == size - 1 and here > 0:
                on -= m.weight[t, e]
        before = _above(m, work[s], moved[s], target) + _above(m, work[t], moved[t], target)
        after = _above(m, work[s] - m.time[s, v], moved[s] + off, target)
        after += _above(m, work[t] + m.time[t, v], moved[t] + on, target)
        if after > before and rng.random() >= np.exp((before - after) / temperature):
            continue
        now[v] = t
        work[s] -= m.time[s, v]
        work[t] += m.time[t, v]
        moved[s] += off
        moved[t] += on
        held[s] -= m.need[s, v]
        held[t] += m.need[t, v]
        for at in range(m.block_ptr[v], m.block_ptr[v + 1]):
            pins[s, m.net[at]] -= 1
            pins[t, m.net[at]] += 1
        if after == 0.0 and before > 0.0:
            value = 0
            for x in range(num_stages):
                load = max(work[x], moved[x]) if m.overlap else work[x] + moved[x]
                value = max(value, int(load))
            if value < best:
                best, target = value, value - max(1, value // BELOW)
                copy_to(found, now)
    return best, found


@kernel(allocates=False)
def _above(m: Moves, work: int, moved: int, target: int) -> float:
    """The square of what a load has above the target, in parts of it."""
    load = max(work, moved) if m.overlap else work + moved
    return float(max(0, load - target) / max(1, target)) ** 2
