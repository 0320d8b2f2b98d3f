"""GLB: guided load balancing of clusters over devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.kernels import kernel
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.celeritas import committed_plan
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    Problem,
    admission_of,
    problem_of,
)
from placegap.solvers.placers.whole_clusters import (
    Clusters,
    clusters_of,
    is_committed,
    settle_apart,
    settle_whole,
    takes_whole,
)


def balance(instance: Instance, cluster: Ints, start_ns: Ints) -> Outcome:
    """Give clusters by earliest start to the device of least load.

    Radulescu, van Gemund, "GLB: a low-cost scheduling algorithm for distributed-memory
    architectures", HiPC 1998, as Celeritas tells it. A device's load is the time of the ops that
    it got before. Filled in: the load counts the cluster in question, which is the same on equal
    devices; ties go to the first device. Added: devices must run the cluster and have room for it,
    with its colocation groups; a cluster that no device takes is taken apart, each op to the
    emptiest device. The plan gives no orders.

    Parameters
    ----------
    instance : Instance
    cluster : (n,) int64
        The cluster of each op.
    start_ns : (n,) int64
        Starts of ops as clustered; a cluster's is that of its first op.
    """
    arrays = instance.arrays
    first = np.full(int(cluster.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, cluster, start_ns)
    clusters = clusters_of(cluster, arrays.index.topological_order, arrays.num_groups)
    admission = admission_of(arrays)
    order = np.argsort(first, kind="stable")
    return committed_plan(
        instance, admission, int(_balance(problem_of(arrays), admission, clusters, order))
    )


@kernel
def _balance(problem: Problem, admission: Admission, clusters: Clusters, order: Ints) -> Any:
    """Commit the clusters in order; the op that fits nowhere, or -1."""
    num_devices = problem.time_ns.shape[1]
    load = np.zeros(num_devices, np.int64)
    nowhere: Any = np.int64(NOWHERE)  # no literal: the kernels called are compiled once
    for c in order:
        if not is_committed(admission, clusters, c):
            at, least = nowhere, np.int64(0)
            for k in range(num_devices):
                if not takes_whole(admission, clusters, c, k):
                    continue
                total = load[k]
                for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
                    if admission.home[admission.group[op]] == NOWHERE:
                        total += problem.time_ns[op, k]
                if at == NOWHERE or total < least:
                    at, least = k, total
            if at == NOWHERE:
                stuck = settle_apart(admission, clusters, c, nowhere)
                if stuck != NOWHERE:
                    return stuck
            else:
                settle_whole(admission, clusters, c, at)
        for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
            home = admission.home[admission.group[op]]
            load[home] += problem.time_ns[op, home]
    return NOWHERE
