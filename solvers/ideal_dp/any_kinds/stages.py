"""One step of the ideal DP over any devices: one more stage takes the difference of two ideals.

As `two_kinds.transitions`, for stages of any kind with replicas: with base the load of one device,

    load(I - J) = ceil(base(I - J) / r) + ceil(fraction * parameter_bytes(I - J)).

Sources that cannot help are skipped by an 8-ary tree over them, in the order of enumeration, in
which neighbours share most blocks. All is in integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.problem import Indices
from placegap.solvers.ideal_dp.any_kinds.pools import Stage
from placegap.solvers.ideal_dp.any_kinds.problem import KindsProblem
from placegap.solvers.ideal_dp.any_kinds.sets import Sets, set_sums
from placegap.solvers.ideal_dp.ideals.cut_between import cut_between

FAN_OUT_BITS = 3
"""Each node of the tree stands for 2**3 nodes of the level below."""

SLOPE_BITS = 30
"""Precision of the first guess at a stage's synchronisation."""


class View(NamedTuple):
    """Ideals as one kind of device sees them.

    Attributes
    ----------
    work, need, cut : (N,) int64
        Time and need of each ideal on this kind, and what its cut costs.
    potential : (N, p) int64
        Functions q with base(I - J) >= q(I) - q(J): work and cut of I - J are at least the
        differences, as cuts are subadditive and symmetric.
    members, cut_nets : (N, words) int64
    parameters : (N,) int64
        Parameter bytes of each ideal.
    weight, net_ptr, pin
        Of the nets.
    room : int
    pays, overlap : bool
        Whether any net costs something, and how communication counts.
    """

    work: Ints
    need: Ints
    cut: Ints
    potential: Ints
    members: Ints
    cut_nets: Ints
    parameters: Ints
    weight: Ints
    net_ptr: Ints
    pin: Ints
    room: int
    pays: bool
    overlap: bool


class Sharing(NamedTuple):
    """Replicas and synchronisation of a stage, for the kernel.

    Attributes
    ----------
    replicas, top, bottom : int
        ``top / bottom`` ns per byte; ``bottom == 0``: no parameters allowed.
    slope, cut_bits, shift : int
        ``(P >> cut_bits) * slope >> shift`` (to the left if negative) is at most P top / bottom.
    """

    replicas: int
    top: int
    bottom: int
    slope: int
    cut_bits: int
    shift: int


class Tree(NamedTuple):
    """Source states and the tree over them; see `build_tree`.

    Attributes
    ----------
    ideal : (s,) int32
    start : (levels + 1,) int64
        First node of each level; level 0 are the states.
    value, need, parameters : (nodes,) int64
        Least value, largest need, most parameters below each node.
    potential : (nodes, p) int64
        Largest potentials.
    common : (nodes - s, words) int64
        Blocks that all ideals below have in common; not for level 0.
    """

    ideal: Indices
    start: Ints
    value: Ints
    need: Ints
    parameters: Ints
    potential: Ints
    common: Ints


def see(problem: KindsProblem, sets: Sets, kind: int) -> View:
    """The ideals of a problem as one kind of device sees them."""
    guide, weight = problem.guide, problem.weight[kind].copy()
    work = set_sums(sets.members, problem.time[kind])
    pays = bool(weight.any())
    cut = set_sums(sets.cut_nets, weight) if pays else np.zeros_like(work)
    if not pays:
        columns = [work]
    elif guide.overlap:
        columns = [work, cut, -cut]
    else:
        columns = [work + cut, work - cut]
    return View(
        work, set_sums(sets.members, problem.need[kind]), cut, np.stack(columns, axis=1),
        sets.members, sets.cut_nets, set_sums(sets.members, problem.parameter_bytes), weight,
        guide.net_ptr, guide.pin, int(problem.room[kind]), pays, guide.overlap,
    )  # fmt: skip


