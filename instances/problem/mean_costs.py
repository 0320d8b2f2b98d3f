"""An instance as a graph with one cost per op and per edge, and how much it communicates.

Costs that differ between devices enter as means, rounded down to whole ns. There are no kernels
here: what only counts need not compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import group_by
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
    """Communication to computing ratio, equation (1): all edges' time over all ops' time."""
    work = int(flow.node_ns.sum())
    return int(flow.edge_ns.sum()) / work if work else 0.0
