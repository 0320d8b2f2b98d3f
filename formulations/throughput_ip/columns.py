"""Sets and data of the throughput IP: columns of devices, costs at borders, readers of tensors.

A *column* is a set of devices that run a stage together: every single device and, where stages may
be replicated, sets of equal devices. The other modules of the throughput IP number columns, not
devices; column k < K is device k alone.

Replicated stages, placegap's own rule (`placegap.instances.referee.loads`), add to the model

- ``stage[i, s]`` in {0, 1}: op i is in column s;
- ``used[s]`` in {0, 1}: column s has a stage;
- ``share[s]``, ``sync[s]`` of replicated columns: the load of each replica, and what weights add;
- ``x[i, k]``: the expression that is 1 if op i is on device k, perhaps among others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.old_families import Linear, first_of_group
from placegap.formulations.shared.pairs import consumers_of_tensors
from placegap.formulations.shared.times import time_unit_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Loads, Semantics
from placegap.instances.problem.device_classes import classes_of
from placegap.instances.problem.graph_index import numbered
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.loads import (
    border_costs,
    equal_devices,
    narrowest_bandwidth,
    server_costs,
)

MOST_UNEVEN = 6
"""Most equal devices with links of different bandwidths: every set of them is a column."""


@dataclass(frozen=True)
class Columns:
    """Sets of devices that may run a stage."""

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


@dataclass(frozen=True, eq=False)
class ThroughputSets:
    """An instance with n ops, t tensors and S columns under a semantics."""

    instance: Instance
    semantics: Loads
    columns: Columns
    #: (n, S) int64: `UNSUPPORTED` where the column's devices cannot run the op.
    time_ns: Ints
    #: (t, S) int64: Cost of a tensor at the column's border, 0 on hosts.
    border_ns: Ints
    #: Names of servers with two levels of communication, else empty.
    servers: tuple[str, ...]
    #: (S,) int64: Server of each column, or 0.
    server: Ints
    #: (t, V) int64
    server_ns: Ints
    #: Producer of each tensor.
    producer: list[int]
    #: Consumers of each tensor, every op once.
    consumers: list[list[int]]
    #: Plans with a larger value are of no interest: some optimal plan has at most this value.
    horizon_ns: int
    #: Nanoseconds per unit of model time.
    unit_ns: float

    @property
    def rounds(self) -> bool:
        """Whether the model rounds the shares of replicas up, as the referee does.

        It does if its unit is a nanosecond. Otherwise its values are up to 2 ns too low: a bound.
        """
        return self.unit_ns == 1


def throughput_data(
    instance: Instance, semantics: Loads, symmetry: bool = False, most_ns: int | None = None
) -> ThroughputSets:
    """Sets and data for `throughput_ip.build`; O(m + (n + t) S).

    With `most_ns`, the value of a known plan, larger costs are cut to just above it.
    """
    # A cost above the horizon excludes a crossing whatever it is. Cut, it no longer decides the
    # unit of time, which so fits the values of interest.
    arrays, index = instance.arrays, instance.arrays.index
    columns = device_columns(instance, semantics, symmetry)
    first = np.array([devices[0] for devices in columns.devices])
    horizon = horizon_ns(instance, semantics)
    if most_ns is not None:
        horizon = min(horizon, most_ns)
    load = horizon * np.array([len(devices) for devices in columns.devices])
    border = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    border = np.minimum(border[:, first], load + 1)
    servers: tuple[str, ...] = ()
    server, server_ns = np.zeros(len(first), np.int64), np.zeros((len(border), 0), np.int64)
    if semantics.has_two_levels:
        servers, of_device = instance.cluster.server_numbers
        server, server_ns = of_device[first], np.minimum(server_costs(instance), horizon + 1)
    return ThroughputSets(
        instance=instance,
        semantics=semantics,
        columns=columns,
        time_ns=arrays.time_ns[:, first],
        border_ns=border,
        servers=servers,
        server=server,
        server_ns=server_ns,
        producer=index.tensor_producer.tolist(),
        consumers=consumers_of_tensors(instance),
        horizon_ns=horizon,
        unit_ns=time_unit_ns(horizon, value_step_ns(instance, semantics)),
    )


def device_columns(instance: Instance, semantics: Loads, symmetry: bool = False) -> Columns:
    """The columns: the devices one by one, then, with replicas, sets of equal devices."""
    # If all links between the equal devices of a class have one bandwidth, its devices can be
    # exchanged: stages take them from the left, larger stages first. So a column of r devices
    # begins at the first device or after at least r others: about p^2 / 4 columns for p devices
    # instead of 2^p. Otherwise, and without `symmetry`, every set of them is a column.
    kind, num_devices = equal_devices(instance, semantics), instance.num_devices
    single = tuple((k,) for k in range(num_devices))
    if not semantics.has_replicas:
        return Columns(
            single, (None,) * num_devices, kind if symmetry else tuple(range(num_devices))
        )
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
        tuple(devices),
        tuple(narrowest_bandwidth(paths, chosen) for chosen in devices),
        tuple(numbered(alike)),
        tuple(packed),
    )


def uneven_class(instance: Instance, semantics: Semantics, symmetry: bool = False) -> int:
    """Size of the largest class of equal devices whose subsets are all columns, or 0."""
    kind, paths, largest = equal_devices(instance, semantics), instance.cluster.widest_paths, 0
    for members in classes_of(kind):
        widths = {narrowest_bandwidth(paths, pair) for pair in combinations(members, 2)}
        if len(widths) > 1 or not symmetry:
            largest = max(largest, len(members))
    return largest


def horizon_ns(instance: Instance, semantics: Loads) -> int:
    """An upper bound on every load of some optimal plan, of both passes together.

    Without the synchronisation of replicas, since an optimal plan may do without replicas.
    """
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


def place_stages(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: the expressions ``x[i, k]``, and the variables ``stage[i, s]``,
    ``used[s]``.
    """
    instance, columns = data.instance, data.columns
    ops, possible = range(instance.num_ops), instance.arrays.able
    model.stage = pyo.Var(ops, range(len(columns)), domain=pyo.Binary)
    model.used = pyo.Var(range(len(columns)), domain=pyo.Binary)
    for s, devices in enumerate(columns.devices):
        for i in ops:
            if not possible[i, devices[0]]:
                model.stage[i, s].fix(0)
    around = columns_around(columns, instance.num_devices)

    @model.Expression(ops, range(instance.num_devices))
    def x(model: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return sum(model.stage[i, s] for s in around[k])


def stage_assign_once(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: sum over s of stage[i, s] == 1 for every op i."""

    @model.Constraint(range(data.instance.num_ops))
    def stage_assign_once(model: pyo.ConcreteModel, i: int) -> Linear:
        return sum(model.stage[i, s] for s in range(len(data.columns))) == 1


def stage_colocate_ops(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: stage[i, s] == stage[j, s] for every op i of a group, j its first op, every
    column s.
    """
    home = first_of_group(data.instance)

    @model.Constraint([i for i, j in enumerate(home) if i != j], range(len(data.columns)))
    def stage_colocate_ops(model: pyo.ConcreteModel, i: int, s: int) -> Linear:
        return model.stage[i, s] == model.stage[home[i], s]


def stage_used(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: stage[i, s] <= used[s] for every op i and column s."""

    @model.Constraint(range(data.instance.num_ops), range(len(data.columns)))
    def stage_used(model: pyo.ConcreteModel, i: int, s: int) -> Linear:
        return model.stage[i, s] <= model.used[s]


def stage_disjoint(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: sum over the columns s around device k of used[s] <= 1, every device k."""
    around = columns_around(data.columns, data.instance.num_devices)

    @model.Constraint(range(data.instance.num_devices))
    def stage_disjoint(model: pyo.ConcreteModel, k: int) -> Linear:
        return sum(model.used[s] for s in around[k]) <= 1


def stage_packed(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: used[s] <= sum of used over the columns that may be left of s
    (`Columns.packed`).

    Equal devices are taken from the left, by large stages first: this keeps one of the ways to
    choose the devices of the stages.
    """
    before = dict(data.columns.packed)

    @model.Constraint(list(before))
    def stage_packed(model: pyo.ConcreteModel, s: int) -> Linear:
        return model.used[s] <= sum(model.used[other] for other in before[s])


def columns_around(columns: Columns, num_devices: int) -> list[list[int]]:
    """The columns that hold each device."""
    around: list[list[int]] = [[] for _ in range(num_devices)]
    for s, devices in enumerate(columns.devices):
        for k in devices:
            around[k].append(s)
    return around


def set_stages(model: pyo.ConcreteModel, column: list[int]) -> None:
    """Set stage and used to the values of a plan with op i in ``column[i]``."""
    for (i, s), variable in model.stage.items():
        if not variable.fixed:
            variable.set_value(int(column[i] == s))
    for s, variable in model.used.items():
        variable.set_value(int(s in column))
