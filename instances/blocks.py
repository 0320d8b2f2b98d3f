"""Blocks: ops that every chain plan keeps together, and the forward arcs between them.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020),
section 5.1: colour classes, artificial forward nodes of backward classes, strongly connected
components. Chain plans of the ops and chains of ideals of the blocks are the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.index import Ints, freeze, group_by
from placegap.instances.model import Instance


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
    """

    block: Ints
    time_ns: Ints
    resident_bytes: Ints
    arc_tail: Ints
    arc_head: Ints

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.resident_bytes)


def contract(instance: Instance, *, merge_idle: bool = True, one_pass: bool = False) -> Blocks:
    """Contract an instance to the blocks of its chain plans.

    1. A colour class (colocation group) is one block. Arcs are the edges between forward ops; a
       class without a forward op has instead the reversed edges between backward ops at it.
    2. Blocks that reach each other in both directions become one.
    3. With `merge_idle`, blocks that cost nothing join their only neighbour (`_merge_idle`): the
       optimum of max_load stays the same, the number of ideals falls.

    O(n K + m) but for sorting.

    Parameters
    ----------
    instance : Instance
    merge_idle : bool
        Without it the blocks describe *all* chain plans, not only enough for an optimal one.
    one_pass : bool
        Whether backward ops count as forward ones, as in latency_subgraphs: all edges are arcs.

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
    if merge_idle:
        block = _merge_idle(instance, block)
    # arcs of classes lead to arcs of blocks by any member of the class
    member = np.zeros(arrays.num_groups, np.int64)
    member[arrays.group] = np.arange(instance.num_ops)
    num_blocks = int(block.max()) + 1
    tail, head = _distinct(block[member[tail]], block[member[head]], num_blocks)
    rank = np.empty(num_blocks, np.int64)
    rank[_depth_first_order(tail, head, num_blocks)] = np.arange(num_blocks)
    block = rank[block]
    tail, head = _distinct(rank[tail], rank[head], num_blocks)
    blocks = Blocks(block, *_sums(instance, block), tail, head)
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


def _sums(instance: Instance, block: Ints) -> tuple[Ints, Ints]:
    """Time (b, K) and resident bytes (b,) of blocks."""
    arrays, b = instance.arrays, int(block.max()) + 1
    time_ns = np.zeros((b, instance.num_devices), np.int64)
    np.add.at(time_ns, block, np.maximum(arrays.time_ns, 0))
    refused = np.zeros((b, instance.num_devices), np.bool_)
    np.logical_or.at(refused, block, arrays.time_ns == UNSUPPORTED)
    time_ns[refused] = UNSUPPORTED
    resident_bytes = np.zeros(b, np.int64)
    np.add.at(resident_bytes, block, arrays.resident_bytes)
    return time_ns, resident_bytes


def _merge_idle(instance: Instance, block: Ints) -> Ints:
    """Let blocks that cost nothing join their only neighbour; blocks are numbered anew.

    Block v may join block u if it holds no bytes, takes no time on any device that can run u, and
    all its edges, of whichever kind, lead to u or it has none. Moving v to u's device then changes
    no compute and no memory, removes v from nets without adding a pin, and closes no cycle of
    devices: the optimum stays. It needs no order: the joined block costs what u does.
    """
    time_ns, resident_bytes = _sums(instance, block)
    supported, free = time_ns != UNSUPPORTED, time_ns == 0
    neighbours = _neighbours(instance, block, len(time_ns))
    home = np.arange(len(time_ns))
    work = [v for v in reversed(range(len(time_ns))) if resident_bytes[v] == 0]
    while work:
        v = work.pop()
        if home[v] != v or len(neighbours[v]) != 1:
            continue
        (u,) = neighbours[v]
        if not (supported[u] & ~free[v]).any():
            home[v] = u
            neighbours[u].discard(v)
            neighbours[v].clear()
            if resident_bytes[u] == 0:
                work.append(u)
    alone = [
        v
        for v in range(len(time_ns))
        if home[v] == v and not neighbours[v] and resident_bytes[v] == 0 and free[v].any()
    ]
    _join_any(alone, home, supported, free)
    while (home[home] != home).any():
        home = home[home]
    return np.unique(home[block], return_inverse=True)[1].astype(np.int64)


def _neighbours(instance: Instance, block: Ints, num_blocks: int) -> list[set[int]]:
    index = instance.arrays.index
    tail, head = _distinct(block[index.producer], block[index.consumer], num_blocks)
    neighbours: list[set[int]] = [set() for _ in range(num_blocks)]
    for a, b in zip(tail.tolist(), head.tolist(), strict=True):
        neighbours[a].add(b)
        neighbours[b].add(a)
    return neighbours


def _join_any(
    alone: list[int], home: Ints, supported: NDArray[np.bool_], free: NDArray[np.bool_]
) -> None:
    """Let blocks without bytes and edges join any block where they take no time."""
    hosts = home == np.arange(len(home))
    hosts[alone] = False
    known: dict[bytes, int] = {}
    for v in alone:
        key = free[v].tobytes()
        if key not in known:
            fitting = np.flatnonzero(hosts & ~(supported & ~free[v]).any(axis=1))
            known[key] = int(fitting[0]) if len(fitting) else -1
        if known[key] >= 0:
            home[v] = known[key]
        elif (supported[v] == free[v]).all():
            known[key] = v  # the first of its like takes in the others
