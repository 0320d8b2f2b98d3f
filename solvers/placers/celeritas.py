"""Celeritas: operation fusion, and placers of fused ops: Order-Place and Adjusting Placement.

Xu, Liao, Xie, Zhou, "Celeritas: fast optimizer for large dataflow graphs". Transfers may be tasks
(section 6.1): "adding a new operation node for data transmission on the devices which need to send
or receive data", after TensorFlow, where a tensor is sent once to each device that needs it. A
transfer holds both devices for one common interval, neither of which runs an op meanwhile.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push, set_all
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.mean_costs import Flow, contracted, crossing, flow_of
from placegap.instances.problem.weighted_dag import cpd_topo, dfs_topo
from placegap.instances.transforms.celeritas_fusion import MEMORY_SHARE, REACH, fusion_segments
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.insertion import Gaps, first_fit, idle_devices, occupy
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    Problem,
    admission_of,
    nowhere,
    placement,
    problem_of,
)
from placegap.solvers.placers.whole_clusters import (
    Clusters,
    clusters_of,
    emptiest,
    settle_ops,
    takes_whole,
)

Order = Literal["cpd", "dfs"]


class FusionParams(Params):
    """Parameters of operation fusion."""

    #: The paper's R, the most ops that are fused; 1: none.
    reach: int = Field(default=REACH, ge=1)
    #: The paper's M, the most of a device's memory that fused ops hold together.
    memory_share: float = Field(default=MEMORY_SHARE, gt=0, le=1)
    #: Whether fused ops that no device has room for go whole to the one with the most bytes left,
    #: as in the paper; the referee rejects a plan that overfills a device, and states by how much.
    best_effort: bool = False


class OrderPlaceParams(FusionParams):
    #: The topological order of ops and of fused ops: CPD-TOPO or DFS-TOPO.
    order: Order = "cpd"


@method(
    "order-place",
    objectives=("makespan",),
    cites="Xu et al. 2022 (Celeritas), section 5.2",
    starts={"makespan": Cost(0.5, 6.0)},
)
def order_place(task: Task[Makespan], params: OrderPlaceParams | None = None) -> Outcome:
    """Fuses ops along critical paths, and fills one device after the other with them.

    Fill one device after the other with fused ops, in CPD-TOPO order. Xu, Liao, Xie, Zhou,
    "Celeritas: fast optimizer for large dataflow graphs", section 5.2. A heuristic; it looks at no
    time but those that order and fuse the ops. With ``order=dfs`` and ``reach=1`` it is the
    sequential placement of the paper's Standard Evaluation, in DFS-TOPO order. Where the memory of
    the first device suffices, everything is there. The plan gives no orders. O((V + E) reach + V K)
    time.

    Deviations: what the current device cannot run goes to the nearest later device that takes it;
    fused ops that no later device takes are taken apart; a colocation group is committed whole with
    its first op.
    """
    chosen = params or OrderPlaceParams()
    clusters, flow = fused_clusters(task.instance, chosen, chosen.order)
    admission = admission_of(task.instance.arrays)
    stuck = _fill(admission, clusters, _sorted(flow, chosen.order), chosen.best_effort)
    return committed_plan(task.instance, admission, int(stuck))


class MTopoFillParams(Params):
    """Which bytes of a colocation group count, and what an op does that fits nowhere."""

    #: Those of all ops, or only those of the first, as section 6.5.2 says of m-TOPO: such a plan
    #: may overfill a device, which the referee rejects.
    group_bytes: Literal["whole", "first"] = "whole"
    #: Whether what fits nowhere goes to the device with the most bytes left (section 6.3); the
    #: referee rejects a plan that overfills a device, and states by how much.
    best_effort: bool = False


@method("m-topo-fill", objectives=("makespan",), cites="Xu et al. 2022 (Celeritas), section 4.2")
def m_topo_fill(task: Task[Makespan], params: MTopoFillParams | None = None) -> Outcome:
    """Fills devices in m-TOPO's order, each to its limit.

    The m-TOPO that Celeritas measures against DFS-TOPO in figure 6 of Xu, Liao, Xie, Zhou,
    "Celeritas: fast optimizer for large dataflow graphs": ops in m-TOPO's order (section 4.2: of
    those without open inputs the one that has waited longest), on one device "until reaching its
    memory limit", then on the next. Baechi's `m-topo` has the same order and gives each device an
    equal share. A heuristic that looks at no time and no transfer. The plan gives no orders. O(V K
    + E).

    Deviations: what the current device cannot run goes to the nearest later device that takes it; a
    colocation group is committed whole with its first op.
    """
    chosen, arrays = params or MTopoFillParams(), task.instance.arrays
    order, admission = arrays.index.topological_order.copy(), admission_of(arrays)
    if chosen.group_bytes == "first":
        first = np.unique(arrays.group[order], return_index=True)[1]
        admission.group_bytes[:] = arrays.resident_bytes[order[first]]
    singles = clusters_of(np.arange(len(order)), order, arrays.num_groups)
    stuck = _fill(admission, singles, order, chosen.best_effort)
    return committed_plan(task.instance, admission, int(stuck))


def fused_clusters(
    instance: Instance, params: FusionParams, order: Order = "cpd"
) -> tuple[Clusters, Flow]:
    """The clusters that fusion makes, and the flow between them; they are numbered along it."""
    arrays, flow = instance.arrays, flow_of(instance.arrays)
    ops = _sorted(flow, order)
    segment = fusion_segments(arrays, flow, ops, params.reach, params.memory_share)
    tensor = arrays.index.tensor[arrays.index.succ_edge]
    return clusters_of(segment, ops, arrays.num_groups), contracted(flow, tensor, segment)


def _sorted(flow: Flow, order: Order) -> Ints:
    return cpd_topo(flow) if order == "cpd" else dfs_topo(flow)


def committed_plan(instance: Instance, admission: Admission, stuck: int) -> Outcome:
    """The plan that has every op where its group is committed, without orders."""
    if stuck != NOWHERE:
        return nowhere(instance, stuck, admission)
    return Outcome(Plan(placement(admission.home[admission.group])))


@kernel(bounded=True)
def _fill(admission: Admission, clusters: Clusters, order: Ints, best_effort: bool) -> Any:
    """Commit the clusters in order; the op that fits nowhere, or -1."""
    # of one type, whatever they are set to
    current: Any = np.int64(0)
    for c in order:
        at: Any = np.int64(NOWHERE)
        stays = not takes_whole(admission, clusters, c, current, True)
        for k in range(current, len(admission.free_bytes)):
            if takes_whole(admission, clusters, c, k, False):
                at = k
                break
        if at == NOWHERE and best_effort:
            at, stays = emptiest(admission, clusters, c), True
        is_whole = at != NOWHERE
        stuck = settle_ops(
            admission, clusters, c, at if is_whole else current, best_effort and is_whole
        )
        if stuck != NOWHERE:
            return stuck
        if is_whole and not stays:
            current = at
    return NOWHERE


class CeleritasParams(FusionParams):
    #: Whether transfers take the time of both devices (6.1); by default where channels are not
    #: free.
    transfer_tasks: bool | None = None


@method(
    "celeritas",
    objectives=("makespan",),
    cites="Xu et al. 2022 (Celeritas), section 5.2",
    starts={"makespan": Cost(0.5, 6.0)},
)
def celeritas(task: Task[Makespan], params: CeleritasParams | None = None) -> Outcome:
    """Fuses ops along critical paths, and changes the device only if another is much less loaded.

    Xu, Liao, Xie, Zhou, "Celeritas: fast optimizer for large dataflow graphs", sections 5.1 and
    5.2: optimal operation fusion, then Adjusting Placement (Algorithm 2) along the CPD-TOPO order
    of the fused ops. These start in the first idle gap that is long enough; they leave the device
    of the fused ops before if the earliest start elsewhere is earlier by more than the dearest edge
    of the coarse graph back to it. An edge of the coarse graph, in (2), (3), (7) and (8), is all
    that one cluster sends another: its tensors' times add up, a tensor counts once. A heuristic for
    the makespan. The plan gives no orders. Small graphs without memory limits are fused to one op:
    lower `reach` for these. O((V + E) reach + (V + E) K) time.

    Deviations: the lower limit of (5) and the arg max of Algorithm 2 are corrected; a colocation
    group is committed whole with its first op; fused ops that fit nowhere are taken apart; of equal
    starts the earliest finish counts; with `transfer_tasks` a transfer takes both devices' time.
    """
    chosen = params or CeleritasParams()
    sends = chosen.transfer_tasks
    if sends is None:
        sends = task.semantics.channels != "free"
    instance = task.instance
    clusters, flow = fused_clusters(instance, chosen)
    admission = admission_of(instance.arrays)
    problem, num_devices = problem_of(instance.arrays), instance.num_devices
    num_tensors = len(problem.inputs.transfer_ns) if sends else 0
    nothing = Committed(
        np.zeros(len(clusters.ptr) - 1, np.int64),
        idle_devices(num_devices, instance.num_ops + (2 * len(problem.inputs.op) if sends else 0)),
        np.zeros(1, np.int64),
        np.full((num_tensors, num_devices), NOWHERE),
        np.zeros(num_tensors + 1, np.int64),
        *np.empty((2, len(problem.inputs.op)), np.int64),
    )
    order, traffic = cpd_topo(flow), traffic_of(problem, clusters)
    stuck = adjust(problem, admission, clusters, traffic, order, nothing, sends, chosen.best_effort)
    return committed_plan(instance, admission, int(stuck))


class Traffic(NamedTuple):
    """Tensors between clusters, once to each, by the cluster at this end, then the other."""

    # Tensor ``tensor[ptr[c]:ptr[c + 1]]`` of op `op`, to or from cluster `other`.
    ptr: Ints
    other: Ints
    op: Ints
    tensor: Ints


def traffic_of(problem: Problem, clusters: Clusters) -> tuple[Traffic, Traffic]:
    """What the clusters receive, and what they send."""
    edges, op = crossing(problem.succ_ptr, problem.succ_op, problem.succ_tensor, clusters.of)
    ends = clusters.of[op], clusters.of[problem.succ_op[edges]]
    tensor, num_clusters = problem.succ_tensor[edges], len(clusters.ptr) - 1
    found = []
    for here, there in (ends[::-1], ends):
        ptr, by = group_by(here, num_clusters)
        found.append(Traffic(ptr, there[by], op[by], tensor[by]))
    return found[0], found[1]


class Committed(NamedTuple):
    """What is placed so far: the end of each cluster, (C,), and what keeps the devices busy."""

    # `pieces` (1,) are in the gaps' trees by now. `there_ns` (t, K) is when a tensor is on a
    # device, -1 if it was not sent. The rest is scratch: `mark` (t + 1,) is the last call that met
    # a tensor, and the number of calls; `lacking` is a heap of edges, and `ready_ns` their keys.
    end: Ints
    gaps: Gaps
    pieces: Ints
    there_ns: Ints
    mark: Ints
    lacking: Ints
    ready_ns: Ints


@kernel(bounded=True)
def adjust(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    traffic: tuple[Traffic, Traffic],
    order: Ints,
    booked: Committed,
    sends: bool,
    best_effort: bool,
) -> Any:
    """Adjusting Placement: commit the clusters in order; the op that fits nowhere, or -1."""
    # `admission` and `booked` are of empty devices, and are changed. `sends` says whether transfers
    # take the time of both devices, or nothing; with `best_effort`, clusters without room go to the
    # device with the most bytes left.
    num_devices, inputs = problem.time_ns.shape[1], problem.inputs
    received, sent = traffic
    arrival, busy = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    # of one type, whatever they are set to
    before: Any = np.int64(NOWHERE)
    trial: Any = np.bool_(False)
    booking: Any = np.bool_(True)
    for c in order:
        # when its inputs are on each device, equation (7), and the time of its committed ops
        set_all(arrival, 0)
        set_all(busy, 0)
        is_open = False
        for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
            home = admission.home[admission.group[op]]
            if home != NOWHERE:
                busy[home] += problem.time_ns[op, home]
            is_open = is_open or home == NOWHERE
        for k in range(num_devices):
            if sends:
                arrival[k] = receive(problem, admission, clusters, booked, c, k, trial)
                continue
            begins, of = np.int64(0), np.int64(NOWHERE)
            for e in range(received.ptr[c], received.ptr[c + 1]):
                if received.other[e] != of:
                    of = received.other[e]
                    begins = booked.end[of]
                source = admission.home[admission.group[received.op[e]]]
                begins += inputs.transfer_ns[received.tensor[e], inputs.link_class[source, k]]
                arrival[k] = max(arrival[k], begins)
        if is_open:
            best, of_before = _earliest(
                problem, admission, clusters, c, arrival, busy, booked.gaps, before
            )
            at: Any = best[1]
            if at != NOWHERE and of_before >= 0 and at != before:
                # the dearest edge of the coarse graph back to the device before, equation (8)
                back, edge, link = np.int64(0), np.int64(0), inputs.link_class[at, before]
                for e in range(sent.ptr[c], sent.ptr[c + 1]):
                    if e > sent.ptr[c] and sent.other[e] != sent.other[e - 1]:
                        edge = np.int64(0)
                    edge += inputs.transfer_ns[sent.tensor[e], link]
                    back = max(back, edge)
                if of_before - best[0] <= back:
                    at = before
            if at == NOWHERE and best_effort:
                at = emptiest(admission, clusters, c)
            is_whole = at != NOWHERE
            stuck = settle_ops(
                admission, clusters, c, at if is_whole else before, best_effort and is_whole
            )
            if stuck != NOWHERE:
                return stuck
            if is_whole:
                before = at
        set_all(busy, NOWHERE)  # from here on of devices that have no op of the cluster
        for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
            home = admission.home[admission.group[op]]
            busy[home] = max(0, busy[home]) + problem.time_ns[op, home]
        for k in range(num_devices):
            if sends and busy[k] != NOWHERE:
                arrival[k] = receive(problem, admission, clusters, booked, c, k, booking)
        for k in range(num_devices):
            if busy[k] != NOWHERE:
                gap = first_fit(booked.gaps, k, arrival[k], busy[k])
                start = max(arrival[k], booked.gaps.begin_ns[gap])
                occupy(booked.gaps, k, gap, booked.pieces[0], start, busy[k])
                booked.pieces[0] += 1
                booked.end[c] = max(booked.end[c], start + busy[k])
    return NOWHERE


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
        if not takes_whole(admission, clusters, c, k, False):
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


@kernel(bounded=True)
def receive(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    booked: Committed,
    c: int,
    k: int,
    book: bool,
) -> Any:
    """When the inputs of cluster c are on device k."""
    # Inputs are those of its ops that are on k or nowhere yet. They are sent one after the other,
    # by the end of their producers, each in the first interval that both devices have idle. As all
    # of them involve k, a trial (`book` false) finds the same times as the booking.
    inputs, gaps, there_ns, mark = problem.inputs, booked.gaps, booked.there_ns, booked.mark
    mark[-1] += 1
    call = mark[-1]
    arrival = np.int64(0)
    lacking, size, ready_ns = booked.lacking, 0, booked.ready_ns  # edges, by when they are ready
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        home = admission.home[admission.group[op]]
        if home not in (k, NOWHERE):
            continue
        for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
            u, producer = inputs.tensor[e], inputs.op[e]
            if clusters.of[producer] == c:
                continue
            source = admission.home[admission.group[producer]]
            ready = booked.end[clusters.of[producer]]
            if source == k:
                arrival = max(arrival, ready)
            elif there_ns[u, k] != NOWHERE:
                arrival = max(arrival, there_ns[u, k])
            elif mark[u] != call:
                mark[u] = call
                ready_ns[e] = ready
                size = push(lacking, size, ready_ns, e)
    free_from, ready, sending, receiving = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while size > 0:
        e = lacking[0]
        size = pop(lacking, size, ready_ns)
        u, ready, source = (
            inputs.tensor[e],
            ready_ns[e],
            admission.home[admission.group[inputs.op[e]]],
        )
        duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
        there = ready
        if duration > 0:
            start = max(ready, free_from)
            while True:  # the first gap that both devices have
                sending = first_fit(gaps, source, start, duration)
                start = max(start, gaps.begin_ns[sending])
                receiving = first_fit(gaps, k, start, duration)
                if gaps.begin_ns[receiving] <= start:
                    break
                start = gaps.begin_ns[receiving]
            there = free_from = start + duration
            if book:
                occupy(gaps, source, sending, booked.pieces[0], start, duration)
                occupy(gaps, k, receiving, booked.pieces[0] + 1, start, duration)
                booked.pieces[0] += 2
        if book:
            there_ns[u, k] = there
        arrival = max(arrival, there)
    return arrival
