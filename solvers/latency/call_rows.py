"""The least sum of calls along a spine, as a bound on latency_subgraphs and as a plan.

Relaxation: calls are convex, so those that hold bottlenecks form a row. Each holds bottlenecks s to
t, all sections between them, an end part of section s, and a first part of section t + 1. The next
call, or a host with the next bottleneck, waits for it and for the rest of the section between them.
So the latency is at least the sum of the calls and of the gaps, minimized over all rows of few
enough calls, each within the largest memory. Accelerators are not distinguished: every time is the
least one, and calls are counted over all accelerators.

State: a label before section t has the number of calls begun, the first bottleneck of the open
call (or a host), its memory, and the time so far. Labels are extended by the ways to run section t
(`sections.options`): with the same number of calls and the same first bottleneck, a label is
dominated by one of no more memory and no more time. If a call is linked to the one before it by a
colocation group, they share memory, which `group_memory` counts.

Example by hand (docs/exact.md): ops a, b, c in a row of 1 ns and 1 byte, two devices of 2 bytes,
tensors of 9 and 2 ns at each end. All are bottlenecks, sections are empty, and memory needs two
calls. The row (a), (b, c) takes 1 + 9 + 9 + 2 = 21 ns, the row (a, b), (c) 2 + 2 + 2 + 1 = 7 ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.solvers.core.clock import Clock
from placegap.solvers.latency.calls import CallProblem
from placegap.solvers.latency.masks import masks, members
from placegap.solvers.latency.sections import Options, RowSection, build_section, incidence, options
from placegap.solvers.latency.spine import Spine, SpineNet

MOST_GROUPS = 8  # most groups of calls that pay for different arriving tensors: each has a table
MOST_LINKED = 64  # most labels that a linked call may follow; others merge into these as bounds
HOST, ONGOING = -1, -1  # start of a label with its bottleneck on a host; way of an open call


Arriving = tuple[SpineNet, int, list[int]]  # a tensor, its producer's place, its consumers' places


class Ways(NamedTuple):
    """A table of ways to run a section."""

    #: first, second: Whether a call is open before the section, and another one after it.
    first: bool
    second: bool
    linked: bool  # whether the two calls share a colocation group
    starts: list[int]  # first bottlenecks of the calls before the section to which the ways apply
    found: Options


class RowLabels(NamedTuple):
    """Rows of calls up to a bottleneck, all with the same number of calls."""

    start: Ints  # (l,) int64: First bottleneck of the open call, `HOST` where none is open
    #: bytes, cost_ns: (l,) int64: Memory of the open call and of calls that it is linked to; time
    #: so far.
    bytes: Ints
    cost_ns: Ints
    #: calls, parent, way: (l,) int64: Number of calls of the label before, its index, and the
    #: option between them.
    calls: Ints
    parent: Ints
    way: Ints


@dataclass(frozen=True, eq=False)
class Row:
    """The best row of calls."""

    cost_ns: int  # `NEVER` if there is none
    call: Ints  # (m,): call of each node, numbered in time, -1 outside of all calls of the row


def best_row(
    spine: Spine, room: int, most_calls: int, limit_ns: int = NEVER, clock: Clock | None = None
) -> Row:
    """The least latency of a spine's rows of at most `limit_ns`; `NEVER` if there is none."""
    # `room` is the memory of the largest accelerator, `most_calls` the number of calls of all
    # accelerators together. The clock raises `LimitReached` between two sections. `options` takes
    # at most the square of the ideals for a section; a bottleneck takes (labels + options)
    # log(labels) per number of calls.
    search = _Search(spine, room, most_calls, limit_ns)
    for t in range(len(spine.sections)):
        if clock is not None:
            clock.check()
        search.extend(t)
    return search.best()


