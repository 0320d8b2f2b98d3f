"""Sections: what lies between two ops, as an instance of its own with the devices of both fixed.

Where a graph falls into sections, and why their times add up:

**Theorem.** Let u be an op such that

1. every other op is an ancestor or a descendant of u (u is a *bottleneck*);
2. no edge leads from an ancestor of u to a descendant of u (none *skips* u);
3. no colocation group without u has ops on both sides of u.

Then u is a *cut*. If moreover memory is slack (`memory_is_slack`), the least makespan is the length
of a shortest path over the pairs (cut, device), where the arc from (u, a) to (v, b), for
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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Cluster, Edge, Graph, Instance, Op
from placegap.instances.problem.integers import NO_LIMIT, UNSUPPORTED


@dataclass(frozen=True)
class Section:
    """The ops between two ops u and v, both of them included.

    Attributes
    ----------
    entry : int or None
        Op u; None: the section begins with the graph.
    exit : int or None
        Op v; None: it ends with the graph.
    ops : tuple of int
        Entry, the ops between in topological order, exit.
    edges : tuple of int
        The edges of the graph among `ops`, in input order.
    """

    entry: int | None
    exit: int | None
    ops: tuple[int, ...]
    edges: tuple[int, ...]

    @property
    def num_inner(self) -> int:
        """Ops strictly between entry and exit."""
        return len(self.ops) - (self.entry is not None) - (self.exit is not None)


def sections_between(instance: Instance, bottlenecks: Sequence[int]) -> tuple[Section, ...]:
    """The sections that bottlenecks, in topological order, cut a graph into; O(n + m).

    The first begins with the graph and the last ends with it; edges that skip a bottleneck belong
    to no section.

    Examples
    --------
    >>> from placegap.instances import example
    >>> [section.ops for section in sections_between(example(), (0, 3))]
    [(0,), (0, 1, 2, 3), (3,)]
    """
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
    """Makes the instances of an instance's sections.

    Ops, devices and tensors have neutral names, so that equal sections have equal instances.

    Examples
    --------
    >>> from placegap.instances import example
    >>> whole, maker = example(), SectionMaker(example())
    >>> section = sections_between(whole, (0, 3))[1]
    >>> pinned = maker.make(section, 0, 1)
    >>> pinned.arrays.time_ns.tolist()  # the entry takes no time
    [[0, -1], [20, 20], [10, 10], [-1, 8]]
    """

    def __init__(self, instance: Instance) -> None:
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
        """The section as an instance; entry and exit are pinned to devices where these are given.

        Parameters
        ----------
        section : Section
        entry, leave : int or None
            Device of the section's entry, which then takes no time there, and of its exit.

        Raises
        ------
        ValueError
            If a pinned op, or one of its colocation group, cannot run there.
        """
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
    """Ops that are comparable with every other op, in topological order; O(n + m).

    All ops before position p of a topological order are ancestors of the op at p if and only if
    each of them has a successor at p or before: following such successors ends at p. Likewise for
    descendants and predecessors.

    Examples
    --------
    >>> from placegap.instances import example
    >>> bottlenecks(example())
    (0, 3)
    """
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
    """The bottlenecks that no edge skips and no colocation group spans, in topological order.

    O(n + m). With slack memory every schedule splits there (the theorem above).

    Examples
    --------
    An edge from the first op to the last skips the one between:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Op
    >>> ops = tuple(Op(name=name, time_ns={"gpu": 1}) for name in "abc")
    >>> edges = [Edge(producer="a", consumer="b"), Edge(producer="b", consumer="c")]
    >>> device = Device(name="d", kind="gpu")
    >>> def made(edges):
    ...     graph = Graph(name="g", ops=ops, edges=tuple(edges))
    ...     return Instance(name="i", graph=graph, cluster=Cluster(name="c", devices=(device,)))
    >>> cuts(made(edges)), cuts(made([*edges, Edge(producer="a", consumer="c")]))
    ((0, 1, 2), (0, 2))
    """
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
    """Positions with ops of one group before and after that is not the position's own group.

    A group spans the positions between its neighbouring members, its members' own aside.
    """
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


def memory_is_slack(instance: Instance, ops: Iterable[int] | None = None) -> bool:
    """Whether every device can hold all the ops that it can run at once: no limit ever binds.

    Parameters
    ----------
    instance : Instance
    ops : iterable of int, optional
        Only these ops; by default all.

    Examples
    --------
    >>> from placegap.instances import example
    >>> memory_is_slack(example())
    True
    """
    arrays = instance.arrays
    chosen: Sequence[int] | Ints = np.arange(instance.num_ops) if ops is None else list(ops)
    able = arrays.time_ns[chosen] != UNSUPPORTED
    need = (able * arrays.resident_bytes[chosen][:, None]).sum(axis=0)
    return bool(((need <= arrays.memory_bytes) | (arrays.memory_bytes == NO_LIMIT)).all())
