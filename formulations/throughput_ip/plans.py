"""Plans into and out of the throughput IP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyomo.environ as pyo

from placegap.formulations.shared.devices import canonical
from placegap.formulations.shared.families import placement, set_placement
from placegap.formulations.throughput_ip.columns import (
    ThroughputSets,
    device_columns,
    set_stages,
    throughput_data,
)
from placegap.formulations.throughput_ip.rows import (
    chain_arcs,
    chain_order,
    parameter_bytes,
    parts_of,
    set_positions,
    set_reach,
)
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LoadSemantics, has_replicas
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.loads import combine, device_loads, sync_ns


def warm_start(
    model: pyo.ConcreteModel,
    instance: Instance,
    plan: Plan,
    semantics: LoadSemantics,
    symmetry: bool = False,
) -> None:
    """Set the values of all variables to those of a feasible plan.

    Where the model fixes the roles of equal devices, as `symmetry` says, they swap them.
    """
    data = throughput_data(instance, semantics, symmetry)
    data = replace(data, unit_ns=pyo.value(model.unit_ns))
    column, order = columns_of(data, plan)
    if has_replicas(semantics):
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
    if semantics.objective == "max_load":
        model.largest.set_value((evaluate(instance, plan, semantics).value_ns or 0) / data.unit_ns)
        return
    for suffix, backward in parts_of(data):
        load = combine(semantics.load, *device_loads(instance, plan.devices, backward=backward))
        model.component(f"largest{suffix}").set_value(int(load.max()) / data.unit_ns)


def extract(
    model: pyo.ConcreteModel, instance: Instance, semantics: LoadSemantics, symmetry: bool = False
) -> Plan:
    """The plan that the values of x describe."""
    if not has_replicas(semantics):
        return Plan.on(placement(model, instance.num_ops))
    devices = device_columns(instance, semantics, symmetry).devices
    best = [(-1.0, 0)] * instance.num_ops
    for (i, s), variable in model.stage.items():
        best[i] = max(best[i], (variable.value, -s))
    return Plan(tuple(devices[-s] for _, s in best))


def columns_of(data: ThroughputSets, plan: Plan) -> tuple[list[int], list[int]]:
    """The column of each op, and the columns in the order of the chain, unused devices last.

    Equal devices are swapped as the model demands: by `symmetry.canonical`, or, where stages are
    replicated, those of a class take its devices from the left, larger ones first, then in order.
    """
    instance, columns, plans = data.instance, data.columns, data.semantics.plans
    replicas = has_replicas(data.semantics)
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
