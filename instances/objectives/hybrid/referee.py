"""The rules of hybrid_pipeline: a row of stages with replicas, tensor parallelism and modes.

A plan is a row of stages S_1, .., S_l that partitions the ops, no edge leading back. Stage i has d
replicas of t devices each, and each of its ops runs in one of the modes that it has for t. With N
microbatches per batch and B bytes/s between devices, a stage takes per batch

    N / d * sum of time_ns  +  ceil((2 N / d * border + 2 (d - 1) / d * parameters) / B)

where `border` is the bytes of all edges that enter or leave the stage, each with what its op's mode
adds (`enter_bytes`, `leave_bytes`): forward and backward, at both ends, every edge on its own. The
last term is the sum of the gradients over replicas, once per batch. The value is the longest stage:
a full pipeline; nothing overlaps.

With `bubble`, which is for one d, filling and draining count: a microbatch also passes the other
stages, each of which takes its N / d-th part of a batch. That is the sum over all stages of what
they take for a microbatch, and N / d - 1 times the longest (Alpa's cost of a pipeline), rounded up.

Stage i holds y = min(ceil((d_i + .. + d_l) / d_i), N / d_i) microbatches in flight (the l - i + 1
of 1F1B where all d are equal, or all that there are). On each device

    sum of (held_bytes * y + state_bytes) + largest workspace_bytes <= memory_bytes

where `sharding` divides a stage's `sharded_bytes`, and `gradient_bytes`, by d, rounded up.

d divides N, and the sum of all d is at most N: fewer microbatches fill no pipeline, so with
`bubble` they may be fewer. Devices are equal; B is the least bandwidth between any two of them, and
latencies do not count. Where devices name servers, t divides the devices of each, and every group
of t lies in one.

Source: Tarnawski, Narayanan, Phanishayee, Piper, NeurIPS 2021; Zheng et al., Alpa, OSDI 2022,
equation (2), for the bubble; workspace, sharding and the rules for degrees and modes are placegap's
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from placegap.instances.objectives.hybrid.checks import check_hybrid
from placegap.instances.problem import (
    DeviceUse,
    Evaluation,
    HybridPipeline,
    Instance,
    Mode,
    Plan,
    Violation,
)
from placegap.instances.problem.integers import NS_PER_S, ceil_div, format_bytes
from placegap.instances.referee.rules import PlanError, foreign_fields


def least_bandwidth(instance: Instance) -> int:
    """Least bandwidth between any two devices, bytes/s; 1 for a device alone."""
    return instance.cluster.least_bandwidth_bytes_per_s or 1


class StageCost(NamedTuple):
    """What one stage takes per batch, and what each of its devices holds."""

    # `time_ns` is not the sum of the parts: bytes over the bandwidth are rounded up once.
    compute_ns: int
    in_bytes: int
    out_bytes: int
    parameter_bytes: int
    time_ns: int
    memory_bytes: int


@dataclass(frozen=True)
class HybridStage:
    """One stage of a plan: numbers of its ops, its devices, d, t, and microbatches in flight."""

    ops: tuple[int, ...]
    devices: tuple[int, ...]
    replicas: int
    tensor: int
    in_flight: int


def hybrid_stages(
    instance: Instance, plan: Plan, semantics: HybridPipeline
) -> tuple[HybridStage, ...]:
    """The stages of a plan, the first one first."""
    n = instance.num_ops
    for field, given in (("placement", plan.placement), ("stage", plan.stage), ("mode", plan.mode)):
        if given is None or len(given) != n:
            raise PlanError(f"{field} must have one entry for each of the {n} ops")
    assert plan.stage is not None
    count = max(plan.stage, default=-1) + 1
    if sorted(set(plan.stage)) != list(range(count)):
        raise PlanError(f"stages must be numbered 0 to {count - 1}, none of them empty")
    if plan.tensor is None or len(plan.tensor) != count or min(plan.tensor) < 1:
        raise PlanError(f"tensor must have a degree of 1 or more for each of the {count} stages")
    ops: list[list[int]] = [[] for _ in range(count)]
    for i, s in enumerate(plan.stage):
        ops[s].append(i)
    used: dict[int, int] = {}
    for s, own in enumerate(ops):
        devices = plan.placement[own[0]]
        if any(plan.placement[i] != devices for i in own):
            raise PlanError(f"the ops of stage {s} must all be on the same devices")
        if not devices or len(devices) % plan.tensor[s]:
            raise PlanError(
                f"stage {s} has {len(devices)} devices, no whole number of groups of"
                f" {plan.tensor[s]}"
            )
        for k in devices:
            if not 0 <= k < instance.num_devices:
                raise PlanError(f"stage {s} is on a device that does not exist: {k}")
            if used.setdefault(k, s) != s or devices.count(k) > 1:
                name = instance.cluster.devices[k].name
                raise PlanError(f"device {name!r} is used twice; stages have devices of their own")
    degrees = [len(plan.placement[own[0]]) // t for own, t in zip(ops, plan.tensor, strict=True)]
    return tuple(
        HybridStage(
            tuple(own),
            plan.placement[own[0]],
            degrees[s],
            plan.tensor[s],
            min(ceil_div(sum(degrees[s:]), degrees[s]), semantics.microbatches // degrees[s]),
        )
        for s, own in enumerate(ops)
    )


def stage_modes(instance: Instance, plan: Plan, stage: HybridStage) -> list[Mode]:
    """The mode of each op of a stage; PlanError where it has none by that name for t."""
    assert plan.mode is not None
    found = []
    for i in stage.ops:
        op, name = instance.graph.ops[i], plan.mode[i]
        own = [m for m in op.ways if m.name == name and m.tensor == stage.tensor]
        if not own:
            there = ", ".join(f"{m.name} for {m.tensor}" for m in op.ways)
            raise PlanError(
                f"op {op.name!r} has no mode {name!r} for tensor {stage.tensor} (it has: {there})"
            )
        found.append(own[0])
    return found


def stage_cost(
    instance: Instance,
    semantics: HybridPipeline,
    bandwidth: int,
    stage: HybridStage,
    modes: list[Mode],
) -> StageCost:
    """Time per batch and memory of a stage whose ops run in these modes."""
    kind, n, d = instance.cluster.devices[0].kind, semantics.microbatches, stage.replicas
    mode_of = dict(zip(stage.ops, modes, strict=True))
    index, edges = instance.graph.index, instance.graph.edges
    entering, leaving = 0, 0
    for i, mode in mode_of.items():
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            if int(index.producer[e]) not in mode_of:
                entering += edges[e].bytes + mode.enter_bytes.get(edges[e].producer, 0)
        for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist():
            if int(index.consumer[e]) not in mode_of:
                leaving += edges[e].bytes + mode.leave_bytes.get(edges[e].consumer, 0)
    compute = n // d * sum(mode.time_ns[kind] for mode in modes)
    parameters = sum(mode.parameter_bytes for mode in modes)
    moved = 2 * n * (entering + leaving) + 2 * (d - 1) * parameters
    shared = 0
    if semantics.sharding != "none":
        shared += sum(mode.sharded_bytes for mode in modes)
    if semantics.sharding == "gradients":
        shared += sum(mode.gradient_bytes for mode in modes)
    memory = sum(mode.held_bytes * stage.in_flight + mode.state_bytes for mode in modes)
    memory += max(mode.workspace_bytes for mode in modes) - shared + ceil_div(shared, d)
    time_ns = compute + ceil_div(NS_PER_S * moved, bandwidth * d)
    return StageCost(compute, entering, leaving, parameters, time_ns, memory)


def evaluate(instance: Instance, plan: Plan, semantics: HybridPipeline) -> Evaluation:
    """The referee's verdict on a hybrid plan; `uses` are those of one batch."""
    foreign = tuple(foreign_fields(plan, semantics))
    if foreign:
        return Evaluation(None, foreign)
    check_hybrid(instance, semantics)
    stages = hybrid_stages(instance, plan, semantics)
    modes = [stage_modes(instance, plan, stage) for stage in stages]
    found = [*_degrees(semantics, stages)]
    if found:
        return Evaluation(None, tuple(found))
    bandwidth = least_bandwidth(instance)
    costs = [
        stage_cost(instance, semantics, bandwidth, *both)
        for both in zip(stages, modes, strict=True)
    ]
    found += _memory(instance, stages, costs)
    found += _order(instance, plan)
    found += _colocation(instance, plan)
    found += _servers(instance, stages)
    found += _recompute(instance, plan, semantics, stages)
    uses = [DeviceUse(device.name, 0, 0, 0, 0, 0, 0) for device in instance.cluster.devices]
    for stage, cost in zip(stages, costs, strict=True):
        each = 2 * semantics.microbatches // stage.replicas
        into, out = (
            ceil_div(NS_PER_S * each * size, bandwidth) for size in (cost.in_bytes, cost.out_bytes)
        )
        row = (len(stage.ops), cost.compute_ns, into, out, cost.memory_bytes, cost.time_ns)
        for k in stage.devices:
            uses[k] = DeviceUse(instance.cluster.devices[k].name, *row)
    value = max(cost.time_ns for cost in costs)
    if semantics.bubble:
        value += bubble_ns(semantics, stages[0].replicas, [cost.time_ns for cost in costs])
    return Evaluation(value, tuple(found), tuple(uses))


