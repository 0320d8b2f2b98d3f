"""What Placeto sees of an instance: merged nodes, what is around each of them, and features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placegap.experiments.research.learned.heavy_edges import merge_heavy_edges
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance

Numbers = NDArray[np.float32]

STATIC_FEATURES = 6  # beside the one-hot of the device: time, output, memory, start, current, seen


@dataclass(frozen=True, eq=False)
class PlacetoNodes:
    """An instance of n ops on K devices, merged to N nodes."""

    node: Ints  # (n,) int64: The node of each op
    #: Nodes that one visit places together (a colocation group), in topological order of the first
    #: of them.
    visits: tuple[Ints, ...]
    supported: Flags  # (N, K) bool: Whether a device runs all that is colocated with a node
    feeds: Numbers  # (N, N) float32: 1 in row a, column b where node a takes an output of node b
    #: ancestors, descendants, parallel: (N, N) float32: Row a marks the nodes that come before node
    #: a, after it, and neither (but a itself).
    ancestors: Numbers
    descendants: Numbers
    parallel: Numbers
    first_op: Ints  # (N,) int64: First op of each node in topological order
    time_ns: Numbers  # (N, K) float32: Sum of the times of a node's ops
    #: output_bytes, memory_bytes: (N,) float32: Sums of what a node sends, each tensor once, and of
    #: what it holds.
    output_bytes: Numbers
    memory_bytes: Numbers


def nodes_of(instance: Instance, most_nodes: int) -> PlacetoNodes:
    """Merge an instance to nodes of about equal work; their graph. O(N^3 / 64 + n m)."""
    # Placeto merges co-location groups and small neighbours. Without limits one node may take in
    # most of the network, and is then more than a device holds. More than `most_nodes` are left
    # where no pair can be merged.
    parts = -(-most_nodes // instance.num_devices)
    merge = merge_heavy_edges(instance, parts, num_ops=most_nodes)
    arrays = merge.coarse.arrays
    index, count = arrays.index, merge.coarse.num_ops
    feeds = np.zeros((count, count), np.float32)
    feeds[index.consumer, index.producer] = 1.0
    before = np.zeros((count, count), np.bool_)
    for a in index.topological_order.tolist():
        for b in np.flatnonzero(feeds[a]).tolist():
            before[a] |= before[b]
            before[a, b] = True
    beside = ~(before | before.T | np.eye(count, dtype=np.bool_))
    fine = instance.arrays
    first_op = np.zeros(count, np.int64)
    against = fine.index.topological_order[::-1]
    first_op[merge.op[against]] = against  # the last assignment stays
    sent = np.zeros(count, np.float32)
    tensor_bytes = [instance.graph.edges[e].bytes for e in fine.index.tensor_first_edge.tolist()]
    crossing = np.zeros(len(tensor_bytes), np.bool_)
    crossing[fine.index.tensor[merge.edge >= 0]] = True
    np.add.at(sent, merge.op[fine.index.tensor_producer], np.where(crossing, tensor_bytes, 0))
    visits: dict[int, list[int]] = {}
    for v in index.topological_order.tolist():
        visits.setdefault(int(arrays.group[v]), []).append(v)
    runs = arrays.able
    return PlacetoNodes(
        merge.op,
        tuple(np.array(together, np.int64) for together in visits.values()),
        runs,
        feeds,
        before.astype(np.float32),
        before.T.astype(np.float32),
        beside.astype(np.float32),
        first_op,
        arrays.time_ns.astype(np.float32),
        sent,
        arrays.resident_bytes.astype(np.float32),
    )


def features(
    nodes: PlacetoNodes, device: Ints, start_ns: Ints, current: int, visited: Flags
) -> Numbers:
    """Features of all nodes, (N, STATIC_FEATURES + K), each relative to the largest."""
    # They are time, output, memory, start in the last schedule relative to that of the current
    # node, whether the node is the current one, whether it was visited, and its device as a
    # one-hot.
    count, num_devices = nodes.time_ns.shape
    each = np.arange(count)
    row = np.zeros((count, STATIC_FEATURES + num_devices), np.float32)
    row[:, 0] = normalized(nodes.time_ns[each, device])
    row[:, 1] = normalized(nodes.output_bytes)
    row[:, 2] = normalized(nodes.memory_bytes)
    row[:, 3] = normalized((start_ns - start_ns[current]).astype(np.float32))
    row[current, 4] = 1.0
    row[:, 5] = visited
    row[each, STATIC_FEATURES + device] = 1.0
    return row


def normalized(values: Numbers) -> Numbers:
    """Divide by the largest absolute value; zeros stay."""
    most = float(np.abs(values).max(initial=0.0))
    return values / np.float32(most) if most > 0 else values


def start_of(nodes: PlacetoNodes, start: str, seed: int) -> Ints:
    """Device of each node at the beginning, (N,)."""
    if start == "random":
        rng = np.random.default_rng(seed)
        device = np.zeros(len(nodes.first_op), np.int64)
        for together in nodes.visits:
            device[together] = rng.choice(np.flatnonzero(nodes.supported[together[0]]))
        return device
    slow = np.where(nodes.supported, nodes.time_ns, np.inf)
    alone = np.where(nodes.supported, nodes.time_ns, 2.0 * slow.min(axis=1).sum()).sum(axis=0)
    best = int(alone.argmin())
    return np.where(nodes.supported[:, best], best, slow.argmin(axis=1)).astype(np.int64)
