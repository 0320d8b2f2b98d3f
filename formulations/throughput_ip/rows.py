"""Families of the throughput IP: crossings of borders, loads, and contiguity of regions.

A region is a device, a column of devices (`throughput_ip.columns`) or a server, and
``inside[i, r]`` is the variable or expression that is 1 if op i is in region r: ``x[i, k]``,
``stage[i, s]`` or ``in_server[i, v]``. Families of regions add to a block: that of servers is
``model.servers``, that of all others is the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.data import (
    add_data,
    duration_data,
    family,
    label_data,
    new_model,
    tensor_sets,
)
from placegap.formulations.shared.families import Linear
from placegap.formulations.shared.pairs import grouped
from placegap.formulations.shared.times import time_unit_ns
from placegap.formulations.throughput_ip.columns import Columns, value_step_ns
from placegap.formulations.throughput_ip.columns import horizon_ns as longest_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Loads

PASSES = {None: "all", False: "forward", True: "backward"}  # names of `load_passes`


class Regions(NamedTuple):
    """What tensors leave and enter, and what is contiguous."""

    block: Any  # of their components
    names: list[str]
    inside: Any  # inside[i, r]: 1 if op i is in region r, else 0


def regions_of(model: pyo.ConcreteModel) -> list[Regions]:
    """The devices of a model, or its columns of devices; then its servers, if it has any."""
    columns, servers = model.component("COLUMNS"), model.component("SERVERS")
    if columns is None:
        found = [Regions(model, list(model.DEVICES), model.x)]
    else:
        found = [Regions(model, list(columns), model.stage)]
    if servers is not None:
        found.append(Regions(model.servers, list(servers), model.in_server))
    return found


# ------------------------------------------------------------------------------------ sets and data


def model_of_loads(
    instance: Instance, semantics: Loads, horizon_ns: int | None, symmetry: bool
) -> pyo.ConcreteModel:
    """A model with the Sets and Params that all forms have."""
    longest = longest_ns(instance, semantics)
    horizon = longest if horizon_ns is None else min(longest, horizon_ns)
    unit_ns = time_unit_ns(horizon, value_step_ns(instance, semantics))
    model = new_model("throughput IP", instance, semantics, unit_ns)
    model.symmetry = symmetry  # for `warm_start` and `extract`
    model.horizon_ns = pyo.Param(initialize=horizon, doc="plans of larger values may be missing")
    # Where a time exceeds a given horizon, x is fixed to 0: shorter times need a build.
    duration_data(model, instance, only_longer=horizon < longest)
    pass_sets(model, instance)
    tensor_sets(model, instance)
    if semantics.plans != "any":
        arc_sets(model, instance)
    return model


@family
def pass_sets(model: pyo.ConcreteModel, instance: Instance) -> None:
    """PASSES: "all", or "forward" and "backward", whose loads are counted apart (Tarnawski et al.,
    Appendix C); op_pass[i]: the one that op i belongs to.
    """
    own = [PASSES[one] for one in model.semantics.load_passes]
    passes = [own[flag if len(own) > 1 else 0] for flag in instance.arrays.backward.tolist()]
    model.PASSES = pyo.Set(initialize=own)
    label_data(model, "op_pass", model.OPS, passes, "op_pass[i]: the pass of op i")


@family
def arc_sets(model: pyo.ConcreteModel, instance: Instance) -> None:
    """FORWARD: the forward ops; FORWARD_ARCS, CHAIN_ARCS: pairs (i, j), op i feeds op j
    (`forward_arcs`, `chain_arcs`).
    """
    ops = list(model.OPS)
    forward = np.flatnonzero(~instance.arrays.backward).tolist()
    model.FORWARD = pyo.Set(initialize=[ops[i] for i in forward])
    for name, arcs in {"FORWARD": forward_arcs(instance), "CHAIN": chain_arcs(instance)}.items():
        named = [(ops[i], ops[j]) for i, j in arcs]
        model.add_component(f"{name}_ARCS", pyo.Set(initialize=named, dimen=2))


@family
def crossing_variables(block: Any, names: list[str], paid: Ints) -> None:
    r"""leaves[u, r], enters[u, r] in [0, 1]: tensor u leaves, enters region r; integral where x is.

    They are there for ``BORDERS``, pairs (u, r) at which that costs ``host_ns[u, r]``, mutable.

    $0 \le \ell_{uk}, n_{uk} \le 1$
    """
    tensors = list(block.model().TENSORS)
    given = {(tensors[u], names[r]): int(paid[u, r]) for u, r in np.argwhere(paid > 0).tolist()}
    block.BORDERS = pyo.Set(initialize=list(given), dimen=2, doc="(u, r): a crossing costs time")
    doc = "host_ns[u, r]: cost of tensor u at the border of r, cut to just above the horizon"
    add_data(block, "host_ns", given, doc, index=block.BORDERS)
    block.leaves = pyo.Var(block.BORDERS, bounds=(0, 1))
    block.enters = pyo.Var(block.BORDERS, bounds=(0, 1))


@family
def load_variables(model: pyo.ConcreteModel) -> None:
    r"""largest[p] >= 0: the load of the heaviest device in pass p.

    $T \ge 0$
    """
    model.largest = pyo.Var(model.PASSES, domain=pyo.NonNegativeReals)


# ------------------------------------------------------------------------------ crossings and loads


@family
def tensor_leaves(block: Any, inside: Any) -> None:
    r"""Tarnawski et al., CommOut: leaves[u, r] >= x[i, r] - x[j, r], i the producer and j any
    consumer of tensor u; likewise, placegap's own, of servers.

    $\ell_{uk} \ge x_{ik} - x_{jk}$
    """
    leaves, made = block.leaves, dict(block.model().producer.items())
    block.tensor_leaves = pyo.Constraint(
        _readings(block), rule=lambda _, u, r, j: leaves[u, r] >= inside[made[u], r] - inside[j, r]
    )


@family
def tensor_enters(block: Any, inside: Any) -> None:
    r"""Tarnawski et al., CommIn: enters[u, r] >= x[j, r] - x[i, r], i the producer and j any
    consumer of tensor u; likewise, placegap's own, of servers.

    $n_{uk} \ge x_{jk} - x_{ik}$
    """
    enters, made = block.enters, dict(block.model().producer.items())
    block.tensor_enters = pyo.Constraint(
        _readings(block), rule=lambda _, u, r, j: enters[u, r] >= inside[j, r] - inside[made[u], r]
    )


def _readings(block: Any) -> list[tuple[str, str, str]]:
    """(u, r, j): tensor u at the border of region r, and an op j that reads it."""
    readers = grouped(block.model().READERS)
    return [(u, r, j) for u, r in block.BORDERS for j in readers[u]]


@family
def load_add(model: pyo.ConcreteModel, columns: Columns) -> None:
    r"""Tarnawski et al., MaxLoad: largest >= compute + communication of every device k.

    Compute is the sum over i of p_ik x[i, k], communication the sum over u of
    host_ns[u, k] (leaves[u, k] + enters[u, k]). Of a column of r devices r share[k] takes the place
    of largest. In each pass p ops and producers of that pass count.

    $T \ge \sum_i p_{ik} x_{ik} + \sum_u c_{uk} (\ell_{uk} + n_{uk})$
    """
    loads = _loads(model, columns)

    @model.Constraint(list(loads))
    def load_add(_: pyo.ConcreteModel, p: str, k: str) -> Linear:
        cover, compute, communication = loads[p, k]
        return cover >= sum(compute) + sum(communication)


@family
def load_overlap(model: pyo.ConcreteModel, columns: Columns) -> None:
    r"""Tarnawski et al., MaxLoad: largest >= compute, largest >= communication (`load_add`).

    $T \ge \sum_i p_{ik} x_{ik}, \quad T \ge \sum_u c_{uk} (\ell_{uk} + n_{uk})$
    """
    loads = _loads(model, columns)

    @model.Constraint(list(loads))
    def load_overlap_compute(_: pyo.ConcreteModel, p: str, k: str) -> Linear:
        cover, compute, _communication = loads[p, k]
        return cover >= sum(compute)

    @model.Constraint([at for at, (_, _, communication) in loads.items() if communication])
    def load_overlap_communication(_: pyo.ConcreteModel, p: str, k: str) -> Linear:
        cover, _compute, communication = loads[p, k]
        return cover >= sum(communication)


def _loads(
    model: pyo.ConcreteModel, columns: Columns
) -> dict[tuple[str, str], tuple[Linear, list[Linear], list[Linear]]]:
    """Of every pass and column: what covers its load, the summands of compute, communication."""
    unit, time, devices = model.unit_ns.value, model.duration_ns, list(model.DEVICES)
    of, made = dict(model.op_pass.items()), dict(model.producer.items())
    size = dict(zip(columns.names, map(len, columns.devices), strict=True))
    first = {s: devices[k] for s, k in zip(columns.names, columns.first, strict=True)}
    loads: dict[tuple[str, str], tuple[Linear, list[Linear], list[Linear]]] = {
        (p, s): (model.largest[p] if r == 1 else r * model.share[s], [], [])
        for p in model.PASSES
        for s, r in size.items()
    }
    for (i, s), x in regions_of(model)[0].inside.items():
        if not x.fixed:
            loads[of[i], s][1].append(time[i, first[s]] / unit * x)
    for (u, s), cost in model.host_ns.items():
        crossing = model.leaves[u, s] + model.enters[u, s]
        loads[of[made[u]], s][2].append(cost / unit * crossing)
    return loads


@family
def load_value(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., MaxLoad, in both directions appendix C: the sum of ``largest`` over
    passes, and ``load_ns``, the same in nanoseconds.

    $\min T_{fw} + T_{bw}$
    """
    value = sum(model.largest[p] for p in model.PASSES)
    model.load_ns = pyo.Expression(
        expr=model.unit_ns * value, doc="the value in nanoseconds: the load of all passes"
    )
    model.objective = pyo.Objective(expr=value, doc="Tarnawski et al.: MaxLoad")


