"""Graphs with one cost per node and per edge: levels, critical paths, depth-first orders.

What the clustering placers and Celeritas' fusion work on, with the costs of `mean_costs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push
from placegap.instances.problem.graph_index import group_by, inverse
from placegap.instances.problem.mean_costs import Flow


def critical_paths(flow: Flow) -> Ints:
    """Cpath of each node: the longest path through it, levels (2) + (3); O(V + E)."""
    ptr, source, edge_ns = predecessors(flow)
    top = longest_ways(flow.order, ptr, source, edge_ns, flow.node_ns)
    paths: Ints = top - flow.node_ns + bottom_levels(flow)
    return paths


def bottom_levels(flow: Flow) -> Ints:
    """The longest path from each node on; O(V + E)."""
    return longest_ways(flow.order[::-1], flow.ptr, flow.succ, flow.edge_ns, flow.node_ns)


def longest_ways(
    order: Ints, ptr: Ints, other: Ints, edge_cost: NDArray[Any], node_cost: NDArray[Any]
) -> NDArray[Any]:
    """The longest path from each node on, costs of nodes and edges included; O(V + E)."""
    # `order` has each node after those that its edges lead to; edges of node i lead to
    # ``other[ptr[i]:ptr[i + 1]]``.
    same = (np.array(part) for part in (order, ptr, other, edge_cost, node_cost))
    way: NDArray[Any] = _longest_ways(*same)  # of copies, so that it is compiled once
    return way


@kernel(bounded=True)
def _longest_ways(order: Ints, ptr: Ints, other: Ints, edge_cost: Any, node_cost: Any) -> Any:
    way = np.zeros_like(node_cost)
    for node in order:
        for e in range(ptr[node], ptr[node + 1]):
            way[node] = max(way[node], edge_cost[e] + way[other[e]])
        way[node] += node_cost[node]
    return way


def cpd_topo(flow: Flow) -> Ints:
    """CPD-TOPO: depth first, of the nodes that became ready last the one of longest cpath next."""
    # Celeritas, Algorithm 1. Ties: the flow's order. O((V + E) log d) for d children of a node.
    return _depth_first(flow, np.lexsort((inverse(flow.order), -critical_paths(flow))))


def dfs_topo(flow: Flow) -> Ints:
    """DFS-TOPO: depth first, of the nodes that became ready last the first of the flow's order."""
    # Celeritas, section 4.2.2, which leaves the order of several ready children open. O(V + E).
    return _depth_first(flow, flow.order)


@kernel(bounded=True)
def _depth_first(flow: Flow, preference: Ints) -> Ints:
    """A topological order: always the node that became ready last; of several, as preferred."""
    n = len(preference)
    rank, ascending = np.empty(n, np.int64), np.empty(n, np.int64)
    for at in range(n):
        rank[preference[at]], ascending[at] = at, at
    waiting = np.zeros(n, np.int64)
    for node in flow.succ:
        waiting[node] += 1
    stack = np.empty(n, np.int64)  # ranks; the head of the paper's queue is the end
    height = 0
    for at in range(n - 1, -1, -1):
        if waiting[preference[at]] == 0:
            stack[height] = at
            height += 1
    order, heap, size = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for turn in range(n):
        height -= 1
        node = preference[stack[height]]
        order[turn] = node
        for e in range(flow.ptr[node], flow.ptr[node + 1]):
            succ = flow.succ[e]
            waiting[succ] -= 1
            if waiting[succ] == 0:
                size = push(heap, size, ascending, rank[succ])
        height += size
        for at in range(size):
            stack[height - 1 - at] = heap[0]
            size = pop(heap, size, ascending)
    return order


def predecessors(flow: Flow) -> tuple[Ints, Ints, Ints]:
    """Edges into node i: from ``node[ptr[i]:ptr[i + 1]]``, times ``edge_ns[...]``."""
    ptr, edge = group_by(flow.succ, len(flow.node_ns))
    source = np.repeat(np.arange(len(flow.node_ns)), np.diff(flow.ptr))
    return ptr, source[edge], flow.edge_ns[edge]
