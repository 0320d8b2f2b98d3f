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

The model, for ops i in units v, blocks p, arcs (v, w) and nets e = (i, j, ...):

    minimize T
    sum over p of x_vp = 1,  x_ip = x_vp
    sum over p <= s of x_vp >= sum over p <= s of x_wp          s < k
    l_ep >= x_ip - x_jp,  n_ep >= x_jp - x_ip                   j other than the first pin i
    sum over v of t_v x_vp + sum over e of w_e (l_ep + n_ep) <= T

and placegap's own row of memory. l is ``leaves``, n ``enters``, T ``largest``; t, ``duration_ns``,
and w, ``cut_ns``, may be changed.

The model places *units*, the ops that every chain plan keeps together (`instances.problem.blocks`):
colocation groups, and groups that reach each other in both directions. Communication is counted on
nets (`instances.problem.nets`): tensors with the same pins, in units, add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared import refuse
from placegap.formulations.shared.data import (
    add_data,
    family,
    new_model,
    require_solution,
    set_values,
)
from placegap.formulations.shared.families import Linear, memory_rows
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, MaxLoad, Plan, Semantics
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.loads import combine, device_loads


def build(
    instance: Instance, semantics: MaxLoad, *, num_blocks: int | None = None
) -> pyo.ConcreteModel:
    """The exact model: x[i, p], op i is in block p of the chain.

    Parameters
    ----------
    semantics : MaxLoad
        ``max_load chain``.
    num_blocks : int, optional
        k; the default is the number of devices, which is what the claim needs.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``, in units of ``unit_ns`` nanoseconds; ``load_ns`` is its value in
        nanoseconds. ``duration_ns[unit]``, ``cut_ns[net]`` and, downwards,
        ``capacity_bytes[block]`` may be changed between solves. Constraints can be added.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), MaxLoad(plans="chain"))
    >>> len(model.x), model.duration_ns["op2"].value
    (8, 20)
    """
    k = instance.num_devices if num_blocks is None else num_blocks
    refuse("the model of Archer et al.", why_not(semantics))
    if k < 1:
        raise InputError("there must be at least one block")
    units = build_units(instance, alike=True)
    unit_ns = time_unit_ns(units.horizon_ns, granularity_ns(instance, transfers=False))
    model = new_model("archer exact", instance, semantics, unit_ns)
    model.largest = pyo.Var(bounds=(0.0, None), doc="largest: T, in units")
    model.BLOCKS = pyo.Set(initialize=range(k), doc="blocks of the chain, in its order")
    unit_sets(model, units)
    cost_data(model, units)
    place_units(model, units)
    crossing_variables(model)
    assign_units(model)
    keep_together(model, units)
    chain_prefix(model)
    tensor_leaves(model)
    tensor_enters(model)
    memory_budget(model, units)
    load_budget(model)
    model.load_ns = pyo.Expression(expr=model.unit_ns * model.largest, doc="T in nanoseconds")
    model.objective = pyo.Objective(expr=model.largest, doc="Archer et al.: T")
    return model


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
    """Contract an instance; O(n K + m) but for sorting."""
    # With `alike`, all devices are one kind, hosts included, with the least of each cost.
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


# ------------------------------------------------------------------------------- data and variables


@family
def unit_sets(model: pyo.ConcreteModel, units: Units) -> None:
    """UNITS, named by their first ops; NETS, by number: those whose cut costs something.

    And ARCS: pairs of units, the first of which is never in a later block than the second; and
    CROSSINGS: (e, p, j), a net with costs, a block, a pin other than ``first_pin[e]``.
    """
    ops = list(model.OPS)
    names = [ops[i] for i in units.first]
    model.UNITS = pyo.Set(initialize=names)
    model.ARCS = pyo.Set(initialize=[(names[a], names[b]) for a, b in units.arcs], dimen=2)
    priced = np.flatnonzero(units.accelerators.weight_ns).tolist()
    pins = {e: [names[v] for v in units.pins[e]] for e in priced}
    model.NETS = pyo.Set(initialize=list(pins))
    first = {e: own[0] for e, own in pins.items()}
    model.first_pin = pyo.Param(model.NETS, initialize=first, within=pyo.Any)
    rows = [(e, p, j) for e, own in pins.items() for p in model.BLOCKS for j in own[1:]]
    model.CROSSINGS = pyo.Set(initialize=rows, dimen=3)


