"""Constraint families that the models share, over the Sets and Params of `data`.

A family is a plain function that a ``build`` calls. It adds components of its own name, and its
docstring documents them. Every model has

- ``x[i, k]`` in {0, 1}: op i is on device k. It is fixed to 0 where that is not possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.data import NotAbove, add_data, family
from placegap.formulations.shared.devices import first_uses, representative_devices
from placegap.formulations.shared.pairs import grouped
from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.device_classes import Classes
from placegap.instances.problem.graph_index import first_of

Linear = Any  # a linear expression or constraint of Pyomo, which is untyped
LARGEST_CAPACITY = 10**6  # in the units in which models count memory


def first_of_group(instance: Instance) -> list[int]:
    """The first op of each op's colocation group."""
    first: list[int] = first_of(instance.arrays.group).tolist()
    return first


@family
def place_ops(model: pyo.ConcreteModel, possible: Flags) -> None:
    r"""x[i, k] in {0, 1}: op i is on device k; fixed to 0 where that is not possible.

    $x_{ik} \in \lbrace 0, 1 \rbrace$
    """
    ops, devices = list(model.OPS), list(model.DEVICES)
    places = [(ops[i], devices[k]) for i, k in np.argwhere(possible).tolist()]
    model.PLACES = pyo.Set(initialize=places, dimen=2, doc="(i, k): where ops can be")
    model.x = pyo.Var(model.OPS, model.DEVICES, domain=pyo.Binary)
    for i, k in np.argwhere(~possible).tolist():
        model.x[ops[i], devices[k]].fix(0)


def op_work(model: pyo.ConcreteModel, by: int) -> dict[str, list[Linear]]:
    """The terms p_ik x[i, k], in units, of each op i (by = 0) or of each device k (by = 1)."""
    unit_ns, duration_ns, x = model.unit_ns.value, model.duration_ns, model.x
    return grouped((at[by], duration_ns[at] / unit_ns * x[at]) for at in model.PLACES)


@family
def assign_once(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4c), and in all models: sum over k of x[i, k] == 1 for every op i.

    $\sum_k x_{ik} = 1$
    """

    @model.Constraint(model.OPS)
    def assign_once(model: pyo.ConcreteModel, i: str) -> Linear:
        return sum(model.x[i, k] for k in model.DEVICES) == 1


@family
def colocate_ops(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Tarnawski et al., colour classes; placegap's own elsewhere: x[i, k] == x[j, k] for every op
    i of a colocation group, j its first op, every device k.

    $x_{ik} = x_{jk}$
    """
    ops = list(model.OPS)
    home = {ops[i]: ops[j] for i, j in enumerate(first_of_group(instance)) if i != j}

    @model.Constraint(list(home), model.DEVICES)
    def colocate_ops(model: pyo.ConcreteModel, i: str, k: str) -> Linear:
        return model.x[i, k] == model.x[home[i], k]


@family
def memory_capacity(
    model: pyo.ConcreteModel, instance: Instance, needed: Iterable[int] = ()
) -> None:
    r"""Moirai (5), and in all models: sum over i of m_i x[i, k] <= M_k for every device k.

    ``memory_bytes[i]`` is m, ``capacity_bytes[k]``, mutable, is M. Row k is in units of
    ``memory_unit_bytes[k]``: the greatest common divisor of the sizes, where that leaves capacities
    up to `LARGEST_CAPACITY`: integers, which solvers keep exact. Otherwise it is scaled to that
    capacity and wider by one unit: it lets plans through that exceed a device by a millionth, and
    none that fits is lost. `exclude_overload` takes those plans out when they come up. The capacity
    of `needed` devices may not change at all.

    $\sum_i m_i x_{ik} \le M_k$
    """
    arrays, kept = instance.arrays, [list(model.DEVICES)[k] for k in needed]
    given = arrays.resident_bytes.tolist(), arrays.memory_bytes.tolist()
    model.memory_capacity = memory_rows(model, model.OPS, model.DEVICES, *given, kept)


