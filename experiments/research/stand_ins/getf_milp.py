"""getf-milp: the GETF MILP that Moirai compares with.

Moirai (Zhang et al. 2023, section V) solves "the GETF MILP", which "neglects to integrate
machine-dependent data flow communication time", and prints no row of it. What stands here is filled
in: the LP of `formulations.getf` with integral placements on single devices, and one fixed time per
edge between ops on different devices. Ops on one device may overlap as long as the device's work
fits into the makespan: the plan is a heuristic's.

Claim: a relaxation of the makespan under every channels and transfers rule.
"""

from __future__ import annotations

from dataclasses import replace

import pyomo.environ as pyo

from placegap.formulations.getf import (
    Terms,
    arc_set,
    critical_path_ns,
    horizon_ns,
    least_transfers,
    makespan_covers,
    precedence,
    time_variables,
)
from placegap.formulations.shared import require_makespan
from placegap.formulations.shared.data import (
    device_numbers,
    duration_data,
    family,
    new_model,
    require_solution,
    set_placement,
)
from placegap.formulations.shared.families import (
    Linear,
    assign_once,
    colocate_ops,
    makespan_value,
    memory_capacity,
    place_ops,
)
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
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
        build=lambda start: build(instance, task.semantics),
        warm_start=lambda model, plan: warm_start(model, instance, plan),
        extract=lambda model: extract(model, instance, check=False),
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


def build(instance: Instance, semantics: Makespan) -> pyo.ConcreteModel:
    """The MILP of an instance; for n ops, m edges, K devices, n K + m + n + 1 columns.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds; ``makespan_ns`` is its value in
        nanoseconds. ``duration_ns``, ``least_transfer_ns`` and, downwards, ``capacity_bytes`` may
        be changed between solves. Constraints can be added.

    Notes
    -----
    Why it is a relaxation: as for `getf.build`, with single devices as groups; and a
    consumer on another device waits for a transfer of at least the least time over all pairs of
    different devices that the two ops can be on. All feasible placements are in the model.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Makespan())
    >>> len(model.x), len(model.moved)
    (8, 4)
    """
    require_makespan("the MILP of GETF", semantics)
    transfers_ns = least_transfers(instance)
    unit_ns = time_unit_ns(milp_horizon_ns(instance), granularity_ns(instance, transfers=True))
    model = new_model("GETF MILP", instance, semantics, unit_ns)
    arc_set(model, transfers_ns)
    duration_data(model, instance)
    least_transfer_data(model, list(transfers_ns.values()))
    place_ops(model, instance.arrays.possible)
    time_variables(model)
    spent = time_terms(model)
    assign_once(model)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    moved_ops(model)
    precedence(model, {i: sum(own.values()) for i, own in spent.items()})
    makespan_covers(model)
    device_work(model, spent)
    makespan_value(model, "GETF: T, the makespan")
    return model


def count_rows(instance: Instance) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside; nothing is built."""
    n, num_devices = instance.num_ops, instance.num_devices
    return 3 * n + len(instance.graph.edges) * (num_devices + 1) + num_devices


def milp_horizon_ns(instance: Instance) -> int:
    """No optimum of the MILP is longer: all ops where they take longest, and all transfers."""
    return horizon_ns(instance) + sum(least_transfers(instance).values())


@family
def least_transfer_data(model: pyo.ConcreteModel, transfers_ns: list[int]) -> None:
    """least_transfer_ns[i, j], mutable: time of a move between i and j, where one takes time."""
    given = {arc: time for arc, time in zip(model.ARCS, transfers_ns, strict=True) if time}
    model.least_transfer_ns = pyo.Param(list(given), initialize=given, mutable=True)


def time_terms(model: pyo.ConcreteModel) -> Terms:
    """What several rows add up: duration_ns[i, k] x[i, k] in units, where op i can be on k."""
    unit, spent = model.unit_ns.value, {i: dict[str, Linear]() for i in model.OPS}
    for (i, k), time in model.duration_ns.items():
        if not model.x[i, k].fixed:
            spent[i][k] = time / unit * model.x[i, k]
    return spent


@family
def moved_ops(model: pyo.ConcreteModel) -> None:
    """Moirai, section V, filled in: moved[i, j] >= x[i, k] - x[j, k].

    For every edge that a move delays, and every device k. Where the two ops have no device in
    common, moved is 1.
    """
    places: dict[str, list[str]] = {i: [] for i in model.OPS}
    for (i, k), x in model.x.items():
        if not x.fixed:
            places[i].append(k)
    model.moved = pyo.Var(
        list(model.least_transfer_ns), bounds=(0, 1), doc="moved[i, j]: j is not on i's device"
    )
    rows = []
    for i, j in model.moved:
        if set(places[i]).isdisjoint(places[j]):
            model.moved[i, j].fix(1)
        else:
            rows += [(i, j, k) for k in places[i]]

    @model.Constraint(rows)
    def moved_ops(model: pyo.ConcreteModel, i: str, j: str, k: str) -> Linear:
        return model.moved[i, j] >= model.x[i, k] - model.x[j, k]


@family
def device_work(model: pyo.ConcreteModel, spent: Terms) -> None:
    """GETF, work of a device: sum over i of p_ik x[i, k] <= makespan for every device k."""
    work = {k: [own[k] for own in spent.values() if k in own] for k in model.DEVICES}

    @model.Constraint([k for k, terms in work.items() if terms])
    def device_work(model: pyo.ConcreteModel, k: str) -> Linear:
        return sum(work[k]) <= model.makespan


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables of `build`'s model to those of a feasible plan.

    The times are the model's own, which lets ops on one device overlap.
    """
    set_placement(model, plan.devices.tolist())
    names, unit_ns = list(model.DEVICES), model.unit_ns.value
    home = {i: names[k] for i, k in zip(model.OPS, plan.devices.tolist(), strict=True)}
    for (i, j), moved in model.moved.items():
        if not moved.fixed:
            moved.set_value(int(home[i] != home[j]))
    time = {i: model.duration_ns[i, k].value for i, k in home.items()}
    ready, work = dict.fromkeys(home, 0), dict.fromkeys(names, 0)
    followers: dict[str, list[str]] = {}
    for i, j in model.ARCS:
        followers.setdefault(i, []).append(j)
    ops, last = list(model.OPS), 0
    for i in (ops[at] for at in instance.arrays.index.topological_order.tolist()):
        end = ready[i] + time[i]
        model.op_end[i].set_value(end / unit_ns)
        work[home[i]] += time[i]
        last = max(last, end)
        for j in followers.get(i, ()):
            delayed = home[i] != home[j] and (i, j) in model.least_transfer_ns
            wait = model.least_transfer_ns[i, j].value if delayed else 0
            ready[j] = max(ready[j], end + wait)
    model.makespan.set_value(max(last, *work.values()) / unit_ns)


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan that the values of x describe, its orders left to the referee's priorities.

    The model's own times order nothing: ops on one device overlap in them.
    """
    require_solution(model, instance, check=check)
    return Plan.on(device_numbers(model))
