"""The walk from schedule to schedule: which items move, where to, and which moves are kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.local_search.cooling import CoolingSteps, limit_of
from placegap.solvers.local_search.disjunctive_graph import (
    AFTER,
    DURATION,
    LABEL,
    MACHINE,
    MOST_TOUCHED,
    NEXT,
    NONE,
    PREV,
    START,
    TAIL,
    Machines,
    Orders,
    carrier,
    ends_of,
    note_hints,
    start_of,
)
from placegap.solvers.local_search.peak_memory import Peak, schedule_fits
from placegap.solvers.local_search.schedule_changes import (
    forget,
    last_before,
    move_along,
    move_op,
    propagate,
    propagate_tails,
    undo,
)

LARGEST_SET = 64  # most ops chosen for one move, without those colocated with them
# Share of the moves without room that are tried as an exchange; number of ops tried to make room,
# and largest distance between one and the next, in steps.
EXCHANGE_SHARE, EXCHANGE_DRAWS, EXCHANGE_STEPS = 0.1, 12, 4
# After this many schedules in a row that would be the best but overfill memory at its peak, the
# walk returns to the best one.
MOST_MISFITS = 16
MOST_TOGETHER = 4096  # most ops that one move takes along, those colocated included
# Weight of a nanosecond of work or transfer that a move adds, spread over all devices, beside the
# makespan: so paths that delay nothing are kept short, too.
LOAD_WEIGHT = 0.1


class Rooms(NamedTuple):
    """Colocation groups, which move together, and memory."""

    # `held_bytes` (K,) is what devices hold now.
    group: Ints
    member_ptr: Ints
    member: Ints
    size_bytes: Ints
    memory_bytes: Ints
    held_bytes: Ints


class ScheduleWindow(NamedTuple):
    """A part of a schedule that is searched while the rest stays as it is."""

    # Its `ops` lie between the items `begin` and `end`. `exits` are the items behind that wait for
    # an item before `end`, with their number first. For a part only the first state is saved
    # (`Search.enter`), no better ones.
    ops: Ints
    begin: int
    end: int
    exits: Ints
    is_part: bool


class Trace(NamedTuple):
    """State of a walk: ``value`` is (current makespan, least), ``best_...`` are of the least."""

    # `saved` (1,) says whether that state is saved; otherwise it is the current one.
    value: Ints
    saved: Flags
    chosen: Ints
    origin: Ints
    best_item: Ints
    best_ends: Ints
    best_device: Ints
    best_held: Ints


@kernel(nogil=True, allocates=False)
def walk_on(
    machines: Machines,
    orders: Orders,
    rooms: Rooms,
    window: ScheduleWindow,
    trace: Trace,
    peak: Peak,
    rng: np.random.Generator,
    steps: CoolingSteps,
) -> None:
    """Try some moves of a cooling; only best schedules must fit memory at its peak."""
    # A move changes the schedule in place; starts are recomputed as far as they change, up to a
    # limit on the makespan that Metropolis's rule draws beforehand. If the limit is exceeded all
    # changes are undone, otherwise tails follow.
    misfits, saves, num_exits = 0, not window.is_part, window.exits[0]
    k = machines.time_ns.shape[1]
    value, saved, device, item = trace.value, trace.saved, orders.device, orders.item
    for step in range(steps.done, steps.done + steps.moves):
        forget(orders)
        window.exits[0] = num_exits  # without those that a move had which was undone
        count, added = 0, np.int64(0)
        v = int(window.ops[draw(rng, len(window.ops))])
        if rng.random() < 0.5:  # of two ops, the one on the longer path
            other = int(window.ops[draw(rng, len(window.ops))])
            if item[other, START] + item[other, TAIL] > item[v, START] + item[v, TAIL]:
                v = other
        reorder = rng.random() < 0.3 or k == 1
        if reorder:
            if not _reorder(machines, orders, window, rng, v):
                continue
        else:
            count = choose(machines, orders, window, trace.chosen, rng, v)
            # Six moves of ten go to the device of an op that v reads from or feeds: transfers
            # vanish.
            near, origin = neighbour(machines, rng, v, 0.6), device[v]
            to = draw(rng, k) if near < 0 else int(device[near])
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
        allowed = limit_of(float(value[0]), steps, step, rng) - LOAD_WEIGHT * added / k
        if steps.hot <= 0:
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
            if misfits >= MOST_MISFITS and saved[0]:
                restore(orders, rooms, trace)
                value[0], misfits = value[1], 0
            continue
        leaves = after > value[0] or (peak.at_peak and after == value[0])
        # The best state is saved only when a move leaves it, which spares most copies: the move is
        # undone, the state saved, and the walk goes on with another move.
        if leaves and saves and not saved[0]:
            undo(orders)
            save(orders, rooms, trace)
            continue
        for at in range(count):
            x = trace.chosen[at]
            rooms.held_bytes[trace.origin[at]] -= rooms.size_bytes[x]
            rooms.held_bytes[device[x]] += rooms.size_bytes[x]
        propagate_tails(machines, orders, window.begin)
        if window.is_part:  # tails of exits may have become shorter: a transfer behind them is gone
            after = makespan_of(orders, window, k)
        value[0], num_exits = after, window.exits[0]
        if is_best:
            value[1] = after
            saved[0], misfits = False, 0
    forget(orders)
    window.exits[0] = num_exits


@kernel(nogil=True, allocates=False)
def choose(
    machines: Machines,
    orders: Orders,
    window: ScheduleWindow,
    chosen: Ints,
    rng: np.random.Generator,
    v: int,
) -> int:
    """Choose an op, alone or with others around it on its device, breadth first; their number."""
    item, device = orders.item, orders.device
    # Ops around v share tensors with it: moved alone, v would often pay transfers for both ends.
    # Consumers are always followed, producers mostly.
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
            if last - first > LARGEST_SET:  # a random part of many neighbours
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
def neighbour(machines: Machines, rng: np.random.Generator, v: int, share: float) -> int:
    """A random op that v reads from or feeds, in a share of all calls; else NONE."""
    inputs, degree = machines.pred_ptr[v + 1] - machines.pred_ptr[v], _degree(machines, v)
    if degree == 0 or rng.random() >= share:
        return NONE
    at = draw(rng, degree)
    if at < inputs:
        return int(machines.producer[machines.pred_edge[machines.pred_ptr[v] + at]])
    return int(machines.consumer[machines.succ_edge[machines.succ_ptr[v] + at - inputs]])


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
    """Complete the ops chosen from `begin` to `end` by those colocated with them."""
    # It returns the end of those that move to a device, `begin` if one cannot run there or is
    # outside the window.
    # Ops that are there already drop out. The others are sorted by label, so that `move_op` places
    # producers before their consumers. Moves of too many edges are refused: the arrays for `undo`
    # have a fixed size.
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
    """How many ops move: those chosen, and others after them that make room; 0 without room."""
    if count == 0:
        return 0
    # With full memory ops can only be exchanged. The others are found near the place that the
    # first one takes on the target device, and go to the device that the chosen ones leave.
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
        if touched > MOST_TOUCHED:  # too many changes for the arrays of `undo`
            return 0
        total = more
        if freed >= lacking:
            free = rooms.memory_bytes[origin] - rooms.held_bytes[origin] + size
            return total if freed <= free else 0
    return 0


@kernel(nogil=True, allocates=False)
def _degree(machines: Machines, v: int) -> int:
    inputs = machines.pred_ptr[v + 1] - machines.pred_ptr[v]
    return int(inputs + machines.succ_ptr[v + 1] - machines.succ_ptr[v])


@kernel(nogil=True, allocates=False)
def _reorder(
    machines: Machines, orders: Orders, window: ScheduleWindow, rng: np.random.Generator, v: int
) -> bool:
    """Move an op, or a transfer of it, along its machine's order; False if nothing moved."""
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
    """Time of an op on its device and of the transfers at its edges."""
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


