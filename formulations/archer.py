"""Max-load over chains: the exact MIP of Archer et al. and two relaxations of it.

Archer, Fahrbach, Liu, Prabhu, "Practical Performance Guarantees for Pipelined DNN Inference" (ICML
2024), after the short definitions at hand: f of a set of ops is its work plus the bytes in and out,
each tensor once; k blocks with acyclic quotient; minimize the largest f, T.

Claims, all for ``max_load chain`` with ``add`` or ``overlap`` loads:

- `build_exact` is exact if all devices are identical accelerators: equal times, memory and host
  times, no host, one block per device. On other clusters it is a relaxation: each op takes its
  least time, each tensor its least host time (0 if there is a host), every block the largest
  memory.
- `build_three_blocks` and `build_bottleneck` are relaxations, on clusters of any kind.

None of them bounds plans of class ``convex`` or ``any``. The rows of a chain need an acyclic
quotient. Two convex devices may feed each other ({1, 4} and {2, 3} with edges 1 -> 2 and 3 -> 4):
then neither is before the other. (The ops can still be sorted into those before a convex device S,
S and those after it. But another device may hold ops on both sides, and what it sends itself is
free: the sum f(before) + f(after) may exceed the loads of all devices but S.)

Components of all models:

- ``x[i, p]`` in {0, 1}: op i is in part p;
- ``leaves[e, p]``, ``enters[e, p]`` in [0, 1]: net e is cut at part p;
- ``largest``: T, in units of ``unit_ns`` nanoseconds.

Why parts: a chain plan is a row of devices. A model's parts are groups of neighbours in that row:
every device by itself in the exact model, all devices before one, that device, and all behind it in
the bounds. The cost f of a set of ops is its compute and, once for each tensor, the bytes in and
out; sums of f over devices are at least f of the union, because a tensor that crosses the border of
a union crosses the border of a member. So whatever devices do within a load T, a part of c of them
has f <= c T and c times their memory.

Models place *units*, the ops that every chain plan keeps together (`instances.problem.blocks`):
colocation groups, and groups that reach each other in both directions. Communication is counted on
nets (`instances.problem.nets`): tensors with the same pins, in units, add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import networkx as nx
import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.families import LARGEST_CAPACITY, Linear, placement, set_placement
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, LoadRule, MaxLoad, Plan, Semantics
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets
from placegap.instances.referee.loads import combine, device_loads

Form = Literal["exact", "superblocks"]


BEFORE, BOTTLENECK, AFTER, HOSTS_BEFORE, HOSTS_AFTER = range(5)
"""Numbers of the superblocks; the first three are positions too."""


def build_exact(
    instance: Instance, semantics: MaxLoad, num_blocks: int | None = None, *, names: bool = False
) -> pyo.ConcreteModel:
    """The exact model: x[i, b], op i is in block b of the chain.

    Rows: every unit in one block; for every arc and every b the blocks up to b form an ideal (the
    prefix rows of the paper); f(b) <= T for every block b.

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
    parts, budgets = _exact_parts(units, k)
    name = "archer exact"
    return build_parts(name, instance, units, parts, budgets, semantics.load, 0, names=names)


