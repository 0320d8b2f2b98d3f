"""serving_flow: rows, blocks and regions of machines, and bounds by their work and prices."""

from __future__ import annotations

from placegap.instances.problem import Instance, ServingFlow
from placegap.solvers.bounds.cheap_bounds import WORK
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound


def quick_bound(instance: Instance, semantics: ServingFlow) -> Bound:
    """The layer-tokens that all machines pass at most, over the layers."""
    problem = instance.flow_problem
    work = {
        kind: max(h * rate for h, rate in enumerate(table, 1))
        for kind, table in problem.tables.items()
    }
    total = sum(work[machine.kind] for machine in problem.machines)
    return Bound(total // problem.num_layers, WORK)


def strategy(task: Task[ServingFlow]) -> Strategy:
    """Brute force on a few machines."""
    return Strategy(provers=(Step("brute-force", task.semantics),))
