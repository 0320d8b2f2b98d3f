"""An instance as a graph with one cost per op and per edge, and how much it communicates.

Costs that differ between devices enter as means, rounded down to whole ns. There are no kernels
here: what only counts need not compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.integers import UNSUPPORTED


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


def crossing(ptr: Ints, succ: Ints, tensor: Ints, segment: Ints) -> tuple[Ints, Ints]:
    """Edges between segments, by source, then target segment, and the op that each comes from.

    Of those that carry a tensor to a segment it is one: it goes there once, as in `merge_groups`.
    """
    op = np.repeat(np.arange(len(segment)), np.diff(ptr))
    source, target = segment[op], segment[succ]
    edges = np.lexsort((tensor, target, source))
    edges = edges[source[edges] != target[edges]]
    again = (np.diff(tensor[edges]) == 0) & (np.diff(target[edges]) == 0)
    edges = edges[np.append(True, ~again)[: len(edges)]]
    return edges, op[edges]


def contracted(flow: Flow, tensor: Ints, segment: Ints) -> Flow:
    """The flow between segments, which are numbered in a topological order.

    An edge takes as long as all tensors together that one segment sends another. `tensor` is
    aligned with ``flow.succ``.
    """
    num_segments = int(segment.max()) + 1
    node_ns = np.zeros(num_segments, np.int64)
    np.add.at(node_ns, segment, flow.node_ns)
    edges, source = crossing(flow.ptr, flow.succ, tensor, segment)
    pair = segment[source] * num_segments + segment[flow.succ[edges]]
    pairs, number = np.unique(pair, return_inverse=True)
    edge_ns = np.zeros(len(pairs), np.int64)
    np.add.at(edge_ns, number, flow.edge_ns[edges])
    ptr = np.searchsorted(pairs // num_segments, np.arange(num_segments + 1))
    return Flow(node_ns, ptr, pairs % num_segments, edge_ns, np.arange(num_segments))


def communication_ratio(flow: Flow) -> float:
    """Communication to computing ratio, equation (1): all edges' time over all ops' time."""
    work = int(flow.node_ns.sum())
    return int(flow.edge_ns.sum()) / work if work else 0.0
