"""Rules that a plan has to keep whatever its value is, and what an instance needs to be judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import (
    HybridPipeline,
    Instance,
    Makespan,
    MaxContext,
    PipelineIteration,
    Plan,
    PlanClass,
    Semantics,
    Violation,
)
from placegap.instances.problem.integers import LARGEST_SUM, UNSUPPORTED
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_EVENTS
from placegap.instances.referee.loads import check_replicas


class PlanError(ValueError):
    """A plan that cannot be executed: wrong shape, an op where it cannot run, cyclic orders."""


def check_semantics(instance: Instance, semantics: Semantics) -> None:
    """Raise an InputError where an instance lacks what a semantics needs.

    Tokens need ops with caches. With ``levels=2`` every device names its server, and, where there
    are several servers, every tensor has a time between them: links or transfer_ns, not a host time
    alone.
    """
    if semantics.has_two_levels:
        reason = why_not_two_levels(instance)
        if reason is not None:
            raise InputError(reason, instance.name)
    if isinstance(semantics, MaxContext) and not any(op.caches for op in instance.graph.ops):
        raise InputError(
            "max_context maximizes the tokens of caches, but no op has a cache; trace the model"
            " with --context, or state caches",
            instance.name,
        )


def why_not_two_levels(instance: Instance) -> str | None:
    """What an instance lacks for two levels of communication, or None."""
    for device in instance.cluster.devices:
        if device.server is None:
            return f"two levels need the server of every device; {device.name!r} has none"
    if len(instance.cluster.server_numbers[0]) > 1:
        for edge in instance.graph.edges:
            if edge.host_time_ns is not None and edge.transfer_ns is None:
                return (
                    f"the edge '{edge.producer} -> {edge.consumer}' has only a host time, which"
                    " gives no time between servers; state its bytes or transfer_ns"
                )
    return None


def check_iteration(instance: Instance, semantics: PipelineIteration) -> None:
    """Raise an InputError where times or bytes of all microbatches overflow, or where they have
    too many events.
    """
    arrays, splits = instance.arrays, semantics.schedule == "zero_bubble"
    if splits:
        _check_split(instance)
    passes = 2 + splits if arrays.backward.any() else 1
    stages = min(instance.num_devices * semantics.stages_per_device, arrays.num_groups)
    MAX_EVENTS.check(
        passes * stages * semantics.microbatches,
        f"an iteration of {semantics.microbatches} microbatches in {stages} stages",
        instance.name,
    )
    moves = sum(arrays.transfer_ns.max(axis=1, initial=0).tolist())
    moves += sum(arrays.host_ns.max(axis=1, initial=0).tolist())
    time_ns = sum(arrays.time_ns.max(axis=1).tolist()) + instance.num_devices * moves
    held = 2 * sum(instance.memory_arrays.tensor_bytes.tolist()) * instance.num_devices
    held += sum(arrays.resident_bytes.tolist())
    if semantics.memory == "peak":
        sizes = instance.memory_arrays
        held += sum(sizes.workspace_bytes.tolist()) + sum(sizes.state_bytes.tolist())
        held += sum(sizes.shared_bytes.tolist()) * instance.num_devices
    for total, what in ((time_ns, "take {} ns"), (held, "hold {} bytes")):
        if total * semantics.microbatches > LARGEST_SUM:
            most = what.format(total * semantics.microbatches)
            raise InputError(
                f"{semantics.microbatches} microbatches may {most}, above 2**62; use fewer",
                instance.name,
            )


def _check_split(instance: Instance) -> None:
    """Raise an InputError where the weight gradients of a training step are not told apart."""
    arrays, index, ops = instance.arrays, instance.arrays.index, instance.graph.ops
    if not arrays.backward.any():
        return
    if not arrays.weight_gradient.any():
        raise InputError(
            "zero_bubble: no backward op is marked weight_gradient, as those that only updates of"
            " weights wait for must be; mark them (placegap convert MODEL OUT --weight-gradients),"
            " or choose --schedule 1f1b",
            instance.name,
        )
    wrong = arrays.weight_gradient[index.producer] & ~arrays.weight_gradient[index.consumer]
    if wrong.any():
        at = int(np.argmax(wrong))
        a, b = (ops[int(ends[at])].name for ends in (index.producer, index.consumer))
        raise InputError(
            f"zero_bubble: op {a!r} is marked weight_gradient and feeds {b!r}, which is not; mark"
            f" both, or {a!r} not",
            instance.name,
        )


def check_shape(instance: Instance, plan: Plan, *, replicas: bool = False) -> Ints:
    """The device of each op, or a PlanError that says why there is none.

    With `replicas` an op may be on several devices, in ascending order; the first is returned.
    """
    if len(plan.placement) != instance.num_ops:
        raise PlanError(f"placement has {len(plan.placement)} ops, the graph {instance.num_ops}")
    num_devices, ops = instance.num_devices, instance.graph.ops
    for i, devices in enumerate(plan.placement):
        if len(devices) == 1 and 0 <= devices[0] < num_devices:
            continue  # nearly always
        op = ops[i]
        if len(devices) != 1 and not (replicas and devices):
            raise PlanError(f"op {op.name!r} is on {len(devices)} devices, not on one")
        for k in devices:
            if not 0 <= k < num_devices:
                raise PlanError(f"op {op.name!r} is on device number {k}, which does not exist")
        if any(a >= b for a, b in pairwise(devices)):
            raise PlanError(
                f"op {op.name!r} is on the devices {list(devices)}: not in ascending order"
            )
    device = plan.devices
    times = instance.arrays.time_ns[np.arange(instance.num_ops), device]
    if (times == UNSUPPORTED).any():
        i = int(np.argmax(times == UNSUPPORTED))
        where = instance.cluster.devices[device[i]]
        raise PlanError(
            f"op {instance.graph.ops[i].name!r} cannot run on {where.name!r} (kind {where.kind!r})"
        )
    return device


def foreign_fields(plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    if semantics.objective != "latency_subgraphs" and plan.call is not None:
        yield Violation("fields", f"call is not defined under {semantics.label}")
    if not isinstance(semantics, PipelineIteration | HybridPipeline) and plan.stage is not None:
        yield Violation("fields", f"stage is not defined under {semantics.label}")
    for name, given in (("tensor", plan.tensor), ("mode", plan.mode)):
        if given is not None and not isinstance(semantics, HybridPipeline):
            yield Violation("fields", f"{name} is not defined under {semantics.label}")
    if not isinstance(semantics, Makespan):
        if plan.device_order is not None:
            yield Violation("fields", f"device_order is not defined under {semantics.label}")
        if plan.channel_order is not None:
            yield Violation("fields", f"channel_order is not defined under {semantics.label}")
    elif semantics.channels == "free" and plan.channel_order:
        yield Violation("fields", "channel_order is not defined: channels are free")


def check_placement(instance: Instance, plan: Plan, semantics: Semantics) -> tuple[Violation, ...]:
    """The rules about where ops are: colocation, replicated stages, class of plans."""
    device = plan.devices  # a replicated stage is where its first device is
    if isinstance(semantics, PipelineIteration):  # its stages are a chain, or it cannot run
        return tuple(_colocation(instance, device, pooled=False))
    pooled = semantics.objective == "latency_subgraphs"  # hosts are one pool there
    found = [*_colocation(instance, device, pooled)]
    if semantics.has_replicas:
        found += check_replicas(instance, plan, semantics)
    names = [spec.name for spec in instance.cluster.devices]
    found += check_class(instance, semantics.plan_class, device, names, "device")
    if semantics.has_two_levels:
        servers, server = instance.cluster.server_numbers
        found += check_class(instance, semantics.plan_class, server[device], servers, "server")
    return tuple(found)


def _colocation(instance: Instance, device: Ints, pooled: bool) -> Iterator[Violation]:
    """Ops of a group share a device or, where the hosts are one pool, any of the hosts."""
    is_host = instance.arrays.is_host
    home: dict[str, int] = {}
    for i, op in enumerate(instance.graph.ops):
        if op.colocation is None:
            continue
        first = home.setdefault(op.colocation, i)
        if device[first] != device[i] and not (
            pooled and is_host[device[first]] and is_host[device[i]]
        ):
            here, there = (instance.cluster.devices[device[j]].name for j in (i, first))
            yield Violation(
                "colocation",
                f"op {op.name!r} is on {here!r}, but {instance.graph.ops[first].name!r} of its"
                f" group {op.colocation!r} is on {there!r}",
                op=op.name,
                device=here,
            )


def check_class(
    instance: Instance, plans: PlanClass, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """What keeps regions (devices or servers, as `noun` says) from being of a class of plans."""
    if plans == "convex":
        yield from _convex(instance, region, names, noun)
    elif plans == "chain":
        yield from _chain(instance, region, names, noun)


def _convex(
    instance: Instance, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """No path over forward ops leaves a region and comes back (Tarnawski et al., contiguity)."""
    arrays = instance.arrays
    index = arrays.index
    # left[i]: regions that some forward path into op i has left; bits of a Python integer
    left = [0] * instance.num_ops
    for i in index.topological_order.tolist():
        if arrays.backward[i]:
            continue
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            j = int(index.producer[e])
            if not arrays.backward[j]:
                left[i] |= left[j] | ((1 << int(region[j])) if region[j] != region[i] else 0)
        if left[i] >> int(region[i]) & 1:
            op, name = instance.graph.ops[i].name, names[region[i]]
            yield Violation(
                "convex",
                f"a path leaves {noun} {name!r} and comes back to it at op {op!r}",
                op=op,
                device=name if noun == "device" else None,
            )


def _chain(
    instance: Instance, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """The forward parts of the regions form a chain: no cycle in the graph of regions.

    A colour class without a forward op counts as a forward block whose edges mirror its backward
    edges (Tarnawski et al., orphans). Colour classes are whole by the colocation rule.
    """
    arrays = instance.arrays
    index, backward = arrays.index, arrays.backward
    has_forward = np.zeros(arrays.num_groups, np.bool_)
    has_forward[arrays.group[~backward]] = True
    orphan = ~has_forward[arrays.group]
    tail, head = index.producer, index.consumer
    forward = ~backward[tail] & ~backward[head]
    mirrored = backward[tail] & backward[head] & (orphan[tail] | orphan[head])
    arcs: dict[tuple[int, int], tuple[int, int]] = {}
    for mask, ends in ((forward, (tail, head)), (mirrored, (head, tail))):
        for a, b in zip(ends[0][mask].tolist(), ends[1][mask].tolist(), strict=True):
            if region[a] != region[b]:
                arcs.setdefault((int(region[a]), int(region[b])), (a, b))
    order = TopologicalSorter[int]()
    for a, b in arcs:
        order.add(b, a)
    try:
        order.prepare()
    except CycleError as found:
        cycle = list(pairwise(found.args[1]))
    else:
        return
    around = [names[a] for a, _ in cycle]
    a, b = (instance.graph.ops[i].name for i in arcs[cycle[-1]])
    yield Violation(
        "chain",
        f"the {noun}s feed each other in a cycle: {' -> '.join([*around, around[0]])}"
        f" (for instance {a!r} feeds {b!r})",
        op=a,
        device=around[0] if noun == "device" else None,
    )
