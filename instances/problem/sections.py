"""Sections: what lies between two ops, as an instance of its own with the devices of both fixed.

Where a graph falls into sections, and why their times add up:

**Theorem.** Let u be an op such that

1. every other op is an ancestor or a descendant of u (u is a *bottleneck*);
2. no edge leads from an ancestor of u to a descendant of u (none *skips* u);
3. no colocation group without u has ops on both sides of u.

Then u is a *cut*. If moreover memory is slack (`Arrays.memory_is_slack`), the least makespan is the
length of a shortest path over the pairs (cut, device), where the arc from (u, a) to (v, b), for
neighbouring cuts u and v, is the least time from the end of u on a to the end of v on b, with the
ops between u and v placed and scheduled for that alone. This holds under every semantics of the
makespan: any channels, transfers per edge or per tensor.

*Proof.* Take any schedule. When u ends, all its ancestors have ended, by 1; so has every transfer
into an op up to u, and by 2 there is no other transfer out of an ancestor of u: a tensor of one has
all its consumers up to u. Everything else, transfers out of u included, waits for the end of u. So
at this moment all devices and all channels are idle, and what follows depends on the past through
the device of u alone: a schedule is one of the ancestors and u, and then one of the descendants,
that may be chosen independently of each other given the device of u. (3: a group that has u is
pinned on both sides by u's device; any other lies on one side. Slack memory: any placement of one
side goes with any placement of the other.) Splitting at all cuts gives the path; end to end, the
schedules of its arcs make a schedule of the whole.

*What remains without the conditions.* For ops u before v, restrict any schedule to u, the ops
strictly between u and v, and v, and to the transfers among them, from the end of u on: it is a
schedule of that section. So the end of v minus the end of u is never less than the section's least
time with both devices fixed, skipping edges, colocation across and tight memory notwithstanding.
Sums of such arcs are therefore always *bounds*; only that the bound is reached needs 1 to 3.

*Intervals* are pairs of ops that close a part of a graph. For ops u before v, the ops strictly
between them can only start after u and must end before v. A graph without bottlenecks still has
many such intervals, and whatever is proven of each adds up along a chain u0 < u1 < u2 < ....
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel, stable_order
from placegap.instances.problem.cluster import Cluster
from placegap.instances.problem.graph import Graph
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.op import Edge, Op


@dataclass(frozen=True)
class Section:
    """The ops between two ops u and v, both of them included."""

    entry: int | None  # op u; None: the section begins with the graph
    exit: int | None  # op v; None: it ends with the graph
    ops: tuple[int, ...]  # entry, the ops between in topological order, exit
    edges: tuple[int, ...]  # the edges of the graph among `ops`, in input order

    @property
    def num_inner(self) -> int:
        """Ops strictly between entry and exit."""
        return len(self.ops) - (self.entry is not None) - (self.exit is not None)


def sections_between(instance: Instance, bottlenecks: Sequence[int]) -> tuple[Section, ...]:
    """The sections that bottlenecks, in topological order, cut a graph into; O(n + m)."""
    # The first begins with the graph and the last ends with it; edges that skip a bottleneck belong
    # to no section.
    index = instance.arrays.index
    order, position = index.topological_order.tolist(), index.topological_position
    places = [-1, *position[list(bottlenecks)].tolist(), instance.num_ops]
    # a section [p, q] of positions has the edges with both ends in it
    last = np.searchsorted(places, position[index.consumer])
    first = np.searchsorted(places, position[index.producer], side="right") - 1
    edges: list[list[int]] = [[] for _ in places]
    for e in np.flatnonzero(last == first + 1).tolist():
        edges[first[e]].append(e)
    found = []
    for s, (p, q) in enumerate(pairwise(places)):
        entry = order[p] if p >= 0 else None
        leave = order[q] if q < instance.num_ops else None
        ops = tuple(order[max(p, 0) : q + 1])
        found.append(Section(entry, leave, ops, tuple(edges[s])))
    return tuple(found)


def interval(instance: Instance, between: Sequence[int], entry: int, exit: int) -> Section:
    """The section of given ops strictly between two ops; O(edges at these ops)."""
    index = instance.arrays.index
    position = index.topological_position
    ops = (entry, *sorted(between, key=lambda i: int(position[i])), exit)
    members, edges = frozenset(ops), []
    for i in ops[:-1]:
        for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist():
            if int(index.consumer[e]) in members:
                edges.append(e)
    return Section(entry, exit, ops, tuple(sorted(edges)))


class SectionMaker:
    """Makes the instances of an instance's sections."""

    def __init__(self, instance: Instance) -> None:
        # Ops, devices and tensors have neutral names, so that equal sections have equal instances.
        self.instance = instance

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster with each device a kind of its own, so that an op can be pinned."""
        devices = tuple(
            device.model_copy(update={"kind": str(k), "name": str(k), "server": None})
            for k, device in enumerate(self.instance.cluster.devices)
        )
        where = self.instance.cluster.device_index
        links = self.instance.cluster.all_links.renamed({name: str(k) for name, k in where.items()})
        return Cluster(name="section", devices=devices, links=links)

    def make(self, section: Section, entry: int | None, leave: int | None) -> Instance:
        """The section as an instance; entry and exit are pinned to devices that are given."""
        # The entry takes no time where it is given a device.
        graph = Graph(
            name="section",
            ops=tuple(self._ops(section, entry, leave)),
            edges=tuple(self._edges(section)),
        )
        return Instance(name="section", graph=graph, cluster=self.cluster)

    def _ops(self, section: Section, entry: int | None, leave: int | None) -> Iterator[Op]:
        arrays, ops = self.instance.arrays, self.instance.graph.ops
        groups: dict[int, str] = {}
        for number, i in enumerate(section.ops):
            times = arrays.time_ns[i].tolist()
            if i == section.entry and entry is not None:
                times = [
                    0 if k == entry and time >= 0 else UNSUPPORTED for k, time in enumerate(times)
                ]
            if i == section.exit and leave is not None:
                times = [time if k == leave else UNSUPPORTED for k, time in enumerate(times)]
            group = None
            if ops[i].colocation is not None:
                group = groups.setdefault(int(arrays.group[i]), str(number))
            yield Op(
                name=str(number),
                time_ns={str(k): time for k, time in enumerate(times) if time != UNSUPPORTED},
                resident_bytes=ops[i].resident_bytes,
                colocation=group,
            )

    def _edges(self, section: Section) -> Iterator[Edge]:
        index, edges = self.instance.arrays.index, self.instance.graph.edges
        local = {i: str(number) for number, i in enumerate(section.ops)}
        tensors: dict[int, str] = {}
        for e in section.edges:
            tensor = tensors.setdefault(int(index.tensor[e]), str(len(tensors)))
            yield Edge(
                producer=local[int(index.producer[e])],
                consumer=local[int(index.consumer[e])],
                bytes=edges[e].bytes,
                tensor=tensor,
                host_time_ns=edges[e].host_time_ns,
                transfer_ns=edges[e].transfer_ns,
            )


def bottlenecks(instance: Instance) -> tuple[int, ...]:
    """Ops that are comparable with every other op, in topological order; O(n + m)."""
    # All ops before position p of a topological order are ancestors of the op at p if and only if
    # each of them has a successor at p or before: following such successors ends at p. Likewise for
    # descendants and predecessors.
    index, n = instance.arrays.index, instance.num_ops
    tail, head = (
        index.topological_position[index.producer],
        index.topological_position[index.consumer],
    )
    first_succ, last_pred = np.full(n, n), np.full(n, -1)
    np.minimum.at(first_succ, tail, head)
    np.maximum.at(last_pred, head, tail)
    latest = np.maximum.accumulate(np.concatenate([[-1], first_succ[:-1]]))
    earliest = np.minimum.accumulate(np.concatenate([last_pred[1:], [n]])[::-1])[::-1]
    at = np.arange(n)
    found = index.topological_order[(latest <= at) & (earliest >= at)]
    return tuple(found.tolist())


def cuts(instance: Instance) -> tuple[int, ...]:
    """The bottlenecks that no edge skips and no colocation group spans, in topological order."""
    # O(n + m). With slack memory every schedule splits there (the theorem above).
    position = instance.arrays.index.topological_position
    spanned = _inside(instance, *_edge_spans(instance)) | _across_groups(instance)
    return tuple(u for u in bottlenecks(instance) if not spanned[position[u]])


def _edge_spans(instance: Instance) -> tuple[Ints, Ints]:
    index = instance.arrays.index
    position = index.topological_position
    return position[index.producer], position[index.consumer]


def _inside(instance: Instance, first: Ints, last: Ints) -> Flags:
    """Positions strictly inside one of the spans (first, last)."""
    change = np.zeros(instance.num_ops + 1, np.int64)
    long = last > first + 1
    np.add.at(change, first[long] + 1, 1)
    np.add.at(change, last[long], -1)
    covered: Flags = np.cumsum(change[:-1]) > 0
    return covered


def _across_groups(instance: Instance) -> Flags:
    """Positions with ops of one group before and after that is not the position's own group."""
    # A group spans the positions between its neighbouring members, its members' own aside.
    arrays = instance.arrays
    pointer, members = group_by(arrays.group, arrays.num_groups)
    position = arrays.index.topological_position
    first, last = [], []
    for g in np.flatnonzero(np.diff(pointer) > 1).tolist():
        places = np.sort(position[members[pointer[g] : pointer[g + 1]]])
        first.append(places[:-1])
        last.append(places[1:])
    if not first:
        return np.zeros(instance.num_ops, np.bool_)
    return _inside(instance, np.concatenate(first), np.concatenate(last))


