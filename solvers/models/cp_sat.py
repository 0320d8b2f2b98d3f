"""CP-SAT back end: proven makespans under every channel and transfer model."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from placegap.formulations.makespan_cp import MakespanModel, build, extract, warm_start
from placegap.formulations.shared.times import LARGEST_HORIZON_NS
from placegap.instances.problem import Makespan
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.core.back_ends.cp_sat import Settings, search
from placegap.solvers.core.back_ends.outcome import MOST_PARTS
from placegap.solvers.core.method import ExactParams, Params, Start, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start


class CpSatParams(ExactParams):
    #: Threads. One of them, with several, searches for a bound only; the others for plans. One
    #: worker returns the same plan every time, unless a time limit stops it; several return the
    #: same value if they prove it.
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the model is not built, or None."""
    instance = task.instance
    k = instance.num_devices
    parts = instance.num_ops * k + len(instance.graph.edges) * k * k
    if parts > MOST_PARTS:
        return f"its model has {parts} ops x devices and edges x device pairs, above {MOST_PARTS}"
    if instance.arrays.serial_horizon_ns > LARGEST_HORIZON_NS:
        return "its times sum to more than 2**59 ns"
    return None


@method(
    "cp-sat",
    objectives=("makespan",),
    claim="exact",
    cites="Laborie et al. 2018",
    scope="makespan, all channels and transfers",
    solver="CP-SAT",
    applies=applies,
    packages=("ortools",),
)
def run(task: Task[Makespan], params: CpSatParams) -> Outcome:
    """Constraint program with optional intervals for ops and transfers.

    Build, hint, solve; the better of the solver's plan and the incumbent comes back. The bound
    holds for all plans: the horizon excludes only those that are worse than the incumbent. Integers
    throughout: value == bound when CP-SAT proves its plan optimal, unless times had to be rounded
    (`shared.cp_families.LARGEST_ACTIVITY`). An interrupt (Ctrl-C) ends the search and returns what
    is known by then.
    """
    clock = task.limits.clock()
    start = best_start(task)
    settings = Settings(params.workers, gap=task.limits.gap, seed=task.limits.seed)

    def prepare(start: Start | None) -> MakespanModel:
        horizon_ns = start.value if start else None
        model = build(task.instance, task.semantics, horizon_ns=horizon_ns)
        if start:
            warm_start(model, task.instance, start.plan)
        return model

    return search(task, start, prepare, extract, _longest_path, settings, clock)


def _longest_path(model: MakespanModel) -> tuple[int, str]:
    """The longest path, each op on its best device: a bound in ns that needs no solver."""
    window, times = model.window, model.instance.arrays.time_ns
    through = np.where(window.possible, window.head_ns + times + window.tail_ns, NO_WAY)
    return min(int(through.min(axis=1).max()), model.horizon_ns), "path"
