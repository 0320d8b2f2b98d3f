"""frontier-paths: the plan of the least path that memory leaves, along the order of the groups."""

from __future__ import annotations

from placegap.instances.problem.plan import Plan
from placegap.instances.problem.sections import memory_is_slack
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.bounds.frontier.bound import (
    MOST_OPS,
    STRIDE,
    devices_of,
    least_below,
    longest_ns,
    plan_on,
)
from placegap.solvers.bounds.frontier.steps import steps_of
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome

MORE_AIMS = 2
"""Aims that a path is below, until which plans are made: the second may fit, and be shorter."""


def run(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Place groups by the labels of `frontier.bound`, at the least path that they know.

    Where memory forces transfers, a plan is good if its longest path is short. The labels know that
    path, forward and backward, and what the devices of the frontier and pools of devices hold. They
    do not know what a device still holds that has left the frontier: the emptiest one of its kind
    is taken, and a plan that does not fit is no plan. Aims rise from what is proven by paths until
    there is a path below, and once more; the plan with the shortest schedule counts. With slack
    memory nothing forces transfers, and there is no plan. A heuristic, for at most 5,000 ops. O(P L
    K (w + L)) for each aim, with P groups, at most 2,048 labels L and w numbers in each.

    Examples
    --------
    >>> from placegap.instances import example
    >>> run(Task(example(), Makespan())).message
    'memory is slack: it forces no transfers'
    """
    instance, semantics, clock = task.instance, task.semantics, task.limits.clock()
    if instance.num_ops > MOST_OPS:
        return Outcome(message=f"{instance.num_ops} ops are more than {MOST_OPS}")
    if memory_is_slack(instance):
        return Outcome(message="memory is slack: it forces no transfers")

    def is_over() -> bool:
        return stop_asked() or clock.left_s == 0.0

    steps, most_ns = steps_of(instance, semantics), longest_ns(instance)
    best: tuple[int, Plan] | None = None
    aim, more = quick_bound(instance, semantics).ns, MORE_AIMS
    while more > 0 and aim <= most_ns:
        aim = int(aim * (1 + STRIDE)) + 1
        found = least_below(steps, aim, is_over, trace=True)
        if found is None:
            break
        if found.ns is None:
            continue
        more -= 1
        plan = plan_on(steps.graph, devices_of(steps.graph, steps.frontiers, found.traces))
        verdict = evaluate(instance, plan, semantics)
        value_ns = verdict.value_ns
        if verdict.feasible and value_ns is not None and (best is None or value_ns < best[0]):
            best = value_ns, plan
        if best is not None and not found.joined:
            break
    if best is None:
        return Outcome(message="memory: no path of labels makes a plan that fits")
    return Outcome(best[1])


register(
    Method(
        name="frontier-paths",
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="the least path that memory leaves along the order of the groups",
        run=run,
        params=Params,
        packages=("numba",),
    )
)