MOST_OPS = 100  # intervals with more ops strictly between their ends are no candidates
MOST_WORK = 200_000_000  # edges that all forks together look at, about two seconds' worth
MOST_MEMBERS = 2_000_000  # inner ops of all candidates together
CHUNK = 4096  # candidates that are guessed at once


class Interval(NamedTuple):
    """Two ops and the ops strictly between them."""

    entry: int
    exit: int
    inner: tuple[int, ...]


def intervals(instance: Instance, most_ops: int = MOST_OPS) -> list[Interval]:
    """The candidates: a fork u, and a join v whose immediate dominator below u is u."""
    # No single op between the two closes the paths from u to v earlier. Dominators of an acyclic
    # graph take one pass in topological order (Cooper, Harvey, Kennedy 2001): O(forks x m) for all
    # forks. In graphs where that is more than `MOST_WORK`, each fork looks only so far ahead that
    # it is not, and where the candidates hold more than `MOST_MEMBERS` ops together, only smaller
    # ones count: candidates are missed, which does no harm to a bound's validity.
    index, n = instance.arrays.index, instance.num_ops
    position, order = index.topological_position, index.topological_order
    # ops are numbered by topological position from here on
    preds = position[index.producer]
    pred_ptr, by_consumer = group_by(position[index.consumer], n)
    num_succs = np.bincount(preds, minlength=n)
    forks = max(1, int((num_succs > 1).sum()))
    ahead = max(most_ops + 1, MOST_WORK * n // (forks * (n + len(preds) + 1)))
    while True:
        entries, exits, inner_ptr, inner = _find(
            pred_ptr, preds[by_consumer], num_succs, most_ops, ahead
        )
        if len(inner) <= MOST_MEMBERS:
            break
        most_ops //= 2
    op, members = order.tolist(), order[inner].tolist()
    return [
        Interval(op[u], op[v], tuple(members[first:last]))
        for u, v, first, last in zip(
            entries.tolist(),
            exits.tolist(),
            inner_ptr[:-1].tolist(),
            inner_ptr[1:].tolist(),
            strict=True,
        )
    ]


@kernel(bounded=True)
def _find(
    pred_ptr: Ints, pred: Ints, num_succs: Ints, most: int, ahead: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Ends and inner ops of all candidates, as pairs and as a CSR list."""
    n = len(num_succs)
    root, dominator, depth = np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64)
    seen, stamp, stack = np.full(n, -1), 0, np.zeros(n + 1, np.int64)
    entries, exits, count_found = np.empty(n, np.int64), np.empty(n, np.int64), 0
    inner_ptr, inner, held = np.zeros(n + 1, np.int64), np.empty(n, np.int64), 0
    for u in range(n):
        if num_succs[u] < 2 or held > MOST_MEMBERS:
            continue
        # dominators among the ops behind u, in topological order; only the nearest `ahead` of them
        root[u], depth[u] = u, 0
        for v in range(u + 1, min(n, u + 1 + ahead)):
            found = -1
            for w in pred[pred_ptr[v] : pred_ptr[v + 1]]:
                if root[w] != u:
                    continue
                if found < 0:
                    found = w
                while found != w:  # up to where the two meet
                    if depth[found] >= depth[w]:
                        found = dominator[found]
                    else:
                        w = dominator[w]
            if found < 0:
                continue
            root[v], dominator[v], depth[v] = u, found, depth[found] + 1
            # all ways from u to v part at u: no op between is on every one
            if found != u or pred_ptr[v + 1] - pred_ptr[v] < 2:
                continue
            stamp += 1
            stack[0], count, at = v, 1, 0
            while at < count <= most + 1:
                for w in pred[pred_ptr[stack[at]] : pred_ptr[stack[at] + 1]]:
                    if w != u and root[w] == u and seen[w] != stamp and count <= most + 1:
                        seen[w] = stamp
                        stack[count] = w
                        count += 1
                at += 1
            if 1 < count <= most + 1:
                if count_found == len(entries):
                    entries, exits = _doubled(entries), _doubled(exits)
                    inner_ptr = _doubled(inner_ptr)
                while held + count > len(inner):
                    inner = _doubled(inner)
                entries[count_found], exits[count_found] = u, v
                members = stack[1:count]
                for x in stable_order(members):
                    inner[held] = members[x]
                    held += 1
                count_found += 1
                inner_ptr[count_found] = held
    return (
        entries[:count_found].copy(),
        exits[:count_found].copy(),
        inner_ptr[: count_found + 1].copy(),
        inner[:held].copy(),
    )


@kernel
def _doubled(values: Ints) -> Ints:
    """The same values, with room for as many more."""
    more = np.empty(2 * len(values), np.int64)
    for at in range(len(values)):
        more[at] = values[at]
    return more


def choose_chain(instance: Instance, candidates: Sequence[Interval]) -> tuple[Section, ...]:
    """A chain of intervals and edges through the graph that promises a long bound."""
    # A longest path in which an edge counts the least time of its consumer, and an interval the
    # time of its ops one after the other on their best device: it is guessed that a section stays
    # together. The guess only guides; every chain gives a valid bound. O(n + m + intervals).
    arrays, index = instance.arrays, instance.arrays.index
    supported = arrays.time_ns != UNSUPPORTED
    least = np.where(supported, arrays.time_ns, np.iinfo(np.int64).max).min(axis=1)
    into: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in range(instance.num_ops)]
    for i, j in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        into[j].append((int(least[j]), i, ()))
    for (entry, leave, inner), guess in zip(
        candidates, _guesses(instance, candidates), strict=True
    ):
        into[leave].append((guess, entry, inner))
    longest = least.tolist()
    step: list[tuple[int, tuple[int, ...]] | None] = [None] * instance.num_ops
    for j in index.topological_order.tolist():
        for guess, i, inner in into[j]:
            length = longest[i] + guess
            if length > longest[j] or (length == longest[j] and step[j] is None):
                longest[j], step[j] = length, (i, inner)
    at, chain = max(range(instance.num_ops), key=lambda j: (longest[j], -j)), []
    while (last := step[at]) is not None:
        chain.append(interval(instance, last[1], last[0], at))
        at = last[0]
    return tuple(reversed(chain))


def _guesses(instance: Instance, candidates: Sequence[Interval]) -> Iterator[int]:
    """What each interval, its first op aside, takes on the best device that runs all of it."""
    times = instance.arrays.time_ns
    supported = times != UNSUPPORTED
    least = np.where(supported, times, np.iinfo(np.int64).max).min(axis=1)
    for begin in range(0, len(candidates), CHUNK):
        chunk = candidates[begin : begin + CHUNK]
        sizes = [len(inner) + 1 for _, _, inner in chunk]
        ops = np.array([i for _, leave, inner in chunk for i in (*inner, leave)], np.int64)
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        able = np.logical_and.reduceat(supported[ops], first)
        serial = np.where(able, np.add.reduceat(times[ops], first), np.iinfo(np.int64).max)
        alone = np.add.reduceat(least[ops], first)
        yield from np.where(able.any(axis=1), serial.min(axis=1), alone).tolist()
