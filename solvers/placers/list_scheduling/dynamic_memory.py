"""m-ETF and m-SCT under Baechi's dynamic memory: outputs and scratch memory come and go.

A commitment takes the op's outputs and resident bytes, and needs its scratch memory besides, which
is free again at once. Outputs are freed when the last consumer is committed: in the order of
commitments, not of times. So a pair that is refused may be admitted later, and every step looks at
all pairs of ready ops and devices.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.kernels import copy_to, kernel, sizes_of
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admission_of,
    nowhere,
    outcome_of,
    problem_of,
)


class MemoryParams(Params):
    """Which memory the placer counts.

    Attributes
    ----------
    memory : {"resident", "dynamic"}
        What the referee counts, resident bytes for good; or besides these, as Baechi does, an op's
        outputs until all its consumers are committed, and its scratch memory when it is.
    """

    memory: Literal["resident", "dynamic"] = "resident"


class Footprint(NamedTuple):
    """Bytes of each op's outputs and scratch memory, (n,) each."""

    outputs: Ints
    scratch: Ints


def footprint_of(instance: Instance) -> Footprint:
    """What each op occupies beside its resident bytes; a tensor counts once.

    Examples
    --------
    >>> from placegap.instances import example
    >>> footprint_of(example()).outputs.tolist()  # tensors of 1 and 20, 1, 10 and no bytes
    [21, 1, 10, 0]
    """
    index, graph = instance.arrays.index, instance.graph
    outputs = np.zeros(instance.num_ops, np.int64)
    first = index.tensor_first_edge.tolist()
    np.add.at(
        outputs, index.tensor_producer, np.array([graph.edges[e].bytes for e in first], np.int64)
    )
    return Footprint(outputs, np.array([op.workspace_bytes for op in graph.ops], np.int64))


def why_not_dynamic(task: Task[Makespan], params: Params) -> str | None:
    """Why the sums would leave 64-bit integers, or None."""
    if not isinstance(params, MemoryParams) or params.memory == "resident":
        return None
    instance = task.instance
    total = sum(op.resident_bytes + op.workspace_bytes for op in instance.graph.ops)
    if total + sum(edge.bytes for edge in instance.graph.edges) > LARGEST_SUM:
        return "its sizes add up to more than 2**62 bytes, too many for memory=dynamic"
    return None


def place_dynamic(instance: Instance, order: Ints, favourite: Ints) -> Outcome:
    """The plan of m-SCT, or of m-ETF without favourites, under dynamic memory.

    Parameters
    ----------
    order, favourite
        As for `earliest_start_dynamic`.
    """
    arrays, footprint = instance.arrays, footprint_of(instance)
    admission = admission_of(arrays)
    times = earliest_start_dynamic(problem_of(arrays), admission, footprint, order, favourite)
    if times.stuck == NOWHERE:
        return outcome_of(instance, times, admission)
    op = int(times.stuck)
    group = admission.group[op]
    if (
        admission.home[group] == NOWHERE
        and not (
            admission.group_runs[group] & (admission.group_bytes[group] <= admission.free_bytes)
        ).any()
    ):
        return nowhere(instance, op, admission)  # its resident bytes alone are too many
    left = ", ".join(
        f"{device.name!r} {free}"
        for device, free in zip(
            instance.cluster.devices, admission.free_bytes.tolist(), strict=True
        )
    )
    beside = int(footprint.outputs[op] + footprint.scratch[op])
    return Outcome(
        message=f"memory: op {instance.graph.ops[op].name!r} needs {beside} bytes for its outputs"
        f" and scratch memory beside the resident ones, and fits nowhere then; bytes left: {left}"
    )


@kernel
def earliest_start_dynamic(
    problem: Problem, admission: Admission, footprint: Footprint, order: Ints, favourite: Ints
) -> KernelTimes:
    """Repeatedly commit the (ready op, device) pair of earliest start that fits now.

    Transfers are booked as in `earliest_start`. While the favourite child of the op that a device
    ran last is ready, and can start nowhere earlier than there, another op can start on that device
    only when it could by then on every device that admits it; the child takes the turn of an op
    that it need not wait for. Ties: `order`, then the device.
    O(steps x ready ops x devices x inputs).

    Parameters
    ----------
    problem : Problem
    admission : Admission
        To empty devices; used up.
    footprint : Footprint
    order : (n,) int64
        Ops by preference.
    favourite : (n,) int64
        The favourite child of each op, or -1.
    """
    n, num_devices = problem.time_ns.shape
    sent = np.full((len(problem.inputs.transfer_ns), num_devices), NOWHERE)
    clock, trial = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    device = np.full(n, NOWHERE)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    free_at, last = np.zeros(num_devices, np.int64), np.full(num_devices, NOWHERE)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    waiting, unserved = sizes_of(problem.inputs.ptr), sizes_of(problem.succ_ptr)
    begins = np.full((n, num_devices), NOWHERE)  # of ready ops; -1 where a device does not admit
    ready = [op for op in order if waiting[op] == 0]
    # no literals as arguments: numba compiles the kernel that is called for each of them anew
    trying: Any = np.bool_(False)
    booking: Any = np.bool_(True)
    while len(ready) > 0:
        for op in ready:
            for k in range(num_devices):
                begins[op, k] = NOWHERE
                if _fits(admission, footprint, op, k):
                    arrival = _deliver(problem, op, k, device, end, sent, clock, trial, trying)
                    begins[op, k] = max(arrival, free_at[k])
        chosen, where, begin = _choose(ready, rank, begins, favourite, last, device, waiting)
        if chosen == NOWHERE:
            break
        _deliver(problem, chosen, where, device, end, sent, clock, trial, booking)
        _commit(problem, admission, footprint, chosen, where, device, unserved)
        start[chosen] = begin
        end[chosen] = free_at[where] = begin + problem.time_ns[chosen, where]
        last[where] = chosen
        ready.remove(chosen)
        for succ in problem.succ_op[problem.succ_ptr[chosen] : problem.succ_ptr[chosen + 1]]:
            waiting[succ] -= 1
            if waiting[succ] == 0:
                ready.append(succ)
    stuck = NOWHERE
    for op in problem.topological_order[::-1]:
        if device[op] == NOWHERE:
            stuck = op
    return KernelTimes(device, start, end, stuck)