def set_crossings(block: Any, home: Mapping[str, str]) -> None:
    """Set leaves and enters to the values of a plan with op i in region ``home[i]``."""
    readers = grouped((u, home[j]) for u, j in block.model().READERS)
    for (u, r), leaves in block.leaves.items():
        made = home[block.model().producer[u]]
        leaves.set_value(int(made == r and {*readers[u]} != {r}))
        block.enters[u, r].set_value(int(made != r and r in readers[u]))


def set_loads(model: pyo.ConcreteModel, columns: Columns) -> None:
    """Set loads and shares to the least values that their rows allow; all else has its values."""

    def part(name: str) -> list[tuple[Any, Any]]:
        return list((model.component(name) or {}).items())

    def lift(variable: Any, rows: list[Any], size: int = 1) -> None:
        least = max([0.0, *(-row.slack() for row in rows)]) / size
        variable.set_value(math.ceil(least - 1e-9) if variable.is_integer() else least)

    for _, variable in (*part("largest"), *part("share"), *part("sync")):
        variable.set_value(0)
    loads = [*part("load_add"), *part("load_overlap_compute"), *part("load_overlap_communication")]
    size = dict(zip(columns.names, map(len, columns.devices), strict=True))
    for s, share in part("share"):
        lift(share, [row for (_, at), row in loads if at == s], size[s])
        lift(model.sync[s], [row for at, row in part("sync_weights") if at == s])
    beside = [row for _, row in (*part("load_shared"), *part("server_load"))]  # of the only pass
    for p in model.PASSES:
        lift(model.largest[p], [row for (of, _), row in loads if of == p] + beside)


