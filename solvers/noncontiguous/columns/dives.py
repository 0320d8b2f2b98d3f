"""Plans from columns: fix the set of largest weight on a device, price the rest again, repeat.

Every fixed set takes its blocks out of the problem and a device out of the count, and the covering
LP is brought up to date by some more pricings, as far as the device's part of the time goes. What
no set covers in the end goes where it makes the heaviest device lightest; local search repairs the
rest.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.noncontiguous.column_generation import ColumnGeneration
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
    """Put what is left where the heaviest load stays least; O(d K) for a block of d nets."""
    nets = problem.nets
    left = np.flatnonzero(device < 0)
    weight = np.where(problem.time_ns[left] == UNSUPPORTED, 0, problem.time_ns[left]).max(axis=1)
    placed = np.flatnonzero(device >= 0)
    time, held = np.zeros((2, problem.num_devices), np.int64)
    np.add.at(held, device[placed], problem.size_bytes[placed])
    np.add.at(time, device[placed], problem.time_ns[placed, device[placed]])
    sizes = np.diff(nets.net_ptr)
    owner, on = np.repeat(np.arange(nets.num_nets), sizes), device[nets.pin]
    inside = np.zeros((nets.num_nets, problem.num_devices), np.int64)
    np.add.at(inside, (owner[on >= 0], on[on >= 0]), 1)
    cut = (inside > 0) & (inside < sizes[:, None])
    paid = np.where(cut, nets.weight_ns, 0).sum(axis=0)
    for v in left[np.argsort(-weight, kind="stable")].tolist():
        possible = problem.time_ns[v] != UNSUPPORTED
        possible &= held + problem.size_bytes[v] <= problem.memory_bytes
        if not possible.any():
            return None
        own = nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]]
        opens, closes = inside[own] == 0, inside[own] == sizes[own, None] - 1
        pays = (nets.weight_ns[own] * (opens.astype(np.int64) - closes)).sum(axis=0)
        before, after = (time, paid), (time + problem.time_ns[v], paid + pays)
        load, rises = _load(problem, *after), _load(problem, *after) - _load(problem, *before)
        k = min(np.flatnonzero(possible).tolist(), key=lambda k: (load[k], rises[k], k))
        device[v] = k
        time[k], paid[k] = after[0][k], after[1][k]
        inside[own, k] += 1
        held[k] += problem.size_bytes[v]
    return device


def _load(problem: SplitProblem, time: Ints, paid: Ints) -> Ints:
    return np.maximum(time, paid) if problem.overlap else time + paid
