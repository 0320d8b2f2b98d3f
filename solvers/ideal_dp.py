"""The exact contiguous split for max-load: a DP over chains of ideals (Tarnawski et al., 2020).

The recurrence is the paper's (section 5.1); the way it is searched is not. An upper bound from
slicing topological orders and a lower bound from the work alone confine each ideal to a few numbers
of devices; a first run only decides whether anything beats the upper bound; if so, bisection and a
run for the value close the gap. Exact in integers.

Two engines do this: `ideal_bracket` where all accelerators are alike and all hosts are, as in the
paper; `ideal_kinds_bracket` for devices of any kinds, replicated stages and two levels of
communication, which the paper does not have (docs/ideal-dp.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from pydantic import Field

from placegap.instances.blocks import Blocks
from placegap.instances.evaluate import evaluate
from placegap.instances.plan import Plan
from placegap.solvers.chain_problem import build_problem, why_not_two_kinds
from placegap.solvers.ideal_bracket import Bracket, close, slice_orders
from placegap.solvers.ideal_kinds import build_kinds, why_not_kinds
from placegap.solvers.ideal_kinds_bracket import KindsBracket, cut_orders, simple_plan
from placegap.solvers.ideal_kinds_bracket import close as close_kinds
from placegap.solvers.limits import Clock, LimitReached
from placegap.solvers.registry import ExactParams, Method, Params, Task, register
from placegap.solvers.result import Outcome


class IdealDPParams(ExactParams):
    """Parameters of `ideal-dp`.

    Attributes
    ----------
    max_ideals : int
        With more ideals than this the best plan and the bound known until then are returned.
    """

    max_ideals: int = Field(default=20_000_000, ge=2)


def applies(task: Task, params: Params) -> str | None:
    """Why the DP cannot do the task, or None."""
    if task.semantics.plans != "chain":
        return f"splits into chains of ideals (plans: chain), not {task.semantics.plans}"
    return None if _is_of_two_kinds(task) else why_not_kinds(task.instance, task.semantics)


def run(task: Task, params: Params) -> Outcome:
    """Solve, or return the best plan and bound when a limit is hit or Ctrl-C comes.

    For N ideals, b blocks, e nets and L vectors of device counts O(N (L + (b + e) / 64)) memory
    and, in the worst case, O(L N^2 (b + e) / 64) time; the search visits few of the N^2 pairs.
    With servers the worst case is O(L N^3).
    """
    assert isinstance(params, IdealDPParams)
    solve = _run_two_kinds if _is_of_two_kinds(task) else _run_kinds
    return solve(task, params.max_ideals)


def _is_of_two_kinds(task: Task) -> bool:
    """Whether the engine for accelerators and hosts that are each alike will do."""
    extended = task.semantics.replicas or task.semantics.levels == 2
    return not extended and why_not_two_kinds(task.instance) is None


def _run_two_kinds(task: Task, max_ideals: int) -> Outcome:
    began, clock = time.perf_counter(), Clock(task.limits.time_limit_s)
    problem = build_problem(task.instance, overlap=task.semantics.load == "overlap")
    fits = (problem.need <= problem.room[:, None]).any(axis=0)
    if not fits.all():
        return _misfit(task, problem.blocks, int(np.argmin(fits)))
    build_s = time.perf_counter() - began
    bracket = Bracket(problem, clock, task.limits.gap, task.limits.seed)
    _take_incumbent(bracket, task)

    def work() -> None:
        slice_orders(bracket)
        close(bracket, max_ideals)

    message = _until_stopped(work)
    plan = None if bracket.devices is None else Plan.on(bracket.devices.tolist())
    details = {"blocks": problem.num_blocks, "nets": problem.num_nets, **bracket.counts}
    found = plan, bracket.value, bracket.lower, bracket.origin
    return _outcome(found, build_s, message, details)


def _run_kinds(task: Task, max_ideals: int) -> Outcome:
    began, clock = time.perf_counter(), Clock(task.limits.time_limit_s)
    problem = build_kinds(task.instance, task.semantics)
    fits = problem.fits.any(axis=0)
    if not fits.all():
        return _misfit(task, problem.guide.blocks, int(np.argmin(fits)))
    build_s = time.perf_counter() - began
    bracket = KindsBracket(task, problem, clock)

    def work() -> None:
        cut_orders(bracket)
        close_kinds(bracket, max_ideals)

    message = _until_stopped(work)
    if message and bracket.value is None:
        simple_plan(bracket)
    details = {
        "blocks": problem.guide.num_blocks, "nets": problem.guide.num_nets,
        "kinds": problem.num_kinds, **bracket.counts,
    }  # fmt: skip
    found = bracket.plan, bracket.value, bracket.lower, bracket.origin
    return _outcome(found, build_s, message, details)


def _until_stopped(work: Callable[[], None]) -> str:
    """Work to the end, or until a limit or Ctrl-C; which of these it was, in words."""
    try:
        work()
    except LimitReached as limit:
        return f"stopped: {limit}"
    except KeyboardInterrupt:
        return "interrupted"
    return ""


def _misfit(task: Task, blocks: Blocks, block: int) -> Outcome:
    """A block fits no device at all: the end, in words."""
    ops = np.flatnonzero(blocks.block == block).tolist()
    names = [repr(task.instance.graph.ops[i].name) for i in ops[:3]]
    listed = ", ".join(names) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")
    message = f"no device can run and hold {listed}"
    if len(ops) > 1:
        message += " together, and a chain plan cannot part them"
    return Outcome(proven_infeasible=True, message=message)


def _take_incumbent(bracket: Bracket, task: Task) -> None:
    if task.incumbent is None:
        return
    verdict = evaluate(task.instance, task.incumbent, task.semantics)
    if verdict.feasible:
        bracket.value, bracket.devices = verdict.value_ns, task.incumbent.devices


def _outcome(
    found: tuple[Plan | None, int | None, int, str], build_s: float, message: str,
    details: dict[str, int],
) -> Outcome:  # fmt: skip
    """What an engine has found by its end: plan, value, bound and the bound's origin."""
    plan, value, lower, origin = found
    if plan is None:
        return Outcome(
            bound_ns=lower if message else None,
            bound_origin=origin if message else "",
            proven_infeasible=not message,
            message=message or "in every chain of ideals some device's memory is too small",
            build_s=build_s,
            details=details,
        )
    return Outcome(
        plan=plan,
        claim_ns=value,
        bound_ns=lower,
        bound_origin=origin,
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
        summary="Optimal chain of ideals for max-load, on any devices, replicated, over servers.",
        run=run,
        params=IdealDPParams,
        applies=applies,
        packages=("numba",),
    )
)
