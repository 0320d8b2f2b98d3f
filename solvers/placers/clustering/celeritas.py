"""Celeritas: operation fusion, then Adjusting Placement of the fused ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.semantics import Makespan
from placegap.instances.problem.weighted_dag import cpd_topo
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.celeritas import (
    FusionParams,
    Sent,
    committed_plan,
    fused_clusters,
    nothing_sent,
    receive,
)
from placegap.solvers.placers.insertion import Gaps, first_fit, idle_devices, occupy
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    Problem,
    admission_of,
    problem_of,
)
from placegap.solvers.placers.whole_clusters import (
    Clusters,
    is_committed,
    settle_apart,
    settle_whole,
    takes_whole,
)


class CeleritasParams(FusionParams):
    """Also `transfer_tasks`: transfers take the time of both devices, as in section 6.1.

    None: wherever channels are not free.
    """

    transfer_tasks: bool | None = None


def celeritas(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Keep fused ops on the device of the one before, unless another starts them much earlier.

    Xu, Liao, Xie, Zhou, "Celeritas: fast optimizer for large dataflow graphs", sections 5.1 and
    5.2: optimal operation fusion, then Adjusting Placement (Algorithm 2) along the CPD-TOPO order
    of the fused ops. These start in the first idle gap that is long enough; they leave the device
    of the fused ops before if the earliest start elsewhere is earlier by more than the dearest
    transfer back to it. A heuristic for the makespan.
    Filled in: of devices with equal starts the one that finishes first, then the first; the first
    fused ops have no device before them and go to the one of earliest start; a transfer back is
    timed between the two devices in question. Added to the paper: device support; a colocation
    group is committed whole with its first op (6.1, which counts the first op only), and ops
    committed before take their time on their own device; fused ops that no device has room for are
    taken apart, each to the device before, else to the emptiest; where the paper's best effort
    overfills a device, there is no plan. With `transfer_tasks` (6.1), the default unless channels
    are free, a transfer takes the time of both devices, in their first common gap, a tensor once to
    each device (`transfer_tasks`); without, it plans with free channels. The plan gives no orders.
    Small graphs without memory limits are fused to one op: lower `reach` for these.
    O((V + E) reach + (V + E) K) time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> task = Task(example(), Makespan(channels="free"))
    >>> celeritas(task).plan.placement, celeritas(task, FusionParams(reach=1)).plan.placement
    (((0,), (0,), (0,), (0,)), ((0,), (1,), (0,), (1,)))
    """
    chosen = params if isinstance(params, FusionParams) else CeleritasParams()
    asked = chosen.transfer_tasks if isinstance(chosen, CeleritasParams) else None
    booked = task.semantics.channels != "free" if asked is None else asked
    instance = task.instance
    clusters, flow = fused_clusters(instance, chosen)
    admission = admission_of(instance.arrays)
    problem, num_devices = problem_of(instance.arrays), instance.num_devices
    num_tensors = len(problem.inputs.transfer_ns) if booked else 0
    pieces = instance.num_ops + (2 * len(problem.inputs.op) if booked else 0)
    idle, sent = idle_devices(num_devices, pieces), nothing_sent(num_tensors, num_devices)
    stuck = adjust(problem, admission, clusters, cpd_topo(flow), idle, sent, booked)
    return committed_plan(instance, admission, int(stuck))


@kernel
def adjust(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    order: Ints,
    gaps: Gaps,
    sent: Sent,
    booked: bool,
) -> Any:
    """Adjusting Placement: commit the clusters in order; the op that fits nowhere, or -1.

    Parameters
    ----------
    problem : Problem
    admission : Admission
        To empty devices; afterwards it holds the devices of all groups.
    clusters : Clusters
    order : (C,) int64
        A topological order of the clusters.
    gaps : Gaps
        Of idle devices; used up.
    sent : Sent
        No tensor so far; used up.
    booked : bool
        Whether transfers take the time of both devices, or nothing.
    """
    num_devices = problem.time_ns.shape[1]
    end = np.zeros(len(order), np.int64)
    arrival, busy = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    # no literals as arguments: numba compiles the kernel that is called for each of them anew
    before: Any = np.int64(NOWHERE)
    pieces: Any = np.int64(0)
    trial: Any = np.bool_(False)
    booking: Any = np.bool_(True)
    for c in order:
        _look(problem, admission, clusters, c, end, arrival, busy)
        if booked:
            for k in range(num_devices):
                arrival[k], _ = receive(
                    problem, admission, clusters, c, k, end, gaps, sent, pieces, trial
                )
        if not is_committed(admission, clusters, c):
            best, of_before = _earliest(
                problem, admission, clusters, c, arrival, busy, gaps, before
            )
            if best[1] == NOWHERE:
                stuck = settle_apart(admission, clusters, c, before)
                if stuck != NOWHERE:
                    return stuck
            else:
                at = best[1]
                if of_before >= 0 and at != before:
                    back = _dearest_back(problem, clusters, c, at, before)
                    if of_before - best[0] <= back:
                        at = before
                settle_whole(admission, clusters, c, at)
                before = at
        if booked:
            for k in range(num_devices):
                if _is_on(admission, clusters, c, k):
                    arrival[k], pieces = receive(
                        problem, admission, clusters, c, k, end, gaps, sent, pieces, booking
                    )
        end[c], pieces = _occupy(problem, admission, clusters, c, arrival, busy, gaps, pieces)
    return NOWHERE


