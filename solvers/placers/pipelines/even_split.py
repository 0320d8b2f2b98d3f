"""Even split: the same number of layers in every stage, as people split models by hand."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.nets import gradient_tie, stage_blocks
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome

NO_PASSAGE = "a backward op feeds a forward op: no microbatch can pass"


def run(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """Cut the layers, in their order, into stages whose numbers of layers differ by one at most.

    Layers are the blocks that stages keep whole, in their order (`structure.stage_blocks`); the
    first stages get one more. All devices are used, as they come, or as many as there are layers
    for. A heuristic that looks at no time. O(n + m log m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> run(Task(example(), PipelineIteration())).plan.stage
    (0, 0, 1, 1)
    """
    block = stage_blocks(task.instance)
    if block is None:
        return Outcome(message=NO_PASSAGE)
    layers = int(block.max()) + 1
    count = devices_used(task.instance, task.semantics, layers)
    if count == 0:
        return Outcome(message=too_few(task.instance, layers))
    sizes = np.full(count * task.semantics.stages_per_device, 0)
    sizes[:] = layers // len(sizes)
    sizes[: layers % len(sizes)] += 1
    return Outcome(chain_plan(block, np.cumsum(sizes)[:-1], count))


def too_few(instance: Instance, layers: int) -> str:
    """Why a schedule has no stages: so many layers, and what ties them together."""
    tie = gradient_tie(instance)
    return f"too few layers for this schedule: {layers}" + ("" if tie is None else f"; {tie}")


def devices_used(instance: Instance, semantics: PipelineIteration, layers: int) -> int:
    """The most devices that the schedule can use for so many layers; 0 if it can use none."""
    chunks = semantics.stages_per_device
    for count in range(min(instance.num_devices, layers // chunks), 0, -1):
        if chunks == 1 or semantics.microbatches % count == 0:
            return count
    return 0


def chain_plan(block: Ints, cuts: Ints, num_devices: int) -> Plan:
    """Blocks before the first cut in stage 0, and so on; stages on the devices in rounds.

    Examples
    --------
    >>> chain_plan(np.array([0, 1, 2]), np.array([1]), 2).placement
    ((0,), (1,), (1,))
    """
    stage = np.searchsorted(cuts, block, side="right").tolist()
    return Plan(tuple((s % num_devices,) for s in stage), stage=tuple(stage))


register(
    Method(
        name="even-split",
        claim="heuristic",
        objectives=("pipeline_iteration",),
        paper="",
        summary="as many layers in every stage, as people split models by hand",
        starts={"pipeline_iteration": Cost(5.0, 5.0)},
        run=run,
        params=Params,
    )
)
