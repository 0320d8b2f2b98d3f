"""Heaviest stage: max_load's optimum, run as a pipeline under a schedule."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Edge, Instance
from placegap.instances.problem.nets import stage_arcs, stage_blocks
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad, PipelineIteration
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import find_method, register, why_not
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.pipeline_stages import NO_PASSAGE

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
    A chain of max_load may send gradients to a later stage, and no pipeline does; so what edges of
    both passes tie together stays whole (`in_stage_order`).

    Examples
    --------
    >>> from placegap.instances import example
    >>> run(Task(example(), PipelineIteration())).plan.placement
    ((0,), (1,), (0,), (1,))
    """
    method = find_method("ideal-dp")
    block = stage_blocks(task.instance)
    if block is None:
        return Outcome(message=NO_PASSAGE)
    ordered = in_stage_order(task.instance, block)
    found = method.run(Task(ordered, STEADY, task.limits), method.params())
    if found.plan is None:
        return Outcome(message=found.message)
    return Outcome(Plan(found.plan.placement))


def in_stage_order(instance: Instance, block: Ints) -> Instance:
    """The instance whose chains of max_load are those that a pipeline can run.

    Blocks of stages become colocation groups; where a gradient leads from block to block, an edge
    between forward ops that moves nothing leads the other way. O(n + m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> in_stage_order(example(), stage_blocks(example())).graph.edges == example().graph.edges
    True
    """
    graph, backward = instance.graph, instance.arrays.backward
    forward_op: dict[int, str] = {}
    for op, b in zip(graph.ops, block.tolist(), strict=True):
        if not op.backward:
            forward_op.setdefault(b, op.name)
    arcs = stage_arcs(instance)
    against = backward[arcs[0]]
    held, wanted = (
        {(int(x), int(y)) for x, y in block[arcs[:, of]].T.tolist()} for of in (~against, against)
    )
    extra = [
        Edge(producer=forward_op[x], consumer=forward_op[y], tensor=f"before {y}", host_time_ns=0)
        for x, y in sorted(wanted - held)
        if x != y and x in forward_op and y in forward_op
    ]
    size = np.bincount(block)
    ops = tuple(
        op.model_copy(update={"colocation": f"block {b}" if size[b] > 1 else None})
        for op, b in zip(graph.ops, block.tolist(), strict=True)
    )
    update = {"ops": ops, "edges": (*graph.edges, *extra)}
    return Instance(
        name=instance.name, graph=graph.model_copy(update=update), cluster=instance.cluster
    )


register(
    Method(
        name="heaviest-stage",
        claim="heuristic",
        objectives=("pipeline_iteration",),
        paper="Tarnawski et al. 2020",
        cites=("tarnawski2020",),
        summary="max_load's optimum, run under the schedule",
        starts={"pipeline_iteration": Cost(1000.0, 100.0)},
        run=run,
        params=Params,
        applies=applies,
    )
)
