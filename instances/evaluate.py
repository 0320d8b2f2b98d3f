"""The referee: one evaluation for every plan, whatever made it."""

from __future__ import annotations

import numpy as np

from placegap.instances.check import check_and_simulate
from placegap.instances.loads import combine, device_loads
from placegap.instances.model import Instance
from placegap.instances.plan import DeviceUse, Evaluation, Plan
from placegap.instances.semantics import Semantics


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

    Examples
    --------
    >>> from placegap.instances import example
    >>> verdict = evaluate(example(), Plan.on([0, 1, 0, 0]), Semantics(objective="makespan"))
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    violations, schedule = check_and_simulate(instance, plan, semantics)
    if any(violation.rule in ("shape", "order", "fields") for violation in violations):
        return Evaluation(None, violations)
    device = plan.devices
    compute, incoming, outgoing = device_loads(instance, device)
    load = combine(semantics.load, compute, incoming, outgoing)
    memory = np.zeros(instance.num_devices, np.int64)
    np.add.at(memory, device, instance.arrays.resident_bytes)
    count = np.bincount(device, minlength=instance.num_devices)
    columns = (count, compute, incoming, outgoing, memory, load)
    uses = tuple(
        DeviceUse(spec.name, *row)
        for spec, *row in zip(
            instance.cluster.devices, *(column.tolist() for column in columns), strict=True
        )
    )
    value_ns = int(load.max()) if schedule is None else schedule.makespan_ns
    return Evaluation(value_ns, violations, uses, schedule)
