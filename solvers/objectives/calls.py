"""latency_subgraphs: rows of calls prove, and the placers of loads make first plans."""

from __future__ import annotations

import numpy as np

from placegap.formulations.shared.devices import colocated_times
from placegap.instances.problem import Instance, LatencySubgraphs
from placegap.solvers.bounds.cheap_bounds import LONGEST, PATH, WORK, path_ns, spread_bound
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound


def quick_bound(instance: Instance, semantics: LatencySubgraphs) -> Bound:
    """The longest path without transfers, or the work of accelerators (hosts run all at once)."""
    possible, together = colocated_times(instance)
    if not possible.any(axis=1).all():
        return Bound(0, LONGEST)  # some ops can be nowhere
    path = Bound(path_ns(instance, transfers=False), PATH)
    together = np.where(instance.arrays.is_host, 0, together)
    return max(path, Bound(spread_bound(together, possible), WORK), key=Bound.rank)


def strategy(task: Task[LatencySubgraphs]) -> Strategy:
    """Two models of calls; no search improves a plan."""
    return Strategy(
        provers=(Step("latency", task.semantics), Step("latency-ip", task.semantics)),
        placers_of="max_load",
        opinions=(("latency", {}), ("latency-ip", {"model": "mip"})),
    )
