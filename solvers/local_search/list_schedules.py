"""Placements by list scheduling with booked channels: starts of searches.

HEFT and its relatives plan as if channels were free. Here an op goes where it ends first with its
transfers booked one after the other on their channels, so that their waiting counts. Where an
earlier placement is known, what its consumers there would have to be sent counts as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.graph_index import inverse
from placegap.instances.problem.mean_costs import mean_time_ns, mean_transfer_ns
from placegap.instances.problem.weighted_dag import longest_ways
from placegap.solvers.local_search.disjunctive_graph import NONE, Machines, machines_of

# Weights of a nanosecond of transfer against a nanosecond of delay; each gives a plan.
LIST_WEIGHTS = (0.3, 1.0, 3.0, 10.0)
# Of windows that are placed anew: the shortest as a share of all ops, and the limits of the weights
# of inputs' and of outputs' transfers; all are drawn by their logarithms.
LEAST_WINDOW, LEAST_WEIGHT, MOST_WEIGHT = 0.003, 0.03, 10.0
# Ops of a stretch, ops behind it that are placed with it, and lists of each stretch (layers of
# 10,000 ops: 231 ms in 3 s; with stretches of 100 ops 242 in 2 s and 234 in 12).
STRETCH, BEHIND, STRETCH_LISTS = 10, 20, 500


def contended_lists(instance: Instance, semantics: Makespan) -> Iterator[Plan]:
    """Placements by list scheduling with booked channels, one for each weight of transfers."""
    # Ops are taken by their longest path to the end, with mean times and half of the mean
    # transfers. A colocation group goes where its first op goes, and must fit there; if no device
    # fits, there is no plan. O((n + m) K) for each.
    arrays, machines = instance.arrays, machines_of(instance, semantics)
    order = by_levels(instance)
    for weight in LIST_WEIGHTS if instance.num_devices > 1 else LIST_WEIGHTS[:1]:
        booked = nothing_booked(instance, machines)
        if list_ops(machines, booked, order, weight, 0.0):
            yield Plan.on(booked.home[arrays.group].tolist())


def nothing_booked(instance: Instance, machines: Machines) -> Booked:
    """Idle devices without ops, and no earlier placement."""
    arrays = instance.arrays
    num_machines = max(instance.num_devices, int(machines.channel.max(initial=NONE)) + 1)
    tensors = len(machines.tensor_ptr) - 1 if machines.per_tensor else 0
    there = np.full((2, tensors, instance.num_devices), NONE, np.int64)
    clock, trial = np.zeros((2, num_machines), np.int64)
    home, before = np.full((2, arrays.num_groups), NONE, np.int64)
    return Booked(
        arrays.group,
        arrays.group_bytes,
        arrays.group_runs,
        home,
        before,
        arrays.memory_bytes.copy(),
        np.zeros(instance.num_ops, np.int64),
        clock,
        trial,
        there[0],
        there[1],
        np.zeros(instance.num_devices),
    )


class WindowLists:
    """Placements that differ from a known one in a window of an order, which a list places anew."""

    def __init__(self, instance: Instance, machines: Machines) -> None:
        self.arrays, self.machines = instance.arrays, machines
        self.booked = nothing_booked(instance, machines)
        self.by_levels = by_levels(instance)

    def draw(self, device: Ints, by_start: Ints, rng: np.random.Generator) -> Ints | None:
        """The devices of the ops after one list, (n,); None if a group finds no room."""
        # The order is that of the known schedule, or the one by levels, which is as often better.
        # Groups with an op in the window go where their first op ends first, and sends little to
        # consumers where these were. The others stay.
        arrays, booked, n = self.arrays, self.booked, len(by_start)
        order = by_start if rng.random() < 0.5 else self.by_levels
        length = ceil(n * LEAST_WINDOW ** rng.random())
        first = int(rng.integers(n - length + 1))
        booked.before[arrays.group] = device
        booked.home[:] = booked.before
        booked.home[arrays.group[order[first : first + length]]] = NONE
        stays = booked.home != NONE
        booked.room[:] = arrays.memory_bytes
        np.subtract.at(booked.room, booked.home[stays], arrays.group_bytes[stays])
        for times, nothing in ((booked.clock, 0), (booked.there, NONE), (booked.met, NONE)):
            times[...] = nothing
        weights = LEAST_WEIGHT * (MOST_WEIGHT / LEAST_WEIGHT) ** rng.random(2)
        fits = list_ops(self.machines, booked, order, *weights.tolist())
        return booked.home[arrays.group] if fits else None

    def roll(self, device: Ints, rng: np.random.Generator, is_over: Callable[[], bool]) -> Ints:
        """The devices of the ops after many lists of each stretch of the order by levels, (n,)."""
        # A list of a few ops costs next to nothing, however large the graph is, and what it gains
        # shows at once on the machines' clocks. If the time is over the rest stays where it is.
        arrays, booked, n = self.arrays, self.booked, len(device)
        booked.before[arrays.group] = device
        booked.home[:] = booked.before
        booked.room[:] = arrays.memory_bytes
        np.subtract.at(booked.room, booked.home, arrays.group_bytes)
        for times, nothing in ((booked.clock, 0), (booked.there, NONE), (booked.met, NONE)):
            times[...] = nothing
        kept = Settled(
            booked.clock.copy(),
            booked.there.copy(),
            booked.room.copy(),
            np.zeros(len(booked.home), np.bool_),
        )
        for first in range(0, n, STRETCH):
            if is_over():
                break
            ops = self.by_levels[first : first + STRETCH + BEHIND]
            roll_on(self.machines, booked, kept, ops, rng)
        return booked.before[arrays.group]


def by_levels(instance: Instance) -> Ints:
    """The ops by their longest way to the end, with mean times and half of mean transfers."""
    arrays, index = instance.arrays, instance.arrays.index
    edge_ns = (mean_transfer_ns(arrays) / 2)[index.tensor[index.succ_edge]]
    ways = index.succ_ptr, index.consumer[index.succ_edge], edge_ns
    level = longest_ways(index.topological_order[::-1], *ways, mean_time_ns(arrays))
    order = np.lexsort((index.topological_position, -level)).astype(np.int64)
    position = inverse(order)
    if not (position[index.producer] < position[index.consumer]).all():
        return index.topological_order  # ops without time may have equal levels
    return order


class Booked(NamedTuple):
    """Colocation groups, and what is scheduled."""

    # Where groups are (`NONE`: nowhere yet) and were before, bytes left on devices, ends of ops,
    # the clock of each machine, and when a tensor is on a device (per_tensor). The rest is scratch:
    # the clocks as they would be, the last op that met a tensor's way to a device (per_tensor), and
    # what an op's outputs cost on each device.
    group: Ints
    size_bytes: Ints
    runs: Flags
    home: Ints
    before: Ints
    room: Ints
    end: Ints
    clock: Ints
    trial: Ints
    there: Ints
    met: Ints
    ahead: Floats


class Settled(NamedTuple):
    """What stretches before have booked: `clock` and `there`, and the groups that stay for good."""

    # `room` is that of all groups, each where it is now (`before`).
    clock: Ints
    there: Ints
    room: Ints
    stays: Flags


@kernel(nogil=True, allocates=False)
def roll_on(
    machines: Machines, booked: Booked, kept: Settled, ops: Ints, rng: np.random.Generator
) -> None:
    """Place the next ops anew by many lists, and book the first `STRETCH` of them."""
    # A list places a part of the ops, and is kept if no device ends later.
    least, num_devices = np.int64(NONE), len(booked.room)
    for at in range(STRETCH_LISTS):
        _return_to(machines, booked, kept, ops)
        length = int(len(ops) ** rng.random()) if at > 0 else 0
        first = draw(rng, len(ops) - length + 1)
        for v in ops[first : first + length]:
            g = booked.group[v]
            if not kept.stays[g] and booked.home[g] >= 0:
                booked.home[g] = NONE
                booked.room[booked.before[g]] += booked.size_bytes[g]
        weight = LEAST_WEIGHT * (MOST_WEIGHT / LEAST_WEIGHT) ** rng.random()
        ahead_weight = LEAST_WEIGHT * (MOST_WEIGHT / LEAST_WEIGHT) ** rng.random()
        if not list_ops(machines, booked, ops, weight, ahead_weight):
            continue
        last = np.int64(0)
        for b in range(num_devices):
            last = max(last, booked.clock[b])
        if least < 0 or last <= least:
            least = last
            copy_to(kept.room, booked.room)
            for v in ops:
                booked.before[booked.group[v]] = booked.home[booked.group[v]]
    _return_to(machines, booked, kept, ops)
    list_ops(machines, booked, ops[:STRETCH], 1.0, 0.0)
    copy_to(kept.clock, booked.clock)
    for v in ops[:STRETCH]:
        kept.stays[booked.group[v]] = True
        for e in machines.pred_edge[machines.pred_ptr[v] : machines.pred_ptr[v + 1]]:
            for b in range(num_devices if machines.per_tensor else 0):
                t = machines.tensor[e]
                kept.there[t, b] = booked.there[t, b]


@kernel(nogil=True, allocates=False)
def _return_to(machines: Machines, booked: Booked, kept: Settled, ops: Ints) -> None:
    """Book nothing behind what is settled, and leave all groups where they are."""
    copy_to(booked.clock, kept.clock)
    copy_to(booked.room, kept.room)
    for v in ops:
        booked.home[booked.group[v]] = booked.before[booked.group[v]]
        for b in range(len(booked.room) if machines.per_tensor else 0):
            for e in machines.pred_edge[machines.pred_ptr[v] : machines.pred_ptr[v + 1]]:
                booked.there[machines.tensor[e], b] = kept.there[machines.tensor[e], b]
            for e in machines.succ_edge[machines.succ_ptr[v] : machines.succ_ptr[v + 1]]:
                booked.met[machines.tensor[e], b] = NONE


@kernel(nogil=True, allocates=False)
def list_ops(
    machines: Machines, booked: Booked, order: Ints, weight: float, ahead_weight: float
) -> bool:
    """Schedule the ops in order, each where it ends first; False if one does not fit."""
    foresees: Any = np.bool_(False)  # no literals: `schedule_op` is compiled once
    books: Any = np.bool_(True)
    for v in order:
        g = booked.group[v]
        if booked.home[g] < 0:
            best, least = NONE, 0.0
            _look_ahead(machines, booked, v)
            for b in range(len(booked.room)):
                if booked.runs[g, b] and booked.size_bytes[g] <= booked.room[b]:
                    end, sent = schedule_op(machines, booked, v, b, foresees)
                    cost = end + weight * sent + ahead_weight * booked.ahead[b]
                    if best < 0 or cost < least:
                        best, least = b, cost
            if best < 0:
                return False
            booked.home[g] = best
            booked.room[best] -= booked.size_bytes[g]
        schedule_op(machines, booked, v, booked.home[g], books)
    return True


@kernel(nogil=True, allocates=False)
def _look_ahead(machines: Machines, booked: Booked, v: int) -> None:
    """Into `ahead`: time of the transfers of an op's outputs to where its consumers were before."""
    for b in range(len(booked.ahead)):
        booked.ahead[b] = 0.0
    for e in machines.succ_edge[machines.succ_ptr[v] : machines.succ_ptr[v + 1]]:
        c, t = booked.before[booked.group[machines.consumer[e]]], machines.tensor[e]
        if c < 0 or (machines.per_tensor and booked.met[t, c] == v):
            continue
        if machines.per_tensor:
            booked.met[t, c] = v
        for b in range(len(booked.ahead)):
            if b != c:
                booked.ahead[b] += machines.transfer_ns[t, machines.link_class[b, c]]


