"""The method ``noncontiguous``: max_load over plans of any kind, to proven optimality.

A start by the ideal DP, exact merging, new splits of pairs of devices; then column generation for a
bound, and dives through its columns for better plans; a MIP for what is left
(`noncontiguous.search`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placegap.instances.problem.explain import explain_infeasible
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad
from placegap.solvers.core.clock import raise_if_stopped
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.progress import teller
from placegap.solvers.core.registry import find_method, register, why_not
from placegap.solvers.core.result import PROOF, Outcome, internal_error, word_of
from placegap.solvers.core.starts import best_start
from placegap.solvers.noncontiguous.noncontiguous import NoncontiguousParams, SplitSearch
from placegap.solvers.noncontiguous.partition_search import BestPartition, least_work
from placegap.solvers.noncontiguous.problem import build_split_problem, merge_blocks

FLOOR = "floor"
"""Origin of the bound that the task brought along: its proof is the caller's."""

MERGE_SHARE = 0.1
"""Of the time that is left, for merging."""

STARTS = ("ideal-dp", "m-topo", "single-device")


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the method cannot do the task, or None."""
    semantics = task.semantics
    if semantics.plans != "any":
        return f"its plans are of any kind, not {semantics.plans}"
    if semantics.replicas or semantics.levels == 2:
        return f"knows no replicas and no servers: not {semantics.label}"
    return None


def run(task: Task[MaxLoad], params: NoncontiguousParams) -> Outcome:
    """Solve, or return the best plan and bound when a limit or Ctrl-C comes."""
    clock = task.limits.clock()
    start = best_start(task, STARTS)
    if start is None:
        return _without_start(task, params)
    whole = build_split_problem(task.instance, overlap=task.semantics.load == "overlap")
    device = np.zeros(whole.num_blocks, np.int64)
    device[whole.block] = start.plan.devices
    merged = merge_blocks(whole, start.value_ns + 1, [device], clock.part(MERGE_SHARE))
    problem = merged.problem
    progress = BestPartition(
        problem=problem,
        gap=task.limits.gap,
        value_ns=start.value_ns,
        origin="work",
        devices=start.plan.devices,
        merged=merged.plans[0],
        on_news=teller(task.instance, task.semantics, "noncontiguous"),
    )
    progress.prove(least_work(problem), "work")
    progress.prove(task.floor_ns, FLOOR)
    progress.details.update(blocks=problem.num_blocks, nets=problem.nets.num_nets)
    build_s = clock.spent_s
    search = SplitSearch(task, params, progress, clock)
    search.run(merged.plans[0])
    message = search.ending
    if message and progress.plan_ns == start.value_ns:
        message += f"; no plan better than the first, of {start.value_ns} ns, was found"
    return Outcome(
        plan=Plan.on(progress.devices.tolist()),
        claim_ns=progress.plan_ns,
        bound_ns=None if progress.origin == FLOOR else progress.bound_ns,
        bound_origin=progress.origin,
        rests_on=word_of("highspy") if progress.origin == "highs" else PROOF,
        faults=tuple(progress.faults),
        message=message,
        build_s=build_s,
        details=progress.details,
    )


def _without_start(task: Task[MaxLoad], params: NoncontiguousParams) -> Outcome:
    """No placer finds room: say why, or leave it to the MIP."""
    reasons = explain_infeasible(task.instance)
    if reasons:
        return Outcome(proven_infeasible=True, rests_on=PROOF, message="; ".join(reasons))
    method, missing = find_method("throughput-ip"), "no plan that fits into memory was found"
    if not params.mip or why_not(method, task, method.params()) is not None:
        return Outcome(message=missing)
    try:
        outcome = method.run(task, method.params())
    except Exception as error:
        raise_if_stopped(error)
        fault = internal_error(f"the MIP ({word_of('highspy')})", error)
        return Outcome(message=f"{missing}; {fault}", faults=(fault,))
    if outcome.rests_on or (outcome.bound_ns is None and not outcome.proven_infeasible):
        return outcome
    return replace(outcome, rests_on=word_of("highspy"))


register(
    Method(
        name="noncontiguous",
        claim="exact",
        objectives=("max_load",),
        scope="max_load, any plans",
        paper="Tarnawski et al. 2020 (the problem)",
        cites=("tarnawski2020",),
        summary="column generation, pair splits and dives; for graphs that the IP does not close",
        run=run,
        params=NoncontiguousParams,
        applies=applies,
        packages=("numba", "highspy"),
    )
)
