"""Both referees on one plan and on what its file claims: do they agree, and is it all true?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placegap.instances.files.plan_file import StatedPlan
from placegap.instances.objectives.makespan.oracle import recheck_times
from placegap.instances.objectives.makespan.referee import check_times
from placegap.instances.oracle.recheck import recheck
from placegap.instances.problem import Evaluation, Instance, Makespan, Plan, Violation
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.evaluate import evaluate

NO_SHAPE = ("shape", "fields")  # rules without which a plan's times mean nothing


@dataclass(frozen=True)
class Verification:
    """The verdicts of both referees; `plan` is what they judged."""

    plan: Plan
    first: Evaluation
    second: Evaluation

    @property
    def agree(self) -> bool:
        """Whether they find the same value, and the same rules broken."""
        return self.first.value == self.second.value and self._rules(self.first) == self._rules(
            self.second
        )

    @property
    def holds(self) -> bool:
        """Whether both find no broken rule and the same value."""
        return self.agree and self.first.feasible

    @staticmethod
    def _rules(verdict: Evaluation) -> frozenset[str]:
        return frozenset(violation.rule for violation in verdict.violations)


def verify(instance: Instance, stated: StatedPlan, *, any_content: bool = False) -> Verification:
    """Judge a plan twice, with the claims that come with it."""
    # Besides the referee's rules, these may be broken: ``instance``, the plan was made for another
    # content (`any_content` lets it pass); ``claim``, the stated value is not the plan's;
    # ``precedence``, ``transfer``, ``duration``, ``device_overlap``, ``channel_overlap``, by the
    # stated times. Times that break no rule give the orders of a plan that states none.
    plan, semantics, times = stated.plan, stated.semantics, stated.times
    first, second = evaluate(instance, plan, semantics), recheck(instance, plan, semantics)
    judged = not any(v.rule in NO_SHAPE for v in first.violations)
    if isinstance(semantics, Makespan) and times is not None and judged:
        broken = check_times(instance, plan, semantics, times)
        again = recheck_times(instance, plan, semantics, times)
        if not broken and not again and plan == Plan(plan.placement):
            spans = [(move, *span) for move, span in times.transfers.items()]
            plan = plan_from_times(instance, semantics, plan.devices.tolist(), times.ops, spans)
            first, second = evaluate(instance, plan, semantics), recheck(instance, plan, semantics)
        first, second = _add(first, broken), _add(second, again)
    first, second = (_add(each, _claims(stated, each)) for each in (first, second))
    if stated.instance_hash not in ("", instance.content_hash) and not any_content:
        other = Violation("instance", f"it was made for other content than {instance.name}'s")
        first, second = _add(first, [other]), _add(second, [other])
    return Verification(plan, first, second)


def _claims(stated: StatedPlan, verdict: Evaluation) -> list[Violation]:
    if stated.value is None or stated.value == verdict.value:
        return []
    rules = stated.semantics
    worth = "nothing" if verdict.value is None else rules.text(verdict.value)
    said = f"it states a value of {rules.text(stated.value)}, and the referee finds {worth}"
    return [Violation("claim", said)]


def _add(verdict: Evaluation, more: Sequence[Violation]) -> Evaluation:
    return replace(verdict, violations=(*verdict.violations, *more))
