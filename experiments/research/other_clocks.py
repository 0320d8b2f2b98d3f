"""What a plan would take if transfers did not wait for each other, or took no time at all, or if
the backend fused ops at run time.

The first two show what reverses a ranking: contention, transfers, or the plans themselves.
"""

from __future__ import annotations

import numpy as np

from placegap.experiments.research.workloads.variants import with_fused_times
from placegap.experiments.running.sources import Source
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Cluster, Instance, Link, Makespan, Plan, Transfer
from placegap.instances.referee.rules import PlanError
from placegap.instances.transforms.moirai_fusion import fuse_by_rules
from placegap.solvers import Result

FREE_CHANNELS, NO_TRANSFERS, FUSED = "free_channels_ns", "no_transfers_ns", "fused_ns"  # in a log
FUSING = "moirai:"  # the networks of the paper whose backend fuses what a device runs

FASTEST_BYTES_PER_S = 2**62


def clocks_of(instance: Instance, result: Result, source: Source) -> dict[str, int]:
    """What the plan of a run would take by the other clocks."""
    # Of a plan that breaks no rule but that of memory: what it takes, and the most bytes that a
    # device holds beyond its room.
    verdict = result.evaluation
    if verdict is not None and {broken.rule for broken in verdict.violations} == {"memory"}:
        beyond = (
            used.memory_bytes - device.memory_bytes
            for used, device in zip(verdict.uses, instance.cluster.devices, strict=True)
            if device.memory_bytes is not None
        )
        assert verdict.value_ns is not None  # only shape and order forbid a value
        return {"overfilled_ns": verdict.value_ns, "overfills_bytes": max(beyond)}
    if result.plan is None or not isinstance(result.semantics, Makespan):
        return {}
    judged_on = instance if result.split is None else result.split.fine
    clocks = other_clocks(judged_on, result.plan, result.semantics)
    if source.model.startswith(FUSING) and not source.fused and result.split is None:
        clocks[FUSED] = fused_ns(instance, result.plan, result.semantics)
    return clocks


def other_clocks(instance: Instance, plan: Plan, semantics: Makespan) -> dict[str, int]:
    """The makespan of a plan with free channels, and without any transfer times."""
    # The plan's orders of ops hold, and those of transfers are left open. Memory does not matter.
    # Empty where the orders of ops are circular without those of transfers.
    ops_only = Plan(placement=plan.placement, device_order=plan.device_order)
    free = semantics.model_copy(update={"channels": "free"})
    try:
        return {
            FREE_CHANNELS: simulate(instance, ops_only, free).makespan_ns,
            NO_TRANSFERS: simulate(without_transfers(instance), ops_only, free).makespan_ns,
        }
    except PlanError:
        return {}


def fused_ns(instance: Instance, plan: Plan, semantics: Makespan) -> int:
    """The makespan of a plan if each device fuses what it has of Moirai's fused ops."""
    # A fused op runs where its last op stands in the order: no other op of it has consumers beyond
    # it, so that orders that a schedule has stay possible. Those of transfers are kept, too: left
    # open, a searched plan would lose more than fusion gains. Memory does not matter.
    merge = fuse_by_rules(instance, placement=plan.placement)
    fused, where = with_fused_times(merge), merge.op.tolist()
    placement = dict(zip(where, plan.placement, strict=True))
    orders = tuple(
        None if order is None else tuple(reversed(dict.fromkeys(where[i] for i in reversed(order))))
        for order in plan.device_order or [None] * instance.num_devices
    )
    item = merge.edge
    if semantics.transfers == "per_tensor":
        outside = item >= 0
        item = np.empty(len(instance.arrays.index.tensor_producer), np.int64)
        item[instance.arrays.index.tensor[outside]] = fused.arrays.index.tensor[merge.edge[outside]]
    channels = {
        channel: tuple(dict.fromkeys(Transfer(int(item[t.item]), t.destination) for t in order))
        for channel, order in (plan.channel_order or {}).items()
    }
    fused_plan = Plan(tuple(placement[c] for c in range(fused.num_ops)), orders, channels)
    return simulate(fused, fused_plan, semantics).makespan_ns


def without_transfers(instance: Instance) -> Instance:
    """The instance where every tensor is empty and every link without latency."""
    empty = {"bytes": 0, "host_time_ns": None, "transfer_ns": None}
    edges = tuple(edge.model_copy(update=empty) for edge in instance.graph.edges)
    graph = instance.graph.model_copy(update={"edges": edges})
    return Instance(name=instance.name, graph=graph, cluster=_without_latency(instance.cluster))


def _without_latency(cluster: Cluster) -> Cluster:
    """Every device with a direct link to every other, since explicit times need none."""
    names = [device.name for device in cluster.devices]
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=FASTEST_BYTES_PER_S)
        for a in names
        for b in names
        if a != b
    )
    return cluster.model_copy(update={"links": links})
