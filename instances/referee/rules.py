"""Rules that a plan has to keep whatever its value is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Plan, PlanClass, Semantics, Violation
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.loads import check_replicas


class PlanError(ValueError):
    """A plan that cannot be executed: wrong shape, an op where it cannot run, cyclic orders."""


def check_shape(instance: Instance, plan: Plan, *, replicas: bool = False) -> Ints:
    """The device of each op, or a PlanError that says why there is none."""
    # With `replicas` an op may be on several devices, in ascending order; the first is returned.
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
    """Fields of a plan that its objective does not define."""
    for name in ("call", "stage", "tensor", "mode", "device_order", "channel_order"):
        if getattr(plan, name) is not None and name not in semantics.plan_fields:
            yield Violation("fields", f"{name} is not defined under {semantics.label}")


def check_placement(instance: Instance, plan: Plan, semantics: Semantics) -> tuple[Violation, ...]:
    """The rules about where ops are: colocation, replicated stages, class of plans."""
    device = plan.devices  # a replicated stage is where its first device is
    found = [*colocation(instance, device, pooled=semantics.pools_hosts)]
    if semantics.has_replicas:
        found += check_replicas(instance, plan, semantics)
    names = [spec.name for spec in instance.cluster.devices]
    found += check_class(instance, semantics.plan_class, device, names, "device")
    if semantics.has_two_levels:
        servers, server = instance.cluster.server_numbers
        found += check_class(instance, semantics.plan_class, server[device], servers, "server")
    return tuple(found)


def colocation(instance: Instance, device: Ints, pooled: bool) -> Iterator[Violation]:
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
    """The forward parts of the regions form a chain: no cycle in the graph of regions."""
    # A colour class without a forward op counts as a forward block whose edges mirror its backward
    # edges (Tarnawski et al., orphans). Colour classes are whole by the colocation rule.
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