@kernel(nogil=True, allocates=False)
def schedule_op(machines: Machines, booked: Booked, v: int, b: int, books: bool) -> tuple[int, int]:
    """The end of an op on a device, and the time of its transfers; `books` keeps it there."""
    # A trial copies the clocks that it changes to scratch; a booking changes them for good.
    k, there = machines.time_ns.shape[1], booked.there
    clock = booked.clock if books else booked.trial
    inputs = machines.pred_edge[machines.pred_ptr[v] : machines.pred_ptr[v + 1]]
    if not books:
        clock[b] = booked.clock[b]
        for e in inputs:
            pair = booked.home[booked.group[machines.producer[e]]] * k + b
            for slot in range(2):
                r = machines.channel[pair, slot]
                if r >= 0:
                    clock[r] = booked.clock[r]
    ready, all_sent = np.int64(0), np.int64(0)
    for e in inputs:
        u, t = machines.producer[e], machines.tensor[e]
        a, arrival = booked.home[booked.group[u]], booked.end[u]
        if a != b and machines.per_tensor and there[t, b] >= 0:
            arrival = there[t, b]
        elif a != b:
            one, two = machines.channel[a * k + b, 0], machines.channel[a * k + b, 1]
            sent = machines.transfer_ns[t, machines.link_class[a, b]]
            if one >= 0:
                arrival = max(arrival, clock[one])
            if two >= 0:
                arrival = max(arrival, clock[two])
            arrival += sent
            all_sent += sent
            if one >= 0:
                clock[one] = arrival
            if two >= 0:
                clock[two] = arrival
            if machines.per_tensor and books:
                there[t, b] = arrival
        ready = max(ready, arrival)
    end = max(ready, clock[b]) + machines.time_ns[v, b]
    if books:
        clock[b] = booked.end[v] = end
    return int(end), int(all_sent)
