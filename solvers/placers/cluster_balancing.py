"""LC + GLB and DSC + GLB: ops are clustered as if devices were many, and clusters go by load."""

from __future__ import annotations

from typing import Any

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push, sizes_of
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.mean_costs import Flow, flow_of
from placegap.instances.problem.weighted_dag import bottom_levels, predecessors
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.celeritas import committed_plan
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    Problem,
    admission_of,
    problem_of,
)
from placegap.solvers.placers.whole_clusters import Clusters, clusters_of, settle_ops, takes_whole


@method(
    "lc-glb", objectives=("makespan",), cites="Kim and Browne 1988; Radulescu and van Gemund 1998"
)
def lc_glb(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Linear clustering, then guided load balancing.

    Cluster the longest path, then that of what is left, and so on; balance the clusters. Kim,
    Browne, "A general approach to mapping of parallel computations upon multiprocessor
    architectures", ICPP 1988, and `balance`. A heuristic for the makespan, which clusters for
    unboundedly many equal devices with free channels. A path takes its ops out of the graph, with
    all their edges. O((V + E) log V + V K) time and at worst O(V + E) per cluster.

    Deviations: costs that differ between devices are averaged.
    """
    flow = flow_of(task.instance.arrays)
    cluster, start_ns = linear_clusters(flow, predecessors(flow), bottom_levels(flow))
    return balance(task.instance, cluster, start_ns)


@method(
    "dsc-glb",
    objectives=("makespan",),
    cites="Yang and Gerasoulis 1994; Radulescu and van Gemund 1998",
    starts={"makespan": Cost(0.3, 2.0)},
)
def dsc_glb(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Dominant sequence clustering, then guided load balancing.

    Let each op join the cluster of a parent if it starts earlier there; balance the clusters. After
    Yang, Gerasoulis, "DSC: scheduling parallel tasks on an unbounded number of processors", IEEE
    TPDS 5(9), 1994, as Celeritas describes it, and `balance`. A heuristic for the makespan, which
    clusters for unboundedly many equal devices with free channels. O((V + E) log V + V K) time.

    Deviations: an op joins one parent's cluster and draws no other parent into it; the guard for
    partially free ops (DSRW) is left out, as the paper was not available; costs that differ between
    devices are averaged.
    """
    flow = flow_of(task.instance.arrays)
    cluster, start_ns = dominant_sequence_clusters(flow, predecessors(flow), bottom_levels(flow))
    return balance(task.instance, cluster, start_ns)


def balance(instance: Instance, cluster: Ints, start_ns: Ints) -> Outcome:
    """Give clusters by earliest start, that of their first op, to the device of least load."""
    # Radulescu, van Gemund, "GLB: a low-cost scheduling algorithm for distributed-memory
    # architectures", HiPC 1998, as Celeritas describes it. A device's load is the time of the ops
    # that it got before. Filled in: the load counts the cluster in question, which is the same on
    # equal devices; ties go to the first device. Added: devices must run the cluster and have room
    # for it, with its colocation groups; a cluster that no device takes is taken apart, each op to
    # the emptiest device. The plan gives no orders.
    arrays = instance.arrays
    first = np.full(int(cluster.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, cluster, start_ns)
    clusters = clusters_of(cluster, arrays.index.topological_order, arrays.num_groups)
    admission = admission_of(arrays)
    order = np.argsort(first, kind="stable")
    return committed_plan(
        instance, admission, int(_balance(problem_of(arrays), admission, clusters, order))
    )


@kernel(bounded=True)
def _balance(problem: Problem, admission: Admission, clusters: Clusters, order: Ints) -> Any:
    """Commit the clusters in order; the op that fits nowhere, or -1."""
    num_devices = problem.time_ns.shape[1]
    load = np.zeros(num_devices, np.int64)
    fits: Any = np.bool_(False)  # no literal: the kernels called are compiled once
    for c in order:
        at: Any = np.int64(NOWHERE)
        least = np.int64(0)
        for k in range(num_devices):
            if not takes_whole(admission, clusters, c, k, fits):
                continue
            total = load[k]
            for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
                if admission.home[admission.group[op]] == NOWHERE:
                    total += problem.time_ns[op, k]
            if at == NOWHERE or total < least:
                at, least = k, total
        stuck = settle_ops(admission, clusters, c, at, fits)
        if stuck != NOWHERE:
            return stuck
        for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
            home = admission.home[admission.group[op]]
            load[home] += problem.time_ns[op, home]
    return NOWHERE


@kernel(bounded=True)
def linear_clusters(flow: Flow, into: tuple[Ints, Ints, Ints], level: Ints) -> tuple[Ints, Ints]:
    """Repeatedly take the longest path of what is left, with its transfers, for a cluster."""
    # Kim, Browne 1988. Ties: the flow's order. Longest paths are kept up to date behind each path
    # that is taken, so that only ops whose longest path passed through it are looked at again: at
    # worst O(V + E) per path. It returns the cluster of each node, numbered as they are found, and
    # its start in ns if every cluster has a device of its own. `level` is used up.
    n = len(flow.node_ns)
    ptr, node_in, _ = into
    position = np.empty(n, np.int64)
    position[flow.order] = np.arange(n)
    cluster = np.full(n, NOWHERE)
    # positions, by the level when they were put there: those of lower levels by now go back
    heap, heap_size, key = np.empty(n, np.int64), 0, np.empty(n, np.int64)
    backwards = np.empty(n, np.int64)
    for p in range(n):
        key[p], backwards[p] = -level[flow.order[p]], -p
        heap_size = push(heap, heap_size, key, p)
    todo, todo_size = np.empty(n, np.int64), 0  # positions, the last first
    queued = np.zeros(n, np.bool_)
    number = 0
    while heap_size > 0:
        first = heap[0]
        heap_size = pop(heap, heap_size, key)
        node = flow.order[first]
        if cluster[node] != NOWHERE:
            continue
        if -key[first] != level[node]:
            key[first] = -level[node]
            heap_size = push(heap, heap_size, key, first)
            continue
        while node != NOWHERE:
            cluster[node] = number
            for at in range(ptr[node], ptr[node + 1]):
                before = node_in[at]
                if cluster[before] == NOWHERE and not queued[before]:
                    queued[before] = True
                    todo_size = push(todo, todo_size, backwards, position[before])
            follower = NOWHERE
            for e in range(flow.ptr[node], flow.ptr[node + 1]):
                succ = flow.succ[e]
                behind = flow.node_ns[node] + flow.edge_ns[e] + level[succ]
                on_path = cluster[succ] == NOWHERE and behind == level[node]
                if on_path and (follower == NOWHERE or position[succ] < position[follower]):
                    follower = succ
            node = follower
        number += 1
        while todo_size > 0:
            node = flow.order[todo[0]]
            todo_size = pop(todo, todo_size, backwards)
            queued[node] = False
            if cluster[node] != NOWHERE:
                continue
            now = np.int64(0)
            for e in range(flow.ptr[node], flow.ptr[node + 1]):
                if cluster[flow.succ[e]] == NOWHERE:
                    now = max(now, flow.edge_ns[e] + level[flow.succ[e]])
            now += flow.node_ns[node]
            if now == level[node]:
                continue
            level[node] = now
            for at in range(ptr[node], ptr[node + 1]):
                before = node_in[at]
                if cluster[before] == NOWHERE and not queued[before]:
                    queued[before] = True
                    todo_size = push(todo, todo_size, backwards, position[before])
    start = np.zeros(n, np.int64)
    for node in flow.order:
        for e in range(flow.ptr[node], flow.ptr[node + 1]):
            sent = start[node] + flow.node_ns[node]
            if cluster[flow.succ[e]] != cluster[node]:
                sent += flow.edge_ns[e]
            start[flow.succ[e]] = max(start[flow.succ[e]], sent)
    return cluster, start


@kernel(bounded=True)
def dominant_sequence_clusters(
    flow: Flow, into: tuple[Ints, Ints, Ints], level: Ints
) -> tuple[Ints, Ints]:
    """Take ready nodes by longest path through them; join a parent's cluster to start earlier."""
    # After Yang, Gerasoulis 1994. A node's priority is the start that its parents allow plus its
    # longest path to the end. It goes behind the last node of the parents' cluster where it starts
    # first, if that is before it could start alone; else it begins a cluster. Ties: the flow's
    # order, then the first parent. O((V + E) log V). It returns the same as `linear_clusters`.
    n = len(flow.node_ns)
    ptr, node_in, edge_ns = into
    position = np.empty(n, np.int64)
    position[flow.order] = np.arange(n)
    cluster, start = np.full(n, NOWHERE), np.zeros(n, np.int64)
    waiting = sizes_of(ptr)
    cluster_end = np.zeros(n, np.int64)
    number = 0
    ready, size, key = np.empty(n, np.int64), 0, np.empty(n, np.int64)  # positions
    for p in range(n):
        if waiting[flow.order[p]] == 0:
            key[p] = -level[flow.order[p]]
            size = push(ready, size, key, p)
    while size > 0:
        node = flow.order[ready[0]]
        size = pop(ready, size, key)
        # the latest input, and the latest from another cluster than that one's
        latest, of, other = np.int64(0), np.int64(NOWHERE), np.int64(0)
        for e in range(ptr[node], ptr[node + 1]):
            before = node_in[e]
            there = start[before] + flow.node_ns[before] + edge_ns[e]
            if cluster[before] == of:
                latest = max(latest, there)
            elif there > latest or of == NOWHERE:
                latest, of, other = there, cluster[before], latest
            else:
                other = max(other, there)
        best, joined = latest, np.int64(NOWHERE)
        for e in range(ptr[node], ptr[node + 1]):
            c = cluster[node_in[e]]
            begin = max(cluster_end[c], other if c == of else latest)
            if begin < best:
                best, joined = begin, c
        if joined == NOWHERE:
            joined = np.int64(number)
            number += 1
        cluster[node], start[node] = joined, best
        cluster_end[joined] = best + flow.node_ns[node]
        for e in range(flow.ptr[node], flow.ptr[node + 1]):
            succ = flow.succ[e]
            waiting[succ] -= 1
            # until its turn, `start` is when its inputs could be there
            start[succ] = max(start[succ], cluster_end[joined] + flow.edge_ns[e])
            if waiting[succ] == 0:
                key[position[succ]] = -(start[succ] + level[succ])
                size = push(ready, size, key, position[succ])
    return cluster, start
