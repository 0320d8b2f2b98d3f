"""The calls of a latency model: index sets, windows, and the values of a plan's variables.

By number and in ns: for the MIP and for CP-SAT, which need not wait for Pyomo to load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from itertools import pairwise

import numpy as np

from placegap.formulations.shared.pairs import consumers_of_tensors, edge_ends, tensor_edges
from placegap.formulations.shared.times import (
    Windows,
    granularity_ns,
    settled_windows,
    time_unit_ns,
)
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.objectives.calls.referee import simulate_subgraphs
from placegap.instances.problem import Instance, LatencySubgraphs, Plan, Schedule
from placegap.instances.problem.device_classes import identical_devices
from placegap.instances.problem.graph_index import all_by
from placegap.instances.problem.integers import UNSUPPORTED

Pair = tuple[int, int]
CallName = tuple[int, int]  # accelerator and number of a call; a host and 0 for ops of a host
NEXT_TO_NOTHING = 0.1  # so many units, of up to 1000 in a horizon, may vanish in tolerances


# --------------------------------------------------------------------------------------- index sets


@dataclass(frozen=True)
class CallSets:
    """Index sets of a model, by number."""

    instance: Instance
    #: Calls per accelerator, q.
    num_calls: int
    window: Windows
    #: (k, c)
    calls: list[Pair]
    #: producer, consumers: Producer and consumers of each tensor, every op once.
    producer: list[int]
    consumers: list[list[int]]
    #: entering, leaving: (u, k): Tensors that may enter accelerator k; that may leave it, and take
    #: time to do so.
    entering: list[Pair]
    leaving: list[Pair]

    def on(self, k: int) -> list[int]:
        """Ops that may be on a device."""
        ops: list[int] = np.flatnonzero(self.window.possible[:, k]).tolist()
        return ops


def model_unit_ns(instance: Instance, horizon_ns: int | None) -> float:
    """Nanoseconds per unit of model time; of the model without a horizon by default."""
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    return time_unit_ns(horizon, granularity_ns(instance, transfers=False))


def index_sets(
    instance: Instance, semantics: LatencySubgraphs, horizon_ns: int, *, windowed: bool = True
) -> CallSets:
    """Index sets; `windowed`: without what the horizon excludes. O(m K) per round of windows."""
    arrays = instance.arrays
    window = call_windows(instance, horizon_ns if windowed else serial_horizon_ns(instance))
    accelerators = np.flatnonzero(~arrays.is_host).tolist()
    consumers = consumers_of_tensors(instance)
    producer, may = arrays.index.tensor_producer.tolist(), window.possible
    pairs = [(u, k) for u in range(len(producer)) for k in accelerators]
    return CallSets(
        instance,
        semantics.subgraphs,
        window,
        calls=[(k, c) for k in accelerators for c in range(semantics.subgraphs)],
        producer=producer,
        consumers=consumers,
        entering=[(u, k) for u, k in pairs if may[consumers[u], k].any()],
        leaving=[(u, k) for u, k in pairs if may[producer[u], k] and arrays.host_ns[u, k]],
    )


# ----------------------------------------------------------------------------------- where and when


def serial_horizon_ns(instance: Instance) -> int:
    """An upper bound on every latency: all ops in a row, tensors out once and in per consumer."""
    arrays = instance.arrays
    ops = np.where(arrays.time_ns == UNSUPPORTED, 0, arrays.time_ns).max(axis=1).tolist()
    tensors = _host_ns(instance).max(axis=1, initial=0).tolist()
    return int(sum(ops) + sum(tensors) + sum(tensors[u] for u in arrays.index.tensor.tolist()))


def _host_ns(instance: Instance) -> Ints:
    """Time of each tensor into and out of each device, 0 on hosts."""
    return np.where(instance.arrays.is_host, 0, instance.arrays.host_ns)


def where_needed(instance: Instance) -> Flags:
    """Devices that some optimal plan may use for an op, (n, K)."""
    # Hosts are one pool: a group may be spread over them. If a host can hold all ops, no other host
    # is needed for the ops that it runs at least as fast (the first one is kept if several tie).
    arrays, roomy = instance.arrays, roomy_hosts(instance)
    possible = arrays.time_ns != UNSUPPORTED
    for i in range(instance.num_ops):
        able = [k for k in roomy if possible[i, k]]
        if able:
            best = min(able, key=lambda k: arrays.time_ns[i, k])
            slower = arrays.is_host & (arrays.time_ns[i] >= arrays.time_ns[i, best])
            slower[best] = False
            possible[i, slower] = False
    return _for_pooled_groups(instance, possible)


def roomy_hosts(instance: Instance) -> list[int]:
    """Hosts that can hold all ops."""
    arrays = instance.arrays
    room = arrays.memory_bytes >= int(arrays.resident_bytes.sum())
    roomy: list[int] = np.flatnonzero(arrays.is_host & room).tolist()
    return roomy


def slower_hosts_ns(sets: CallSets) -> dict[Pair, int]:
    """For ops i on roomy hosts k, the least time on a host that `where_needed` leaves out for k."""
    instance, found = sets.instance, dict[Pair, int]()
    is_host, time_ns = instance.arrays.is_host, instance.arrays.time_ns
    left_out = is_host & (time_ns != UNSUPPORTED) & ~where_needed(instance)
    for k in roomy_hosts(instance):
        for i in np.flatnonzero(sets.window.possible[:, k] & left_out.any(axis=1)).tolist():
            found[i, k] = int(time_ns[i, left_out[i]].min())
    return found


def _for_pooled_groups(instance: Instance, possible: Flags) -> Flags:
    """Devices possible for whole groups: one accelerator for all ops, or a host for each op."""
    group, is_host = instance.arrays.group, instance.arrays.is_host
    num_groups = instance.arrays.num_groups
    together = all_by(group, np.where(is_host, True, possible), num_groups)
    pooled = all_by(group, possible[:, is_host].any(axis=1), num_groups)
    together[~pooled] &= ~is_host
    return possible & together[group]


def call_windows(instance: Instance, horizon_ns: int) -> Windows:
    """Propagate heads, tails and the horizon until nothing changes; O(m K) per round."""
    # Along an edge the consumer is on the same device (perhaps in the same call), or pays host_time
    # out of an accelerator and into one. Heads are times before the op, tails times between its
    # being done and the end of the plan.
    host = _host_ns(instance)

    def cross(done: Ints, tensor: int, back: bool) -> Ints:  # the same in both directions
        least: Ints = np.minimum(done, (done + host[tensor]).min() + host[tensor])
        return least

    whole_groups = partial(_for_pooled_groups, instance)
    return settled_windows(instance.arrays, where_needed(instance), horizon_ns, cross, whole_groups)


def empty_edges(instance: Instance, possible: Flags, largest_ns: int) -> list[int]:
    """Edges that may form a cycle of calls without any time, in input order."""
    # Times up to `largest_ns` count as none. Both ends of such an edge take no time on devices
    # where the tensor takes none. Clocks exclude every other cycle, since some time passes on it.
    index, is_host = instance.arrays.index, instance.arrays.is_host
    idle = (np.asarray(possible) > 0) & (instance.arrays.time_ns <= largest_ns)
    if not idle[:, ~is_host].any():  # hosts alone have no cycle
        return []
    free = _host_ns(instance)[index.tensor] <= largest_ns
    ends = [(idle[op] & free).any(axis=1) for op in (index.producer, index.consumer)]
    return np.flatnonzero(ends[0] & ends[1]).tolist()


def equal_accelerators(instance: Instance) -> list[tuple[int, ...]]:
    """Classes of two or more equal accelerators."""
    is_host = instance.arrays.is_host
    return [members for members in identical_devices(instance) if not is_host[members[0]]]


# ----------------------------------------------------------------- what the variables are in a plan


@dataclass(frozen=True)
class PlanValues:
    """The values of a plan's variables in the models."""

    plan: Plan
    schedule: Schedule
    #: Device and call of each op.
    where: list[CallName]
    #: producer, consumers: Producer and consumers of each tensor.
    producer: list[int]
    consumers: list[list[int]]
    #: Start and end of all calls of accelerators, also of those without an op.
    span_ns: dict[CallName, tuple[int, int]]
    #: Time at which the call of each op has brought in its inputs and run its ops up to this one.
    done_ns: list[int]
    #: Position of each op's call, or of the op on a host, in an order in which calls wait only for
    #: earlier ones and start times do not fall.
    rank: list[int]
    #: Of all calls; those without an op come last.
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
    """The values of a feasible plan's representative (`tidy`)."""
    tidied, schedule, rank = tidy(instance, plan, semantics)
    where = list(zip(tidied.devices.tolist(), tidied.call or (), strict=True))
    index = instance.arrays.index
    of_call, count = dict(zip(where, rank, strict=True)), max(rank) + 1
    span_ns = _spans(instance, where, schedule, semantics.subgraphs)
    return PlanValues(
        tidied,
        schedule,
        where,
        index.tensor_producer.tolist(),
        consumers_of_tensors(instance),
        span_ns,
        done_ns=_done(instance, where, schedule),
        rank=rank,
        rank_call={at: of_call.get(at, count + at[1]) for at in span_ns},
    )


