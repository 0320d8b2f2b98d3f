"""The least iteration time over all chains of stages: branch and bound on cuts (`stage-cuts`).

placegap's own. Every path through the events of an iteration bounds its time from below by a sum
over stages; a DP over cuts finds the chain that is least under a mixture of paths, and an LP the
mixture that proves most (`game`). Pairs of cuts that no better chain can have are left out, by
single paths and by mixtures; what remains is split (`search`). Chains come from a DP on the
heaviest stage and from moves of one and two cuts. Exact in integers: only the choice of mixtures is
in floating point (docs/pipeline-iteration.md).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.pipeline.device_orders import device_orders, most_in_flight
from placegap.instances.referee.pipeline.iteration import check_iteration
from placegap.instances.structure.stage_blocks import stage_blocks
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import ExactParams, Method, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.trust import PROOF
from placegap.solvers.ideal_dp.stage_cuts.balance import balanced
from placegap.solvers.ideal_dp.stage_cuts.events import event_table
from placegap.solvers.ideal_dp.stage_cuts.judge import Judge
from placegap.solvers.ideal_dp.stage_cuts.problem import (
    CutProblem,
    build_cuts,
)
from placegap.solvers.ideal_dp.stage_cuts.search import PartSearch


class StageCutsParams(ExactParams):
    """Parameters of `stage-cuts`.

    Attributes
    ----------
    max_cuts : int
        With more cuts than this only those of one order of the blocks are tried, and the bound is
        that of cheap methods.
    """

    max_cuts: int = Field(default=1500, ge=2)


def run(task: Task[PipelineIteration], params: StageCutsParams) -> Outcome:
    """Solve, or return the best plan and bound when the time is over."""
    instance, semantics = task.instance, task.semantics
    check_iteration(instance, semantics)
    clock = Clock(task.limits.time_limit_s)
    block = stage_blocks(instance)
    if block is None:
        message = "a backward op feeds a forward op: no microbatch can pass"
        return Outcome(proven_infeasible=True, rests_on=PROOF, message=message)
    most = params.max_cuts
    problem = build_cuts(instance, semantics, block, most)
    judge = Judge(instance, semantics, problem)
    for start in task.starts:
        judge.judge(start.plan)
    parts: list[PartSearch] = []
    for count in range(instance.num_devices, 0, -1):
        stages = count * semantics.stages_per_device
        grouped = semantics.schedule == "interleaved" and semantics.microbatches % count
        if stages > problem.num_blocks or grouped:
            continue
        alone = count == 1 and semantics.stages_per_device > 1  # its stages send nothing
        own_cuts = build_cuts(instance, semantics, block, most, sends=False) if alone else problem
        part = _part(own_cuts, judge, semantics, count, clock)
        part.start()
        parts.append(part)
    while clock.left_s != 0.0:
        lowest = min((p for p in parts if p.is_open), key=lambda p: p.bound_ns, default=None)
        if lowest is None:
            break
        lowest.step()
        if judge.best is not None:
            bound = min(part.bound_ns for part in parts)
            tell(instance, semantics, "stage-cuts", value_ns=judge.best[0], bound_ns=bound)
            if judge.best[0] - bound <= task.limits.gap * judge.best[0]:
                break
    bound = min((part.bound_ns for part in parts), default=NEVER)
    details = {"blocks": problem.num_blocks, "cuts": problem.num_cuts,
               "parts": sum(part.parts for part in parts)}  # fmt: skip
    if not problem.complete:
        bound = 0
    if judge.best is None:
        infeasible = bound >= NEVER
        return Outcome(
            proven_infeasible=infeasible, rests_on=PROOF if infeasible else "", details=details,
            message="in every chain of stages some device's memory is too small"
            if infeasible else "no chain of stages was found",
        )  # fmt: skip
    value_ns, plan = judge.best
    used = len(set(plan.placement))
    own = next((part for part in parts if part.num_devices == used), None)
    if own is not None and clock.left_s != 0.0:
        balanced(judge, own)
        value_ns, plan = judge.best
    return Outcome(
        plan=plan, claim_ns=value_ns, bound_ns=min(bound, value_ns), bound_origin="stage-cuts",
        rests_on=PROOF, details=details,
    )  # fmt: skip


def _part(
    problem: CutProblem, judge: Judge, semantics: PipelineIteration, count: int, clock: Clock
) -> PartSearch:
    table = event_table(semantics, count, trains=problem.trains)
    return PartSearch(problem, judge, table, _flying(semantics, count, problem.trains), clock)


def _flying(semantics: PipelineIteration, count: int, trains: bool) -> Ints:
    """Most microbatches that each stage holds at once."""
    flying = np.ones(count * semantics.stages_per_device, np.int64)
    if trains:
        for order in device_orders(semantics, count, trains=True):
            for s, most in most_in_flight(order).items():
                flying[s] = most
    return flying


register(
    Method(
        name="stage-cuts",
        claim="exact",
        objectives=("pipeline_iteration",),
        paper="placegap",
        summary="least iteration time of a pipeline: cuts of a chain, bounded by mixed paths",
        run=run,
        params=StageCutsParams,
        packages=("numba", "highspy"),
    )
)
