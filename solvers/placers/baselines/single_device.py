"""Everything on one device."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import OBJECTIVES
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome


def single_device(task: Task, params: Params | None = None) -> Outcome:
    """Place every op on the device that runs all of them in the least total time and holds them.

    A heuristic: the baseline of every placement paper, without any transfer. The plan is a chain,
    so it competes in every class. Ties: device index. O(n K).

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> single_device(Task(example(), MaxLoad())).plan.placement
    ((0,), (0,), (0,), (0,))
    """
    arrays, instance = task.instance.arrays, task.instance
    refused = arrays.time_ns == UNSUPPORTED
    needed = int(arrays.resident_bytes.sum())
    fits = ~refused.any(axis=0) & (needed <= arrays.memory_bytes)
    if fits.any():
        total = np.where(refused, 0, arrays.time_ns).sum(axis=0)
        best = int(np.argmin(np.where(fits, total, total.max() + 1)))
        return Outcome(Plan(((best,),) * instance.num_ops))
    reasons = []
    for k, device in enumerate(instance.cluster.devices):
        if refused[:, k].any():
            op = instance.graph.ops[int(np.argmax(refused[:, k]))]
            reasons.append(f"{device.name!r} cannot run op {op.name!r}")
        else:
            reasons.append(f"{device.name!r} holds {arrays.memory_bytes[k]} bytes of {needed}")
    return Outcome(message=f"no device runs and holds all ops: {'; '.join(reasons)}")


register(
    Method(
        name="single-device",
        claim="heuristic",
        objectives=OBJECTIVES,
        paper="",
        summary="the best device alone",
        starts={
            "makespan": Cost(0.3, 1.0, always=True),
            "max_load": Cost(0.3, 0.5, always=True),
            "pipeline_iteration": Cost(0.3, 0.5, always=True),
        },
        run=single_device,
        params=Params,
    )
)
