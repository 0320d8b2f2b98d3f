"""The exact contiguous split for max-load: a DP over chains of ideals (Tarnawski et al., 2020).

The recurrence is the paper's (section 5.1); the way it is searched is not. An upper bound from
slicing topological orders and a lower bound from the work alone confine each ideal to a few numbers
of devices; a first run only decides whether anything beats the upper bound; if so, bisection and a
run for the value close the gap. Exact in integers.
"""

from __future__ import annotations

import time

import numpy as np
from pydantic import Field

from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.solvers.chain_problem import ChainProblem, build_problem, why_not_two_kinds
from placegap.solvers.ideal_bracket import Bracket, close, slice_orders
from placegap.solvers.limits import Clock, LimitReached
from placegap.solvers.registry import Method, Params, Task, register
from placegap.solvers.result import Outcome


class IdealDPParams(Params):
    """Parameters of `ideal-dp`.

    Attributes
    ----------
    max_ideals : int
        With more ideals than this the best plan and the bound known until then are returned.
    """

    max_ideals: int = Field(default=2_000_000, ge=2)


def applies(task: Task, params: Params) -> str | None:
    """Why the DP cannot do the task, or None."""
    if task.semantics.plans != "chain":
        return f"splits into chains of ideals (plans: chain), not {task.semantics.plans}"
    if task.semantics.replicas or task.semantics.levels == 2:
        return f"states neither replicas nor servers: not {task.semantics.label}"
    return why_not_two_kinds(task.instance)


def run(task: Task, params: Params) -> Outcome:
    """Solve, or return the best plan and bound when a limit is hit.

    For N ideals, b blocks, e nets, a accelerators and h hosts O(N (b + e) / 64) memory and, in the
    worst case, O(a h N^2 (b + e) / 64) time; the search visits few of the N^2 pairs.
    """
    assert isinstance(params, IdealDPParams)
    began, clock = time.perf_counter(), Clock(task.limits.time_limit_s)
    problem = build_problem(task.instance, overlap=task.semantics.load == "overlap")
    misfit = _misfit(task, problem)
    if misfit is not None:
        return Outcome(proven_infeasible=True, message=misfit)
    build_s = time.perf_counter() - began
    bracket = Bracket(problem, clock, task.limits.gap, task.limits.seed)
    _take_incumbent(bracket, task)
    message = ""
    try:
        slice_orders(bracket)
        close(bracket, params.max_ideals)
    except LimitReached as limit:
        message = f"stopped: {limit}"
    return _outcome(bracket, build_s, message)


def _misfit(task: Task, problem: ChainProblem) -> str | None:
    """A block that fits no device at all, in words."""
    fits = (problem.need <= problem.room[:, None]).any(axis=0)
    if fits.all():
        return None
    ops = np.flatnonzero(problem.blocks.block == int(np.argmin(fits))).tolist()
    names = [repr(task.instance.graph.ops[i].name) for i in ops[:3]]
    listed = ", ".join(names) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")
    if len(ops) == 1:
        return f"no device can run and hold {listed}"
    return f"no device can run and hold {listed} together, and a chain plan cannot part them"


def _take_incumbent(bracket: Bracket, task: Task) -> None:
    if task.incumbent is None:
        return
    verdict = evaluate(task.instance, task.incumbent, task.semantics)
    if verdict.feasible:
        bracket.value, bracket.devices = verdict.value_ns, task.incumbent.devices


def _outcome(bracket: Bracket, build_s: float, message: str) -> Outcome:
    problem = bracket.problem
    details = {"blocks": problem.num_blocks, "nets": problem.num_nets, **bracket.counts}
    if bracket.value is None or bracket.devices is None:
        return Outcome(
            bound_ns=bracket.lower if message else None,
            bound_origin=bracket.origin if message else "",
            proven_infeasible=not message,
            message=message or "in every chain of ideals some device's memory is too small",
            build_s=build_s,
            details=details,
        )
    return Outcome(
        plan=Plan.on(bracket.devices.tolist()),
        claim_ns=bracket.value,
        bound_ns=bracket.lower,
        bound_origin=bracket.origin,
        message=message,
        build_s=build_s,
        details=details,
    )


register(
    Method(
        name="ideal-dp",
        claim="exact",
        objectives=("max_load",),
        paper="Tarnawski et al., NeurIPS 2020",
        summary="Optimal chain of ideals for max-load, on accelerators and hosts each alike.",
        run=run,
        params=IdealDPParams,
        applies=applies,
        packages=("numba",),
    )
)
