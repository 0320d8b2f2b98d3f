"""LC + GLB: linear clustering, then load balancing."""

from __future__ import annotations

from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.cluster_balancing import balance, linear_clusters


def lc_glb(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Cluster the longest path, then that of what is left, and so on; balance the clusters.

    Kim, Browne, "A general approach to mapping of parallel computations upon multiprocessor
    architectures", ICPP 1988, and `balance`. A heuristic for the makespan, which clusters
    for unboundedly many equal devices with free channels. A path takes its ops out of the graph,
    with all their edges. Deviation: costs that differ between devices enter as means, rounded down
    to whole ns; see `balance` for memory, colocation and device support.
    O((V + E) log V + V K) time and at worst O(V + E) per cluster.

    Examples
    --------
    The longest path of the diamond is op1, op3, op4:

    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = lc_glb(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (1,), (0,), (0,)), 35)
    """
    cluster, start_ns = linear_clusters(flow_of(task.instance.arrays))
    return balance(task.instance, cluster, start_ns)


register(
    Method(
        name="lc-glb",
        claim="heuristic",
        objectives=("makespan",),
        paper="Kim and Browne 1988; Radulescu and van Gemund 1998",
        cites=("kim1988", "radulescu1998"),
        summary="linear clustering, then guided load balancing",
        starts={"makespan": Cost(0.3, 2.4)},
        run=lc_glb,
        params=Params,
    )
)
