"""The referee of loads: the heaviest device, or the heaviest ones of both passes."""

from __future__ import annotations

from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.max_load.rules import Loads, MaxLoadFwdBwd
from placegap.instances.problem import Evaluation, Instance, Plan, ServerUse
from placegap.instances.referee.loads import (
    border_costs,
    combine,
    device_loads,
    device_uses,
    server_uses,
    share_load,
)
from placegap.instances.referee.memory import held_bytes, memory_violations
from placegap.instances.referee.rules import check_placement, check_shape, foreign_fields


def evaluate(instance: Instance, plan: Plan, rules: Loads) -> Evaluation:
    """The heaviest load; what replicas break leaves a plan without a value."""
    check_shape(instance, plan, replicas=rules.has_replicas)
    foreign, placed = foreign_fields(plan, rules), check_placement(instance, plan, rules)
    held = held_bytes(instance, plan, rules, None)
    full = memory_violations(instance, plan, rules, None, held)
    violations = (*foreign, *full, *placed)
    if any(violation.rule in ("fields", "replicas") for violation in violations):
        return Evaluation(None, violations)
    parts = device_loads(instance, plan.devices, cost_ns=border_costs(instance, rules))
    load, servers, value_ns = _heaviest(instance, plan, rules, parts)
    uses = device_uses(instance, plan, parts, load, held.bytes.tolist())
    return Evaluation(value_ns, violations, uses, None, servers)


def _heaviest(
    instance: Instance, plan: Plan, rules: Loads, parts: tuple[Ints, ...]
) -> tuple[Ints, tuple[ServerUse, ...], int]:
    """Load of each device and, with two levels, of each server; the heaviest of them."""
    # With two passes it is the heaviest forward + the heaviest backward load.
    if isinstance(rules, MaxLoadFwdBwd):
        forward, backward = (
            combine(rules.load, *device_loads(instance, plan.devices, backward=which))
            for which in (False, True)
        )
        return forward + backward, (), int(forward.max()) + int(backward.max())
    load = share_load(instance, plan, combine(rules.load, *parts))
    servers = server_uses(instance, plan.devices) if rules.has_two_levels else ()
    return load, servers, max([int(load.max()), *(use.load_ns for use in servers)])
