"""The throughput IP with a load of each device, as published."""

from __future__ import annotations

import pyomo.environ as pyo

from placegap.formulations.shared.families import (
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    symmetry_order,
)
from placegap.formulations.throughput_ip import rows
from placegap.formulations.throughput_ip.columns import device_columns, paid_ns, possible_columns
from placegap.instances.problem import Instance, Loads


def build(
    instance: Instance, semantics: Loads, horizon_ns: int | None, symmetry: bool
) -> pyo.ConcreteModel:
    """The plain model; see `throughput_ip.build`."""
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
    rows.contiguity(model, regions)
    if devices.classes:
        symmetry_order(model, instance, classes=devices.classes)
    rows.load_value(model)
    return model
