"""data-parallel: every device runs everything on its share of the samples."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.plan import Plan
from placegap.instances.referee.replication import equal_devices
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome


def data_parallel(task: Task[MaxLoad], params: Params | None = None) -> Outcome:
    """One stage with all ops, shared by all devices that are equal.

    The usual way to train on several devices, as a cost: each device runs the whole graph on its
    share of the samples, pays no transfer, and the weights are summed up once per batch. Under
    semantics with replicas this is the plan with one stage (`instances.referee.replication`), and
    the referee's value ceil(total / r) + ceil(2 (r - 1) W / (r B)). Of several classes of equal
    devices the one of least value. A heuristic, and no plan where the whole graph does not fit one
    device. O(n K).

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> task = Task(example(), MaxLoad(replicas=True))
    >>> data_parallel(task).plan.placement
    ((0, 1), (0, 1), (0, 1), (0, 1))
    """
    instance, arrays = task.instance, task.instance.arrays
    kind = np.array(equal_devices(instance, task.semantics))
    needed = int(arrays.resident_bytes.sum())
    runs = (arrays.time_ns != UNSUPPORTED).all(axis=0) & (arrays.memory_bytes >= needed)
    found: list[tuple[int, Plan]] = []
    reasons = []
    for number in range(int(kind.max()) + 1):
        devices = tuple(np.flatnonzero(kind == number).tolist())
        plan = Plan((devices,) * instance.num_ops)
        name = instance.cluster.devices[devices[0]].name
        if not runs[devices[0]]:
            reasons.append(f"{name!r} cannot run and hold all ops ({needed} bytes)")
            continue
        verdict = evaluate(instance, plan, task.semantics)
        if verdict.feasible and verdict.value_ns is not None:
            found.append((verdict.value_ns, plan))
        else:
            reasons.append(str(verdict.violations[0]))
    if not found:
        return Outcome(message=f"no device runs everything: {'; '.join(reasons)}")
    return Outcome(min(found, key=lambda pair: pair[0])[1])


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why data parallelism does not apply to a task, or None."""
    if not task.semantics.replicas:
        return "needs semantics with replicated stages (replicas)"
    return None


register(
    Method(
        name="data-parallel",
        claim="heuristic",
        objectives=("max_load",),
        paper="-",
        summary="all ops on all equal devices, each with its share of the samples",
        run=data_parallel,
        params=Params,
        applies=applies,
    )
)
