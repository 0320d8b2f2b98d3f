"""Replicated stages of the throughput IP: ops go to columns, sets of equal devices.

placegap's own rule (`placegap.instances.referee.loads`). Beside the model's other components

- ``stage[i, s]`` in {0, 1}: op i is in column s;
- ``used[s]`` in {0, 1}: column s has a stage;
- ``x[i, k]``: the expression that is 1 if op i is on device k, perhaps among others.
"""

from __future__ import annotations

import pyomo.environ as pyo

from placegap.formulations.shared.families import Linear, possible_devices
from placegap.formulations.throughput_ip.columns import Columns, ThroughputSets


def place_stages(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Variables ``stage[i, s]`` and ``used[s]``, and the expressions ``x[i, k]``."""
    instance, columns = data.instance, data.columns
    ops, possible = range(instance.num_ops), possible_devices(instance)
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
    """Sum over s of stage[i, s] == 1 for every op i."""

    @model.Constraint(range(data.instance.num_ops))
    def stage_assign_once(model: pyo.ConcreteModel, i: int) -> Linear:
        return sum(model.stage[i, s] for s in range(len(data.columns))) == 1


def stage_colocate_ops(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """stage[i, s] == stage[j, s] for every op i of a group, j its first op, every column s."""
    first: dict[int, int] = {}
    home = [first.setdefault(g, i) for i, g in enumerate(data.instance.arrays.group.tolist())]

    @model.Constraint([i for i, j in enumerate(home) if i != j], range(len(data.columns)))
    def stage_colocate_ops(model: pyo.ConcreteModel, i: int, s: int) -> Linear:
        return model.stage[i, s] == model.stage[home[i], s]


def stage_used(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """stage[i, s] <= used[s] for every op i and column s."""

    @model.Constraint(range(data.instance.num_ops), range(len(data.columns)))
    def stage_used(model: pyo.ConcreteModel, i: int, s: int) -> Linear:
        return model.stage[i, s] <= model.used[s]


def stage_disjoint(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Sum over the columns s around device k of used[s] <= 1 for every device k."""
    around = columns_around(data.columns, data.instance.num_devices)

    @model.Constraint(range(data.instance.num_devices))
    def stage_disjoint(model: pyo.ConcreteModel, k: int) -> Linear:
        return sum(model.used[s] for s in around[k]) <= 1


def stage_packed(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """used[s] <= sum of used over the columns that may be left of s (`Columns.packed`).

    Equal devices are taken from the left, by large stages first: of the ways to choose the devices
    of a stage one is kept.
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