class _Search:
    """Labels bottleneck by bottleneck; at[t][c] are those before section t with c calls begun."""

    def __init__(self, spine: Spine, room: int, most_calls: int, limit_ns: int) -> None:
        self.spine, self.room, self.most_calls, self.limit_ns = spine, room, most_calls, limit_ns
        self.extra, self.groups = passing_ns(spine), group_memory(spine)
        begin = _labels(np.array([HOST]), *np.zeros((5, 1), np.int64))
        self.at: list[list[RowLabels]] = [[begin] + [_none()] * most_calls]
        self.nets_to = arriving_nets(spine)
        self.ways: list[list[Ways]] = []

    def extend(self, t: int) -> None:
        """Labels after section t and the bottleneck behind it."""
        # Three ways on: the open call takes the section and the bottleneck; or it ends within the
        # section (if one is open), and the bottleneck begins a new call or runs on a host.
        spine, nodes = self.spine, self.spine.nodes
        section = build_section(spine, t)
        last = t == len(spine.bottlenecks)
        v = -1 if last else spine.bottlenecks[t]
        alone = 0 if last else int(nodes.host_ns[v])
        own, size = NEVER, 0
        if not last:
            own = int(nodes.own_ns[v])
            size = int(spine.size_bytes[v] + self.groups.more_bytes[t, t])
        ways = self.tables(t, section, own < NEVER)
        self.ways.append(ways)
        after: list[list[RowLabels]] = [[] for _ in range(self.most_calls + 1)]
        for c, labels in enumerate(self.at[-1]):
            if own < NEVER:
                after[c].append(self.go_on(labels, c, t, section, own))
            for table, way in enumerate(ways):
                if way.second and c == self.most_calls:
                    continue
                closed = self.close(labels, c, t, table)
                if way.second:
                    fits = closed.bytes + size <= self.room
                    begun = closed._replace(
                        start=np.full_like(closed.start, t),
                        bytes=closed.bytes + size,
                        cost_ns=closed.cost_ns + own,
                    )
                    after[c + 1].append(_staircase(_pick(begun, fits)))
                elif alone < NEVER:
                    hosted = closed._replace(
                        bytes=np.zeros_like(closed.bytes), cost_ns=closed.cost_ns + alone
                    )
                    after[c].append(_staircase(hosted))
        self.at.append([self.tidied(parts) for parts in after])

    def tables(self, t: int, section: RowSection, able: bool) -> list[Ways]:
        """All tables of ways to run a section; `able`: an accelerator runs the next bottleneck."""
        groups, found = self.arrivals(t), list[Ways]()
        ties = bool(section.together.any()) and not section.once
        for second in (False, True)[: 1 + able]:
            for first in (False, True)[: 1 + (t > 0)]:
                for paying, starts in groups if first else groups[:1]:
                    arriving = self.arriving(section, t, paying if first else ())
                    for linked in (False, True)[: 1 + (ties and first and second)]:
                        ways = options(arriving, self.room, first, second, self.limit_ns, linked)
                        found.append(Ways(first, second, linked, starts, ways))
        return found

    def arrivals(self, t: int) -> list[tuple[tuple[int, ...], list[int]]]:
        """Tensors from far that an open call pays for once it holds a consumer, by its starts."""
        # From its first bottleneck follows whether the producer is surely outside of the call, and
        # whether it surely has a consumer already, so that `passing_ns` counts the tensor. Starts
        # of equal answers share a table of ways. Beyond `MOST_GROUPS` a start counts as paying for
        # none, which stays a bound.
        groups: dict[tuple[int, ...], list[int]] = {(): []}
        if not self.nets_to[t]:
            return [((), list(range(t)))]
        for s in range(t):
            paying = tuple(
                a
                for a, (_, x, ends) in enumerate(self.nets_to[t])
                if x < 2 * s - 1 and not any(2 * s + 1 <= y <= 2 * t - 1 for y in ends)
            )
            if len(groups) >= MOST_GROUPS and paying not in groups:
                paying = ()
            groups.setdefault(paying, []).append(s)
        return list(groups.items())

    def arriving(self, section: RowSection, t: int, paying: tuple[int, ...]) -> RowSection:
        """A section with its arriving tensors."""
        number = {v: i for i, v in enumerate(self.spine.sections[t])}
        move_ns = np.array([net.move_ns for net, _, _ in self.nets_to[t]], np.int64)
        ends = [[number[j] for j in net.consumers if j in number] for net, _, _ in self.nets_to[t]]
        taken = incidence(ends, len(number))
        pays = np.isin(np.arange(len(ends)), paying)
        last = np.array([max(places) == 2 * t for _, _, places in self.nets_to[t]], np.bool_)
        rows = [masks(taken & kind[:, None], len(number) + 1) for kind in (pays, pays | True, last)]
        return section._replace(
            arriving=np.ascontiguousarray(np.stack(rows, axis=1)),
            arriving_ns=move_ns,
            entering_ns=move_ns @ taken,
        )

    def go_on(self, labels: RowLabels, c: int, t: int, section: RowSection, own: int) -> RowLabels:
        """Labels whose open call takes section t and the bottleneck behind it."""
        # No tensor of the section leaves the call, except for those that `passing_ns` counts.
        if (section.own_ns == NEVER).any():
            return _none()
        spine = self.spine
        more = int(spine.size_bytes[spine.bottlenecks[t]]) + int(section.size_bytes.sum())
        elsewhere, start = self.groups.more_bytes, labels.start
        size = labels.bytes + more + elsewhere[start, t] - elsewhere[start, t - 1]
        kept = np.flatnonzero((start != HOST) & (size <= self.room))
        picked = _pick(labels, kept)
        return picked._replace(
            bytes=size[kept],
            cost_ns=picked.cost_ns + own + int(section.own_ns.sum()),
            calls=np.full_like(kept, c),
            parent=kept,
            way=np.full_like(kept, ONGOING),
        )

    def close(self, labels: RowLabels, c: int, t: int, table: int) -> RowLabels:
        """The best label for each way to run section t that ends the open call."""
        # Labels are sorted by memory, with the least time up to each. A way leaves room - first
        # bytes for the open call: the best label within it is found by bisection.
        first, _, linked, starts, found = self.ways[t][table]
        kept = np.flatnonzero(np.isin(labels.start, starts if first else [HOST]))
        if first:
            kept = kept[~self.groups.is_torn[labels.start[kept], t - 1]]
        if not len(kept) or not len(found.cost_ns):
            return _none()
        cost = labels.cost_ns[kept]
        if first:
            cost = cost + self.extra[labels.start[kept], t - 1]
        order = np.lexsort((cost, labels.bytes[kept]))
        kept, cost = kept[order], cost[order]
        if linked:
            return self.close_linked(labels, kept, cost, c, t, table)
        least = np.minimum.accumulate(cost)
        where = np.maximum.accumulate(np.where(cost == least, np.arange(len(cost)), 0))
        at = np.searchsorted(labels.bytes[kept], self.room - found.first_bytes, side="right") - 1
        fits = np.flatnonzero(at >= 0)
        at = at[fits]
        same = np.full(len(fits), c)
        return _labels(
            np.full(len(fits), HOST),
            found.second_bytes[fits],
            least[at] + found.cost_ns[fits],
            same,
            kept[where[at]],
            len(self.ways[t]) * fits + table,
        )

    def close_linked(
        self, labels: RowLabels, kept: Ints, cost: Ints, c: int, t: int, table: int
    ) -> RowLabels:
        """Every label with every way: the next call begins with the memory of this one."""
        # The memory of the open call without its unfinished groups, which the next call counts
        # itself, stays with the next one. So labels compete in time, memory and what is carried on.
        found = self.ways[t][table].found
        size = labels.bytes[kept]
        carried = np.maximum(size - self.groups.unfinished_bytes[labels.start[kept], t - 1], 0)
        least, small = np.minimum.accumulate(cost), np.minimum.accumulate(carried)
        # A label stays if it has less time or carries less than all smaller ones.
        better = np.ones(len(cost), np.bool_)
        better[1:] = (cost[1:] < least[:-1]) | (carried[1:] < small[:-1])
        kept, cost, carried, size = kept[better], cost[better], carried[better], size[better]
        # Runs of labels become one with the least of each column: no plan has it, but it bounds
        # them all.
        if len(kept) > MOST_LINKED:
            at = np.linspace(0, len(kept), MOST_LINKED, endpoint=False).astype(np.int64)
            kept, size = kept[at], size[at]
            cost, carried = np.minimum.reduceat(cost, at), np.minimum.reduceat(carried, at)
        fits = size[:, None] + found.first_bytes[None, :] <= self.room
        label, way = np.nonzero(fits)
        return _labels(
            np.full(len(label), HOST),
            carried[label] + found.first_bytes[way] + found.second_bytes[way],
            cost[label] + found.cost_ns[way],
            np.full(len(label), c),
            kept[label],
            len(self.ways[t]) * way + table,
        )

    def tidied(self, parts: list[RowLabels]) -> RowLabels:
        """All labels of a bottleneck within the limit."""
        joined = _labels(*(np.concatenate(column) for column in zip(_none(), *parts, strict=True)))
        return _pick(joined, joined.cost_ns <= self.limit_ns)

    def best(self) -> Row:
        """The best label at the end, and its calls."""
        # Walking back, each label has its section's way: D goes to the call that ends in the
        # section, the complement of J to the one that begins there; the rest stays at -1.
        nodes = self.spine.nodes
        call = np.full(len(nodes.own_ns), -1, np.int64)
        ends = [
            (int(labels.cost_ns.min()), c) for c, labels in enumerate(self.at[-1]) if len(labels[0])
        ]
        if not ends:
            return Row(NEVER, call)
        cost, c = min(ends)
        at = int(np.argmin(self.at[-1][c].cost_ns))
        for t in range(len(self.spine.sections) - 1, -1, -1):
            label = [int(column[at]) for column in self.at[t + 1][c]]
            start, before, parent, way = label[0], label[3], label[4], label[5]
            inner = np.array(self.spine.sections[t], np.int64)
            if start != HOST:
                call[self.spine.bottlenecks[t]] = c - 1
            if way == ONGOING:
                call[inner] = c - 1
            else:
                number, table = divmod(way, len(self.ways[t]))
                first, second, _, _, found = self.ways[t][table]
                if first:
                    call[inner[members(found.inside[number], len(inner))]] = before - 1
                if second:
                    call[inner[~members(found.ideal[number], len(inner))]] = c - 1
            c, at = before, parent
        return Row(cost, call)


