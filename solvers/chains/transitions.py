"""One step of the ideal DP: one more stage takes the difference of two ideals.

value(I) = min over sources J within I of max(value(J), load(I - J)).

The load follows from sums of each ideal (`View`) and from the nets that both ideals cut. Sources
that cannot improve a target are skipped, many at a time, by an implicit 8-ary tree over them
(`Sources`): a node states the least value, the largest potentials and the common blocks of all
sources below it.

Potentials: cuts are symmetric and subadditive, so cut(I - J) is at least cut(I) - cut(J) and at
least cut(J) - cut(I). With work(I - J) = work(I) - work(J), the functions q = work + cut and
q = work - cut both have load(I - J) >= q(I) - q(J): a bound without looking at any net.
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

# Every window of 6 bits occurs once, so (bit * DE_BRUIJN) >> 58 is another number for each bit.
DE_BRUIJN = 0x03F79D71B4CB0A89
SLOPE_BITS = 30  # bits of precision of the first guess at a stage's synchronisation
MOST_KEPT = 3_000  # with more ideals than this the peak of a pair is computed whenever it is needed

UNKNOWN = -1

FAN_OUT_BITS = 3  # each node has 2**3 children, in the order of the list


def _bit_numbers() -> Ints:
    table = np.zeros(WORD, np.int64)
    for bit in range(WORD):
        table[((1 << bit) * DE_BRUIJN) >> 58 & 63] = bit
    return table


BIT_NUMBER = _bit_numbers()


class Cuts(NamedTuple):
    """Arrays for the kernels: what N ideals cut, for one payer."""

    #: members, cut_nets: (N, words) int64: Bit sets of blocks and of nets.
    members: Ints
    cut_nets: Ints
    cut: Ints  # (N,) int64: Cost of the cut of each ideal
    #: weight, net_ptr, pin: Weights and pins of the nets.
    weight: Ints
    net_ptr: Ints
    pin: Ints


class View(NamedTuple):
    """Arrays for the kernels: work, needs and cuts of N ideals on one kind of device."""

    cuts: Cuts
    #: work, need, parameters: (N,) int64: Time and need of each ideal on this kind, and its
    #: parameter bytes.
    work: Ints
    need: Ints
    parameters: Ints
    potential: Ints  # (N, p) int64: Potentials q, with load(I - J) >= q(I) - q(J) on one device
    room: int
    #: pays, overlap: Whether any net costs something, and how communication counts.
    pays: bool
    overlap: bool


class Sharing(NamedTuple):
    """How the replicas of a stage divide its load, and the time to sum up its parameters."""

    # With base the load of one device, r devices have ceil(base / r) + ceil(fraction *
    # parameter_bytes); all in integers.

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
    """How a stage divides its load, where no ideal has more bytes of parameters."""
    # P top / bottom would need 128 bits. So a guess from SLOPE_BITS bits of the slope and of P,
    # rounded down, is corrected in `sync_ns`.
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
    """A close lower bound on the synchronisation of parameters."""
    product = (parameter_bytes >> s.cut_bits) * s.slope
    return int(product >> s.shift if s.shift >= 0 else product << -s.shift)


@kernel(allocates=False)
def sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """ceil(parameter_bytes * top / bottom)."""
    # Both products may wrap around 2**64, but their difference is small, as the guess is close: so
    # it is right (`kinds_problem.LARGEST_SYNC`).
    if s.top == 0 or parameter_bytes == 0:
        return 0
    guess = least_sync_ns(s, parameter_bytes)
    missing = parameter_bytes * s.top - guess * s.bottom
    return int(guess - (-missing) // s.bottom)


class StagePeak(NamedTuple):
    """Arrays for the kernel: what a stage holds at its peak; empty if that is not checked."""

    # The peak is not additive: a tensor counts on a stage from the first to the last step of its
    # ops there that use it (`instances.referee.memory`), so a sum over blocks is only a bound
    # (`additive_memory`).

    tensor_ptr: Ints  # (t + 1,) int64
    #: block, step: (u,) int64: Block and step of each op that uses a tensor, by tensor and step.
    block: Ints
    step: Ints
    size: Ints  # (t,) int64: Bytes of each tensor
    state: Ints  # (b,) int64: State bytes of each block without shared state
    #: name_ptr, holder, shared: Blocks that hold each name of shared state; bytes of each name.
    name_ptr: Ints
    holder: Ints
    shared: Ints
    #: step_block, workspace: (n,) int64: Block and workspace of the op at each step.
    step_block: Ints
    workspace: Ints
    level: Ints  # (n + 1,) int64: Scratch
    known: Ints  # (N, N) int64: Peaks of the pairs of ideals that were computed, or (0, 0)


def no_peak() -> StagePeak:
    """The arrays for no check."""
    none = np.zeros(0, np.int64)
    return StagePeak(*(none,) * 11, np.zeros((0, 0), np.int64))


def stage_peak(instance: Instance, block: Ints, counted: Flags) -> StagePeak:
    """The arrays for the blocks of ops, (n,); ops that are not `counted` hold nothing."""
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
    """The same with an empty table for the peaks of pairs of ideals."""
    side = num_ideals if num_ideals <= MOST_KEPT else 0
    return peak._replace(known=np.full((side, side), UNKNOWN))


@kernel(allocates=False)
def peak_between(peak: StagePeak, members: Ints, target: int, source: int) -> int:
    """Bytes at the peak of a stage that takes I - J, J within I. O(n + u)."""
    # State counts always. For tensors the changes at each step are noted, and a running sum gives
    # what is live; the workspace of the op at a step comes on top at that step alone.
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
        # Uses come by step: the first and the last one on this stage bound the tensor's life there.
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
    """States (ideal, value) that one more device may extend, and the tree over them."""

    # Level 0 are the states themselves; node i of level l + 1 has the children 8 i .. 8 i + 7 on
    # level l. Ideals are in the order of their enumeration: neighbours share most blocks, so the
    # common blocks of a node exclude many targets.

    ideal: Indices  # (s,) int32: Ideal of each state, ascending
    start: Ints  # (levels + 1,) int64: First node of each level
    value: Ints  # (nodes,) int64: Least value below each node
    #: need, parameters: (nodes,) int64: Largest need and most parameters.
    need: Ints
    parameters: Ints
    potential: Ints  # (nodes, p) int64: Largest potentials
    common: Ints  # (nodes - s, words): Blocks that all ideals below have in common; not for level 0


def build_sources(view: View, ideal: Indices, value: Ints) -> Sources:
    """The tree over source states with these ideals and values."""
    # Least values, and the largest of all else: what excludes them excludes every source below.
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
    """One more stage: its device, the states it extends, and what it may hold at its peak."""

    device: View
    sources: Sources
    sharing: Sharing
    mark: int  # number of the stage
    peak: StagePeak
    most_bytes: int  # the most that a stage may hold at its peak, if `peak` has any steps


class States(NamedTuple):
    """States to improve: values, the state before each, and its last stage or server."""

    value: Ints
    origin: Indices
    last: Indices


def _steps(x: Extension, targets: Indices, *_: object) -> float:
    """Steps of `relax`: ten for each pair, and the pins of the nets that its target cuts."""
    pins = set_sums(x.device.cuts.cut_nets[targets], np.diff(x.device.cuts.net_ptr))
    is_plain = x.sharing.replicas == 1 and len(x.peak.workspace) == 0
    return len(x.sources.ideal) * float((10 + pins).sum()) if is_plain else inf


@kernel(allocates=False, bounded=_steps)
def relax(
    x: Extension, targets: Indices, states: States, enough: int, begin: int, budget: int
) -> int:
    """Improve the states of the ideals ``targets[t]``, t >= begin, by one more stage."""
    # Targets of at most `enough` are left alone. Returns the target to go on with once `budget`
    # nodes of the tree were visited, or the number of targets.
    # For each target the sources are run through in list order. `position` is the next leaf not yet
    # excluded; as a target's value falls, nodes are excluded sooner.
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
        # A load of one device above that is no improvement, divided among the replicas.
        most = sharing.replicas * (value[t] - 1)
        # The best source of the last target comes first: neighbouring targets often share it, and a
        # good value at once excludes most of the tree.
        leaf, position = hint, 0
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
                # Go down from the largest node that begins at this position. A node that cannot
                # improve the target is skipped with all its leaves; a leaf that may is tried.
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
                                # The stage has at least these parameters to sum up; where none are
                                # allowed, `spare` becomes negative.
                                sync = value[t]
                                if sharing.bottom > 0:
                                    sync = min(sync, least_sync_ns(sharing, weights))
                                spare -= sharing.replicas * sync
                        for q in range(num_potentials):
                            if d.potential[target, q] - s.potential[node, q] > spare:
                                helps = False
                    if helps:
                        # All sources below hold these blocks: one block outside of the target
                        # excludes them.
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
    """Load of a stage that takes I - J; `limit` or more if it is too large or J is not within I."""
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
    """Load of one device that takes I - J; `limit` or more if J is not within I."""
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
    """Cut of the difference of two ideals, the source J within the target I."""
    # A net that only J cuts lies within I, so it has a pin in J and one in I - J; one that only I
    # cuts has no pin in J, so it has one in I - J and one outside of I. Both are cut by I - J. A
    # net that both cut counts twice in the sum and is cut by I - J only if it has a pin there:
    # its weight is taken off once or twice. These nets are few, found by bit operations.
    moved = c.cut[target] + c.cut[source]
    for word in range(c.cut_nets.shape[1]):
        both = c.cut_nets[target, word] & c.cut_nets[source, word]
        while both:
            # The lowest bit of the word; its number is the net.
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
