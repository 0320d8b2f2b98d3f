"""Integer arrays of an instance, shared by every kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem.cluster import Cluster
from placegap.instances.problem.graph import Graph
from placegap.instances.problem.graph_index import (
    GraphIndex,
    all_by,
    freeze,
    inverse,
    numbered,
    sum_by,
)
from placegap.instances.problem.integers import NO_LIMIT, NS_PER_S, UNSUPPORTED, ceil_div
from placegap.instances.problem.links import Group, Paths, all_joined
from placegap.instances.reading.errors import ClusterError, InputError
from placegap.instances.reading.input_files import MAX_TABLE_ENTRIES


@dataclass(frozen=True, eq=False)
class Arrays:
    """An instance with n ops, K devices, t tensors and g colocation groups as arrays."""

    index: GraphIndex  # structure of the graph
    time_ns: Ints  # (n, K) int64: Time of each op on each device, `UNSUPPORTED` where it cannot run
    resident_bytes: Ints  # (n,) int64
    #: (n,) int64: Colocation group of each op; an op without one is a group of its own. Groups are
    #: numbered by their first op.
    group: Ints
    #: backward, weight_gradient, update: (n,) bool
    backward: Flags
    weight_gradient: Flags
    update: Flags
    memory_bytes: Ints  # (K,) int64: `NO_LIMIT` where a device has none
    is_host: Flags  # (K,) bool
    tables_of: tuple[Graph, Cluster]  # what the tables of device pairs are made of

    @cached_property
    def _tables(self) -> tuple[Ints, Ints, Ints]:
        """Tables of device pairs, made when they are first used: they grow with K^2."""
        graph, cluster = self.tables_of
        try:
            link_class, transfer_ns = transfer_times(graph, cluster)
        except ClusterError as error:
            raise InputError(str(error), cluster.source) from None
        tables = link_class, transfer_ns, host_times(graph, link_class, transfer_ns)
        for table in tables:
            table.setflags(write=False)
        return tables

    @property
    def link_class(self) -> Ints:
        """(K, K) int64: Column of `transfer_ns` for each ordered device pair; 0 on the diagonal."""
        return self._tables[0]

    @property
    def transfer_ns(self) -> Ints:
        """(t, L) int64: Time of each tensor over each link class."""
        # Moving tensor u from device a to b takes ``transfer_ns[u, link_class[a, b]]``; 0 if a ==
        # b.
        return self._tables[1]

    @property
    def host_ns(self) -> Ints:
        """(t, K) int64: host_time(tensor, device) of max_load."""
        return self._tables[2]

    @property
    def num_groups(self) -> int:
        """Number of colocation groups, single ops included."""
        return int(self.group.max()) + 1

    @property
    def group_bytes(self) -> Ints:
        """Resident bytes of each colocation group, (g,)."""
        return sum_by(self.group, self.resident_bytes, self.num_groups)

    @property
    def group_runs(self) -> Flags:
        """Whether a device runs all ops of a colocation group, (g, K)."""
        return all_by(self.group, self.time_ns != UNSUPPORTED, self.num_groups)

    @cached_property
    def able(self) -> Flags:
        """Devices that run an op and all ops of its colocation group, (n, K)."""
        return _frozen(self.group_runs[self.group])

    @cached_property
    def possible(self) -> Flags:
        """Those of them that can hold that group, (n, K)."""
        return _frozen(self.able & (self.group_bytes[self.group][:, None] <= self.memory_bytes))

    @cached_property
    def memory_is_slack(self) -> bool:
        """Whether every device can hold all the ops that it can run at once: no limit binds."""
        need = ((self.time_ns != UNSUPPORTED) * self.resident_bytes[:, None]).sum(axis=0)
        return bool(((need <= self.memory_bytes) | (self.memory_bytes == NO_LIMIT)).all())

    @cached_property
    def serial_horizon_ns(self) -> int:
        """Every placement, run one op and one transfer at a time, ends by then."""
        ops = np.where(self.time_ns == UNSUPPORTED, 0, self.time_ns).max(axis=1)
        moves = self.transfer_ns[self.index.tensor].max(axis=1, initial=0)
        return int(sum(ops.tolist()) + sum(moves.tolist()))

    @cached_property
    def group_order(self) -> Ints:
        """Colocation groups by the first of their ops in topological order, (g,)."""
        first = np.full(self.num_groups, len(self.group))
        np.minimum.at(first, self.group, self.index.topological_position)
        return np.argsort(first, kind="stable").astype(np.int64)

    def named(self, fields: Iterable[str]) -> dict[str, Any]:
        """Those of the fields that these arrays or the index have, for a tuple of a kernel."""
        sources = (self, self.index)
        return {f: getattr(one, f) for f in fields for one in sources if hasattr(one, f)}

    def place_of_ops(self, order: Ints) -> Ints:
        """Place of each op's colocation group in an order of the groups, (n,)."""
        return inverse(order)[self.group]

    @cached_property
    def exchanged(self) -> Flags:
        """Which edges of a training step are exchanges of gradients, (m,)."""
        # Two stages that hold a copy of one weight add up its gradients after the last microbatch,
        # beside the pipeline: such an edge leads from any stage to any other. It is one from layer
        # to layer (colocation group) between two `weight_gradient` ops; or, where those are not
        # distinguished, one whose producer is the sum of a shared weight's gradients: a backward op
        # whose readers are backward ops that feed nothing (updates), one of them in its own layer.
        a, b = self.index.producer, self.index.consumer
        apart = self.group[a] != self.group[b]
        feeds = np.zeros(len(self.group), np.bool_)
        feeds[a] = True
        updates = self.backward & ~feeds
        is_sum = self.backward.copy()
        is_sum[a[~updates[b]]] = False
        at_home = np.zeros(len(self.group), np.bool_)
        at_home[a[~apart]] = True
        late = self.weight_gradient
        return _frozen(apart & ((is_sum & at_home)[a] | late[a] & late[b]))


