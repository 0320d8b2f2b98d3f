"""Plans for latency_subgraphs as arrays, and their latency as the referee counts it, in O(n + m).

A *place* is a call of an accelerator, or a host. A host equal to another one that holds everything
is left out: hosts run any number of ops at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.graph_index import group_by, sum_by
from placegap.instances.problem.integers import NEVER, UNSUPPORTED


class CallProblem(NamedTuple):
    """Arrays for the kernels: n ops, P places of which the first C are calls, t tensors."""

    device: Ints  # (P,) int64: Calls of one device stand together, in order
    num_calls: int  # C
    subgraphs: int  # calls per accelerator
    time_ns: Ints  # (n, K) int64
    resident_bytes: Ints  # (n,) int64
    memory_bytes: Ints  # (K,) int64
    host_ns: Ints  # (t, K) int64
    tensor_producer: Ints  # (t,) int64
    #: tensor_ptr, reader: (t + 1,): Consumers of tensor u are
    #: ``reader[tensor_ptr[u]:tensor_ptr[u + 1]]``.
    tensor_ptr: Ints
    reader: Ints
    #: succ_ptr, succ: (n + 1,)
    succ_ptr: Ints
    succ: Ints
    #: pred_ptr, pred: (n + 1,)
    pred_ptr: Ints
    pred: Ints
    group: Ints  # (n,) int64
    #: group_ptr, member: (g + 1,): Ops of each colocation group.
    group_ptr: Ints
    member: Ints

    def latency_ns(self, place: Ints) -> int:
        """Latency, `NEVER` if calls wait for each other in a cycle; memory is not checked."""
        return int(call_latency(self, np.asarray(place, np.int64), new_scratch(self))[0])

    def fits(self, place: Ints) -> bool:
        """Whether all ops can run at their places, groups are together, and memory suffices."""
        device = self.device[place]
        held = sum_by(device, self.resident_bytes, len(self.memory_bytes))
        of_host = place >= self.num_calls
        same = np.where(of_host, -1, device)
        together = same == same[self.member[self.group_ptr[self.group]]]
        runs = self.time_ns[np.arange(len(place)), device] != UNSUPPORTED
        return bool(runs.all() and together.all() and (held <= self.memory_bytes).all())

    def plan(self, place: Ints) -> Plan:
        number = np.where(place < self.num_calls, place % self.subgraphs, 0)
        devices = self.device[place].tolist()
        return Plan(tuple((k,) for k in devices), call=tuple(number.tolist()))

    def place(self, plan: Plan) -> Ints:
        """The places of a plan; a host that was left out is replaced by its equal."""
        hosts = self.device[self.num_calls :]
        first = {int(k): at for at, k in reversed(list(enumerate(self.device.tolist())))}
        call = plan.call or (0,) * len(self.group)
        found = []
        for i, (k, c) in enumerate(zip(plan.devices.tolist(), call, strict=True)):
            if k not in first:
                same = self.time_ns[i, hosts] == self.time_ns[i, k]
                found.append(self.num_calls + int(np.argmax(same)))
            else:
                found.append(first[k] + (c if first[k] < self.num_calls else 0))
        return np.array(found, np.int64)


def build_call_problem(instance: Instance, subgraphs: int) -> CallProblem:
    """Arrays of an instance whose accelerators make up to `subgraphs` calls; O(n K + m)."""
    arrays, index = instance.arrays, instance.arrays.index
    accelerators = np.flatnonzero(~arrays.is_host)
    hosts: list[int] = []
    total = int(arrays.resident_bytes.sum())
    for k in np.flatnonzero(arrays.is_host).tolist():
        roomy = [h for h in hosts if arrays.memory_bytes[h] >= total]
        if not any((arrays.time_ns[:, h] == arrays.time_ns[:, k]).all() for h in roomy):
            hosts.append(k)
    device = np.concatenate([np.repeat(accelerators, subgraphs), np.array(hosts, np.int64)])
    group_ptr, member = group_by(arrays.group, arrays.num_groups)
    return CallProblem(
        **arrays.named(CallProblem._fields),
        device=device,
        num_calls=len(accelerators) * subgraphs,
        subgraphs=subgraphs,
        reader=index.consumer[index.tensor_edge],
        succ=index.consumer[index.succ_edge],
        pred=index.producer[index.pred_edge],
        group_ptr=group_ptr,
        member=member,
    )


class Scratch(NamedTuple):
    """Arrays for one evaluation, by place and by op."""

    duration: Ints
    waiting: Ints
    begin: Ints
    mark: Ints
    head: Ints
    next: Ints
    queue: Ints
    op_waiting: Ints
    op_begin: Ints


def new_scratch(problem: CallProblem) -> Scratch:
    """Arrays for evaluations of one problem."""
    places, ops = len(problem.device), len(problem.resident_bytes)
    sizes = (*[places] * 5, ops, places + ops, ops, ops)
    return Scratch(*[np.zeros(size, np.int64) for size in sizes])


@kernel(nogil=True, allocates=False)
def call_latency(problem: CallProblem, place: Ints, scratch: Scratch) -> tuple[int, int]:
    """Latency of a plan, `NEVER` if calls wait in a cycle, and the sum of all calls."""
    # Kahn's algorithm over units: calls (numbers below C) and ops on hosts (C + op). A unit enters
    # the queue once its producers have ended and, for a call, the call before it on its
    # accelerator. If some op never ends, calls wait for each other, which also covers calls that
    # are not convex.
    n, calls, total = len(place), problem.num_calls, np.int64(0)
    _prepare(problem, place, scratch)
    end_of_queue = 0
    for p in range(calls):
        total += scratch.duration[p]
        if scratch.waiting[p] == 0:
            scratch.queue[end_of_queue] = p
            end_of_queue += 1
    for i in range(n):
        if place[i] >= calls and scratch.op_waiting[i] == 0:
            scratch.queue[end_of_queue] = calls + i
            end_of_queue += 1
    latency, at, ended = np.int64(0), 0, 0
    while at < end_of_queue:
        unit = scratch.queue[at]
        at += 1
        if unit >= calls:
            i = unit - calls
            end = scratch.op_begin[i] + problem.time_ns[i, problem.device[place[i]]]
            end_of_queue = _release(problem, place, scratch, i, end, end_of_queue)
            ended += 1
        else:
            end = scratch.begin[unit] + scratch.duration[unit]
            # All ops of a call end with it.
            i = scratch.head[unit]
            while i >= 0:
                end_of_queue = _release(problem, place, scratch, i, end, end_of_queue)
                ended += 1
                i = scratch.next[i]
            if (unit + 1) % problem.subgraphs != 0:
                scratch.begin[unit + 1] = max(scratch.begin[unit + 1], end)
                scratch.waiting[unit + 1] -= 1
                if scratch.waiting[unit + 1] == 0:
                    scratch.queue[end_of_queue] = unit + 1
                    end_of_queue += 1
        latency = max(latency, end)
    return (int(latency), int(total)) if ended == n else (NEVER, int(total))


@kernel(nogil=True, allocates=False)
def _prepare(problem: CallProblem, place: Ints, scratch: Scratch) -> None:
    """Members and duration of each call, and the number of edges and calls each unit awaits."""
    # Members of a call form a linked list (`head`, `next`). A tensor counts once for each call that
    # it enters (`mark` has the last one counted), and once for the call that it leaves.
    calls = problem.num_calls
    scratch.duration[:] = 0
    scratch.mark[:] = -1
    scratch.head[:] = -1
    scratch.begin[:] = 0
    scratch.op_begin[:] = 0
    for p in range(len(scratch.waiting)):  # all but the first call of an accelerator await one
        scratch.waiting[p] = 1 if p < calls and p % problem.subgraphs else 0
    for i in range(len(place)):
        own = place[i]
        scratch.op_waiting[i] = problem.pred_ptr[i + 1] - problem.pred_ptr[i]
        if own < calls:
            scratch.duration[own] += problem.time_ns[i, problem.device[own]]
            scratch.next[i] = scratch.head[own]
            scratch.head[own] = i
            for at in range(problem.pred_ptr[i], problem.pred_ptr[i + 1]):
                scratch.waiting[own] += place[problem.pred[at]] != own
    for u in range(len(problem.tensor_producer)):
        source, leaves = place[problem.tensor_producer[u]], False
        for at in range(problem.tensor_ptr[u], problem.tensor_ptr[u + 1]):
            to = place[problem.reader[at]]
            if to != source:
                leaves = True
                if to < calls and scratch.mark[to] != u:
                    scratch.mark[to] = u
                    scratch.duration[to] += problem.host_ns[u, problem.device[to]]
        if leaves and source < calls:
            scratch.duration[source] += problem.host_ns[u, problem.device[source]]


@kernel(nogil=True, allocates=False)
def _release(
    problem: CallProblem, place: Ints, scratch: Scratch, i: int, end: int, end_of_queue: int
) -> int:
    """End op i: units that can begin now enter the queue; returns the queue's new end."""
    calls = problem.num_calls
    for at in range(problem.succ_ptr[i], problem.succ_ptr[i + 1]):
        j = problem.succ[at]
        to = place[j]
        if to >= calls:
            scratch.op_begin[j] = max(scratch.op_begin[j], end)
            scratch.op_waiting[j] -= 1
            if scratch.op_waiting[j] == 0:
                scratch.queue[end_of_queue] = calls + j
                end_of_queue += 1
        elif to != place[i]:
            scratch.begin[to] = max(scratch.begin[to], end)
            scratch.waiting[to] -= 1
            if scratch.waiting[to] == 0:
                scratch.queue[end_of_queue] = to
                end_of_queue += 1
    return end_of_queue
