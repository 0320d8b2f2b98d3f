"""data-parallel: every device runs everything on its share of the samples."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Makespan, MaxLoad
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.loads import equal_devices
from placegap.instances.transforms.op_splitting import replicate, stated_batch
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome


class DataParallelParams(Params):
    """Also `batch`, the samples of one pass under makespan; None: the batch that ops state."""

    batch: Annotated[int, Field(ge=1)] | None = None


def data_parallel(task: Task[Makespan | MaxLoad], params: Params | None = None) -> Outcome:
    """The whole graph on each of all devices that are equal.

    The usual way to train on several devices, as a cost: each device runs the whole graph on its
    share of the samples and pays no transfer, and the gradients are summed up. Of several classes
    of equal devices the one of least value. A heuristic, and no plan where the whole graph does
    not fit one device.

    Under max_load with replicas this is the plan with one stage (`instances.referee.replication`),
    and the referee's value ceil(total / r) + ceil(2 (r - 1) W / (r B)). O(n K). Under makespan the
    plan is one of another instance, that of r copies of the graph with an all-reduce before each
    update (`op_splitting.replicas`, `Result.split`): ops of a pass do not share devices otherwise.
    Its transfers run beside the backward pass where channels allow. O(n K + K**2 updates).

    Examples
    --------
    >>> from placegap.instances import Makespan, MaxLoad, example
    >>> task = Task(example(), MaxLoad(replicas=True))
    >>> data_parallel(task).plan.placement
    ((0, 1), (0, 1), (0, 1), (0, 1))
    >>> task = Task(example(), Makespan())
    >>> outcome = data_parallel(task, DataParallelParams(batch=8))
    >>> outcome.split.fine.num_ops, outcome.plan.placement[3:5]
    (8, ((0,), (1,)))
    """
    batch = params.batch if isinstance(params, DataParallelParams) else None
    found: list[tuple[int, int, Outcome]] = []
    reasons = []
    for devices in _classes(task):
        try:
            outcome = _on(task, devices, batch)
        except InputError as error:
            reasons.append(str(error))
            continue
        instance = task.instance if outcome.split is None else outcome.split.fine
        assert outcome.plan is not None
        verdict = evaluate(instance, outcome.plan, task.semantics)
        if verdict.feasible and verdict.value_ns is not None:
            found.append((verdict.value_ns, devices[0], outcome))
        else:
            reasons.append(str(verdict.violations[0]))
    if not found:
        return Outcome(message=f"no device runs everything: {'; '.join(reasons)}")
    return min(found, key=lambda entry: entry[:2])[2]


def _classes(task: Task[Makespan | MaxLoad]) -> list[tuple[int, ...]]:
    """Equal devices; under makespan those of one kind and memory."""
    if isinstance(task.semantics, MaxLoad):
        kind = list(equal_devices(task.instance, task.semantics))
    else:
        keys = [(device.kind, device.memory_bytes) for device in task.instance.cluster.devices]
        number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        kind = [number[key] for key in keys]
    return [tuple(np.flatnonzero(np.array(kind) == c).tolist()) for c in range(max(kind) + 1)]


def _on(task: Task[Makespan | MaxLoad], devices: tuple[int, ...], batch: int | None) -> Outcome:
    """The plan on some devices; those that cannot run or hold everything are an InputError."""
    instance, arrays = task.instance, task.instance.arrays
    k = devices[0]
    needed = int(arrays.resident_bytes.sum())
    runs = bool((arrays.time_ns[:, k] != UNSUPPORTED).all())
    name = instance.cluster.devices[k].name
    if isinstance(task.semantics, MaxLoad):
        if not runs or arrays.memory_bytes[k] < needed:
            raise InputError(f"{name!r} cannot run and hold all ops ({needed} bytes)")
        return Outcome(Plan((devices,) * instance.num_ops))
    if not runs:
        raise InputError(f"{name!r} cannot run all ops")
    batch = batch if batch is not None else stated_batch(instance.graph) or 1
    copies = min(len(devices), batch)
    if copies == 1:
        return Outcome(Plan.on([k] * instance.num_ops))
    split = replicate(instance, batch, copies)
    return Outcome(
        Plan.on([devices[j] for j in split.part.tolist()]),
        message=f"the plan of another instance, {split.fine.name}: {copies} copies of the graph,"
        f" each with its share of a batch of {batch}",
        details={"copies": copies, "batch": batch},
        split=split,
    )


def applies(task: Task[Makespan | MaxLoad], params: Params) -> str | None:
    """Why data parallelism does not apply to a task, or None."""
    if isinstance(task.semantics, MaxLoad):
        return (
            None if task.semantics.replicas else "needs semantics with replicated stages (replicas)"
        )
    stated = params.batch if isinstance(params, DataParallelParams) else None
    if stated is None and stated_batch(task.instance.graph) is None:
        return "needs the samples of a pass, which no op states (axis_sizes): --param batch=N"
    return None


register(
    Method(
        name="data-parallel",
        claim="heuristic",
        objectives=("makespan", "max_load"),
        scope="makespan; max_load with replicas",
        paper="",
        summary="the whole graph on all equal devices, each with its share of the samples",
        starts={"max_load": Cost(0.3, 0.5)},
        run=data_parallel,
        params=DataParallelParams,
        applies=applies,
    )
)
