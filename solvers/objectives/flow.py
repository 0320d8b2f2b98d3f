"""serving_flow: rows, blocks and regions of machines, and bounds by their work and prices."""

from __future__ import annotations

from placegap.instances.problem import Instance, ServingFlow
from placegap.solvers.bounds.cheap_bounds import WORK
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound


def quick_bound(instance: Instance, semantics: ServingFlow) -> Bound:
    """The layer-tokens that all machines pass at most, over the layers."""
    return Bound(instance.flow_problem.work_bound, WORK)


def strategy(task: Task[ServingFlow]) -> Strategy:
    """Bounds by prices and plans of blocks, by itself."""
    return Strategy(provers=(Step("serving-flow", task.semantics),), is_alone=True)