# --------------------------------------------------------------------------- contiguity: which arcs


def forward_arcs(instance: Instance) -> list[tuple[int, int]]:
    """Edges between forward ops, each pair once (in Tarnawski et al. only those are contiguous)."""
    index, backward = instance.arrays.index, instance.arrays.backward
    both = ~backward[index.producer] & ~backward[index.consumer]
    pairs = zip(index.producer[both].tolist(), index.consumer[both].tolist(), strict=True)
    return list(dict.fromkeys(pairs))


def chain_arcs(instance: Instance) -> list[tuple[int, int]]:
    """`forward_arcs`, and the reversed backward edges at ops whose group has no forward op."""
    # Tarnawski et al. give such a colour class an artificial node, with its backward edges
    # reversed.
    arrays, index = instance.arrays, instance.arrays.index
    with_forward = np.zeros(arrays.num_groups, np.bool_)
    with_forward[arrays.group[~arrays.backward]] = True
    orphan = ~with_forward[arrays.group]
    a, b = index.producer, index.consumer
    mirrored = arrays.backward[a] & arrays.backward[b] & (orphan[a] | orphan[b])
    pairs = zip(b[mirrored].tolist(), a[mirrored].tolist(), strict=True)
    return list(dict.fromkeys([*forward_arcs(instance), *pairs]))


# ----------------------------------------------------------------------- contiguity: convex regions


def contiguity(regions: Regions) -> None:
    """The rows of the class of plans: convex regions, for chains those of chains, too."""
    plans = regions.block.model().semantics.plans
    # Every chain is convex. Its own rows have big-M and bound little: the LP bound of a chain comes
    # from the rows of convex regions.
    if plans != "any":
        convex_regions(*regions)
    if plans == "chain":
        chain_regions(*regions)


