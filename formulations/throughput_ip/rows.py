"""Rows of the throughput IP: crossings of borders, loads, and contiguity of regions.

A region is a column of devices or a server. ``inside[i, r]`` is the variable or expression that is
1 if op i is in region r. The components of servers have the prefix ``server_``:

- ``server_leaves[u, v]``, ``server_enters[u, v]``: tensor u leaves, enters server v; their
  ``server_reach[i, r]``, ``server_position[r, p]`` and ``server_place[i]`` are those of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.old_families import Linear
from placegap.formulations.throughput_ip.columns import Columns, ThroughputSets
from placegap.instances.problem import Instance
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.referee.loads import sync_ns

Inside = Any
"""Mapping (op, region) -> variable or expression that is 1 if the op is in the region, else 0."""


Part = tuple[str, bool | None]
"""A part of the objective: the suffix of its components, and which pass it counts (None: all)."""


Arcs = list[tuple[int, int]]
"""Pairs of ops, the first of which feeds the second as far as contiguity is concerned."""


def parts_of(data: ThroughputSets) -> tuple[Part, ...]:
    """max_load has one part, max_load_fwd_bwd a forward and a backward one."""
    suffix = {None: "", False: "_forward", True: "_backward"}
    return tuple((suffix[backward], backward) for backward in data.semantics.load_passes)


def priced(costs_ns: Any) -> list[tuple[int, int]]:
    """The (tensor, region) pairs at which crossing the region's border costs time."""
    return [(u, r) for u, r in np.argwhere(costs_ns > 0).tolist()]


# ---------------------------------------------------------------------------------------- variables


