"""Graphs with one cost per node and per edge: levels, critical paths, depth-first orders.

What the clustering placers and Celeritas' fusion work on. Costs that differ between devices enter
as means, rounded down to whole ns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import kernel


class Flow(NamedTuple):
    """A graph of n nodes with costs in ns: successors of i are ``succ[ptr[i]:ptr[i + 1]]``.

    `order` is some topological order; `edge_ns` is aligned with `succ`.
    """

    node_ns: Ints
    ptr: Ints
    succ: Ints
    edge_ns: Ints
    order: Ints


def flow_of(arrays: Arrays) -> Flow:
    """The ops of an instance with their mean times, and its edges with their mean transfer times.

    Means are over the devices that run an op, and over all ordered pairs of different devices.

    Examples
    --------
    >>> from placegap.instances import example
    >>> flow = flow_of(example().arrays)
    >>> flow.node_ns.tolist(), flow.edge_ns.tolist()
    ([5, 20, 10, 8], [1, 20, 1, 10])
    """
    index, num_devices = arrays.index, len(arrays.memory_bytes)
    runs = arrays.time_ns != UNSUPPORTED
    apart = ~np.eye(num_devices, dtype=np.bool_)
    pairs = np.bincount(arrays.link_class[apart], minlength=arrays.transfer_ns.shape[1])
    tensor_ns = _mean(arrays.transfer_ns, np.broadcast_to(pairs, arrays.transfer_ns.shape))
    return Flow(  # copies may be written to, as in `contracted`: kernels are compiled once
        _mean(np.where(runs, arrays.time_ns, 0), runs.astype(np.int64)),
        index.succ_ptr.copy(),
        index.consumer[index.succ_edge],
        tensor_ns[index.tensor[index.succ_edge]],
        index.topological_order.copy(),
    )


def _mean(values: Ints, weights: Ints) -> Ints:
    """Weighted mean of each row, rounded down; quotients and rests apart, so nothing overflows."""
    total = np.maximum(1, weights.sum(axis=1, keepdims=True))
    mean: Ints = (values // total * weights).sum(axis=1)
    mean += (values % total * weights).sum(axis=1) // total[:, 0]
    return mean


def contracted(flow: Flow, segment: Ints) -> Flow:
    """The flow between segments, which are numbered in a topological order; parallel edges stay."""
    num_segments = int(segment.max()) + 1
    node_ns = np.zeros(num_segments, np.int64)
    np.add.at(node_ns, segment, flow.node_ns)
    source = segment[np.repeat(np.arange(len(segment)), np.diff(flow.ptr))]
    crossing = np.flatnonzero(source != segment[flow.succ])
    ptr, members = group_by(source[crossing], num_segments)
    edges = crossing[members]
    return Flow(
        node_ns, ptr, segment[flow.succ[edges]], flow.edge_ns[edges], np.arange(num_segments)
    )


def communication_ratio(flow: Flow) -> float:
    """Communication to computing ratio, equation (1): all edges' time over all ops' time.

    Examples
    --------
    >>> from placegap.instances import example
    >>> round(communication_ratio(flow_of(example().arrays)), 3)  # 32 / 43
    0.744
    """
    work = int(flow.node_ns.sum())
    return int(flow.edge_ns.sum()) / work if work else 0.0


def critical_paths(flow: Flow) -> Ints:
    """Cpath of each node: the longest path through it, top level (2) + bottom level (3); O(V + E).

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.instances.problem.weighted_dag import flow_of
    >>> critical_paths(flow_of(example().arrays)).tolist()
    [53, 35, 53, 53]
    """
    top, bottom = _levels(flow)
    paths: Ints = top + bottom
    return paths


@kernel
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

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.instances.problem.weighted_dag import flow_of
    >>> cpd_topo(flow_of(example().arrays)).tolist()
    [0, 2, 1, 3]
    """
    by_order = np.empty(len(flow.order), np.int64)
    by_order[flow.order] = np.arange(len(flow.order))
    return _depth_first(flow, np.lexsort((by_order, -critical_paths(flow))))


def dfs_topo(flow: Flow) -> Ints:
    """DFS-TOPO: depth first, of the nodes that became ready last the first of the flow's order.

    Celeritas, section 4.2.2, which leaves the order of several ready children open. O(V + E).

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.instances.problem.weighted_dag import flow_of
    >>> dfs_topo(flow_of(example().arrays)).tolist()
    [0, 1, 2, 3]
    """
    return _depth_first(flow, flow.order)


@kernel
def _depth_first(flow: Flow, preference: Ints) -> Ints:
    """A topological order: always the node that became ready last; of several, as preferred."""
    n = len(preference)
    rank = np.empty(n, np.int64)
    rank[preference] = np.arange(n)
    waiting = np.zeros(n, np.int64)
    for node in flow.succ:
        waiting[node] += 1
    stack = np.empty(n, np.int64)  # ranks; the head of the paper's queue is the end
    height = 0
    for node in preference[::-1]:
        if waiting[node] == 0:
            stack[height] = rank[node]
            height += 1
    order = np.empty(n, np.int64)
    for turn in range(n):
        height -= 1
        node = preference[stack[height]]
        order[turn] = node
        first = height
        for succ in flow.succ[flow.ptr[node] : flow.ptr[node + 1]]:
            waiting[succ] -= 1
            if waiting[succ] == 0:
                stack[height] = rank[succ]
                height += 1
        last_first = np.sort(stack[first:height])
        for at in range(height - first):
            stack[height - 1 - at] = last_first[at]
    return order


@kernel
def predecessors(flow: Flow) -> tuple[Ints, Ints, Ints]:
    """Edges into node i: from ``node[ptr[i]:ptr[i + 1]]``, times ``edge_ns[...]``; O(V + E)."""
    ptr = np.zeros(len(flow.ptr), np.int64)
    for succ in flow.succ:
        ptr[succ + 1] += 1
    ptr = np.cumsum(ptr)
    node, edge_ns = np.empty(len(flow.succ), np.int64), np.empty(len(flow.succ), np.int64)
    filled = ptr[:-1].copy()
    for source in range(len(flow.node_ns)):
        for e in range(flow.ptr[source], flow.ptr[source + 1]):
            at = filled[flow.succ[e]]
            node[at], edge_ns[at] = source, flow.edge_ns[e]
            filled[flow.succ[e]] += 1
    return ptr, node, edge_ns
