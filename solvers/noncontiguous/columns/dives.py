"""Plans from columns: fix the set of largest weight on a device, price the rest again, repeat.

Every fixed set takes its blocks out of the problem and a device out of the count, and the covering
LP is brought up to date by some more pricings, as far as the device's part of the time goes. What
no set covers in the end goes where it makes the heaviest device lightest; local search repairs the
rest.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.noncontiguous.columns.generation import ColumnGeneration
from placegap.solvers.noncontiguous.problem import SplitProblem

PRICINGS = 25
"""How many follow each set that is fixed."""


def dive(found: ColumnGeneration, target_ns: int, clock: Clock) -> Ints | None:
    """A plan whose loads are about `target_ns` if all goes well, (b,); None if memory prevents it.

    Parameters
    ----------
    found : ColumnGeneration
        Its sets and prices are where the dive starts.
    target_ns : int
    clock : Clock
        Devices get equal parts of its time. Where one is over, the sets known have to do.
    """
    pricer = found.pricer
    problem = pricer.problem
    members = [list(devices) for devices in problem.members()]
    device = np.full(problem.num_blocks, -1, np.int64)
    room = problem.memory_bytes.copy()
    sets, prices = [(kind, blocks) for (kind, _), (_, blocks) in found.sets.items()], found.best
    while (device < 0).any() and any(members):
        active = device < 0
        counts = tuple(len(devices) for devices in members)
        search = ColumnGeneration(pricer, target_ns + 1, found.num_cells, active, counts)
        target = target_ns // search.unit_ns
        search.carry(sets)
        search.best = np.where(active, prices, 0.0) + np.where(active, 1e-9, 0.0)
        left = sum(len(devices) for devices in members)
        try:
            search.reach(clock.part(1 / left), target, PRICINGS, regardless=True)
        except LimitReached:
            if search.cover is None:
                search.reach(Clock(None), target, 0, regardless=True)
        chosen = _heaviest(search, problem, room, members)
        if chosen is None:
            break
        kind, blocks = chosen
        k = members[kind].pop(0)
        device[blocks] = k
        room[k] -= problem.size_bytes[blocks].sum()
        sets, prices = list(search.rows), search.best
    return _complete(problem, device)


def _heaviest(
    search: ColumnGeneration, problem: SplitProblem, room: Ints, members: list[list[int]]
) -> tuple[int, Ints] | None:
    """The set of largest weight that fits a device that is left; of equal ones the first."""
    cover = search.cover
    if cover is None:
        return None
    weight = cover.weight
    for at in np.argsort(-weight, kind="stable").tolist():
        kind, blocks = search.rows[at]
        if (
            members[kind]
            and len(blocks)
            and problem.size_bytes[blocks].sum() <= room[members[kind][0]]
        ):
            return kind, blocks
    return None


def _complete(problem: SplitProblem, device: Ints) -> Ints | None:
    """Put what is left where the heaviest load stays least."""
    left = np.flatnonzero(device < 0)
    weight = np.where(problem.time_ns[left] == UNSUPPORTED, 0, problem.time_ns[left]).max(axis=1)
    held = np.zeros(problem.num_devices, np.int64)
    np.add.at(held, device[device >= 0], problem.size_bytes[device >= 0])
    inside = device[:, None] == np.arange(problem.num_devices)
    load = [problem.set_load(k, inside[:, k]) for k in range(problem.num_devices)]
    for v in left[np.argsort(-weight, kind="stable")].tolist():
        best: tuple[int, int, int] | None = None
        for k in range(problem.num_devices):
            if (
                problem.time_ns[v, k] == UNSUPPORTED
                or held[k] + problem.size_bytes[v] > problem.memory_bytes[k]
            ):
                continue
            inside[v, k] = True
            after = problem.set_load(k, inside[:, k])
            inside[v, k] = False
            if best is None or (after, after - load[k]) < best[:2]:
                best = after, after - load[k], k
        if best is None:
            return None
        k = best[2]
        device[v], load[k] = k, best[0]
        inside[v, k] = True
        held[k] += problem.size_bytes[v]
    return device