@kernel(nogil=True, allocates=False)
def makespan_of(orders: Orders, window: ScheduleWindow, k: int) -> int:
    """The makespan, if all orders behind the window stay."""
    # Behind the window tails are up to date, so the path through an exit is start + tail. Within
    # it, the last item of each machine counts by its end.
    item, last = orders.item, orders.item[window.end, LABEL]
    most = np.int64(0)
    for r in range(k):
        x = orders.ends[r, 1]
        if x >= 0 and item[x, LABEL] < last:
            most = max(most, item[x, START] + item[x, DURATION])
    for at in range(1, window.exits[0] + 1):
        x = window.exits[at]
        if item[x, MACHINE] >= 0 and item[x, LABEL] >= last:  # not moved into the window
            most = max(most, item[x, START] + item[x, TAIL])
    return int(most)


@kernel(nogil=True, allocates=False)
def find_exits(machines: Machines, orders: Orders, end: int, exits: Ints) -> bool:
    """Note the items from `end` on that wait for one before it; False if there are too many."""
    # Their starts become those of `propagate`, by items before the border alone.
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
    for at in range(1, exits[0] + 1):
        item[exits[at], START] = start_of(machines, orders, exits[at], border)
    return True


@kernel(nogil=True, allocates=False)
def save(orders: Orders, rooms: Rooms, trace: Trace) -> None:
    """Save the current state as the best."""
    trace.saved[0] = True
    copy_rows(trace.best_item, orders.item, 0, len(orders.item))
    copy_rows(trace.best_ends, orders.ends, 0, len(orders.ends))
    copy_to(trace.best_device, orders.device)
    copy_to(trace.best_held, rooms.held_bytes)


@kernel(nogil=True, allocates=False)
def restore(orders: Orders, rooms: Rooms, trace: Trace) -> None:
    """Return to the best state."""
    copy_rows(orders.item, trace.best_item, 0, len(trace.best_item))
    copy_rows(orders.ends, trace.best_ends, 0, len(trace.best_ends))
    copy_to(orders.device, trace.best_device)
    copy_to(rooms.held_bytes, trace.best_held)
    note_hints(orders)
    forget(orders)


@kernel(nogil=True, allocates=False)
def copy_rows(target: Ints, source: Ints, begin: int, end: int) -> None:
    """Copy some rows of a table to the same place of another one."""
    for row in range(begin, end):
        for column in range(target.shape[1]):
            target[row, column] = source[row, column]
