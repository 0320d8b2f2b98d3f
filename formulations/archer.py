"""Max-load over chains: the exact MIP of Archer et al., and the units that bounds are computed on.

Archer, Fahrbach, Liu, Prabhu, "Practical Performance Guarantees for Pipelined DNN Inference" (ICML
2024), after the short definitions at hand: f of a set of ops is its work plus the bytes in and out,
each tensor once; k blocks with acyclic quotient; minimize the largest f, T.

Claim, for ``max_load chain`` with ``add`` or ``overlap`` loads: exact if all devices are identical
accelerators: equal times, memory and host times, no host, one block per device. On other clusters
it is a relaxation: each op takes its least time, each tensor its least host time (0 if there is a
host), every block the largest memory. It bounds no plans of class ``convex`` or ``any``: the rows
of a chain need an acyclic quotient, and two convex devices may feed each other ({1, 4} and {2, 3}
with edges 1 -> 2 and 3 -> 4): then neither is before the other.

Components:

- ``x[i, p]`` in {0, 1}: op i is in block p;
- ``leaves[e, p]``, ``enters[e, p]`` in [0, 1]: net e is cut at block p;
- ``largest``: T, in units of ``unit_ns`` nanoseconds.

The model places *units*, the ops that every chain plan keeps together (`instances.problem.blocks`):
colocation groups, and groups that reach each other in both directions. Communication is counted on
nets (`instances.problem.nets`): tensors with the same pins, in units, add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import (
    LARGEST_CAPACITY,
    Linear,
    placement,
    set_placement,
)
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, LoadRule, MaxLoad, Plan, Semantics
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets
from placegap.instances.referee.loads import combine, device_loads


def build_exact(
    instance: Instance, semantics: MaxLoad, num_blocks: int | None = None, *, names: bool = False
) -> pyo.ConcreteModel:
    """The exact model: x[i, p], op i is in block p of the chain.

    Rows: every unit in one block; for every arc and every p the blocks up to p form an ideal (the
    prefix rows of the paper); f(p) <= T for every block p.

    Parameters
    ----------
    semantics : MaxLoad
        ``max_load chain``.
    num_blocks : int, optional
        k; the default is the number of devices, which is what the claim needs.
    names : bool
        Index the components by the names of ops, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``. Constraints can be added.
    """
    k = instance.num_devices if num_blocks is None else num_blocks
    _refuse(semantics, k)
    units = build_units(instance, alike=True)
    unit_ns = time_unit_ns(units.horizon_ns, granularity_ns(instance, transfers=False))
    model = pyo.ConcreteModel(name=f"archer exact: {instance.name}")
    model.unit_ns = pyo.Param(initialize=unit_ns)
    model.largest = pyo.Var(bounds=(0.0, None))
    place_units(model, units, k)
    crossing_variables(model, units, k)
    assign_units(model, units, k)
    keep_together(model, units, k)
    chain_prefix(model, units, k)
    tensor_leaves(model, units)
    tensor_enters(model, units)
    memory_budget(model, units, k)
    load_budget(model, units, k, semantics.load)
    model.objective = pyo.Objective(expr=model.largest, doc="Archer et al.: T")
    own = names_of(instance) if names else {}
    return describe(model, __doc__, {letter: own[letter] for letter in "ij"} if own else None)


def why_not(semantics: Semantics) -> str | None:
    """Why the models do not bound a semantics, or None if they do."""
    if semantics != MaxLoad(plans="chain", load=getattr(semantics, "load", "add")):
        return f"states max_load chain, not {semantics.label}"
    return None


def count_rows(instance: Instance) -> int:
    """Rows that the model of k = K blocks makes at most, without building it."""
    units, k = build_units(instance, alike=True), instance.num_devices
    crossings = 2 * sum(len(pins) - 1 for pins in units.pins)
    together = (len(units.unit) - units.num_units) * k
    priced = k if any(units.accelerators.weight_ns) else 0
    order = (k - 1) * len(units.arcs)
    return units.num_units + together + order + priced * crossings + 3 * k


def horizon_ns(instance: Instance) -> int:
    """An upper bound on max_load: all units at their slowest, all nets in and out."""
    return build_units(instance).horizon_ns


def _refuse(semantics: MaxLoad, num_blocks: int) -> None:
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"the model of Archer et al. {reason}")
    if num_blocks < 1:
        raise ValueError("there must be at least one block")


# -------------------------------------------------------------------------------------------- units


@dataclass(frozen=True, eq=False)
class LeastCosts:
    """Least costs of units and nets on some devices, and the largest memory of one of them."""

    #: Least time of each unit; `UNSUPPORTED` if none of the devices can run and hold it.
    time_ns: list[int]
    #: Least cost of each net if it is cut.
    weight_ns: list[int]
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class Units:
    """An instance with n ops contracted to u units, and its e nets."""

    #: Unit of each op.
    unit: list[int]
    #: An op of each unit, the first.
    first: list[int]
    #: Resident bytes.
    size: list[int]
    #: (a, b): Unit a is never in a later part than unit b.
    arcs: list[tuple[int, int]]
    #: Units of each net.
    pins: list[list[int]]
    accelerators: LeastCosts
    hosts: LeastCosts
    #: num_accelerators, num_hosts: Where all devices are hosts, they count as accelerators whose
    #: nets cost nothing.
    num_accelerators: int
    num_hosts: int

    @property
    def num_units(self) -> int:
        """Number of units."""
        return len(self.first)

    @property
    def horizon_ns(self) -> int:
        """An upper bound on the optimal max_load if any plan is feasible without memory limits."""
        kinds = (self.accelerators, self.hosts)
        ops = (max(times) for times in zip(*(kind.time_ns for kind in kinds), strict=True))
        return int(sum(max(0, time) for time in ops) + 2 * sum(self.accelerators.weight_ns))


def build_units(instance: Instance, *, alike: bool = False) -> Units:
    """Contract an instance; O(n K + m) but for sorting.

    With `alike`, all devices are one kind, hosts included, with the least of each cost.
    """
    arrays = instance.arrays
    blocks = contract(instance, merge_idle=False)
    nets = build_nets(instance, blocks.block)
    first = np.unique(blocks.block, return_index=True)[1]
    accelerators, hosts = (np.flatnonzero(arrays.is_host == host) for host in (False, True))
    if alike or len(accelerators) == 0:
        accelerators, hosts = np.arange(instance.num_devices), np.zeros(0, np.int64)

    def kind(devices: Ints) -> LeastCosts:
        return _kind(
            blocks.time_ns, blocks.resident_bytes, nets.weight_ns, arrays.memory_bytes, devices
        )

    return Units(
        unit=blocks.block.tolist(),
        first=first.tolist(),
        size=blocks.resident_bytes.tolist(),
        arcs=list(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True)),
        pins=[pins.tolist() for pins in np.split(nets.pin, nets.net_ptr[1:-1])][: nets.num_nets],
        accelerators=kind(accelerators),
        hosts=kind(hosts),
        num_accelerators=len(accelerators),
        num_hosts=len(hosts),
    )


def _kind(time_ns: Ints, size: Ints, weight_ns: Ints, memory: Ints, devices: Ints) -> LeastCosts:
    if len(devices) == 0:
        return LeastCosts([UNSUPPORTED] * len(size), [0] * len(weight_ns), 0)
    fits = (time_ns[:, devices] != UNSUPPORTED) & (size[:, None] <= memory[devices])
    never = np.iinfo(np.int64).max
    least = np.where(fits, time_ns[:, devices], never).min(axis=1)
    return LeastCosts(
        np.where(least == never, UNSUPPORTED, least).tolist(),
        weight_ns[:, devices].min(axis=1).tolist(),
        int(memory[devices].max()),
    )


# ---------------------------------------------------------------------------------------- the model


def place_units(model: pyo.ConcreteModel, units: Units, k: int) -> None:
    """``x[i, p]`` in {0, 1}: op i is in block p; fixed to 0 where its unit cannot be."""
    model.x = pyo.Var(range(len(units.unit)), range(k), domain=pyo.Binary)
    for p in range(k):
        for i, v in enumerate(units.unit):
            if units.accelerators.time_ns[v] == UNSUPPORTED:
                model.x[i, p].fix(0)


def crossing_variables(model: pyo.ConcreteModel, units: Units, k: int) -> None:
    """``leaves[e, p]``, ``enters[e, p]`` in [0, 1]: net e is cut at block p.

    One stands for tensors out of the block and one for those into it, seen from the net's first
    pin; integral where x is, and only where a cut costs something.
    """
    priced = [
        (e, p) for e, cost in enumerate(units.accelerators.weight_ns) if cost for p in range(k)
    ]
    model.leaves = pyo.Var(priced, bounds=(0, 1))
    model.enters = pyo.Var(priced, bounds=(0, 1))


def assign_units(model: pyo.ConcreteModel, units: Units, k: int) -> None:
    """Archer et al., x_vb: sum over p of x[i, p] == 1 for the first op i of every unit."""

    @model.Constraint(range(units.num_units))
    def assign_units(model: pyo.ConcreteModel, v: int) -> Linear:
        return sum(model.x[units.first[v], p] for p in range(k)) == 1


def keep_together(model: pyo.ConcreteModel, units: Units, k: int) -> None:
    """Archer et al., x_vb: x[i, p] == x[j, p] for every op i of a unit, j its first op, every block
    p.
    """
    first = [units.first[v] for v in units.unit]

    @model.Constraint([i for i, j in enumerate(first) if i != j], range(k))
    def keep_together(model: pyo.ConcreteModel, i: int, p: int) -> Linear:
        return model.x[i, p] == model.x[first[i], p]


def chain_prefix(model: pyo.ConcreteModel, units: Units, k: int) -> None:
    """Archer et al., prefix rows: the blocks up to every s form an ideal.

    For every arc (a, b) and block s

    sum over the blocks p up to s of x[a, p] >= the same sum for b,

    stated on the blocks behind s where these are fewer (reversed, as both sums over all are 1).
    """
    first = units.first

    @model.Constraint(range(len(units.arcs)), range(k - 1))
    def chain_prefix(model: pyo.ConcreteModel, arc: int, s: int) -> Linear:
        a, b = (first[v] for v in units.arcs[arc])
        until, behind = range(s + 1), range(s + 1, k)
        if len(until) <= len(behind):
            return sum(model.x[a, p] for p in until) >= sum(model.x[b, p] for p in until)
        return sum(model.x[b, p] for p in behind) >= sum(model.x[a, p] for p in behind)


def tensor_leaves(model: pyo.ConcreteModel, units: Units) -> None:
    """Archer et al., bytes out: leaves[e, p] >= x[i, p] - x[j, p], i the first pin of net e and j
    any other.
    """
    rows = [(e, p, v) for e, p in model.leaves for v in units.pins[e][1:]]

    @model.Constraint(rows)
    def tensor_leaves(model: pyo.ConcreteModel, e: int, p: int, v: int) -> Linear:
        i, j = units.first[units.pins[e][0]], units.first[v]
        return model.leaves[e, p] >= model.x[i, p] - model.x[j, p]


def tensor_enters(model: pyo.ConcreteModel, units: Units) -> None:
    """Archer et al., bytes in: enters[e, p] >= x[j, p] - x[i, p], i the first pin of net e and j
    any other.
    """
    rows = [(e, p, v) for e, p in model.enters for v in units.pins[e][1:]]

    @model.Constraint(rows)
    def tensor_enters(model: pyo.ConcreteModel, e: int, p: int, v: int) -> Linear:
        i, j = units.first[units.pins[e][0]], units.first[v]
        return model.enters[e, p] >= model.x[j, p] - model.x[i, p]


def memory_budget(model: pyo.ConcreteModel, units: Units, k: int) -> None:
    """Placegap's own: sum over units v of m_v x[v, p] <= the memory of a block.

    In exact units where that leaves small numbers, else scaled and a little wide, as in
    `shared.families.memory_capacity`.
    """
    common, limit = math.gcd(*units.size) or 1, units.accelerators.memory_bytes
    heavy = [v for v, size in enumerate(units.size) if size]
    exact = limit // common <= LARGEST_CAPACITY
    unit = common if exact else limit / LARGEST_CAPACITY
    right = limit // common if exact else LARGEST_CAPACITY + 1
    most = 2 * limit + common  # no op of this size fits either

    @model.Constraint(range(k if limit < sum(units.size) else 0))
    def memory_budget(model: pyo.ConcreteModel, p: int) -> Linear:
        return (
            sum(min(units.size[v], most) / unit * model.x[units.first[v], p] for v in heavy)
            <= right
        )


def load_budget(model: pyo.ConcreteModel, units: Units, k: int, load: LoadRule) -> None:
    """Archer et al., f(b) <= T: ``largest`` >= the load of every block.

    Compute is the sum over v of t_v x[v, p], communication the sum over e of
    w_e (leaves[e, p] + enters[e, p]); ``add`` takes their sum in one row, ``overlap`` each in one.
    """
    unit_ns, kind = pyo.value(model.unit_ns), units.accelerators
    terms: list[list[Linear]] = []
    for p in range(k):
        compute = [
            time / unit_ns * model.x[units.first[v], p]
            for v, time in enumerate(kind.time_ns)
            if time > 0
        ]
        communication = [
            cost / unit_ns * (model.leaves[e, p] + model.enters[e, p])
            for e, cost in enumerate(kind.weight_ns)
            if cost
        ]
        parts = [compute + communication] if load == "add" else [compute, communication]
        terms += filter(None, parts)

    @model.Constraint(range(len(terms)))
    def load_budget(model: pyo.ConcreteModel, row: int) -> Linear:
        return model.largest >= sum(terms[row])


# ------------------------------------------------------------------------------------ plans in, out


@by_number
def warm_start(
    model: pyo.ConcreteModel, instance: Instance, plan: Plan, semantics: MaxLoad
) -> None:
    """Set all variables of an exact model of k = K blocks to a feasible chain plan.

    Blocks are the devices in a topological order of their quotient.
    """
    units, place = build_units(instance, alike=True), _places(instance, plan)
    set_placement(model, Plan.on(place))
    for e, b in model.leaves:
        here = [place[units.first[v]] == b for v in units.pins[e]]
        model.leaves[e, b].set_value(int(here[0] and not all(here)))
        model.enters[e, b].set_value(int(not here[0] and any(here)))
    load = combine(semantics.load, *device_loads(instance, plan.devices))
    model.largest.set_value(int(load.max()) / pyo.value(model.unit_ns))


@by_number
def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan of an exact model's values: block b on device b."""
    return Plan.on(placement(model, instance.num_ops))


def _places(instance: Instance, plan: Plan) -> list[int]:
    """The block of each op."""
    units, device = build_units(instance, alike=True), plan.devices.tolist()
    home = [device[i] for i in units.first]
    quotient: nx.DiGraph[int] = nx.DiGraph()
    quotient.add_nodes_from(range(instance.num_devices))
    quotient.add_edges_from((home[a], home[b]) for a, b in units.arcs if home[a] != home[b])
    order = list(nx.lexicographical_topological_sort(quotient))
    return [order.index(k) for k in device]
