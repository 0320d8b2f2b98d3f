"""What the variables of the models of latency_subgraphs are in a plan.

Of plans that differ in names only, the models keep one: `tidy` finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

import numpy as np

from placegap.formulations.latency_ip.rows import equal_accelerators, where_needed
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Schedule
from placegap.instances.problem.semantics import LatencySubgraphs
from placegap.instances.referee.simulate_calls import simulate_subgraphs

CallName = tuple[int, int]
"""Accelerator and number of a call; a host and 0 for ops of a host."""


@dataclass(frozen=True)
class PlanValues:
    """A plan as the models have it.

    Attributes
    ----------
    plan : Plan
    schedule : Schedule
    where : list of n
        Device and call of each op.
    producer, consumers : list of int, list of lists of int
        Of each tensor.
    span_ns : mapping (k, c) -> (start, end)
        Of all calls of accelerators, those without an op included.
    done_ns : list of n
        When the call of each op has brought its inputs in and run its ops up to this one.
    rank : list of n
        Position of each op's call, or of the op on a host, in an order in which calls wait only
        for earlier ones and start times do not fall.
    rank_call : mapping (k, c) -> int
        Of all calls; those without an op come last.
    """

    plan: Plan
    schedule: Schedule
    where: list[CallName]
    producer: list[int]
    consumers: list[list[int]]
    span_ns: dict[CallName, tuple[int, int]]
    done_ns: list[int]
    rank: list[int]
    rank_call: dict[CallName, int]

    def enters(self, u: int, k: int, c: int) -> bool:
        """Whether tensor u is an input of call (k, c)."""
        fed = any(self.where[j] == (k, c) for j in self.consumers[u])
        return fed and self.where[self.producer[u]] != (k, c)

    def leaves(self, u: int, k: int, c: int) -> bool:
        """Whether tensor u is an output of call (k, c)."""
        read = any(self.where[j] != (k, c) for j in self.consumers[u])
        return read and self.where[self.producer[u]] == (k, c)


def plan_values(instance: Instance, plan: Plan, semantics: LatencySubgraphs) -> PlanValues:
    """The values of a feasible plan, or rather of the plan that `tidy` makes of it.

    Examples
    --------
    >>> from placegap.instances import example
    >>> once = LatencySubgraphs()
    >>> values = plan_values(example(), Plan.on([1, 1, 0, 0]), once)
    >>> values.plan.placement, values.span_ns, values.done_ns
    (((0,), (0,), (1,), (1,)), {(0, 0): (0, 46), (1, 0): (46, 85)}, [5, 25, 77, 85])
    """
    tidied, schedule, rank = tidy(instance, plan, semantics)
    where = list(zip(tidied.devices.tolist(), tidied.call or (), strict=True))
    index = instance.arrays.index
    consumers: list[list[int]] = [[] for _ in index.tensor_producer]
    for u, j in zip(index.tensor.tolist(), index.consumer.tolist(), strict=True):
        consumers[u].append(j)
    of_call, count = dict(zip(where, rank, strict=True)), max(rank) + 1
    span_ns = _spans(instance, where, schedule, semantics.subgraphs)
    return PlanValues(
        tidied,
        schedule,
        where,
        index.tensor_producer.tolist(),
        consumers,
        span_ns,
        done_ns=_done(instance, where, schedule),
        rank=rank,
        rank_call={at: of_call.get(at, count + at[1]) for at in span_ns},
    )


def tidy(
    instance: Instance, plan: Plan, semantics: LatencySubgraphs
) -> tuple[Plan, Schedule, list[int]]:
    """The plan that models keep in place of a feasible one, its schedule, and ranks of ops.

    No slower: ops are on hosts of `where_needed`, calls are numbered without gaps, and equal
    accelerators by when their first call starts (those without a call last).
    """
    arrays = instance.arrays
    device, call = plan.devices.tolist(), list(plan.call or [0] * instance.num_ops)
    needed = where_needed(instance)
    for i, k in enumerate(device):
        if arrays.is_host[k]:
            call[i] = 0
            if not needed[i, k]:
                kept = np.flatnonzero(needed[i] & arrays.is_host)
                device[i] = int(kept[np.argmin(arrays.time_ns[i, kept])])
    used = {k: sorted({c for j, c in zip(device, call, strict=True) if j == k}) for k in device}
    call = [used[k].index(c) for k, c in zip(device, call, strict=True)]
    tidied = Plan(tuple((k,) for k in device), call=tuple(call))
    schedule = simulate_subgraphs(instance, tidied, semantics)
    rank = _ranks(instance, device, call, schedule)
    first = {device[i]: rank[i] for i in sorted(range(instance.num_ops), key=lambda i: -rank[i])}
    new = list(range(instance.num_devices))
    for members in equal_accelerators(instance):
        by_start = sorted(members, key=lambda k: (first.get(k, instance.num_ops), k))
        for old, name in zip(by_start, members, strict=True):
            new[old] = name
    tidied = Plan(tuple((new[k],) for k in device), call=tuple(call))
    return tidied, simulate_subgraphs(instance, tidied, semantics), rank


def _ranks(instance: Instance, device: list[int], call: list[int], schedule: Schedule) -> list[int]:
    is_host, index = instance.arrays.is_host, instance.arrays.index
    unit = [
        (k, c, i if is_host[k] else -1) for i, (k, c) in enumerate(zip(device, call, strict=True))
    ]
    waits: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {one: [] for one in unit}
    for i, j in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        if unit[i] != unit[j]:
            waits[unit[j]].append(unit[i])
    for one, other in pairwise(sorted(waits)):
        if one[0] == other[0] and not is_host[one[0]]:
            waits[other].append(one)
    start = dict(zip(unit, schedule.start_ns.tolist(), strict=True))
    order = sorted(TopologicalSorter(waits).static_order(), key=start.__getitem__)  # stable
    position = {one: at for at, one in enumerate(order)}
    return [position[one] for one in unit]


def _spans(
    instance: Instance, where: list[CallName], schedule: Schedule, num_calls: int
) -> dict[CallName, tuple[int, int]]:
    """Calls without an op start when the one before has finished, or the equal before has begun."""
    start, end = schedule.start_ns.tolist(), schedule.end_ns.tolist()
    known = {at: (start[i], end[i]) for i, at in enumerate(where)}
    before = {k: j for members in equal_accelerators(instance) for j, k in pairwise(members)}
    spans: dict[CallName, tuple[int, int]] = {}
    for k in np.flatnonzero(~instance.arrays.is_host).tolist():
        for c in range(num_calls):
            idle = spans[k, c - 1][1] if c else spans.get((before.get(k, -1), 0), (0, 0))[0]
            spans[k, c] = known.get((k, c), (idle, idle))
    return spans


def _done(instance: Instance, where: list[CallName], schedule: Schedule) -> list[int]:
    """Ops of a call one after the other, in topological order, behind its inputs."""
    arrays, index = instance.arrays, instance.arrays.index
    clock = dict(zip(where, schedule.start_ns.tolist(), strict=True))
    edges = (index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist())
    inputs = {(u, *where[j]): None for i, j, u in zip(*edges, strict=True) if where[i] != where[j]}
    for u, k, c in inputs:
        clock[k, c] += int(arrays.host_ns[u, k])
    done: list[int] = schedule.end_ns.tolist()
    for i in index.topological_order.tolist():
        k = where[i][0]
        if not arrays.is_host[k]:
            clock[where[i]] += int(arrays.time_ns[i, k])
            done[i] = clock[where[i]]
    return done