def tidy(
    instance: Instance, plan: Plan, semantics: LatencySubgraphs
) -> tuple[Plan, Schedule, list[int]]:
    """A feasible plan's representative in the models, its schedule, and ranks of ops."""
    # It is no slower: ops are on hosts of `where_needed`, calls are numbered without gaps, and
    # equal accelerators by the start of their first call (those without a call last).
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
    is_host = instance.arrays.is_host
    unit = [
        (k, c, i if is_host[k] else -1) for i, (k, c) in enumerate(zip(device, call, strict=True))
    ]
    waits: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {one: [] for one in unit}
    for i, j in edge_ends(instance):
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
    """Times at which ops are done: one after the other in topological order, after the inputs."""
    arrays, index = instance.arrays, instance.arrays.index
    clock = dict(zip(where, schedule.start_ns.tolist(), strict=True))
    inputs = {(u, *where[j]): None for i, j, u in tensor_edges(instance) if where[i] != where[j]}
    for u, k, c in inputs:
        clock[k, c] += int(arrays.host_ns[u, k])
    done: list[int] = schedule.end_ns.tolist()
    for i in index.topological_order.tolist():
        k = where[i][0]
        if not arrays.is_host[k]:
            clock[where[i]] += int(arrays.time_ns[i, k])
            done[i] = clock[where[i]]
    return done
