"""Work between heads and tails: what must run between two moments needs devices in between.

*Relaxation.* Weights w[k] >= 0 of the devices turn ops into masses m[i] = min over k of
w[k] p[i, k]. However ops are placed, all devices together do no more than W = sum of w mass in a
nanosecond. So if no op of a set S can start before a, and at least b must follow after each, then

    makespan  >=  a + b + (sum of m over S) / W.

*Heads.* All ancestors of v end before v starts. Those of them that cannot start before a hold v
back until a + (sum of their masses) / W: a head of v, beside the longest path, and paths go on from
there. Tails are heads of the reversed graph.

*In turn.* If v is on device b, some ops right before it are there, too: those of its colocation
group, and those whose tensors would arrive from any other device later than v starts. They run one
after the other, so v starts no earlier than the least head of any of them plus all their times. Of
a weight whose copies are updated apart, the tail of its gradient counts all updates, or a transfer.

*Queues.* The same with the ops that one device alone can run, and with the transfers that hold a
channel whatever the plan (`queued_items`): one after the other, with their times as masses, W = 1.

*Windows.* The largest value over all pairs (a, b), by a sweep over falling heads with a segment
tree over tails: O(n log n). Heads cost O(n MOST log MOST).

*Example.* An op of 1 ns feeds three of 2 ns, which feed one of 1 ns, on two equal devices, and
transfers take no time. Paths prove 4 ns, and so does all work: 8 / 2. The three cannot start before
1, and 1 follows each: 1 + 6 / 2 + 1 = 5. The optimum is 6, as an op cannot be divided.

*Arcs.* Least times through a section (`interval_arcs`), counted as edges by the longest paths. Let
u and v be ops, and X the ops strictly between them. All of X starts after the end of u and ends
before the start of v. With u on device a and v on device b, and the time G between:

- *Paths.* With x on device c a longest path from u over x to v takes through(x, c); G is at least
  the least of these over c, for every x.
- *Forced ops.* If through(x, c') > G for all devices c' but c, x is on c. All such ops run on c one
  after the other: G >= least head + sum of their times there + least tail. So G is at least the
  smallest number that satisfies this. With expensive transfers all of X runs on one device.
- *Work.* Device c can start with X only after h[c], the least head of any x there, and must end
  t[c], the least tail, before v starts: sum over X of the masses <= sum of w[c] (G - h[c] - t[c])
  over the c with G > h[c] + t[c].
- *Channels* (`port_gap`). With the devices of some ops given, some tensors must be sent inside a
  section. Those that hold the same channel follow each other: of all that begin after r and leave
  at least q behind, r + the sum of the transfers + q is no more than G. So do the ops of a device.

Every condition holds in every schedule; all but those of channels under every semantics of the
makespan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import copy_to, kernel, pop, push, set_all, stable_order
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.device_classes import equal_columns, links_alike
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import NO_WAY, ceil_div, to_whole
from placegap.instances.problem.sections import Interval, Section, bottlenecks, intervals
from placegap.instances.referee.channels import channels_of, num_channels
from placegap.solvers.bounds.cheap_bounds import Direction, arrive, directions, spread_weights
from placegap.solvers.bounds.queued_items import QueuedItems, queued_items

FREE = -2  # in place of a device: the op may be on several
MOST_STEPS = 300_000_000  # edges of all intervals times devices cubed, about a second
MOST_CELLS = 20_000_000  # cells of all tables together


class SectionEdges(NamedTuple):
    """Edges of a section with s inner ops: -1 is the entry, s the exit, others are inner."""

    #: producer, consumer: (e,) int64: -1 is the entry.
    producer: Ints
    consumer: Ints
    tensor: Ints  # (e,) int64: Edges of one number may share a transfer
    move_ns: Ints  # (e, K, K) int64
    least_ns: Ints  # (e,) int64: The least between two different devices


def section_edges(instance: Instance, part: Section, semantics: Makespan) -> SectionEdges:
    """The edges of a section with an entry and an exit; O(its size)."""
    arrays, index = instance.arrays, instance.arrays.index
    place = {op: x for x, op in enumerate(part.ops, start=-1)}
    edges = np.array(part.edges, np.int64)
    producer = np.array([place[u] for u in index.producer[edges].tolist()], np.int64)
    consumer = np.array([place[v] for v in index.consumer[edges].tolist()], np.int64)
    tensor = index.tensor[edges]
    shared = semantics.transfers == "per_tensor"
    move = arrays.transfer_ns[tensor][:, arrays.link_class]
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    return SectionEdges(
        producer,
        consumer,
        tensor if shared else np.arange(len(edges)),
        move,
        move[:, apart].min(axis=1, initial=NO_WAY),
    )


class ChannelTable(NamedTuple):
    """Which channels transfers hold."""

    of: Ints  # (K, K, 2) int64: The channels of a transfer between two devices, -1 for none
    num: int
    #: Whether a path from one device to another, over ops that each read and feed one op, must hold
    #: the channels of its two ends for a transfer that no other path shares.
    ways: bool


def channel_table(semantics: Makespan, num_devices: int) -> ChannelTable:
    """The channels of a semantics."""
    # A path may change devices in between. It leaves the port of its first device and enters that
    # of its last one all the same; with links, only two devices leave no detour. A tensor that is
    # sent once for several readers could serve two paths.
    every = range(num_devices)
    table = [[channels_of(semantics.channels, num_devices, a, b) for b in every] for a in every]
    own = semantics.transfers == "per_edge"
    ways = own and (num_devices == 2 or semantics.channels in ("port", "half_duplex"))
    channels = num_channels(semantics.channels, num_devices)
    return ChannelTable(np.array(table, np.int64), channels, ways)


@kernel(bounded=True)
def paths_through(
    enter: Ints, own: Ints, leave: Ints, producer: Ints, consumer: Ints, move_ns: Ints
) -> tuple[Ints, Ints, Ints]:
    """By paths: from the end of the entry to the start of the exit, (K, K); heads and tails."""
    # `enter`, `own` and `leave` have the times of the entry, the inner ops and the exit, `NO_WAY`
    # where one cannot be; edges are as in `SectionEdges`. Heads and tails are (s, K, K): entry [x,
    # a, c] is for x on c and that end on a.
    size, num_devices = own.shape
    # One pass over the edges, by consumers in topological order, for each device of the entry: then
    # the heads of an edge's producer are final. The least over its devices is what must be waited
    # for; ops may be on different devices for different paths, which only makes paths shorter.
    gap = np.zeros((num_devices, num_devices), np.int64)
    for a in range(num_devices):
        for b in range(num_devices):
            if enter[a] >= NO_WAY or leave[b] >= NO_WAY:
                gap[a, b] = NO_WAY
    # [x, a, c]: x on c, the end on a
    head = np.zeros((size, num_devices, num_devices), np.int64)
    tail = np.zeros((size, num_devices, num_devices), np.int64)
    for x in range(size):
        for c in range(num_devices):
            if own[x, c] >= NO_WAY:
                for a in range(num_devices):
                    head[x, a, c] = tail[x, a, c] = NO_WAY
    for e in range(len(producer)):
        y, x = producer[e], consumer[e]
        for a in range(num_devices):
            if enter[a] >= NO_WAY:
                continue
            for c in range(num_devices):
                if (leave[c] if x == size else own[x, c]) >= NO_WAY:
                    continue
                least = NO_WAY
                if y < 0:
                    least = move_ns[e, a, c]
                else:
                    for d in range(num_devices):
                        if own[y, d] < NO_WAY:
                            least = min(least, head[y, a, d] + own[y, d] + move_ns[e, d, c])
                if x == size:
                    gap[a, c] = max(gap[a, c], least)
                else:
                    head[x, a, c] = max(head[x, a, c], least)
    # tails: the same over the edges in the other direction
    for e in range(len(producer) - 1, -1, -1):
        y, x = producer[e], consumer[e]
        if y < 0:
            continue
        for b in range(num_devices):
            if leave[b] >= NO_WAY:
                continue
            for d in range(num_devices):
                if own[y, d] >= NO_WAY:
                    continue
                least = NO_WAY
                if x == size:
                    least = move_ns[e, d, b]
                else:
                    for c in range(num_devices):
                        if own[x, c] < NO_WAY:
                            least = min(least, move_ns[e, d, c] + own[x, c] + tail[x, b, c])
                tail[y, b, d] = max(tail[y, b, d], least)
    return gap, head, tail


@kernel(bounded=True)
def raise_by_all(gap: Ints, own: Ints, head: Ints, tail: Ints, mass: int, weights: Ints) -> None:
    """Raise the gaps by paths over each op, by forced ops, and by the work of all."""
    size, num_devices = own.shape
    away = np.empty(size, np.int64)
    total: Any = np.int64(mass)
    for a in range(num_devices):
        for b in range(num_devices):
            if gap[a, b] >= NO_WAY:
                continue
            # an op is on some device, the same for the path before and after it
            least = gap[a, b]
            for x in range(size):
                through = NO_WAY
                for c in range(num_devices):
                    if own[x, c] < NO_WAY:
                        through = min(through, head[x, a, c] + own[x, c] + tail[x, b, c])
                least = max(least, through)
            # Only the devices of the ends are tried: an op elsewhere pays for transfers from them
            # and to them. `away` is the least gap with x on any other device than c.
            for c in (a, b):
                for x in range(size):
                    away[x] = NO_WAY
                    for other in range(num_devices):
                        if other != c and own[x, other] < NO_WAY:
                            way = head[x, a, other] + own[x, other] + tail[x, b, other]
                            away[x] = min(away[x], way)
                # at least the smallest G >= least head + sum of times + least tail of the ops
                # with away > G; with G below away[x], all up to x are forced
                before, after, work = NO_WAY, NO_WAY, 0
                for x in stable_order(-away):
                    before, after = min(before, head[x, a, c]), min(after, tail[x, b, c])
                    work = min(NO_WAY, work + own[x, c])
                    least = max(least, min(away[x], before + work + after))
            least = max(least, _by_work(total, weights, head[:, a], tail[:, b]))
            gap[a, b] = min(NO_WAY, least)


@kernel
def _by_work(total: int, weights: Ints, head: Ints, tail: Ints) -> int:
    """Smallest G with total <= sum over c of weights[c] (G - h[c] - t[c]), where positive."""
    if total == 0:  # ops that devices of weight 0 can do
        return 0
    num_devices = len(weights)
    # what no device can do: the time before its first op, and that after its last one
    closed = np.empty(num_devices, np.int64)
    for c in range(num_devices):
        before, behind = NO_WAY, NO_WAY
        for x in range(len(head)):
            before, behind = min(before, head[x, c]), min(behind, tail[x, c])
        closed[c] = min(NO_WAY, before + behind)
    # For the devices that open first, G = (total + their closed time) / their width. Any set of
    # devices alone needs at least the true G; the prefix of those open at G needs just that.
    width, shut, best = 0, 0, NO_WAY
    for c in stable_order(closed):
        if closed[c] >= NO_WAY or weights[c] == 0:
            continue
        width += weights[c]
        shut += weights[c] * closed[c]
        best = min(best, -(-(total + shut) // width))
    return best if best < NO_WAY else 0


@kernel(bounded=True)
def port_gap(
    gap: Ints, own: Ints, head: Ints, tail: Ints, edges: SectionEdges, channels: ChannelTable
) -> Ints:
    """The least times between entry and exit, (K, K), with waiting for channels and devices."""
    # `gap` has those by paths; `own` the times of the s inner ops by device, `NO_WAY` where one is
    # not; `head` and `tail`, (s, K, K), are ways from the entry and to the exit by the device of
    # that end and the op's.
    # Items are transfers that must happen, and ops whose device is given; each has a least begin, a
    # length, and a least time after it. For each pair of end devices, list the items, then look at
    # each channel as a machine (`_one_by_one`).
    producer, consumer, least_move = edges.producer, edges.consumer, edges.least_ns
    num_devices, size, most = len(gap), len(own), len(producer)
    least, on = gap.copy(), np.full(size, -1)
    for x in range(size):
        for d in range(num_devices):
            if own[x, d] < NO_WAY:
                on[x] = d if on[x] == -1 else FREE
    # in- and out-degrees, and an edge into each op: for the walk back below
    before, behind = np.zeros(size, np.int64), np.zeros(size, np.int64)
    into = np.zeros(size, np.int64)
    for e in range(most):
        if producer[e] >= 0:
            behind[producer[e]] += 1
        if consumer[e] < size:
            before[consumer[e]] += 1
            into[consumer[e]] = e
    rows = most + size
    begin, after = np.empty(rows, np.int64), np.empty(rows, np.int64)
    takes, to = np.empty(rows, np.int64), np.empty(rows, np.int64)
    of, by = np.empty(rows, np.int64), np.full((rows, 2), -1)
    for a in range(num_devices):
        for b in range(num_devices):
            if gap[a, b] >= NO_WAY:
                continue
            count = 0
            for e in range(most):
                y, x, takes_e, is_way = producer[e], consumer[e], NO_WAY, False
                target = b if x == size else on[x]
                at = e
                # Back over ops that may be anywhere: if the path's ends are on two devices, it has
                # a transfer somewhere, of the least length on the path.
                while (
                    channels.ways and y >= 0 and on[y] == FREE and before[y] == 1 and behind[y] == 1
                ):
                    takes_e, is_way = min(takes_e, least_move[at]), True
                    at = into[y]
                    y = producer[at]
                source = a if y < 0 else on[y]
                if source < 0 or target < 0 or source == target:
                    continue
                if is_way:
                    takes_e = min(takes_e, least_move[at])
                else:
                    takes_e = edges.move_ns[e, source, target]
                r = 0 if y < 0 else head[y, a, source] + own[y, source]
                q = 0 if x == size else own[x, target] + tail[x, b, target]
                # A tensor goes to a device once, for all its readers there: one item, whose least
                # time after it is the most of any reader's. With transfers per edge none are equal.
                same = -1
                for z in range(count):
                    if of[z] == edges.tensor[e] and to[z] == target:
                        same = z
                if same >= 0:
                    after[same] = max(after[same], q)
                    takes[same] = min(takes[same], takes_e)
                    continue
                begin[count], after[count], takes[count] = r, q, takes_e
                by[count], to[count], of[count] = (
                    channels.of[source, target],
                    target,
                    edges.tensor[e],
                )
                count += 1
            # a device is the channel of its ops
            for x in range(size):
                if on[x] >= 0:
                    begin[count], after[count] = head[x, a, on[x]], tail[x, b, on[x]]
                    takes[count] = own[x, on[x]]
                    by[count, 0], by[count, 1] = channels.num + on[x], -1
                    count += 1
            for c in range(channels.num + num_devices if count > 1 else 0):
                way = _one_by_one(by[:count] == c, begin[:count], takes[:count], after[:count])
                least[a, b] = min(NO_WAY, max(least[a, b], way))
    return least


@kernel
def _one_by_one(holds: Flags, begin: Ints, takes: Ints, after: Ints) -> int:
    """The least time for the items that hold a channel, one after the other. O(n^2)."""
    # max over pairs (r, q) of r + sum + q, where the sum is over the items with begin >= r and
    # after >= q. For each q of an item, add items by falling begin: each prefix is the set of one
    # r.
    mine = np.flatnonzero(holds[:, 0] | holds[:, 1])
    falling, least = mine[stable_order(-begin[mine])], 0
    for j in mine:
        total = 0
        for z in falling:
            if after[z] >= after[j]:
                total += takes[z]
                least = max(least, begin[z] + total + after[j])
    return least


class IntervalArcs(NamedTuple):
    """Pairs of ops, and least times from the end of the first to the start of the second."""

    # ``gap_ns[r, a, b]``: the least time with the first on device a and the second on b.
    # ``head_ns[x, a, c]`` and ``tail_ns[x, b, c]``, a row for each op between, in the order of the
    # arcs: the least time from the end of the first op to its start on c, and from its end to the
    # start of the second. Where devices are alike there are fewer of them, and with many ops none.
    entry: Ints
    exit: Ints
    gap_ns: Ints
    head_ns: Ints
    tail_ns: Ints


def interval_arcs(
    instance: Instance, parts: Sequence[Interval], time: Ints, mass: Ints, weights: Ints
) -> IntervalArcs:
    """Arcs of some intervals, in their order, at most as `MOST_STEPS` allow."""
    # Times are `NO_WAY` where an op cannot be. `mass` and `weights` are as in `work_windows`;
    # products with all times together must fit into 2**61.
    arrays, index, num_devices = instance.arrays, instance.arrays.index, instance.num_devices
    link, classes, multiple = arrays.link_class, num_devices, np.ones(num_devices, np.int64)
    alike = (  # no device can be told from another, nor any link
        num_devices > 3 and links_alike(instance) and not equal_columns(time, weights).any()
    )
    if alike:  # the device of u, that of v, and all others
        classes, multiple = 3, np.array([1, 1, num_devices - 2], np.int64)
        link = link[:3, :3]
    degree, steps, chosen = np.diff(index.pred_ptr), 0, list[Interval]()
    for part in parts:
        edges = int(degree[list(part.inner)].sum() + degree[part.exit])
        steps += 2 * edges * classes**3
        if steps > MOST_STEPS or (len(chosen) + 1) * num_devices**2 > MOST_CELLS:
            break
        chosen.append(part)
    ops = [i for part in chosen for i in part.inner]
    pointer = np.cumsum([0, *(len(part.inner) for part in chosen)])
    parts_of = IntervalOps(
        np.array([part.entry for part in chosen], np.int64),
        np.array([part.exit for part in chosen], np.int64),
        np.array(ops, np.int64),
        pointer.astype(np.int64),
    )
    # a copy, as that of `directions`: one kernel for both
    graph = directions(instance)[0]._replace(link_class=np.array(link, order="C"))
    times = np.ascontiguousarray(time[:, :classes])
    ends, width = 2 if alike else classes, weights[:classes] * multiple
    keep = len(ops) * classes**2 <= MOST_CELLS
    gap, head, tail = _gaps(parts_of, graph, times, mass, width, ends, keep)
    if alike:
        stay = np.eye(num_devices, dtype=np.bool_)
        gap = np.where(stay, gap[:, 0, 0, None, None], gap[:, 0, 1, None, None])
    return IntervalArcs(parts_of.entry, parts_of.exit, gap, head, tail)


class IntervalOps(NamedTuple):
    """Ends of intervals, and the ops between: those of interval r from ``pointer[r]`` on."""

    entry: Ints
    exit: Ints
    inner: Ints
    pointer: Ints


@kernel(bounded=True)
def _gaps(
    parts: IntervalOps,
    graph: Direction,
    time: Ints,
    mass: Ints,
    weights: Ints,
    ends: int,
    keep: bool,
) -> tuple[Ints, Ints, Ints]:
    """Least times of all intervals, for the first `ends` devices as ends; heads and tails."""
    # Each interval becomes a small problem with ops 0, 1, ..., in topological order, -1 for the
    # entry and the last number for the exit.
    num_devices, num = time.shape[1], len(parts.entry)
    gaps = np.zeros((num, ends, ends), np.int64)
    rows = len(parts.inner) if keep else 0
    heads = np.zeros((rows, ends, num_devices), np.int64)
    tails = np.zeros((rows, ends, num_devices), np.int64)
    at_end = np.full(num_devices, NO_WAY)
    at_end[:ends] = 0
    outside, local = -2, np.full(len(time), -2)
    for r in range(num):
        first, last = parts.pointer[r], parts.pointer[r + 1]
        size = last - first
        ops, own = np.empty(size + 1, np.int64), np.empty((size, num_devices), np.int64)
        copy_to(ops[:size], parts.inner[first:last])
        ops[size] = parts.exit[r]
        local[parts.entry[r]], total = -1, 0
        for x in range(size + 1):
            local[ops[x]] = x
        for x in range(size):
            copy_to(own[x], time[ops[x]])
            total += mass[ops[x]]
        most = 0
        for op in ops:
            most += graph.pointer[op + 1] - graph.pointer[op]
        producer, consumer = np.empty(most, np.int64), np.empty(most, np.int64)
        move, count = np.empty((most, num_devices, num_devices), np.int64), 0
        # edges from the entry and from inside; producers outside end at any time
        for x in range(size + 1):
            for at in range(graph.pointer[ops[x]], graph.pointer[ops[x] + 1]):
                e = graph.edge[at]
                y, takes = local[graph.other[e]], graph.transfer_ns[graph.tensor[e]]
                if y == outside:
                    continue
                producer[count], consumer[count] = y, x
                for a in range(num_devices):
                    for b in range(num_devices):
                        move[count, a, b] = takes[graph.link_class[a, b]]
                count += 1
        gap, head, tail = paths_through(
            at_end, own, at_end, producer[:count], consumer[:count], move[:count]
        )
        if size > 0:
            raise_by_all(gap, own, head, tail, total, weights)
        for a in range(ends):
            copy_to(gaps[r, a], gap[a])
            for x in range(size if keep else 0):
                copy_to(heads[first + x, a], head[x, a])
                copy_to(tails[first + x, a], tail[x, a])
        # clear only what was set: intervals may be many, and the graph large
        local[parts.entry[r]] = outside
        for op in ops:
            local[op] = outside
    return gaps, heads, tails


# Ancestors that count in one head: where sections between bottlenecks are small; at most (3,000
# prove no more of Moirai's networks); at least, in large graphs; and in all heads, half a second.
USUAL, MOST, FEWEST, MOST_ANCESTORS = 300, 1_000, 16, 20_000_000
BITS, MOST_BITS = 61, 20  # products of times and weights stay below 2**61; bits of a weight


class WorkWindows(NamedTuple):
    """Heads and tails of an instance, and masses between them."""

    time_ns: Ints  # (n, K) int64: `NO_WAY` where an op cannot be
    #: mass, weights: (n,), (K,): Masses of the ops, and weights of the devices.
    mass: Ints
    weights: Ints
    #: head_ns, tail_ns: (n, K) int64: The least start of an op, and the least time after its end,
    #: on each device.
    head_ns: Ints
    tail_ns: Ints
    intervals: list[Interval]  # the small ones first
    queued_ns: int  # the most that work and queues prove


def work_windows(instance: Instance, semantics: Makespan) -> WorkWindows | None:
    """Heads and tails by paths, intervals, work and queues; None if integers would overflow."""
    # Every op can be on some device.
    # weights have as many bits as keep all products of sums of times and weights below 2**61
    arrays, index = instance.arrays, instance.arrays.index
    possible, num_ops = instance.arrays.possible, instance.num_ops
    largest = sum(np.where(possible, arrays.time_ns, 0).max(axis=1).tolist())
    largest += sum(arrays.transfer_ns.max(axis=1, initial=0)[index.tensor].tolist())
    bits = min(MOST_BITS, BITS - (2 * largest * instance.num_devices).bit_length())
    if bits < 0:
        return None
    _, best = spread_weights(arrays.time_ns, possible)
    # the weights that prove most of all work; any others are valid for windows, too
    weights = to_whole(np.rint(np.array(best) / max(best) * 2.0**bits))
    width = int(weights.sum())
    masses = np.where(possible, arrays.time_ns, 0) * weights
    mass = np.where(possible, masses, np.iinfo(np.int64).max).min(axis=1)
    time = np.where(possible, arrays.time_ns, NO_WAY)
    most = max(FEWEST, min(_ancestors_of_section(instance), MOST_ANCESTORS // num_ops))
    found = sorted(intervals(instance), key=lambda part: len(part.inner))
    arcs = interval_arcs(instance, found, time, mass, weights)
    into = ArcsInto(*group_by(arcs.exit, num_ops), arcs.entry, arcs.gap_ns)
    out = ArcsInto(
        *group_by(arcs.entry, num_ops),
        arcs.exit,
        np.ascontiguousarray(arcs.gap_ns.transpose(0, 2, 1)),
    )
    items = queued_items(instance, semantics, time)
    head, tail = (
        _heads(graph, part, arrays.group, mass, width, ways, most)
        for graph, part, ways in zip(directions(instance), items, (into, out), strict=True)
    )
    queued_ns = _most_in_queues(items[0], head, tail, mass, width)
    return WorkWindows(time, mass, weights, head[:num_ops], tail[:num_ops], found, queued_ns)


def _most_in_queues(items: QueuedItems, head: Ints, tail: Ints, mass: Ints, width: int) -> int:
    """The most that all work, or what one device or channel must do, proves between two moments."""
    # work has no devices: an item's head and tail are those of its best ones, each by itself
    first = np.where(items.time_ns < NO_WAY, head, NO_WAY).min(axis=1)
    last = np.where(items.time_ns < NO_WAY, tail, NO_WAY).min(axis=1)
    n, takes = len(mass), items.least_ns
    most = ceil_div(int(_most_over_windows(first[:n], last[:n], mass, width)), width)
    for m in range(items.num_machines):
        mine = np.flatnonzero((items.machine == m).any(axis=1))
        most = max(most, int(_most_over_windows(first[mine], last[mine], takes[mine], 1)))
    return most


def _ancestors_of_section(instance: Instance) -> int:
    """Ancestors to look at: all of a section, as those before a bottleneck add nothing to it."""
    at = instance.arrays.index.topological_position[list(bottlenecks(instance))]
    largest = int(np.diff(np.sort(at), prepend=-1, append=instance.num_ops).max())
    return min(MOST, max(USUAL, largest))


def window_bound(windows: WorkWindows) -> int:
    """The bound of work between heads and tails on every makespan, in ns."""
    through = windows.head_ns + windows.tail_ns + windows.time_ns
    return max(int(np.minimum(through, NO_WAY).min(axis=1).max()), windows.queued_ns)


def chain_arcs(
    instance: Instance, chain: Sequence[Section], windows: WorkWindows
) -> tuple[list[Interval], IntervalArcs, Ints]:
    """The arcs of a chain's intervals, and their tables (r, K, K)."""
    # Tables have the least time from the end of an arc's first op to the end of its second one, by
    # their devices; `NO_WAY` where colocated ops would be apart.
    parts = [
        Interval(part.entry, part.exit, tuple(part.ops[1:-1]))
        for part in chain
        if part.entry is not None and part.exit is not None
    ]
    time = windows.time_ns
    arcs = interval_arcs(instance, parts, time, windows.mass, windows.weights)
    tables = np.minimum(arcs.gap_ns + time[arcs.exit][:, None, :], NO_WAY)
    group, stay = instance.arrays.group, np.eye(instance.num_devices, dtype=np.bool_)
    tables[(group[arcs.entry] == group[arcs.exit])[:, None, None] & ~stay] = NO_WAY
    return parts[: len(arcs.entry)], arcs, tables


