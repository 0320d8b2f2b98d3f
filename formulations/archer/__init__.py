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
"""

from __future__ import annotations

from typing import Literal

import networkx as nx
import pyomo.environ as pyo

from placegap.formulations.archer import (
    Budget,
    ChainPart,
    Units,
    build_parts,
    build_units,
    share,
)
from placegap.formulations.archer import parts as archer_parts
from placegap.formulations.shared.families import placement, set_placement
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad, Semantics
from placegap.instances.referee.loads import combine, device_loads

Form = Literal["exact", "superblocks"]

BEFORE, BOTTLENECK, AFTER, HOSTS_BEFORE, HOSTS_AFTER = range(5)
"""Numbers of the superblocks; the first three are positions too."""


def build_exact(
    instance: Instance, semantics: MaxLoad, num_blocks: int | None = None
) -> pyo.ConcreteModel:
    """The exact model: x[i, b], op i is in block b of the chain.

    Rows: every unit in one block; for every arc and every b the blocks up to b form an ideal (the
    prefix rows of the paper); f(b) <= T for every block b.

    Parameters
    ----------
    instance : Instance
    semantics : MaxLoad
        ``max_load chain``.
    num_blocks : int, optional
        k; the default is the number of devices, which is what the claim needs.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``. Constraints can be added.

    Raises
    ------
    ValueError
        Another semantics, or no block.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build_exact(example(), MaxLoad(plans="chain"))
    >>> len(model.x), len(model.leaves), len(model.chain_prefix)
    (8, 8, 4)
    """
    k = instance.num_devices if num_blocks is None else num_blocks
    _refuse(semantics, k)
    units = build_units(instance, alike=True)
    parts, budgets = _exact_parts(units, k)
    return build_parts("archer exact", instance, units, parts, budgets, semantics.load, 0)


def build_three_blocks(
    instance: Instance,
    semantics: MaxLoad,
    num_blocks: int | None = None,
    at_least_ns: int = 0,
) -> pyo.ConcreteModel:
    """Three superblocks: before, bottleneck, after; its size does not depend on k.

    f(bottleneck) <= T and f(before) + f(after) <= (k - 1) T. Parts 0, 1, 2 are the superblocks, and
    with hosts there are two parts more: 3 and 4, the hosts before and after the bottleneck.

    Parameters
    ----------
    instance : Instance
    semantics : MaxLoad
        ``max_load chain``.
    num_blocks : int, optional
        k, the number of accelerators; the default is that of the instance. Its hosts come on top.
    at_least_ns : int
        A bound on max_load that is known already.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``.

    Raises
    ------
    ValueError
        Another semantics, or no block.

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

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build_three_blocks(example(), MaxLoad(plans="chain"), 16)
    >>> len(model.x), len(model.leaves), len(model.chain_prefix)
    (12, 12, 8)
    """
    units = build_units(instance)
    k = units.num_accelerators if num_blocks is None else num_blocks
    _refuse(semantics, k)
    parts, budgets = _superblocks(units, k, None)
    name = "archer three blocks"
    return build_parts(name, instance, units, parts, budgets, semantics.load, at_least_ns)


def build_bottleneck(
    instance: Instance,
    semantics: MaxLoad,
    num_blocks: int | None = None,
    index: int = 1,
    at_least_ns: int = 0,
) -> pyo.ConcreteModel:
    """Three superblocks, the middle one being the accelerator number b of the chain.

    f(bottleneck) <= T, f(before) <= (b - 1) T and f(after) <= (k - b) T; parts as in
    `build_three_blocks`. At b = 1 there is no part 0, at b = k no part 2.

    Parameters
    ----------
    instance, semantics, num_blocks, at_least_ns
        As in `build_three_blocks`.
    index : int
        b, from 1 to k.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``.

    Raises
    ------
    ValueError
        Another semantics, or no such block.

    Notes
    -----
    For *every* b the optimum is a lower bound on its own: the proof of `build_three_blocks` holds
    for any accelerator, and the b - 1 accelerators before number b have f <= T each. (Devices
    without ops can be put anywhere in the row, so that there are k.) So the least of the k optima,
    over the guesses of the bottleneck's index as in the paper, is a bound, and so is the largest of
    them, which is better. Each is at least the optimum of `build_three_blocks`, whose row is the
    sum of the rows here, and at most that of the exact model: the union of its blocks is a solution
    here, also in the LP relaxations.

    Examples
    --------
    >>> from placegap.instances import example
    >>> chain = MaxLoad(plans="chain")
    >>> model = build_bottleneck(example(), chain, num_blocks=4, index=1)
    >>> sorted({part for _, part in model.x})
    [1, 2]
    """
    units = build_units(instance)
    k = units.num_accelerators if num_blocks is None else num_blocks
    _refuse(semantics, k)
    if not 1 <= index <= k:
        raise ValueError(f"there is no block {index} of {k}")
    name = f"archer bottleneck {index} of {k}"
    parts, budgets = _superblocks(units, k, index)
    return build_parts(name, instance, units, parts, budgets, semantics.load, at_least_ns)


def why_not(semantics: Semantics) -> str | None:
    """Why the models do not bound a semantics, or None if they do."""
    load = semantics.load if isinstance(semantics, MaxLoad) else "add"
    if semantics != MaxLoad(plans="chain", load=load):
        return f"states max_load chain, not {semantics.label}"
    return None


def count_rows(instance: Instance, form: Form = "exact") -> int:
    """Rows that a model makes at most, without building it; those of k = K blocks, if exact.

    Examples
    --------
    >>> from placegap.instances import example
    >>> count_rows(example()), count_rows(example(), "superblocks")
    (30, 45)
    """
    if form == "exact":
        units = build_units(instance, alike=True)
        return archer_parts.count_rows(units, _exact_parts(units, instance.num_devices)[0])
    units = build_units(instance)
    return archer_parts.count_rows(units, _superblocks(units, 3, 2)[0])


def horizon_ns(instance: Instance) -> int:
    """No max_load of interest is longer: all units at their slowest, all nets in and out."""
    return build_units(instance).horizon_ns


def _refuse(semantics: MaxLoad, num_blocks: int) -> None:
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"the model of Archer et al. {reason}")
    if num_blocks < 1:
        raise ValueError("there must be at least one block")


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


# ------------------------------------------------------------------------------------ plans in, out


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