@family
def cost_data(model: pyo.ConcreteModel, units: Units) -> None:
    """duration_ns[v], where a device can have unit v, and cut_ns[e]: the least costs, mutable."""
    times, weights = units.accelerators.time_ns, units.accelerators.weight_ns
    given = {v: time for v, time in zip(model.UNITS, times, strict=True) if time != UNSUPPORTED}
    add_data(model, "duration_ns", given)
    add_data(model, "cut_ns", {e: weights[e] for e in model.NETS}, index=model.NETS)


@family
def place_units(model: pyo.ConcreteModel, units: Units) -> None:
    r"""x[i, p] in {0, 1}: op i is in block p; fixed to 0 where its unit cannot be.

    $x_{ip} \in \lbrace 0, 1 \rbrace$
    """
    model.x = pyo.Var(model.OPS, model.BLOCKS, domain=pyo.Binary)
    for i, v in zip(model.OPS, units.unit, strict=True):
        if units.accelerators.time_ns[v] == UNSUPPORTED:
            for p in model.BLOCKS:
                model.x[i, p].fix(0)


@family
def crossing_variables(model: pyo.ConcreteModel) -> None:
    r"""leaves[e, p], enters[e, p] in [0, 1]: net e is cut at block p.

    One stands for tensors out of the block and one for those into it, seen from the net's first
    pin; integral where x is, and only where a cut costs something.

    $0 \le \ell_{ep}, n_{ep} \le 1$
    """
    model.leaves = pyo.Var(model.NETS, model.BLOCKS, bounds=(0, 1))
    model.enters = pyo.Var(model.NETS, model.BLOCKS, bounds=(0, 1))


# -------------------------------------------------------------------------------------- constraints


@family
def assign_units(model: pyo.ConcreteModel) -> None:
    r"""Archer et al., x_vb: sum over p of x[v, p] == 1 for every unit v, named by its first op.

    $\sum_p x_{vp} = 1$
    """

    @model.Constraint(model.UNITS)
    def assign_units(model: pyo.ConcreteModel, v: str) -> Linear:
        return sum(model.x[v, p] for p in model.BLOCKS) == 1


@family
def keep_together(model: pyo.ConcreteModel, units: Units) -> None:
    r"""Archer et al., x_vb: x[i, p] == x[v, p] for every other op i of a unit v, every block p.

    $x_{ip} = x_{jp}$
    """
    names = list(model.UNITS)
    home = {i: names[v] for i, v in zip(model.OPS, units.unit, strict=True)}

    @model.Constraint([i for i, v in home.items() if i != v], model.BLOCKS)
    def keep_together(model: pyo.ConcreteModel, i: str, p: int) -> Linear:
        return model.x[i, p] == model.x[home[i], p]


@family
def chain_prefix(model: pyo.ConcreteModel) -> None:
    r"""Archer et al., prefix rows: the blocks up to every s form an ideal.

    For every arc (v, w) and block s but the last

    sum over the blocks p up to s of x[v, p] >= the same sum for w,

    stated on the blocks behind s where these are fewer (reversed, as both sums over all are 1).

    $\sum_{p \le s} x_{vp} \ge \sum_{p \le s} x_{wp}$
    """
    x, k = model.x, len(model.BLOCKS)

    @model.Constraint(model.ARCS, range(k - 1))
    def chain_prefix(_: pyo.ConcreteModel, v: str, w: str, s: int) -> Linear:
        until, behind = range(s + 1), range(s + 1, k)
        if len(until) <= len(behind):
            return sum(x[v, p] for p in until) >= sum(x[w, p] for p in until)
        return sum(x[w, p] for p in behind) >= sum(x[v, p] for p in behind)


@family
def tensor_leaves(model: pyo.ConcreteModel) -> None:
    r"""Archer et al., bytes out: leaves[e, p] >= x[i, p] - x[j, p], i the first pin of net e and j
    any other.

    $\ell_{ep} \ge x_{ip} - x_{jp}$
    """
    first, x = model.first_pin, model.x

    @model.Constraint(model.CROSSINGS)
    def tensor_leaves(model: pyo.ConcreteModel, e: int, p: int, j: str) -> Linear:
        return model.leaves[e, p] >= x[first[e], p] - x[j, p]


