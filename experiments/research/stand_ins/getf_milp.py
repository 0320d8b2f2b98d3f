"""getf-milp: the GETF MILP that Moirai compares with.

Moirai (Zhang et al. 2023, section V) solves "the GETF MILP", which "neglects to integrate
machine-dependent data flow communication time", and prints no row of it. What stands here is filled
in: the LP of `formulations.getf` with integral placements on single devices, and one fixed time per
edge between ops on different devices. Ops on one device may overlap as long as the device's work
fits into the makespan: the plan is a heuristic's. Components of the model:

- ``x[i, k]`` in {0, 1}: op i is on device k;
- ``moved[i, j]`` in [0, 1]: consumer j is not on the device of i; integral where x is;
- ``op_end[i]``, ``makespan``: times.

Claim: a relaxation of the makespan under every channels and transfers rule.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.getf import (
    Pairs,
    critical_path_ns,
    horizon_ns,
    least_transfers,
    makespan_covers,
    precedence,
    time_variables,
)
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    placement,
    set_placement,
)
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.solvers.core.method import Formulation, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.lp_bounds import with_path
from placegap.solvers.models.run_mip import MIP, MipParams, run_mip, why_too_long, why_too_many_rows

ORIGIN = "getf-milp (no device-dependent communication)"


def getf_milp_applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the size is out of reach, or None; nothing is built."""
    return why_too_long(milp_horizon_ns(task.instance)) or why_too_many_rows(
        count_rows(task.instance)
    )


def getf_milp_formulation(task: Task[Makespan], params: Params) -> Formulation:
    """What the runner needs."""
    instance = task.instance
    return Formulation(
        name="getf-milp",
        starts=(),
        granularity_ns=granularity_ns(instance, transfers=True),
        build=lambda start: build(instance),
        warm_start=lambda model, plan: warm_start(model, instance, plan),
        extract=lambda model: extract(model, instance),
    )


@method(
    "getf-milp",
    objectives=("makespan",),
    cites="after Su et al. 2020 (GETF)",
    applies=getf_milp_applies,
    formulation=getf_milp_formulation,
    packages=MIP,
)
def run_getf_milp(task: Task[Makespan], params: MipParams) -> Outcome:
    """A MILP relaxation: a heuristic plan and a valid bound.

    The plan is the MILP's own, or the incumbent where that is better. No placer's plan is a start:
    what is compared as GETF's should not be HEFT's. The bound is the model's, whose transfers and
    queues are shorter than real ones, and the plan's value is the referee's: the two may stay apart
    however long the solver runs.
    """
    outcome = run_mip(task, getf_milp_formulation(task, params), params.solver)
    if outcome.proven_infeasible:
        return outcome
    bound = outcome.bound and outcome.bound._replace(origin=ORIGIN)
    return with_path(replace(outcome, bound=bound), critical_path_ns(task.instance))


def build(instance: Instance, *, names: bool = False) -> pyo.ConcreteModel:
    """The MILP of an instance; for n ops, m edges, K devices, n K + m + n + 1 columns.

    Parameters
    ----------
    instance : Instance
    names : bool
        Index the components by the names of ops and devices, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Notes
    -----
    Why it is a relaxation: as for `build_lp`, with single devices as groups; and a
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
    place_ops(model, instance.arrays.possible)
    time_variables(model, instance)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    moved_ops(model, instance, transfers_ns)
    precedence(model, device_durations(model, instance, unit_ns), transfers_ns)
    makespan_covers(model, instance)
    device_work(model, instance, unit_ns)
    model.objective = pyo.Objective(expr=model.makespan, doc="GETF: T, the makespan")
    return describe(model, __doc__, names_of(instance) if names else None)


def count_rows(instance: Instance) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside; nothing is built."""
    n, num_devices = instance.num_ops, instance.num_devices
    return 3 * n + len(instance.graph.edges) * (num_devices + 1) + num_devices


def milp_horizon_ns(instance: Instance) -> int:
    """No optimum of the MILP is longer: all ops where they take longest, and all transfers."""
    return horizon_ns(instance) + sum(least_transfers(instance).values())


def device_durations(model: pyo.ConcreteModel, instance: Instance, unit_ns: float) -> list[Linear]:
    """Time of every op: sum over k of p_ik x[i, k]."""
    time = instance.arrays.time_ns / unit_ns
    possible = instance.arrays.possible
    return [
        sum(float(time[i, k]) * model.x[i, k] for k in np.flatnonzero(row).tolist())
        for i, row in enumerate(possible)
    ]


def moved_ops(model: pyo.ConcreteModel, instance: Instance, transfers_ns: Pairs) -> None:
    """Moirai, section V, filled in: moved[i, j] >= x[i, k] - x[j, k]."""
    # For every edge that a move delays, and every device k. Where the two ops have no device in
    # common, moved is 1.
    possible = instance.arrays.possible
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
    """GETF, work of a device: sum over i of p_ik x[i, k] <= makespan for every device k."""
    time = instance.arrays.time_ns / unit_ns
    work: list[list[Linear]] = [[] for _ in range(instance.num_devices)]
    for (i, k), x in model.x.items():
        if not x.fixed:
            work[k].append(float(time[i, k]) * x)

    @model.Constraint([k for k, terms in enumerate(work) if terms])
    def device_work(model: pyo.ConcreteModel, k: int) -> Linear:
        return sum(work[k]) <= model.makespan


@by_number
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


@by_number
def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of x describe, its orders left to the referee's priorities.

    The model's own times order nothing: ops on one device overlap in them.
    """
    return Plan.on(placement(model, instance.num_ops))
