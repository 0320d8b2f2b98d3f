"""LC, DSC and GLB: which ops are clustered, and where the clusters go."""

import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.placers import Facts, table_instance

from placegap.instances import Instance
from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.problem.weighted_dag import bottom_levels, predecessors
from placegap.solvers.placers.cluster_balancing import (
    balance,
    dominant_sequence_clusters,
    linear_clusters,
)


def slow_linear_clusters(instance: Instance) -> list[int]:
    """The longest path of what is left, computed anew for every cluster."""
    facts, flow = Facts(instance), flow_of(instance.arrays)
    edge_ns = {}
    for i in range(facts.n):
        for e in range(flow.ptr[i], flow.ptr[i + 1]):
            key = i, int(flow.succ[e])
            edge_ns[key] = max(edge_ns.get(key, 0), int(flow.edge_ns[e]))
    cluster, number = [-1] * facts.n, 0
    while -1 in cluster:
        level: dict[int, int] = {}
        follower: dict[int, int | None] = {}
        for i in reversed(facts.topological):
            if cluster[i] < 0:
                best: tuple[int, int, int | None] = (0, 0, None)
                for j in {j for j, _ in facts.outputs[i] if cluster[j] < 0}:
                    best = min(best, (-(edge_ns[i, j] + level[j]), facts.position[j], j))
                level[i] = int(flow.node_ns[i]) - best[0]
                follower[i] = best[2]
        at: int | None = min(level, key=lambda i: (-level[i], facts.position[i]))
        while at is not None:
            cluster[at], at = number, follower[at]
        number += 1
    return cluster


def partition(cluster: list[int]) -> set[frozenset[int]]:
    """Clusters without their numbers."""
    return {frozenset(i for i, other in enumerate(cluster) if other == c) for c in set(cluster)}


@pytest.mark.parametrize("seed", range(25))
def test_linear_clusters_are_the_longest_paths_of_what_is_left(seed: int) -> None:
    instance = tiny_instance(seed, num_ops=16, density=0.2)
    times = [
        op.model_copy(update={"time_ns": {k: t + 1 for k, t in op.time_ns.items()}})
        for op in instance.graph.ops  # zero times make ties of paths of different lengths
    ]
    graph = instance.graph.model_copy(update={"ops": tuple(times)})
    instance = instance.model_copy(update={"graph": graph})
    flow = flow_of(instance.arrays)
    found = linear_clusters(flow, predecessors(flow), bottom_levels(flow))[0].tolist()
    assert partition(found) == partition(slow_linear_clusters(instance))


def test_a_linear_cluster_starts_when_its_inputs_are_there() -> None:
    # T1 -> T2 (10) -> T4 is the longest path; T3 apart starts at 2 + 3, T4 at 12 or 5 + 1 + 3
    instance = table_instance(((2, 2), (10, 10), (1, 1), (2, 2)), "1-2 9, 1-3 3, 2-4 9, 3-4 3")
    flow = flow_of(instance.arrays)
    cluster, start = linear_clusters(flow, predecessors(flow), bottom_levels(flow))
    assert cluster.tolist() == [0, 0, 1, 0]
    assert start.tolist() == [0, 2, 5, 12]


def test_an_op_joins_a_parent_only_to_start_earlier() -> None:
    # T2 (5 behind T1's 2) joins T1: 2 instead of 11. T3 would start behind T2 at 7, apart at 5.
    # T4 needs T2 (7, or 7 + 9) and T3 (6 + 3 = 9): it joins T2 at 9.
    instance = table_instance(((2, 2), (5, 5), (1, 1), (2, 2)), "1-2 9, 1-3 3, 2-4 9, 3-4 3")
    flow = flow_of(instance.arrays)
    cluster, start = dominant_sequence_clusters(flow, predecessors(flow), bottom_levels(flow))
    assert cluster.tolist() == [0, 0, 1, 0]
    assert start.tolist() == [0, 2, 5, 9]


def test_clusters_go_by_start_to_the_device_of_least_load() -> None:
    # of starts 0, 1, 2, 3 and times 5, 3, 1, 4: d0, d1, d1 (3 < 5), d1 (4 < 5)
    instance = table_instance(((5, 5), (3, 3), (1, 1), (4, 4)), "")
    plan = balance(instance, np.arange(4), np.array([0, 1, 2, 3])).plan
    assert plan is not None
    assert plan.placement == ((0,), (1,), (1,), (1,))
