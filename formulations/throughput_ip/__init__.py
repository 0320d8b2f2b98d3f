"""The throughput IP of Tarnawski et al. (NeurIPS 2020): contiguous, as chains, or free.

Claim: exact for ``max_load`` and ``max_load_fwd_bwd`` (their Appendix C), for every class of plans
and with ``add`` and ``overlap`` loads; likewise with two levels of communication. With replicated
stages it is exact where its unit is 1 ns, and otherwise a relaxation by up to 2 ns: shares are not
rounded up. The counting is that of their published program: a tensor that leaves device k costs
host_time(tensor, k) there once, a tensor that enters k costs it once; hosts pay nothing for
communication. Components of the model:

- ``x[i, k]`` in {0, 1}: op i is on device k (with replicas: `throughput_ip.columns`);
- ``leaves[u, k]``, ``enters[u, k]`` in [0, 1]: tensor u leaves, enters device k; only where that
  costs something, and integral where x is;
- ``largest``: the load of the heaviest device; ``largest_forward`` and ``largest_backward``, which
  are added up, for ``max_load_fwd_bwd``;
- ``reach[i, r]`` (plans convex or chain; their z): a forward op of region r is i or comes after it;
- ``position[r, p]``, ``place[i]`` (chain): region r is number p of the chain; where op i is in it;
- what replicas (`throughput_ip.columns`) and servers (`throughput_ip.rows`) need. A region is a
  device or a server; the components of servers have the prefix ``server_``.

The classes of plans: ``any``; ``convex`` as published; ``chain``, exactly the chains of ideals of
their dynamic program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.devices import MOST_EARLIER, canonical, symmetry_order
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import (
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    placement,
    set_placement,
)
from placegap.formulations.throughput_ip import columns as of_devices
from placegap.formulations.throughput_ip import rows as of_regions
from placegap.formulations.throughput_ip.columns import (
    MOST_UNEVEN,
    ThroughputSets,
    device_columns,
    horizon_ns,
    place_stages,
    set_stages,
    stage_assign_once,
    stage_colocate_ops,
    stage_disjoint,
    stage_packed,
    stage_used,
    throughput_data,
    uneven_class,
    value_step_ns,
)
from placegap.formulations.throughput_ip.rows import (
    Inside,
    Stages,
    alike_pairs,
    chain_arcs,
    chain_order,
    chain_regions,
    convex_regions,
    crossing_variables,
    exclude_too_long,
    forward_arcs,
    load_add,
    load_overlap,
    load_shared,
    parameter_bytes,
    parts_of,
    server_crossings,
    server_load,
    server_variables,
    set_positions,
    set_reach,
    share_variables,
    tensor_enters,
    tensor_leaves,
)
from placegap.instances.objectives.max_load.checks import why_not_two_levels
from placegap.instances.problem import Instance, Loads, Plan, PlanClass, Semantics
from placegap.instances.problem.integers import ceil_div
from placegap.instances.reading.errors import look_up
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.loads import combine, device_loads, sync_ns

__all__ = [
    "Contiguous",
    "build",
    "count_rows",
    "extract",
    "horizon_ns",
    "value_step_ns",
    "warm_start",
    "why_not",
]


Contiguous = Literal["convex", "chain", "no"]


CLASS_OF: dict[Contiguous, PlanClass] = {"convex": "convex", "chain": "chain", "no": "any"}
"""The class of plans that each form of the model admits."""


def build(
    instance: Instance,
    semantics: Loads,
    contiguous: Contiguous | None = None,
    symmetry: bool = False,
    most_ns: int | None = None,
    *,
    names: bool = False,
) -> pyo.ConcreteModel:
    """The throughput IP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Loads
        ``max_load`` or ``max_load_fwd_bwd``; its load rule decides the rows of the devices.
    contiguous : {"convex", "chain", "no"}, optional
        Which plans the model admits; it must be the class of the semantics, as it is by default.
    symmetry : bool
        Fix the roles of equal devices. It makes proofs shorter, and is wrong beside constraints of
        your own that name devices. Pass the same value to `warm_start` and `extract`.
    most_ns : int, optional
        The value of a known plan: worse plans may be missing in the model.
    names : bool
        Index the components by the names of ops and devices, not by their numbers.
        A column of devices that replicate a stage is "gpu0+gpu1".

    Returns
    -------
    ConcreteModel
        Minimizes the value, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        Another class of plans, or what `why_not` says.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> model = build(example(), MaxLoad(plans="any"))
    >>> len(model.x), len(model.leaves), pyo.value(model.unit_ns)
    (8, 8, 1.0)
    """
    if contiguous is not None:
        look_up("contiguity", contiguous, dict.fromkeys(get_args(Contiguous)))
    reason = why_not(instance, semantics, contiguous, symmetry)
    if reason is not None:
        raise ValueError(f"the throughput IP {reason}")
    data = throughput_data(instance, semantics, symmetry, most_ns)
    model = pyo.ConcreteModel(name=f"throughput IP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=data.unit_ns)
    # With replicas an op chooses a column of devices, not a device: x is an expression of these
    # choices, so that rows on single devices (memory) are the same in both cases.
    if semantics.has_replicas:
        place_stages(model, data)
        crossing_variables(model, data)
        share_variables(model, data)
        stage_assign_once(model, data)
        stage_colocate_ops(model, data)
        stage_used(model, data)
        stage_disjoint(model, data)
        stage_packed(model, data)
    else:
        place_ops(model, instance.arrays.able)
        crossing_variables(model, data)
        assign_once(model, instance)
        colocate_ops(model, instance)
    inside = _inside(model)
    # Before the rows: they leave out variables that are fixed here.
    exclude_too_long(data, inside)
    memory_capacity(model, instance)
    tensor_leaves(model, data, inside)
    tensor_enters(model, data, inside)
    if semantics.load == "add":
        load_add(model, data, inside)
    else:
        load_overlap(model, data, inside)
    if semantics.has_replicas:
        load_shared(model, data, inside)
    if len(data.servers) > 1:
        server_variables(model, data, inside)
        server_crossings(model, data)
        server_load(model, data)
    contiguity(model, data)
    # Replicated columns have their own order of equal devices (`stage_packed`, `position_order`).
    if data.columns.classes and not semantics.has_replicas:
        symmetry_order(model, instance, classes=data.columns.classes)
    model.objective = pyo.Objective(
        expr=sum(model.component(f"largest{suffix}") for suffix, _ in parts_of(data)),
        doc="Tarnawski et al.: MaxLoad",
    )
    own = names_of(instance) if names else None
    if own is not None:
        columns = ["+".join(own["k"][k] for k in members) for members in data.columns.devices]
        own |= {**dict.fromkeys("skrab", columns), "v": data.servers, "server r": data.servers}
    return describe(model, f"{__doc__}\n{of_devices.__doc__}\n{of_regions.__doc__}", own)


def contiguity(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """The rows of the class of plans, for the columns of devices and for the servers."""
    # Every chain is convex. Its own rows have big-M and bound little: the LP bound of a chain comes
    # from the rows of convex regions.
    instance, columns, plans = data.instance, data.columns, data.semantics.plans
    regions = [(_inside(model), len(columns), "")]
    if len(data.servers) > 1:
        regions.append((model.in_server, len(data.servers), "server_"))
    for inside, size, prefix in regions:
        if plans != "any":
            convex_regions(model, instance, inside, size, prefix)
        if plans == "chain":
            stages = None
            if data.semantics.has_replicas and not prefix:
                stages = Stages(model.used, instance.num_devices, alike_pairs(columns))
            arcs = chain_arcs(instance)
            chain_regions(model, arcs, inside, instance.num_ops, size, stages, prefix)


def why_not(
    instance: Instance,
    semantics: Semantics,
    contiguous: Contiguous | None = None,
    symmetry: bool = False,
) -> str | None:
    """Why the model does not state a semantics of an instance, or None if it does."""
    if not semantics.load_passes:
        return f"states max_load and max_load_fwd_bwd, not {semantics.label}"
    if contiguous is not None and CLASS_OF[contiguous] != semantics.plan_class:
        return (
            f"with contiguous={contiguous} states plans {CLASS_OF[contiguous]}, not"
            f" {semantics.label}"
        )
    if semantics.has_two_levels:
        reason = why_not_two_levels(instance)
        if reason is not None:
            return f"does not apply: {reason}"
    if semantics.has_replicas:
        uneven = uneven_class(instance, semantics, symmetry)
        if uneven > MOST_UNEVEN:
            return (
                f"with replicas takes at most {MOST_UNEVEN} equal devices that cannot be swapped"
                f" (links of several bandwidths, or without symmetry=True), not {uneven}"
            )
    return None


def count_rows(instance: Instance, semantics: Loads, symmetry: bool = False) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building."""
    arrays, index, n = instance.arrays, instance.arrays.index, instance.num_ops
    columns = device_columns(instance, semantics, symmetry)
    pays = sum(not arrays.is_host[devices[0]] for devices in columns.devices)
    pins = len(np.unique(index.tensor * n + index.consumer))
    servers = 0
    if semantics.has_two_levels:
        servers = len({device.server for device in instance.cluster.devices})
    parts = len(semantics.load_passes)
    rows = n + 2 * len(columns) * parts + 2 * pins * (pays + servers) + servers
    if semantics.has_replicas:
        rows += n * len(columns) + instance.num_devices + 3 * len(columns)
    if not semantics.has_replicas:
        groups = min(arrays.num_groups, MOST_EARLIER + 1)
        rows += groups * sum(len(members) - 1 for members in columns.classes)
    regions = len(columns) + servers
    if semantics.plans != "any":
        arcs, forward = len(forward_arcs(instance)), int((~arrays.backward).sum())
        rows += regions * (forward + 2 * arcs)
    if semantics.plans == "chain":
        arcs, size = len(chain_arcs(instance)), instance.num_devices
        rows += 2 * n * regions + arcs * (2 if servers else 1) + 2 * (regions + size)
        if semantics.has_replicas:
            rows += len(alike_pairs(columns)) * size
    return rows