@kernel
def _choose(
    ready: list[Any],
    rank: Ints,
    begins: Ints,
    favourite: Ints,
    last: Ints,
    device: Ints,
    waiting: Ints,
) -> tuple[Any, Any, Any]:
    """The op to commit, or -1 if none fits anywhere, its device and its start.

    The ready op of earliest start, or the favourite child that the device waits for where the op
    need not wait for it.
    """
    best: Any = (np.int64(-1), np.int64(-1), np.int64(-1))
    chosen: Any = np.int64(NOWHERE)
    for op in ready:
        for k in range(begins.shape[1]):
            if begins[op, k] == NOWHERE:
                continue
            at, child = begins[op, k], _awaited(favourite, last[k], k, device, waiting, begins)
            if child == op or begins[op].max() == at:
                child = NOWHERE
            if child != NOWHERE and begins[child, k] > at:
                at, child = begins[op].max(), NOWHERE
            if best[0] < 0 or (at, rank[op], k) < best:
                best = (at, rank[op], np.int64(k))
                chosen = op if child == NOWHERE else child
    if chosen == NOWHERE:
        return chosen, best[2], best[0]
    begin = best[0]
    if rank[chosen] != best[1]:  # the child
        begin = begins[chosen, best[2]]
    return chosen, best[2], begin


@kernel(allocates=False)
def _fits(admission: Admission, footprint: Footprint, op: int, k: int) -> bool:
    group = admission.group[op]
    needed = footprint.outputs[op] + footprint.scratch[op]
    if admission.home[group] == NOWHERE:
        if not admission.group_runs[group, k]:
            return False
        needed += admission.group_bytes[group]
    elif admission.home[group] != k:
        return False
    return bool(needed <= admission.free_bytes[k])


@kernel(allocates=False)
def _commit(
    problem: Problem,
    admission: Admission,
    footprint: Footprint,
    op: int,
    k: int,
    device: Ints,
    unserved: Ints,
) -> None:
    """Take the op's bytes, and free the outputs of producers that have no other consumer left."""
    group, inputs = admission.group[op], problem.inputs
    if admission.home[group] == NOWHERE:
        admission.home[group] = k
        admission.free_bytes[k] -= admission.group_bytes[group]
    admission.free_bytes[k] -= footprint.outputs[op]
    device[op] = k
    for producer in inputs.op[inputs.ptr[op] : inputs.ptr[op + 1]]:
        unserved[producer] -= 1
        if unserved[producer] == 0:
            admission.free_bytes[device[producer]] += footprint.outputs[producer]


@kernel
def _awaited(favourite: Ints, last: int, k: int, device: Ints, waiting: Ints, begins: Ints) -> Any:
    """The op that device k waits for: the favourite child of what it ran last; or -1."""
    if last == NOWHERE:
        return NOWHERE
    child = favourite[last]
    if child == NOWHERE or device[child] != NOWHERE or waiting[child] > 0:
        return NOWHERE
    for begin in begins[child]:
        if begin != NOWHERE and begin < begins[child, k]:
            return NOWHERE
    return child if begins[child, k] != NOWHERE else NOWHERE


@kernel
def _deliver(
    problem: Problem,
    op: int,
    k: int,
    device: Ints,
    end: Ints,
    sent: Ints,
    clock: Ints,
    trial: Ints,
    book: bool,
) -> Any:
    """When all inputs of the op are on device k, by Baechi's two clocks; booked or on trial."""
    inputs = problem.inputs
    arrival = np.int64(0)
    copy_to(trial, clock)
    now = clock if book else trial
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        u, source = inputs.tensor[e], device[inputs.op[e]]
        there = end[inputs.op[e]]
        if source != k:
            if sent[u, k] != NOWHERE:
                there = sent[u, k]
            else:
                duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
                send = max(there, now[source])
                now[source] = send + duration
                there = now[k] = max(send, now[k]) + duration
                if book:
                    sent[u, k] = there
        arrival = max(arrival, there)
    return arrival
