"""Which ops a move of the walk takes along, where to, and what makes room for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import draw, kernel
from placegap.solvers.local_search.disjunctive_graph import (
    LABEL,
    MOST_TOUCHED,
    NEXT,
    NONE,
    PREV,
    Machines,
    Orders,
)
from placegap.solvers.local_search.schedule_changes import last_before

LARGEST_SET = 64
"""Ops that are chosen for one move, beside those that they are colocated with."""

EXCHANGE_SHARE, EXCHANGE_DRAWS, EXCHANGE_STEPS = 0.1, 12, 4
"""Of moves for which there is no room; ops that are looked at to make room, one after the other,
and fewer than so many steps apart."""


class Rooms(NamedTuple):
    """What may move together and where it fits: colocation groups and memory.

    `held_bytes` (K,) is what devices hold now.
    """

    group: Ints
    member_ptr: Ints
    member: Ints
    size_bytes: Ints
    memory_bytes: Ints
    held_bytes: Ints


class ScheduleWindow(NamedTuple):
    """A part of a schedule that is searched while the rest waits.

    Its `ops` lie between the items `begin` and `end`. `exits` are the items behind that wait for
    something before `end`, their number first.
    """

    ops: Ints
    begin: int
    end: int
    exits: Ints


@kernel(nogil=True, allocates=False)
def choose(
    machines: Machines,
    orders: Orders,
    window: ScheduleWindow,
    chosen: Ints,
    rng: np.random.Generator,
    v: int,
) -> int:
    """An op, alone or with others around it on its device, breadth first; how many."""
    item, device = orders.item, orders.device
    chosen[0] = v
    if rng.random() < 0.5:
        return 1
    most = 2 + draw(rng, (2 << draw(rng, 5)) - 1)
    low, high = item[window.begin, LABEL], item[window.end, LABEL]
    backward, count, at = rng.random() < 0.7, 1, 0
    while at < count < most:
        i = chosen[at]
        at += 1
        for side in range(2 if backward else 1):
            first, last = machines.succ_ptr[i], machines.succ_ptr[i + 1]
            if side == 1:
                first, last = machines.pred_ptr[i], machines.pred_ptr[i + 1]
            if last - first > LARGEST_SET:  # a part of many neighbours, elsewhere each time
                first += draw(rng, last - first - LARGEST_SET)
                last = first + LARGEST_SET
            for j in range(first, last):
                w = (
                    machines.consumer[machines.succ_edge[j]]
                    if side == 0
                    else (machines.producer[machines.pred_edge[j]])
                )
                if device[w] != device[v] or not low < item[w, LABEL] < high:
                    continue
                known = False
                for c in range(count):
                    known = known or chosen[c] == w
                if not known and count < most and count < LARGEST_SET:
                    chosen[count] = w
                    count += 1
    return count


@kernel(nogil=True, allocates=False)
def target(machines: Machines, orders: Orders, rng: np.random.Generator, v: int, k: int) -> int:
    """A device for an op: often that of a neighbour."""
    u = neighbour(machines, rng, v, 0.6)
    return draw(rng, k) if u < 0 else int(orders.device[u])


@kernel(nogil=True, allocates=False)
def neighbour(machines: Machines, rng: np.random.Generator, v: int, share: float) -> int:
    """An op that another one reads from or feeds, in a share of all calls; else NONE."""
    inputs, degree = machines.pred_ptr[v + 1] - machines.pred_ptr[v], _degree(machines, v)
    if degree == 0 or rng.random() >= share:
        return NONE
    at = draw(rng, degree)
    if at < inputs:
        return int(machines.producer[machines.pred_edge[machines.pred_ptr[v] + at]])
    return int(machines.consumer[machines.succ_edge[machines.succ_ptr[v] + at - inputs]])


@kernel(nogil=True, allocates=False)
def _degree(machines: Machines, v: int) -> int:
    inputs = machines.pred_ptr[v + 1] - machines.pred_ptr[v]
    return int(inputs + machines.succ_ptr[v + 1] - machines.succ_ptr[v])


@kernel(nogil=True, allocates=False)
def admitted(
    machines: Machines,
    orders: Orders,
    rooms: Rooms,
    window: ScheduleWindow,
    chosen: Ints,
    begin: int,
    end: int,
    to: int,
) -> int:
    """Complete the ops chosen from `begin` to `end` by those colocated with them, in the order of
    all; the end of those that move to a device. It is `begin` where one cannot run there, or is
    outside the window.
    """
    item, device = orders.item, orders.device
    low, high = item[window.begin, LABEL], item[window.end, LABEL]
    total, touched = end, 0
    for at in range(begin, end):
        g = rooms.group[chosen[at]]
        first, last = rooms.member_ptr[g], rooms.member_ptr[g + 1]
        if last - first == 1:
            continue
        for j in range(first, last):
            w = rooms.member[j]
            known = False
            for c in range(begin, total):
                known = known or chosen[c] == w
            if not known:
                if total == len(chosen):
                    return begin
                chosen[total] = w
                total += 1
    moved = begin
    for at in range(begin, total):
        x = chosen[at]
        if device[x] == to:
            continue
        if machines.time_ns[x, to] == UNSUPPORTED or not low < item[x, LABEL] < high:
            return begin
        touched += _degree(machines, x)
        place = moved
        while place > begin and item[chosen[place - 1], LABEL] > item[x, LABEL]:
            chosen[place] = chosen[place - 1]
            place -= 1
        chosen[place] = x
        moved += 1
    return begin if touched > MOST_TOUCHED else moved


@kernel(nogil=True, allocates=False)
def exchanged(
    machines: Machines,
    orders: Orders,
    rooms: Rooms,
    window: ScheduleWindow,
    chosen: Ints,
    rng: np.random.Generator,
    count: int,
    to: int,
) -> int:
    """How many of the chosen ops move, with others behind them that make room; 0 if there is none.

    Those others, which the device does a little sooner or later, go where the first ones come from.
    """
    if count == 0:
        return 0
    origin, total = orders.device[chosen[0]], count
    size, freed, touched = np.int64(0), np.int64(0), np.int64(0)
    for at in range(count):
        size += rooms.size_bytes[chosen[at]]
        touched += _degree(machines, chosen[at])
    lacking = rooms.held_bytes[to] + size - rooms.memory_bytes[to]
    if size == 0 or lacking <= 0:
        return count
    if rng.random() >= EXCHANGE_SHARE:
        return 0
    w, side = last_before(orders, to, int(chosen[0])), NEXT if rng.random() < 0.5 else PREV
    for _ in range(EXCHANGE_DRAWS):
        for _ in range(draw(rng, EXCHANGE_STEPS)):
            if w >= 0:
                w = orders.item[w, side]
        if w < 0:
            return 0
        if rooms.size_bytes[w] == 0 or total == len(chosen):
            continue
        known = False
        for c in range(count, total):
            known = known or rooms.group[chosen[c]] == rooms.group[w]
        if known:
            continue
        chosen[total] = w
        more = admitted(machines, orders, rooms, window, chosen, total, total + 1, origin)
        for at in range(total, more):
            freed += rooms.size_bytes[chosen[at]]
            touched += _degree(machines, chosen[at])
        if touched > MOST_TOUCHED:  # what `undo` notes has so much room for all of the move
            return 0
        total = more
        if freed >= lacking:
            free = rooms.memory_bytes[origin] - rooms.held_bytes[origin] + size
            return total if freed <= free else 0
    return 0