def share(stage: Stage, parameter_bytes: int) -> Sharing:
    """How a stage shares its load, with at most so many parameters in all.

    Examples
    --------
    >>> sharing = share(Stage(0, (2,), 2, (4, 3)), 1000)
    >>> [sync_ns(sharing, size) for size in (0, 1, 3, 1000)]
    [0, 2, 4, 1334]
    """
    top, bottom = stage.sync
    if top == 0 or bottom == 0:
        return Sharing(stage.replicas, top, bottom, 0, 0, 0)
    shift = SLOPE_BITS - 1 - (top // bottom).bit_length()
    if top < bottom:
        shift = SLOPE_BITS - 1 + (bottom // top).bit_length()
    slope = (top << shift) // bottom if shift >= 0 else (top >> -shift) // bottom
    cut_bits = max(0, parameter_bytes.bit_length() - SLOPE_BITS)
    return Sharing(stage.replicas, top, bottom, slope, cut_bits, shift - cut_bits)


@njit(cache=True)
def least_sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """At most the synchronisation of so many parameters, nearly as much."""
    product = (parameter_bytes >> s.cut_bits) * s.slope
    return int(product >> s.shift if s.shift >= 0 else product << -s.shift)


@njit(cache=True)
def sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """ceil(parameter_bytes * top / bottom).

    The products wrap around 2**64, their difference does not: the guess is that good.
    """
    if s.top == 0 or parameter_bytes == 0:
        return 0
    guess = least_sync_ns(s, parameter_bytes)
    missing = parameter_bytes * s.top - guess * s.bottom
    return int(guess - (-missing) // s.bottom)


def build_tree(view: View, ideal: Indices, value: Ints) -> Tree:
    """The tree over source states with these ideals and values."""
    start = [0, len(ideal)]
    while start[-1] - start[-2] > 1:
        start.append(start[-1] + -(-(start[-1] - start[-2]) // (1 << FAN_OUT_BITS)))
    nodes = start[-1]
    least, need, parameters = (np.empty(nodes, np.int64) for _ in range(3))
    potential = np.empty((nodes, view.potential.shape[1]), np.int64)
    common = np.empty((nodes - len(ideal), view.members.shape[1]), np.int64)
    levels = np.array(start, np.int64)
    tree = Tree(ideal, levels, least, need, parameters, potential, common)
    _fill(tree, view, value)
    return tree


@njit(cache=True)
def _fill(s: Tree, view: View, value: Ints) -> None:
    size = len(s.ideal)
    for i in range(size):
        s.value[i], s.need[i] = value[i], view.need[s.ideal[i]]
        s.parameters[i] = view.parameters[s.ideal[i]]
        s.potential[i] = view.potential[s.ideal[i]]
    for level in range(1, len(s.start) - 1):
        below, here = s.start[level - 1], s.start[level]
        for i in range(s.start[level], s.start[level + 1]):
            first = below + ((i - here) << FAN_OUT_BITS)
            for j in range(first, min(first + (1 << FAN_OUT_BITS), here)):
                words = view.members[s.ideal[j]] if level == 1 else s.common[j - size]
                if j == first:
                    s.value[i], s.need[i] = s.value[j], s.need[j]
                    s.parameters[i] = s.parameters[j]
                    s.potential[i], s.common[i - size] = s.potential[j], words
                    continue
                s.value[i] = min(s.value[i], s.value[j])
                s.need[i] = max(s.need[i], s.need[j])
                s.parameters[i] = max(s.parameters[i], s.parameters[j])
                for q in range(s.potential.shape[1]):
                    s.potential[i, q] = max(s.potential[i, q], s.potential[j, q])
                for word in range(words.shape[0]):
                    s.common[i - size, word] &= words[word]


@njit(cache=True)
def relax(
    d: View, s: Tree, sharing: Sharing, targets: Indices, value: Ints, origin: Indices,
    stage_of: Indices, mark: int, enough: int, begin: int, budget: int,
) -> int:  # fmt: skip
    """Improve ``value[t]`` of the ideals ``targets[t]``, t >= begin, by one more stage.

    An improvement from source i writes ``origin[t] = i`` and ``stage_of[t] = mark``. A target whose
    value is at most `enough` is left as it is. Returns the target to go on with when `budget` nodes
    of the tree have been looked at, or the number of targets.
    """
    size, top, looked, hint = len(s.ideal), len(s.start) - 2, 0, 0
    num_words, num_potentials = d.members.shape[1], s.potential.shape[1]
    syncs = sharing.top > 0 or sharing.bottom == 0
    for t in range(begin, len(targets)):
        if looked > budget:
            return t
        if value[t] <= enough:
            continue
        target = targets[t]
        most = sharing.replicas * (value[t] - 1)  # a base above that is no improvement
        leaf, position = hint, 0  # the source that was best last time comes first
        while leaf >= 0:
            source = s.ideal[leaf]
            if s.value[leaf] < value[t] and d.need[target] - d.need[source] <= d.room:
                now = max(s.value[leaf], stage_load(d, sharing, target, source, value[t]))
                if now < value[t]:
                    value[t], origin[t], stage_of[t], hint = now, leaf, mark, leaf
                    most = sharing.replicas * (now - 1)
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
                    if helps:
                        spare = most
                        if syncs:
                            spare -= _least_sync(
                                sharing, d.parameters[target] - s.parameters[node], value[t]
                            )
                        for q in range(num_potentials):
                            if d.potential[target, q] - s.potential[node, q] > spare:
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
    return len(targets)


@njit(cache=True)
def _least_sync(sharing: Sharing, parameter_bytes: int, limit: int) -> int:
    """At most replicas * the synchronisation of at least so many parameters."""
    if parameter_bytes <= 0:
        return 0
    if sharing.bottom == 0:
        return int(sharing.replicas * limit)
    return int(sharing.replicas * min(limit, least_sync_ns(sharing, parameter_bytes)))


@njit(cache=True)
def stage_load(d: View, sharing: Sharing, target: int, source: int, limit: int) -> int:
    """Load of a stage that takes the difference; `limit` or more if there is none such."""
    for word in range(d.members.shape[1]):
        if d.members[source, word] & ~d.members[target, word]:
            return limit
    most = sharing.replicas * (limit - 1)
    base = d.work[target] - d.work[source]
    if base > most:
        return limit
    if d.pays:
        moved = cut_between(
            d.members, d.cut_nets, d.cut, d.weight, d.net_ptr, d.pin, target, source
        )
        base = max(base, moved) if d.overlap else base + moved
    if sharing.replicas == 1:
        return int(base)
    if base > most:
        return limit
    load = -((-base) // sharing.replicas)
    parameters = d.parameters[target] - d.parameters[source]
    if parameters > 0:
        if sharing.bottom == 0 or least_sync_ns(sharing, parameters) >= limit:
            return limit
        load += sync_ns(sharing, parameters)
    return int(load)
