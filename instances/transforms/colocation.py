"""Colour classes become ops: what every plan, or every chain plan, keeps on one device.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020),
section 5.1. `blocks` has the same for the algorithms, as arrays; here it is an instance.

Co-placement: an op and its only consumer become one op, as Baechi's grouper does.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.graph_index import DisjointSets, all_by, first_of
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.transforms.merge import Merge, merge_groups


def contract_classes(instance: Instance, *, fuse_cycles: bool = True) -> Merge:
    """Merge the forward ops of each colour class (colocation group), and its backward ops.

    With `fuse_cycles`, classes that reach each other in both directions along forward arcs (the
    arcs of `blocks`, mirrored ones included) are contracted together: every chain plan has them on
    one device.

    A class keeps one op per pass, colocated with each other, so that loads per pass stay what they
    are. Two exceptions keep ops apart, and colocated only:

    - Passes may feed each other in cycles that the classes' forward arcs do not have (the reference
      never looks at cycles of the backward graph). What lies on such a cycle keeps its ops.
    - A class without a forward op has mirrored arcs (an orphan). Contracted together with another
      class it would lose them, so that it stays an op of its own, and cycles through it stay.
    - Classes that feed each other, but that no device kind runs together, stay ops of their own: as
      one they could not be stated. There is no chain plan then, before or after.

    Exact for max_load and max_load_fwd_bwd, where nothing else distinguishes equal devices
    (`replicas` off): loads are sums over the ops of a device, and what a tensor costs depends on
    the devices of its producer and consumers only. The plans correspond one to one

    - for plans of any kind without `fuse_cycles`: colocated ops share a device in every plan;
    - for chains, with or without it: a cycle of devices has the same arcs between devices before
      and after, since arcs within an op or a class join no two devices.

    For convex plans it is a restriction: a path may enter a merged op at one op and leave it from
    another, where the ops have no such path. So it is for the makespan, as a merged op waits for
    all its inputs. O(n K + m) but for sorting.
    """
    arrays = instance.arrays
    whole = arrays.group.copy()
    if fuse_cycles:
        whole = _fused(instance)
    unit = first_of(2 * whole + arrays.backward)
    return merge_groups(instance, _without_cycles(instance, unit), "contracted", "Tarnawski et al.")


def _fused(instance: Instance) -> Ints:
    """Number of each op's block, or of its class where classes of the block have to stay apart."""
    arrays = instance.arrays
    block = contract(instance, merge_idle=False).block
    has_forward = np.zeros(arrays.num_groups, np.bool_)
    has_forward[arrays.group[~arrays.backward]] = True
    apart = np.zeros(int(block.max()) + 1, np.bool_)
    apart[block[~has_forward[arrays.group]]] = True
    apart |= ~all_by(block, arrays.time_ns != UNSUPPORTED, len(apart)).any(axis=1)
    return np.where(apart[block], len(apart) + arrays.group, block)


def _without_cycles(instance: Instance, unit: Ints) -> Ints:
    """Take apart the units that lie on a cycle of units. Units go by their first ops."""
    import networkx as nx  # takes a tenth of a second to load

    index = instance.arrays.index
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from(
        zip(unit[index.producer].tolist(), unit[index.consumer].tolist(), strict=True)
    )
    apart = np.zeros(len(unit), np.bool_)
    for members in nx.strongly_connected_components(graph):
        if len(members) > 1:
            apart[list(members)] = True
    # a cycle of what is left would lie within one component, where only single ops are left
    return np.where(apart[unit], np.arange(len(unit)), unit)


class Together(DisjointSets):
    """Classes of colocation groups, with the devices that run all of a class and its bytes."""

    def __init__(self, instance: Instance) -> None:
        arrays = instance.arrays
        super().__init__(arrays.num_groups)
        runs = arrays.group_runs.tolist()
        # as bits of Python integers
        self.devices = [sum(1 << k for k, can in enumerate(row) if can) for row in runs]
        self.size: list[int] = arrays.group_bytes.tolist()
        self.memory: list[int] = arrays.memory_bytes.tolist()

    def may_join(self, a: int, b: int) -> bool:
        """Whether one device can run and hold all that must be with the groups a and b."""
        one, two = self.find(a), self.find(b)
        if one == two:
            return True
        devices = self.devices[one] & self.devices[two]
        size = self.size[one] + self.size[two]
        return any(devices >> k & 1 and size <= limit for k, limit in enumerate(self.memory))

    def join(self, a: int, b: int) -> None:
        """Make one class of those of the groups a and b; it is numbered as a's."""
        one, two = self.find(a), self.find(b)
        if one != two:
            super().join(one, two)
            self.size[one] += self.size[two]
            self.devices[one] &= self.devices[two]


def co_place(instance: Instance, *, fixed_point: bool = True) -> Merge:
    """Merge every op with its only consumer, and what is merged with its only consumer again."""
    # Jeon et al., "Baechi: fast device placement of machine learning graphs" (SoCC 2020): the
    # co-placement heuristic, to a fixed point. Ops are met against the topological order: whether
    # an op's consumers are one merged op depends on later ops only, so that one pass reaches the
    # fixed point. All consumers of every op of a merged one but its last are within, so that no
    # path leaves a merged op and comes back to it, and no cycle arises. Added: a pair is passed
    # over if the two are of different passes, or if no device runs and holds all that must be with
    # them. A graph with one sink becomes one op where memory allows: this is made for training
    # graphs, whose activations have a second consumer in the backward pass. Without `fixed_point`
    # an op joins its consumer only if it has a single one to begin with, so that what is merged are
    # trees. Merged ops are in the order of their last ops. O((V + E) K).
    arrays = instance.arrays
    index, backward, group = arrays.index, arrays.backward.tolist(), arrays.group.tolist()
    target, ptr = index.consumer[index.succ_edge].tolist(), index.succ_ptr.tolist()
    together = Together(instance)
    last = list(range(instance.num_ops))  # of the merged op that each op belongs to
    for i in index.topological_order[::-1].tolist():
        consumers = target[ptr[i] : ptr[i + 1]]
        ends = {last[j] for j in consumers}
        if len(ends) != 1 or (not fixed_point and len(set(consumers)) > 1):
            continue
        (end,) = ends
        if backward[i] == backward[end] and together.may_join(group[i], group[end]):
            together.join(group[i], group[end])
            last[i] = end
    return merge_groups(instance, last, "merged", "Baechi's co-placement")
