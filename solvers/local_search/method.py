"""disjunctive-search: placement and orders by local search in the disjunctive graph."""

from __future__ import annotations

from pydantic import Field

from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Method, Params, Start, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start, placers
from placegap.solvers.local_search.disjunctive_search import (
    LARGEST_WALK,
    best_at_peak,
    improve_start,
)
from placegap.solvers.local_search.rolling_horizon import contended_lists, rolling_plans

NAME = "disjunctive-search"

MOVES_PER_OP, LEAST_MOVES, MOST_MOVES = 200, 2_000, 200_000
"""Moves where there is neither a time limit nor a number of steps."""


ROLLING_SHARE, LARGE_ROLLING_SHARE = 0.6, 0.9
"""Of the time that is left, for plans that are searched while they are built; windows of a large
graph gain little."""


class DisjunctiveSearchParams(Params):
    """Parameters of ``disjunctive-search``.

    Attributes
    ----------
    steps : int or None
        Moves of each walk. By default they go on for the whole time limit; without one there are
        200 for each op, and no more than 200,000.
    workers : int
        Walks side by side, in threads.
    start : bool
        Whether placers are asked for a first plan besides the task's incumbent.
    """

    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    workers: int = Field(default=2, ge=1, le=1024)
    start: bool = True


def run(task: Task[Makespan], params: DisjunctiveSearchParams) -> Outcome:
    """Improve the best plan of all fast placers for as long as there is time.

    A heuristic: simulated annealing over devices of ops and orders on devices and channels, with
    exact recomputation of what a move changes (the disjunctive graph of Balas and Vazacopoulos
    1998; moves of an op to any place on any device as in Mastrolilli and Gambardella 2000).
    Deterministic for a seed without a time limit.

    Examples
    --------
    >>> from placegap.instances import example
    >>> task = Task(example(), Makespan())
    >>> run(task, DisjunctiveSearchParams(workers=1)).plan.placement
    ((0,), (1,), (0,), (1,))
    """
    clock, instance = task.limits.clock(), task.instance
    start = best_start(task, placers(task) if params.start else ())
    found = [] if start is None else [start]
    before_s = clock.spent_s
    for plan in contended_lists(instance, task.semantics):
        verdict = evaluate(instance, plan, task.semantics)
        if verdict.feasible and verdict.value_ns is not None:
            found.append(Start(plan, verdict.value_ns))
            tell(instance, task.semantics, NAME, value_ns=verdict.value_ns, plan=plan)
        left_s, before_s, one_s = clock.left_s, clock.spent_s, clock.spent_s - before_s
        if left_s is not None and left_s < 4 * one_s:  # another would take most of the time
            break
    if not found:
        return Outcome(message="no start: none of the fast placers found a plan")
    message = _roll(task, params, clock, found)
    if message:
        return Outcome(best_at_peak(task, found).plan, message=message)
    usual = max(LEAST_MOVES, min(MOST_MOVES, MOVES_PER_OP * instance.num_ops))
    best, plans, message = improve_start(
        task, found, NAME, clock, steps=params.steps, usual=usual, workers=params.workers
    )
    return Outcome(best, message=message, details={"plans": plans})


def _roll(
    task: Task[Makespan], params: DisjunctiveSearchParams, clock: Clock, found: list[Start]
) -> str:
    """Add what a horizon finds that rolls along the ops, in its share of the time; a message."""
    instance, semantics, left_s = task.instance, task.semantics, clock.left_s
    if instance.num_devices == 1:
        return ""
    deadline = None
    if left_s is not None:
        is_large = instance.num_ops + len(instance.graph.edges) > LARGEST_WALK
        deadline = now_s() + (LARGE_ROLLING_SHARE if is_large else ROLLING_SHARE) * left_s
    best = min(found, key=lambda one: one.value_ns)
    plans = rolling_plans(
        instance, semantics, best, deadline=deadline, seed=task.limits.seed, workers=params.workers
    )
    try:
        for start in plans:
            found.append(start)
            tell(instance, semantics, NAME, value_ns=start.value_ns, plan=start.plan)
    except KeyboardInterrupt:
        return "interrupted"
    return ""


register(
    Method(
        name=NAME,
        claim="heuristic",
        objectives=("makespan",),
        paper="Balas and Vazacopoulos 1998; Mastrolilli and Gambardella 2000",
        cites=("balas1998", "mastrolilli2000"),
        summary="local search over devices and orders, in the disjunctive graph",
        run=run,
        params=DisjunctiveSearchParams,
        packages=("numba",),
    )
)