def _frozen(flags: Flags) -> Flags:
    flags.setflags(write=False)
    return flags


def derive_arrays(graph: Graph, cluster: Cluster) -> Arrays:
    """Build the arrays of a graph on a cluster; O(n K + m)."""
    # Tables of device pairs are made at once, for their errors, where links or sizes leave a doubt.
    ops, devices = graph.ops, cluster.devices
    kinds = list(dict.fromkeys(device.kind for device in devices))
    by_kind = np.array(
        [[op.time_ns.get(kind, UNSUPPORTED) for kind in kinds] for op in ops], np.int64
    )
    arrays = Arrays(
        index=graph.index,
        time_ns=np.ascontiguousarray(by_kind[:, [kinds.index(d.kind) for d in devices]]),
        resident_bytes=np.array([op.resident_bytes for op in ops], np.int64),
        group=_groups(graph),
        backward=np.array([op.backward for op in ops], np.bool_),
        weight_gradient=np.array([op.backward and op.weight_gradient for op in ops], np.bool_),
        update=np.array([op.backward and op.update for op in ops], np.bool_),
        memory_bytes=np.array(
            [NO_LIMIT if d.memory_bytes is None else d.memory_bytes for d in devices], np.int64
        ),
        is_host=np.array([device.is_host for device in devices], np.bool_),
        tables_of=(graph, cluster),
    )
    freeze(arrays)
    busy = sum(by_kind.max(axis=1).tolist())
    if not _plainly_sound(graph, cluster, busy):
        transfer_times(graph, cluster)  # its errors are those of the door
        _check_total(arrays, busy)
    return arrays


def _plainly_sound(graph: Graph, cluster: Cluster, busy_ns: int) -> bool:
    """Whether links alone say that all devices are joined and no sum of times reaches 2**62."""
    # A transfer takes at most the latencies of all devices on a path, and the least bandwidth.
    if len(cluster.devices) < 2:
        return False
    if any(e.transfer_ns is not None or e.host_time_ns is not None for e in graph.edges):
        return False
    entries = [
        entry
        for entry in cluster.all_links.entries
        if not isinstance(entry, Group) or len(entry.devices) > 1
    ]
    if not entries or not all_joined(list(cluster.device_index), cluster.all_links):
        return False
    bandwidth = min(entry.bandwidth_bytes_per_s for entry in entries)
    hops_ns = len(cluster.devices) * max(entry.latency_ns for entry in entries)
    longest = sum(link_time_ns(edge.bytes, bandwidth, hops_ns) for edge in graph.edges)
    return busy_ns + 3 * longest < NO_LIMIT


def _check_total(arrays: Arrays, busy_ns: int) -> None:
    """No makespan, load or latency may reach 2**62: kernels add in int64; it is their infinity."""
    # Each tensor leaves its producer's device once, and enters at most once for each edge.
    tensor, host_ns = arrays.index.tensor, arrays.host_ns.max(axis=1, initial=0)
    total = busy_ns + sum(arrays.transfer_ns.max(axis=1, initial=0)[tensor].tolist())
    total += sum(host_ns.tolist()) + sum(host_ns[tensor].tolist())
    if total >= NO_LIMIT:
        raise ValueError(f"ops and edges: their times sum to {total} ns, above 2**62")


