"""DSC + GLB: dominant sequence clustering, then load balancing."""

from __future__ import annotations

from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.cluster_balancing import balance, dominant_sequence_clusters


def dsc_glb(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Let each op join the cluster of a parent if it starts earlier there; balance the clusters.

    After Yang, Gerasoulis, "DSC: scheduling parallel tasks on an unbounded number of processors",
    IEEE TPDS 5(9), 1994, as Celeritas tells it, and `balance`. A heuristic for the makespan,
    which clusters for unboundedly many equal devices with free channels. Deviations: an op joins
    one parent's cluster and draws no other parent into it; the paper's guard for partially free
    ops (DSRW) is left out; costs that differ between devices enter as means, rounded down to whole
    ns; see `balance` for memory, colocation and device support.
    O((V + E) log V + V K) time.

    Examples
    --------
    op3 joins op1, op2 then starts earlier apart, and op4 joins op2:

    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = dsc_glb(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (1,), (0,), (1,)), 34)
    """
    cluster, start_ns = dominant_sequence_clusters(flow_of(task.instance.arrays))
    return balance(task.instance, cluster, start_ns)


register(
    Method(
        name="dsc-glb",
        claim="heuristic",
        objectives=("makespan",),
        paper="Yang and Gerasoulis 1994; Radulescu and van Gemund 1998",
        cites=("yang1994", "radulescu1998"),
        summary="dominant sequence clustering, then guided load balancing",
        starts={"makespan": Cost(0.3, 2.0)},
        run=dsc_glb,
        params=Params,
    )
)
