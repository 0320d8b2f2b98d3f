"""The throughput IP of Tarnawski et al. (NeurIPS 2020), without contiguity.

Claim: exact for ``max_load any``, with ``add`` and with ``overlap`` loads. The counting is that of
their published program: a tensor that leaves device k costs host_time(tensor, k) there once, a
tensor that enters k costs it once; hosts pay nothing for communication. Components of the model:

- ``x[i, k]`` in {0, 1}: op i is on device k;
- ``leaves[u, k]``, ``enters[u, k]`` in [0, 1]: tensor u leaves, enters device k; only where that
  costs something, and integral where x is;
- ``largest``: the load of the heaviest device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.common import (
    Linear,
    assign_once,
    colocate_ops,
    granularity_ns,
    memory_capacity,
    place_ops,
    placement,
    possible_devices,
    set_placement,
    time_unit_ns,
)
from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.loads import combine, device_loads
from placegap.instances.model import Instance
from placegap.instances.plan import Plan
from placegap.instances.semantics import Semantics

Contiguous = Literal["no"]


@dataclass(frozen=True)
class Pins:
    """Who makes each tensor and who reads it.

    Attributes
    ----------
    producer : list of int
        Of each tensor.
    consumers : list of lists of int
        Of each tensor, every op once.
    priced : list of (int, int)
        The (tensor, device) pairs at which crossing the device's border costs time.
    """

    producer: list[int]
    consumers: list[list[int]]
    priced: list[tuple[int, int]]


def build(
    instance: Instance, semantics: Semantics, contiguous: Contiguous = "no"
) -> pyo.ConcreteModel:
    """The throughput IP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Semantics
        ``max_load``; its load rule decides the rows of the devices.
    contiguous : {"no"}
        Which plans the model admits: all.

    Returns
    -------
    ConcreteModel
        Minimizes ``largest``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        Another objective, or plans of another class.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Semantics(objective="max_load"))
    >>> len(model.x), len(model.leaves), pyo.value(model.unit_ns)
    (8, 8, 1.0)
    """
    reason = why_not(semantics, contiguous)
    if reason is not None:
        raise ValueError(f"the throughput IP {reason}")
    pins = tensor_pins(instance)
    unit_ns = time_unit_ns(horizon_ns(instance), granularity_ns(instance, transfers=False))
    model = pyo.ConcreteModel(name=f"throughput IP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=unit_ns)
    place_ops(model, possible_devices(instance))
    crossing_variables(model, pins)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    tensor_leaves(model, pins)
    tensor_enters(model, pins)
    if semantics.load == "add":
        load_add(model, instance, unit_ns)
    else:
        load_overlap(model, instance, unit_ns)
    model.objective = pyo.Objective(expr=model.largest)
    return model


def why_not(semantics: Semantics, contiguous: Contiguous) -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if semantics.objective != "max_load" or semantics.plans != "any":
        return f"with contiguous={contiguous} states max_load any, not {semantics.label}"
    return None


def count_rows(instance: Instance) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building.

    Examples
    --------
    >>> from placegap.instances import example
    >>> count_rows(example())
    24
    """
    index, accelerators = instance.arrays.index, int((~instance.arrays.is_host).sum())
    pins = len(np.unique(index.tensor * instance.num_ops + index.consumer))
    return instance.num_ops + 2 * instance.num_devices + 2 * pins * accelerators


def horizon_ns(instance: Instance) -> int:
    """No device is loaded with more: all ops at their slowest, and all tensors in and out."""
    arrays = instance.arrays
    ops = np.where(arrays.time_ns == UNSUPPORTED, 0, arrays.time_ns).max(axis=1).tolist()
    return int(sum(ops) + 2 * sum(arrays.host_ns.max(axis=1, initial=0).tolist()))


def tensor_pins(instance: Instance) -> Pins:
    """Producers, consumers and priced devices of all tensors; O(m + t K)."""
    arrays, index = instance.arrays, instance.arrays.index
    consumers = [
        sorted(set(index.consumer[index.tensor_edge[a:b]].tolist()))
        for a, b in zip(index.tensor_ptr[:-1], index.tensor_ptr[1:], strict=True)
    ]
    priced = np.argwhere((arrays.host_ns > 0) & ~arrays.is_host).tolist()
    return Pins(index.tensor_producer.tolist(), consumers, [(u, k) for u, k in priced])


