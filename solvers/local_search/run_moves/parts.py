"""Parts of an instance that are worth moving as a whole: small ones within larger ones.

The colocation groups are merged along the edges that are dearest for the work on both of their
sides, again and again (agglomerative clustering, as the heavy edges of Karypis and Kumar 1998); and
each group on its way is a part. So an op of the way back that is colocated with nothing is in a
part with the op whose output it reads again. Where ops say which module made them, so are modules.
"""

from __future__ import annotations

import heapq

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.structure.mean_costs import flow_of

SHARE = 8
"""Of all work: no part has more than one such share, unless a single group does."""

LEAST_WORK = 0.1
"""Of a group, in mean times of all groups, where it has less."""


def alike(instance: Instance, order: Ints, parts: list[tuple[int, ...]]) -> list[list[int]]:
    """Parts, by number, that look the same: equal ops in groups in the same order, twice or more.

    The layers of a network are alike, and so are the parts of them.

    Examples
    --------
    All ops of the diamond differ:

    >>> from placegap.instances import example
    >>> alike(example(), np.arange(4), nested_parts(example(), np.arange(4)))
    []
    """
    arrays = instance.arrays
    _, kind = np.unique(arrays.time_ns, axis=0, return_inverse=True)
    members: list[list[int]] = [[] for _ in order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for i in arrays.index.topological_order.tolist():
        members[place[arrays.group[i]]].append(int(kind.reshape(-1)[i]))
    looks = [tuple(row) for row in members]
    same: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for at, part in enumerate(parts):
        same.setdefault(tuple(looks[p] for p in part), []).append(at)
    return [numbers for numbers in same.values() if len(numbers) > 1]


def nested_parts(instance: Instance, order: Ints) -> list[tuple[int, ...]]:
    """Parts as places in an order of the colocation groups, each part sorted; no part twice.

    Single groups are the first parts to be merged, and are among them. O(m log m) operations for m
    edges, if no part has many neighbours.

    Examples
    --------
    The dearest edge of the diamond, of 20 ns, joins op 0 and op 2, which is all that an eighth
    allows in an instance of 43 ns of work:

    >>> from placegap.instances import example
    >>> nested_parts(example(), np.arange(4))
    [(0,), (1,), (2,), (3,)]
    """
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    merging = _Merging(instance, place)
    merging.run()
    parts = {*merging.parts, *_modules(instance, place)}
    return sorted(parts, key=lambda part: (part[0], len(part), part))


class _Merging:
    """The graph of the parts that are merged; `cost` is what the edges of each take, in ns."""

    def __init__(self, instance: Instance, place: Ints) -> None:
        arrays, index, flow = instance.arrays, instance.arrays.index, flow_of(instance.arrays)
        at, groups = place[arrays.group], len(place)
        self.work = np.bincount(at, flow.node_ns, groups).tolist()
        whole = sum(self.work)
        self.most, self.least = whole / SHARE, LEAST_WORK * whole / groups
        self.members: list[tuple[int, ...]] = [(p,) for p in range(groups)]
        self.parts = list(self.members)
        self.cost: list[dict[int, float]] = [{} for _ in range(groups)]
        self.queue: list[tuple[float, int, int]] = []
        edge_ns = np.empty(len(index.producer))
        edge_ns[index.succ_edge] = flow.edge_ns
        ends = np.sort(np.stack([at[index.producer], at[index.consumer]]), axis=0)
        for p, q, ns in zip(*ends.tolist(), edge_ns.tolist(), strict=True):
            if p != q:
                self.cost[p][q] = self.cost[q][p] = self.cost[p].get(q, 0.0) + ns

    def run(self) -> None:
        """Merge until no two neighbours have little enough work together."""
        for p, beside in enumerate(self.cost):
            for q in beside:
                if p < q:
                    self._offer(p, q)
        while self.queue:
            _, p, q = heapq.heappop(self.queue)
            if self.members[p] and self.members[q]:
                self._merge(p, q)

    def _offer(self, p: int, q: int) -> None:
        one, two = self.work[p], self.work[q]
        if one + two <= self.most:
            each = (one + self.least) * (two + self.least)
            heapq.heappush(self.queue, (-self.cost[p][q] / max(each, 1e-9), p, q))

    def _merge(self, p: int, q: int) -> None:
        new = len(self.members)
        self.members.append(tuple(sorted(self.members[p] + self.members[q])))
        self.parts.append(self.members[new])
        self.work.append(self.work[p] + self.work[q])
        beside: dict[int, float] = {}
        for old in (p, q):
            for other, ns in self.cost[old].items():
                if other not in (p, q):
                    beside[other] = beside.get(other, 0.0) + ns
                    del self.cost[other][old]
            self.members[old], self.cost[old] = (), {}
        self.cost.append(beside)
        for other, ns in beside.items():
            self.cost[other][new] = ns
            self._offer(other, new)


def _modules(instance: Instance, place: Ints) -> set[tuple[int, ...]]:
    """The groups of each module, with those of the modules in it; none of half of all groups."""
    at, found = place[instance.arrays.group].tolist(), dict[str, set[int]]()
    for op, p in zip(instance.graph.ops, at, strict=True):
        names = (op.module or "").split(".")
        for depth in range(1, 1 + len(names)):
            found.setdefault(".".join(names[:depth]), set()).add(p)
    found.pop("", None)
    return {tuple(sorted(part)) for part in found.values() if 2 * len(part) <= len(place)}