def _inside(model: pyo.ConcreteModel) -> Inside:
    """The variables that are 1 where an op is in a column."""
    return model.x if model.component("stage") is None else model.stage


# ------------------------------------------------------------------------------------ plans in, out


@by_number
def warm_start(
    model: pyo.ConcreteModel,
    instance: Instance,
    plan: Plan,
    semantics: Loads,
    symmetry: bool = False,
) -> None:
    """Set the values of all variables to those of a feasible plan.

    With `symmetry`, equal devices are swapped as the model demands.
    """
    data = throughput_data(instance, semantics, symmetry)
    data = replace(data, unit_ns=pyo.value(model.unit_ns))
    column, order = columns_of(data, plan)
    if semantics.has_replicas:
        set_stages(model, column)
        _set_shares(model, data, plan, column)
    else:
        set_placement(model, Plan.on(column))
    _set_crossings(model.leaves, model.enters, data, column)
    if len(data.servers) > 1:
        server = [int(data.server[s]) for s in column]
        _set_crossings(model.server_leaves, model.server_enters, data, server)
        if semantics.plans != "any":
            set_reach(model, instance, server, "server_")
        if semantics.plans == "chain":
            known = chain_order(chain_arcs(instance), server)
            others = [v for v in range(len(data.servers)) if v not in known]
            set_positions(model, server, [*known, *others], "server_")
    if semantics.plans != "any":
        set_reach(model, instance, column)
    if semantics.plans == "chain":
        set_positions(model, column, order)
    if len(semantics.load_passes) == 1:
        model.largest.set_value((evaluate(instance, plan, semantics).value_ns or 0) / data.unit_ns)
        return
    for suffix, backward in parts_of(data):
        load = combine(semantics.load, *device_loads(instance, plan.devices, backward=backward))
        model.component(f"largest{suffix}").set_value(int(load.max()) / data.unit_ns)


