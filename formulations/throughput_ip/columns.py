"""Columns of devices, and the times of the throughput IP; no model is built here.

A *column* is a set of devices that run a stage together: every single device and, where stages may
be replicated, sets of equal devices. Column k < K is device k alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Loads, Semantics
from placegap.instances.problem.device_classes import classes_of
from placegap.instances.problem.graph_index import numbered
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.loads import (
    border_costs,
    equal_devices,
    narrowest_bandwidth,
    server_costs,
    sync_ns,
)

MOST_UNEVEN = 6  # equal devices with links of different bandwidths: every set is a column


@dataclass(frozen=True)
class Columns:
    """Sets of devices that may run a stage."""

    #: "gpu0" for a device, "gpu0+gpu1" for a set of two.
    names: tuple[str, ...]
    #: Devices of each column, ascending.
    devices: tuple[tuple[int, ...], ...]
    #: Narrowest bandwidth between two devices of the column, where links give one.
    bandwidth: tuple[int | None, ...]
    #: Columns with the same number may be swapped, if they have no device in common.
    alike: tuple[int, ...]
    #: For a class of equal devices that is filled from the left, large stages first: columns that
    #: are used only if one of some other columns is.
    packed: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def first(self) -> list[int]:
        """The first device of each column: what an op takes on all of them, it takes there."""
        return [devices[0] for devices in self.devices]

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Classes of two or more single devices that may be swapped."""
        members: dict[int, list[int]] = {}
        for s, number in enumerate(self.alike):
            if len(self.devices[s]) == 1:
                members.setdefault(number, []).append(s)
        return tuple(tuple(own) for own in members.values() if len(own) > 1)

    @property
    def replicated(self) -> tuple[int, ...]:
        """Columns of two or more devices."""
        return tuple(s for s, devices in enumerate(self.devices) if len(devices) > 1)


def possible_columns(instance: Instance, columns: Columns, horizon_ns: int) -> Flags:
    """Columns that an op can be in, (n, S): its time and its weights alone fit the horizon."""
    arrays, size = instance.arrays, np.array([len(devices) for devices in columns.devices])
    possible: Flags = arrays.able[:, columns.first]
    possible &= arrays.time_ns[:, columns.first] <= size * horizon_ns
    weights = parameter_bytes(instance)
    for s in columns.replicated:
        width = columns.bandwidth[s]
        for i, weight in weights.items():
            if width is None or sync_ns(weight, int(size[s]), width) > horizon_ns:
                possible[i, s] = False
    return possible


def paid_ns(instance: Instance, semantics: Loads, columns: Columns, horizon_ns: int) -> Ints:
    """What each tensor costs at the border of each column, (t, S), in ns; hosts do not pay."""
    # A cost above the horizon excludes a crossing whatever it is: it is cut to just above it.
    most = horizon_ns * np.array([len(devices) for devices in columns.devices]) + 1
    paid = np.where(instance.arrays.is_host, 0, border_costs(instance, semantics))
    return np.asarray(np.minimum(paid[:, columns.first], most), np.int64)


def parameter_bytes(instance: Instance) -> dict[int, int]:
    """Parameter bytes of the ops that have any."""
    ops = instance.graph.ops
    return {i: op.parameter_bytes for i, op in enumerate(ops) if op.parameter_bytes}


def device_columns(instance: Instance, semantics: Loads, symmetry: bool = False) -> Columns:
    """The columns: the devices one by one, then, with replicas, sets of equal devices."""
    # If all links between the equal devices of a class have one bandwidth, its devices can be
    # exchanged: stages take them from the left, larger stages first. So a column of r devices
    # begins at the first device or after at least r others: about p^2 / 4 columns for p devices
    # instead of 2^p. Otherwise, and without `symmetry`, every set of them is a column.
    kind, num_devices = equal_devices(instance, semantics), instance.num_devices
    single = tuple((k,) for k in range(num_devices))
    if not semantics.has_replicas:
        alone = tuple(device.name for device in instance.cluster.devices)
        own = kind if symmetry else tuple(range(num_devices))
        return Columns(alone, single, (None,) * num_devices, own)
    paths = instance.cluster.widest_paths
    devices: list[tuple[int, ...]] = list(single)
    alike = [(0, 1, kind[k]) for k in range(num_devices)]
    packed: list[tuple[int, tuple[int, ...]]] = []
    for number, members in enumerate(classes_of(kind)):
        widths = {narrowest_bandwidth(paths, pair) for pair in combinations(members, 2)}
        if len(widths) > 1 or not symmetry:
            for k in members:
                alike[k] = (1, k, number)  # its links differ
            for r in range(2, len(members) + 1):
                for chosen in combinations(members, r):
                    alike.append((1, len(devices), number))
                    devices.append(chosen)
            continue
        starts: dict[tuple[int, int], int] = {(k, 1): members[k] for k in range(len(members))}
        for r in range(2, len(members) + 1):
            for a in (0, *range(r, len(members) - r + 1)):
                starts[a, r] = len(devices)
                alike.append((0, r, number))
                devices.append(members[a : a + r])
        for (a, r), s in starts.items():
            if a > 0:
                # What ends where this column begins, at least as large, must be in use.
                packed.append(
                    (s, tuple(o for (b, q), o in starts.items() if b + q == a and q >= r))
                )
    return Columns(
        _joined_names(instance, devices),
        tuple(devices),
        tuple(narrowest_bandwidth(paths, chosen) for chosen in devices),
        tuple(numbered(alike)),
        tuple(packed),
    )


def _joined_names(instance: Instance, columns: list[tuple[int, ...]]) -> tuple[str, ...]:
    own = [device.name for device in instance.cluster.devices]
    names = ["+".join(own[k] for k in devices) for devices in columns]
    times = Counter(names)  # a device may be called "a+b"
    return tuple(f"{n} #{s}" if times[n] > 1 else n for s, n in enumerate(names))


def uneven_class(instance: Instance, semantics: Semantics, symmetry: bool = False) -> int:
    """Size of the largest class of equal devices whose subsets are all columns, or 0."""
    kind, paths, largest = equal_devices(instance, semantics), instance.cluster.widest_paths, 0
    for members in classes_of(kind):
        widths = {narrowest_bandwidth(paths, pair) for pair in combinations(members, 2)}
        if len(widths) > 1 or not symmetry:
            largest = max(largest, len(members))
    return largest


def horizon_ns(instance: Instance, semantics: Loads) -> int:
    """An upper bound on every load of some optimal plan, of both passes together."""
    # Without the synchronisation of replicas, since an optimal plan may do without replicas.
    arrays = instance.arrays
    ops = np.where(arrays.time_ns == UNSUPPORTED, 0, arrays.time_ns).max(axis=1).tolist()
    border = border_costs(instance, semantics).max(axis=1, initial=0).tolist()
    most = sum(ops) + 2 * sum(border)
    if semantics.has_two_levels:
        most = max(most, sum(server_costs(instance).max(axis=1, initial=0).tolist()))
    return int(most)


def value_step_ns(instance: Instance, semantics: Loads) -> int:
    """Greatest common divisor of all times that add up to a value; 1 if shares are rounded."""
    if semantics.has_replicas:
        return 1
    arrays = instance.arrays
    ops = arrays.time_ns[arrays.time_ns != UNSUPPORTED]
    paid = [border_costs(instance, semantics)[:, ~arrays.is_host]]
    if semantics.has_two_levels:
        paid.append(server_costs(instance))
    return math.gcd(*(int(t) for part in (ops, *paid) for t in np.unique(part))) or 1
