"""Sections: what lies between two ops, as an instance of its own with the devices of both fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from placegap.instances.problem.instance import Cluster, Edge, Graph, Instance, Op
from placegap.instances.problem.integers import UNSUPPORTED


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
