"""hybrid_pipeline: rows of stages prove."""

from __future__ import annotations

from placegap.instances.problem import HybridPipeline, Instance
from placegap.instances.problem.integers import ceil_div
from placegap.solvers.bounds.cheap_bounds import WORK
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound


def quick_bound(instance: Instance, semantics: HybridPipeline) -> Bound:
    """Every layer in the mode that takes least time of devices, on all devices alike."""
    kind = instance.cluster.devices[0].kind
    work = sum(
        min(mode.tensor * mode.time_ns.get(kind, 0) for mode in op.ways)
        for op in instance.graph.ops
    )
    return Bound(ceil_div(semantics.microbatches * work, instance.num_devices), WORK)


def strategy(task: Task[HybridPipeline]) -> Strategy:
    """One exact method; no search improves a plan."""
    return Strategy(provers=(Step("hybrid-cuts", task.semantics),))
