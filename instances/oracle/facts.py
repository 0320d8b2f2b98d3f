"""The second referee's view of an instance: tensors, paths and times, in Python integers.

The modules `recheck*` judge plans without a line of the referee's own: they read the fields of
`Instance`, `Plan` and `Semantics`, and derive everything else again, by other algorithms.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from functools import cached_property

from placegap.instances.problem import Edge, Instance


class Facts:
    """Structure and costs of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.ops, self.devices = instance.graph.ops, instance.cluster.devices
        number = {op.name: i for i, op in enumerate(self.ops)}
        #: (int, int, int): Producer, consumer and tensor of each edge; tensors are numbered by
        #: their first edges.
        self.ends: list[tuple[int, int, int]] = []
        #: (int, Edge): Producer of each tensor and an edge that describes it.
        self.tensors: list[tuple[int, Edge]] = []
        #: (int, int): Consumer and tensor of each edge out of an op, in input order.
        self.succ: list[list[tuple[int, int]]] = [[] for _ in self.ops]
        shared: dict[tuple[int, str], int] = {}
        for edge in instance.graph.edges:
            a, b, u = number[edge.producer], number[edge.consumer], len(self.tensors)
            if edge.tensor is not None:
                u = shared.setdefault((a, edge.tensor), u)
            if u == len(self.tensors):
                self.tensors.append((a, edge))
            self.ends.append((a, b, u))
            self.succ[a].append((b, u))
        #: Place of each op in the first-in-first-out topological order.
        self.position = self._positions()
        servers: dict[str | None, int] = {}
        #: Server of each device, numbered by first device.
        self.server = [servers.setdefault(device.server, len(servers)) for device in self.devices]
        self._cluster_links = instance.cluster.all_links
        self._paths: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._times: dict[tuple[int, int, int], int] = {}
        self._least: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}

    def op_time(self, i: int, k: int) -> int | None:
        """Time of an op on a device, None where it cannot run."""
        return self.ops[i].time_ns.get(self.devices[k].kind)

    def transfer_time(self, u: int, a: int, b: int) -> int:
        """Time of a tensor from one device to another."""
        edge = self.tensors[u][1]
        if a == b:
            return 0
        if edge.transfer_ns is not None:
            return edge.transfer_ns[a][b]
        if edge.host_time_ns is not None:
            return edge.host_time_ns * (not self.devices[a].is_host) + edge.host_time_ns * (
                not self.devices[b].is_host
            )
        key = edge.bytes, a, b
        if key not in self._times:
            path = self.path(a, b)
            assert path is not None, "an instance whose tensors need it has every path"
            width, latency = path
            whole, rest = divmod(edge.bytes * 1_000_000_000, width)
            self._times[key] = latency + whole + (1 if rest else 0)
        return self._times[key]

    def host_time(self, u: int, k: int) -> int:
        """Time of a tensor between a device and host memory: stated, or the least to any other."""
        stated = self.tensors[u][1].host_time_ns
        if stated is not None:
            return stated
        return self.least_time(u, [k], [j for j in range(len(self.devices)) if j != k])

    def least_time(self, u: int, here: Iterable[int], there: Iterable[int]) -> int:
        """Least time of a tensor between two sets of devices, over both directions."""
        edge, key_here, key_there = self.tensors[u][1], tuple(here), tuple(there)
        size = edge.bytes if edge.transfer_ns is None and edge.host_time_ns is None else -1 - u
        key = size, key_here, key_there
        if key not in self._least:
            self._least[key] = min(
                (
                    min(self.transfer_time(u, a, b), self.transfer_time(u, b, a))
                    for a in key_here
                    for b in key_there
                ),
                default=0,
            )
        return self._least[key]

    def path(self, a: int, b: int) -> tuple[int, int] | None:
        """Bandwidth and latency from a to b: the link, else the widest path, then the shortest."""
        link = self._cluster_links.find(self.devices[a].name, self.devices[b].name)
        if link is not None:
            return link
        if (a, b) not in self._paths:
            width = self._width(a, b)
            wide = {pair: ns for pair, (bw, ns) in self._links.items() if width and bw >= width}
            self._paths[a, b] = (width, self._distance(a, b, wide)) if width else None
        return self._paths[a, b]

    @cached_property
    def _links(self) -> dict[tuple[int, int], tuple[int, int]]:
        """All links, written out where some pair has none."""
        place = {device.name: k for k, device in enumerate(self.devices)}
        return {
            (place[link.source], place[link.target]): (link.bandwidth_bytes_per_s, link.latency_ns)
            for link in self._cluster_links
        }

    def _width(self, a: int, b: int) -> int:
        """Largest bottleneck bandwidth of a path, 0 where there is none: grow a tree from a."""
        reached: set[int] = set()
        best = {a: max((bw for bw, _ in self._links.values()), default=0)}
        while best.keys() - reached:
            k = max(best.keys() - reached, key=lambda j: (best[j], -j))
            reached.add(k)
            for (source, target), (bandwidth, _) in self._links.items():
                if source == k and target not in reached:
                    best[target] = max(best.get(target, 0), min(best[k], bandwidth))
        return best.get(b, 0)

    @staticmethod
    def _distance(a: int, b: int, length: dict[tuple[int, int], int]) -> int:
        """Least sum of latencies of a path from a to b, which is there: Bellman and Ford."""
        least = {a: 0}
        changed = True
        while changed:
            changed = False
            for (source, target), ns in length.items():
                if source in least and least[source] + ns < least.get(
                    target, least[source] + ns + 1
                ):
                    least[target] = least[source] + ns
                    changed = True
        return least[b]

    def _positions(self) -> list[int]:
        waiting = [0] * len(self.ops)
        for _, b, _ in self.ends:
            waiting[b] += 1
        queue = deque(i for i, count in enumerate(waiting) if not count)
        position = [0] * len(self.ops)
        for place in range(len(self.ops)):
            i = queue.popleft()
            position[i] = place
            for b, _ in self.succ[i]:
                waiting[b] -= 1
                if not waiting[b]:
                    queue.append(b)
        return position


def cycle_free(num_nodes: int, arcs: Iterable[tuple[int, int]]) -> bool:
    """Whether a directed graph has no cycle."""
    after: list[list[int]] = [[] for _ in range(num_nodes)]
    waiting = [0] * num_nodes
    for a, b in arcs:
        after[a].append(b)
        waiting[b] += 1
    ready = [v for v in range(num_nodes) if not waiting[v]]
    heapq.heapify(ready)
    done = 0
    while ready:
        done += 1
        for b in after[heapq.heappop(ready)]:
            waiting[b] -= 1
            if not waiting[b]:
                heapq.heappush(ready, b)
    return done == num_nodes
