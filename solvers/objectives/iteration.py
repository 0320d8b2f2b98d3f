"""pipeline_iteration: cuts of a chain of stages prove."""

from __future__ import annotations

import numpy as np

from placegap.formulations.shared.devices import colocated_times
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, PipelineIteration
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.cheap_bounds import LONGEST, ONE, WORK, spread_bound
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound


def quick_bound(instance: Instance, semantics: PipelineIteration) -> Bound:
    """One microbatch, each op where it is fastest, or the work of all."""
    possible, _ = colocated_times(instance)
    if not possible.any(axis=1).all():
        return Bound(0, LONGEST)  # some ops can be nowhere
    late = instance.arrays.update
    together = _without(instance, late)
    work = semantics.microbatches * spread_bound(together, possible)
    if semantics.schedule == "zero_bubble":  # weight events of one microbatch may overlap
        together = _without(instance, late | instance.arrays.weight_gradient)
    one = int(np.where(possible, together, NO_WAY).min(axis=1).sum())
    return max(Bound(one, ONE), Bound(work, WORK), key=Bound.rank)


def _without(instance: Instance, ops: Flags) -> Ints:
    """Time of each colocation group without some ops, (g, K)."""
    arrays = instance.arrays
    total = np.zeros((arrays.num_groups, instance.num_devices), np.int64)
    np.add.at(total, arrays.group, np.where(ops[:, None], 0, arrays.time_ns).clip(0))
    return total


def strategy(task: Task[PipelineIteration]) -> Strategy:
    """One exact method; no search improves a plan."""
    return Strategy(provers=(Step("stage-cuts", task.semantics),))
