"""A first plan that is searched while it is built, a few ops ahead of what is settled.

All ops stand in a topological order. The next ones of it, the horizon, are listed and searched
(`horizon`). Then its first half is settled, and the horizon rolls on. The work per op stays the
same at any size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Start
from placegap.solvers.local_search.disjunctive_graph import NONE, Machines, machines_of
from placegap.solvers.local_search.rolling_horizon import (
    Groups,
    Horizon,
    anneal_horizon,
    by_levels,
    extend,
    levels,
    settle,
)

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
"""One part in so many of a horizon is settled before it rolls on."""


def rolling_plan(
    instance: Instance,
    semantics: Makespan,
    *,
    deadline: float | None = None,
    moves_per_op: int = MOVES_PER_OP,
    length: int = LENGTH,
    weight: float = 1.0,
    seed: Sequence[int] = (0,),
    order: Ints | None = None,
    hurry: Event | None = None,
) -> Start | None:
    """A plan with orders by a horizon that rolls along the ops.

    The search minimizes the sum of the ends of the ops in the horizon, which count the more the
    longer their way to the end is, and of the time for which their inputs are sent. O(n) horizons;
    each costs about as much as its moves times its edges.

    Parameters
    ----------
    instance, semantics
        The problem; memory adds up (`sum`).
    deadline : float or None
        By `clock.now_s`: moves are so many that all horizons end by then.
    moves_per_op : int
        Moves for each op in each horizon, where there is no deadline.
    length : int
        Ops of the horizon.
    weight : float
        What a nanosecond of a transfer counts beside a nanosecond of an op's end.
    seed : sequence of int
        Of the random numbers.
    order : int64 array, optional
        The ops in a topological order; by default those with the longest ways to the end first.
    hurry : threading.Event, optional
        Once it is set, the rest is listed without a search.

    Returns
    -------
    Start or None
        The plan and its makespan; None where an op fits nowhere by then.

    Examples
    --------
    >>> from placegap.instances import evaluate, example
    >>> found = rolling_plan(example(), Makespan())
    >>> evaluate(example(), found.plan, Makespan()).value_ns, found.value_ns
    (35, 35)
    """
    arrays, machines = instance.arrays, machines_of(instance, semantics)
    n, length = instance.num_ops, min(length, instance.num_ops)
    rng = np.random.default_rng(list(seed))
    order = by_levels(instance, machines) if order is None else order.copy()
    level = levels(instance, machines)
    groups, horizon = _empty(instance, machines, order, length)
    mean_ns = float(arrays.time_ns[arrays.time_ns != UNSUPPORTED].mean())
    step, placed, first = -(-length // SETTLED), 0, 0
    moves, before = FIRST_MOVES if deadline is not None else moves_per_op * length, now_s()
    while first < n:
        last = min(n, first + length)
        new = horizon.order[placed:last]
        share = level[new] / max(1.0, float(level[horizon.order[first:last]].max()))
        horizon.urgency[new] = LEAST_URGENCY + (1 - LEAST_URGENCY) * share
        if not extend(machines, groups, horizon, first, placed, last, weight):
            return None
        placed, hot_ns = last, HOT * mean_ns * length
        moves = 0 if hurry is not None and hurry.is_set() else moves
        if moves:
            anneal_horizon(machines, groups, horizon, first, last, rng, moves, hot_ns, weight)
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
    instance: Instance, machines: Machines, order: Ints, length: int
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
    """The ops as a plan starts them, which is a topological order.

    Examples
    --------
    >>> from placegap.instances import example
    >>> order_of(example(), Makespan(), Plan.on([0] * 4)).tolist()
    [0, 1, 2, 3]
    """
    schedule = simulate(instance, plan, semantics)
    position = instance.arrays.index.topological_position
    return np.lexsort((position, schedule.end_ns, schedule.start_ns)).astype(np.int64)


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

    Examples
    --------
    >>> from placegap.instances import example
    >>> start = Start(Plan.on([0] * 4), 43)
    >>> [found.value_ns for found in rolling_plans(example(), Makespan(), start)]
    [35]
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
            deadline=until,
            length=length,
            order=order,
            hurry=hurry,
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
                        verdict = evaluate(instance, plan, semantics)
                        value_ns = verdict.value_ns if verdict.feasible else None
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
