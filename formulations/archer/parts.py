"""Chain plans seen as a few parts in a row: what the max-load models of Archer et al. share.

A chain plan is a row of devices. A model's parts are groups of neighbours in that row: every device
by itself in the exact model, all devices before one, that device, and all behind it in the bounds.
The cost f of a set of ops is its compute and, once for each tensor, the bytes in and out; sums of
f over devices are at least f of the union, because a tensor that crosses the border of a union
crosses the border of a member. So whatever devices do within a load T, a part of c of them has
f <= c T and c times their memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyomo.environ as pyo

from placegap.formulations.archer import LeastCosts, Units
from placegap.formulations.shared.families import LARGEST_CAPACITY, Linear
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import LoadRule


class ChainPart(NamedTuple):
    """Some devices of a chain.

    Attributes
    ----------
    position : int
        Parts of equal position may feed each other, others only a later one.
    kind : Kind
    budget : int
        Number of the `Budget` it shares.
    """

    position: int
    kind: LeastCosts
    budget: int


class Budget(NamedTuple):
    """What parts have together.

    Attributes
    ----------
    devices : int
    memory_bytes : int
        Of all of them.
    """

    devices: int
    memory_bytes: int


Parts = Mapping[int, ChainPart]
"""The parts of a model by number."""


def share(kind: LeastCosts, devices: int) -> Budget:
    """The budget of so many devices of a kind."""
    return Budget(devices, devices * kind.memory_bytes)


# ------------------------------------------------------------------------------------------- models


def build_parts(
    name: str,
    instance: Instance,
    units: Units,
    parts: Parts,
    budgets: Sequence[Budget],
    load: LoadRule,
    at_least_ns: int,
) -> pyo.ConcreteModel:
    """Minimize the T within which the parts of a chain can have their loads."""
    unit_ns = time_unit_ns(units.horizon_ns, granularity_ns(instance, transfers=False))
    model = pyo.ConcreteModel(name=f"{name}: {instance.name}")
    model.unit_ns = pyo.Param(initialize=unit_ns)
    model.largest = pyo.Var(bounds=(at_least_ns / unit_ns, None))
    place_units(model, units, parts)
    crossing_variables(model, units, parts)
    assign_units(model, units, parts)
    keep_together(model, units, parts)
    chain_prefix(model, units, parts)
    tensor_leaves(model, units)
    tensor_enters(model, units)
    memory_budget(model, units, parts, budgets)
    load_budget(model, units, parts, budgets, load)
    model.objective = pyo.Objective(expr=model.largest)
    return model


def count_rows(units: Units, parts: Parts) -> int:
    """At most so many rows of `build_parts`, without building."""
    num_ops, positions = len(units.unit), len({part.position for part in parts.values()})
    priced = sum(any(part.kind.weight_ns) for part in parts.values())
    crossings = 2 * priced * sum(len(pins) - 1 for pins in units.pins)
    together = (num_ops - units.num_units) * len(parts)
    order = (positions - 1) * len(units.arcs)
    return units.num_units + together + order + crossings + 3 * len(parts)


def place_units(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """``x[i, p]`` in {0, 1}: op i is in part p; fixed to 0 where its unit cannot be."""
    model.x = pyo.Var(range(len(units.unit)), list(parts), domain=pyo.Binary)
    for p, part in parts.items():
        for i, v in enumerate(units.unit):
            if part.kind.time_ns[v] == UNSUPPORTED:
                model.x[i, p].fix(0)


def crossing_variables(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """``leaves[e, p]``, ``enters[e, p]`` in [0, 1]: net e is cut at part p.

    One stands for tensors out of the part and one for those into it, seen from the net's first pin;
    integral where x is, and only where a cut costs something.
    """
    priced = [
        (e, p)
        for e in range(len(units.pins))
        for p, part in parts.items()
        if part.kind.weight_ns[e]
    ]
    model.leaves = pyo.Var(priced, bounds=(0, 1))
    model.enters = pyo.Var(priced, bounds=(0, 1))


def assign_units(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """Sum over p of x[i, p] == 1 for the first op i of every unit."""

    @model.Constraint(range(units.num_units))
    def assign_units(model: pyo.ConcreteModel, v: int) -> Linear:
        return sum(model.x[units.first[v], p] for p in list(parts)) == 1


def keep_together(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """x[i, p] == x[j, p] for every op i of a unit, j its first op, every part p."""
    first = [units.first[v] for v in units.unit]

    @model.Constraint([i for i, j in enumerate(first) if i != j], list(parts))
    def keep_together(model: pyo.ConcreteModel, i: int, p: int) -> Linear:
        return model.x[i, p] == model.x[first[i], p]


def chain_prefix(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """The parts up to every position form an ideal: for every arc (a, b) and position s

    sum over the parts p up to s of x[a, p] >= the same sum for b,

    stated on the parts behind s where these are fewer (the other way round, as both sums are 1).
    """
    first, positions = units.first, sorted({part.position for part in parts.values()})

    @model.Constraint(range(len(units.arcs)), positions[:-1])
    def chain_prefix(model: pyo.ConcreteModel, arc: int, s: int) -> Linear:
        a, b = (first[v] for v in units.arcs[arc])
        until = [p for p, part in parts.items() if part.position <= s]
        behind = [p for p, part in parts.items() if part.position > s]
        if len(until) <= len(behind):
            return sum(model.x[a, p] for p in until) >= sum(model.x[b, p] for p in until)
        return sum(model.x[b, p] for p in behind) >= sum(model.x[a, p] for p in behind)


def tensor_leaves(model: pyo.ConcreteModel, units: Units) -> None:
    """leaves[e, p] >= x[i, p] - x[j, p], i the first pin of net e and j any other."""
    rows = [(e, p, v) for e, p in model.leaves for v in units.pins[e][1:]]

    @model.Constraint(rows)
    def tensor_leaves(model: pyo.ConcreteModel, e: int, p: int, v: int) -> Linear:
        i, j = units.first[units.pins[e][0]], units.first[v]
        return model.leaves[e, p] >= model.x[i, p] - model.x[j, p]


def tensor_enters(model: pyo.ConcreteModel, units: Units) -> None:
    """enters[e, p] >= x[j, p] - x[i, p], i the first pin of net e and j any other."""
    rows = [(e, p, v) for e, p in model.enters for v in units.pins[e][1:]]

    @model.Constraint(rows)
    def tensor_enters(model: pyo.ConcreteModel, e: int, p: int, v: int) -> Linear:
        i, j = units.first[units.pins[e][0]], units.first[v]
        return model.enters[e, p] >= model.x[j, p] - model.x[i, p]


def memory_budget(
    model: pyo.ConcreteModel, units: Units, parts: Parts, budgets: Sequence[Budget]
) -> None:
    """Sum over the units v and parts p of a budget of m_v x[v, p] <= its memory.

    In exact units where that leaves small numbers, else scaled and a little wide, as in
    `shared.families.memory_capacity`.
    """
    common, total = math.gcd(*units.size) or 1, sum(units.size)
    heavy = [v for v, size in enumerate(units.size) if size]

    @model.Constraint([g for g, budget in enumerate(budgets) if budget.memory_bytes < total])
    def memory_budget(model: pyo.ConcreteModel, g: int) -> Linear:
        limit = budgets[g].memory_bytes
        exact = limit // common <= LARGEST_CAPACITY
        unit = common if exact else limit / LARGEST_CAPACITY
        right = limit // common if exact else LARGEST_CAPACITY + 1
        most = 2 * limit + common  # no op of this size fits either
        return (
            sum(
                min(units.size[v], most) / unit * model.x[units.first[v], p]
                for p, part in parts.items()
                if part.budget == g
                for v in heavy
            )
            <= right
        )


def load_budget(
    model: pyo.ConcreteModel,
    units: Units,
    parts: Parts,
    budgets: Sequence[Budget],
    load: LoadRule,
) -> None:
    """Devices of a budget times ``largest`` >= the load of its parts.

    Compute is the sum over v and p of t_v x[v, p], communication the sum over e and p of
    w_e (leaves[e, p] + enters[e, p]); ``add`` takes their sum in one row, ``overlap`` each in one.
    """
    unit_ns = pyo.value(model.unit_ns)
    compute: list[list[Linear]] = [[] for _ in budgets]
    communication: list[list[Linear]] = [[] for _ in budgets]
    for p, part in parts.items():
        for v, time in enumerate(part.kind.time_ns):
            if time > 0:
                compute[part.budget].append(time / unit_ns * model.x[units.first[v], p])
    for (e, p), leaves in model.leaves.items():
        weight = parts[p].kind.weight_ns[e] / unit_ns
        communication[parts[p].budget].append(weight * (leaves + model.enters[e, p]))
    terms = [
        (g, what)
        for g in range(len(budgets))
        for what in (
            [compute[g] + communication[g]] if load == "add" else [compute[g], communication[g]]
        )
        if what
    ]

    @model.Constraint(range(len(terms)))
    def load_budget(model: pyo.ConcreteModel, row: int) -> Linear:
        g, what = terms[row]
        return budgets[g].devices * model.largest >= sum(what)