def _labels(*columns: Ints) -> RowLabels:
    return RowLabels(*(np.asarray(column, np.int64) for column in columns))


def _none() -> RowLabels:
    return _labels(*np.zeros((6, 0), np.int64))


def _pick(labels: RowLabels, kept: Ints | Flags) -> RowLabels:
    return RowLabels(*(column[kept] for column in labels))


def _staircase(labels: RowLabels) -> RowLabels:
    """The labels that are cheaper than every other one of no more memory."""
    order = np.lexsort((labels.cost_ns, labels.bytes))
    cost = labels.cost_ns[order]
    before = np.concatenate([[NEVER], np.minimum.accumulate(cost)[:-1]])[: len(cost)]
    return _pick(labels, order[cost < before])


def passing_ns(spine: Spine) -> Ints:
    """A bound on what a call of bottlenecks s to t pays for tensors past a bottleneck, (T, T)."""
    # The call surely pays for a tensor whose producer comes before bottleneck s - 1 if it surely
    # has a consumer, and for one whose producer it surely has if a consumer comes after bottleneck
    # t + 1. `options` counts tensors of the last bottleneck and consumers up to the next one.
    count, place = len(spine.bottlenecks), places(spine)
    extra = np.zeros((count, count), np.int64)
    for net in spine.nets:
        x = int(place[net.producer])
        near = x + 1 + x % 2  # the last place that is left to `options`
        ends = sorted(int(place[j]) for j in net.consumers if place[j] >= 0)
        far = [y for y in ends if y > near]
        if x < 0 or not far:
            continue
        # If the producer is the bottleneck just before the call, `options` counts the tensor for
        # near consumers: so it counts here only if all consumers are far.
        only_far = len(far) == len(ends)
        for s in range(1, count):
            if x < 2 * s - 1 or (x == 2 * s - 1 and only_far):
                inside = [y for y in far if y >= 2 * s + 1]
                if inside:
                    extra[s, max(s, inside[0] // 2) :] += net.move_ns
        first = (x - 1) // 2  # the last s whose call surely holds the producer
        low = (x + 1) // 2  # the first t; `options` charges what the last bottleneck makes
        high = (far[-1] - 3) // 2
        if first >= 0 and high >= low:
            extra[: first + 1, low : high + 1] += net.move_ns
    return extra


def arriving_nets(spine: Spine) -> list[list[Arriving]]:
    """For each section, the tensors into it from before the preceding bottleneck."""
    place = places(spine)
    found: list[list[Arriving]] = [[] for _ in spine.sections]
    for net in spine.nets:
        x, ends = int(place[net.producer]), [int(place[j]) for j in net.consumers]
        for y in sorted(set(ends)):
            if y % 2 == 0 and 0 <= x < y - 1:
                found[y // 2].append((net, x, ends))
    return found


class GroupMemory(NamedTuple):
    """Effects of colocation groups on calls, by first and last bottleneck."""

    more_bytes: Ints  # (T, T) int64: Memory that groups of the call have outside of it
    #: (T, T) int64: Memory of the groups that may have nodes both in the call (its first section
    #: included) and after its last bottleneck: a linked call counts it itself.
    unfinished_bytes: Ints
    is_torn: Flags  # (T, T): Whether the call has only a part of a group that must be in one call


def group_memory(spine: Spine) -> GroupMemory:
    """The tables of a spine; O(T^2) for each group of several nodes."""
    # With one call per accelerator, a call that holds one op of a group holds all of it. With
    # several, ops of a group may be in several calls; each of them has the memory of the whole
    # group, because its accelerator has it. Nodes of a call count by themselves, so only what its
    # groups have outside is added, without the sections at its ends, of which it may hold a part.
    nodes, place = spine.nodes, places(spine)
    held: dict[int, list[int]] = {}
    for v in np.flatnonzero(place >= 0).tolist():
        held.setdefault(int(nodes.group[v]), []).append(v)
    count = len(spine.bottlenecks)
    more, unfinished = np.zeros((2, count, count), np.int64)
    torn = np.zeros((count, count), np.bool_)
    first = 2 * np.arange(count)[:, None]  # section before the call
    last = 2 * np.arange(count)[None, :] + 2  # section after it
    for inside in held.values():
        if len(inside) == 1:
            continue
        at, size = place[inside], spine.size_bytes[inside]
        total = int(size.sum())
        touched, around, before, later = np.zeros((4, count, count), np.int64)
        for y, b in zip(at.tolist(), size.tolist(), strict=True):
            touched |= (first < y) & (y < last)
            around += b * ((first <= y) & (y <= last))
            before |= (first <= y) & (y < last)
            later |= y >= last
        more += touched * (total - around)
        unfinished += total * (before & later)
        if nodes.once:
            torn |= (touched > 0) & ~((at.min() >= first) & (at.max() <= last))
    return GroupMemory(more, unfinished, torn)


def places(spine: Spine) -> Ints:
    """2 t for nodes of section t, 2 t + 1 for the bottleneck behind it, -1 if left out, (m,)."""
    place = np.full(len(spine.nodes.own_ns), -1, np.int64)
    for t, inner in enumerate(spine.sections):
        place[inner] = 2 * t
    place[spine.bottlenecks] = 2 * np.arange(len(spine.bottlenecks)) + 1
    return place


def row_places(problem: CallProblem, spine: Spine, row: Row) -> Ints | None:
    """Place of each op, (n,), or None where the row gives no plan."""
    # Nodes outside of all calls run on hosts. Ops that the spine leaves out go to the call of their
    # first consumer, or to the first call of their colocation group if it has one. Calls that share
    # a group are packed into accelerators together, the largest first, each where least room is
    # left.
    call = row.call[spine.nodes.node].copy()
    for v in reversed(spine.left_out):
        for i in np.flatnonzero(spine.nodes.node == v).tolist():
            consumers = problem.succ[problem.succ_ptr[i] : problem.succ_ptr[i + 1]]
            found = call[consumers][call[consumers] >= 0]
            call[i] = found.min(initial=NEVER) if len(found) else -1
    for ops in np.split(problem.member, problem.group_ptr[1:-1]):
        inside = call[ops]
        if (inside < 0).any() and (inside >= 0).any():
            call[ops[inside < 0]] = inside[inside >= 0].min()
    devices = _pack(problem, call)
    if devices is None:
        return None
    place = np.zeros(len(call), np.int64)
    made: dict[int, int] = {}
    for c, k in enumerate(devices):  # calls of one device are numbered in the order of the row
        first = int(np.argmax(problem.device == k))
        place[call == c] = first + made.get(k, 0)
        made[k] = made.get(k, 0) + 1
    hosts = problem.device[problem.num_calls :]
    for i in np.flatnonzero(call < 0).tolist():
        times = problem.time_ns[i, hosts]
        able = np.flatnonzero(times != UNSUPPORTED)
        if not len(able):
            return None
        place[i] = problem.num_calls + able[np.argmin(times[able])]
    return place if problem.fits(place) and problem.latency_ns(place) < NEVER else None


def _pack(problem: CallProblem, call: Ints) -> list[int] | None:
    """The accelerator of each call, or None if no packing was found."""
    accelerators = problem.device[: problem.num_calls : problem.subgraphs].tolist()
    left = {k: int(problem.memory_bytes[k]) for k in accelerators}
    free = dict.fromkeys(accelerators, problem.subgraphs)
    count = int(call.max(initial=-1)) + 1
    devices, bunch = [-1] * count, np.arange(count)
    for ops in np.split(problem.member, problem.group_ptr[1:-1]):
        shared = np.unique(bunch[call[ops[call[ops] >= 0]]])
        bunch[np.isin(bunch, shared)] = shared.min(initial=count)
    of_op = np.where(call >= 0, bunch[call] if count else -1, -1)
    bunches = np.unique(bunch).tolist()
    size = {b: int(problem.resident_bytes[of_op == b].sum()) for b in bunches}
    for b in sorted(bunches, key=lambda b: -size[b]):
        ops, calls = np.flatnonzero(of_op == b), np.flatnonzero(bunch == b).tolist()
        able = [
            k
            for k in accelerators
            if free[k] >= len(calls)
            and size[b] <= left[k]
            and (problem.time_ns[ops, k] != UNSUPPORTED).all()
        ]
        if not able:
            return None
        k = min(able, key=lambda k: (left[k], k))
        for c in calls:
            devices[c] = k
        left[k] -= size[b]
        free[k] -= len(calls)
    return devices
