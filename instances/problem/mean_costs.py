"""Mean times of ops and transfers, the graph with these costs, and how much it communicates.

There are no kernels here: what only counts need not compile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import LARGEST_SUM, UNSUPPORTED


class Flow(NamedTuple):
    """A graph of n nodes with costs in ns: successors of i are ``succ[ptr[i]:ptr[i + 1]]``."""

    # `order` is some topological order; `edge_ns` is aligned with `succ`.
    node_ns: Ints
    ptr: Ints
    succ: Ints
    edge_ns: Ints
    order: Ints


class MeanCosts(NamedTuple):
    """Mean costs in units of 1 / scale ns: of each op, (n,), and of each tensor, (t,)."""

    op: Ints
    tensor: Ints
    scale: int


def mean_costs(arrays: Arrays, *, rounded: bool = False) -> MeanCosts:
    """Means as integers: of ops over the devices that run them, of tensors over device pairs."""
    # They are exact, `scale` being a common denominator, or `rounded` down to whole ns. HEFT's kin
    # need the exact ones: rounding makes ties between ranks. Where the scale would overflow (paths
    # beyond 2**62 / scale ns), it is 1 and the terms of each mean are rounded down.
    runs, in_class = arrays.time_ns != UNSUPPORTED, pairs_in_class(arrays)
    times, transfers = np.where(runs, arrays.time_ns, 0), arrays.transfer_ns
    if rounded:
        pairs_of = np.broadcast_to(in_class, transfers.shape)
        return MeanCosts(_mean(times, runs.astype(np.int64)), _mean(transfers, pairs_of), 1)
    runs_on, pairs = runs.sum(axis=1), max(1, int(in_class.sum()))
    scale = math.lcm(pairs, *np.unique(runs_on).tolist())
    if longest_path(arrays) * scale > LARGEST_SUM:
        terms = (times // runs_on[:, None]).sum(axis=1)
        return MeanCosts(terms, (transfers // pairs) @ in_class, 1)
    op, tensor = times.sum(axis=1) * (scale // runs_on), (transfers @ in_class) * (scale // pairs)
    return MeanCosts(op, tensor, scale)


def mean_time_ns(arrays: Arrays) -> Floats:
    """Mean time of each op over the devices that run it, (n,), as floats: no tie depends on it."""
    runs = arrays.time_ns != UNSUPPORTED
    mean: Floats = np.where(runs, arrays.time_ns, 0).sum(axis=1, dtype=float) / runs.sum(axis=1)
    return mean


def mean_transfer_ns(arrays: Arrays) -> Floats:
    """Mean transfer time of each tensor over all device pairs, (t,), likewise."""
    in_class = pairs_in_class(arrays)
    mean: Floats = arrays.transfer_ns @ in_class.astype(np.float64) / max(1, in_class.sum())
    return mean


def pairs_in_class(arrays: Arrays) -> Ints:
    """How many ordered pairs of different devices each link class has, (L,)."""
    apart = ~np.eye(len(arrays.memory_bytes), dtype=np.bool_)
    return np.bincount(arrays.link_class[apart], minlength=arrays.transfer_ns.shape[1])


def longest_path(arrays: Arrays) -> int:
    """No path takes longer, wherever its ops run: the sum of all largest times, in ns."""
    return int(arrays.time_ns.max(axis=1).sum()) + int(
        arrays.transfer_ns.max(axis=1, initial=0).sum()
    )


def flow_of(arrays: Arrays) -> Flow:
    """The ops of an instance with their mean times, its edges with their mean transfer times."""
    # Means are over the devices that run an op, and over all ordered pairs of different devices.
    index, costs = arrays.index, mean_costs(arrays, rounded=True)
    return Flow(  # copies may be written to, as in `contracted`: kernels are compiled once
        costs.op,
        index.succ_ptr.copy(),
        index.consumer[index.succ_edge],
        costs.tensor[index.tensor[index.succ_edge]],
        index.topological_order.copy(),
    )


def _mean(values: Ints, weights: Ints) -> Ints:
    """Weighted mean of each row, rounded down; quotients and rests apart, so nothing overflows."""
    total = np.maximum(1, weights.sum(axis=1, keepdims=True))
    mean: Ints = (values // total * weights).sum(axis=1)
    mean += (values % total * weights).sum(axis=1) // total[:, 0]
    return mean


def crossing(ptr: Ints, succ: Ints, tensor: Ints, segment: Ints) -> tuple[Ints, Ints]:
    """Edges between segments, by source, then target segment, and the op that each comes from."""
    # Of those that carry a tensor to a segment it is one: it goes there once, as in `merge_groups`.
    op = np.repeat(np.arange(len(segment)), np.diff(ptr))
    source, target = segment[op], segment[succ]
    edges = np.lexsort((tensor, target, source))
    edges = edges[source[edges] != target[edges]]
    again = (np.diff(tensor[edges]) == 0) & (np.diff(target[edges]) == 0)
    edges = edges[np.append(True, ~again)[: len(edges)]]
    return edges, op[edges]


def contracted(flow: Flow, tensor: Ints, segment: Ints) -> Flow:
    """The flow between segments, which are numbered in a topological order."""
    # An edge takes as long as all tensors together that one segment sends another. `tensor` is
    # aligned with ``flow.succ``.
    num_segments = int(segment.max()) + 1
    node_ns = sum_by(segment, flow.node_ns, num_segments)
    edges, source = crossing(flow.ptr, flow.succ, tensor, segment)
    pair = segment[source] * num_segments + segment[flow.succ[edges]]
    pairs, number = np.unique(pair, return_inverse=True)
    edge_ns = sum_by(number, flow.edge_ns[edges], len(pairs))
    ptr = np.searchsorted(pairs // num_segments, np.arange(num_segments + 1))
    return Flow(node_ns, ptr, pairs % num_segments, edge_ns, np.arange(num_segments))


def communication_ratio(flow: Flow) -> float:
    """Communication to computing ratio, equation (1): all edges' time over all ops' time."""
    work = int(flow.node_ns.sum())
    return int(flow.edge_ns.sum()) / work if work else 0.0
