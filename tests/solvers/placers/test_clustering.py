"""LC, DSC and GLB: which ops are clustered, and where the clusters go."""

from __future__ import annotations

import numpy as np
from references.placers import table_instance

from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.problem.weighted_dag import predecessors
from placegap.solvers.placers.cluster_balancing import (
    balance,
    dominant_sequence_clusters,
    linear_clusters,
)


def test_a_linear_cluster_starts_when_its_inputs_are_there() -> None:
    # T1 -> T2 (10) -> T4 is the longest path; T3 apart starts at 2 + 3, T4 at 12 or 5 + 1 + 3
    instance = table_instance(((2, 2), (10, 10), (1, 1), (2, 2)), "1-2 9, 1-3 3, 2-4 9, 3-4 3")
    flow = flow_of(instance.arrays)
    cluster, start = linear_clusters(flow, predecessors(flow))
    assert cluster.tolist() == [0, 0, 1, 0]
    assert start.tolist() == [0, 2, 5, 12]


def test_an_op_joins_a_parent_only_to_start_earlier() -> None:
    # T2 (5 behind T1's 2) joins T1: 2 instead of 11. T3 would start behind T2 at 7, apart at 5.
    # T4 needs T2 (7, or 7 + 9) and T3 (6 + 3 = 9): it joins T2 at 9.
    instance = table_instance(((2, 2), (5, 5), (1, 1), (2, 2)), "1-2 9, 1-3 3, 2-4 9, 3-4 3")
    flow = flow_of(instance.arrays)
    cluster, start = dominant_sequence_clusters(flow, predecessors(flow))
    assert cluster.tolist() == [0, 0, 1, 0]
    assert start.tolist() == [0, 2, 5, 9]


def test_clusters_go_by_start_to_the_device_of_least_load() -> None:
    # of starts 0, 1, 2, 3 and times 5, 3, 1, 4: d0, d1, d1 (3 < 5), d1 (4 < 5)
    instance = table_instance(((5, 5), (3, 3), (1, 1), (4, 4)), "")
    plan = balance(instance, np.arange(4), np.array([0, 1, 2, 3])).plan
    assert plan.placement == ((0,), (1,), (1,), (1,))
