"""A plan for an exact method to start from: the best of an incumbent and some placers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.instances.semantics import PLAN_CLASSES
from placegap.solvers.registry import Task, find_method, why_not

LONGEST_S = 5.0
"""A method that looks for a start gets a tenth of the time, and no more than this."""


class Start(NamedTuple):
    """A feasible plan and its value by the referee."""

    plan: Plan
    value_ns: int


def best_start(task: Task, methods: Iterable[str]) -> Start | None:
    """The best feasible plan of the task's incumbent and of the named methods, or None.

    A method that does not do the task's class of plans is asked for a narrower class: a chain is
    convex, and is a plan of any kind. Methods that do not apply at all are passed over; of equal
    plans the first wins.

    Examples
    --------
    >>> from placegap.instances import Plan, Semantics, example
    >>> incumbent = Plan.on([0, 1, 0, 0])
    >>> task = Task(example(), Semantics(objective="makespan"), incumbent=incumbent)
    >>> best_start(task, []).value_ns
    35
    """
    limit_s = task.limits.time_limit_s
    share_s = LONGEST_S if limit_s is None else min(LONGEST_S, limit_s / 10)
    plans = [task.incumbent]
    for name in methods:
        method = find_method(name)
        params = method.params()
        for narrower in _narrower(task, share_s):
            if why_not(method, narrower, params) is None:
                plans.append(method.run(narrower, params).plan)
                break
    starts = []
    for plan in plans:
        if plan is not None:
            verdict = evaluate(task.instance, plan, task.semantics)
            if verdict.feasible and verdict.value_ns is not None:
                starts.append(Start(plan, verdict.value_ns))
    return min(starts, key=lambda start: start.value_ns, default=None)


def _narrower(task: Task, share_s: float) -> Iterator[Task]:
    """The task itself, then for each narrower class of plans, within a share of its time."""
    limits = replace(task.limits, time_limit_s=share_s)
    widest = PLAN_CLASSES.index(task.semantics.plans)
    for plans in PLAN_CLASSES[widest::-1]:
        semantics = task.semantics.model_copy(update={"plans": plans})
        yield replace(task, semantics=semantics, limits=limits, incumbent=None)
        if task.semantics.objective == "makespan":
            return