@by_number
def extract(
    model: pyo.ConcreteModel, instance: Instance, semantics: Loads, symmetry: bool = False
) -> Plan:
    """The plan that the values of x describe."""
    if not semantics.has_replicas:
        return Plan.on(placement(model, instance.num_ops))
    devices = device_columns(instance, semantics, symmetry).devices
    return Plan(tuple(devices[s] for s in placement(model, instance.num_ops, of="stage")))


def columns_of(data: ThroughputSets, plan: Plan) -> tuple[list[int], list[int]]:
    """The column of each op, and the columns in the order of the chain, unused devices last.

    Equal devices are swapped as the model demands: by `devices.canonical`, or, with replicas, the
    stages of a class take its devices from the left, larger stages first, then in order.
    """
    instance, columns, plans = data.instance, data.columns, data.semantics.plans
    replicas = data.semantics.has_replicas
    if not replicas:
        plan = canonical(instance, plan, data.semantics, columns.classes)
    stages = list(dict.fromkeys(plan.placement))
    number = {stage: at for at, stage in enumerate(stages)}
    stage_of = [number[devices] for devices in plan.placement]
    order = list(range(len(stages)))
    if plans == "chain":
        order = chain_order(chain_arcs(instance), stage_of)
    single = {stage: stages[stage][0] for stage in order}
    chosen = _packed(data, stages, order) if replicas else single
    in_order = [chosen[stage] for stage in order]
    if not replicas:
        in_order += [k for k in range(len(columns)) if k not in in_order]
    return [chosen[stage] for stage in stage_of], in_order


