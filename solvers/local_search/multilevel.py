"""multilevel: the disjunctive search on coarser graphs first, then on the graph itself.

On a graph of thousands of ops a search moves one op at a time, most of which take no time at all.
Merged to parts of about equal work, the same search moves what matters, and more often.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.evaluate import evaluate, feasible_ns
from placegap.instances.transforms.merge import Merge, expand_plan
from placegap.instances.transforms.pesto_merge import merge_heavy_edges
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Method, Params, Start, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import placers, starts
from placegap.solvers.local_search.disjunctive_search import best_at_peak, fits_at_peak, improve
from placegap.solvers.local_search.rolling_horizon import contended_lists

NAME = "multilevel"

LEVELS = (50, 200, 800)
"""Parts that make the work of a device, on one level after another."""

WORTHWHILE = 0.9
"""A level with more ops than this share of all is left out."""

ROUND_ENDS = (0.4, 1.0)
"""By which share of the time each round ends."""

COARSE_SHARE = 0.5
"""Of a round, for all levels but the graph itself."""

US_PER_PART_MERGED = 60.0
"""What merging takes for each op and edge, so that levels without time for it are left out."""

USUAL_MOVES = 10_000
"""Moves on each level where there is neither a time limit nor a number."""


class MultilevelParams(Params):
    """Parameters of ``multilevel``."""

    #: Moves on each level of each round. By default they go on for the whole time limit; without
    #: one there are 10,000.
    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Whether placers are asked for a first plan besides the task's incumbent.
    start: bool = True


def run(task: Task[Makespan], params: MultilevelParams) -> Outcome:
    """Search coarser graphs, each from lists of its own, and go on from the best on the graph.

    A round searches graphs of some 50, 200 and 800 parts for each device, and then the graph itself
    from the best plan of all. The first round starts from nothing; in the second one parts do not
    cross the devices of the best plan, which so is a plan of every level (iterated multilevel, as
    in Walshaw, "Multilevel refinement for combinatorial optimisation problems", Annals of OR 131,
    2004). The second round is the longer one. A heuristic, deterministic for a seed
    without a time limit. The merging takes O((n d + m) log m) for each level, d edges at an op.
    """
    known = list(starts(task, placers(task) if params.start else ()))
    search = _Rounds(task, params.steps, best_at_peak(task, known) if known else None)
    try:
        search.run()
    except KeyboardInterrupt:
        message = "interrupted"
    else:
        message = "" if search.best else "no start: no list schedule of any level fits"
    plan = None if search.best is None else search.best.plan
    return Outcome(plan, message=message, details={"levels": search.levels})


class _Rounds:
    """The rounds of one task, and the best plan by now."""

    def __init__(self, task: Task[Makespan], steps: int | None, best: Start | None) -> None:
        self.task, self.best, self.levels = task, best, 0
        self.clock = task.limits.clock()
        self.steps = steps
        if steps is None and self.clock.limit_s is None:
            self.steps = USUAL_MOVES

    def run(self) -> None:
        """All rounds, as far as the time suffices."""
        for number, end in enumerate(ROUND_ENDS):
            if self.clock.left_s == 0.0:
                break
            limit_s = self.clock.limit_s
            left_s = None if limit_s is None else max(0.0, end * limit_s - self.clock.spent_s)
            self._round(number, Clock(left_s))

    def _round(self, number: int, clock: Clock) -> None:
        instance, known = self.task.instance, self.best if number else None
        apart = None if known is None else known.plan.devices
        begins = [] if known is None else [known]  # at first, a better start leads less far
        for at, parts in enumerate(self._levels(clock)):
            merge = merge_heavy_edges(instance, parts, apart)
            if merge.coarse.num_ops > WORTHWHILE * instance.num_ops:
                break
            left_s = None
            if clock.limit_s is not None:
                left_s = max(0.0, COARSE_SHARE * clock.limit_s - clock.spent_s) / (len(LEVELS) - at)
            plans = [] if known is None else [coarse_plan(merge, known.plan, self.task.semantics)]
            found = self._search(merge.coarse, plans, number, left_s)
            self.levels += 1
            if found is not None:
                fine = expand_plan(merge, found.plan, self.task.semantics)
                begins += _judged(instance, self.task.semantics, fine)
        self._search(instance, [start.plan for start in begins], number, clock.left_s)

    def _levels(self, clock: Clock) -> tuple[int, ...]:
        """The levels of a round, none where merging takes most of the time for them."""
        instance = self.task.instance
        merging_s = 1e-6 * US_PER_PART_MERGED * (instance.num_ops + len(instance.graph.edges))
        left_s = clock.left_s
        hasty = left_s is not None and len(LEVELS) * merging_s > COARSE_SHARE / 2 * left_s
        return () if hasty else LEVELS

    def _search(
        self, instance: Instance, plans: list[Plan], number: int, left_s: float | None
    ) -> Start | None:
        """The best plan of one level, from the given plans and from lists; told if it is fine."""
        semantics = self.task.semantics
        found = [one for plan in plans for one in _judged(instance, semantics, plan)]
        for plan in contended_lists(instance, semantics):
            found += _judged(instance, semantics, plan)
        at_peak = None
        if instance is self.task.instance and self.task.at_peak is not None:
            found += [] if self.best is None else [self.best]
            fitting = [one for one in found if fits_at_peak(self.task, one.plan)]
            found, at_peak = fitting or found, self.task.at_peak if fitting else None
        if not found:
            return None
        best = min(found, key=lambda one: one.value_ns)
        self._take(instance, best)
        deadline = None if left_s is None else now_s() + left_s
        seed = self.task.limits.seed + number
        for plan in improve(
            instance,
            semantics,
            [best.plan],
            deadline=deadline,
            steps=self.steps,
            seed=seed,
            at_peak=at_peak,
        ):
            for better in _judged(instance, semantics, plan):
                best = min(best, better, key=lambda one: one.value_ns)
            self._take(instance, best)
        return best

    def _take(self, instance: Instance, start: Start) -> None:
        """Keep and tell a plan of the instance itself, if it is the best."""
        if instance is not self.task.instance:
            return
        best = start if self.best is None else best_at_peak(self.task, [self.best, start])
        if best is not self.best:
            self.best = start
            value_ns, plan = start.value_ns, start.plan
            tell(instance, self.task.semantics, NAME, value_ns=value_ns, plan=plan)


def _judged(instance: Instance, semantics: Makespan, plan: Plan) -> Iterator[Start]:
    """A plan as the referee sees it, or nothing."""
    value_ns = feasible_ns(instance, plan, semantics)
    if value_ns is not None:
        yield Start(plan, value_ns)


def coarse_plan(merge: Merge, plan: Plan, semantics: Makespan) -> Plan:
    """The plan of a merged instance whose parts stay where, and about when, their ops are.

    No part has ops on two devices. The parts of a device follow each other by the mean start of
    their ops, but never before what they wait for.
    """
    schedule = evaluate(merge.fine, plan, semantics).schedule
    assert schedule is not None  # the plan is feasible
    count = np.bincount(merge.op)
    start = np.bincount(merge.op, schedule.start_ns) / count
    index = merge.coarse.arrays.index
    for c in index.topological_order.tolist():
        edges = index.pred_edge[index.pred_ptr[c] : index.pred_ptr[c + 1]]
        start[c] = max(start[c], start[index.producer[edges]].max(initial=0.0))
    rank = np.empty(len(count), np.int64)
    rank[np.lexsort((index.topological_position, start))] = np.arange(len(count))
    device = np.empty(len(count), np.int64)
    device[merge.op] = plan.devices
    times = [(at, at) for at in rank.tolist()]
    return plan_from_times(merge.coarse, semantics, device.tolist(), times, [])


register(
    Method(
        name=NAME,
        claim="heuristic",
        objectives=("makespan",),
        paper="Karypis and Kumar 1998; Walshaw 2004",
        cites=("karypis1998", "walshaw2004"),
        summary="local search on graphs of few parts first, then on the graph itself",
        run=run,
        params=MultilevelParams,
        packages=("numba",),
    )
)
