"""Brute force: the oracle of the tests, exact for every objective, on a handful of ops."""

from __future__ import annotations

from placegap.instances.objectives.hybrid.checks import check as check_hybrid
from placegap.instances.objectives.max_load.checks import why_not_two_levels
from placegap.instances.objectives.staged_plans import (
    MOST_PLANS,
    MOST_STAGED_DEVICES,
    MOST_STAGED_OPS,
    best_chain,
    best_hybrid,
    best_stages,
    count_chains,
    count_rows,
)
from placegap.instances.oracle.placements import (
    MOST_LATENCY_OPS,
    best_assignment,
    best_calls,
    best_context,
    best_schedule,
    count_assignments,
)
from placegap.instances.problem import (
    OBJECTIVES,
    HybridPipeline,
    Instance,
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    MaxContext,
    PipelineIteration,
    Plan,
    Semantics,
)
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan

MOST_OPS = {
    "makespan": 8,
    "max_load": 10,
    "max_load_fwd_bwd": 10,
    "latency_subgraphs": MOST_LATENCY_OPS,
    "max_context": 8,
}
MOST_PLACEMENTS = 2**20
MOST_CONTEXTS = 2**14
"""In Python, with a bisection for each."""

MOST_ROWS = 2**22
"""Most of them break an order or a limit, and are left out at once."""

MOST_TRANSFERS = 10
"""Edges of a makespan instance whose channels are not free: each may become a transfer."""


def applies(task: Task, params: Params) -> str | None:
    """Why the instance is too large, or None."""
    instance, semantics = task.instance, task.semantics
    if isinstance(semantics, HybridPipeline):
        if count_rows(instance, semantics) > MOST_ROWS:
            return f"enumerates at most {MOST_ROWS} rows of stages"
        return None
    if isinstance(semantics, PipelineIteration):
        if count_chains(instance, semantics) > MOST_PLANS:
            return f"enumerates at most {MOST_PLANS} chains of stages"
        return None
    staged = _has_stages(semantics)
    if semantics.has_two_levels:
        reason = why_not_two_levels(instance)
        if reason is not None:
            return reason
    most = MOST_STAGED_OPS if staged else MOST_OPS[semantics.objective]
    if instance.num_ops > most:
        return f"enumerates at most {most} ops, not {instance.num_ops}"
    if staged and instance.num_devices > MOST_STAGED_DEVICES:
        limit = MOST_STAGED_DEVICES
        return f"enumerates stages of at most {limit} devices, not {instance.num_devices}"
    placements = _count_placements(instance, semantics)
    most = MOST_CONTEXTS if isinstance(semantics, MaxContext) else MOST_PLACEMENTS
    if placements > most:
        return f"enumerates at most {most} placements, not {placements}"
    edges = len(instance.graph.edges)
    has_orders = isinstance(semantics, Makespan) and semantics.channels != "free"
    if has_orders and edges > MOST_TRANSFERS:
        return f"orders at most {MOST_TRANSFERS} transfers, not {edges}"
    return None


@method(
    "brute-force",
    objectives=OBJECTIVES,
    claim="exact",
    scope="all, a few ops",
    applies=applies,
    memory_rules=("sum", "peak"),
)
def run(task: Task, params: Params) -> Outcome:
    """Enumerates placements, op orders and transfer orders: the tests' oracle.

    Limits of the task do not count: it is over in a few seconds at most.
    """
    best = _best_plan(task.instance, task.semantics)
    if best is None:
        return Outcome(bound=no_plan(), message="no placement fits")
    value, plan = best
    return Outcome(plan=plan, claim_ns=value, bound=Bound(value, "brute-force"))


def _best_plan(instance: Instance, semantics: Semantics) -> tuple[int, Plan] | None:
    if isinstance(semantics, Makespan):
        return best_schedule(instance, semantics)
    if isinstance(semantics, LatencySubgraphs):
        return best_calls(instance, semantics)
    if isinstance(semantics, HybridPipeline):
        check_hybrid(instance, semantics)
        return best_hybrid(instance, semantics)
    if isinstance(semantics, PipelineIteration):
        return best_chain(instance, semantics)
    if isinstance(semantics, MaxContext):
        return best_context(instance, semantics)
    assert isinstance(semantics, LoadSemantics)
    if _has_stages(semantics):
        return best_stages(instance, semantics)
    return best_assignment(instance, semantics)


def _count_placements(instance: Instance, semantics: Semantics) -> int:
    if isinstance(semantics, LatencySubgraphs):
        return count_assignments(instance, semantics)
    return int(instance.num_devices**instance.arrays.num_groups)


def _has_stages(semantics: Semantics) -> bool:
    return semantics.has_replicas or semantics.has_two_levels
