"""Clusters of ops that go to devices whole, and whole colocation groups with them.

A cluster on a device takes the colocation groups that it meets first with it, all of their ops, as
in Celeritas (section 6.1): later clusters find these ops committed. A cluster that no device can
take whole is taken apart, op by op.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem.graph_index import group_by
from placegap.solvers.placers.list_problem import NOWHERE, Admission, admits, settle


class Clusters(NamedTuple):
    """C clusters of n ops: ops ``op[ptr[c]:ptr[c + 1]]``, cluster ``of[i]`` of op i."""

    # `mark` (g + 1,) is scratch: per colocation group, the last call that met it, and their number.
    ptr: Ints
    op: Ints
    of: Ints
    mark: Ints


def clusters_of(cluster: Ints, order: Ints, num_groups: int) -> Clusters:
    """Clusters from the number of each op's; within a cluster, ops come as in `order`."""
    ptr, members = group_by(cluster[order], int(cluster.max()) + 1)
    return Clusters(ptr, order[members], cluster, np.zeros(num_groups + 1, np.int64))


@kernel(allocates=False)
def takes_whole(
    admission: Admission, clusters: Clusters, c: int, device: int, overfills: bool
) -> bool:
    """Whether the device runs, and holds or overfills, all groups of the cluster without one."""
    clusters.mark[-1] += 1
    call, needed = clusters.mark[-1], 0
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        group = admission.group[op]
        if admission.home[group] == NOWHERE and clusters.mark[group] != call:
            clusters.mark[group] = call
            if not admission.group_runs[group, device]:
                return False
            needed += admission.group_bytes[group]
            if needed > admission.free_bytes[device] and not overfills:
                return False
    return True


@kernel(allocates=False)
def emptiest(admission: Admission, clusters: Clusters, c: int) -> int:
    """The device with the most bytes left of those that could run the cluster's groups; or -1."""
    best: Any = np.int64(NOWHERE)
    for k in range(len(admission.free_bytes)):
        if takes_whole(admission, clusters, c, k, True) and (
            best == NOWHERE or admission.free_bytes[k] > admission.free_bytes[best]
        ):
            best = np.int64(k)
    return int(best)


@kernel(bounded=True)
def settle_ops(
    admission: Admission, clusters: Clusters, c: int, preferred: int, overfills: bool
) -> Any:
    """Commit the cluster op by op: to the preferred device, else to the emptiest that admits it."""
    # It returns the first op that no device admits, or -1.
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        if admission.home[admission.group[op]] != NOWHERE:
            continue
        best = NOWHERE
        if overfills or (preferred != NOWHERE and admits(admission, op, preferred)):
            best = preferred
        else:
            for k in range(len(admission.free_bytes)):
                if admits(admission, op, k) and (
                    best == NOWHERE or admission.free_bytes[k] > admission.free_bytes[best]
                ):
                    best = k
        if best == NOWHERE:
            return op
        settle(admission, op, best)
    return NOWHERE
