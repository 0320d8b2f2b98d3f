"""Memory cuts: one slice of the order per device, cut where the least is sent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.modules import group_order, place_of_ops
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome


def memory_cuts(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Cut the order of colocation groups into slices, one per device, for a short makespan.

    Groups are ordered by the first of their ops in topological order. A training step whose
    forward and backward ops are colocated so becomes the chain of its layers. Every slice fits into
    the memory of its device, and the sum of all op times and of what is sent across the cuts is
    the least; each edge counts at every cut that it crosses. Devices take their slices in a fixed
    sequence, and may be passed over. Of three sequences (the fastest first, the slowest first, the
    largest first) the one with the shortest schedule counts. A heuristic for graphs that do not fit
    on one device, where most of the time goes into the few transfers that memory enforces; with
    slack memory all ops stay on one device. O(K (n + m)) but for sorting.

    Examples
    --------
    Two of four ops fit on a device, and the middle edge is the cheapest:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Link, Op
    >>> ops = tuple(Op(name=x, time_ns={"gpu": 1}, resident_bytes=2) for x in "abcd")
    >>> edges = tuple(Edge(producer=x, consumer=y, bytes=b) for x, y, b in
    ...               (("a", "b", 9), ("b", "c", 1), ("c", "d", 9)))
    >>> devices = tuple(Device(name=x, kind="gpu", memory_bytes=4) for x in ("g0", "g1"))
    >>> links = tuple(Link(source=x, target=y, bandwidth_bytes_per_s=10**9)
    ...               for x, y in (("g0", "g1"), ("g1", "g0")))
    >>> cluster = Cluster(name="two", devices=devices, links=links)
    >>> instance = Instance(name="four", graph=Graph(name="four", ops=ops, edges=edges),
    ...                     cluster=cluster)
    >>> memory_cuts(Task(instance, Makespan())).plan.placement
    ((0,), (0,), (1,), (1,))
    """
    best: tuple[int, Plan] | None = None
    for device in _slicings(task.instance):
        plan = Plan.on(device.tolist())
        verdict = evaluate(task.instance, plan, task.semantics)
        value_ns = verdict.value_ns
        if verdict.feasible and value_ns is not None and (best is None or value_ns < best[0]):
            best = value_ns, plan
    if best is None:
        return Outcome(message="memory: no slices of the order fit on the devices")
    return Outcome(best[1])


def _slicings(instance: Instance) -> Iterator[Ints]:
    """Devices of the ops, (n,), for each sequence of the devices."""
    arrays, index = instance.arrays, instance.arrays.index
    num, most = arrays.num_groups, instance.num_devices
    order = group_order(arrays)
    at = place_of_ops(arrays, order)
    size, blocked = arrays.group_bytes[order].astype(float), ~arrays.group_runs[order]
    time_ns = np.zeros((num, most))
    np.add.at(time_ns, at, arrays.time_ns.clip(0).astype(float))
    sent_ns = sent_across(
        at[index.producer], at[index.consumer], num, arrays.transfer_ns[index.tensor].max(axis=1)
    )
    room = np.where(arrays.memory_bytes == NO_LIMIT, np.inf, arrays.memory_bytes.astype(float))
    speed = np.where(blocked, 0.0, time_ns).sum(axis=0) / np.maximum(1, (~blocked).sum(axis=0))
    tried: set[tuple[int, ...]] = set()
    for key in (speed, -speed, -room):
        turn = np.argsort(key, kind="stable")
        if tuple(turn.tolist()) not in tried:
            tried.add(tuple(turn.tolist()))
            times = np.ascontiguousarray(time_ns[:, turn])  # one layout: one kernel
            bars = np.ascontiguousarray(blocked[:, turn])
            slot = _slice(size, times, bars, room[turn], sent_ns)
            if slot[0] >= 0:
                yield turn[slot][at]


def sent_across(tail: Ints, head: Ints, num: int, move_ns: Ints) -> Floats:
    """Time of what crosses the cut before each group, (num,), in either direction."""
    low, high = np.minimum(tail, head), np.maximum(tail, head)
    crosses, change = low < high, np.zeros(num + 1)
    np.add.at(change, low[crosses] + 1, move_ns[crosses].astype(float))
    np.subtract.at(change, high[crosses] + 1, move_ns[crosses].astype(float))
    return np.cumsum(change)[:num].clip(0)


@kernel
def _slice(size: Floats, time_ns: Floats, blocked: Flags, room: Floats, sent_ns: Floats) -> Ints:
    """Position in the sequence of the device of each group, (num,); -1 if there are no slices.

    best[k + 1, e]: the least cost of the first e groups on the first k + 1 devices. The slice of
    device k that ends before e begins at the best place of a window that only moves on.
    """
    num, most = time_ns.shape
    best, since = np.full((most + 1, num + 1), np.inf), np.full((most + 1, num + 1), -1)
    best[0, 0] = 0.0
    queue, value = np.zeros(num + 1, np.int64), np.zeros(num + 1)
    for k in range(most):
        best[k + 1, 0] = 0.0
        first, last, held, spent, begin = 0, 0, 0.0, 0.0, 0
        for e in range(1, num + 1):
            j = e - 1  # a slice may begin here
            start = best[k, j] + (sent_ns[j] if j > 0 else 0.0) - spent
            while last > first and value[last - 1] > start:  # of equal cuts the first
                last -= 1
            queue[last], value[last] = j, start
            last += 1
            held += size[j]
            spent += time_ns[j, k]
            if blocked[j, k]:
                begin, held = e, 0.0
            while held > room[k]:
                held -= size[begin]
                begin += 1
            while last > first and queue[first] < begin:
                first += 1
            best[k + 1, e], since[k + 1, e] = best[k, e], -1
            if last > first and value[first] + spent < best[k, e]:
                best[k + 1, e], since[k + 1, e] = value[first] + spent, queue[first]
    slot, e = np.full(num, -1), num
    if best[most, num] == np.inf:
        return slot
    for k in range(most, 0, -1):
        if since[k, e] >= 0:
            slot[since[k, e] : e] = k - 1
            e = since[k, e]
    return slot


register(
    Method(
        name="memory-cuts",
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="slices of the order, one per device, cut where memory allows and little is sent",
        starts={"makespan": Cost(0.6, 4.0)},
        run=memory_cuts,
        params=Params,
    )
)
