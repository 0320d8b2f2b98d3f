"""The throughput IP of Tarnawski et al. (NeurIPS 2020): contiguous, as chains, or free.

Claim: exact for ``max_load`` and ``max_load_fwd_bwd`` (their Appendix C), for every class of plans
and with ``add`` and ``overlap`` loads; likewise with two levels of communication. With replicated
stages it is exact where its unit is 1 ns, and otherwise a relaxation by up to 2 ns: shares are not
rounded up. The model of plans of ``any`` class, p being ``duration_ns`` and c ``host_ns``:

    minimize T
    sum over k of x_ik = 1,  sum over i of m_i x_ik <= M_k
    leaves_uk >= x_ik - x_jk,  enters_uk >= x_jk - x_ik       tensor u from op i to j, device k
    T >= sum over i of p_ik x_ik + sum over u of c_uk (leaves_uk + enters_uk)

The counting is that of their published program: a tensor that leaves device k costs host_ns[u, k]
there once, a tensor that enters k costs it once; hosts pay nothing for communication. Plans
``convex`` have the rows of `rows.convex_regions` as published, plans ``chain`` those of
`rows.chain_regions`: exactly the chains of ideals of their dynamic program. Of ``max_load_fwd_bwd``
T is the sum of two loads, one of each pass. The tables of contents are `build_plain`,
`build_replicas` (stages on several devices) and `build_servers` (two levels).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared import refuse
from placegap.formulations.shared.data import device_numbers, require_solution, set_values
from placegap.formulations.shared.devices import MOST_EARLIER, canonical
from placegap.formulations.shared.families import (
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    symmetry_order,
)
from placegap.formulations.throughput_ip import replicas, rows, servers
from placegap.formulations.throughput_ip.columns import (
    MOST_UNEVEN,
    Columns,
    device_columns,
    horizon_ns,
    paid_ns,
    possible_columns,
    uneven_class,
    value_step_ns,
)
from placegap.instances.objectives.max_load.checks import why_not_two_levels
from placegap.instances.problem import Instance, Loads, Plan, Semantics
from placegap.instances.reading.errors import look_up
from placegap.instances.referee.loads import server_costs

__all__ = [
    "Form",
    "build",
    "count_rows",
    "extract",
    "horizon_ns",
    "value_step_ns",
    "warm_start",
    "why_not",
]

Form = Literal["plain", "replicas", "servers"]


def build(
    instance: Instance,
    semantics: Loads,
    *,
    form: Form | None = None,
    horizon_ns: int | None = None,
    symmetry: bool = False,
) -> pyo.ConcreteModel:
    """The throughput IP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Loads
        ``max_load`` or ``max_load_fwd_bwd``; its class of plans and load rule decide the rows.
    form : {"plain", "replicas", "servers"}, optional
        It follows from the semantics: servers with two levels (with or without replicas).
    horizon_ns : int, optional
        The value of a known plan: worse plans may be missing in the model.
    symmetry : bool
        Fix the roles of equal devices. It makes proofs shorter, and is wrong beside constraints of
        your own that name devices, and where their data are changed to differ.

    Returns
    -------
    ConcreteModel
        Minimizes the value, in units of ``unit_ns`` nanoseconds; ``load_ns`` is the value in
        nanoseconds. ``duration_ns[op, device]``, ``host_ns[tensor, device]`` (where it is above 0)
        and ``capacity_bytes[device]`` may be changed between solves. An optimum above
        ``horizon_ns`` after that proves nothing: build again. Constraints can be added.

    Raises
    ------
    InputError
        Another form than that of the semantics, or what `why_not` says.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> model = build(example(), MaxLoad(plans="any"))
    >>> len(model.x), len(model.leaves), model.duration_ns["op2", "gpu0"].value
    (8, 8, 20)
    """
    if form is not None:
        look_up("form", form, dict.fromkeys(get_args(Form)))
    refuse("the throughput IP", why_not(instance, semantics, form, symmetry))
    builds = {"plain": build_plain, "replicas": build_replicas, "servers": build_servers}
    return builds[_form_of(semantics)](instance, semantics, horizon_ns, symmetry)


def build_plain(
    instance: Instance, semantics: Loads, horizon_ns: int | None, symmetry: bool
) -> pyo.ConcreteModel:
    """One load of each device, as published."""
    model = rows.model_of_loads(instance, semantics, horizon_ns, symmetry)
    horizon, devices = model.horizon_ns.value, device_columns(instance, semantics, symmetry)
    place_ops(model, possible_columns(instance, devices, horizon))
    (regions,) = rows.regions_of(model)
    rows.crossing_variables(model, regions.names, paid_ns(instance, semantics, devices, horizon))
    rows.load_variables(model)
    assign_once(model)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    rows.tensor_leaves(model, regions.inside)
    rows.tensor_enters(model, regions.inside)
    (rows.load_add if semantics.load == "add" else rows.load_overlap)(model, devices)
    rows.contiguity(regions)
    if devices.classes:
        symmetry_order(model, instance, classes=devices.classes)
    rows.load_value(model)
    return model


def build_replicas(
    instance: Instance, semantics: Loads, horizon_ns: int | None, symmetry: bool
) -> pyo.ConcreteModel:
    """Stages on columns of devices (`throughput_ip.replicas`)."""
    model = rows.model_of_loads(instance, semantics, horizon_ns, symmetry)
    horizon, columns = model.horizon_ns.value, device_columns(instance, semantics, symmetry)
    replicas.column_sets(model, columns)
    replicas.place_stages(model, possible_columns(instance, columns, horizon))
    (regions,) = rows.regions_of(model)
    rows.crossing_variables(model, regions.names, paid_ns(instance, semantics, columns, horizon))
    rows.load_variables(model)
    replicas.share_variables(model)
    replicas.stage_assign_once(model)
    replicas.stage_colocate_ops(model, instance)
    replicas.stage_used(model)
    replicas.stage_disjoint(model)
    replicas.stage_packed(model, columns)
    memory_capacity(model, instance)
    rows.tensor_leaves(model, regions.inside)
    rows.tensor_enters(model, regions.inside)
    (rows.load_add if semantics.load == "add" else rows.load_overlap)(model, columns)
    replicas.load_shared(model, instance, columns)
    rows.contiguity(regions)
    if semantics.plans == "chain":
        replicas.position_filled(model)
        replicas.position_order(model, columns)
    rows.load_value(model)
    return model


def build_servers(
    instance: Instance, semantics: Loads, horizon_ns: int | None, symmetry: bool
) -> pyo.ConcreteModel:
    """The plain model, or that with replicas, and what servers pay (`throughput_ip.servers`)."""
    build_within = build_replicas if semantics.has_replicas else build_plain
    model = build_within(instance, semantics, horizon_ns, symmetry)
    if len(instance.cluster.server_numbers[0]) > 1:
        servers.place_in_servers(model, instance)
        regions = rows.regions_of(model)[1]
        paid = np.minimum(server_costs(instance), model.horizon_ns.value + 1)
        rows.crossing_variables(model.servers, regions.names, paid)
        rows.tensor_leaves(model.servers, regions.inside)
        rows.tensor_enters(model.servers, regions.inside)
        servers.server_load(model)
        rows.contiguity(regions)
    return model


def _form_of(semantics: Semantics) -> Form:
    if semantics.has_two_levels:
        return "servers"
    return "replicas" if semantics.has_replicas else "plain"


def why_not(
    instance: Instance, semantics: Semantics, form: Form | None = None, symmetry: bool = False
) -> str | None:
    """Why the model does not state a semantics of an instance, or None if it does."""
    if not semantics.load_passes:
        return f"states max_load and max_load_fwd_bwd, not {semantics.label}"
    fits = _form_of(semantics)
    if form not in (None, fits):
        return f"has form={fits} for {semantics.label}, not form={form}"
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
    servers = len(instance.cluster.server_numbers[0]) if semantics.has_two_levels else 0
    parts = len(semantics.load_passes)
    count = n + 2 * len(columns) * parts + 2 * pins * (pays + servers) + servers
    if semantics.has_replicas:
        count += n * len(columns) + instance.num_devices + 3 * len(columns)
    else:
        groups = min(arrays.num_groups, MOST_EARLIER + 1)
        count += groups * sum(len(members) - 1 for members in columns.classes)
    regions = len(columns) + servers
    if semantics.plans != "any":
        arcs, forward = len(rows.forward_arcs(instance)), int((~arrays.backward).sum())
        count += regions * (forward + 2 * arcs)
    if semantics.plans == "chain":
        arcs, size = len(rows.chain_arcs(instance)), instance.num_devices
        count += 2 * n * regions + arcs * (2 if servers else 1) + 2 * (regions + size)
        if semantics.has_replicas:
            count += len(replicas.alike_pairs(columns)) * size
    return count


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables to those of a feasible plan.

    With symmetry, equal devices are swapped as the model demands.
    """
    columns = device_columns(instance, model.semantics, model.symmetry)
    home = columns_of(model, instance, plan, columns)
    for block, names, inside in rows.regions_of(model):
        if block is model:
            set_values(inside, home.items())
            set_values(model.component("used") or {}, home.values())
        else:
            home = {i: model.server[r] for i, r in home.items()}
        rows.set_crossings(block, home)
        if model.semantics.plans != "any":
            rows.set_reach(block, instance, home)
        if model.semantics.plans == "chain":
            rows.set_positions(block, names, home)
    rows.set_loads(model, columns)


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan that the values of x describe."""
    require_solution(model, instance, check=check)
    if not model.semantics.has_replicas:
        return Plan.on(device_numbers(model))
    columns, stage = device_columns(instance, model.semantics, model.symmetry), model.stage
    members = dict(zip(columns.names, columns.devices, strict=True))
    best = [max(members, key=lambda s: stage[i, s].value) for i in model.OPS]
    return Plan(tuple(members[s] for s in best))


def columns_of(
    model: pyo.ConcreteModel, instance: Instance, plan: Plan, columns: Columns
) -> dict[str, str]:
    """The column of each op."""
    # Equal devices are swapped as the model demands: by `devices.canonical`, or, with replicas, the
    # stages of a class take its devices from the left, larger stages first, then in order.
    if not model.semantics.has_replicas:
        plan = canonical(instance, plan, model.semantics, columns.classes)
        devices = plan.devices.tolist()
        return {i: columns.names[k] for i, k in zip(model.OPS, devices, strict=True)}
    stage_of = dict(zip(model.OPS, plan.placement, strict=True))
    order = list(dict.fromkeys(plan.placement))
    if model.semantics.plans == "chain":
        order = rows.chain_order(model, stage_of)
    column, alike = dict(zip(columns.devices, columns.names, strict=True)), columns.alike
    free: dict[int, list[int]] = {}
    for k in range(instance.num_devices):
        free.setdefault(alike[k], []).append(k)
    swapped = {number for number, own in free.items() if len(own) > 1}
    chosen: dict[tuple[int, ...], str] = {}
    for stage in sorted(order, key=len, reverse=True):
        own, size = free[alike[stage[0]]], len(stage)
        chosen[stage] = column[tuple(own[:size]) if alike[stage[0]] in swapped else stage]
        del own[:size]
    return {i: chosen[stage] for i, stage in stage_of.items()}
