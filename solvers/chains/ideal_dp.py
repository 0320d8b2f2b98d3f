"""The exact contiguous split for max-load: a DP over chains of ideals (Tarnawski et al., 2020).

The recurrence is the paper's (section 5.1); the way it is searched is not. An upper bound from
slicing topological orders and a lower bound from the work alone confine each ideal to a few numbers
of devices; a first run only decides whether anything beats the upper bound; if so, bisection and a
run for the value close the gap. Exact in integers.

The paper's devices are accelerators that are alike and hosts that are. Here they are of any kinds,
stages may be replicated, and communication may have two levels (docs/exact.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pydantic import Field

from placegap.instances.problem import MaxLoad
from placegap.instances.problem.blocks import Blocks, IdleRule
from placegap.solvers.chains.bracket import Bracket
from placegap.solvers.chains.idle_steps import Misfit, Steps, settle
from placegap.solvers.chains.kinds_problem import build_kinds, why_not_kinds
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import ExactParams, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan


class IdealDPParams(ExactParams):
    """Parameters of `ideal-dp`."""

    #: With more ideals than this the best plan and the bound known until then are returned.
    max_ideals: int = Field(default=20_000_000, ge=2)


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the DP cannot do the task, or None."""
    if task.semantics.plans != "chain":
        return f"splits into chains of ideals (plans: chain), not {task.semantics.plans}"
    return why_not_kinds(task.instance, task.semantics)


@method(
    "ideal-dp",
    objectives=("max_load",),
    claim="exact",
    cites="Tarnawski et al. 2020, section 5.1",
    scope="max_load, chain plans; any devices, replicas, 2 levels",
    applies=applies,
    packages=("numba",),
    settle=settle,
)
def run(task: Task[MaxLoad], params: IdealDPParams) -> Outcome:
    """Dynamic program over ideals.

    For N ideals, b blocks, e nets and L vectors of device counts O(N (L + (b + e) / 64)) memory
    and, in the worst case, O(L N^2 (b + e) / 64) time; the search visits few of the N^2 pairs.
    With servers the worst case is O(L N^3).
    """
    clock = Clock(task.limits.time_limit_s)

    def start(rule: IdleRule) -> Bracket:
        return Bracket(task, build_kinds(task.instance, task.semantics, rule), clock)

    least = Bound(0, "combinatorial")
    steps = Steps(task, start, params.max_ideals, gap=task.limits.gap, bound=least)
    try:
        message = _until_stopped(steps.run)
    except Misfit as misfit:
        return _misfit(task, misfit.blocks, misfit.block)
    if message and steps.value_ns is None and steps.last is not None:
        steps.last.simple_plan()
        steps.improve(steps.last.value_ns, steps.last.plan)
    return _outcome(steps, message)


def _until_stopped(work: Callable[[], None]) -> str:
    """Work to the end, or until a limit or Ctrl-C; which of these it was, in words."""
    try:
        work()
    except LimitReached as limit:
        return f"stopped: {limit}"
    except KeyboardInterrupt:
        return "interrupted"
    return ""


def _misfit(task: Task[MaxLoad], blocks: Blocks, block: int) -> Outcome:
    """A block fits no device at all: the end, in words."""
    ops = np.flatnonzero(blocks.block == block).tolist()
    names = [repr(task.instance.graph.ops[i].name) for i in ops[:3]]
    listed = ", ".join(names) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")
    message = f"no device can run and hold {listed}"
    if len(ops) > 1:
        message += " together, and a chain plan cannot part them"
    return Outcome(bound=no_plan(), message=message)


def _outcome(steps: Steps, message: str) -> Outcome:
    """What is known in the end: plan, value, bound, and what the bound rests on."""
    details: dict[str, int] = {}
    if steps.last is not None:
        problem, kinds = steps.last.problem, steps.last.problem.num_kinds
        details = {"blocks": problem.num_blocks, "nets": problem.num_nets, "kinds": kinds}
        details.update(steps.last.counts)
    infeasible = steps.value_ns is None and steps.impossible
    if infeasible:
        message = "in every chain of ideals some device's memory is too small"
    return Outcome(
        plan=steps.plan,
        claim_ns=steps.value_ns,
        bound=no_plan() if infeasible else steps.bound,
        faults=tuple(steps.faults),
        message=message,
        build_s=steps.build_s,
        details=details,
    )
