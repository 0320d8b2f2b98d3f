"""The exact contiguous split for max-load: a DP over chains of ideals (Tarnawski et al., 2020).

State: value(u, I) is the least max_load of u devices that take the ideal I. One more device takes
the difference to a larger ideal: value(u + 1, I) = min over J within I of max(value(u, J),
load(I - J)). In a chain of ideals no stage feeds an earlier one, and every such chain is met, so
the value of all ops is the optimum. The recurrence is the paper's (section 5.1); the search is not:
an upper bound from slicing topological orders and a lower bound from the work leave each ideal a
few numbers of devices (`windows`), a first run only decides whether anything beats the upper bound,
and if so, bisection and a run for the value close the gap (`bracket`). Exact in integers.

Example by hand: op a (2 ns) feeds b and c (3 ns each), an edge that is cut costs 1 ns at both ends,
two equal devices. value(1, a) = 2 + 2 = 4, value(1, ab) = 5 + 1 = 6, value(1, abc) = 8. Then
value(2, abc) is the least of max(4, 6 + 2) for J = a, max(6, 3 + 1) for J = ab, and 8 alone: 6.

The paper has equal accelerators and equal hosts. Here devices may be of any kinds, stages may be
replicated, and communication may have two levels (docs/exact.md).
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

    #: With more ideals than this the best plan and bound found so far are returned.
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

    # Without bytes or idle blocks in doubt this is a single bracket; else `Steps` closes several.
    least = Bound(0, "combinatorial")
    steps = Steps(task, start, params.max_ideals, gap=task.limits.gap, bound=least)
    try:
        message = _until_stopped(steps.run)
    except Misfit as misfit:
        return _misfit(task, misfit.blocks, misfit.block)
    # A limit came before any plan: the fastest placers still give one.
    if message and steps.value is None and steps.last is not None:
        steps.last.simple_plan()
        steps.improve(steps.last.value, steps.last.plan)
    return _outcome(steps, message)


def _until_stopped(work: Callable[[], None]) -> str:
    """Run to the end or to a limit or Ctrl-C; returns the message, empty at the end."""
    try:
        work()
    except LimitReached as limit:
        return f"stopped: {limit}"
    except KeyboardInterrupt:
        return "interrupted"
    return ""


def _misfit(task: Task[MaxLoad], blocks: Blocks, block: int) -> Outcome:
    """The outcome if a block fits no device at all."""
    ops = np.flatnonzero(blocks.block == block).tolist()
    names = [repr(task.instance.graph.ops[i].name) for i in ops[:3]]
    listed = ", ".join(names) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")
    message = f"no device can run and hold {listed}"
    if len(ops) > 1:
        message += " together, and a chain plan cannot part them"
    return Outcome(bound=no_plan(), message=message)


def _outcome(steps: Steps, message: str) -> Outcome:
    """The outcome: plan, value, bound, and counts of the last bracket."""
    details: dict[str, int] = {}
    if steps.last is not None:
        problem, kinds = steps.last.problem, steps.last.problem.num_kinds
        details = {"blocks": problem.num_blocks, "nets": problem.num_nets, "kinds": kinds}
        details.update(steps.last.counts)
    infeasible = steps.value is None and steps.impossible
    if infeasible:
        message = "in every chain of ideals some device's memory is too small"
    return Outcome(
        plan=steps.plan,
        claim=steps.value,
        bound=no_plan() if infeasible else steps.bound,
        faults=tuple(steps.faults),
        message=message,
        build_s=steps.build_s,
        details=details,
    )
