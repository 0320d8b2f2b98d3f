"""The walk from schedule to schedule: which moves are tried, and which are kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import copy_to, draw, kernel
from placegap.solvers.local_search.disjunctive_graph import (
    AFTER,
    DURATION,
    LABEL,
    MACHINE,
    PREV,
    START,
    TAIL,
    Machines,
    Orders,
    carrier,
    ends_of,
    note_hints,
)
from placegap.solvers.local_search.peak_memory import Peak, schedule_fits
from placegap.solvers.local_search.schedule_changes import (
    forget,
    move_along,
    move_op,
    propagate,
    propagate_tails,
    undo,
)
from placegap.solvers.local_search.walk import (
    Rooms,
    ScheduleWindow,
    admitted,
    choose,
    exchanged,
    target,
)

MOST_MISFITS = 16
"""Schedules in a row that would be the best, but overfill memory at its peak: then it goes back."""

MOST_TOGETHER = 4096
"""Ops that one move takes along, those colocated included."""

LOAD_WEIGHT = 0.1
"""What a nanosecond of work or transfer that a move adds counts, spread over all devices, where
the makespan stays: so ways that nobody waits for are kept short, too."""


class Trace(NamedTuple):
    """Where a walk is: ``value`` is (makespan now, least), ``best_...`` the state of the least."""

    value: Ints
    chosen: Ints
    origin: Ints
    best_item: Ints
    best_ends: Ints
    best_device: Ints
    best_held: Ints


@kernel(nogil=True, allocates=False)
def makespan_of(orders: Orders, window: ScheduleWindow, k: int) -> int:
    """The makespan, if nothing behind the window is done in another order."""
    item, last = orders.item, orders.item[window.end, LABEL]
    most = np.int64(0)
    for r in range(k):
        x = orders.ends[r, 1]
        if x >= 0 and item[x, LABEL] < last:
            most = max(most, item[x, START] + item[x, DURATION])
    for at in range(1, window.exits[0] + 1):
        x = window.exits[at]
        if item[x, MACHINE] >= 0:
            most = max(most, item[x, START] + item[x, TAIL])
    return int(most)


@kernel(nogil=True, allocates=False)
def find_exits(machines: Machines, orders: Orders, end: int, exits: Ints) -> bool:
    """The items from `end` on that wait for one before it; whether all of them could be noted."""
    item, device = orders.item, orders.device
    n = len(device)
    border, x = item[end, LABEL], end
    exits[0] = 0
    while x != machines.num_items + 1:
        waits = False
        for slot in range(2):
            p = item[x, PREV + slot]
            waits = waits or (p >= 0 and item[p, LABEL] < border)
        if x >= n:
            waits = waits or item[ends_of(machines, device, x)[0], LABEL] < border
        else:
            for at in range(machines.pred_ptr[x], machines.pred_ptr[x + 1]):
                e = machines.pred_edge[at]
                u = machines.producer[e]
                if device[u] != device[x] and not machines.free:
                    u = carrier(machines, e, device[x])
                waits = waits or item[u, LABEL] < border
        if waits:
            if exits[0] + 1 == len(exits):
                exits[0] = 0
                return False
            exits[0] += 1
            exits[exits[0]] = x
        x = item[x, AFTER]
    return True


@kernel(nogil=True, allocates=False)
def _copy_table(target: Ints, source: Ints) -> None:
    rows, columns = source.shape
    for row in range(rows):
        for column in range(columns):
            target[row, column] = source[row, column]


@kernel(nogil=True, allocates=False)
def save(orders: Orders, rooms: Rooms, trace: Trace) -> None:
    """Remember the current state as the best."""
    _copy_table(trace.best_item, orders.item)
    _copy_table(trace.best_ends, orders.ends)
    copy_to(trace.best_device, orders.device)
    copy_to(trace.best_held, rooms.held_bytes)


@kernel(nogil=True, allocates=False)
def restore(orders: Orders, rooms: Rooms, trace: Trace) -> None:
    """Go back to the best state."""
    _copy_table(orders.item, trace.best_item)
    _copy_table(orders.ends, trace.best_ends)
    copy_to(orders.device, trace.best_device)
    copy_to(rooms.held_bytes, trace.best_held)
    note_hints(orders)
    forget(orders)


@kernel(nogil=True, allocates=False)
def anneal(
    machines: Machines,
    orders: Orders,
    rooms: Rooms,
    window: ScheduleWindow,
    trace: Trace,
    peak: Peak,
    rng: np.random.Generator,
    done: int,
    steps: int,
    total: int,
    hot_ns: float,
    cold_ns: float,
    saved: bool,
    saves: bool,
) -> bool:
    """Try moves number `done` to `done + steps` of `total`, cooling from `hot_ns` to `cold_ns`.

    Whether the best state is saved; else it is the current one. Where it `saves` nothing, the
    least value stays as it is. In between, schedules may overfill memory at its peak.
    """
    misfits = 0
    k = machines.time_ns.shape[1]
    value, device, item = trace.value, orders.device, orders.item
    for step in range(done, done + steps):
        temperature = 0.0
        if hot_ns > 0:
            temperature = hot_ns * (cold_ns / hot_ns) ** (step / total)
        forget(orders)
        count, added = 0, np.int64(0)
        v = int(window.ops[draw(rng, len(window.ops))])
        if rng.random() < 0.5:  # of two, the op on the longer way
            other = int(window.ops[draw(rng, len(window.ops))])
            if item[other, START] + item[other, TAIL] > item[v, START] + item[v, TAIL]:
                v = other
        reorder = rng.random() < 0.3 or k == 1
        if reorder:
            if not _reorder(machines, orders, window, rng, v):
                continue
        else:
            count = choose(machines, orders, window, trace.chosen, rng, v)
            to, origin = target(machines, orders, rng, v, k), device[v]
            there = admitted(machines, orders, rooms, window, trace.chosen, 0, count, to)
            count = exchanged(machines, orders, rooms, window, trace.chosen, rng, there, to)
            if count == 0:
                continue
            early = rng.random()
            for at in range(count):
                x = int(trace.chosen[at])
                added -= _load(machines, orders, x)
                trace.origin[at] = device[x]
                move_op(machines, orders, x, to if at < there else origin, early)
                added += _load(machines, orders, x)
        allowed = value[0] - temperature * np.log(1.0 - rng.random())
        allowed -= LOAD_WEIGHT * added / k
        if hot_ns <= 0:
            allowed = min(allowed, np.float64(value[0]))
        kept = propagate(machines, orders, window.begin, window.end, int(allowed), window.exits)
        after = makespan_of(orders, window, k) if kept else np.int64(0)
        if not kept or after > allowed:
            undo(orders)
            continue
        is_best = saves and after < value[1]
        if is_best and peak.at_peak and not schedule_fits(machines, orders, peak):
            undo(orders)
            misfits += 1
            if misfits >= MOST_MISFITS and saved:
                restore(orders, rooms, trace)
                value[0], misfits = value[1], 0
            continue
        leaves = after > value[0] or (peak.at_peak and after == value[0])
        if leaves and saves and not saved:  # the state before is the best: this move must wait
            undo(orders)
            save(orders, rooms, trace)
            saved = True
            continue
        for at in range(count):
            x = trace.chosen[at]
            rooms.held_bytes[trace.origin[at]] -= rooms.size_bytes[x]
            rooms.held_bytes[device[x]] += rooms.size_bytes[x]
        propagate_tails(machines, orders, window.begin)
        value[0] = after
        if is_best:
            value[1] = after
            saved, misfits = False, 0
    forget(orders)
    return saved


@kernel(nogil=True, allocates=False)
def _reorder(
    machines: Machines, orders: Orders, window: ScheduleWindow, rng: np.random.Generator, v: int
) -> bool:
    """An op, or a transfer to or from it, changes places with neighbours; whether anything did."""
    item, device = orders.item, orders.device
    x, slot = v, 0
    if not machines.free and rng.random() < 0.6:
        inputs = machines.pred_ptr[v + 1] - machines.pred_ptr[v]
        degree = inputs + machines.succ_ptr[v + 1] - machines.succ_ptr[v]
        if degree > 0:
            at = draw(rng, degree)
            if at < inputs:
                e = machines.pred_edge[machines.pred_ptr[v] + at]
            else:
                e = machines.succ_edge[machines.succ_ptr[v] + at - inputs]
            a, b = device[machines.producer[e]], device[machines.consumer[e]]
            if a != b:
                x = carrier(machines, e, b)
                slot = draw(rng, 2) if item[x, MACHINE + 1] >= 0 else 0
    if item[x, LABEL] >= item[window.end, LABEL]:
        return False
    steps = 1 + draw(rng, 1 << draw(rng, 4))
    return move_along(machines, orders, x, slot, steps, rng.random() >= 0.5)


@kernel(nogil=True, allocates=False)
def _load(machines: Machines, orders: Orders, v: int) -> int:
    """Time of an op where it is and of the transfers at its edges."""
    device = orders.device
    b = device[v]
    load = machines.time_ns[v, b]
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        a = device[machines.producer[e]]
        load += machines.transfer_ns[machines.tensor[e], machines.link_class[a, b]]
    for at in range(machines.succ_ptr[v], machines.succ_ptr[v + 1]):
        e = machines.succ_edge[at]
        a = device[machines.consumer[e]]
        load += machines.transfer_ns[machines.tensor[e], machines.link_class[b, a]]
    return int(load)
