"""One step of the ideal DP: one more stage takes the difference of two ideals.

value(I) = min over sources J within I of max(value(J), load(I - J)).

The load follows from sums of each ideal (`View`) and from the nets that both cut; sources that
cannot help are skipped by an implicit 8-ary tree over them (`Sources`).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance
from placegap.instances.problem.graph_index import sum_by
from placegap.solvers.chains.kinds_problem import Stage
from placegap.solvers.chains.problem import WORD, Indices
from placegap.solvers.chains.windows import set_sums

DE_BRUIJN = 0x03F79D71B4CB0A89
"""Any window of 6 bits occurs once: (bit * DE_BRUIJN) >> 58 tells the bits apart."""

SLOPE_BITS = 30
"""Precision of the first guess at a stage's synchronisation."""

MOST_KEPT = 3_000
"""With more ideals than this the peak of a pair is computed whenever it is needed."""

UNKNOWN = -1

FAN_OUT_BITS = 3
"""Each node stands for 2**3 nodes of the level below, in list order."""


def _bit_numbers() -> Ints:
    table = np.zeros(WORD, np.int64)
    for bit in range(WORD):
        table[((1 << bit) * DE_BRUIJN) >> 58 & 63] = bit
    return table


BIT_NUMBER = _bit_numbers()


class Cuts(NamedTuple):
    """What N ideals cut, for one payer; the kernels' form."""

    #: members, cut_nets: (N, words) int64: Bit sets of blocks and of nets.
    members: Ints
    cut_nets: Ints
    #: (N,) int64: What each ideal's cut costs.
    cut: Ints
    #: weight, net_ptr, pin: Of the nets.
    weight: Ints
    net_ptr: Ints
    pin: Ints


class View(NamedTuple):
    """N ideals as one kind of device sees them; the kernels' form."""

    cuts: Cuts
    #: work, need, parameters: (N,) int64: Time and need of each ideal on this kind, and its
    #: parameter bytes.
    work: Ints
    need: Ints
    parameters: Ints
    #: (N, p) int64: Functions q with base(I - J) >= q(I) - q(J), for the load of one device: as
    #: cuts are subadditive and symmetric, work and cut of I - J are at least the differences.
    potential: Ints
    room: int
    #: pays, overlap: Whether any net costs something, and how communication counts.
    pays: bool
    overlap: bool


class Sharing(NamedTuple):
    """How the replicas of a stage share its load, and what they pay to sum up its parameters.

    With base the load of one device, r devices have ceil(base / r) + ceil(fraction *
    parameter_bytes); all in integers.
    """

    #: replicas, top, bottom: ``top / bottom`` ns per byte; ``bottom == 0``: no parameters allowed.
    replicas: int
    top: int
    bottom: int
    #: slope, cut_bits, shift: ``(P >> cut_bits) * slope >> shift`` (to the left if negative) is at
    #: most P top / bottom.
    slope: int
    cut_bits: int
    shift: int


