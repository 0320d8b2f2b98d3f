"""The least iteration time over all chains of stages: branch and bound on cuts (`stage-cuts`).

placegap's own. Every path through the events of an iteration bounds its time from below by a sum
over stages; a DP over cuts finds the chain that is least under a mixture of paths, and an LP the
mixture that proves most (`game`). Pairs of cuts that no better chain can have are left out, by
single paths and by mixtures; what remains is split (`search`). Chains come from a DP on the
heaviest stage and from moves of one and two cuts. Exact in integers: only the choice of mixtures is
in floating point (docs/pipeline-iteration.md).
"""

from __future__ import annotations

from pydantic import Field

from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.nets import gradient_tie, stage_blocks
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.iteration import check_iteration
from placegap.instances.referee.stages import device_orders, held_beside
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import ExactParams, Method, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.trust import PROOF
from placegap.solvers.pipeline.branch_and_bound import Judge, PartSearch
from placegap.solvers.pipeline.cuts import (
    CutProblem,
    build_cuts,
    with_kinds,
)
from placegap.solvers.pipeline.event_times import event_table
from placegap.solvers.pipeline.stage_cuts import balanced


class StageCutsParams(ExactParams):
    """Parameters of `stage-cuts`.

    Attributes
    ----------
    max_cuts : int
        With more cuts than this only those of one order of the blocks are tried, and the bound is
        that of cheap methods.
    """

    max_cuts: int = Field(default=1000, ge=2)


def run(task: Task[PipelineIteration], params: StageCutsParams) -> Outcome:
    """Solve, or return the best plan and bound when the time is over or Ctrl-C comes."""
    instance, semantics = task.instance, task.semantics
    check_iteration(instance, semantics)
    clock = Clock(task.limits.time_limit_s)
    block = stage_blocks(instance)
    if block is None:
        message = "a backward op feeds a forward op: no microbatch can pass"
        return Outcome(proven_infeasible=True, rests_on=PROOF, message=message)
    problem = build_cuts(instance, semantics, block, params.max_cuts)
    problem = with_kinds(instance, semantics, problem) or problem
    judge = Judge(instance, semantics, clock)
    counts = _counts(instance.num_devices, semantics, problem)
    parts, message = list[PartSearch](), ""
    try:
        for count in counts:
            if parts and clock.left_s == 0.0 and (judge.best is not None or task.starts):
                break
            parts.append(_part(task, problem, judge, count, clock))
            if clock.left_s != 0.0 or judge.best is None:
                parts[-1].start()
        for start in task.starts:
            judge.judge(start.plan)
        _search(task, parts, judge, clock)
    except KeyboardInterrupt:
        message = "interrupted"
    bound = min((part.bound_ns for part in parts), default=NEVER)
    if not problem.complete or len(parts) < len(counts):
        bound = 0
    details: dict[str, int | float | str] = {
        "blocks": problem.num_blocks,
        "cuts": problem.num_cuts,
        "parts": sum(part.parts for part in parts),
    }
    if judge.best is None:
        infeasible = bound >= NEVER
        tie = gradient_tie(instance)
        why = "in every chain of stages some device's memory is too small"
        if not counts:
            why = f"too few layers for this schedule: {problem.num_blocks}"
        why += "" if tie is None else f"; {tie}"
        return Outcome(
            proven_infeasible=infeasible,
            rests_on=PROOF if infeasible else "",
            details=details,
            message=why if infeasible else message or "no chain of stages was found",
        )
    if bound >= judge.best[0] and not message:
        message, details["balance"] = _make_even(task, problem, judge, parts, clock)
    value_ns, plan = judge.best
    return Outcome(
        plan=plan,
        claim_ns=value_ns,
        bound_ns=min(bound, value_ns),
        bound_origin="stage-cuts",
        rests_on=PROOF,
        details=details,
        message=message,
    )


def _counts(most: int, semantics: PipelineIteration, problem: CutProblem) -> list[int]:
    """Numbers of devices that the schedule can use, the largest first."""
    chunks = semantics.stages_per_device
    return [
        count
        for count in range(min(most, problem.num_blocks // chunks), 0, -1)
        if chunks == 1 or semantics.microbatches % count == 0
    ]


def _search(
    task: Task[PipelineIteration], parts: list[PartSearch], judge: Judge, clock: Clock
) -> None:
    """Go on where the bound is lowest, until nothing is open or a limit is met."""
    while clock.left_s != 0.0:
        lowest = min((p for p in parts if p.is_open), key=lambda p: p.bound_ns, default=None)
        if lowest is None:
            return
        lowest.step()
        if judge.best is not None:
            bound = min(part.bound_ns for part in parts)
            tell(
                task.instance, task.semantics, "stage-cuts", value_ns=judge.best[0], bound_ns=bound
            )
            if judge.best[0] - bound <= task.limits.gap * judge.best[0]:
                return


def _make_even(
    task: Task[PipelineIteration],
    problem: CutProblem,
    judge: Judge,
    parts: list[PartSearch],
    clock: Clock,
) -> tuple[str, str]:
    """Of plans with the best value take one on more devices, if there is one; then balance it.

    What is returned says whether that was interrupted, and whether no plan is better balanced.
    """
    settled = problem.complete
    try:
        judge.slack_ns = 1  # also plans that are no better
        for old in parts:
            if old.num_devices <= judge.num_used:
                break
            part = _part(task, problem, judge, old.num_devices, clock)
            part.start()
            while part.is_open and judge.num_used < old.num_devices and clock.left_s != 0.0:
                part.step()
            settled &= not part.is_open or judge.num_used == old.num_devices
        judge.slack_ns = 0
        own = next((part for part in parts if part.num_devices == judge.num_used), None)
        if own is not None and clock.left_s != 0.0 and balanced(judge, own) and settled:
            return "", "proven"
    except KeyboardInterrupt:
        return "interrupted", "by moves"
    return "", "by moves"


def _part(
    task: Task[PipelineIteration], problem: CutProblem, judge: Judge, count: int, clock: Clock
) -> PartSearch:
    semantics = task.semantics
    if count == 1 and semantics.stages_per_device > 1:  # its stages send nothing
        problem = build_cuts(task.instance, semantics, problem.block, problem.num_cuts, sends=False)
    table = event_table(semantics, count, trains=problem.trains)
    return PartSearch(problem, judge, table, _beside(semantics, count, problem.trains), clock)


def _beside(semantics: PipelineIteration, count: int, trains: bool) -> list[list[tuple[int, int]]]:
    """How many other microbatches each stage holds."""
    beside = [[(0, 0)]] * (count * semantics.stages_per_device)
    if trains:
        for order in device_orders(semantics, count, trains=True):
            for s, pairs in held_beside(order).items():
                beside[s] = pairs
    return beside


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
