"""Brute force: the oracle of the tests, exact for every objective, on a handful of ops."""

from __future__ import annotations

from placegap.instances.semantics import Semantics
from placegap.solvers.brute_force_load import best_assignment
from placegap.solvers.brute_force_makespan import best_schedule
from placegap.solvers.registry import Method, Params, Task, register
from placegap.solvers.result import Outcome

MOST_OPS = {"makespan": 8, "max_load": 10}
MOST_PLACEMENTS = 2**20
MOST_TRANSFERS = 10
"""Edges of a makespan instance whose channels are not free: each may become a transfer."""


def applies(task: Task, params: Params) -> str | None:
    """Why the instance is too large, or None."""
    instance, semantics = task.instance, task.semantics
    most, edges = MOST_OPS[semantics.objective], len(instance.graph.edges)
    if instance.num_ops > most:
        return f"enumerates at most {most} ops, not {instance.num_ops}"
    placements = instance.num_devices**instance.arrays.num_groups
    if placements > MOST_PLACEMENTS:
        return f"enumerates at most {MOST_PLACEMENTS} placements, not {placements}"
    if _has_transfer_orders(semantics) and edges > MOST_TRANSFERS:
        return f"orders at most {MOST_TRANSFERS} transfers, not {edges}"
    return None


def run(task: Task, params: Params) -> Outcome:
    """Enumerate, whatever the limits of the task: it is over in about a second at most."""
    search = best_schedule if task.semantics.objective == "makespan" else best_assignment
    best = search(task.instance, task.semantics)
    if best is None:
        return Outcome(proven_infeasible=True, message="no placement fits")
    value, plan = best
    return Outcome(plan=plan, claim_ns=value, bound_ns=value, bound_origin="brute-force")


def _has_transfer_orders(semantics: Semantics) -> bool:
    return semantics.objective == "makespan" and semantics.channels != "free"


register(
    Method(
        name="brute-force",
        claim="exact",
        objectives=("makespan", "max_load"),
        paper="enumeration",
        summary="all placements, op orders and transfer orders of a few ops: the tests' oracle",
        run=run,
        applies=applies,
    )
)
