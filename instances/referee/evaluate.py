"""The referee: one evaluation for every plan, whatever made it, and every rule that it breaks."""

from __future__ import annotations

from placegap.instances.problem import Evaluation, Instance, Plan, Semantics, Violation
from placegap.instances.problem.semantics import part
from placegap.instances.referee.rules import PlanError


def evaluate(instance: Instance, plan: Plan, semantics: Semantics) -> Evaluation:
    """Evaluate a plan: its value, all violations, and the load and memory of each device.

    Parameters
    ----------
    instance : Instance
    plan : Plan
    semantics : Semantics

    Returns
    -------
    Evaluation
        `value` is given whenever the plan can be executed, even if it violates a constraint
        (memory, colocation, class of plans); only a feasible plan counts.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs (`check_semantics`).

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> verdict = evaluate(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    check_semantics(instance, semantics)
    try:
        verdict: Evaluation = part(semantics, "referee").evaluate(instance, plan, semantics)
    except PlanError as error:
        return Evaluation(None, (Violation("shape", str(error)),))
    return verdict


def check_semantics(instance: Instance, semantics: Semantics) -> None:
    """Raise an InputError where an instance lacks what a semantics needs."""
    check = getattr(part(semantics, "checks", optional=True), "check", None)
    if check is not None:
        check(instance, semantics)


def feasible_value(instance: Instance, plan: Plan, semantics: Semantics) -> int | None:
    """The value of a plan; None where it breaks a rule."""
    verdict = evaluate(instance, plan, semantics)
    return verdict.value if verdict.feasible else None


def check(instance: Instance, plan: Plan, semantics: Semantics) -> tuple[Violation, ...]:
    """All violations of a plan; an empty tuple means that the plan is feasible.

    The rules: one known device per op that can run it; no field that the semantics does not
    define; memory; colocation; replicated stages; the class of plans; orders that can be executed.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs (`check_semantics`).

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> check(example(), Plan.on([0, 0, 1]), Makespan())[0].rule
    'shape'
    """
    return evaluate(instance, plan, semantics).violations
