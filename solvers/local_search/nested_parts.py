"""Parts of an instance that are worth moving as a whole: small ones within larger ones.

Colocation groups are merged again and again along the edges that are most expensive relative to the
work at both ends (agglomerative clustering, as the heavy edges of Karypis and Kumar 1998). Each
group that arises is a part. So a backward op without colocation is in a part with the forward op
whose output it reads. If ops name their modules, each module is a part as well.
"""

from __future__ import annotations

import heapq

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.mean_costs import flow_of

SHARE = 8  # no part has more than 1/8 of all work, unless a single group does
MOST_GROUPS = 200_000  # with more groups nothing is merged; this many take some five seconds
LEAST_WORK = 0.1  # least work that a group counts for, in mean times of all groups
# Factor by which a part is larger than the parts in it; and by which the worth of an edge may fall
# before it is computed again.
GROWTH, STALE = 1.2, 2.0


def alike(instance: Instance, order: Ints, parts: list[tuple[int, ...]]) -> list[list[int]]:
    """Sets of two or more equal parts, by number: equal ops in groups in the same order."""
    # The layers of a network are equal, and so are their parts.
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
    """Parts as places in an order of the colocation groups, each part sorted; no part twice."""
    # Single groups are among them. O(m log^2 m) operations for m edges, for at most 200,000 groups.
    place = instance.arrays.place_of_ops(order)
    merging = _Merging(instance, place)
    if len(order) <= MOST_GROUPS:
        merging.run()
    parts = {*merging.parts, *_modules(instance, place)}
    return sorted(parts, key=lambda part: (part[0], len(part), part))


class _Merging:
    """The graph of the parts during merging; `cost` has the edges between parts, in ns."""

    def __init__(self, instance: Instance, place: Ints) -> None:
        # The part with more neighbours absorbs the other one, and the worth of an edge is computed
        # again only when it comes up: an op with thousands of readers is merged with all of them,
        # one by one.
        index, flow, groups = instance.arrays.index, flow_of(instance.arrays), int(place.max()) + 1
        self.work = np.bincount(place, flow.node_ns, groups).tolist()
        whole = sum(self.work)
        self.most, self.least = whole / SHARE, max(LEAST_WORK * whole / groups, 1e-3)
        self.members: list[list[int]] = [[p] for p in range(groups)]
        self.parts: list[tuple[int, ...]] = [(p,) for p in range(groups)]
        self.listed = [1] * groups  # size of each when it was last added to `parts`
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
            # A stale worth that has fallen too far goes back into the queue; others are near
            # enough.
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
        """Merge q into p; returns the neighbours that p got from q."""
        self.members[p] += self.members[q]
        self.work[p] += self.work[q]
        self.listed[p] = max(self.listed[p], self.listed[q])
        if len(self.members[p]) >= GROWTH * self.listed[p]:
            self.listed[p] = len(self.members[p])
            self.parts.append(tuple(sorted(self.members[p])))
        beside, self.cost[q] = self.cost[q], {}
        for other, ns in beside.items():
            del self.cost[other][q]
            if other != p:
                self.cost[p][other] = self.cost[other][p] = self.cost[p].get(other, 0.0) + ns
        return [other for other in beside if other != p]


def _modules(instance: Instance, place: Ints) -> set[tuple[int, ...]]:
    """The groups of each module and its submodules, unless they are more than half of all."""
    found, most = dict[str, set[int]](), (int(place.max()) + 1) / 2
    for op, p in zip(instance.graph.ops, place.tolist(), strict=True):
        names = (op.module or "").split(".")
        for depth in range(1, 1 + len(names)):
            found.setdefault(".".join(names[:depth]), set()).add(p)
    found.pop("", None)
    return {tuple(sorted(part)) for part in found.values() if len(part) <= most}
