"""How long a tensor takes from device to device: links, widest paths, explicit times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.problem.links import Paths, widest_paths
from placegap.instances.reading.errors import ClusterError
from placegap.instances.reading.input_files import MAX_TABLE_ENTRIES

if TYPE_CHECKING:
    from placegap.instances.problem.instance import Cluster, Graph

SLOWEST_BYTES_PER_S = 1000
"""A link below is at fault where a transfer takes 146 years; else the tensor is."""


def link_time_ns(size_bytes: int, bandwidth_bytes_per_s: int, latency_ns: int) -> int:
    """Latency + ceil(bytes / bandwidth), in Python integers (the product overflows int64).

    Examples
    --------
    >>> link_time_ns(10_000_000_000, 12_000_000_000, 5_000)
    833338334
    """
    return latency_ns + ceil_div(size_bytes * NS_PER_S, bandwidth_bytes_per_s)


def transfer_times(graph: Graph, cluster: Cluster) -> tuple[Ints, Ints]:
    """Link classes (K, K) and times (tensors, classes) of all tensors.

    Device pairs whose transfers always take the same time share a class, so that a large cluster
    with few kinds of links needs few columns; class 0 is a device with itself and costs nothing.
    Unreachable pairs, matrices of the wrong shape and sums above 2**62 are ValueErrors.
    """
    tensors = [graph.edges[e] for e in graph.index.tensor_first_edge.tolist()]
    _check_matrices(graph, len(cluster.devices))
    explicit = any(edge.transfer_ns is not None for edge in tensors)
    num_devices = len(cluster.devices)
    if explicit:
        MAX_TABLE_ENTRIES.check(len(tensors) * num_devices**2, "edges: the table of transfer times")
    paths = widest_paths(cluster)
    link_class, pairs = _link_classes(cluster, paths, explicit)
    hosts = [device.is_host for device in cluster.devices]
    times = np.zeros((len(tensors), len(pairs)), np.int64)
    linked = [u for u, e in enumerate(tensors) if e.transfer_ns is None and e.host_time_ns is None]
    stated = [
        u for u, e in enumerate(tensors) if e.transfer_ns is not None or e.host_time_ns is not None
    ]
    sizes, size_of = np.unique([tensors[u].bytes for u in linked], return_inverse=True)
    for column, (a, b) in enumerate(pairs):
        if a == b:
            continue
        if linked:
            if (a, b) not in paths:
                source, target = cluster.devices[a].name, cluster.devices[b].name
                raise ClusterError(
                    f"links: no path leads from {source!r} to {target!r}; add a link"
                )
            times[linked, column] = _link_times(sizes, *paths[a, b])[size_of]
        for u in stated:
            matrix, host_time = tensors[u].transfer_ns, tensors[u].host_time_ns
            if matrix is not None:
                times[u, column] = matrix[a][b]
            elif host_time is not None:
                # two hops through host memory between accelerators, one with a host, none within
                times[u, column] = _fits(host_time * (2 - hosts[a] - hosts[b]))
    return link_class, times


def host_times(graph: Graph, link_class: Ints, transfer_ns: Ints) -> Ints:
    """host_time(tensor, device) of max_load, (tensors, K).

    The explicit value where the source gives one, else the least transfer time between the device
    and any other, over both directions (a convention of the cost model).
    """
    num_devices = len(link_class)
    host_ns = np.zeros((len(transfer_ns), num_devices), np.int64)
    for k in range(num_devices):
        others = [j for j in range(num_devices) if j != k]
        if others:
            touching = np.unique(np.concatenate([link_class[k, others], link_class[others, k]]))
            host_ns[:, k] = transfer_ns[:, touching].min(axis=1)
    for u, first in enumerate(graph.index.tensor_first_edge.tolist()):
        stated = graph.edges[first].host_time_ns
        if stated is not None:
            host_ns[u] = stated
    return host_ns


def _link_times(sizes: Ints, bandwidth_bytes_per_s: int, latency_ns: int) -> Ints:
    """`link_time_ns` of ascending sizes, in int64 where the products fit."""
    longest = link_time_ns(int(sizes[-1]), bandwidth_bytes_per_s, latency_ns)
    if longest > 2**62 and (latency_ns > 2**61 or bandwidth_bytes_per_s < SLOWEST_BYTES_PER_S):
        raise ClusterError(
            f"links: {int(sizes[-1])} bytes take {longest} ns at {bandwidth_bytes_per_s} bytes/s"
            f" and {latency_ns} ns, above 2**62; correct the bandwidth or the latency"
        )
    _fits(longest)
    if int(sizes[-1]) * NS_PER_S <= 2**62:
        return np.asarray(latency_ns - (-sizes * NS_PER_S) // bandwidth_bytes_per_s, np.int64)
    each = [link_time_ns(size, bandwidth_bytes_per_s, latency_ns) for size in sizes.tolist()]
    return np.array(each, np.int64)


def _link_classes(
    cluster: Cluster, paths: Paths, explicit: bool
) -> tuple[Ints, list[tuple[int, int]]]:
    """Class of every ordered pair, and one pair of each class, in the order of first pairs."""
    num_devices = len(cluster.devices)
    hosts = np.array([device.is_host for device in cluster.devices], np.int64)
    kind = 3 * (paths.number.astype(np.int64) + 1) + hosts[:, None] + hosts
    if explicit:
        kind = np.arange(num_devices**2, dtype=np.int64).reshape(num_devices, num_devices)
    between = np.flatnonzero(~np.eye(num_devices, dtype=np.bool_))
    _, first, class_of = np.unique(kind.ravel()[between], return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(1, len(first) + 1)
    link_class = np.zeros(num_devices**2, np.int64)
    link_class[between] = place[class_of]
    pairs = [divmod(int(at), num_devices) for at in between[np.sort(first)]]
    return link_class.reshape(num_devices, num_devices), [(0, 0), *pairs]


def _check_matrices(graph: Graph, num_devices: int) -> None:
    for number, edge in enumerate(graph.edges):
        matrix = edge.transfer_ns
        if matrix is not None and not (
            len(matrix) == num_devices and all(len(row) == num_devices for row in matrix)
        ):
            raise ValueError(
                f"edges[{number}] '{edge.producer} -> {edge.consumer}': transfer_ns must have"
                f" {num_devices} rows and columns, one per device (it has {len(matrix)} rows); it"
                " holds for the file's own devices only"
            )


def _fits(time_ns: int) -> int:
    if time_ns > 2**62:
        raise ValueError(f"edges: transfer times sum to {time_ns} ns, above 2**62")
    return time_ns
