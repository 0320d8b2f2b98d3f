"""Plans for latency_subgraphs: cut a topological order optimally into calls in a row.

Every segment of a topological order is a convex set of blocks. It goes to an accelerator of its own
or runs on a host. The sum of all durations is an upper bound on the latency. O(b^2 (degree + a))
for b blocks and a accelerators, less where memory ends the segments early.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, LatencySubgraphs, Plan
from placegap.instances.problem.integers import NEVER
from placegap.solvers.chains.orders import orders
from placegap.solvers.chains.problem import (
    ACCELERATOR,
    HOST,
    ChainProblem,
    CutNets,
    build_problem,
    put_in,
    why_not_two_kinds,
)
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Known

MOST_BLOCKS = 2500  # longer orders are not cut, as the time grows with the square of their length
LONGEST_S = 5.0  # most time for all orders, whatever the limit: a search follows from their plan


def best_slices(task: Task[LatencySubgraphs]) -> Plan | None:
    """The plan of least latency over all orders of `chains.orders`, or None if none fits."""
    # Accelerators must be equal, and hosts; each accelerator makes one call. Deterministic for the
    # task's seed as long as it ends within a tenth of the time limit and `LONGEST_S`.
    instance, limit_s = task.instance, task.limits.time_limit_s
    if why_not_two_kinds(instance) is not None:
        return None
    problem = build_problem(instance)
    if problem.num_blocks > MOST_BLOCKS:
        return None
    until = now_s() + min(LONGEST_S, (limit_s or 10 * LONGEST_S) / 10)
    best = Known()
    for order in orders(problem, task.limits.seed):
        best.offer_plan(task, _slice_plan(problem, order))
        if now_s() > until:
            break
    return best.plan


def with_slices(task: Task[LatencySubgraphs]) -> Task[LatencySubgraphs]:
    """The task with the better of its incumbent and `best_slices` as incumbent."""
    best = Known()
    for plan in (task.incumbent, best_slices(task)):
        best.offer_plan(task, plan)
    return task if best.plan is None else replace(task, incumbent=best.plan)


def group_slices(instance: Instance, subgraphs: int) -> list[Plan]:
    """Plans that put whole colocation groups on accelerators, in the order of their first ops."""
    # If groups tie the beginning of a graph to its end, as forward ops to backward ops, an
    # accelerator needs calls at both. Accelerators are filled up to their memory, or evenly; an op
    # begins a new call where a path left its device and came back. A plan may break rules.
    arrays = instance.arrays
    order = arrays.index.topological_order
    groups = list(dict.fromkeys(arrays.group[order].tolist()))
    size, runs = arrays.group_bytes, arrays.group_runs
    accelerators = np.flatnonzero(~arrays.is_host).tolist()
    hosts = np.flatnonzero(arrays.is_host).tolist()
    weight = size if size.any() else np.bincount(arrays.group)
    even = -(-int(weight.sum()) // max(1, len(accelerators)))
    plans = list[Plan]()
    for filled in (False, True):
        device, at, held, share = np.zeros(arrays.num_groups, np.int64), 0, 0, 0
        for g in groups:
            while at < len(accelerators):
                room = int(arrays.memory_bytes[accelerators[at]])
                full = share >= even and not filled
                if not full and held + int(size[g]) <= room:
                    break
                at, held, share = at + 1, 0, 0
            able = accelerators[at : at + 1] if runs[g, accelerators[at : at + 1]].all() else []
            if not able + hosts:
                return plans
            device[g] = (able + hosts)[0]
            if able:
                held, share = held + int(size[g]), share + int(weight[g])
        plans.append(_with_calls(instance, device[arrays.group]))
    return plans


def _with_calls(instance: Instance, device: Ints) -> Plan:
    """A plan with calls: an op's number is how often a path to it left its device and came back."""
    # `next_call[i, k]`: the least call of device k for an op after i on a path through another
    # device.
    index, is_host = instance.arrays.index, instance.arrays.is_host
    next_call = np.zeros((instance.num_ops, len(is_host)), np.int64)
    call = np.zeros(instance.num_ops, np.int64)
    for i in index.topological_order.tolist():
        k = device[i]
        for p in index.producer[
            index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]]
        ].tolist():
            same = call[p] if device[p] == k else next_call[p, k]
            call[i] = max(call[i], same)
            np.maximum(next_call[i], next_call[p], out=next_call[i])
        next_call[i, k] = call[i] + 1
    call[is_host[device]] = 0
    return Plan(tuple((k,) for k in device.tolist()), call=tuple(call.tolist()))


def _slice_plan(problem: ChainProblem, order: Ints) -> Plan | None:
    """The best cut of one order, one call per accelerator."""
    accelerators, hosts = problem.counts
    value, used, origin = _slice(
        order, problem.time, problem.need, problem.room, problem.nets, accelerators, hosts
    )
    if value >= NEVER:
        return None
    device = np.zeros(len(order), np.int64)
    at, left = len(order), int(used)
    while at > 0:
        before, kind = divmod(int(origin[at, left]), 2)
        if kind == ACCELERATOR:
            left -= 1
        device[order[before:at]] = problem.devices[kind][left if kind == ACCELERATOR else 0]
        at = before
    return Plan.on(device[problem.blocks.block].tolist())


@kernel
def _slice(
    order: Ints, time: Ints, need: Ints, room: Ints, nets: CutNets, accelerators: int, hosts: int
) -> tuple[int, int, Ints]:
    """Least sum of durations: the value, the accelerators in use, and the origins."""
    # ``value[j, s]`` is that of the first j blocks of the order with s calls, and ``origin[j, s]``
    # 2 * (blocks before the last segment) + its kind.
    b = len(order)
    value = np.full((b + 1, accelerators + 1), NEVER, np.int64)
    origin = np.zeros((b + 1, accelerators + 1), np.int64)
    value[0, 0] = 0
    pins_in = np.zeros(len(nets.size), np.int64)
    for i in range(b):
        v = order[i]
        if hosts > 0 and need[HOST, v] <= room[HOST]:
            for s in range(accelerators + 1):
                now = value[i, s] + time[HOST, v]
                if value[i, s] < NEVER and now < value[i + 1, s]:
                    value[i + 1, s], origin[i + 1, s] = now, 2 * i + HOST
        pins_in[:] = 0
        work = size = cut = np.int64(0)
        for j in range(i, b):
            v = order[j]
            cut += put_in(nets, pins_in, v)
            work += time[ACCELERATOR, v]
            size += need[ACCELERATOR, v]
            if size > room[ACCELERATOR]:
                break
            for s in range(accelerators):
                now = value[i, s] + work + cut
                if value[i, s] < NEVER and now < value[j + 1, s + 1]:
                    value[j + 1, s + 1], origin[j + 1, s + 1] = now, 2 * i + ACCELERATOR
    # More calls than needed cost transfers, so the best number is one of all.
    best, used = NEVER, 0
    for s in range(accelerators + 1):
        if value[b, s] < best:
            best, used = value[b, s], s
    return best, used, origin
