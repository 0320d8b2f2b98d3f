"""Integer arrays of an instance, shared by every kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.arrays import host_times, transfer_times
from placegap.instances.problem.graph_index import GraphIndex, freeze
from placegap.instances.problem.integers import NO_LIMIT, UNSUPPORTED

if TYPE_CHECKING:
    from placegap.instances.problem.instance import Instance


@dataclass(frozen=True, eq=False)
class Arrays:
    """An instance with n ops, K devices, t tensors and g colocation groups as arrays.

    Attributes
    ----------
    index : GraphIndex
        Structure of the graph.
    time_ns : (n, K) int64
        Time of each op on each device, `UNSUPPORTED` where it cannot run.
    resident_bytes : (n,) int64
    group : (n,) int64
        Colocation group of each op; an op without one is a group of its own. Groups are numbered
        by their first op.
    backward, weight_gradient : (n,) bool
    memory_bytes : (K,) int64
        `NO_LIMIT` where a device has none.
    is_host : (K,) bool
    link_class : (K, K) int64
        Column of `transfer_ns` for each ordered device pair; 0 for a device with itself.
    transfer_ns : (t, L) int64
        Time of each tensor over each link class: the transfer of tensor u from device a to b
        takes ``transfer_ns[u, link_class[a, b]]``, and 0 when a == b.
    host_ns : (t, K) int64
        host_time(tensor, device) of max_load.
    """

    index: GraphIndex
    time_ns: Ints
    resident_bytes: Ints
    group: Ints
    backward: Flags
    weight_gradient: Flags
    memory_bytes: Ints
    is_host: Flags
    link_class: Ints
    transfer_ns: Ints
    host_ns: Ints

    @property
    def num_groups(self) -> int:
        """Number of colocation groups, single ops included."""
        return int(self.group.max()) + 1

    @property
    def group_bytes(self) -> Ints:
        """Resident bytes of each colocation group, (g,)."""
        size = np.zeros(self.num_groups, np.int64)
        np.add.at(size, self.group, self.resident_bytes)
        return size

    @property
    def group_runs(self) -> Flags:
        """Whether a device runs all ops of a colocation group, (g, K)."""
        runs = np.ones((self.num_groups, self.time_ns.shape[1]), np.bool_)
        np.logical_and.at(runs, self.group, self.time_ns != UNSUPPORTED)
        return runs


def derive_arrays(instance: Instance) -> Arrays:
    """Build the arrays of an instance; O(n K + m + t L)."""
    ops, devices = instance.graph.ops, instance.cluster.devices
    kinds = list(dict.fromkeys(device.kind for device in devices))
    by_kind = np.array(
        [[op.time_ns.get(kind, UNSUPPORTED) for kind in kinds] for op in ops], np.int64
    )
    link_class, transfer_ns = transfer_times(instance.graph, instance.cluster)
    host_ns = host_times(instance.graph, link_class, transfer_ns)
    _check_total(instance, by_kind, transfer_ns, host_ns)
    arrays = Arrays(
        index=instance.graph.index,
        time_ns=np.ascontiguousarray(by_kind[:, [kinds.index(d.kind) for d in devices]]),
        resident_bytes=np.array([op.resident_bytes for op in ops], np.int64),
        group=_groups(instance),
        backward=np.array([op.backward for op in ops], np.bool_),
        weight_gradient=np.array([op.backward and op.weight_gradient for op in ops], np.bool_),
        memory_bytes=np.array(
            [NO_LIMIT if d.memory_bytes is None else d.memory_bytes for d in devices], np.int64
        ),
        is_host=np.array([device.is_host for device in devices], np.bool_),
        link_class=link_class,
        transfer_ns=transfer_ns,
        host_ns=host_ns,
    )
    freeze(arrays)
    return arrays


def _check_total(instance: Instance, time_ns: Ints, transfer_ns: Ints, host_ns: Ints) -> None:
    """No makespan and no load may reach 2**62: kernels add in int64, and use it as infinity."""
    tensor = instance.graph.index.tensor
    total = sum(time_ns.max(axis=1).tolist())
    total += sum(transfer_ns.max(axis=1, initial=0)[tensor].tolist())
    total += 2 * sum(host_ns.max(axis=1, initial=0).tolist())
    if total >= NO_LIMIT:
        raise ValueError(f"ops and edges: their times sum to {total} ns, above 2**62")


def _groups(instance: Instance) -> Ints:
    number: dict[object, int] = {}
    return np.array(
        [
            number.setdefault(i if op.colocation is None else op.colocation, len(number))
            for i, op in enumerate(instance.graph.ops)
        ],
        np.int64,
    )
