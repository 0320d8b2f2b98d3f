"""The referee: one evaluation for every plan, whatever made it."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import DeviceUse, Evaluation, Plan, ServerUse
from placegap.instances.problem.semantics import (
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
)
from placegap.instances.referee.evaluate import check_and_run, check_and_simulate
from placegap.instances.referee.loads import (
    border_costs,
    combine,
    device_loads,
    server_uses,
    share_load,
    share_part,
)

NO_VALUE = ("shape", "order", "fields", "replicas")
"""Rules without which a plan has no value at all."""


def evaluate(instance: Instance, plan: Plan, semantics: Semantics) -> Evaluation:
    """Judge a plan: its value, every rule it breaks, and what each device does.

    Parameters
    ----------
    instance : Instance
    plan : Plan
    semantics : Semantics

    Returns
    -------
    Evaluation
        `value_ns` is given whenever the plan can be executed, also if it breaks a rule (memory,
        colocation, class of plans); only a feasible plan counts.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs (`servers.check_semantics`).

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> verdict = evaluate(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    if isinstance(semantics, PipelineIteration):
        return _of_iteration(instance, plan, semantics)
    violations, schedule, held = check_and_simulate(instance, plan, semantics)
    if held is None or any(violation.rule in NO_VALUE for violation in violations):
        return Evaluation(None, violations)
    parts = device_loads(instance, plan.devices, cost_ns=border_costs(instance, semantics))
    servers: tuple[ServerUse, ...] = ()
    value_ns: int | None
    if isinstance(semantics, MaxLoad):
        load, servers, value_ns = _max_load(instance, plan, semantics, parts)
    elif isinstance(semantics, MaxLoadFwdBwd):
        load, value_ns = _max_load_fwd_bwd(instance, plan, semantics)
    else:  # the end of one pass
        load, value_ns = combine("add", *parts), None if schedule is None else schedule.makespan_ns
    uses = _device_uses(instance, plan, parts, load, held.bytes)
    return Evaluation(value_ns, violations, uses, schedule, servers)


def _of_iteration(instance: Instance, plan: Plan, semantics: PipelineIteration) -> Evaluation:
    """The end of an iteration; loads of devices are those of one microbatch."""
    violations, iteration, held = check_and_run(instance, plan, semantics)
    if iteration is None or held is None:
        return Evaluation(None, violations)
    parts = device_loads(instance, plan.devices)
    load = combine("add", *parts)
    uses = _device_uses(instance, plan, parts, load, held.bytes)
    return Evaluation(iteration.value_ns, violations, uses)


def _max_load(
    instance: Instance, plan: Plan, semantics: MaxLoad, parts: tuple[Ints, ...]
) -> tuple[Ints, tuple[ServerUse, ...], int]:
    """Load of each device and, with two levels, of each server; the heaviest of them."""
    load = share_load(instance, plan, combine(semantics.load, *parts))
    servers = server_uses(instance, plan.devices) if semantics.levels == 2 else ()
    return load, servers, max([int(load.max()), *(use.load_ns for use in servers)])


def _max_load_fwd_bwd(instance: Instance, plan: Plan, semantics: MaxLoadFwdBwd) -> tuple[Ints, int]:
    """Load of each device in both passes; the heaviest forward + the heaviest backward load."""
    forward, backward = (
        combine(semantics.load, *device_loads(instance, plan.devices, backward=which))
        for which in (False, True)
    )
    return forward + backward, int(forward.max()) + int(backward.max())


def _device_uses(
    instance: Instance, plan: Plan, parts: tuple[Ints, ...], load: Ints, memory: Ints
) -> tuple[DeviceUse, ...]:
    """What each device does."""
    on = np.array([k for devices in plan.placement for k in devices], np.int64)
    count = np.bincount(on, minlength=instance.num_devices)
    columns = (count, *(share_part(plan, part) for part in parts), memory, load)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    specs = instance.cluster.devices
    return tuple(DeviceUse(spec.name, *row) for spec, row in zip(specs, rows, strict=True))