@kernel(allocates=False)
def _look(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    c: int,
    end: Ints,
    arrival: Ints,
    busy: Ints,
) -> None:
    """Arrival of the cluster's inputs on each device, equation (7); time of its committed ops."""
    arrival[:], busy[:] = 0, 0
    inputs = problem.inputs
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        home = admission.home[admission.group[op]]
        if home != NOWHERE:
            busy[home] += problem.time_ns[op, home]
        for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
            if clusters.of[inputs.op[e]] == c:
                continue
            sent = end[clusters.of[inputs.op[e]]]
            source = admission.home[admission.group[inputs.op[e]]]
            for k in range(len(arrival)):
                transfer = inputs.transfer_ns[inputs.tensor[e], inputs.link_class[source, k]]
                arrival[k] = max(arrival[k], sent + transfer)


@kernel
def _earliest(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    c: int,
    arrival: Ints,
    busy: Ints,
    gaps: Gaps,
    before: int,
) -> tuple[tuple[Any, Any], Any]:
    """Earliest start of the cluster and its device or -1; its start on device `before` or -1."""
    start, finish, where, of_before = np.int64(-1), np.int64(-1), np.int64(NOWHERE), np.int64(-1)
    for k in range(len(arrival)):
        if not takes_whole(admission, clusters, c, k):
            continue
        duration = busy[k]
        for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
            if admission.home[admission.group[op]] == NOWHERE:
                duration += problem.time_ns[op, k]
        gap = first_fit(gaps, k, arrival[k], duration)
        begin = max(arrival[k], gaps.begin_ns[gap])
        if k == before:
            of_before = begin
        if where == NOWHERE or (begin, begin + duration) < (start, finish):
            start, finish, where = begin, begin + duration, np.int64(k)
    return (start, where), of_before


@kernel
def _dearest_back(problem: Problem, clusters: Clusters, c: int, at: int, before: int) -> Any:
    """Longest transfer of an output of the cluster from device `at` to `before`, equation (8)."""
    longest, link = np.int64(0), problem.inputs.link_class[at, before]
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        for e in range(problem.succ_ptr[op], problem.succ_ptr[op + 1]):
            if clusters.of[problem.succ_op[e]] != c:
                transfer = problem.inputs.transfer_ns[problem.succ_tensor[e], link]
                longest = max(longest, transfer)
    return longest


@kernel(allocates=False)
def _is_on(admission: Admission, clusters: Clusters, c: int, device: int) -> bool:
    """Whether the device has an op of the cluster."""
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        if admission.home[admission.group[op]] == device:
            return True
    return False


@kernel
def _occupy(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    c: int,
    arrival: Ints,
    busy: Ints,
    gaps: Gaps,
    pieces: int,
) -> tuple[Any, Any]:
    """Book the cluster's time on the devices of its ops; its end, and the pieces booked so far."""
    busy[:] = 0
    used = np.zeros(len(busy), np.bool_)
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        home = admission.home[admission.group[op]]
        busy[home] += problem.time_ns[op, home]
        used[home] = True
    end = np.int64(0)
    for k in range(len(busy)):
        if not used[k]:
            continue
        gap = first_fit(gaps, k, arrival[k], busy[k])
        start = max(arrival[k], gaps.begin_ns[gap])
        occupy(gaps, k, gap, pieces, start, busy[k])
        pieces += 1
        end = max(end, start + busy[k])
    return end, pieces


register(
    Method(
        name="celeritas",
        claim="heuristic",
        objectives=("makespan",),
        paper="Xu et al. 2022 (Celeritas)",
        cites=("xu2022, section 5.2",),
        summary="fuses ops along critical paths, and stays on a device until another is much freer",
        starts={"makespan": Cost(0.6, 3.3)},
        run=celeritas,
        params=CeleritasParams,
    )
)
