"""Clustering for unboundedly many devices: linear clusters, and those of dominant sequences."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel, sizes_of
from placegap.instances.problem.mean_costs import Flow
from placegap.instances.problem.weighted_dag import predecessors
from placegap.solvers.placers.list_problem import NOWHERE


@kernel
def linear_clusters(flow: Flow) -> tuple[Ints, Ints]:
    """Repeatedly take the longest path of what is left, with its transfers, for a cluster.

    Kim, Browne 1988. Ties: the flow's order. Longest paths are kept up to date behind each path
    that is taken, so that only ops whose longest path passed through it are looked at again: at
    worst O(V + E) per path.

    Returns
    -------
    cluster, start : (n,) int64
        Cluster of each node, numbered as they are found; start of each node in ns if every cluster
        has a device of its own.
    """
    n = len(flow.node_ns)
    ptr, node_in, _ = predecessors(flow)
    position = np.empty(n, np.int64)
    position[flow.order] = np.arange(n)
    cluster = np.full(n, NOWHERE)
    level = np.zeros(n, np.int64)  # longest path from the node on, among nodes without a cluster
    for node in flow.order[::-1]:
        level[node] = _level(flow, cluster, level, node)
    heap = [(-level[node], position[node], node) for node in range(n)]
    heapq.heapify(heap)
    queued = np.zeros(n, np.bool_)
    number = 0
    while len(heap) > 0:
        length, _, node = heapq.heappop(heap)
        if cluster[node] != NOWHERE or -length != level[node]:
            continue
        todo: list[Any] = [
            (np.int64(0), np.int64(0)) for _ in range(0)
        ]  # (-position, node): the last first
        while node != NOWHERE:
            cluster[node] = number
            for before in node_in[ptr[node] : ptr[node + 1]]:
                if cluster[before] == NOWHERE and not queued[before]:
                    queued[before] = True
                    todo.append((-position[before], before))
            follower = NOWHERE
            for e in range(flow.ptr[node], flow.ptr[node + 1]):
                succ = flow.succ[e]
                behind = flow.node_ns[node] + flow.edge_ns[e] + level[succ]
                on_path = cluster[succ] == NOWHERE and behind == level[node]
                if on_path and (follower == NOWHERE or position[succ] < position[follower]):
                    follower = succ
            node = follower
        number += 1
        heapq.heapify(todo)
        while len(todo) > 0:
            node = heapq.heappop(todo)[1]
            queued[node] = False
            if cluster[node] != NOWHERE:
                continue
            now = _level(flow, cluster, level, node)
            if now == level[node]:
                continue
            level[node] = now
            heapq.heappush(heap, (-now, position[node], node))
            for before in node_in[ptr[node] : ptr[node + 1]]:
                if cluster[before] == NOWHERE and not queued[before]:
                    queued[before] = True
                    heapq.heappush(todo, (-position[before], before))
    start = np.zeros(n, np.int64)
    for node in flow.order:
        for e in range(flow.ptr[node], flow.ptr[node + 1]):
            sent = start[node] + flow.node_ns[node]
            if cluster[flow.succ[e]] != cluster[node]:
                sent += flow.edge_ns[e]
            start[flow.succ[e]] = max(start[flow.succ[e]], sent)
    return cluster, start


@kernel
def _level(flow: Flow, cluster: Ints, level: Ints, node: Any) -> Any:
    """Longest path from the node on, among nodes without a cluster."""
    longest = np.int64(0)
    for e in range(flow.ptr[node], flow.ptr[node + 1]):
        if cluster[flow.succ[e]] == NOWHERE:
            longest = max(longest, flow.edge_ns[e] + level[flow.succ[e]])
    return longest + flow.node_ns[node]


@kernel
def dominant_sequence_clusters(flow: Flow) -> tuple[Ints, Ints]:
    """Take ready nodes by longest path through them; join a parent's cluster if it starts earlier.

    After Yang, Gerasoulis 1994. A node's priority is the start that its parents allow plus its
    longest path to the end. It goes behind the last node of the parents' cluster where it starts
    first, if that is before it could start alone; else it begins a cluster. Ties: the flow's
    order, then the first parent. O((V + E) log V).

    Returns
    -------
    cluster, start : (n,) int64
        Cluster of each node, numbered as they begin; start of each node in ns if every cluster has
        a device of its own.
    """
    n = len(flow.node_ns)
    ptr, node_in, edge_ns = predecessors(flow)
    position = np.empty(n, np.int64)
    position[flow.order] = np.arange(n)
    cluster, nobody = np.full(n, NOWHERE), np.full(n, NOWHERE)
    start, level = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for node in flow.order[::-1]:
        level[node] = _level(flow, nobody, level, node)
    waiting = sizes_of(ptr)
    cluster_end = np.zeros(n, np.int64)
    number = 0
    ready = [(-level[node], position[node], node) for node in range(n) if waiting[node] == 0]
    heapq.heapify(ready)
    while len(ready) > 0:
        node = heapq.heappop(ready)[2]
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
                heapq.heappush(ready, (-(start[succ] + level[succ]), position[succ], succ))
    return cluster, start
