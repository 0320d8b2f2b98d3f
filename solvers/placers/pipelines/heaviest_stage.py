"""Heaviest stage: max_load's optimum, run as a pipeline under a schedule."""

from __future__ import annotations

from placegap.instances.problem.semantics import MaxLoad, PipelineIteration
from placegap.instances.referee.plan import Plan
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import find_method, register, why_not
from placegap.solvers.core.result import Outcome

STEADY = MaxLoad(plans="chain")
"""What decides once a pipeline is full."""


def applies(task: Task[PipelineIteration], params: Params) -> str | None:
    """Why max_load cannot stand in for the task, or None."""
    if task.semantics.schedule == "interleaved":
        return "makes one stage for each device; interleaved has several"
    method = find_method("ideal-dp")
    return why_not(method, Task(task.instance, STEADY), method.params())


def run(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """The best chain for max_load by `ideal-dp`, whatever the schedule and its microbatches are.

    For many microbatches that is nearly best; for few the stages' places in the chain count, too.
    Microbatches in flight are not looked at, so that memory may not suffice. Time as of `ideal-dp`.

    Examples
    --------
    >>> from placegap.instances import example
    >>> run(Task(example(), PipelineIteration())).plan.placement
    ((0,), (1,), (0,), (1,))
    """
    method = find_method("ideal-dp")
    found = method.run(Task(task.instance, STEADY, task.limits), method.params())
    if found.plan is None:
        return Outcome(message=found.message)
    return Outcome(Plan(found.plan.placement))


register(
    Method(
        name="heaviest-stage",
        claim="heuristic",
        objectives=("pipeline_iteration",),
        paper="Tarnawski et al., NeurIPS 2020",
        summary="the chain of least max_load, run under the schedule of a pipeline",
        run=run,
        params=Params,
        applies=applies,
    )
)
