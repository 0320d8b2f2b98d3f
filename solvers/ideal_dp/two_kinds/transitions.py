"""One step of the ideal DP: one more device takes the difference of two ideals.

value(I) = min over sources J within I of max(value(J), load(I - J)).

The communication of I - J is `ideals.cut_between.cut_between`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.problem import ACCELERATOR, ChainProblem, Indices
from placegap.solvers.ideal_dp.ideals.cut_between import cut_between
from placegap.solvers.ideal_dp.ideals.ideals import Ideals
from placegap.solvers.ideal_dp.ideals.source_tree import FAN_OUT_BITS, Sources, potentials


class Device(NamedTuple):
    """Ideals and nets as one kind of device sees them; the kernels' form.

    Attributes
    ----------
    work, need, cut : (N,) int64
        Time and need of each ideal on this kind, and its cut: 0 on hosts.
    potential : (N, p) int64
    members, cut_nets : (N, words) int64
    room : int
    weight, net_ptr, pin
        Of the problem's nets.
    pays, overlap : bool
        Whether communication counts, and how.
    """

    work: Ints
    need: Ints
    cut: Ints
    potential: Ints
    members: Ints
    cut_nets: Ints
    room: int
    weight: Ints
    net_ptr: Ints
    pin: Ints
    pays: bool
    overlap: bool


def see(problem: ChainProblem, ideals: Ideals, kind: int) -> Device:
    """The ideals of a problem as one kind of device sees them."""
    pays = kind == ACCELERATOR
    work = np.ascontiguousarray(ideals.time[:, kind])
    return Device(
        work,
        np.ascontiguousarray(ideals.need[:, kind]),
        ideals.cut,
        potentials(work, ideals.cut, pays=pays, overlap=problem.overlap),
        ideals.members,
        ideals.cut_nets,
        int(problem.room[kind]),
        problem.nets.weight,
        problem.net_ptr,
        problem.pin,
        pays,
        problem.overlap,
    )


@njit(cache=True)
def relax(
    d: Device, s: Sources, targets: Indices, value: Ints, origin: Indices, mark: int, enough: int,
    begin: int, budget: int,
) -> tuple[int, int]:  # fmt: skip
    """Improve ``value[t]`` of the ideals ``targets[t]``, t >= begin, by one more device.

    An improvement from source i writes ``origin[t] = 2 * i + mark``. A target whose value is at
    most `enough` is left as it is. Returns the target to go on with when `budget` nodes of the tree
    have been looked at, or the number of targets; and how many nodes were looked at.
    """
    size, top, looked, hint = len(s.ideal), len(s.start) - 2, 0, 0
    num_words, num_potentials = d.members.shape[1], s.potential.shape[1]
    for t in range(begin, len(targets)):
        if looked > budget:
            return t, looked
        if value[t] <= enough:
            continue
        target = targets[t]
        leaf, position = hint, 0  # the source that was best last time comes first
        while leaf >= 0:
            source = s.ideal[leaf]
            if s.value[leaf] < value[t] and d.need[target] - d.need[source] <= d.room:
                now = max(s.value[leaf], _load(d, target, source, value[t]))
                if now < value[t]:
                    value[t], origin[t], hint = now, 2 * leaf + mark, leaf
                    if now <= enough:
                        break
            leaf = -1
            while position < size and leaf < 0:
                # go down from the largest node that begins here, until one cannot help
                level = 0
                while level < top and position & ((1 << FAN_OUT_BITS * (level + 1)) - 1) == 0:
                    level += 1
                while level >= 0:
                    looked += 1
                    node = s.start[level] + (position >> FAN_OUT_BITS * level)
                    helps = s.value[node] < value[t] and d.need[target] - s.need[node] <= d.room
                    for q in range(num_potentials):
                        if d.potential[target, q] - s.potential[node, q] >= value[t]:
                            helps = False
                    if helps:
                        for word in range(num_words):
                            if level:
                                inside = s.common[node - size, word]
                            else:
                                inside = d.members[s.ideal[position], word]
                            if inside & ~d.members[target, word]:
                                helps = False
                                break
                    if not helps:
                        position += 1 << FAN_OUT_BITS * level
                        break
                    level -= 1
                if level < 0:
                    leaf = position
                    position += 1
    return len(targets), looked


@njit(cache=True)
def _load(d: Device, target: int, source: int, limit: int) -> int:
    """Load of a device that takes the difference; `limit` or more if it is no difference."""
    for word in range(d.members.shape[1]):
        if d.members[source, word] & ~d.members[target, word]:
            return limit
    work = d.work[target] - d.work[source]
    if not d.pays or work >= limit:
        return int(work)
    moved = cut_between(d.members, d.cut_nets, d.cut, d.weight, d.net_ptr, d.pin, target, source)
    return int(max(work, moved) if d.overlap else work + moved)