# ---------------------------------------------------------------------------------------- variables


def crossing_variables(model: pyo.ConcreteModel, pins: Pins) -> None:
    """``leaves[u, k]`` and ``enters[u, k]`` in [0, 1], and ``largest`` >= 0."""
    model.leaves = pyo.Var(pins.priced, bounds=(0, 1))
    model.enters = pyo.Var(pins.priced, bounds=(0, 1))
    model.largest = pyo.Var(domain=pyo.NonNegativeReals)


# -------------------------------------------------------------------------------------- constraints


def tensor_leaves(model: pyo.ConcreteModel, pins: Pins) -> None:
    """leaves[u, k] >= x[i, k] - x[j, k], i the producer and j any consumer of tensor u."""
    rows = [(u, k, j) for u, k in pins.priced for j in pins.consumers[u]]

    @model.Constraint(rows)
    def tensor_leaves(model: pyo.ConcreteModel, u: int, k: int, j: int) -> Linear:
        return model.leaves[u, k] >= model.x[pins.producer[u], k] - model.x[j, k]


def tensor_enters(model: pyo.ConcreteModel, pins: Pins) -> None:
    """enters[u, k] >= x[j, k] - x[i, k], i the producer and j any consumer of tensor u."""
    rows = [(u, k, j) for u, k in pins.priced for j in pins.consumers[u]]

    @model.Constraint(rows)
    def tensor_enters(model: pyo.ConcreteModel, u: int, k: int, j: int) -> Linear:
        return model.enters[u, k] >= model.x[j, k] - model.x[pins.producer[u], k]


def load_add(model: pyo.ConcreteModel, instance: Instance, unit_ns: float) -> None:
    """Load of every device k: largest >= compute + communication.

    Compute is the sum over i of p_ik x[i, k], communication the sum over u of
    host_time(u, k) (leaves[u, k] + enters[u, k]).
    """
    compute, communication = _parts(model, instance, unit_ns)

    @model.Constraint(range(instance.num_devices))
    def load_add(model: pyo.ConcreteModel, k: int) -> Linear:
        return model.largest >= compute[k] + communication[k]


def load_overlap(model: pyo.ConcreteModel, instance: Instance, unit_ns: float) -> None:
    """Load of every device k: largest >= compute and largest >= communication (`load_add`)."""
    compute, communication = _parts(model, instance, unit_ns)
    pays = [k for k, part in enumerate(communication) if not isinstance(part, int)]

    @model.Constraint(range(instance.num_devices))
    def load_overlap_compute(model: pyo.ConcreteModel, k: int) -> Linear:
        return model.largest >= compute[k]

    @model.Constraint(pays)
    def load_overlap_communication(model: pyo.ConcreteModel, k: int) -> Linear:
        return model.largest >= communication[k]


def _parts(
    model: pyo.ConcreteModel, instance: Instance, unit_ns: float
) -> tuple[list[Linear], list[Linear]]:
    """Compute and communication of every device, as expressions."""
    time, host = instance.arrays.time_ns / unit_ns, instance.arrays.host_ns / unit_ns
    compute: list[list[Linear]] = [[] for _ in range(instance.num_devices)]
    communication: list[list[Linear]] = [[] for _ in compute]
    for (i, k), x in model.x.items():
        if not x.fixed:
            compute[k].append(float(time[i, k]) * x)
    for (u, k), leaves in model.leaves.items():
        communication[k].append(float(host[u, k]) * (leaves + model.enters[u, k]))
    return [sum(part) for part in compute], [sum(part) for part in communication]


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(
    model: pyo.ConcreteModel, instance: Instance, plan: Plan, semantics: Semantics
) -> None:
    """Set the values of all variables to those of a feasible plan."""
    set_placement(model, plan)
    pins, device = tensor_pins(instance), plan.devices
    for u, k in pins.priced:
        inside = [bool(device[j] == k) for j in pins.consumers[u]]
        made_here = bool(device[pins.producer[u]] == k)
        model.leaves[u, k].set_value(int(made_here and not all(inside)))
        model.enters[u, k].set_value(int(not made_here and any(inside)))
    load = combine(semantics.load, *device_loads(instance, device))
    model.largest.set_value(int(load.max()) / pyo.value(model.unit_ns))


def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of x describe."""
    return Plan.on(placement(model, instance.num_ops))
