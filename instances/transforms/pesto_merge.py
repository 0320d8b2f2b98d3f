"""Coarsening by merging ops, so that a model of the merged graph is small enough to solve.

After Hafeez et al., "Towards Optimal Placement and Scheduling of DNN Operations with Pesto"
(Middleware 2021): merge ops that an edge joins, if that makes no cycle, until few are left. A plan
of the merged instance is a plan of the instance; not the other way round, so that a bound for the
merged instance is none for the instance.

Edges are contracted one by one, the most expensive first. An edge may be contracted if and only if
no second path joins its ends (Celeritas, theorem 1). To avoid a search of the whole graph, a
topological order is kept up to date as Pearce and Kelly do ("A dynamic topological sort algorithm
for directed acyclic graphs", 2006): both the search and the repair look at ranks between those of
the two ends only.
"""

from __future__ import annotations

import heapq
from typing import Literal

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.mean_costs import pairs_in_class
from placegap.instances.transforms.colocation import Together
from placegap.instances.transforms.merge import Merge, merge_groups

# Which edge is contracted first: by what its tensors take between devices.
MergeOrder = Literal["dearest_first", "cheapest_first"]
# A node's neighbours, and the tensors between the two, in the order in which they were met.
Neighbours = dict[int, dict[int, None]]


class Contraction:
    """A graph that shrinks; nodes are numbered by the topological position of their first op."""

    def __init__(self, instance: Instance, order: MergeOrder) -> None:
        arrays, index = instance.arrays, instance.arrays.index
        n, position = instance.num_ops, index.topological_position
        at = index.topological_order
        #: The node that took a node in, or itself.
        #: Positions of the nodes in a topological order of the graph as it is.
        self.num_nodes, self.home, self.rank = n, list(range(n)), list(range(n))
        #: succs, preds: Per node, its neighbours and the tensors on the way there.
        self.succs: list[Neighbours] = [{} for _ in range(n)]
        self.preds: list[Neighbours] = [{} for _ in range(n)]
        ends = zip(
            position[index.producer].tolist(), position[index.consumer].tolist(), strict=True
        )
        for (u, v), tensor in zip(ends, index.tensor.tolist(), strict=True):
            tensors = self.succs[u].setdefault(v, {})
            self.preds[v][u] = tensors
            tensors[tensor] = None
        # in Python integers: the sum over device pairs may be large
        pairs = pairs_in_class(arrays).astype(object)
        self.cost = (arrays.transfer_ns.astype(object) @ pairs).tolist()
        self.sign = -1 if order == "dearest_first" else 1
        self.backward = arrays.backward[at].tolist()
        self.queue: list[tuple[int, int, int]] = []
        self.queued: dict[tuple[int, int], int] = {}
        self.group = arrays.group[at].tolist()
        self.classes = Together(instance)

    def run(self, num_ops: int) -> None:
        """Merge until few enough nodes are left, or no two can be merged."""
        for u, onward in enumerate(self.succs):
            for v in onward:
                self._push(u, v)
        while self.num_nodes > num_ops and self.queue:
            key, u, v = heapq.heappop(self.queue)
            if self.queued.get((u, v)) != key:
                continue  # merged since, or at another price
            del self.queued[u, v]
            if self.may_merge(u, v) and self._reorder(u, v):
                self.merge(u, v)

    def may_merge(self, u: int, v: int) -> bool:
        """Whether one device can run and hold all that must be with two nodes."""
        return self.classes.may_join(self.group[u], self.group[v])

    def parts(self, instance: Instance) -> Ints:
        """The first op of each op's node, (n,)."""
        for v in range(len(self.home)):
            self.home[v] = self.home[self.home[v]]  # nodes join nodes of lesser number
        leader, index = np.array(self.home, np.int64), instance.arrays.index
        first: Ints = index.topological_order[leader[index.topological_position]]
        return first

    def _push(self, u: int, v: int) -> None:
        key = self.sign * sum(self.cost[tensor] for tensor in self.succs[u][v])
        if self.backward[u] == self.backward[v] and self.queued.get((u, v)) != key:
            self.queued[u, v] = key
            heapq.heappush(self.queue, (key, u, v))

    def _reorder(self, u: int, v: int) -> bool:
        """Give u and v one rank in a topological order of the graph with both merged."""
        # False if a second path leads from u to v, for there is no such order then.
        after = self._between(u, v, self.succs, 1)
        if after is None:
            return False
        before = self._between(v, u, self.preds, -1) if after else []
        assert before is not None
        # into the ranks of all of these, first what must come before, last what must come after
        before.sort(key=self.rank.__getitem__)
        after.sort(key=self.rank.__getitem__)
        ranks = sorted(self.rank[w] for w in (*before, *after, u, v))
        for w, rank in zip(before, ranks, strict=False):
            self.rank[w] = rank
        for w, rank in zip(reversed(after), reversed(ranks), strict=False):
            self.rank[w] = rank
        self.rank[u] = self.rank[v] = ranks[-1 - len(after)]
        return True

    def _between(self, u: int, v: int, onward: list[Neighbours], sign: int) -> list[int] | None:
        """Nodes that paths from u lead to, up to the rank of v; None if one leads to v."""
        # The edge from u to v itself does not count. Forwards, or backwards with sign -1.
        rank, limit = self.rank, sign * self.rank[v]
        found = [w for w in onward[u] if sign * rank[w] < limit]
        seen = set(found)
        for w in found:  # grows while it is read
            if v in onward[w]:
                return None
            for further in onward[w]:
                if sign * rank[further] < limit and further not in seen:
                    seen.add(further)
                    found.append(further)
        return found

    def merge(self, u: int, v: int) -> None:
        """Let the node of greater number join the other; look at the edges there again."""
        self.classes.join(self.group[u], self.group[v])
        del self.succs[u][v], self.preds[v][u]
        keep, gone = min(u, v), max(u, v)
        self.home[gone] = keep
        self.num_nodes -= 1
        for onward, back in ((self.succs, self.preds), (self.preds, self.succs)):
            for w, tensors in onward[gone].items():
                del back[w][gone]
                self.queued.pop((gone, w) if onward is self.succs else (w, gone), None)
                known = onward[keep].setdefault(w, tensors)
                known.update(tensors)
                back[w][keep] = known
            onward[gone] = {}
        for w in self.succs[keep]:
            self._push(keep, w)
        for w in self.preds[keep]:
            self._push(w, keep)