class ArcsInto(NamedTuple):
    """Arcs to op v: those in ``arc[pointer[v] : pointer[v + 1]]``, each from op `other`."""

    # `gap_ns` is the least time between both by their devices.
    pointer: Ints
    arc: Ints
    other: Ints
    gap_ns: Ints


@kernel(bounded=True)
def _heads(
    graph: Direction,
    items: QueuedItems,
    group: Ints,
    mass: Ints,
    width: int,
    arcs: ArcsInto,
    most: int,
) -> Ints:
    """Least start of every item on every device, by paths and by what its ancestors do."""
    # Items in topological order: paths and arcs raise the start of v first, then the work of its
    # ancestors, and what those on one device or channel take. A heap gives these by falling heads,
    # as no producer has a higher head than its consumer. Only the first `most` ops count: they hold
    # v back the most, and fewer prove nothing wrong.
    time, num_ops = items.time_ns, len(mass)
    num_items, num_devices = time.shape
    start = np.zeros((num_items, num_devices), np.int64)
    first, seen = np.zeros(num_items, np.int64), np.full(num_items, -1)
    latest, heap = np.zeros(num_items, np.int64), np.empty(num_items, np.int64)  # latest: -first
    busy, place = np.zeros(items.num_machines, np.int64), np.full(num_ops, -1)
    for v in items.order:
        work, at_least, size, count = 0, 0, 0, 0
        for u in items.other[items.pointer[v] : items.pointer[v + 1]]:
            if seen[u] != v:
                seen[u] = v
                size = push(heap, size, latest, u)
                at_least = max(at_least, (start[u] + time[u]).min())
        if v < num_ops:
            arrive(graph, time, start, v)
            _arrive_in_turn(graph, time, group, start, v, place)
            for r in arcs.arc[arcs.pointer[v] : arcs.pointer[v + 1]]:
                u = arcs.other[r]
                for b in range(num_devices):
                    least = NO_WAY
                    for a in range(num_devices):
                        least = min(least, start[u, a] + time[u, a] + arcs.gap_ns[r, a, b])
                    start[v, b] = max(start[v, b], least)
        set_all(busy, 0)
        while count < most:
            if size == 0:
                break
            # all of these cannot start before the head of u, which is the least of them
            u = heap[0]
            size = pop(heap, size, latest)
            if u < num_ops:
                work += mass[u]
                at_least = max(at_least, first[u] + -(-work // width))
                count += 1
            for m in items.machine[u]:
                if m >= 0:
                    busy[m] += items.least_ns[u]
                    at_least = max(at_least, first[u] + busy[m])
            for w in items.other[items.pointer[u] : items.pointer[u + 1]]:
                if seen[w] != v:
                    seen[w] = v
                    size = push(heap, size, latest, w)
        first[v] = NO_WAY
        for b in range(num_devices):
            start[v, b] = min(NO_WAY, max(start[v, b], at_least))
            if time[v, b] < NO_WAY:
                first[v] = min(first[v], start[v, b])
        latest[v] = -first[v]
    return start


@kernel(bounded=True)
def _arrive_in_turn(
    graph: Direction, time: Ints, group: Ints, start: Ints, v: int, place: Ints
) -> None:
    """Raise the least start of an op by what comes right before it on its own device."""
    # `place`: a cell for each op, -1 before and after. By device of v, `away` is the least start
    # with a producer elsewhere: with a start below it, this one and all with a longer way are on
    # v's device.
    edges = graph.edge[graph.pointer[v] : graph.pointer[v + 1]]
    num_devices, count = time.shape[1], 0
    ops, away = np.empty(len(edges), np.int64), np.zeros((num_devices, len(edges)), np.int64)
    for e in edges:
        u, to = graph.other[e], graph.transfer_ns[graph.tensor[e]]
        if place[u] < 0:  # several tensors may lead from one op to another
            place[u], ops[count] = count, u
            count += 1
        for b in range(num_devices):
            least = NO_WAY
            for a in range(num_devices):
                if a != b and group[u] != group[v]:
                    least = min(least, start[u, a] + time[u, a] + to[graph.link_class[a, b]])
            away[b, place[u]] = max(away[b, place[u]], least)
    for u in ops[:count]:
        place[u] = -1
    if count < 2:  # paths count it
        return
    for b in range(num_devices):
        begin, work = NO_WAY, 0
        for x in stable_order(-away[b, :count]):
            begin, work = min(begin, start[ops[x], b]), min(NO_WAY, work + time[ops[x], b])
            start[v, b] = max(start[v, b], min(away[b, x], begin + work))


@kernel(bounded=True)
def _most_over_windows(head: Ints, tail: Ints, mass: Ints, width: int) -> int:
    """Largest a width + b width + mass of the ops with heads >= a and tails >= b."""
    # A segment tree over the tails b: of each node the mass below it, and the largest b width +
    # mass of the tails from b on, among the b of ops that are in.
    # Ops come in by falling heads, so that a is the head of the last one. Times `width` all is in
    # integers. A node's best is over the tails b below it: either b is on the right, or it is on
    # the left, and the mass of the right counts as well.
    num_ops = len(mass)
    order = stable_order(tail)
    at = np.empty(num_ops, np.int64)
    at[order] = np.arange(num_ops)
    size = 1
    while size < num_ops:
        size *= 2
    sums, best = np.zeros(2 * size, np.int64), np.full(2 * size, -(2**62))
    most = 0
    for i in stable_order(-head):
        node = size + at[i]
        sums[node] = mass[i]
        best[node] = mass[i] + tail[i] * width
        node //= 2
        while node:
            left, right = 2 * node, 2 * node + 1
            sums[node] = sums[left] + sums[right]
            best[node] = max(best[right], best[left] + sums[right])
            node //= 2
        most = max(most, head[i] * width + best[1])
    return most
