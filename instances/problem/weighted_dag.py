"""Graphs with one cost per node and per edge: levels, critical paths, depth-first orders.

What the clustering placers and Celeritas' fusion work on, with the costs of `mean_costs`.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel, pop, push
from placegap.instances.problem.mean_costs import Flow


def critical_paths(flow: Flow) -> Ints:
    """Cpath of each node: the longest path through it, levels (2) + (3); O(V + E)."""
    top, bottom = _levels(flow)
    paths: Ints = top + bottom
    return paths


@kernel(bounded=True)
def _levels(flow: Flow) -> tuple[Ints, Ints]:
    top = np.zeros(len(flow.node_ns), np.int64)
    bottom = np.zeros(len(flow.node_ns), np.int64)
    for node in flow.order:
        for e in range(flow.ptr[node], flow.ptr[node + 1]):
            reached = top[node] + flow.node_ns[node] + flow.edge_ns[e]
            top[flow.succ[e]] = max(top[flow.succ[e]], reached)
    for node in flow.order[::-1]:
        for e in range(flow.ptr[node], flow.ptr[node + 1]):
            bottom[node] = max(bottom[node], flow.edge_ns[e] + bottom[flow.succ[e]])
        bottom[node] += flow.node_ns[node]
    return top, bottom


def cpd_topo(flow: Flow) -> Ints:
    """CPD-TOPO: depth first, of the nodes that became ready last the one of longest cpath next.

    Celeritas, Algorithm 1. Ties: the flow's order. O((V + E) log d) for d children of a node.
    """
    by_order = np.empty(len(flow.order), np.int64)
    by_order[flow.order] = np.arange(len(flow.order))
    return _depth_first(flow, np.lexsort((by_order, -critical_paths(flow))))


def dfs_topo(flow: Flow) -> Ints:
    """DFS-TOPO: depth first, of the nodes that became ready last the first of the flow's order.

    Celeritas, section 4.2.2, which leaves the order of several ready children open. O(V + E).
    """
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


@kernel(bounded=True)
def predecessors(flow: Flow) -> tuple[Ints, Ints, Ints]:
    """Edges into node i: from ``node[ptr[i]:ptr[i + 1]]``, times ``edge_ns[...]``; O(V + E)."""
    ptr = np.zeros(len(flow.ptr), np.int64)
    for succ in flow.succ:
        ptr[succ + 1] += 1
    for at in range(1, len(ptr)):
        ptr[at] += ptr[at - 1]
    node, edge_ns = np.empty(len(flow.succ), np.int64), np.empty(len(flow.succ), np.int64)
    filled = ptr[:-1].copy()
    for source in range(len(flow.node_ns)):
        for e in range(flow.ptr[source], flow.ptr[source + 1]):
            at = filled[flow.succ[e]]
            node[at], edge_ns[at] = source, flow.edge_ns[e]
            filled[flow.succ[e]] += 1
    return ptr, node, edge_ns
