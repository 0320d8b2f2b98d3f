"""Blocks: ops that every chain plan keeps together, and the forward arcs between them.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020),
section 5.1: colour classes, artificial forward nodes of backward classes, strongly connected
components. Chain plans of the ops and chains of ideals of the blocks are the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.blocks import IdleRule, join_idle, roomy_devices
from placegap.instances.problem.graph_index import freeze, group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED


@dataclass(frozen=True, eq=False)
class Blocks:
    """An instance with n ops and K devices contracted to b blocks, numbered topologically.

    Attributes
    ----------
    block : (n,) int64
        Block of each op.
    time_ns : (b, K) int64
        Sum over the ops, `UNSUPPORTED` where one of them cannot run.
    resident_bytes : (b,) int64
    arc_tail, arc_head : (a,) int64
        Arcs between different blocks, each once, sorted; a chain of ideals never goes against one.
    held : (n,) bool
        Ops whose bytes count; those of the others are left out (`idle_blocks`).
    roomy : (K,) bool
        Devices whose memory cannot end (`idle_blocks`).
    exact : bool
        Whether the best chain of ideals of the blocks is as good as the best of the ops.
    """

    block: Ints
    time_ns: Ints
    resident_bytes: Ints
    arc_tail: Ints
    arc_head: Ints
    held: Flags
    roomy: Flags
    exact: bool

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.resident_bytes)


def contract(
    instance: Instance,
    *,
    merge_idle: bool = True,
    one_pass: bool = False,
    rule: IdleRule | None = None,
) -> Blocks:
    """Contract an instance to the blocks of its chain plans.

    1. A colour class (colocation group) is one block. Arcs are the edges between forward ops; a
       class without a forward op has instead the reversed edges between backward ops at it.
    2. Blocks that reach each other in both directions become one.
    3. With `merge_idle`, blocks that take no time join their only neighbour (`idle_blocks`): the
       optimum of max_load stays the same, the number of ideals falls.

    O(n K + m) but for sorting.

    Parameters
    ----------
    instance : Instance
    merge_idle : bool
        Without it the blocks describe *all* chain plans, not only enough for an optimal one.
    one_pass : bool
        Whether backward ops count as forward ones, as in latency_subgraphs: all edges are arcs.
    rule : IdleRule, optional
        Which blocks may join; by default those for which that is exact without replicas.

    Examples
    --------
    >>> from placegap.instances import example
    >>> blocks = contract(example())
    >>> blocks.block.tolist(), blocks.arc_tail.tolist(), blocks.arc_head.tolist()
    ([0, 1, 2, 3], [0, 0, 1, 2], [1, 2, 3, 3])
    """
    arrays = instance.arrays
    tail, head = _class_arcs(instance, one_pass)
    block = _components(tail, head, arrays.num_groups)[arrays.group]
    rule = rule or IdleRule()
    held, exact = np.ones(instance.num_ops, np.bool_), True
    time_ns, resident_bytes = block_sums(instance, block, held)
    roomy = roomy_devices(instance, time_ns, resident_bytes)
    if rule.roomy is not None:
        roomy |= rule.roomy
    if merge_idle:
        rule = replace(rule, roomy=roomy)
        block, held, exact = join_idle(instance, block, (time_ns, resident_bytes), rule)
    # arcs of classes lead to arcs of blocks by any member of the class
    member = np.zeros(arrays.num_groups, np.int64)
    member[arrays.group] = np.arange(instance.num_ops)
    num_blocks = int(block.max()) + 1
    tail, head = _distinct(block[member[tail]], block[member[head]], num_blocks)
    rank = np.empty(num_blocks, np.int64)
    rank[_depth_first_order(tail, head, num_blocks)] = np.arange(num_blocks)
    block = rank[block]
    tail, head = _distinct(rank[tail], rank[head], num_blocks)
    blocks = Blocks(block, *block_sums(instance, block, held), tail, head, held, roomy, exact)
    freeze(blocks)
    return blocks


def _class_arcs(instance: Instance, one_pass: bool) -> tuple[Ints, Ints]:
    """Forward arcs between colour classes, mirrored ones included."""
    arrays = instance.arrays
    index, group = arrays.index, arrays.group
    backward = np.zeros_like(arrays.backward) if one_pass else arrays.backward
    orphan = np.ones(arrays.num_groups, np.bool_)
    orphan[group[~backward]] = False
    a, b = index.producer, index.consumer
    forward = ~backward[a] & ~backward[b]
    mirrored = backward[a] & backward[b] & (orphan[group[a]] | orphan[group[b]])
    tail = np.concatenate([group[a[forward]], group[b[mirrored]]])
    head = np.concatenate([group[b[forward]], group[a[mirrored]]])
    return _distinct(tail, head, arrays.num_groups)


def _distinct(tail: Ints, head: Ints, num_nodes: int) -> tuple[Ints, Ints]:
    """Arcs between different nodes, each once, sorted."""
    pairs = np.unique((tail * num_nodes + head)[tail != head])
    ends = np.divmod(pairs, num_nodes)
    return ends[0], ends[1]


def _components(tail: Ints, head: Ints, num_nodes: int) -> Ints:
    """Strongly connected component of each node."""
    if len(_depth_first_order(tail, head, num_nodes)) == num_nodes:
        return np.arange(num_nodes)  # no cycle, as nearly always
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(zip(tail.tolist(), head.tolist(), strict=True))
    component = np.empty(num_nodes, np.int64)
    for number, members in enumerate(nx.strongly_connected_components(graph)):
        component[list(members)] = number
    return component


def _depth_first_order(tail: Ints, head: Ints, num_nodes: int) -> Ints:
    """A topological order that follows one branch as long as it can (last ready, first out).

    Nodes on a cycle or behind one are left out.
    """
    pointer, arc = group_by(tail, num_nodes)
    starts, target = pointer.tolist(), head[arc].tolist()
    waiting = np.bincount(head, minlength=num_nodes).tolist()
    ready = [v for v in reversed(range(num_nodes)) if waiting[v] == 0]
    order = []
    while ready:
        v = ready.pop()
        order.append(v)
        for w in reversed(target[starts[v] : starts[v + 1]]):
            waiting[w] -= 1
            if waiting[w] == 0:
                ready.append(w)
    return np.array(order, np.int64)


def block_sums(instance: Instance, block: Ints, held: Flags) -> tuple[Ints, Ints]:
    """Time (b, K) and resident bytes (b,) of blocks, the latter of ops that are `held`."""
    arrays, b = instance.arrays, int(block.max()) + 1
    time_ns = np.zeros((b, instance.num_devices), np.int64)
    np.add.at(time_ns, block, np.maximum(arrays.time_ns, 0))
    refused = np.zeros((b, instance.num_devices), np.bool_)
    np.logical_or.at(refused, block, arrays.time_ns == UNSUPPORTED)
    time_ns[refused] = UNSUPPORTED
    resident_bytes = np.zeros(b, np.int64)
    np.add.at(resident_bytes, block, np.where(held, arrays.resident_bytes, 0))
    return time_ns, resident_bytes
