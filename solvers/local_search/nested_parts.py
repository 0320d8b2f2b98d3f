"""Parts of an instance that are worth moving as a whole: small ones within larger ones.

The colocation groups are merged along the edges that are most expensive for the work on both of
their sides, again and again (agglomerative clustering, as the heavy edges of Karypis and Kumar
1998); and each group on its way is a part. So an op of the way back that is colocated with nothing
is in a part with the op whose output it reads again. Where ops say which module made them, so are
modules.
"""

from __future__ import annotations

import heapq

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.mean_costs import flow_of

SHARE = 8
"""Of all work: no part has more than one such share, unless a single group does."""

MOST_GROUPS = 200_000
"""With more of them, which take some five seconds, nothing is merged."""

LEAST_WORK = 0.1
"""Of a group, in mean times of all groups, where it has less."""

GROWTH, STALE = 1.2, 2.0
"""How much larger a part is than those in it; and how much less an edge may be worth than when it
was last weighed."""


def alike(instance: Instance, order: Ints, parts: list[tuple[int, ...]]) -> list[list[int]]:
    """Parts, by number, that look the same: equal ops in groups in the same order, twice or more.

    The layers of a network are alike, and so are the parts of them.
    """
    arrays = instance.arrays
    _, kind = np.unique(arrays.time_ns, axis=0, return_inverse=True)
    members: list[list[int]] = [[] for _ in order]
    place, kind = arrays.place_of_ops(order), kind.reshape(-1)
    for i in arrays.index.topological_order.tolist():
        members[place[i]].append(int(kind[i]))
    looks = [tuple(row) for row in members]
    same: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for at, part in enumerate(parts):
        same.setdefault(tuple(looks[p] for p in part), []).append(at)
    return [numbers for numbers in same.values() if len(numbers) > 1]


def nested_parts(instance: Instance, order: Ints) -> list[tuple[int, ...]]:
    """Parts as places in an order of the colocation groups, each part sorted; no part twice.

    Single groups are among them. O(m log^2 m) operations for m edges, for at most 200,000 groups.
    """
    place = instance.arrays.place_of_ops(order)
    merging = _Merging(instance, place)
    if len(order) <= MOST_GROUPS:
        merging.run()
    parts = {*merging.parts, *_modules(instance, place)}
    return sorted(parts, key=lambda part: (part[0], len(part), part))


class _Merging:
    """The graph of the parts that are merged; `cost` is what the edges of each take, in ns.

    The part with more neighbours takes the other one in, and an edge is weighed anew only where it
    is looked at: an op that thousands read is merged with all of them one after the other.
    """

    def __init__(self, instance: Instance, place: Ints) -> None:
        index, flow, groups = instance.arrays.index, flow_of(instance.arrays), int(place.max()) + 1
        self.work = np.bincount(place, flow.node_ns, groups).tolist()
        whole = sum(self.work)
        self.most, self.least = whole / SHARE, max(LEAST_WORK * whole / groups, 1e-3)
        self.members: list[list[int]] = [[p] for p in range(groups)]
        self.parts: list[tuple[int, ...]] = [(p,) for p in range(groups)]
        self.told = [1] * groups  # how many were in it when it was last one of `parts`
        self.cost: list[dict[int, float]] = [{} for _ in range(groups)]
        edge_ns = np.empty(len(index.producer))
        edge_ns[index.succ_edge] = flow.edge_ns
        ends = np.sort(np.stack([place[index.producer], place[index.consumer]]), axis=0)
        for p, q, ns in zip(*ends.tolist(), edge_ns.tolist(), strict=True):
            if p != q:
                self.cost[p][q] = self.cost[q][p] = self.cost[p].get(q, 0.0) + ns

    def run(self) -> None:
        """Merge until no two neighbours have little enough work together."""
        queue = [
            (-self._worth(p, q), p, q)
            for p, beside in enumerate(self.cost)
            for q in beside
            if p < q
        ]
        heapq.heapify(queue)
        while queue:
            before, p, q = heapq.heappop(queue)
            if q not in self.cost[p] or self.work[p] + self.work[q] > self.most:
                continue
            worth = self._worth(p, q)
            if worth < -before / STALE:
                heapq.heappush(queue, (-worth, p, q))
                continue
            if len(self.cost[p]) < len(self.cost[q]):
                p, q = q, p
            for other in self._merge(p, q):
                heapq.heappush(queue, (-self._worth(p, other), p, other))

    def _worth(self, p: int, q: int) -> float:
        each = (self.work[p] + self.least) * (self.work[q] + self.least)
        return float(self.cost[p][q] / each)

    def _merge(self, p: int, q: int) -> list[int]:
        """Let p take q in; with whom q shared edges."""
        self.members[p] += self.members[q]
        self.work[p] += self.work[q]
        self.told[p] = max(self.told[p], self.told[q])
        if len(self.members[p]) >= GROWTH * self.told[p]:
            self.told[p] = len(self.members[p])
            self.parts.append(tuple(sorted(self.members[p])))
        beside, self.cost[q] = self.cost[q], {}
        for other, ns in beside.items():
            del self.cost[other][q]
            if other != p:
                self.cost[p][other] = self.cost[other][p] = self.cost[p].get(other, 0.0) + ns
        return [other for other in beside if other != p]


def _modules(instance: Instance, place: Ints) -> set[tuple[int, ...]]:
    """The groups of each module, with those of the modules in it; none of half of all groups."""
    found, most = dict[str, set[int]](), (int(place.max()) + 1) / 2
    for op, p in zip(instance.graph.ops, place.tolist(), strict=True):
        names = (op.module or "").split(".")
        for depth in range(1, 1 + len(names)):
            found.setdefault(".".join(names[:depth]), set()).add(p)
    found.pop("", None)
    return {tuple(sorted(part)) for part in found.values() if len(part) <= most}
