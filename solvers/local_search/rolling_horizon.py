"""Plans by list scheduling that books channels, and plans that are searched while they are built.

HEFT and its kin plan as if channels were free. Here an op goes where it ends first with its
transfers booked one behind the other on their channels, so that it sees them queue.
`contended_lists` does only that. `rolling_plan` lists some ops ahead, the horizon, and anneals it:
groups change devices, ops change places, and the part of the horizon behind a change is scheduled
anew. Its first half is settled, and the horizon rolls on. The work per op stays the same at any
size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import draw, kernel
from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.weighted_dag import longest_ways
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.evaluate import feasible_ns
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Start
from placegap.solvers.local_search.cooling import limit_of
from placegap.solvers.local_search.disjunctive_graph import NONE, Machines, machines_of
from placegap.solvers.local_search.walk import copy_rows, neighbour

LIST_WEIGHTS = (0.3, 1.0, 3.0, 10.0)
"""What a nanosecond of a transfer counts beside a nanosecond of delay; each gives a plan."""

INDEX, OLD, NEW = 0, 1, 2
"""Columns of the log of writes."""

LONGEST_SHIFT = 8
"""Places by which one move may shift an op in the order."""

LENGTH, MOVES_PER_OP, HOT = 64, 50, 0.05
"""Ops of the horizon, moves for each of its ops without a deadline, and the temperature at which
its search begins, in mean times of an op for each op of the horizon."""

FIRST_MOVES, MOST_MOVES = 100, 20_000
"""Where there is a deadline: moves of the first horizon, and for each op of any horizon at most."""

LEAST_URGENCY = 0.4
"""What the end of an op counts that nothing waits for: it may fill a gap later on. An op with the
longest way to the end counts 1."""

WEIGHTS = (1.0, 3.0)
"""What a transfer counts, for one search after another."""

FREE_WEIGHTS = (0.0, 0.1)
"""The same where transfers do not queue."""

ROUNDS = ((0.1, LENGTH // 2), (0.4, LENGTH), (1.0, 2 * LENGTH))
"""By which share of the time each round of `rolling_plans` ends, and how long its horizon is."""

HASTY_ROUNDS = ((10.0, ((0.3, LENGTH // 2), (1.0, LENGTH))), (1.0, ((1.0, LENGTH // 2),)))
"""The rounds where there are fewer milliseconds for each op: few moves want a short horizon."""

SETTLED = 2
"""One part in this number of a horizon is settled before it rolls on."""


def contended_lists(instance: Instance, semantics: Makespan) -> Iterator[Plan]:
    """Placements by list scheduling with booked channels, one for each weight of transfers.

    Ops go by their longest way to the end, with mean times and half of the mean transfers. A
    colocation group stays where its first op went, if it fits there; where nothing fits, there is
    no plan. O((n + m) K) for each.
    """
    machines = machines_of(instance, semantics)
    order, n = by_levels(instance, machines), instance.num_ops
    for weight in LIST_WEIGHTS if instance.num_devices > 1 else LIST_WEIGHTS[:1]:
        groups, horizon = _empty(instance, machines, order, LENGTH, weight)
        for first in range(0, n, LENGTH):
            last = min(n, first + LENGTH)
            if not extend(machines, groups, horizon, first, first, last):
                break
            settle(groups, horizon, first, last, last - first)
        else:
            yield Plan.on(groups.home[instance.arrays.group].tolist())


def rolling_plans(
    instance: Instance,
    semantics: Makespan,
    start: Start,
    *,
    deadline: float | None = None,
    seed: int = 0,
    workers: int = 1,
) -> Iterator[Start]:
    """Plans by `rolling_plan` that are better than a start, side by side in threads.

    In every other search of a round the ops go as the best plan known by then starts them, else
    those with the longest ways to the end first. Of each plan the referee judges two: with its own
    orders, and by the placement alone. Rounds get longer, and one that finds nothing is the last.
    """
    rounds = _rounds(instance, deadline)
    weights = WEIGHTS if semantics.channels != "free" else FREE_WEIGHTS
    best, hurry, began = start, Event(), now_s()

    def run(number: int, worker: int, known: Ints) -> Start | None:
        share, length = rounds[number]
        order = None if worker % 2 else known
        until = None if deadline is None else began + share * (deadline - began)
        return rolling_plan(
            instance,
            semantics,
            stop=Stop(until, hurry),
            length=length,
            order=order,
            weight=weights[(worker + number) % len(weights)],
            seed=[seed, number, worker],
        )

    with ThreadPoolExecutor(workers) as pool:
        try:
            for number in range(len(rounds)):
                order, before_ns = order_of(instance, semantics, best.plan), best.value_ns
                runs = pool.map(run, [number] * workers, range(workers), [order] * workers)
                for found in list(runs):
                    for plan in () if found is None else (found.plan, Plan(found.plan.placement)):
                        value_ns = feasible_ns(instance, plan, semantics)
                        if value_ns is not None and value_ns < best.value_ns:
                            best = Start(plan, value_ns)
                            yield best
                if best.value_ns == before_ns:
                    break
        finally:
            hurry.set()


def _rounds(instance: Instance, deadline: float | None) -> tuple[tuple[float, int], ...]:
    """The rounds that the time suffices for."""
    rounds: tuple[tuple[float, int], ...] = ROUNDS
    if deadline is not None:
        ms_per_op = 1e3 * (deadline - now_s()) / instance.num_ops
        for less_ms, hasty in HASTY_ROUNDS:
            if ms_per_op < less_ms:
                rounds = hasty
    return rounds


class Stop(NamedTuple):
    """A deadline by `clock.now_s`, for which moves are made fewer or more; and an event, after
    which the rest is listed without a search.
    """

    deadline: float | None = None
    hurry: Event | None = None


def rolling_plan(
    instance: Instance,
    semantics: Makespan,
    *,
    stop: Stop | None = None,
    moves_per_op: int = MOVES_PER_OP,
    length: int = LENGTH,
    weight: float = 1.0,
    seed: Sequence[int] = (0,),
    order: Ints | None = None,
) -> Start | None:
    """A plan with orders by a horizon that rolls along the ops; None where an op fits nowhere.

    The search minimizes the sum of the ends of the ops in the horizon, which count the more the
    longer their way to the end is, and of the time for which their inputs are sent, times `weight`.
    The default `order` has the ops with the longest ways to the end first. Without a deadline each
    horizon of `length` ops tries `moves_per_op`. Memory adds up (`sum`). O(n) horizons; each costs
    about as much as its moves times its edges.
    """
    arrays, machines = instance.arrays, machines_of(instance, semantics)
    n, length = instance.num_ops, min(length, instance.num_ops)
    rng = np.random.default_rng(list(seed))
    order = by_levels(instance, machines) if order is None else order.copy()
    level = levels(instance, machines)
    groups, horizon = _empty(instance, machines, order, length, weight)
    mean_ns = float(arrays.time_ns[arrays.time_ns != UNSUPPORTED].mean())
    step, placed, first = -(-length // SETTLED), 0, 0
    deadline, hurry = stop or Stop()
    moves, before = FIRST_MOVES if deadline is not None else moves_per_op * length, now_s()
    while first < n:
        last = min(n, first + length)
        new = horizon.order[placed:last]
        share = level[new] / max(1.0, float(level[horizon.order[first:last]].max()))
        horizon.urgency[new] = LEAST_URGENCY + (1 - LEAST_URGENCY) * share
        if not extend(machines, groups, horizon, first, placed, last):
            return None
        placed, hot_ns = last, HOT * mean_ns * length
        moves = 0 if hurry is not None and hurry.is_set() else moves
        if moves:
            anneal_horizon(machines, groups, horizon, first, last, rng, moves, hot_ns)
        count = min(step, last - first)
        settle(groups, horizon, first, last, count)
        first += count
        if deadline is not None:
            now = now_s()
            share_s = (deadline - now) / max(1, -(-(n - first) // step))
            rate = max(1, moves) / max(now - before, 1e-6)
            moves, before = min(int(rate * share_s), 2 * moves + 1, MOST_MOVES * length), now
            moves = moves if share_s > 0 else 0
    plan = _plan(instance, semantics, machines, groups, horizon)
    return Start(plan, int(horizon.state[:n].max()))


def _empty(
    instance: Instance, machines: Machines, order: Ints, length: int, weight: float
) -> tuple[Groups, Horizon]:
    arrays, n, k = instance.arrays, instance.num_ops, instance.num_devices
    groups = Groups(
        arrays.group,
        np.bincount(arrays.group, minlength=arrays.num_groups),
        arrays.group_bytes,
        arrays.group_runs,
        np.full(arrays.num_groups, NONE, np.int64),
        np.zeros(arrays.num_groups, np.bool_),
        arrays.memory_bytes.copy(),
    )
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    num_machines = max(k, int(machines.channel.max(initial=NONE)) + 1)
    tensors = len(machines.tensor_ptr) - 1 if machines.per_tensor else 0
    state = np.zeros(n + num_machines + tensors * k, np.int64)
    state[n + num_machines :] = NONE
    degree = np.sort(np.diff(arrays.index.pred_ptr))[-length:].sum()
    log = np.empty((3 * int(degree) + 2 * length + 2, 3), np.int64)
    return groups, Horizon(
        order,
        position,
        state,
        log,
        log.copy(),
        np.zeros(length + 1, np.int64),
        np.zeros(length + 1),
        np.ones(n),
        weight,
    )


def _plan(
    instance: Instance, semantics: Makespan, machines: Machines, groups: Groups, horizon: Horizon
) -> Plan:
    """The plan whose orders are those in which ops and transfers were scheduled."""
    index = instance.arrays.index
    device = groups.home[instance.arrays.group]
    inputs = index.pred_edge  # an op's inputs are scheduled in this order
    inputs = inputs[np.argsort(horizon.position[index.consumer[inputs]], kind="stable")]
    remote = inputs[device[index.producer[inputs]] != device[index.consumer[inputs]]]
    sent: dict[Transfer, tuple[int, int]] = {}
    for e in remote.tolist():
        item = int(index.tensor[e]) if machines.per_tensor else e
        sent.setdefault(Transfer(item, int(device[index.consumer[e]])), (len(sent), len(sent)))
    at = horizon.position.tolist()
    rows = [(transfer, *when) for transfer, when in sent.items()]
    return plan_from_times(
        instance, semantics, device.tolist(), list(zip(at, at, strict=True)), rows
    )


def order_of(instance: Instance, semantics: Makespan, plan: Plan) -> Ints:
    """The ops as a plan starts them, which is a topological order."""
    schedule = simulate(instance, plan, semantics)
    position = instance.arrays.index.topological_position
    return np.lexsort((position, schedule.end_ns, schedule.start_ns)).astype(np.int64)


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
    consumer, edge_ns = machines.consumer[machines.succ_edge], transfer_ns[machines.tensor]
    order, succ_ns = machines.order[::-1], edge_ns[machines.succ_edge]
    return longest_ways(order, machines.succ_ptr, consumer, succ_ns, mean_ns)


def _is_topological(producer: Ints, consumer: Ints, order: Ints) -> bool:
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return bool((position[producer] < position[consumer]).all())


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
    places, and `cost` the sum of ends by then, each times the `urgency` of its op, and of the time
    for which something is sent times `weight`.
    """

    order: Ints
    position: Ints
    state: Ints
    log: Ints
    spare: Ints
    log_at: Ints
    cost: Floats
    urgency: Floats
    weight: float