def merge_ops(instance: Instance, num_ops: int, order: MergeOrder = "dearest_first") -> Merge:
    """Merge the ops of an instance, two by two along edges, until `num_ops` are left.

    The next pair is the most expensive (or cheapest) one to separate: the sum, over the tensors
    between the two and over all ordered pairs of devices, of the transfer times; ties go to the
    first in topological order. What is known of Pesto's rule, "cheapest to separate first", can be
    read either way. The most expensive first is the default: a transfer between merged ops is saved
    for good, so that the largest should be. Pairs are passed over

    - that a second path joins: merged, they would be on a cycle;
    - of a forward and a backward op;
    - whose ops, together with their colocation groups, no single device could run and hold.

    More than `num_ops` are left where no pair can be merged any more. Merged ops are named after
    their first op, and in the order of these.

    A topological order of the merged graph is kept up to date (Pearce and Kelly 2006), so that a
    cycle is looked for, and repaired, among the ops between the two only. Every merge looks at the
    edges at the merged op again: O((n d + m) log m) beside these searches, for d edges at an op.
    """
    if num_ops < 1:
        raise ValueError(f"cannot merge to {num_ops} ops")
    contraction = Contraction(instance, order)
    contraction.run(num_ops)
    return merge_groups(instance, contraction.parts(instance), "merged", "Pesto")
