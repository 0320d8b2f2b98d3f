"""The referee: one evaluation for every plan, whatever made it."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Semantics
from placegap.instances.referee.check import check_and_simulate
from placegap.instances.referee.loads import combine, device_loads
from placegap.instances.referee.plan import DeviceUse, Evaluation, Plan
from placegap.instances.referee.replication import share_load, share_part
from placegap.instances.referee.servers import border_costs, server_uses

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
    >>> from placegap.instances import example
    >>> verdict = evaluate(example(), Plan.on([0, 1, 0, 0]), Semantics(objective="makespan"))
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    violations, schedule, held = check_and_simulate(instance, plan, semantics)
    if held is None or any(violation.rule in NO_VALUE for violation in violations):
        return Evaluation(None, violations)
    uses, value_ns = _device_uses(instance, plan, semantics, held.bytes)
    servers = server_uses(instance, plan.devices) if semantics.levels == 2 else ()
    value_ns = max([value_ns, *(use.load_ns for use in servers)])
    if schedule is not None:
        value_ns = schedule.makespan_ns
    return Evaluation(value_ns, violations, uses, schedule, servers)


def _device_uses(
    instance: Instance, plan: Plan, semantics: Semantics, memory: Ints
) -> tuple[tuple[DeviceUse, ...], int]:
    """What each device does, and the value as far as the devices decide it."""
    device, cost = plan.devices, border_costs(instance, semantics)
    parts = device_loads(instance, device, cost_ns=cost)
    if semantics.objective == "max_load_fwd_bwd":
        forward, backward = (
            combine(semantics.load, *device_loads(instance, device, backward=which))
            for which in (False, True)
        )
        load, value_ns = forward + backward, int(forward.max()) + int(backward.max())
    else:
        load = share_load(instance, plan, combine(semantics.load, *parts))
        value_ns = int(load.max())
    on = np.array([k for devices in plan.placement for k in devices], np.int64)
    count = np.bincount(on, minlength=instance.num_devices)
    columns = (count, *(share_part(plan, part) for part in parts), memory, load)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    specs = instance.cluster.devices
    uses = tuple(DeviceUse(spec.name, *row) for spec, row in zip(specs, rows, strict=True))
    return uses, value_ns