def bubble_ns(semantics: HybridPipeline, replicas: int, times_ns: list[int]) -> int:
    """What filling and draining add to the longest of the stages, which have one d.

    Examples
    --------
    Two replicas have two microbatches each: one passes stages of 7 and 4 / 2 ns.

    >>> bubble_ns(HybridPipeline(microbatches=4), 2, [20, 14, 4])
    9
    """
    return ceil_div(sum(times_ns) - max(times_ns), semantics.microbatches // replicas)


def _degrees(semantics: HybridPipeline, stages: tuple[HybridStage, ...]) -> Iterator[Violation]:
    n = semantics.microbatches
    for number, stage in enumerate(stages):
        if n % stage.replicas:
            yield Violation(
                "degrees",
                f"stage {number} has {stage.replicas} replicas, which does not divide the {n}"
                " microbatches; choose a divisor, or other --microbatches",
            )
    total = sum(stage.replicas for stage in stages)
    if total > n and not semantics.bubble:
        yield Violation(
            "degrees",
            f"{total} replicas in all are more than {n} microbatches; use fewer, raise"
            " --microbatches, or count filling and draining (--bubble)",
        )
    for what, own, rules in (
        ("tensor degree", {stage.tensor for stage in stages}, ("one", "one_t")),
        ("number of replicas", {stage.replicas for stage in stages}, ("one",)),
    ):
        if len(own) > 1 and semantics.degrees in rules:
            yield Violation(
                "degrees",
                f"stages differ in their {what}: {sorted(own)}; choose one, or add --degrees free",
            )


def _memory(
    instance: Instance, stages: tuple[HybridStage, ...], costs: list[StageCost]
) -> Iterator[Violation]:
    limit = instance.cluster.devices[0].memory_bytes
    for number, (stage, cost) in enumerate(zip(stages, costs, strict=True)):
        if limit is not None and cost.memory_bytes > limit:
            yield Violation(
                "memory",
                f"each device of stage {number} holds {format_bytes(cost.memory_bytes)},"
                f" {format_bytes(cost.memory_bytes - limit)} more than its {format_bytes(limit)},"
                f" with {stage.in_flight}"
                " microbatches in flight",
                device=instance.cluster.devices[stage.devices[0]].name,
            )


def _order(instance: Instance, plan: Plan) -> Iterator[Violation]:
    assert plan.stage is not None
    number = instance.graph.op_index
    for edge in instance.graph.edges:
        early, late = plan.stage[number[edge.producer]], plan.stage[number[edge.consumer]]
        if early > late:
            yield Violation(
                "chain",
                f"{edge.producer!r} in stage {early} feeds {edge.consumer!r} in stage {late}",
                op=edge.consumer,
            )


def _colocation(instance: Instance, plan: Plan) -> Iterator[Violation]:
    assert plan.stage is not None
    assert plan.mode is not None
    home: dict[str, int] = {}
    for i, op in enumerate(instance.graph.ops):
        if op.colocation is None:
            continue
        first = home.setdefault(op.colocation, i)
        if (plan.stage[first], plan.mode[first]) != (plan.stage[i], plan.mode[i]):
            yield Violation(
                "colocation",
                f"op {op.name!r} and {instance.graph.ops[first].name!r} of its group"
                f" {op.colocation!r} differ in stage or mode; give both the same",
                op=op.name,
            )


def _servers(instance: Instance, stages: tuple[HybridStage, ...]) -> Iterator[Violation]:
    server = [device.server for device in instance.cluster.devices]
    sizes = Counter(name for name in server if name is not None)
    for number, stage in enumerate(stages):
        t = stage.tensor
        odd = [name for name, size in sizes.items() if size % t]
        if odd:
            yield Violation(
                "tensor",
                f"stage {number}: groups of {t} devices do not divide the {sizes[odd[0]]} of"
                f" server {odd[0]!r}; choose a tensor degree that does",
            )
            continue
        for at in range(0, len(stage.devices), t):
            if len({server[k] for k in stage.devices[at : at + t]}) > 1:
                yield Violation(
                    "tensor",
                    f"stage {number}: a group of {t} devices is in two servers; name devices of"
                    " one server next to each other",
                )
                break


def _recompute(
    instance: Instance, plan: Plan, semantics: HybridPipeline, stages: tuple[HybridStage, ...]
) -> Iterator[Violation]:
    """An op with a single mode for its t follows any choice."""
    assert plan.mode is not None
    chosen = list[set[str]]()
    for stage in stages:
        chosen.append(set())
        for i in stage.ops:
            if sum(mode.tensor == stage.tensor for mode in instance.graph.ops[i].ways) > 1:
                chosen[-1].add(plan.mode[i])
    if semantics.recompute == "all_or_none":
        chosen = [set().union(*chosen)]
    for number, names in enumerate(chosen):
        if len(names) > 1 and semantics.recompute != "per_layer":
            where = "" if semantics.recompute == "all_or_none" else f"stage {number}: "
            yield Violation(
                "recompute",
                f"{where}ops run in the modes {sorted(names)}; choose one, or add --recompute"
                " per_layer",
            )