def build_three_blocks(
    instance: Instance,
    semantics: MaxLoad,
    num_blocks: int | None = None,
    at_least_ns: int = 0,
    *,
    names: bool = False,
) -> pyo.ConcreteModel:
    """Three superblocks: before, bottleneck, after; its size does not depend on k.

    f(bottleneck) <= T and f(before) + f(after) <= (k - 1) T. Parts 0, 1, 2 are the superblocks, and
    with hosts there are two parts more: 3 and 4, the hosts before and after the bottleneck.

    Parameters
    ----------
    semantics : MaxLoad
        ``max_load chain``.
    num_blocks : int, optional
        k, the number of accelerators; the default is that of the instance. Its hosts come on top.
    at_least_ns : int
        A bound on max_load that is known already.
    names : bool
        Index the components by the names of ops, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``.

    Notes
    -----
    Why the optimum is a lower bound. Take a chain plan of load T, and any accelerator b of it, the
    bottleneck for instance. (1) In a topological order of the quotient, all accelerators before b
    are `before`, those behind it `after`; the hosts likewise: a solution of the prefix rows. (2)
    Merging devices only removes costs: work adds up, and a tensor that crosses the border of a
    merged set crosses the border of at least one member, so f(union) <= the sum of the f. Hence
    f(before) + f(after) <= (k - 1) T, as each of the k - 1 other accelerators has f <= T. (3) C
    hosts do at most C T of host work, and pay nothing for tensors. (4) The memory of merged
    devices is the sum of theirs. (5) With `overlap`, compute and communication are each at most T
    per device, and (2) holds for each. Devices that differ are taken at the least time and host
    time of their kind, accelerators or hosts, and at the largest memory. Where all devices are
    hosts, they are the blocks, and tensors cost nothing.
    """
    units = build_units(instance)
    k = units.num_accelerators if num_blocks is None else num_blocks
    _refuse(semantics, k)
    parts, budgets = _superblocks(units, k, None)
    name = "archer three blocks"
    return build_parts(
        name, instance, units, parts, budgets, semantics.load, at_least_ns, names=names
    )


def build_bottleneck(
    instance: Instance,
    semantics: MaxLoad,
    num_blocks: int | None = None,
    index: int = 1,
    at_least_ns: int = 0,
    *,
    names: bool = False,
) -> pyo.ConcreteModel:
    """Three superblocks, the middle one being the accelerator number b of the chain.

    f(bottleneck) <= T, f(before) <= (b - 1) T and f(after) <= (k - b) T; parts as in
    `build_three_blocks`. At b = 1 there is no part 0, at b = k no part 2.

    Parameters
    ----------
    instance, semantics, num_blocks, at_least_ns, names
        As in `build_three_blocks`.
    index : int
        b, from 1 to k.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``.

    Notes
    -----
    For *every* b the optimum is a lower bound on its own: the proof of `build_three_blocks` holds
    for any accelerator, and the b - 1 accelerators before number b have f <= T each. (Devices
    without ops can be put anywhere in the row, so that there are k.) So the least of the k optima,
    over the guesses of the bottleneck's index as in the paper, is a bound, and so is the largest of
    them, which is better. Each is at least the optimum of `build_three_blocks`, whose row is the
    sum of the rows here, and at most that of the exact model: the union of its blocks is a solution
    here, also in the LP relaxations.
    """
    units = build_units(instance)
    k = units.num_accelerators if num_blocks is None else num_blocks
    _refuse(semantics, k)
    if not 1 <= index <= k:
        raise ValueError(f"there is no block {index} of {k}")
    name = f"archer bottleneck {index} of {k}"
    parts, budgets = _superblocks(units, k, index)
    return build_parts(
        name, instance, units, parts, budgets, semantics.load, at_least_ns, names=names
    )


def why_not(semantics: Semantics) -> str | None:
    """Why the models do not bound a semantics, or None if they do."""
    if semantics != MaxLoad(plans="chain", load=getattr(semantics, "load", "add")):
        return f"states max_load chain, not {semantics.label}"
    return None


def count_rows(instance: Instance, form: Form = "exact") -> int:
    """Rows that a model makes at most, without building it; those of k = K blocks, if exact."""
    if form == "exact":
        units = build_units(instance, alike=True)
        return count_part_rows(units, _exact_parts(units, instance.num_devices)[0])
    units = build_units(instance)
    return count_part_rows(units, _superblocks(units, 3, 2)[0])


def horizon_ns(instance: Instance) -> int:
    """No max_load of interest is longer: all units at their slowest, all nets in and out."""
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
    """The least that units and nets cost on some devices, and the most that one of them holds."""

    #: Of each unit; `UNSUPPORTED` where none of the devices runs and holds it.
    time_ns: list[int]
    #: Of each net that is cut.
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
    #: (a, b): unit a is never behind unit b.
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
        """The least max_load is no more, if any plan is feasible without regard to memory."""
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
    first = np.full(blocks.num_blocks, instance.num_ops, np.int64)
    np.minimum.at(first, blocks.block, np.arange(instance.num_ops))
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