def crossing_variables(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """``leaves[u, k]``, ``enters[u, k]`` in [0, 1], and ``largest`` >= 0 of every part."""
    pairs = priced(data.border_ns)
    model.leaves = pyo.Var(pairs, bounds=(0, 1))
    model.enters = pyo.Var(pairs, bounds=(0, 1))
    for suffix, _ in parts_of(data):
        model.add_component(f"largest{suffix}", pyo.Var(domain=pyo.NonNegativeReals))


def share_variables(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """``share[s]``, ``sync[s]`` >= 0 of replicated columns: load / r, and the sum of weights.

    They are integers, and so rounded up, where the model counts nanoseconds.
    """
    domain = pyo.NonNegativeIntegers if data.rounds else pyo.NonNegativeReals
    model.share = pyo.Var(data.columns.replicated, domain=domain)
    model.sync = pyo.Var(data.columns.replicated, domain=domain)


def server_variables(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Placegap's own: ``in_server[i, v]``, the sum of inside; ``server_leaves``,
    ``server_enters``.
    """
    members: list[list[int]] = [[] for _ in data.servers]
    for s, v in enumerate(data.server.tolist()):
        members[v].append(s)

    @model.Expression(range(data.instance.num_ops), range(len(members)))
    def in_server(_: pyo.ConcreteModel, i: int, v: int) -> Linear:
        return sum(inside[i, s] for s in members[v])

    pairs = priced(data.server_ns)
    model.server_leaves = pyo.Var(pairs, bounds=(0, 1))
    model.server_enters = pyo.Var(pairs, bounds=(0, 1))


# ------------------------------------------------------------------------------ crossings and loads


def exclude_too_long(data: ThroughputSets, inside: Inside) -> None:
    """An op is in no column where its time, or its weights alone, exceed the horizon."""
    columns, weights = data.columns, parameter_bytes(data)
    for s, devices in enumerate(columns.devices):
        r, width = len(devices), columns.bandwidth[s]
        for i in np.flatnonzero(data.time_ns[:, s] > r * data.horizon_ns).tolist():
            inside[i, s].fix(0)
        if r > 1 and width is not None:
            for i, size in weights.items():
                if sync_ns(size, r, width) > data.horizon_ns:
                    inside[i, s].fix(0)


def tensor_leaves(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Tarnawski et al., CommOut: leaves[u, k] >= x[i, k] - x[j, k], i the producer and j any
    consumer of tensor u.
    """
    rows = [(u, k, j) for u, k in model.leaves for j in data.consumers[u]]

    @model.Constraint(rows)
    def tensor_leaves(model: pyo.ConcreteModel, u: int, k: int, j: int) -> Linear:
        return model.leaves[u, k] >= inside[data.producer[u], k] - inside[j, k]


def tensor_enters(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Tarnawski et al., CommIn: enters[u, k] >= x[j, k] - x[i, k], i the producer and j any
    consumer of tensor u.
    """
    rows = [(u, k, j) for u, k in model.enters for j in data.consumers[u]]

    @model.Constraint(rows)
    def tensor_enters(model: pyo.ConcreteModel, u: int, k: int, j: int) -> Linear:
        return model.enters[u, k] >= inside[j, k] - inside[data.producer[u], k]


def server_crossings(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: `tensor_leaves` and `tensor_enters` at the borders of the servers."""
    rows = [(u, v, j) for u, v in model.server_leaves for j in data.consumers[u]]
    inside = model.in_server

    @model.Constraint(rows)
    def tensor_leaves_server(model: pyo.ConcreteModel, u: int, v: int, j: int) -> Linear:
        return model.server_leaves[u, v] >= inside[data.producer[u], v] - inside[j, v]

    @model.Constraint(rows)
    def tensor_enters_server(model: pyo.ConcreteModel, u: int, v: int, j: int) -> Linear:
        return model.server_enters[u, v] >= inside[j, v] - inside[data.producer[u], v]


def load_add(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Load of every column k: largest >= compute + communication.

    Compute is the sum over i of p_ik x[i, k], communication the sum over u of
    host_time(u, k) (leaves[u, k] + enters[u, k]). Of replicated columns r share[k] takes the place
    of largest. With two parts (Tarnawski et al., Appendix C) ops and producers of one part count.
    """
    for suffix, backward in parts_of(data):
        compute, communication = _sums(model, data, inside, backward)
        load = [work + moved for work, moved in zip(compute, communication, strict=True)]
        _at_least(model, data, suffix, f"load_add{suffix}", dict(enumerate(load)))


def load_overlap(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Load of every column k: largest >= compute and largest >= communication (`load_add`)."""
    for suffix, backward in parts_of(data):
        compute, communication = _sums(model, data, inside, backward)
        moved = {k: part for k, part in enumerate(communication) if not isinstance(part, int)}
        _at_least(model, data, suffix, f"load_overlap_compute{suffix}", dict(enumerate(compute)))
        _at_least(model, data, suffix, f"load_overlap_communication{suffix}", moved)


def load_shared(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Placegap's own: of a column s of r devices, largest >= share[s] + sync[s], and what sync is.

    sync[s] >= sum over i of 2 (r - 1) parameter_bytes_i / (r bandwidth_s) x[i, s]; without a path
    between the devices only ops without parameters can be there.
    """
    columns, weights = data.columns, parameter_bytes(data)
    synced = [s for s in columns.replicated if columns.bandwidth[s] is not None and weights]
    for s in columns.replicated:
        if columns.bandwidth[s] is None:
            for i in weights:
                inside[i, s].fix(0)

    @model.Constraint(columns.replicated)
    def load_shared(model: pyo.ConcreteModel, s: int) -> Linear:
        return model.largest >= model.share[s] + model.sync[s]

    @model.Constraint(synced)
    def sync_weights(model: pyo.ConcreteModel, s: int) -> Linear:
        r, width = len(columns.devices[s]), columns.bandwidth[s] or 1
        return model.sync[s] >= sum(
            2 * (r - 1) * size * NS_PER_S / (r * width) / data.unit_ns * inside[i, s]
            for i, size in weights.items()
        )


def server_load(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Placegap's own: of every server v, largest >= sum over u of server_time(u, v) (leaves +
    enters).
    """
    parts: dict[int, list[Linear]] = {}
    for (u, v), leaves in model.server_leaves.items():
        cost = float(data.server_ns[u, v]) / data.unit_ns
        parts.setdefault(v, []).append(cost * (leaves + model.server_enters[u, v]))

    @model.Constraint(sorted(parts))
    def server_load(model: pyo.ConcreteModel, v: int) -> Linear:
        return model.largest >= sum(parts[v])


def parameter_bytes(data: ThroughputSets) -> dict[int, int]:
    """Parameter bytes of the ops that have any."""
    ops = data.instance.graph.ops
    return {i: op.parameter_bytes for i, op in enumerate(ops) if op.parameter_bytes}


def _at_least(
    model: pyo.ConcreteModel, data: ThroughputSets, suffix: str, name: str, parts: dict[int, Linear]
) -> None:
    """Tarnawski et al., MaxLoad: largest, or r times the share of a replica, covers each part."""
    largest, devices = model.component(f"largest{suffix}"), data.columns.devices

    def covers(model: pyo.ConcreteModel, s: int) -> Linear:
        r = len(devices[s])
        return (largest if r == 1 else r * model.share[s]) >= parts[s]

    model.add_component(name, pyo.Constraint(list(parts), rule=covers))


def _sums(
    model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside, backward: bool | None
) -> tuple[list[Linear], list[Linear]]:
    """Compute and communication of every column, as expressions."""
    time, border = data.time_ns / data.unit_ns, data.border_ns / data.unit_ns
    counts = [backward in (None, bool(flag)) for flag in data.instance.arrays.backward]
    compute: list[list[Linear]] = [[] for _ in range(len(data.columns))]
    communication: list[list[Linear]] = [[] for _ in compute]
    for (i, k), x in inside.items():
        if counts[i] and not x.fixed:
            compute[k].append(float(time[i, k]) * x)
    for (u, k), leaves in model.leaves.items():
        if counts[data.producer[u]]:
            communication[k].append(float(border[u, k]) * (leaves + model.enters[u, k]))
    return [sum(part) for part in compute], [sum(part) for part in communication]


# --------------------------------------------------------------------------- contiguity: which arcs


def forward_arcs(instance: Instance) -> Arcs:
    """Edges between forward ops, each pair once (in Tarnawski et al. only those are contiguous)."""
    index, backward = instance.arrays.index, instance.arrays.backward
    both = ~backward[index.producer] & ~backward[index.consumer]
    pairs = zip(index.producer[both].tolist(), index.consumer[both].tolist(), strict=True)
    return list(dict.fromkeys(pairs))


def chain_arcs(instance: Instance) -> Arcs:
    """`forward_arcs`, and the reversed backward edges at ops whose group has no forward op.

    Tarnawski et al. give a colour class without forward node an artificial one, with its backward
    edges reversed.
    """
    arrays, index = instance.arrays, instance.arrays.index
    with_forward = np.zeros(arrays.num_groups, np.bool_)
    with_forward[arrays.group[~arrays.backward]] = True
    orphan = ~with_forward[arrays.group]
    a, b = index.producer, index.consumer
    mirrored = arrays.backward[a] & arrays.backward[b] & (orphan[a] | orphan[b])
    pairs = zip(b[mirrored].tolist(), a[mirrored].tolist(), strict=True)
    return list(dict.fromkeys([*forward_arcs(instance), *pairs]))


# ----------------------------------------------------------------------- contiguity: convex regions


def convex_regions(
    model: pyo.ConcreteModel, instance: Instance, inside: Inside, num_regions: int, prefix: str = ""
) -> None:
    """Tarnawski et al., contiguity, z: no path over forward ops leaves a region and comes back.

    ``reach[i, r]`` in [0, 1] is 1 if a forward op of region r is i or comes after it. For every
    region r, forward op i and forward edge (i, j)

        reach[i, r] >= x[i, r]
        reach[j, r] <= reach[i, r]
        reach[j, r] <= x[j, r] - x[i, r] + 1

    (Tarnawski et al., the throughput IP; their z). Where x is 0 or 1 the least such reach is 0 or
    1, and the last row fails if i is inside, j is not, and something after j is.
    """
    regions, arcs = range(num_regions), forward_arcs(instance)
    forward = np.flatnonzero(~instance.arrays.backward).tolist()
    reach = pyo.Var(forward, regions, bounds=(0, 1))
    model.add_component(f"{prefix}reach", reach)
    rows = [(i, j, r) for i, j in arcs for r in regions]
    model.add_component(
        f"{prefix}convex_reach",
        pyo.Constraint(forward, regions, rule=lambda _, i, r: reach[i, r] >= inside[i, r]),
    )
    model.add_component(
        f"{prefix}convex_back",
        pyo.Constraint(rows, rule=lambda _, i, j, r: reach[j, r] <= reach[i, r]),
    )
    model.add_component(
        f"{prefix}convex_no_return",
        pyo.Constraint(
            rows, rule=lambda _, i, j, r: reach[j, r] <= inside[j, r] - inside[i, r] + 1
        ),
    )


def set_reach(
    model: pyo.ConcreteModel, instance: Instance, region: Sequence[int], prefix: str = ""
) -> None:
    """Set reach to the values of a plan with op i in ``region[i]``."""
    index, reach = instance.arrays.index, model.component(f"{prefix}reach")
    after: list[set[int]] = [{r} for r in region]
    succs: list[list[int]] = [[] for _ in region]
    for i, j in forward_arcs(instance):
        succs[i].append(j)
    for i in reversed(index.topological_order.tolist()):
        after[i] = after[i].union(*(after[j] for j in succs[i]))
    for (i, r), variable in reach.items():
        variable.set_value(int(r in after[i]))


# ------------------------------------------------------------------- contiguity: a chain of regions


@dataclass(frozen=True)
class Stages:
    """Replicated columns in a chain."""

    #: Column -> variable that is 1 if it has a stage.
    used: Any
    #: Number of positions of a chain: the number of devices.
    num_positions: int
    #: Pairs of columns that are used in this order.
    alike: tuple[tuple[int, int], ...]


def chain_regions(
    model: pyo.ConcreteModel,
    arcs: Arcs,
    inside: Inside,
    num_ops: int,
    num_regions: int,
    stages: Stages | None = None,
    prefix: str = "",
) -> None:
    """Tarnawski et al., section 5.1, chains: each region takes a position, and no arc leads to an
    earlier one.

    ``position[r, p]`` in {0, 1}: region r has position p = 0, 1, ..., P - 1; ``place[i]`` in
    [0, P - 1]: the position of op i. With pos[r] = sum over p of p position[r, p]

        sum over p of position[r, p] == 1                           position_of_region
        sum over r of position[r, p] <= 1                           position_once
        place[i] - pos[r] <= (P - 1) (1 - x[i, r])                  place_at_most
        pos[r] - place[i] <= (P - 1) (1 - x[i, r])                  place_at_least
        place[i] <= place[j]             for every arc (i, j)       chain_in_order

    Exactly the chains of ideals of Tarnawski et al., section 5.1: an order of regions such that no
    arc leads back. The LP bound comes from the rows of `convex_regions`, which every chain
    satisfies. (Prefix rows, "all ops before op i are in the first p regions if i is", need ops
    times regions times positions variables, and with equal devices ordered by their positions the
    bound is far worse.)

    Only replicated columns in use have a position, without gaps, and equal columns are in order:

        sum over p of position[r, p] == used[r]                     position_of_region
        sum over r of position[r, p + 1] <= sum of position[r, p]   position_filled
        position[b, <= p] <= position[a, < p] + 1 - used[a]         position_order
    """
    # An op takes the position of its region by two big-M rows with P - 1, the largest difference of
    # positions: place is free if the op is elsewhere. Regions without ops take positions, too, so
    # that every region has one and no row on emptiness is needed.
    regions, size = range(num_regions), num_regions if stages is None else stages.num_positions
    last = size - 1
    position = pyo.Var(regions, range(size), domain=pyo.Binary)
    place = pyo.Var(range(num_ops), bounds=(0, last))
    model.add_component(f"{prefix}position", position)
    model.add_component(f"{prefix}place", place)

    def pos(r: int) -> Linear:
        return sum(p * position[r, p] for p in range(size))

    def placed(r: int, until: int) -> Linear:
        return sum(position[r, p] for p in range(until))

    def taken(p: int) -> Linear:
        return sum(position[r, p] for r in regions)

    def uses(r: int) -> Linear:
        return 1 if stages is None else stages.used[r]

    # Of two columns that may be swapped, a comes first if it is used: b is among the first p + 1
    # only if a is among the first p.
    def in_order(_: pyo.ConcreteModel, a: int, b: int, p: int) -> Linear:
        return placed(b, p + 1) <= placed(a, p) + 1 - uses(a)

    of_ops = [(i, r) for i in range(num_ops) for r in regions]
    families: list[tuple[str, Any, Any]] = [
        ("position_of_region", regions, lambda _, r: placed(r, size) == uses(r)),
        ("position_once", range(size), lambda _, p: taken(p) <= 1),
        ("place_at_most", of_ops, lambda _, i, r: place[i] - pos(r) <= last * (1 - inside[i, r])),
        ("place_at_least", of_ops, lambda _, i, r: pos(r) - place[i] <= last * (1 - inside[i, r])),
        ("chain_in_order", arcs, lambda _, i, j: place[i] <= place[j]),
    ]
    if stages is not None:
        order = [(a, b, p) for a, b in stages.alike for p in range(size)]
        families += [
            ("position_filled", range(last), lambda _, p: taken(p + 1) <= taken(p)),
            ("position_order", order, in_order),
        ]
    for name, rows, rule in families:
        model.add_component(prefix + name, pyo.Constraint(rows, rule=rule))


def set_positions(
    model: pyo.ConcreteModel, region: Sequence[int], order: Sequence[int], prefix: str = ""
) -> None:
    """Set position and place to the values of a plan: op i in ``region[i]``, regions in order."""
    where = {r: p for p, r in enumerate(order)}
    for (r, p), variable in model.component(f"{prefix}position").items():
        variable.set_value(int(where.get(r) == p))
    for i, variable in model.component(f"{prefix}place").items():
        variable.set_value(where[region[i]])


def chain_order(arcs: Arcs, region: Sequence[int]) -> list[int]:
    """The regions of a chain plan that have ops, each before those it feeds; ties: first op."""
    quotient: nx.DiGraph[int] = nx.DiGraph()
    quotient.add_nodes_from(region)
    quotient.add_edges_from((region[i], region[j]) for i, j in arcs if region[i] != region[j])
    first = {r: i for i, r in reversed(list(enumerate(region)))}
    return list(nx.lexicographical_topological_sort(quotient, key=lambda r: first[r]))


def alike_pairs(columns: Columns) -> tuple[tuple[int, int], ...]:
    """Pairs of equal columns without a device in common, which may be swapped."""
    devices = columns.devices
    return tuple(
        (a, b)
        for a, b in combinations(range(len(devices)), 2)
        if columns.alike[a] == columns.alike[b] and not set(devices[a]) & set(devices[b])
    )