def settle(groups: Groups, horizon: Horizon, first: int, last: int, count: int) -> None:
    """Settle `count` ops from `first` on; the rest of those before `last` can still change."""
    log, log_at, cost = horizon.log, horizon.log_at, horizon.cost
    groups.settled[groups.group[horizon.order[first : first + count]]] = True
    left = last - first - count
    begin, end = int(log_at[count]), int(log_at[last - first])
    log[: end - begin] = log[begin:end].copy()
    log_at[: left + 1] = log_at[count : count + left + 1] - begin
    cost[: left + 1] = cost[count : count + left + 1] - cost[count]


@kernel(nogil=True, allocates=False)
def extend(
    machines: Machines, groups: Groups, horizon: Horizon, first: int, begin: int, end: int
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
                score = horizon.state[v] + horizon.weight * sent
                _take_back(horizon, last, count)
                if best < 0 or score < least:
                    best, least = b, score
            groups.home[g] = best
            if best < 0:
                return False
            groups.room[best] -= groups.size_bytes[g]
        _place(machines, groups, horizon, first, at)
    return True


@kernel(nogil=True, allocates=False)
def _place(machines: Machines, groups: Groups, horizon: Horizon, first: int, at: int) -> None:
    v = horizon.order[at]
    b = groups.home[groups.group[v]]
    count, sent = schedule_op(machines, groups, horizon, v, b, horizon.log_at[at - first])
    horizon.log_at[at - first + 1] = count
    added = horizon.urgency[v] * horizon.state[v] + horizon.weight * sent
    horizon.cost[at - first + 1] = horizon.cost[at - first] + added


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
        temperature = hot * (1.0 - move / moves) ** 2  # a short search has to end cold
        at = first + draw(rng, length)
        v = order[at]
        g = groups.group[v]
        a, to, target = home[g], home[g], at
        changed = at
        if k > 1 and rng.random() < 0.6:
            if groups.settled[g]:
                continue
            u = neighbour(machines, rng, v, 0.5)
            is_known = u >= 0 and position[u] < last
            to = int(home[groups.group[u]]) if is_known else draw(rng, k)
            if to == a or not groups.runs[g, to] or groups.size_bytes[g] > groups.room[to]:
                continue
            changed = at if groups.members[g] == 1 else first
        else:
            # another place in the order, between what it waits for and what waits for it
            by = 1 + draw(rng, LONGEST_SHIFT)
            if rng.random() < 0.5:
                target = max(first, at - by)
                for e in machines.pred_edge[machines.pred_ptr[v] : machines.pred_ptr[v + 1]]:
                    target = max(target, position[machines.producer[e]] + 1)
            else:
                target = min(last - 1, at + by)
                for e in machines.succ_edge[machines.succ_ptr[v] : machines.succ_ptr[v + 1]]:
                    target = min(target, position[machines.consumer[e]] - 1)
            if target == at:
                continue
            changed = min(at, target)
        changed -= first
        begin, count = horizon.log_at[changed], horizon.log_at[length]
        copy_rows(horizon.spare, horizon.log, begin, count)
        for place in range(changed, length + 1):
            old_at[place], old_cost[place] = horizon.log_at[place], horizon.cost[place]
        _take_back(horizon, count, begin)
        _apply(groups, horizon, v, g, to, at, target)
        limit = limit_of(now, temperature, rng)
        for place in range(first + changed, last):
            _place(machines, groups, horizon, first, place)
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
        copy_rows(horizon.log, horizon.spare, begin, count)
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
            _place(machines, groups, horizon, first, at)


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


@kernel(nogil=True, allocates=False)
def _write(state: Ints, log: Ints, count: int, index: int, value: int) -> int:
    log[count, INDEX], log[count, OLD], log[count, NEW] = index, state[index], value
    state[index] = value
    return count + 1


@kernel(nogil=True, allocates=False)
def _take_back(horizon: Horizon, count: int, to: int) -> None:
    for at in range(count - 1, to - 1, -1):
        horizon.state[horizon.log[at, INDEX]] = horizon.log[at, OLD]
