"""Order-Place: fused ops fill the devices one after the other, along CPD-TOPO or DFS-TOPO."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.mean_costs import Flow, contracted, flow_of
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Makespan
from placegap.instances.problem.weighted_dag import cpd_topo, dfs_topo
from placegap.instances.transforms.celeritas_fusion import MEMORY_SHARE, REACH, fusion_segments
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    admission_of,
    nowhere,
    placement,
)
from placegap.solvers.placers.whole_clusters import (
    Clusters,
    clusters_of,
    is_committed,
    runs_whole,
    settle_apart,
    settle_whole,
    takes_whole,
)

Order = Literal["cpd", "dfs"]


class FusionParams(Params):
    """Parameters of operation fusion.

    Attributes
    ----------
    reach : int
        The paper's R, the most ops that are fused; 1: none.
    memory_share : float
        The paper's M, the most of a device's memory that fused ops hold together.
    """

    reach: int = Field(default=REACH, ge=1)
    memory_share: float = Field(default=MEMORY_SHARE, gt=0, le=1)


class OrderPlaceParams(FusionParams):
    """Also `order`, the topological order of ops and of fused ops: CPD-TOPO or DFS-TOPO."""

    order: Order = "cpd"


def order_place(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Fill one device after the other with fused ops, in CPD-TOPO order.

    Xu, Liao, Xie, Zhou, "Celeritas: fast optimizer for large dataflow graphs", section 5.2. A
    heuristic; it looks at no time but those that order and fuse the ops. With ``order=dfs`` and
    ``reach=1`` it is the sequential placement of the paper's Standard Evaluation, in DFS-TOPO
    order. Where the memory of the first device suffices, everything is there.
    Added to the paper: what the current device cannot run goes to the nearest later device that
    takes it, and the filling stays where it is; fused ops that no later device takes are taken
    apart, each to the current device, else to the emptiest; where the paper's best effort overfills
    a device, there is no plan. A colocation group is committed whole with its first op. The plan
    gives no orders.
    O((V + E) reach + V K) time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> order_place(Task(example(), Makespan())).plan.placement
    ((0,), (0,), (0,), (0,))
    """
    chosen = params if isinstance(params, OrderPlaceParams) else OrderPlaceParams()
    clusters, flow = fused_clusters(task.instance, chosen, chosen.order)
    admission = admission_of(task.instance.arrays)
    stuck = _fill(admission, clusters, _sorted(flow, chosen.order))
    return committed_plan(task.instance, admission, int(stuck))


def fused_clusters(
    instance: Instance, params: FusionParams, order: Order = "cpd"
) -> tuple[Clusters, Flow]:
    """The clusters that fusion makes, and the flow between them; they are numbered along it."""
    arrays, flow = instance.arrays, flow_of(instance.arrays)
    ops = _sorted(flow, order)
    segment = fusion_segments(arrays, flow, ops, params.reach, params.memory_share)
    return clusters_of(segment, ops, arrays.num_groups), contracted(flow, segment)


def _sorted(flow: Flow, order: Order) -> Ints:
    return cpd_topo(flow) if order == "cpd" else dfs_topo(flow)


def committed_plan(instance: Instance, admission: Admission, stuck: int) -> Outcome:
    """The plan that has every op where its group is committed, without orders."""
    if stuck != NOWHERE:
        return nowhere(instance, stuck, admission)
    return Outcome(Plan(placement(admission.home[admission.group])))


@kernel
def _fill(admission: Admission, clusters: Clusters, order: Ints) -> Any:
    """Commit the clusters in order; the op that fits nowhere, or -1."""
    num_devices = len(admission.free_bytes)
    # no literals as arguments: numba compiles the kernel that is called for each of them anew
    current: Any = np.int64(0)
    nowhere: Any = np.int64(NOWHERE)
    for c in order:
        if is_committed(admission, clusters, c):
            continue
        at, stays = nowhere, not runs_whole(admission, clusters, c, current)
        for k in range(current, num_devices):
            if takes_whole(admission, clusters, c, k):
                at = k
                break
        if at == NOWHERE:
            stuck = settle_apart(admission, clusters, c, current)
            if stuck != NOWHERE:
                return stuck
            continue
        settle_whole(admission, clusters, c, at)
        if not stays:
            current = at
    return NOWHERE


register(
    Method(
        name="order-place",
        claim="heuristic",
        objectives=("makespan",),
        paper="Xu et al. 2022 (Celeritas)",
        cites=("xu2022, section 5.2",),
        summary="fuses ops along critical paths, and fills one device after the other with them",
        starts={"makespan": Cost(0.6, 3.2)},
        run=order_place,
        params=OrderPlaceParams,
    )
)
