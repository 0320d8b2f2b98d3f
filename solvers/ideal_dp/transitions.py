"""One step of the ideal DP: one more stage takes the difference of two ideals.

value(I) = min over sources J within I of max(value(J), load(I - J)).

The communication of I - J is `ideals.cut_between.cut_between`; how replicas share a load,
`ideal_dp.sharing`. Sources that cannot help are skipped by the tree over them.
"""

from __future__ import annotations

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import cut_between
from placegap.solvers.chains.problem import Indices
from placegap.solvers.chains.transitions import (
    FAN_OUT_BITS,
    Sharing,
    Sources,
    StagePeak,
    View,
    least_shared_sync,
    peak_between,
    shared_load,
)


@kernel(allocates=False)
def relax(
    d: View,
    s: Sources,
    sharing: Sharing,
    targets: Indices,
    value: Ints,
    origin: Indices,
    stage_of: Indices,
    mark: int,
    enough: int,
    begin: int,
    budget: int,
    peak: StagePeak,
    most_bytes: int,
) -> tuple[int, int]:
    """Improve ``value[t]`` of the ideals ``targets[t]``, t >= begin, by one more stage.

    An improvement from source i writes ``origin[t] = i`` and ``stage_of[t] = mark``. A target whose
    value is at most `enough` is left as it is. Returns the target to go on with when `budget` nodes
    of the tree have been looked at, or the number of targets; and how many nodes were looked at.
    No stage holds more than `most_bytes` at its peak, if `peak` has any steps.
    """
    size, top, looked, hint = len(s.ideal), len(s.start) - 2, 0, 0
    num_words, num_potentials = d.members.shape[1], s.potential.shape[1]
    syncs = sharing.top > 0 or sharing.bottom == 0
    checks = len(peak.workspace) > 0
    for t in range(begin, len(targets)):
        if looked > budget:
            return t, looked
        if value[t] <= enough:
            continue
        target = targets[t]
        most = sharing.replicas * (value[t] - 1)  # a base above that is no improvement
        leaf, position = hint, 0  # the source that was best last time comes first
        while leaf >= 0:
            source = s.ideal[leaf]
            if s.value[leaf] < value[t] and d.need[target] - d.need[source] <= d.room:
                load = device_load(d, target, source, most + 1)
                if sharing.replicas > 1:
                    parameters = d.parameters[target] - d.parameters[source]
                    load = shared_load(sharing, load, parameters, value[t])
                now = max(s.value[leaf], load)
                fits = True
                if checks and now < value[t]:
                    fits = peak_between(peak, d.members, target, source) <= most_bytes
                if fits and now < value[t]:
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
                            spare -= least_shared_sync(
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
    return len(targets), looked


@kernel(allocates=False)
def device_load(d: View, target: int, source: int, limit: int) -> int:
    """Load of one device that takes the difference; `limit` or more if it is no difference."""
    for word in range(d.members.shape[1]):
        if d.members[source, word] & ~d.members[target, word]:
            return limit
    work = d.work[target] - d.work[source]
    if not d.pays or work >= limit:
        return int(work)
    moved = cut_between(d.members, d.cut_nets, d.cut, d.weight, d.net_ptr, d.pin, target, source)
    return int(max(work, moved) if d.overlap else work + moved)