def _groups(graph: Graph) -> Ints:
    groups = (i if op.colocation is None else op.colocation for i, op in enumerate(graph.ops))
    return np.array(numbered(groups), np.int64)


@dataclass(frozen=True, eq=False)
class MemoryArrays:
    """Sizes of a graph with n ops and t tensors whose ops share s states by z names."""

    #: state_bytes, workspace_bytes: (n,) int64: What an op holds between passes, shared state
    #: aside; and what it needs while it runs.
    state_bytes: Ints
    workspace_bytes: Ints
    tensor_bytes: Ints  # (t,) int64
    #: shared_op, shared_name: (s,) int64: An op and a name that it holds state by.
    shared_op: Ints
    shared_name: Ints
    shared_bytes: Ints  # (z,): size of the state of each name; names are numbered by first ops
    step: Ints  # (n,): place of each op in the order of max_load's memory (`derive_memory`)


def derive_memory(graph: Graph, backward: Flags) -> MemoryArrays:
    """Build the arrays; O(n + m) but for sorting."""
    # The order of the steps is topological and puts forward ops before backward ops as far as the
    # edges allow: ops are sorted by how often the pass changes at most on a path to them (a path
    # that begins with a backward op has changed once), then by topological position.
    index, ops = graph.index, graph.ops
    name_of: dict[str, int] = {}
    size: list[int] = []
    shared: list[tuple[int, int]] = []
    for i, op in enumerate(ops):
        for name, bytes_ in op.shared_state.items():
            number = name_of.setdefault(name, len(size))
            if number == len(size):
                size.append(bytes_)
            shared.append((i, number))
    pairs = np.array(shared, np.int64).reshape(-1, 2)
    order = np.lexsort((index.topological_position, _changes(graph, backward)))
    arrays = MemoryArrays(
        state_bytes=np.array(
            [op.parameter_bytes if op.state_bytes is None else op.state_bytes for op in ops],
            np.int64,
        ),
        workspace_bytes=np.array([op.workspace_bytes for op in ops], np.int64),
        tensor_bytes=np.array(
            [graph.edges[e].bytes for e in index.tensor_first_edge.tolist()], np.int64
        ),
        shared_op=np.ascontiguousarray(pairs[:, 0]),
        shared_name=np.ascontiguousarray(pairs[:, 1]),
        shared_bytes=np.array(size, np.int64),
        step=inverse(order),
    )
    freeze(arrays)
    return arrays


def _changes(graph: Graph, backward: Flags) -> Ints:
    """Most changes of the pass on a path to each op; even for forward ops, odd for backward."""
    index = graph.index
    flag = backward.tolist()
    changes = [int(at) for at in flag]
    if not any(flag):
        return np.zeros(len(flag), np.int64)
    consumer, edges = index.consumer.tolist(), index.succ_edge.tolist()
    pointer = index.succ_ptr.tolist()
    for a in index.topological_order.tolist():
        for e in edges[pointer[a] : pointer[a + 1]]:
            b = consumer[e]
            changes[b] = max(changes[b], changes[a] + (flag[a] != flag[b]))
    return np.array(changes, np.int64)


SLOWEST_BYTES_PER_S = 1000  # slower links are at fault, not tensors, if a transfer takes 146 years


def link_time_ns(size_bytes: int, bandwidth_bytes_per_s: int, latency_ns: int) -> int:
    """Latency + ceil(bytes / bandwidth), in Python integers (the product overflows int64)."""
    return latency_ns + ceil_div(size_bytes * NS_PER_S, bandwidth_bytes_per_s)


def transfer_times(graph: Graph, cluster: Cluster) -> tuple[Ints, Ints]:
    """Link classes (K, K) and times (tensors, classes) of all tensors."""
    # Device pairs whose transfers always take the same time share a class, so that a large cluster
    # with few kinds of links needs few columns; class 0 is a device with itself and costs nothing.
    # Unreachable pairs, matrices of the wrong shape and sums above 2**62 are ValueErrors.
    tensors = [graph.edges[e] for e in graph.index.tensor_first_edge.tolist()]
    _check_matrices(graph, len(cluster.devices))
    explicit = any(edge.transfer_ns is not None for edge in tensors)
    num_devices = len(cluster.devices)
    if explicit:
        MAX_TABLE_ENTRIES.check(len(tensors) * num_devices**2, "edges: the table of transfer times")
    paths = cluster.widest_paths
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
    """host_time(tensor, device) of max_load, (tensors, K)."""
    # The explicit value where the source gives one, else the least transfer time between the device
    # and any other, over both directions (a convention of the cost model).
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
