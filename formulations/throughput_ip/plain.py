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
from placegap.formulations.throughput_ip.columns import device_columns, paid_ns, possible_columns
from placegap.formulations.throughput_ip.rows import (
    contiguity,
    crossing_variables,
    load_add,
    load_overlap,
    load_value,
    load_variables,
    model_of_loads,
    regions_of,
    tensor_enters,
    tensor_leaves,
)
from placegap.instances.problem import Instance, Loads


def build(
    instance: Instance, semantics: Loads, horizon_ns: int | None, symmetry: bool
) -> pyo.ConcreteModel:
    """The plain model; see `throughput_ip.build`."""
    model = model_of_loads(instance, semantics, horizon_ns, symmetry)
    horizon, devices = model.horizon_ns.value, device_columns(instance, semantics, symmetry)
    place_ops(model, possible_columns(instance, devices, horizon))
    (regions,) = regions_of(model)
    crossing_variables(model, regions, paid_ns(instance, semantics, devices, horizon))
    load_variables(model)
    assign_once(model)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    tensor_leaves(model, regions)
    tensor_enters(model, regions)
    (load_add if semantics.load == "add" else load_overlap)(model, devices)
    contiguity(model, regions)
    if devices.classes:
        symmetry_order(model, instance, classes=devices.classes)
    load_value(model)
    return model
