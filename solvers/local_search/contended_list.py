"""A first plan by list scheduling that books channels: where transfers queue, it sees them queue.

HEFT and its kin plan as if channels were free. Here an op goes where it would end first with its
transfers booked one behind the other on their channels, in the order of bottom levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import copy_to, kernel
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.local_search.disjunctive_graph import NONE, Machines, machines_of

WEIGHTS = (0.3, 1.0, 3.0, 10.0)
"""What a nanosecond of a transfer counts beside a nanosecond of delay; each gives a plan."""


def contended_lists(instance: Instance, semantics: Makespan) -> Iterator[Plan]:
    """Placements by list scheduling with booked channels, one for each weight of transfers.

    Ops go by their longest way to the end, with mean times and half of the mean transfers. A
    colocation group stays where its first op went, if it fits there; where nothing fits, there is
    no plan. O((n + m) K) for each.

    Examples
    --------
    >>> from placegap.instances import example
    >>> next(contended_lists(example(), Makespan())).placement
    ((0,), (0,), (0,), (0,))
    """
    arrays, machines = instance.arrays, machines_of(instance, semantics)
    k = instance.num_devices
    order = by_levels(instance, machines)
    group_bytes, group_runs = arrays.group_bytes, arrays.group_runs
    for weight in WEIGHTS if k > 1 else WEIGHTS[:1]:
        home = np.full(arrays.num_groups, NONE, np.int64)
        fits = _place(
            machines,
            order,
            arrays.group,
            group_bytes,
            group_runs,
            home,
            arrays.memory_bytes.copy(),
            int(machines.channel.max()) + 1,
            weight,
        )
        if fits:
            yield Plan(tuple((d,) for d in home[arrays.group].tolist()))


def by_levels(instance: Instance, machines: Machines) -> Ints:
    """The ops by their longest way to the end, the longest first; a topological order."""
    index, level = instance.arrays.index, levels(instance, machines)
    order = np.lexsort((index.topological_position, -level)).astype(np.int64)
    if not _is_topological(index.producer, index.consumer, order):
        order = index.topological_order  # levels of ops without times are equal
    return order


def levels(instance: Instance, machines: Machines) -> Floats:
    """The longest way from the start of each op to the end, in mean times and half of transfers."""
    arrays, k = instance.arrays, instance.num_devices
    runs = arrays.time_ns != UNSUPPORTED
    mean_ns = np.where(runs, arrays.time_ns, 0).sum(axis=1, dtype=float) / runs.sum(axis=1)
    classes = arrays.transfer_ns.shape[1]
    pairs = np.bincount(arrays.link_class[~np.eye(k, dtype=bool)], minlength=classes)
    mean_transfer_ns = arrays.transfer_ns @ pairs.astype(np.float64) / max(1, pairs.sum())
    transfer_ns = np.asarray(mean_transfer_ns, np.float64) / 2
    return _levels(arrays.index.topological_order, machines, mean_ns, transfer_ns)


def _is_topological(producer: Ints, consumer: Ints, order: Ints) -> bool:
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return bool((position[producer] < position[consumer]).all())


@kernel
def _levels(order: Ints, machines: Machines, mean_ns: Floats, transfer_ns: Floats) -> Floats:
    level = mean_ns.copy()
    for at in range(len(order) - 1, -1, -1):
        i = order[at]
        for e in machines.succ_edge[machines.succ_ptr[i] : machines.succ_ptr[i + 1]]:
            way = level[machines.consumer[e]] + transfer_ns[machines.tensor[e]] + mean_ns[i]
            level[i] = max(level[i], way)
    return level


@kernel
def _place(
    machines: Machines,
    order: Ints,
    group: Ints,
    group_bytes: Ints,
    group_runs: Flags,
    home: Ints,
    room: Ints,
    num_machines: int,
    weight: float,
) -> bool:
    """Fill in `home`, the device of each group; whether all of them fit."""
    n, k = machines.time_ns.shape
    end = np.zeros(n, np.int64)
    clock = np.zeros(max(k, num_machines), np.int64)
    trial = clock.copy()
    there = np.full((len(machines.tensor_ptr) - 1 if machines.per_tensor else 1, k), NONE, np.int64)
    # no literals as arguments: numba compiles the kernel that is called for each of them anew
    nowhere: Any = np.int64(NONE)
    trying: Any = np.bool_(False)
    booking: Any = np.bool_(True)
    for v in order:
        g, best, least = group[v], nowhere, 0.0
        for b in range(k):
            if home[g] >= 0 and home[g] != b:
                continue
            if home[g] < 0 and not (group_runs[g, b] and group_bytes[g] <= room[b]):
                continue
            copy_to(trial, clock)
            ready, sent = _arrival(machines, v, b, home, group, end, trial, there, trying)
            score = max(ready, clock[b]) + machines.time_ns[v, b] + weight * sent
            if best < 0 or score < least:
                best, least = b, score
        if best < 0:
            return False
        if home[g] < 0:
            home[g] = best
            room[best] -= group_bytes[g]
        ready, _ = _arrival(machines, v, best, home, group, end, clock, there, booking)
        end[v] = clock[best] = max(ready, clock[best]) + machines.time_ns[v, best]
    return True


@kernel(allocates=False)
def _arrival(
    machines: Machines,
    v: int,
    b: int,
    home: Ints,
    group: Ints,
    end: Ints,
    clock: Ints,
    there: Ints,
    book: bool,
) -> tuple[int, int]:
    """When all inputs of an op are on a device, and how long they are sent; clocks go on."""
    k = machines.time_ns.shape[1]
    ready, sent = np.int64(0), np.int64(0)
    for e in machines.pred_edge[machines.pred_ptr[v] : machines.pred_ptr[v + 1]]:
        u, t = machines.producer[e], machines.tensor[e]
        a, arrival = home[group[u]], end[u]
        if a != b:
            if machines.per_tensor and there[t, b] >= 0:
                arrival = there[t, b]
            else:
                duration = machines.transfer_ns[t, machines.link_class[a, b]]
                one, two = machines.channel[a * k + b, 0], machines.channel[a * k + b, 1]
                start = arrival
                for r in (one, two):
                    if r >= 0:
                        start = max(start, clock[r])
                arrival = start + duration
                for r in (one, two):
                    if r >= 0:
                        clock[r] = arrival
                sent += duration
                if machines.per_tensor and book:
                    there[t, b] = arrival
        ready = max(ready, arrival)
    return int(ready), int(sent)
