"""What any placer should beat: one device, turns, chance, shares of the samples; plans of files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from placegap.instances.files.document import read_json
from placegap.instances.files.plan_file import is_plan, load_plan
from placegap.instances.importers.dnn_partitioning import load_split
from placegap.instances.importers.helix import load_ranges
from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.flow.referee import plan_of
from placegap.instances.problem import (
    OBJECTIVES,
    Instance,
    Makespan,
    MaxLoad,
    Objective,
    Plan,
    ServingFlow,
)
from placegap.instances.problem.device_classes import Classes, classes_of
from placegap.instances.problem.graph_index import all_by, numbered
from placegap.instances.problem.integers import UNSUPPORTED, format_bytes
from placegap.instances.problem.modules import clones_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.loads import equal_devices
from placegap.instances.transforms.op_splitting import replicate, stated_batch
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import NOWHERE, admission_of, nowhere, placement

SEVERAL = 2**31  # of an op that waits for more than one clone


@method(
    "single-device",
    objectives=OBJECTIVES,
    starts={
        "makespan": Cost(0.3, 1.0, always=True),
        "max_load": Cost(0.3, 0.5, always=True),
        "pipeline_iteration": Cost(0.3, 0.5, always=True),
    },
)
def single_device(task: Task, params: Params | None = None) -> Outcome:
    """The best device alone.

    Place every op on the device that runs all of them in the least total time and holds them. A
    heuristic: the baseline of every placement paper, without any transfer. The plan is a chain, so
    it competes in every class. Ties: device index. O(n K).
    """
    arrays, instance = task.instance.arrays, task.instance
    refused = arrays.time_ns == UNSUPPORTED
    needed = int(arrays.resident_bytes.sum())
    fits = ~refused.any(axis=0) & (needed <= arrays.memory_bytes)
    if fits.any():
        total = np.where(refused, 0, arrays.time_ns).sum(axis=0)
        best = int(np.argmin(np.where(fits, total, total.max() + 1)))
        return Outcome(Plan(((best,),) * instance.num_ops))
    devices_by = dict[str, list[str]]()  # reason -> devices
    for k, device in enumerate(instance.cluster.devices):
        if refused[:, k].any():
            op = instance.graph.ops[int(np.argmax(refused[:, k]))]
            why = f"op {op.name!r} cannot run on"
        else:
            lacks = format_bytes(needed - int(arrays.memory_bytes[k]))
            why = f"{lacks} of {format_bytes(needed)} do not fit on"
        devices_by.setdefault(why, []).append(repr(device.name))
    found = (
        f"{why} {names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}"
        for why, names in devices_by.items()
    )
    return Outcome(message=f"no device runs and holds all ops: {'; '.join(found)}")


DEALT_OBJECTIVES: tuple[Objective, ...] = ("makespan", "max_load", "max_load_fwd_bwd")

# Of the devices that take the next colocation group, at least one, the one it goes to.
Choice = Callable[[Sequence[int]], int]


def why_not_any(task: Task, params: Params) -> str | None:
    """Why the task is out of reach, or None: nothing is convex about these plans."""
    plans = task.semantics.plan_class
    return None if plans == "any" else f"its plans are not {plans}"


@method(
    "round-robin",
    objectives=DEALT_OBJECTIVES,
    starts={"pipeline_iteration": Cost(0.4, 2.0)},
    applies=why_not_any,
)
def round_robin(task: Task, params: Params | None = None) -> Outcome:
    """Devices in turn.

    Deal the ops in topological order to the devices in turn. The common baseline of placement
    papers; a heuristic that looks at no time and no transfer. An op goes to the first device after
    that of the op before which can run it and has room for it and its colocation group; the group
    goes with it and is not dealt again. The plan gives no orders. O(V K) time.
    """
    last = -1

    def next_in_turn(takers: Sequence[int]) -> int:
        nonlocal last
        last = next((k for k in takers if k > last), takers[0])
        return last

    return deal(task, next_in_turn)


def deal(task: Task, choose: Choice) -> Outcome:
    """Give each colocation group, in topological order of its first op, a device of the choice."""
    arrays = task.instance.arrays
    admission = admission_of(arrays)
    size, runs = admission.group_bytes.tolist(), admission.group_runs
    takers_of = [np.flatnonzero(row).tolist() for row in runs]
    free = admission.free_bytes.tolist()
    home = admission.home.tolist()
    group_of = arrays.group.tolist()
    for op in arrays.index.topological_order.tolist():
        group = group_of[op]
        if home[group] != NOWHERE:
            continue
        takers = [k for k in takers_of[group] if size[group] <= free[k]]
        if not takers:
            return nowhere(task.instance, op, admission._replace(free_bytes=np.array(free)))
        home[group] = choose(takers)
        free[home[group]] -= size[group]
    return Outcome(Plan(placement(np.array(home)[arrays.group])))


@method(
    "random",
    objectives=DEALT_OBJECTIVES,
    starts={"pipeline_iteration": Cost(0.4, 2.0)},
    applies=why_not_any,
    seeded=True,
)
def random_placement(task: Task, params: Params | None = None) -> Outcome:
    """A random device for each op.

    The common baseline of placement papers; a heuristic. Ops are drawn for in topological order,
    each evenly among the devices that can run it and have room for it and its group, which goes
    with it. The task's seed decides: the same one gives the same plan. The plan gives no
    orders. O(V K) time.
    """
    return deal(task, random.Random(task.limits.seed).choice)


class ExpertParams(Params):
    #: The file: a split of dnn-partitioning, or a plan that placegap wrote.
    path: str | None = None


def why_no_file(task: Task, params: ExpertParams) -> str | None:
    """Why there is no plan to read, or None."""
    if params.path is None:
        return "needs --param path=FILE: a split file of dnn-partitioning, or a plan file"
    return None


@method("expert", objectives=OBJECTIVES, applies=why_no_file, memory_rules=("sum", "peak"))
def expert(task: Task, params: ExpertParams) -> Outcome:
    """The plan of a file, `path=FILE`.

    The human experts of Tarnawski et al. (NeurIPS 2020) are split files; a node that a split leaves
    out is on the device of its colour class, so that the split of the forward pass serves training
    graphs. Of a plan file made under another semantics only the placement counts: its orders were
    made for another problem. A heuristic, that of the file's author.

    Deviations: a plan that violates memory or support is refused; the authors' program only warns.
    """
    assert params.path is not None
    if isinstance(task.semantics, ServingFlow) and Path(params.path).suffix in (".sol", ".ini"):
        ranges = load_ranges(params.path, task.instance.flow_problem)
        plan = plan_of(task.instance, ranges)
        return Outcome(plan, message="" if plan else "its plan leaves out a layer")
    if not _is_plan_file(params.path):
        return Outcome(load_split(task.instance, params.path))
    plan, semantics = load_plan(task.instance, params.path)
    return Outcome(plan if semantics == task.semantics else Plan(plan.placement))


def _is_plan_file(path: str) -> bool:
    try:
        return is_plan(read_json(path))
    except InputError:  # programs append text to splits: `load_split` knows, or says what is wrong
        return False


class DataParallelParams(Params):
    #: Samples of one pass under makespan; by default the batch that ops state.
    batch: Annotated[int, Field(ge=1)] | None = None


def why_no_batch(task: Task[Makespan | MaxLoad], params: Params) -> str | None:
    """Why data parallelism does not apply to a task, or None."""
    if task.semantics.has_replicas:
        return None
    if task.semantics.load_passes:
        return "needs semantics with replicated stages (replicas)"
    stated = params.batch if isinstance(params, DataParallelParams) else None
    if max(clones_of(task.instance)) >= 0:
        return None
    if stated is None and stated_batch(task.instance.graph) is None:
        return "needs the batch size of a pass, which no op states (axis_sizes): --param batch=N"
    return None


@method(
    "data-parallel",
    objectives=("makespan", "max_load"),
    scope="makespan; max_load with replicas",
    starts={"max_load": Cost(0.3, 0.5)},
    applies=why_no_batch,
)
def data_parallel(
    task: Task[Makespan | MaxLoad], params: DataParallelParams | None = None
) -> Outcome:
    """The whole graph on all equal devices, each with its share of the samples.

    The usual way to train on several devices, as a cost: each device runs the whole graph on its
    share of the samples and pays no transfer, and the gradients are summed up. Of several classes
    of equal devices the one of least value. A heuristic, and no plan where the whole graph does
    not fit one device.

    Under max_load with replicas this is the plan with one stage (`referee.loads`),
    and the referee's value ceil(total / r) + ceil(2 (r - 1) W / (r B)). O(n K). Under makespan the
    plan is one of another instance, that of r copies of the graph with an all-reduce before each
    update (`op_splitting.replicate`, `Result.split`): ops of a pass do not share devices otherwise.
    Its transfers run beside the backward pass where channels allow. O(n K + K**2 updates).
    """
    batch = params.batch if isinstance(params, DataParallelParams) else None
    found: list[tuple[int, int, Outcome]] = []
    reasons = []
    for devices in _classes(task):
        try:
            outcomes = _on(task, devices, batch)
        except InputError as error:
            reasons.append(str(error))
            continue
        for outcome in outcomes:
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


def _classes(task: Task[Makespan | MaxLoad]) -> Classes:
    """Equal devices; under makespan those of one kind and memory."""
    if task.semantics.load_passes:
        return classes_of(equal_devices(task.instance, task.semantics))
    devices = task.instance.cluster.devices
    return classes_of(numbered((device.kind, device.memory_bytes) for device in devices))


def _on(
    task: Task[Makespan | MaxLoad], devices: tuple[int, ...], batch: int | None
) -> tuple[Outcome, ...]:
    """The plans on some devices; those that cannot run or hold everything are an InputError."""
    instance, arrays = task.instance, task.instance.arrays
    k = devices[0]
    needed = int(arrays.resident_bytes.sum())
    runs = bool((arrays.time_ns[:, k] != UNSUPPORTED).all())
    name = instance.cluster.devices[k].name
    clone = clones_of(instance)
    if not task.semantics.has_replicas and max(clone) >= 0:
        return tuple(Outcome(plan) for plan in _plans_of_clones(instance, clone, devices))
    if task.semantics.has_replicas:
        if not runs or arrays.memory_bytes[k] < needed:
            raise InputError(f"{name!r} cannot run and hold all ops ({needed} bytes)")
        return (Outcome(Plan((devices,) * instance.num_ops)),)
    if not runs:
        raise InputError(f"{name!r} cannot run all ops")
    batch = batch if batch is not None else stated_batch(instance.graph) or 1
    copies = min(len(devices), batch)
    if copies == 1:
        return (Outcome(Plan.on([k] * instance.num_ops)),)
    split = replicate(instance, batch, copies)
    whole = Outcome(
        Plan.on([devices[j] for j in split.part.tolist()]),
        message=f"the plan of another instance, {split.fine.name}: {copies} copies of the graph,"
        f" each with its share of a batch of {batch}",
        details={"copies": copies, "batch": batch},
        split=split,
    )
    return (whole,)


def _plans_of_clones(
    instance: Instance, clone: Sequence[int], devices: tuple[int, ...]
) -> Iterator[Plan]:
    """Each clone on a device, with several orders and endings."""
    # Ops in turn as they become ready, as frameworks run them; by the referee's rule, for a saver
    # that comes early holds others back; and with what waits for several clones on the first
    # device, which saves transfers at the end (4xResNet_50: 519, 474 and 443 ms); and with relays.
    place = np.array(_clones_apart(instance, clone, devices))
    order = instance.graph.index.topological_order
    yield Plan.on(place, [order[place[order] == d].tolist() for d in range(instance.num_devices)])
    yield Plan.on(place)
    index, arrays, at = instance.graph.index, instance.arrays, devices[0]
    behind = np.array(clone)  # the clone that an op waits for, -1 for none, SEVERAL for more
    for i in order.tolist():
        for a in index.producer[index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]]]:
            if behind[i] != behind[a] >= 0:
                behind[i] = behind[a] if behind[i] < 0 else SEVERAL
    moves = (behind == SEVERAL) & (arrays.time_ns[:, at] != UNSUPPORTED)
    moves = all_by(arrays.group, moves, arrays.num_groups)[arrays.group]
    if moves.any():
        place = np.where(moves, at, place)
        yield Plan.on(place)
    relayed = _relayed(instance, place, devices)
    if (relayed != place).any():
        yield Plan.on(relayed)


def _relayed(instance: Instance, place: Ints, devices: tuple[int, ...]) -> Ints:
    """The devices of ops, where what is sent to a far device alone is made at one near to that."""
    # A host's port takes gradients of a far server for as long as the slow link does, one by one;
    # ports of the devices beside the host take them at the same time (two containers, eight clones
    # of PNASNet: 1,489 and 1,137 ms).
    arrays, index, num_devices = instance.arrays, instance.arrays.index, instance.num_devices
    far = arrays.transfer_ns.sum(axis=0)[arrays.link_class]
    first, last = np.full(len(place), num_devices), np.full(len(place), -1)
    np.minimum.at(first, index.producer, place[index.consumer])
    np.maximum.at(last, index.producer, place[index.consumer])
    relayed = place.copy()
    for target in sorted(set(range(num_devices)) - set(devices)):
        least = min(far[k, target] for k in devices)
        near = [k for k in devices if far[k, target] == least]
        for j, k in enumerate(devices):
            if far[k, target] > 2 * least:
                sends = (place == k) & (first == target) & (last == target)
                relayed[sends] = near[j % len(near)]
    whole = all_by(arrays.group, relayed != place, arrays.num_groups)[arrays.group]
    return np.where(whole, relayed, place)


def _clones_apart(instance: Instance, clone: Sequence[int], devices: tuple[int, ...]) -> list[int]:
    """Each clone on a device; variables in turn, and what follows a gradient with its variable."""
    # Where these devices cannot run what clones share, it goes in turn to those that can.
    index, ops = instance.graph.index, instance.graph.ops
    shares = (instance.arrays.time_ns[np.array(clone) < 0] != UNSUPPORTED).all(axis=0)
    homes = [k for k in devices if shares[k]] or np.flatnonzero(shares).tolist() or devices
    place = [NOWHERE if j < 0 else devices[j % len(devices)] for j in clone]
    home: dict[str, int] = {}
    for i in reversed(index.topological_order.tolist()):
        if clone[i] >= 0:
            continue
        after = index.consumer[index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]]
        shared = [place[b] for b in after.tolist() if clone[b] < 0]
        own = ops[i].colocation
        if own is None and shared:
            place[i] = shared[0]
        else:
            place[i] = home.setdefault(own or ops[i].name, homes[len(home) % len(homes)])
    return place