@family
def convex_regions(block: Any, names: list[str], inside: Any) -> None:
    r"""Tarnawski et al., contiguity, z: no path over forward ops leaves a region and comes back.

    ``reach[i, r]`` in [0, 1] is 1 if a forward op of region r is i or comes after it. For every
    region r, forward op i and forward edge (i, j)

        reach[i, r] >= x[i, r]
        reach[j, r] <= reach[i, r]
        reach[j, r] <= x[j, r] - x[i, r] + 1

    Where x is 0 or 1 the least such reach is 0 or 1, and the last row fails if i is inside, j is
    not, and something after j is.

    $z_{ir} \ge x_{ir}, \quad z_{jr} \le z_{ir}, \quad z_{jr} \le x_{jr} - x_{ir} + 1$
    """
    model = block.model()
    block.reach = reach = pyo.Var(
        model.FORWARD, names, bounds=(0, 1), doc="reach[i, r]: an op of region r leads to op i"
    )
    block.convex_reach = pyo.Constraint(
        model.FORWARD, names, rule=lambda _, i, r: reach[i, r] >= inside[i, r]
    )
    block.convex_back = pyo.Constraint(
        model.FORWARD_ARCS, names, rule=lambda _, i, j, r: reach[j, r] <= reach[i, r]
    )
    block.convex_no_return = pyo.Constraint(
        model.FORWARD_ARCS,
        names,
        rule=lambda _, i, j, r: reach[j, r] <= inside[j, r] - inside[i, r] + 1,
    )


def set_reach(block: Any, instance: Instance, home: Mapping[str, str]) -> None:
    """Set reach to the values of a plan with op i in region ``home[i]``."""
    ops, after = list(home), {i: {r} for i, r in home.items()}
    succs = grouped(block.model().FORWARD_ARCS)
    for at in reversed(instance.arrays.index.topological_order.tolist()):
        after[ops[at]] = after[ops[at]].union(*(after[j] for j in succs.get(ops[at], ())))
    for (i, r), variable in block.reach.items():
        variable.set_value(int(r in after[i]))


# ------------------------------------------------------------------- contiguity: a chain of regions


@family
def chain_regions(block: Any, names: list[str], inside: Any) -> None:
    r"""Tarnawski et al., section 5.1, chains: each region takes a position, and no arc leads to an
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
    bound is far worse.) Of columns of devices only those in use have a position: used[r] takes the
    place of the first 1.

    $\sum_s y_{rs} = 1, \quad \sum_r y_{rs} \le 1, \quad \pm(\pi_i - \Pi_r) \le (P - 1)(1 - x_{ir}),
    \quad \pi_i \le \pi_j$
    """
    # An op takes the position of its region by two big-M rows with P - 1, the largest difference of
    # positions: place is free if the op is elsewhere. Regions without ops take positions, too, so
    # that every region has one and no row on emptiness is needed.
    model, used = block.model(), block.component("used")
    size = len(names if used is None else model.DEVICES)
    last, positions = size - 1, range(size)
    block.position = position = pyo.Var(
        names, positions, domain=pyo.Binary, doc="position[r, p]: region r is number p of the chain"
    )
    block.place = place = pyo.Var(model.OPS, bounds=(0, last), doc="place[i]: position of op i")

    def pos(r: str) -> Linear:
        return sum(p * position[r, p] for p in positions)

    @block.Constraint(names)
    def position_of_region(_: Any, r: str) -> Linear:
        return sum(position[r, p] for p in positions) == (1 if used is None else used[r])

    block.position_once = pyo.Constraint(
        positions, rule=lambda _, p: sum(position[r, p] for r in names) <= 1
    )
    block.place_at_most = pyo.Constraint(
        model.OPS, names, rule=lambda _, i, r: place[i] - pos(r) <= last * (1 - inside[i, r])
    )
    block.place_at_least = pyo.Constraint(
        model.OPS, names, rule=lambda _, i, r: pos(r) - place[i] <= last * (1 - inside[i, r])
    )
    block.chain_in_order = pyo.Constraint(
        model.CHAIN_ARCS, rule=lambda _, i, j: place[i] <= place[j]
    )


def set_positions(block: Any, names: list[str], home: Mapping[str, str]) -> None:
    """Set position and place to the values of a plan: op i in region ``home[i]``."""
    order = chain_order(block.model(), home)
    if block.component("used") is None:
        order += [r for r in names if r not in order]
    where = {r: p for p, r in enumerate(order)}
    for (r, p), variable in block.position.items():
        variable.set_value(int(where.get(r) == p))
    for i, variable in block.place.items():
        variable.set_value(where[home[i]])


def chain_order(model: pyo.ConcreteModel, home: Mapping[str, Any]) -> list[Any]:
    """The regions of a chain plan that have ops, each before those it feeds; ties: first op."""
    quotient: nx.DiGraph[Any] = nx.DiGraph()
    quotient.add_nodes_from(home.values())
    quotient.add_edges_from((home[i], home[j]) for i, j in model.CHAIN_ARCS if home[i] != home[j])
    first = {r: at for at, r in reversed(list(enumerate(home.values())))}
    return list(nx.lexicographical_topological_sort(quotient, key=lambda r: first[r]))
