"""The horizon of a schedule that is searched while it is built: a few ops that can still change.

They are placed by a list schedule that books channels, and then annealed: groups change devices,
ops change places, and the part of the horizon behind a change is scheduled anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.kernels import draw, kernel
from placegap.solvers.local_search.disjunctive_graph import NONE, Machines
from placegap.solvers.local_search.walk import neighbour

INDEX, OLD, NEW = 0, 1, 2
"""Columns of the log of writes."""

LONGEST_SHIFT = 8
"""Places by which one move may shift an op in the order."""


class Groups(NamedTuple):
    """Colocation groups: who is in which, what each holds, where it runs, and where it is.

    `home` is NONE until the first op of a group is reached, and `settled` once that op is;
    `room` is what is left on devices.
    """

    group: Ints
    members: Ints
    size_bytes: Ints
    runs: Flags
    home: Ints
    settled: Flags
    room: Ints


class Horizon(NamedTuple):
    """The schedule so far, and what undoes the part of it that is not settled.

    `state` holds the end of each op, then the clock of each machine, then when a tensor has come to
    a device (per_tensor). `log` has the writes of the horizon, `log_at` those before each of its
    places, and `cost` the sum of ends by then, each times the `urgency` of its op.
    """

    order: Ints
    position: Ints
    state: Ints
    log: Ints
    spare: Ints
    log_at: Ints
    cost: Floats
    urgency: Floats


@kernel(nogil=True, allocates=False)
def _write(state: Ints, log: Ints, count: int, index: int, value: int) -> int:
    log[count, INDEX], log[count, OLD], log[count, NEW] = index, state[index], value
    state[index] = value
    return count + 1


@kernel(nogil=True, allocates=False)
def schedule_op(
    machines: Machines, groups: Groups, horizon: Horizon, v: int, b: int, count: int
) -> tuple[int, int]:
    """Schedule an op on a device with its transfers; writes by then, and how long is sent."""
    n, k = machines.time_ns.shape
    state, log, home, group = horizon.state, horizon.log, groups.home, groups.group
    arrived = len(state) - (len(machines.tensor_ptr) - 1) * k
    ready, sent = np.int64(0), np.int64(0)
    for at in range(machines.pred_ptr[v], machines.pred_ptr[v + 1]):
        e = machines.pred_edge[at]
        u, t = machines.producer[e], machines.tensor[e]
        a, arrival = home[group[u]], state[u]
        if a != b:
            if machines.per_tensor and state[arrived + t * k + b] >= 0:
                ready = max(ready, state[arrived + t * k + b])
                continue
            duration = machines.transfer_ns[t, machines.link_class[a, b]]
            for slot in range(2):
                r = machines.channel[a * k + b, slot]
                if r >= 0:
                    arrival = max(arrival, state[n + r])
            arrival += duration
            for slot in range(2):
                r = machines.channel[a * k + b, slot]
                if r >= 0:
                    count = _write(state, log, count, n + r, arrival)
            sent += duration
            if machines.per_tensor:
                count = _write(state, log, count, arrived + t * k + b, arrival)
        ready = max(ready, arrival)
    end = max(ready, state[n + b]) + machines.time_ns[v, b]
    count = _write(state, log, count, n + b, end)
    return _write(state, log, count, v, end), int(sent)


@kernel(nogil=True, allocates=False)
def _copy_rows(target: Ints, source: Ints, begin: int, end: int) -> None:
    for at in range(begin, end):
        for column in range(NEW + 1):
            target[at, column] = source[at, column]


@kernel(nogil=True, allocates=False)
def _take_back(horizon: Horizon, count: int, to: int) -> None:
    for at in range(count - 1, to - 1, -1):
        horizon.state[horizon.log[at, INDEX]] = horizon.log[at, OLD]


@kernel(nogil=True, allocates=False)
def extend(
    machines: Machines,
    groups: Groups,
    horizon: Horizon,
    first: int,
    begin: int,
    end: int,
    weight: float,
) -> bool:
    """Place the ops at `begin` to `end` of the order where each ends first; whether all fit."""
    k = machines.time_ns.shape[1]
    for at in range(begin, end):
        v = horizon.order[at]
        g, best, least = groups.group[v], NONE, 0.0
        count = horizon.log_at[at - first]
        if groups.home[g] >= 0:
            best = groups.home[g]
        else:
            for b in range(k):
                if not groups.runs[g, b] or groups.size_bytes[g] > groups.room[b]:
                    continue
                groups.home[g] = b
                last, sent = schedule_op(machines, groups, horizon, v, b, count)
                score = horizon.state[v] + weight * sent
                _take_back(horizon, last, count)
                if best < 0 or score < least:
                    best, least = b, score
            groups.home[g] = best
            if best < 0:
                return False
            groups.room[best] -= groups.size_bytes[g]
        _place(machines, groups, horizon, first, at, weight)
    return True


@kernel(nogil=True, allocates=False)
def _place(
    machines: Machines, groups: Groups, horizon: Horizon, first: int, at: int, weight: float
) -> None:
    v = horizon.order[at]
    b = groups.home[groups.group[v]]
    count, sent = schedule_op(machines, groups, horizon, v, b, horizon.log_at[at - first])
    horizon.log_at[at - first + 1] = count
    added = horizon.urgency[v] * horizon.state[v] + weight * sent
    horizon.cost[at - first + 1] = horizon.cost[at - first] + added


@kernel(nogil=True)
def anneal_horizon(
    machines: Machines,
    groups: Groups,
    horizon: Horizon,
    first: int,
    last: int,
    rng: np.random.Generator,
    moves: int,
    hot: float,
    weight: float,
) -> None:
    """Search the ops at `first` to `last` of the order, and return to the best that was found."""
    k = machines.time_ns.shape[1]
    order, position, home = horizon.order, horizon.position, groups.home
    length = last - first
    old_cost = np.empty(length + 1, np.float64)
    old_at = np.empty(length + 1, np.int64)
    best_order = order[first:last].copy()
    best_home = np.empty(length, np.int64)
    for at in range(length):
        best_home[at] = home[groups.group[order[first + at]]]
    best = now = horizon.cost[length]
    for move in range(moves):
        temperature = hot * (1.0 - move / moves) ** 2
        at = first + draw(rng, length)
        v = order[at]
        g = groups.group[v]
        a, to, target = home[g], home[g], at
        changed = at
        if k > 1 and rng.random() < 0.6:
            if groups.settled[g]:
                continue
            to = _target(machines, groups, horizon, rng, v, last)
            if to == a or not groups.runs[g, to] or groups.size_bytes[g] > groups.room[to]:
                continue
            changed = at if groups.members[g] == 1 else first
        else:
            target = _shifted(machines, horizon, rng, v, at, first, last)
            if target == at:
                continue
            changed = min(at, target)
        changed -= first
        begin, count = horizon.log_at[changed], horizon.log_at[length]
        _copy_rows(horizon.spare, horizon.log, begin, count)
        for place in range(changed, length + 1):
            old_at[place], old_cost[place] = horizon.log_at[place], horizon.cost[place]
        _take_back(horizon, count, begin)
        _apply(groups, horizon, v, g, to, at, target)
        limit = now - temperature * np.log(1.0 - rng.random())
        for place in range(first + changed, last):
            _place(machines, groups, horizon, first, place, weight)
        if horizon.cost[length] <= limit:
            now = horizon.cost[length]
            if now < best:
                best = now
                for place in range(length):
                    best_order[place] = order[first + place]
                    best_home[place] = home[groups.group[order[first + place]]]
            continue
        _take_back(horizon, horizon.log_at[length], begin)
        _apply(groups, horizon, v, g, a, target, at)
        for place in range(changed, length + 1):
            horizon.log_at[place], horizon.cost[place] = old_at[place], old_cost[place]
        _copy_rows(horizon.log, horizon.spare, begin, count)
        for place in range(begin, count):
            horizon.state[horizon.log[place, INDEX]] = horizon.log[place, NEW]
    if now > best:
        all_of_it: Any = np.int64(0)  # no literal: `_take_back` is compiled once
        _take_back(horizon, horizon.log_at[length], all_of_it)
        for at in range(length):
            g = groups.group[best_order[at]]
            order[first + at] = best_order[at]
            position[best_order[at]] = first + at
            groups.room[home[g]] += groups.size_bytes[g]
            home[g] = best_home[at]
            groups.room[home[g]] -= groups.size_bytes[g]
        for at in range(first, last):
            _place(machines, groups, horizon, first, at, weight)


@kernel(nogil=True, allocates=False)
def settle(groups: Groups, horizon: Horizon, first: int, last: int, count: int) -> None:
    """Settle `count` ops from `first` on; the rest of those before `last` can still change."""
    log, log_at, cost = horizon.log, horizon.log_at, horizon.cost
    for v in horizon.order[first : first + count]:
        groups.settled[groups.group[v]] = True
    left = last - first - count
    begin, end = log_at[count], log_at[last - first]
    for at in range(begin, end):
        for column in range(NEW + 1):
            log[at - begin, column] = log[at, column]
    before = cost[count]
    for at in range(left + 1):
        log_at[at] = log_at[at + count] - begin
        cost[at] = cost[at + count] - before


@kernel(nogil=True, allocates=False)
def _target(
    machines: Machines,
    groups: Groups,
    horizon: Horizon,
    rng: np.random.Generator,
    v: int,
    last: int,
) -> int:
    """A device for an op: that of a neighbour, or any."""
    k = machines.time_ns.shape[1]
    u = neighbour(machines, rng, v, 0.5)
    if u >= 0 and horizon.position[u] < last:
        return int(groups.home[groups.group[u]])
    return draw(rng, k)


@kernel(nogil=True, allocates=False)
def _shifted(
    machines: Machines,
    horizon: Horizon,
    rng: np.random.Generator,
    v: int,
    at: int,
    first: int,
    last: int,
) -> int:
    """Another place for an op in the order, between what it waits for and what waits for it."""
    by = 1 + draw(rng, LONGEST_SHIFT)
    if rng.random() < 0.5:
        low = max(first, at - by)
        for e in machines.pred_edge[machines.pred_ptr[v] : machines.pred_ptr[v + 1]]:
            low = max(low, horizon.position[machines.producer[e]] + 1)
        return int(low)
    high = min(last - 1, at + by)
    for e in machines.succ_edge[machines.succ_ptr[v] : machines.succ_ptr[v + 1]]:
        high = min(high, horizon.position[machines.consumer[e]] - 1)
    return int(high)


@kernel(nogil=True, allocates=False)
def _apply(groups: Groups, horizon: Horizon, v: int, g: int, to: int, at: int, target: int) -> None:
    """Put an op from place `at` to `target`, and its group on a device."""
    order, position = horizon.order, horizon.position
    step = 1 if target > at else -1
    for place in range(at, target, step):
        order[place] = order[place + step]
        position[order[place]] = place
    order[target] = v
    position[v] = target
    if groups.home[g] != to:
        groups.room[groups.home[g]] += groups.size_bytes[g]
        groups.room[to] -= groups.size_bytes[g]
        groups.home[g] = to
