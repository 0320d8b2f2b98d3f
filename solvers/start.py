"""A plan for an exact method to start from: the best of an incumbent and some placers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.solvers.registry import METHODS, Task, why_not


class Start(NamedTuple):
    """A feasible plan and its value by the referee."""

    plan: Plan
    value_ns: int


def best_start(task: Task, placers: Iterable[str]) -> Start | None:
    """The best feasible plan of the task's incumbent and of the named methods, or None.

    Methods that are not registered or do not apply are passed over; of equal plans the first wins.

    Examples
    --------
    >>> from placegap.instances import Plan, Semantics, example
    >>> incumbent = Plan.on([0, 1, 0, 0])
    >>> task = Task(example(), Semantics(objective="makespan"), incumbent=incumbent)
    >>> best_start(task, []).value_ns
    35
    """
    plans = [task.incumbent]
    for name in placers:
        method = METHODS.get(name)
        if method is not None and why_not(method, task, method.params()) is None:
            plans.append(method.run(task, method.params()).plan)
    starts = []
    for plan in plans:
        if plan is not None:
            verdict = evaluate(task.instance, plan, task.semantics)
            if verdict.feasible and verdict.value_ns is not None:
                starts.append(Start(plan, verdict.value_ns))
    return min(starts, key=lambda start: start.value_ns, default=None)