def share(stage: Stage, parameter_bytes: int) -> Sharing:
    """How a stage shares its load, with a limited number of parameters in all."""
    top, bottom = stage.sync
    if top == 0 or bottom == 0:
        return Sharing(stage.replicas, top, bottom, 0, 0, 0)
    shift = SLOPE_BITS - 1 - (top // bottom).bit_length()
    if top < bottom:
        shift = SLOPE_BITS - 1 + (bottom // top).bit_length()
    slope = (top << shift) // bottom if shift >= 0 else (top >> -shift) // bottom
    cut_bits = max(0, parameter_bytes.bit_length() - SLOPE_BITS)
    return Sharing(stage.replicas, top, bottom, slope, cut_bits, shift - cut_bits)


@kernel(allocates=False)
def least_sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """A lower bound on the synchronisation of parameters, nearly as much."""
    product = (parameter_bytes >> s.cut_bits) * s.slope
    return int(product >> s.shift if s.shift >= 0 else product << -s.shift)


@kernel(allocates=False)
def sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """ceil(parameter_bytes * top / bottom).

    The products wrap around 2**64, their difference does not: the guess is that good.
    """
    if s.top == 0 or parameter_bytes == 0:
        return 0
    guess = least_sync_ns(s, parameter_bytes)
    missing = parameter_bytes * s.top - guess * s.bottom
    return int(guess - (-missing) // s.bottom)


class StagePeak(NamedTuple):
    """What a stage holds at its peak: the largest sum over the steps of one sample.

    Not additive: a tensor counts on a stage from the first to the last step of its ops that use it
    (`instances.referee.memory`), so a sum over blocks is a bound alone (`additive_memory`). Blocks,
    tensors and steps of an instance, as the kernel takes them; empty for no check.
    """

    #: (t + 1,) int64
    tensor_ptr: Ints
    #: block, step: (u,) int64: Of each op that uses a tensor, by tensor and step.
    block: Ints
    step: Ints
    #: (t,) int64: Bytes of each tensor.
    size: Ints
    #: (b,) int64: Of each block, shared state aside.
    state: Ints
    #: name_ptr, holder, shared: Blocks that hold each name of shared state, and its bytes.
    name_ptr: Ints
    holder: Ints
    shared: Ints
    #: step_block, workspace: (n,) int64: Block and workspace of the op at each step.
    step_block: Ints
    workspace: Ints
    #: (n + 1,) int64: Scratch.
    level: Ints
    #: (N, N) int64: Peaks of the pairs of ideals that were needed, or (0, 0).
    known: Ints


def no_peak() -> StagePeak:
    """Nothing to check."""
    none = np.zeros(0, np.int64)
    return StagePeak(*(none,) * 11, np.zeros((0, 0), np.int64))


def stage_peak(instance: Instance, block: Ints, counted: Flags) -> StagePeak:
    """The arrays for blocks of ops, (n,), of which those that are not `counted` hold nothing."""
    sizes, index = instance.memory_arrays, instance.arrays.index
    tensor = np.concatenate([np.arange(len(index.tensor_producer)), index.tensor])
    op = np.concatenate([index.tensor_producer, index.consumer])
    kept = counted[op] & (sizes.tensor_bytes[tensor] > 0)
    tensor, op = tensor[kept], op[kept]
    order = np.lexsort((sizes.step[op], tensor))
    tensor, op = tensor[order], op[order]
    used, start = np.unique(tensor, return_index=True)
    state = sum_by(block[counted], sizes.state_bytes[counted], int(block.max()) + 1)
    holds = counted[sizes.shared_op]
    holder, name = block[sizes.shared_op[holds]], sizes.shared_name[holds]
    by_name = np.argsort(name, kind="stable")
    by_step = np.argsort(sizes.step)
    workspace = np.where(counted, sizes.workspace_bytes, 0)
    return StagePeak(
        np.append(start, len(op)).astype(np.int64),
        block[op],
        sizes.step[op],
        sizes.tensor_bytes[used],
        state,
        np.searchsorted(name[by_name], np.arange(len(sizes.shared_bytes) + 1)).astype(np.int64),
        holder[by_name],
        sizes.shared_bytes.copy(),  # as `no_peak`'s: one kernel for both
        block[by_step],
        workspace[by_step],
        np.zeros(instance.num_ops + 1, np.int64),
        np.zeros((0, 0), np.int64),
    )


def for_ideals(peak: StagePeak, num_ideals: int) -> StagePeak:
    """The same, with room for what is known of the pairs of the ideals."""
    side = num_ideals if num_ideals <= MOST_KEPT else 0
    return peak._replace(known=np.full((side, side), UNKNOWN))


@kernel(allocates=False)
def peak_between(peak: StagePeak, members: Ints, target: int, source: int) -> int:
    """Bytes that a stage holds at its peak which takes I - J, J within I. O(n + u)."""
    known = peak.known
    if len(known) and known[target, source] != UNKNOWN:
        return int(known[target, source])
    level, step = peak.level, peak.step
    for at in range(len(level)):
        level[at] = 0
    always = 0
    for v in range(len(peak.state)):
        if _takes(members, target, source, v):
            always += peak.state[v]
    for name in range(len(peak.shared)):
        for at in range(peak.name_ptr[name], peak.name_ptr[name + 1]):
            if _takes(members, target, source, peak.holder[at]):
                always += peak.shared[name]
                break
    for t in range(len(peak.size)):
        first, last = -1, -1
        for at in range(peak.tensor_ptr[t], peak.tensor_ptr[t + 1]):
            if _takes(members, target, source, peak.block[at]):
                last = step[at]
                first = last if first < 0 else first
        if first >= 0:
            level[first] += peak.size[t]
            level[last + 1] -= peak.size[t]
    live, most = 0, 0
    for at in range(len(peak.workspace)):
        live += level[at]
        now = live
        if peak.workspace[at] > 0 and _takes(members, target, source, peak.step_block[at]):
            now += peak.workspace[at]
        most = max(most, now)
    if len(known):
        known[target, source] = always + most
    return int(always + most)


@kernel(allocates=False)
def _takes(members: Ints, target: int, source: int, v: int) -> bool:
    """Whether a block is in the difference of two ideals."""
    taken = members[target, v // WORD] & ~members[source, v // WORD]
    return bool(taken >> (v % WORD) & 1)


class Sources(NamedTuple):
    """States (ideal, value) that one more device may extend, and the tree over them.

    Level 0 are the states themselves; node i of level l + 1 sums up nodes 8 i .. 8 i + 7 of level
    l. Consecutive states share most of their blocks, so that a node's common blocks decide much.
    """

    #: (s,) int32: Ideal of each state, ascending.
    ideal: Indices
    #: (levels + 1,) int64: First node of each level.
    start: Ints
    #: (nodes,) int64: Least value below each node.
    value: Ints
    #: need, parameters: (nodes,) int64: Largest need and most parameters.
    need: Ints
    parameters: Ints
    #: (nodes, p) int64: Largest potentials.
    potential: Ints
    #: (nodes - s, words) int64: Blocks that all ideals below have in common; not for level 0.
    common: Ints


def build_sources(view: View, ideal: Indices, value: Ints) -> Sources:
    """The tree over source states with these ideals and values."""
    # what each node stands for, level by level: least values, the largest of the rest
    level = [value, view.need[ideal], view.parameters[ideal], view.potential[ideal]]
    common, levels, commons = view.cuts.members[ideal], [level], [view.cuts.members[:0]]
    while len(level[0]) > 1:
        first = np.arange(0, len(level[0]), 1 << FAN_OUT_BITS)
        level = [np.minimum.reduceat(level[0], first)] + [
            np.maximum.reduceat(part, first, axis=0) for part in level[1:]
        ]
        common = np.bitwise_and.reduceat(common, first, axis=0)
        levels.append(level)
        commons.append(common)
    return Sources(
        ideal,
        np.cumsum([0, *(len(level[0]) for level in levels)]),
        *map(np.concatenate, (*zip(*levels, strict=True), commons)),
    )


class Extension(NamedTuple):
    """One more stage: who it is, from which states it goes on, and what it may hold at its peak."""

    device: View
    sources: Sources
    sharing: Sharing
    #: Number of the stage.
    mark: int
    peak: StagePeak
    #: No stage holds more at its peak, if `peak` has any steps.
    most_bytes: int


class States(NamedTuple):
    """States that are improved: values, the state before each, and its last stage or server."""

    value: Ints
    origin: Indices
    last: Indices


def _steps(x: Extension, targets: Indices, *_: object) -> float:
    """Of `relax`: ten for each pair, and the pins of the nets that its target cuts."""
    pins = set_sums(x.device.cuts.cut_nets[targets], np.diff(x.device.cuts.net_ptr))
    is_plain = x.sharing.replicas == 1 and len(x.peak.workspace) == 0
    return len(x.sources.ideal) * float((10 + pins).sum()) if is_plain else inf


@kernel(allocates=False, bounded=_steps)
def relax(
    x: Extension, targets: Indices, states: States, enough: int, begin: int, budget: int
) -> int:
    """Improve the states of the ideals ``targets[t]``, t >= begin, by one more stage.

    A target whose value is at most `enough` is left as it is. Returns the target to go on with when
    `budget` nodes of the tree have been looked at, or the number of targets.
    """
    d, s, sharing, value = x.device, x.sources, x.sharing, states.value
    members = d.cuts.members
    size, top, looked, hint = len(s.ideal), len(s.start) - 2, 0, 0
    num_words, num_potentials = members.shape[1], s.potential.shape[1]
    syncs = sharing.top > 0 or sharing.bottom == 0
    checks = len(x.peak.workspace) > 0
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
                load = stage_load(d, sharing, target, source, value[t])
                now = max(s.value[leaf], load)
                fits = True
                if checks and now < value[t]:
                    fits = peak_between(x.peak, members, target, source) <= x.most_bytes
                if fits and now < value[t]:
                    value[t], states.origin[t], states.last[t], hint = now, leaf, x.mark, leaf
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
                            weights = d.parameters[target] - s.parameters[node]
                            if weights > 0:
                                sync = value[t]  # or more, where no parameters are allowed
                                if sharing.bottom > 0:
                                    sync = min(sync, least_sync_ns(sharing, weights))
                                spare -= sharing.replicas * sync
                        for q in range(num_potentials):
                            if d.potential[target, q] - s.potential[node, q] > spare:
                                helps = False
                    if helps:
                        for word in range(num_words):
                            if level:
                                inside = s.common[node - size, word]
                            else:
                                inside = members[s.ideal[position], word]
                            if inside & ~members[target, word]:
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


@kernel(allocates=False)
def stage_load(d: View, sharing: Sharing, target: int, source: int, limit: int) -> int:
    """Load of a stage that takes the difference; `limit` or more if that is too much or no
    difference.
    """
    most = sharing.replicas * (limit - 1)
    load = device_load(d, target, source, most + 1)
    if sharing.replicas == 1:
        return int(load)
    weights = d.parameters[target] - d.parameters[source]
    if load > most or (
        weights > 0 and (sharing.bottom == 0 or least_sync_ns(sharing, weights) >= limit)
    ):
        return limit
    return int(sync_ns(sharing, weights) - (-load) // sharing.replicas)


@kernel(allocates=False)
def device_load(d: View, target: int, source: int, limit: int) -> int:
    """Load of one device that takes the difference; `limit` or more if it is no difference."""
    members = d.cuts.members
    for word in range(members.shape[1]):
        if members[source, word] & ~members[target, word]:
            return limit
    work = d.work[target] - d.work[source]
    if not d.pays or work >= limit:
        return int(work)
    moved = cut_between(d.cuts, target, source)
    return int(max(work, moved) if d.overlap else work + moved)


@kernel(allocates=False)
def cut_between(c: Cuts, target: int, source: int) -> int:
    """Cut of the difference of two ideals, the source J within the target I.

    cut(I) + cut(J) - sum of weight * (2 if the net has no pin in I - J else 1), over nets cut by
    both: few, found by bit operations.
    """
    moved = c.cut[target] + c.cut[source]
    for word in range(c.cut_nets.shape[1]):
        both = c.cut_nets[target, word] & c.cut_nets[source, word]
        while both:
            bit = both & -both
            both ^= bit
            e = word * WORD + BIT_NUMBER[((bit * DE_BRUIJN) >> 58) & 63]
            moved -= 2 * c.weight[e]
            for at in range(c.net_ptr[e], c.net_ptr[e + 1]):
                v = c.pin[at]
                taken = c.members[target, v // WORD] & ~c.members[source, v // WORD]
                if taken >> (v % WORD) & 1:
                    moved += c.weight[e]
                    break
    return int(moved)