# --------------------------------------------------------------------------------- parts of a chain


class ChainPart(NamedTuple):
    """Some devices of a chain."""

    #: Parts of equal position may feed each other, others only a later one.
    position: int
    kind: LeastCosts
    #: Number of the `Budget` it shares.
    budget: int


class Budget(NamedTuple):
    """What parts have together."""

    devices: int
    #: Of all of them.
    memory_bytes: int


Parts = Mapping[int, ChainPart]
"""The parts of a model by number."""


def share(kind: LeastCosts, devices: int) -> Budget:
    """The budget of some devices of a kind."""
    return Budget(devices, devices * kind.memory_bytes)


def _exact_parts(units: Units, num_blocks: int) -> tuple[dict[int, ChainPart], list[Budget]]:
    """One part and one budget per block."""
    kind = units.accelerators
    blocks = range(num_blocks)
    return {b: ChainPart(b, kind, b) for b in blocks}, [share(kind, 1) for _ in blocks]


def _superblocks(
    units: Units, k: int, index: int | None
) -> tuple[dict[int, ChainPart], list[Budget]]:
    """Before, bottleneck, after; the first and the last share a budget unless b is given."""
    own, hosts = units.accelerators, units.hosts
    parts, budgets = {BOTTLENECK: ChainPart(BOTTLENECK, own, 0)}, [share(own, 1)]
    sides = (
        {(BEFORE, AFTER): k - 1} if index is None else {(BEFORE,): index - 1, (AFTER,): k - index}
    )
    for positions, devices in sides.items():
        if devices:
            parts |= {position: ChainPart(position, own, len(budgets)) for position in positions}
            budgets.append(share(own, devices))
    if units.num_hosts:
        parts[HOSTS_BEFORE] = ChainPart(BEFORE, hosts, len(budgets))
        parts[HOSTS_AFTER] = ChainPart(AFTER, hosts, len(budgets))
        budgets.append(share(hosts, units.num_hosts))
    return dict(sorted(parts.items())), budgets


# ---------------------------------------------------------------------------------------- the model


def build_parts(
    name: str,
    instance: Instance,
    units: Units,
    parts: Parts,
    budgets: Sequence[Budget],
    load: LoadRule,
    at_least_ns: int,
    *,
    names: bool,
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
    model.objective = pyo.Objective(expr=model.largest, doc="Archer et al.: T")
    own = names_of(instance) if names else {}
    return describe(model, __doc__, {letter: own[letter] for letter in "ij"} if own else None)


def count_part_rows(units: Units, parts: Parts) -> int:
    """An upper bound on the rows of `build_parts`, without building."""
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
    """Archer et al., x_vb: sum over p of x[i, p] == 1 for the first op i of every unit."""

    @model.Constraint(range(units.num_units))
    def assign_units(model: pyo.ConcreteModel, v: int) -> Linear:
        return sum(model.x[units.first[v], p] for p in list(parts)) == 1


def keep_together(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """Archer et al., x_vb: x[i, p] == x[j, p] for every op i of a unit, j its first op, every part
    p.
    """
    first = [units.first[v] for v in units.unit]

    @model.Constraint([i for i, j in enumerate(first) if i != j], list(parts))
    def keep_together(model: pyo.ConcreteModel, i: int, p: int) -> Linear:
        return model.x[i, p] == model.x[first[i], p]


def chain_prefix(model: pyo.ConcreteModel, units: Units, parts: Parts) -> None:
    """Archer et al., prefix rows: the parts up to every position form an ideal.

    For every arc (a, b) and position s

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


def memory_budget(
    model: pyo.ConcreteModel, units: Units, parts: Parts, budgets: Sequence[Budget]
) -> None:
    """Placegap's own: sum over units v and parts p of a budget of m_v x[v, p] <= its memory.

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
    model: pyo.ConcreteModel, units: Units, parts: Parts, budgets: Sequence[Budget], load: LoadRule
) -> None:
    """Archer et al., f(b) <= T: devices of a budget times ``largest`` >= the load of its parts.

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
