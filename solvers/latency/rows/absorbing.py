"""Ops of a colocation group that are best in the call of a neighbour, whatever the plan.

A group is on one accelerator, not always in one call of it. In some plan of least latency, though,
a set A of its ops is in the call of another set B of its ops (each in one call), if on every
accelerator

- A has no inputs from elsewhere, all its tensors go to B, and its time is at most that of its
  tensors; or
- A has inputs from B only, and its time and its tensors take at most as long as those of B's
  tensors that nobody but A takes.

Move A from its call to that of B on the same accelerator. No new waiting arises: A waits for
nothing, or only for B. No call gets longer: B's saves what passes between the two, and A's, too. So
everything ends as early as before, and memory is the same. Weights and constants are of the first
kind; copies, and outputs that nobody takes, of the second.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED


def absorbed(instance: Instance) -> Ints:
    """For each op, the op in whose call it is, (n,): itself, or one of its group; O(rounds m K).

    Examples
    --------
    A constant w feeds an op b of its group, which feeds c of another one:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Op
    >>> ops = [Op(name=x, time_ns={"gpu": 0}, colocation="g") for x in "wb"]
    >>> ops.append(Op(name="c", time_ns={"gpu": 0}))
    >>> edges = tuple(Edge(producer=x, consumer=y, host_time_ns=1) for x, y in ("wb", "bc"))
    >>> graph = Graph(name="constant", ops=tuple(ops), edges=edges)
    >>> cluster = Cluster(name="one", devices=(Device(name="d", kind="gpu"),))
    >>> absorbed(Instance(name="constant", graph=graph, cluster=cluster)).tolist()
    [1, 1, 2]
    """
    search = _Search(instance)
    count = np.bincount(instance.arrays.group)
    shared = count[instance.arrays.group] > 1
    order = [i for i in instance.arrays.index.topological_order.tolist() if shared[i]]
    changed = True
    while changed:
        changed = False
        for i in [*order, *reversed(order)]:
            if search.head[i] == i:
                b = search.neighbour(i)
                if b >= 0:
                    search.merge(i, b)
                    changed = True
    return search.head


class _Search:
    """Sets of ops, each with a head; what is known of a set is found from its ops."""

    def __init__(self, instance: Instance) -> None:
        arrays = instance.arrays
        self.index, self.group = arrays.index, arrays.group
        accelerators = np.flatnonzero(~arrays.is_host)
        times = arrays.time_ns[:, accelerators]
        self.time_ns = np.where(times == UNSUPPORTED, 0, times)
        self.move_ns = arrays.host_ns[:, accelerators]
        self.head = np.arange(instance.num_ops)
        self.ops: dict[int, list[int]] = {i: [i] for i in range(instance.num_ops)}
        self.tensors: list[list[int]] = [[] for _ in range(instance.num_ops)]
        for u, i in enumerate(self.index.tensor_producer.tolist()):
            self.tensors[i].append(u)

    def merge(self, a: int, b: int) -> None:
        """Set a joins set b."""
        self.ops[b] += self.ops.pop(a)
        self.head[self.ops[b]] = b

    def neighbour(self, a: int) -> int:
        """The set of the group that set a may join, or -1."""
        inputs, outputs = self.inputs(a), self.outputs(a)
        time = self.time_ns[self.ops[a]].sum(axis=0)
        moves = self.move_ns[list(outputs)].sum(axis=0)
        into = {h for ends in outputs.values() for h in ends}
        if not inputs and len(into) == 1 and (time <= moves).all():
            (b,) = into
        elif len({self.head[self.index.tensor_producer[u]] for u in inputs}) == 1:
            b = int(self.head[self.index.tensor_producer[inputs[0]]])
            own = [u for u in inputs if self.ends(u) == {a}]
            if not (time + moves <= self.move_ns[own].sum(axis=0)).all():
                return -1
        else:
            return -1
        return b if self.group[a] == self.group[b] else -1

    def ends(self, u: int) -> set[int]:
        """Sets that take tensor u, but for the one that makes it."""
        index = self.index
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        made = int(self.head[index.tensor_producer[u]])
        return {*self.head[index.consumer[edges]].tolist()} - {made}

    def inputs(self, a: int) -> list[int]:
        """Tensors into a set."""
        index, found = self.index, dict[int, None]()
        for i in self.ops[a]:
            for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
                if self.head[index.producer[e]] != a:
                    found[int(index.tensor[e])] = None
        return list(found)

    def outputs(self, a: int) -> dict[int, set[int]]:
        """Tensors out of a set, each with the sets that take it."""
        found = {u: self.ends(u) for i in self.ops[a] for u in self.tensors[i]}
        return {u: ends for u, ends in found.items() if ends}