@family
def tensor_enters(model: pyo.ConcreteModel) -> None:
    r"""Archer et al., bytes in: enters[e, p] >= x[j, p] - x[i, p], i the first pin of net e and j
    any other.

    $n_{ep} \ge x_{jp} - x_{ip}$
    """
    first, x = model.first_pin, model.x

    @model.Constraint(model.CROSSINGS)
    def tensor_enters(model: pyo.ConcreteModel, e: int, p: int, j: str) -> Linear:
        return model.enters[e, p] >= x[j, p] - x[first[e], p]


@family
def memory_budget(model: pyo.ConcreteModel, units: Units) -> None:
    r"""Placegap's own: sum over units v of m_v x[v, p] <= the memory of a block.

    ``memory_bytes[v]`` is m, ``capacity_bytes[p]``, mutable, the memory of block p, as in
    `shared.families.memory_capacity`.

    $\sum_v m_v x_{vp} \le M$
    """
    memory = [units.accelerators.memory_bytes] * len(model.BLOCKS)
    model.memory_budget = memory_rows(model, model.UNITS, model.BLOCKS, units.size, memory)


@family
def load_budget(model: pyo.ConcreteModel) -> None:
    r"""Archer et al., f(b) <= T: ``largest`` >= the load of every block.

    Compute is the sum over v of t_v x[v, p], communication the sum over e of
    w_e (leaves[e, p] + enters[e, p]); ``add`` takes their sum in one row, ``overlap`` each in one.

    $\sum_v t_v x_{vp} + \sum_e w_e (\ell_{ep} + n_{ep}) \le T$
    """
    unit = model.unit_ns.value

    def compute(p: int) -> Linear:
        return sum(time / unit * model.x[v, p] for v, time in model.duration_ns.items())

    def communication(p: int) -> Linear:
        pairs = ((cost / unit, e) for e, cost in model.cut_ns.items())
        return sum(cost * model.leaves[e, p] + cost * model.enters[e, p] for cost, e in pairs)

    parts = {"add": ["load"], "overlap": ["compute", "communication"]}[model.semantics.load]

    model.PARTS = pyo.Set(initialize=parts if len(model.NETS) else parts[:1], doc="of a load")

    @model.Constraint(model.BLOCKS, model.PARTS)
    def load_budget(model: pyo.ConcreteModel, p: int, part: str) -> Linear:
        work = 0 if part == "communication" else compute(p)
        return model.largest >= work + (0 if part == "compute" else communication(p))


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set all variables of a model of k = K blocks to a feasible chain plan.

    Blocks are the devices in a topological order of their quotient.
    """
    units, place = build_units(instance, alike=True), _places(instance, plan)
    home = dict(zip(model.OPS, place, strict=True))
    set_values(model.x, home.items())
    for e, p in model.leaves:
        here = [place[units.first[v]] == p for v in units.pins[e]]
        model.leaves[e, p].set_value(int(here[0] and not all(here)))
        model.enters[e, p].set_value(int(not here[0] and any(here)))
    load = combine(model.semantics.load, *device_loads(instance, plan.devices))
    model.largest.set_value(int(load.max()) / model.unit_ns.value)


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan of a model's values: block p on device p."""
    require_solution(model, instance, check=check)
    blocks = list(model.BLOCKS)
    return Plan.on([max(blocks, key=lambda p: model.x[i, p].value) for i in model.OPS])


def _places(instance: Instance, plan: Plan) -> list[int]:
    """The block of each op."""
    units, device = build_units(instance, alike=True), plan.devices.tolist()
    home = [device[i] for i in units.first]
    quotient: nx.DiGraph[int] = nx.DiGraph()
    quotient.add_nodes_from(range(instance.num_devices))
    quotient.add_edges_from((home[a], home[b]) for a, b in units.arcs if home[a] != home[b])
    order = list(nx.lexicographical_topological_sort(quotient))
    return [order.index(k) for k in device]