def _packed(
    data: ThroughputSets, stages: list[tuple[int, ...]], order: list[int]
) -> dict[int, int]:
    """Column of each stage, by number: swappable devices from the left, large stages first."""
    columns = data.columns
    column = {devices: s for s, devices in enumerate(columns.devices)}
    members: dict[int, list[int]] = {}
    for k in range(data.instance.num_devices):
        members.setdefault(columns.alike[k], []).append(k)
    free = {number: list(own) for number, own in members.items()}
    chosen = {}
    for stage in sorted(order, key=lambda at: (-len(stages[at]), order.index(at))):
        own = free[columns.alike[stages[stage][0]]]
        if len(members[columns.alike[stages[stage][0]]]) == 1:
            chosen[stage] = column[stages[stage]]
            continue
        size = len(stages[stage])
        chosen[stage] = column[tuple(own[:size])]
        del own[:size]
    return chosen


def _set_crossings(leaves: Any, enters: Any, data: ThroughputSets, region: list[int]) -> None:
    for u, r in leaves:
        inside = [region[j] == r for j in data.consumers[u]]
        made_here = region[data.producer[u]] == r
        leaves[u, r].set_value(int(made_here and not all(inside)))
        enters[u, r].set_value(int(not made_here and any(inside)))


def _set_shares(
    model: pyo.ConcreteModel, data: ThroughputSets, plan: Plan, column: list[int]
) -> None:
    parts = device_loads(
        data.instance, plan.devices, cost_ns=data.border_ns[:, : data.instance.num_devices]
    )
    load, weights = combine(data.semantics.load, *parts), parameter_bytes(data)
    devices_of = dict(zip(column, plan.placement, strict=True))
    for s in data.columns.replicated:
        share = sync = 0
        if s in devices_of:
            r, width = len(devices_of[s]), data.columns.bandwidth[s]
            share = ceil_div(int(load[devices_of[s][0]]), r)
            if width is not None:
                own = (size for i, size in weights.items() if column[i] == s)
                sync = sync_ns(sum(own), r, width)
        model.share[s].set_value(share / data.unit_ns)
        model.sync[s].set_value(sync / data.unit_ns)
