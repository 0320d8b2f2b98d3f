"""DP on the heaviest stage, then moves around it by simulation: a proposal for PyTorch.

pytorch/pytorch #179212 proposes automatic stages for 1F1B, interleaved and zero-bubble schedules:
a DP that makes the heaviest stage as light as can be, then refinement around the critical stage,
judged by simulation. Its text gives no more detail; here the critical stage is the heaviest, and it
hands its first or its last layer to its neighbour for as long as the iteration gets shorter.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.nets import stage_blocks
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.pipeline_stages import (
    NO_PASSAGE,
    chain_plan,
    devices_used,
    too_few,
)


def run(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """Cut the layers, in their order, and move cuts. O(S l^2) and a simulation per move.

    A layer's load is its forward and backward time on the device that is fastest for it. Moves that
    break a rule (memory) are not taken.

    Examples
    --------
    >>> from placegap.instances import example
    >>> run(Task(example(), PipelineIteration())).plan.stage
    (0, 0, 1, 1)
    """
    instance, semantics = task.instance, task.semantics
    block = stage_blocks(instance)
    if block is None:
        return Outcome(message=NO_PASSAGE)
    layers = int(block.max()) + 1
    count = devices_used(instance, semantics, layers)
    if count == 0:
        return Outcome(message=too_few(instance, layers))
    times = np.where(
        instance.arrays.time_ns < 0, instance.arrays.time_ns.max(), instance.arrays.time_ns
    )
    load = np.zeros(layers, np.int64)
    np.add.at(load, block, times.min(axis=1))
    cuts = lightest_cuts(load, count * semantics.stages_per_device)

    def value(at: Ints) -> int | None:
        verdict = evaluate(instance, chain_plan(block, at, count), semantics)
        return verdict.value_ns if verdict.feasible else None

    best, moved = value(cuts), True
    while moved:
        moved = False
        ends = np.concatenate([[0], cuts, [layers]])
        stage = int(np.argmax(np.add.reduceat(load, ends[:-1])))
        for at, step in ((stage - 1, 1), (stage, -1)):
            if ends[stage + 1] - ends[stage] == 1 or not 0 <= at < len(cuts):
                continue
            trial = cuts.copy()
            trial[at] += step
            now = value(trial)
            if now is not None and (best is None or now < best):
                best, cuts, moved = now, trial, True
                break
    return Outcome(chain_plan(block, cuts, count))


@kernel
def lightest_cuts(load: Ints, count: int) -> Ints:
    """Where to cut a row of loads into so many runs, none empty, whose heaviest is lightest.

    Of the cuts that do it each is as far to the left as the DP meets it first.

    Examples
    --------
    >>> lightest_cuts(np.array([5, 20, 10, 8]), 2).tolist()
    [2]
    """
    n = len(load)
    total = np.zeros(n + 1, np.int64)
    for i in range(n):
        total[i + 1] = total[i] + load[i]
    value = np.full((count + 1, n + 1), total[n] + 1)
    origin = np.zeros((count + 1, n + 1), np.int64)
    value[0, 0] = 0
    for s in range(1, count + 1):
        for j in range(s, n + 1):
            for i in range(s - 1, j):
                now = max(value[s - 1, i], total[j] - total[i])
                if now < value[s, j]:
                    value[s, j], origin[s, j] = now, i
    cuts = np.zeros(count - 1, np.int64)
    at = n
    for s in range(count, 1, -1):
        at = origin[s, at]
        cuts[s - 2] = at
    return cuts


register(
    Method(
        name="simulated-moves",
        claim="heuristic",
        objectives=("pipeline_iteration",),
        paper="pytorch/pytorch #179212",
        summary="least heaviest stage by a DP, then moves around it by simulation",
        starts={"pipeline_iteration": Cost(20.0, 80.0, most_parts=4_000)},
        run=run,
        params=Params,
    )
)
