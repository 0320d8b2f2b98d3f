"""Mend an assignment that memory or support forbids: move single units until it is allowed."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.blocks import Blocks
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import Nets
from placegap.solvers.placers.movable_units import (
    State,
    arcs_of,
    load,
    move,
    nets_of,
    start,
)


def mend(
    instance: Instance, units: Blocks, nets: Nets, device: Ints, *, overlap: bool
) -> tuple[State, int, int | None]:
    """Move units off devices that cannot run or hold them.

    First go units that their device cannot run, the largest first; then, from each device that is
    too full, the smallest unit that makes up for all that is too much or, while there is none, the
    largest. Each goes to the device with room for it whose load is least with it (ties: index).
    A simple repair, which may fail where a plan exists. O(u K log u), apart from the moves' own.

    Parameters
    ----------
    instance : Instance
    units : Blocks
    nets : Nets
        Over the units.
    device : (u,) int64
        Device of each unit; it is changed in place.
    overlap : bool
        The rule of loads.

    Returns
    -------
    tuple
        The state, how many units moved, and one that fits nowhere, or None.
    """
    runs, size = units.time_ns != UNSUPPORTED, units.resident_bytes
    memory, time = instance.arrays.memory_bytes, np.maximum(units.time_ns, 0)
    net, arcs = nets_of(nets), arcs_of(units)
    state = start(device, time, size, net, arcs)
    moved = 0

    def away(v: int) -> bool:
        able = runs[v] & (state.used_bytes + size[v] <= memory)
        able[state.device[v]] = False
        targets = np.flatnonzero(able)
        if len(targets) == 0:
            return False
        loads = [
            load(
                int(state.compute[k] + time[v, k]),
                int(state.paid[k] + state.joining[v, k]),
                overlap,
            )
            for k in targets.tolist()
        ]
        move(state, time, size, net, arcs, v, int(targets[int(np.argmin(loads))]))
        return True

    refused = np.flatnonzero(~runs[np.arange(len(size)), device])
    for v in refused[np.argsort(-size[refused], kind="stable")].tolist():
        if not away(v):
            return state, moved, v
        moved += 1
    for k in np.flatnonzero(state.used_bytes > memory).tolist():
        here = np.flatnonzero(state.device == k)
        left = here[np.argsort(size[here], kind="stable")].tolist()
        while state.used_bytes[k] > memory[k]:
            excess = int(state.used_bytes[k] - memory[k])
            at = int(np.searchsorted(size[left], excess))
            tries = [*range(at, len(left)), *range(at - 1, -1, -1)]
            found = next((i for i in tries if size[left[i]] > 0 and away(left[i])), None)
            if found is None:
                return state, moved, left[-1]
            left.pop(found)
            moved += 1
    return state, moved, None
