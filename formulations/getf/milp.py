"""The MILP without device-dependent communication that is compared with as GETF.

Moirai (Zhang et al. 2023, section V) solves "the GETF MILP", which "neglects to integrate
machine-dependent data flow communication time", and prints no row of it. What stands here is filled
in: GETF's LP (`getf.lp`) with integral placements on single devices, and one fixed time per edge
between ops on different devices.

Claim: a relaxation of the makespan under every channels and transfers rule. Ops on one device may
overlap as long as the device's work fits into the makespan: the plan is a heuristic's. Components
of the model:

- ``x[i, k]`` in {0, 1}: op i is on device k;
- ``moved[i, j]`` in [0, 1]: consumer j is not on the device of i; integral where x is;
- ``op_end[i]``, ``makespan``: times.
"""

from __future__ import annotations

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.getf import (
    Pairs,
    horizon_ns,
    makespan_covers,
    precedence,
    time_variables,
)
from placegap.formulations.shared.devices import possible_placements
from placegap.formulations.shared.families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    placement,
    set_placement,
)
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan


def build(instance: Instance) -> pyo.ConcreteModel:
    """The MILP of an instance; for n ops, m edges, K devices, n K + m + n + 1 columns.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Notes
    -----
    Why it is a relaxation: as for `getf.lp.build_lp`, with single devices as groups; and a
    consumer on another device waits for a transfer of at least the least time over all pairs of
    different devices that the two ops can be on. All feasible placements are in the model.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example())
    >>> len(model.x), len(model.moved)
    (8, 4)
    """
    transfers_ns = least_transfers(instance)
    unit_ns = time_unit_ns(milp_horizon_ns(instance), granularity_ns(instance, transfers=True))
    model = pyo.ConcreteModel(name=f"GETF MILP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=unit_ns)
    place_ops(model, possible_placements(instance))
    time_variables(model, instance)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    moved_ops(model, instance, transfers_ns)
    precedence(model, device_durations(model, instance, unit_ns), transfers_ns)
    makespan_covers(model, instance)
    device_work(model, instance, unit_ns)
    model.objective = pyo.Objective(expr=model.makespan)
    return model


def count_rows(instance: Instance) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside; nothing is built.

    Examples
    --------
    >>> from placegap.instances import example
    >>> count_rows(example())
    26
    """
    n, num_devices = instance.num_ops, instance.num_devices
    return 3 * n + len(instance.graph.edges) * (num_devices + 1) + num_devices


def milp_horizon_ns(instance: Instance) -> int:
    """No optimum of the MILP is longer: all ops where they take longest, and all transfers."""
    return horizon_ns(instance) + sum(least_transfers(instance).values())


def least_transfers(instance: Instance) -> Pairs:
    """Least ns between the two ops of each edge on different devices; 0 if they never are.

    The least over the pairs of different devices that the two ops can be on, of the tensors that
    the pair has in common the largest. O(m K^2).

    Examples
    --------
    >>> from placegap.instances import example
    >>> least_transfers(example())
    {(0, 1): 1, (0, 2): 20, (1, 3): 1, (2, 3): 10}
    """
    arrays, index = instance.arrays, instance.arrays.index
    possible = possible_placements(instance)
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    found: Pairs = {}
    for i, j, u in zip(
        index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist(), strict=True
    ):
        least = 0
        if arrays.group[i] != arrays.group[j]:
            routes = arrays.link_class[np.outer(possible[i], possible[j]) & apart]
            least = int(arrays.transfer_ns[u, routes].min()) if routes.size else 0
        found[i, j] = max(found.get((i, j), 0), least)
    return found


# ----------------------------------------------------------------------------- variables, durations


def device_durations(model: pyo.ConcreteModel, instance: Instance, unit_ns: float) -> list[Linear]:
    """Time of every op: sum over k of p_ik x[i, k]."""
    time = instance.arrays.time_ns / unit_ns
    possible = possible_placements(instance)
    return [
        sum(float(time[i, k]) * model.x[i, k] for k in np.flatnonzero(row).tolist())
        for i, row in enumerate(possible)
    ]


# -------------------------------------------------------------------------------------- constraints


def moved_ops(model: pyo.ConcreteModel, instance: Instance, transfers_ns: Pairs) -> None:
    """moved[i, j] >= x[i, k] - x[j, k] for every edge that a move delays, every device k.

    Where the two ops have no device in common, moved is 1.
    """
    possible = possible_placements(instance)
    delayed = [pair for pair, transfer in transfers_ns.items() if transfer]
    model.moved = pyo.Var(delayed, bounds=(0, 1))
    rows = []
    for i, j in delayed:
        if not (possible[i] & possible[j]).any():
            model.moved[i, j].fix(1)
            continue
        rows += [(i, j, k) for k in np.flatnonzero(possible[i]).tolist()]

    @model.Constraint(rows)
    def moved_ops(model: pyo.ConcreteModel, i: int, j: int, k: int) -> Linear:
        return model.moved[i, j] >= model.x[i, k] - model.x[j, k]


def device_work(model: pyo.ConcreteModel, instance: Instance, unit_ns: float) -> None:
    """Sum over i of p_ik x[i, k] <= makespan for every device k."""
    time = instance.arrays.time_ns / unit_ns
    work: list[list[Linear]] = [[] for _ in range(instance.num_devices)]
    for (i, k), x in model.x.items():
        if not x.fixed:
            work[k].append(float(time[i, k]) * x)

    @model.Constraint([k for k, terms in enumerate(work) if terms])
    def device_work(model: pyo.ConcreteModel, k: int) -> Linear:
        return sum(work[k]) <= model.makespan


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables of `build`'s model to those of a feasible plan.

    The times are the model's own, which lets ops on one device overlap.
    """
    set_placement(model, plan)
    arrays, device, unit_ns = instance.arrays, plan.devices, pyo.value(model.unit_ns)
    for (i, j), moved in model.moved.items():
        if not moved.fixed:
            moved.set_value(int(device[i] != device[j]))
    transfers_ns, time = least_transfers(instance), arrays.time_ns[range(len(device)), device]
    ready_ns: Ints = np.zeros(instance.num_ops, np.int64)
    followers: dict[int, list[int]] = {}
    for i, j in transfers_ns:
        followers.setdefault(i, []).append(j)
    for i in arrays.index.topological_order.tolist():
        model.op_end[i].set_value(int(ready_ns[i] + time[i]) / unit_ns)
        for j in followers.get(i, ()):
            wait = transfers_ns[i, j] if device[i] != device[j] else 0
            ready_ns[j] = max(ready_ns[j], ready_ns[i] + time[i] + wait)
    work = np.zeros(instance.num_devices, np.int64)
    np.add.at(work, device, time)
    model.makespan.set_value(int(max(work.max(), (ready_ns + time).max())) / unit_ns)


def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of x describe, its orders left to the referee's priorities.

    The model's own times order nothing: ops on one device overlap in them.
    """
    return Plan.on(placement(model, instance.num_ops))
