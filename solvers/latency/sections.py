"""All undominated ways to run a section between the calls that hold its two bottlenecks.

Calls are convex. So a call with the bottleneck before the section holds an ideal D of it (with an
op, all of the section before that op), and a call with the bottleneck after the section holds the
complement of an ideal J, which contains D. The rest, J without D, runs after the end of the first
call and before the start of the second one: the time between them is at least its longest path. So
a way costs

    time(D) + tensors out of the first call + gap(J without D) + tensors into the other + time(rest)

and takes memory in two calls. If a colocation group has nodes in both, the calls are *linked*: both
are on one accelerator, which is impossible if it makes a single call. Ways are tried in the order
of the first call's memory; one that an earlier way beats in the second call's memory and in cost is
dropped, as it completes no row better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import copy_to, kernel, stable_order
from placegap.instances.problem.integers import NEVER
from placegap.solvers.latency.masks import beyond, has, ideals, masks, meets
from placegap.solvers.latency.spine import Spine, most_ideals


class RowSection(NamedTuple):
    """A section of k nodes between two bottlenecks."""

    # Bits stand for its nodes, bit k for the bottleneck after it.

    #: own_ns, host_ns, size_bytes: (k,) int64
    own_ns: Ints
    host_ns: Ints
    size_bytes: Ints
    ideal: Ints  # (k, words) int64: Bits of the nodes before each
    #: pred_ptr, pred: (k + 1,): The direct ones of these, with no other node between.
    pred_ptr: Ints
    pred: Ints
    #: (k + 2, words) int64: Bits of the colocation group of each node, of the bottleneck after the
    #: section, and of the one before it.
    together: Ints
    once: int  # 1 if a group is in a single call
    producer: Ints  # (e,) int64: Node of each net, -1 for the bottleneck before
    consumers: Ints  # (e, words) int64: Bits of its consumers
    onward: Ints  # (e,) int64: 1 if the bottleneck after the section is a consumer
    farther: Ints  # (e,) int64: 1 if something after that bottleneck is a consumer
    move_ns: Ints  # (e,) int64
    #: made_ptr, made, taken_ptr, taken: (k + 1,): Nets that each node makes, and takes.
    made_ptr: Ints
    made: Ints
    taken_ptr: Ints
    taken: Ints
    #: arriving, arriving_ns: (a, 3, words): Tensors from before the preceding bottleneck: bits of
    #: consumers for which the first call pays (if it surely lacks the producer and does not pay
    #: already), calls between the two pay, and the second call pays (if no later op is a consumer).
    arriving: Ints
    arriving_ns: Ints
    entering_ns: Ints  # (k,) int64: Cost of the arriving tensors that each node reads


class Options(NamedTuple):
    """Ways to run a section: memory in the first call, in the second, cost; bits of D and of J."""

    first_bytes: Ints
    second_bytes: Ints
    cost_ns: Ints
    inside: Ints
    ideal: Ints


def build_section(spine: Spine, t: int) -> RowSection:
    """Section t of a spine, and the tensors that are made in it or by the bottleneck before it."""
    nodes, inner = spine.nodes, spine.sections[t]
    k = len(inner)
    number = {v: i for i, v in enumerate(inner)}
    if t:
        number[spine.bottlenecks[t - 1]] = -1
    end = spine.bottlenecks[t] if t < len(spine.bottlenecks) else -1
    rows, ends = [], []
    for net in spine.nets:
        if net.producer in number:
            inside = [number[j] for j in net.consumers if number.get(j, -1) >= 0]
            onward = int(end in net.consumers)
            farther = int(end >= 0 and bool(nodes.after[end, list(net.consumers)].any()))
            rows.append((number[net.producer], onward, farther, net.move_ns))
            ends.append(inside)
    table = np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 4).T)
    consumers = incidence(ends, k)
    below = nodes.after[np.ix_(inner, inner)].T
    pred = below & ~(below.astype(np.float32) @ below.astype(np.float32) > 0)
    around = [*inner, end, spine.bottlenecks[t - 1] if t else -1]
    groups = np.where(np.array(around) < 0, -1 - np.arange(k + 2), nodes.group[around])
    same = groups[:, None] == groups[None, :]
    np.fill_diagonal(same, np.False_)
    pred_ptr, preds = _lists(pred)
    made_ptr, made = _lists(np.arange(k)[:, None] == table[0][None, :])
    taken_ptr, taken = _lists(consumers.T)
    return RowSection(
        nodes.own_ns[inner],
        nodes.host_ns[inner],
        spine.size_bytes[inner],
        masks(below, k + 1),
        pred_ptr,
        preds,
        masks(same[:, : k + 1]),
        int(nodes.once),
        table[0],
        masks(consumers, k + 1),
        table[1],
        table[2],
        table[3],
        made_ptr,
        made,
        taken_ptr,
        taken,
        arriving=np.zeros((0, 3, k // 64 + 1), np.int64),
        arriving_ns=np.zeros(0, np.int64),
        entering_ns=np.zeros(k, np.int64),
    )


def incidence(ends: list[list[int]], count: int) -> Flags:
    """Membership of `count` nodes in each list, (r, count)."""
    found = np.zeros((len(ends), count), np.bool_)
    for row, inside in enumerate(ends):
        found[row, inside] = True
    return found


def _lists(matrix: Flags) -> tuple[Ints, Ints]:
    """The columns that are set in each row, row by row, and where each row begins."""
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(matrix.sum(axis=1))])
    return start.astype(np.int64), np.nonzero(matrix)[1].astype(np.int64)


class _Args(NamedTuple):
    """The arguments of `options`."""

    room: int
    first: bool
    second: bool
    limit_ns: int
    linked: bool


class _Side(NamedTuple):
    """Calls at one end of a section: cost, bytes, and bits of all nodes of their groups."""

    # `cost_ns` is `NEVER` if no accelerator can run the call.
    cost_ns: Ints
    bytes: Ints
    tied: Ints


def options(
    section: RowSection, room: int, first: bool, second: bool, limit_ns: int, linked: bool = False
) -> Options:
    """Ways of at most `limit_ns`, with or without a call before the section and one after it."""
    # Without the first call, D is empty; without the second, J is everything. The ways are either
    # those of linked calls or those of calls that are not.
    k, words = len(section.own_ns), section.ideal.shape[1]
    everything = masks(np.ones((1, k), np.bool_), k + 1)
    found, count = ideals(section.ideal, most_ideals(k))
    if count > most_ideals(k):
        raise ValueError(f"a section of {k} nodes has more than {most_ideals(k)} ideals")
    starts = found[:count] if first else np.zeros((1, words), np.int64)
    ends = found[:count].copy() if second else everything.copy()
    begun = everything & ~ends
    if not second:  # bit k: the bottleneck after the section is not in the second call
        ends[:, k // 64] |= np.int64(1) << np.int64(k % 64)
    # A bottleneck on a host keeps its group's nodes out of all calls.
    hosted = np.zeros(words, np.int64)
    if not first:
        hosted |= section.together[k + 1]
    if not second:
        hosted |= section.together[k]
    both = np.zeros(words, np.int64)
    both[k // 64] = np.int64(1) << np.int64(k % 64)
    if first != second and meets(section.together[k + 1], both):  # one in a call, one on a host
        starts = starts[:0]
    rows, which = _options(
        section,
        _Args(room, first, second, limit_ns, linked),
        starts,
        ends,
        begun,
        hosted & everything[0],
    )
    first_bytes, second_bytes, cost = (np.ascontiguousarray(column) for column in rows.T)
    return Options(first_bytes, second_bytes, cost, starts[which[:, 0]], ends[which[:, 1]])


@kernel
def _options(
    section: RowSection, args: _Args, starts: Ints, ends: Ints, begun: Ints, hosted: Ints
) -> tuple[Ints, Ints]:
    """Memory and cost of `Options`, D and J, sorted by memory of the first call; undominated."""
    # Pairs that tear a group apart are left out: between accelerator and host, and between calls if
    # it must be in one. `begun` are the nodes of the second calls.
    # D is tried by memory, J by cost, so that a row of J ends at the limit. `best` answers "the
    # least cost so far with at most this much memory in the second call" by a Fenwick tree over the
    # sizes of second calls: a pair that does not beat it is dominated by a way with no more of all
    # three. The gap, the expensive part, is computed last.
    k, words = len(section.own_ns), starts.shape[1]
    before, after = _calls(section, starts, args.first, 0), _calls(section, begun, args.second, 1)
    rank, num_sizes, last = np.zeros(len(after.bytes), np.int64), 0, np.int64(-1)
    for j in stable_order(after.bytes):
        if after.bytes[j] != last:
            last, num_sizes = after.bytes[j], num_sizes + 1
        rank[j] = num_sizes - 1
    best = np.full(num_sizes + 1, NEVER, np.int64)
    by_size, by_cost = np.argsort(before.bytes), np.argsort(after.cost_ns)
    tied = False
    for v in range(k + 2):
        for w in range(words):
            tied |= section.together[v, w] != 0
    done = np.zeros((2, k), np.int64)
    inside, calls_only = np.zeros(words, np.int64), np.zeros(words, np.int64)
    rows, which, count = np.zeros((64, 3), np.int64), np.zeros((64, 2), np.int64), 0
    for d in by_size:
        if before.cost_ns[d] >= NEVER or before.bytes[d] > args.room:
            continue
        for j in by_cost:
            cost = before.cost_ns[d] + after.cost_ns[j]
            if cost > args.limit_ns or after.cost_ns[j] >= NEVER:
                break
            if beyond(starts[d], ends[j]) or after.bytes[j] > args.room:
                continue
            known, at = NEVER, rank[j] + 1
            while at > 0:
                known = min(known, best[at])
                at -= at & -at
            if cost >= known:
                continue
            for w in range(words):
                inside[w] = ends[j, w] & ~starts[d, w]
                calls_only[w] = before.tied[d, w] | after.tied[j, w]
            inside[k // 64] &= ~(np.int64(1) << np.int64(k % 64))
            if tied:
                # Linked calls share a group, others do not. A group that must be in one call must
                # not reach into the nodes between, and one that is on a host not into any call.
                if beyond(before.tied[d], ends[j]) != args.linked:
                    continue
                if section.once != 0 and (args.linked or meets(calls_only, inside)):
                    continue
                if beyond(hosted, inside):
                    continue
            gap = _gap(section, inside, calls_only, hosted, args.room, done)
            cost += gap
            if gap >= NEVER or cost >= known or cost > args.limit_ns:
                continue
            at = rank[j] + 1
            while at <= num_sizes:
                best[at] = min(best[at], cost)
                at += at & -at
            if count == len(rows):
                more, pairs = np.zeros((2 * count, 3), np.int64), np.zeros((2 * count, 2), np.int64)
                for row in range(count):
                    copy_to(more[row], rows[row])
                    copy_to(pairs[row], which[row])
                rows, which = more, pairs
            rows[count, 0], rows[count, 1], rows[count, 2] = before.bytes[d], after.bytes[j], cost
            which[count, 0], which[count, 1] = d, j
            count += 1
    return rows[:count], which[:count]


@kernel
def _calls(section: RowSection, inside: Ints, call: bool, end: int) -> _Side:
    """Calls that end with sets of nodes of a section (`end` 0), or begin with them (1)."""
    # A call pays for tensors that leave it, or enter it; without a `call` nothing is paid.
    # Only what is certain counts here: tensors made in the section or by the bottleneck before it.
    # A first call pays for its own if a consumer is outside; a second call for those of producers
    # outside that it reads, where the bottleneck after the section counts as a reader.
    k = len(section.own_ns)
    cost, size = np.zeros(len(inside), np.int64), np.zeros(len(inside), np.int64)
    tied = np.zeros_like(inside)
    for at in range(len(inside) if call else 0):
        one = inside[at]
        tied[at] |= section.together[k + 1 - end]
        runs = True
        for v in range(k):
            if has(one, v):
                tied[at] |= section.together[v]
                size[at] += section.size_bytes[v]
                runs &= section.own_ns[v] < NEVER
                cost[at] += section.own_ns[v] if runs else 0
        if not runs:
            cost[at] = NEVER
            continue
        for e in range(len(section.producer)):
            p = section.producer[e]
            if end == 0:
                pays = p < 0 or has(one, p)
                onward = section.onward[e] + section.farther[e] > 0
                pays &= onward or beyond(section.consumers[e], one)
            else:
                pays = p < 0 or not has(one, p)
                pays &= section.onward[e] != 0 or meets(section.consumers[e], one)
            if pays:
                cost[at] += section.move_ns[e]
        for a in range(len(section.arriving_ns)):  # tensors from before the preceding bottleneck
            if meets(section.arriving[a, 2 * end], one):
                cost[at] += section.arriving_ns[a]
    return _Side(cost, size, tied)


@kernel(allocates=False)
def _gap(
    section: RowSection, inside: Ints, calls_only: Ints, hosted: Ints, room: int, done: Ints
) -> int:
    """A bound on the time of the nodes between two calls: a longest path."""
    # done[0, v] and done[1, v] are the least end of v on a host and in a call. In a call, v waits
    # for its tensors from elsewhere to be brought in; one that feeds it from a host costs the move,
    # one from a call nothing if both fit into one call, else out and in again. The gap lasts until
    # v's call has also taken out the tensors of v that others read.
    gap = np.int64(0)
    for v in range(len(section.own_ns)):
        if not has(inside, v):
            continue
        alone = np.int64(0)
        for at in range(section.pred_ptr[v], section.pred_ptr[v + 1]):
            p = section.pred[at]
            if has(inside, p):
                alone = max(alone, min(done[0, p], done[1, p]))
        called, entering, leaving = alone, section.entering_ns[v], np.int64(0)
        for at in range(section.made_ptr[v], section.made_ptr[v + 1]):
            e = section.made[at]
            if section.onward[e] + section.farther[e] > 0 or beyond(section.consumers[e], inside):
                leaving += section.move_ns[e]
        for at in range(section.taken_ptr[v], section.taken_ptr[v + 1]):
            e = section.taken[at]
            p, move = section.producer[e], section.move_ns[e]
            if p < 0 or not has(inside, p):
                entering += move
            else:
                alone = max(alone, min(done[0, p], done[1, p] + move))
                apart = section.size_bytes[p] + section.size_bytes[v] > room
                again = 2 * move if apart else np.int64(0)
                called = max(called, min(done[0, p] + move, done[1, p] + again))
        called = max(called, entering)
        host, own = section.host_ns[v], section.own_ns[v]
        # A node whose group is in a call is not on a host, and the other way round.
        done[0, v] = NEVER if host >= NEVER or has(calls_only, v) else min(NEVER, alone + host)
        done[1, v] = NEVER if own >= NEVER or has(hosted, v) else min(NEVER, called + own)
        gap = max(gap, min(done[0, v], done[1, v] + leaving))
    return int(gap)
