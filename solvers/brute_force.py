"""Brute force: the oracle of the tests, exact for every objective, on a handful of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from placegap.instances.objectives.hybrid.checks import check_hybrid
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
    Loads,
    Makespan,
    MaxContext,
    PipelineIteration,
    Plan,
    ServingFlow,
)
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.serving_flow.every_plan import MOST_LAYERS, best_ranges, count_plans

MOST_OPS, MOST_LOADED_OPS = 8, 10
MOST_PLACEMENTS = 2**20
MOST_CONTEXTS = 2**14  # in Python, with a bisection for each
MOST_ROWS = 2**22  # most of them break an order or a limit, and are left out at once
MOST_TRANSFERS = 10  # edges of a makespan instance without free channels: each may be a transfer


def _over(number: int, most: int, what: str, of: str = "") -> str | None:
    return f"enumerates {of}at most {most} {what}, not {number}" if number > most else None


def _placements(instance: Instance) -> int:
    return int(instance.num_devices**instance.arrays.num_groups)


def _why_no_orders(instance: Instance, semantics: Makespan) -> str | None:
    edges = len(instance.graph.edges)
    reason = _over(instance.num_ops, MOST_OPS, "ops")
    reason = reason or _over(_placements(instance), MOST_PLACEMENTS, "placements")
    if reason is None and semantics.channels != "free" and edges > MOST_TRANSFERS:
        return f"orders at most {MOST_TRANSFERS} transfers, not {edges}"
    return reason


def _why_no_loads(instance: Instance, semantics: Loads) -> str | None:
    reason = why_not_two_levels(instance) if semantics.has_two_levels else None
    if semantics.has_replicas or semantics.has_two_levels:
        reason = reason or _over(instance.num_ops, MOST_STAGED_OPS, "ops")
        reason = reason or _over(instance.num_devices, MOST_STAGED_DEVICES, "devices", "stages of ")
    else:
        reason = _over(instance.num_ops, MOST_LOADED_OPS, "ops")
    return reason or _over(_placements(instance), MOST_PLACEMENTS, "placements")


def _why_no_calls(instance: Instance, semantics: LatencySubgraphs) -> str | None:
    reason = _over(instance.num_ops, MOST_LATENCY_OPS, "ops")
    number = 0 if reason else count_assignments(instance, semantics)
    return reason or _over(number, MOST_PLACEMENTS, "placements")


def _why_no_contexts(instance: Instance, semantics: MaxContext) -> str | None:
    reason = _over(instance.num_ops, MOST_OPS, "ops")
    return reason or _over(_placements(instance), MOST_CONTEXTS, "placements")


def _why_no_chains(instance: Instance, semantics: PipelineIteration) -> str | None:
    is_over = count_chains(instance, semantics) > MOST_PLANS
    return f"enumerates at most {MOST_PLANS} chains of stages" if is_over else None


def _why_no_rows(instance: Instance, semantics: HybridPipeline) -> str | None:
    is_over = count_rows(instance, semantics) > MOST_ROWS
    return f"enumerates at most {MOST_ROWS} rows of stages" if is_over else None


def _why_no_ranges(instance: Instance, semantics: ServingFlow) -> str | None:
    problem = instance.flow_problem
    reason = _over(problem.num_layers, MOST_LAYERS, "layers")
    return reason or _over(count_plans(problem), MOST_ROWS, "plans")


def _best_load(instance: Instance, semantics: Loads) -> tuple[int, Plan] | None:
    staged = semantics.has_replicas or semantics.has_two_levels
    return (best_stages if staged else best_assignment)(instance, semantics)


def _best_hybrid(instance: Instance, semantics: HybridPipeline) -> tuple[int, Plan] | None:
    check_hybrid(instance, semantics)
    return best_hybrid(instance, semantics)


WhyNot = Callable[[Instance, Any], str | None]
BestPlan = Callable[[Instance, Any], tuple[int, Plan] | None]

# Of each objective: why an instance is too large, and its best plan.
ORACLES: Mapping[str, tuple[WhyNot, BestPlan]] = {
    "makespan": (_why_no_orders, best_schedule),
    "max_load": (_why_no_loads, _best_load),
    "calls": (_why_no_calls, best_calls),
    "iteration": (_why_no_chains, best_chain),
    "hybrid": (_why_no_rows, _best_hybrid),
    "context": (_why_no_contexts, best_context),
    "flow": (_why_no_ranges, best_ranges),
}


def applies(task: Task, params: Params) -> str | None:
    """Why the instance is too large, or None."""
    oracle = ORACLES.get(task.semantics.folder)
    if oracle is None:
        return f"does not do {task.semantics.objective}"
    return oracle[0](task.instance, task.semantics)


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
    _, best_plan = ORACLES[task.semantics.folder]
    best = best_plan(task.instance, task.semantics)
    if best is None:
        return Outcome(bound=no_plan(), message="no placement fits")
    value, plan = best
    return Outcome(plan=plan, claim=value, bound=Bound(value, "brute-force"))
