"""Stages of pipelines by simple rules: even-split, simulated-moves, alpa and heaviest-stage."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Edge, Instance, MaxLoad, PipelineIteration, Plan
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.problem.nets import gradient_tie, stage_arcs, stage_blocks
from placegap.instances.referee.evaluate import feasible_value
from placegap.instances.referee.loads import border_costs
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import find_method, method, why_not
from placegap.solvers.core.result import Outcome

NO_PASSAGE = "a backward op feeds a forward op: no microbatch can pass"


@method(
    "even-split", objectives=("pipeline_iteration",), starts={"pipeline_iteration": Cost(5.0, 5.0)}
)
def even_split(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """The same number of layers in every stage, as in manual splits.

    Layers are the blocks that stages keep whole, in their order (`nets.stage_blocks`); the
    first stages get one more. All devices are used, as they come, or as many as there are layers
    for. A heuristic that looks at no time. O(n + m log m).
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
    """Why a schedule has no stages: the number of layers, and what ties them together."""
    tie = gradient_tie(instance)
    return f"too few layers for this schedule: {layers}" + ("" if tie is None else f"; {tie}")


def devices_used(instance: Instance, semantics: PipelineIteration, layers: int) -> int:
    """The most devices that the schedule can use for a number of layers; 0 if it can use none."""
    chunks = semantics.stages_per_device
    for count in range(min(instance.num_devices, layers // chunks), 0, -1):
        if chunks == 1 or semantics.microbatches % count == 0:
            return count
    return 0


def chain_plan(block: Ints, cuts: Ints, num_devices: int) -> Plan:
    """Blocks before the first cut in stage 0, and so on; stages on the devices in rounds."""
    stage = np.searchsorted(cuts, block, side="right").tolist()
    return Plan(tuple((s % num_devices,) for s in stage), stage=tuple(stage))


@method(
    "simulated-moves",
    objectives=("pipeline_iteration",),
    paper="pytorch/pytorch #179212",
    starts={"pipeline_iteration": Cost(20.0, 80.0, most_parts=4_000)},
)
def simulated_moves(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """Least heaviest stage by a DP, then moves of border layers by simulation.

    pytorch/pytorch #179212 proposes automatic stages for 1F1B, interleaved and zero-bubble
    schedules: a DP, then refinement around the critical stage, judged by simulation. Its text gives
    no more detail; here the critical stage is the heaviest, and it hands its first or its last
    layer to its neighbour for as long as the iteration gets shorter. A layer's load is its forward
    and backward time on the device that is fastest for it. Moves that break a rule (memory) are not
    taken. O(S l^2) and a simulation per move.
    """
    instance, semantics = task.instance, task.semantics
    block = stage_blocks(instance)
    if block is None:
        return Outcome(message=NO_PASSAGE)
    layers = int(block.max()) + 1
    count = devices_used(instance, semantics, layers)
    if count == 0:
        return Outcome(message=too_few(instance, layers))
    load = layer_loads(instance, block)
    cuts = lightest_cuts(load, count * semantics.stages_per_device)

    def value(at: Ints) -> int | None:
        return feasible_value(instance, chain_plan(block, at, count), semantics)

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


@kernel(bounded=True)
def lightest_cuts(load: Ints, count: int) -> Ints:
    """Where to cut a row of loads into `count` runs, none empty, whose heaviest is lightest."""
    # Of the cuts that do it each is as far to the left as the DP meets it first.
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


ALIKE = 1e-3  # limits on a stage that differ by less are one; Alpa takes 1e-6 s, of stages of ms


def why_not_one_stage(task: Task[PipelineIteration], params: Params) -> str | None:
    """Why a plan with one stage for each device is none of the schedule's, or None."""
    if task.semantics.schedule == "interleaved":
        return "makes one stage for each device; interleaved has several"
    return None


@method(
    "alpa", objectives=("pipeline_iteration",), cites="Zheng et al. 2022", applies=why_not_one_stage
)
def alpa(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """Minimizes the sum of stages plus m - 1 times the heaviest, by a DP for each limit.

    For limit after limit on a stage a DP finds the row of stages of least sum; the best sum of both
    wins. A stage takes the time of its layers on the device that is fastest for them, and of what
    crosses its borders. That is the iteration of a pipeline that hands microbatches on at once;
    memory is not looked at. O(S l^2) for each limit.

    Deviations: Alpa also chooses the devices of each stage; here each stage has one.
    """
    instance, semantics = task.instance, task.semantics
    block = stage_blocks(instance)
    if block is None:
        return Outcome(message=NO_PASSAGE)
    most = min(instance.num_devices, int(block.max()) + 1)
    cuts = alpa_cuts(stage_times(instance, semantics, block), most, semantics.microbatches)
    return Outcome(chain_plan(block, cuts, len(cuts) + 1))


def layer_loads(instance: Instance, block: Ints) -> Ints:
    """Time of each block's ops, without updates, each on the device that is fastest for it."""
    arrays = instance.arrays
    times = np.where(arrays.time_ns < 0, arrays.time_ns.max(), arrays.time_ns).min(axis=1)
    return sum_by(block, np.where(arrays.update, 0, times), int(block.max()) + 1)


def stage_times(instance: Instance, semantics: PipelineIteration, block: Ints) -> Ints:
    """What a stage of the blocks i to j - 1 takes, (l + 1, l + 1)."""
    # That is its ops, each on the device that is fastest for it, and every tensor that crosses its
    # border, once. A tensor costs a device the least that it costs any. O(t l^2).
    index, load = instance.arrays.index, layer_loads(instance, block)
    total = np.concatenate([[0], np.cumsum(load)]).astype(np.int64)
    times = total[None, :] - total[:, None]
    begin, end = np.arange(len(total))[:, None], np.arange(len(total))[None, :]
    cost = border_costs(instance, semantics).min(axis=1, initial=NO_LIMIT)
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        inside = (begin <= block[producer]) & (block[producer] < end)
        readers = [(begin <= b) & (b < end) for b in np.unique(block[index.consumer[edges]])]
        pays = np.where(inside, ~np.all(readers, axis=0), np.any(readers, axis=0))
        times[pays] += cost[u]
    return times


@kernel(bounded=True)
def alpa_cuts(times: Ints, most: int, rounds: int) -> Ints:
    """Where to cut l blocks into a limited number of runs."""
    # For the least sum of all runs and rounds - 1 times the heaviest; ``times[i, j]`` is that of
    # blocks i to j - 1.
    n = len(times) - 1
    never = np.int64(2**62)
    limits = np.empty(n * (n + 1) // 2, np.int64)
    at = 0
    for i in range(n):
        for j in range(i + 1, n + 1):
            limits[at] = times[i, j]
            at += 1
    limits.sort()
    value = np.empty((most + 1, n + 1), np.int64)
    origin = np.zeros((most + 1, n + 1), np.int64)
    best, best_cuts, last = never, np.zeros(0, np.int64), np.int64(-1)
    for limit in limits:
        if limit <= last + np.int64(ALIKE * last):
            continue
        last = limit
        if (rounds - 1) * limit >= best:
            break
        value[:, :] = never
        value[0, 0] = 0
        for s in range(1, most + 1):
            for j in range(s, n + 1):
                for i in range(j - 1, s - 2, -1):
                    now = times[i, j]
                    if now <= limit and value[s - 1, i] + now < value[s, j]:
                        value[s, j], origin[s, j] = value[s - 1, i] + now, i
        for s in range(1, most + 1):
            if value[s, n] < never and value[s, n] + (rounds - 1) * limit < best:
                best = value[s, n] + (rounds - 1) * limit
                best_cuts = np.zeros(s - 1, np.int64)
                place = n
                for run in range(s, 1, -1):
                    place = origin[run, place]
                    best_cuts[run - 2] = place
    return best_cuts


STEADY = MaxLoad(plans="chain")  # what decides once a pipeline is full


def why_not_max_load(task: Task[PipelineIteration], params: Params) -> str | None:
    """Why max_load cannot stand in for the task, or None."""
    method = find_method("ideal-dp")
    steady = Task(task.instance, STEADY)
    return why_not_one_stage(task, params) or why_not(method, steady, method.params())


@method(
    "heaviest-stage",
    objectives=("pipeline_iteration",),
    cites="Tarnawski et al. 2020",
    starts={"pipeline_iteration": Cost(1000.0, 100.0)},
    applies=why_not_max_load,
)
def heaviest_stage(task: Task[PipelineIteration], params: Params | None = None) -> Outcome:
    """The optimal plan of max_load, run under the schedule.

    The best chain for max_load by `ideal-dp`, whatever the schedule and its microbatches are. For
    many microbatches that is nearly best; for few the stages' places in the chain count, too.
    Microbatches in flight are not looked at, so that memory may not suffice. Time as of `ideal-dp`.
    A chain of max_load may send gradients to a later stage, and no pipeline does; so what edges of
    both passes tie together stays whole (`in_stage_order`).
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
    """The instance whose chains of max_load are those that a pipeline can run, without updates."""
    # Blocks of stages become colocation groups; where a gradient leads from block to block, an edge
    # between forward ops that moves nothing leads the other way. Modes are dropped: those of a
    # group have to be alike, and max_load does not look at them. O(n + m).
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
        op.model_copy(
            update={
                "colocation": f"block {b}" if size[b] > 1 else None,
                "modes": (),
                "time_ns": dict.fromkeys(op.time_ns, 0) if op.update else op.time_ns,
            }
        )
        for op, b in zip(graph.ops, block.tolist(), strict=True)
    )
    update = {"ops": ops, "edges": (*graph.edges, *extra)}
    return Instance(
        name=instance.name, graph=graph.model_copy(update=update), cluster=instance.cluster
    )
