"""Constraint families that the models share.

Constraint families are plain functions that a ``build`` calls; each adds one component, of its own
name, to the model. Models number ops, edges and devices as the instance does, and hold

- ``x[i, k]`` in {0, 1}: op i is on device k. It is fixed to 0 where that is not possible.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from placegap.formulations.shared import NO_SOLUTION
from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.graph_index import first_of
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:  # half of this module serves CP-SAT, which need not wait for Pyomo to load
    import pyomo.environ as pyo

Linear = Any
"""A linear expression or constraint of Pyomo, which is untyped."""

LARGEST_CAPACITY = 10**6
"""Models count memory in a unit that keeps capacities at or below this number."""


def first_of_group(instance: Instance) -> list[int]:
    """The first op of each op's colocation group."""
    first: list[int] = first_of(instance.arrays.group).tolist()
    return first


def place_ops(model: pyo.ConcreteModel, possible: Flags) -> None:
    """Variables ``x[i, k]`` in {0, 1}, fixed to 0 where device k is not possible for op i."""
    import pyomo.environ as pyo

    num_ops, num_devices = possible.shape
    model.x = pyo.Var(range(num_ops), range(num_devices), domain=pyo.Binary)
    for i, k in zip(*(axis.tolist() for axis in np.nonzero(~possible)), strict=True):
        model.x[i, k].fix(0)


def assign_once(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Moirai (4c), and in all models: sum over k of x[i, k] == 1 for every op i."""
    x, devices = model.x, range(instance.num_devices)

    @model.Constraint(range(instance.num_ops))
    def assign_once(_: pyo.ConcreteModel, i: int) -> Linear:
        return sum(x[i, k] for k in devices) == 1


def colocate_ops(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Tarnawski et al., colour classes; placegap's own elsewhere: x[i, k] == x[j, k] for every op i
    of a colocation group, j its first op, every device k.
    """
    x, home = model.x, first_of_group(instance)

    @model.Constraint([i for i, j in enumerate(home) if i != j], range(instance.num_devices))
    def colocate_ops(_: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return x[i, k] == x[home[i], k]


def memory_capacity(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Moirai (5), and in all models: sum over i of m_i x[i, k] <= M_k for every device k that
    cannot hold all ops.

    In units of the greatest common divisor of the sizes, where that leaves capacities up to
    `LARGEST_CAPACITY`: integers, which solvers keep exact. Otherwise scaled to that capacity and
    wider by one unit: the rows let plans through that exceed a device by a millionth, and none that
    fits is lost. `exclude_overload` takes those plans out when they come up.
    """
    size = instance.arrays.resident_bytes.tolist()
    capacity = instance.arrays.memory_bytes.tolist()
    common = math.gcd(*size) or 1
    x, heavy = model.x, [i for i, size_bytes in enumerate(size) if size_bytes]

    @model.Constraint([k for k, limit in enumerate(capacity) if limit < sum(size)])
    def memory_capacity(_: pyo.ConcreteModel, k: int) -> Linear:
        limit = capacity[k] // common
        if limit <= LARGEST_CAPACITY:
            return sum(min(size[i] // common, limit + 1) * x[i, k] for i in heavy) <= limit
        unit, most = capacity[k] / LARGEST_CAPACITY, 2 * capacity[k]
        return sum(min(size[i], most) / unit * x[i, k] for i in heavy) <= LARGEST_CAPACITY + 1


def exclude_overload(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> bool:
    """Add rows that exclude a plan which exceeds a device's memory; False if it does not.

    The ops S on an overloaded device k are reduced to a minimal cover, the largest first:
    sum over i in S of x[i, l] <= |S| - 1 for every device l that cannot hold S either.
    """
    import pyomo.environ as pyo

    size, capacity = instance.arrays.resident_bytes.tolist(), instance.arrays.memory_bytes.tolist()
    device = plan.devices.tolist()
    if model.component("memory_cover") is None:
        model.memory_cover = pyo.ConstraintList(doc="Placegap's own: minimal covers")
    before = len(model.memory_cover)
    for k, limit in enumerate(capacity):
        cover, total = [], 0
        for i in sorted(range(len(size)), key=lambda i: -size[i]):
            if device[i] == k and total <= limit:
                cover.append(i)
                total += size[i]
        if total > limit:
            for other in range(len(capacity)):
                if total > capacity[other]:
                    model.memory_cover.add(sum(model.x[i, other] for i in cover) <= len(cover) - 1)
    return len(model.memory_cover) > before


# -------------------------------------------------------------------------------- into and out of x


def set_placement(model: pyo.ConcreteModel, plan: Plan) -> None:
    """Set the values of x to those of a plan."""
    device = plan.devices.tolist()
    for (i, k), variable in model.x.items():
        if not variable.fixed:
            variable.set_value(int(device[i] == k))


def solved(model: pyo.ConcreteModel, name: str) -> dict[Any, float]:
    """The values of a variable in a solution; an InputError if the model holds none."""
    import pyomo.environ as pyo

    values = {index: variable.value for index, variable in model.component(name).items()}
    goals = model.component_data_objects(pyo.Objective, active=True)
    # If all of x is fixed, it has values without any solve: so objectives are checked, too.
    if None in values.values() or None in [pyo.value(goal, exception=False) for goal in goals]:
        raise InputError(NO_SOLUTION)
    return values


def placement(model: pyo.ConcreteModel, num_ops: int, of: str = "x") -> list[int]:
    """The device of each op from the values of x, or the index of another variable of each op."""
    best = [(-1.0, 0)] * num_ops
    for (i, k), value in solved(model, of).items():
        best[i] = max(best[i], (value, -k))
    return [-k for _, k in best]
