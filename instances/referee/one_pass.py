"""Plans whose value is the end of one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from placegap.instances.problem import Evaluation, Instance, Plan, Schedule, Semantics, Violation
from placegap.instances.referee.loads import combine, device_loads, device_uses
from placegap.instances.referee.memory import held_bytes, memory_violations
from placegap.instances.referee.rules import PlanError, check_placement, check_shape, foreign_fields

S = TypeVar("S", bound=Semantics)


def evaluate_pass(
    instance: Instance,
    plan: Plan,
    rules: S,
    simulate: Callable[[Instance, Plan, S], Schedule],
    wrong_fields: Iterable[Violation] = (),
) -> Evaluation:
    """The end of the schedule that `simulate` makes of a plan whose fields mean something."""
    check_shape(instance, plan)
    foreign = (*foreign_fields(plan, rules), *wrong_fields)
    placed = check_placement(instance, plan, rules)
    schedule, late = None, list[Violation]()
    if not foreign:
        try:
            schedule = simulate(instance, plan, rules)
        except PlanError as error:
            late.append(Violation("order", str(error)))
    if schedule is None and rules.memory_rule == "peak":  # nobody knows what is live when
        return Evaluation(None, (*foreign, *placed, *late))
    held = held_bytes(instance, plan, rules, schedule)
    full = memory_violations(instance, plan, rules, schedule, held)
    violations = (*foreign, *full, *placed, *late)
    if schedule is None:
        return Evaluation(None, violations)
    parts = device_loads(instance, plan.devices)
    load = combine("add", *parts)
    uses = device_uses(instance, plan, parts, load, held.bytes.tolist())
    return Evaluation(schedule.makespan_ns, violations, uses, schedule)