def memory_rows(
    model: pyo.ConcreteModel,
    items: pyo.Set,
    places: pyo.Set,
    bytes_of_items: list[int],
    bytes_of_places: list[int],
    kept: Sequence[str] = (),
) -> pyo.Constraint:
    """The rows of `memory_capacity` for ops, or units, of these sizes, and their Params."""
    # A place without a limit can hold everything: it counts as one with room for all ops. Where an
    # op did not fit when the model was built, x is fixed to 0: more memory needs a build.
    total, common = sum(bytes_of_items), math.gcd(*bytes_of_items) or 1
    size = dict(zip(items, bytes_of_items, strict=True))
    room = {k: min(most, total) for k, most in zip(places, bytes_of_places, strict=True)}
    unit = {k: max(common, most / LARGEST_CAPACITY) for k, most in room.items()}
    model.memory_unit_bytes = pyo.Param(
        places, initialize=unit, doc="memory_unit_bytes[k]: of the memory row of k"
    )
    model.memory_bytes = pyo.Param(
        items, initialize=size, doc="memory_bytes[i]: what op or unit i holds"
    )
    doc = "capacity_bytes[k]: memory of k, at most that of all ops"
    add_data(model, "capacity_bytes", room, doc, index=places, validate=NotAbove(room, kept))
    heavy = {i: own for i, own in size.items() if own}

    def rule(model: pyo.ConcreteModel, k: Any) -> Linear:
        used = sum(own / unit[k] * model.x[i, k] for i, own in heavy.items())
        return used <= model.capacity_bytes[k] / unit[k] + int(unit[k] != common)

    return pyo.Constraint(places if heavy else [], rule=rule)


def exclude_overload(model: pyo.ConcreteModel, plan: Plan) -> bool:
    """Add rows that exclude a plan which exceeds a device's memory; False if it does not."""
    # The ops S on an overloaded device k are reduced to a minimal cover, the largest first: sum
    # over i in S of x[i, l] <= |S| - 1 for every device l that cannot hold S either.
    if model.component("capacity_bytes") is None:  # a model of a user's own
        return False
    size = dict(model.memory_bytes.items())
    capacity = {k: limit.value for k, limit in model.capacity_bytes.items()}
    devices = list(capacity)
    home = {i: devices[k] for i, k in zip(model.OPS, plan.devices.tolist(), strict=True)}
    if model.component("memory_cover") is None:
        model.memory_cover = pyo.ConstraintList(doc="Placegap's own: minimal covers")
    before = len(model.memory_cover)
    for k, limit in capacity.items():
        cover, total = [], 0
        for i in sorted(size, key=lambda i: -size[i]):
            if home[i] == k and total <= limit:
                cover.append(i)
                total += size[i]
        if total > limit:
            for other, room in capacity.items():
                if total > room:
                    model.memory_cover.add(sum(model.x[i, other] for i in cover) <= len(cover) - 1)
    return len(model.memory_cover) > before


@family
def makespan_value(model: pyo.ConcreteModel, doc: str) -> None:
    """The makespan in nanoseconds."""
    model.makespan_ns = pyo.Expression(expr=model.unit_ns * model.makespan)
    model.objective = pyo.Objective(expr=model.makespan, doc=doc)


@family
def symmetry_order(
    model: pyo.ConcreteModel,
    instance: Instance,
    possible: Flags | None = None,
    classes: Classes | None = None,
) -> None:
    r"""Placegap's own, after Kaibel and Pfetsch: the rows of `first_uses`, for x[i, k].

    Sum over k in devices of x[i, k] <= sum over earlier ops j of x[j, earlier device]. What
    `representative_devices` rules out is fixed to 0, unless the model has done so already.

    $\sum_{k \in A} x_{ik} \le \sum_{j < i} x_{jb}$
    """
    ops, devices, x = list(model.OPS), list(model.DEVICES), model.x
    kept = representative_devices(instance, possible, classes)
    for i, k in np.argwhere(~kept).tolist():
        x[ops[i], devices[k]].fix(0)
    rows = first_uses(instance, possible, classes)
    of = {(ops[row.op], devices[row.devices[0]]): row for row in rows}

    @model.Constraint(list(of))
    def symmetry_order(_: pyo.ConcreteModel, i: str, k: str) -> Linear:
        row = of[i, k]
        earlier = sum(x[ops[j], devices[row.earlier_device]] for j in row.earlier_ops)
        return sum(x[i, devices[d]] for d in row.devices) <= earlier
