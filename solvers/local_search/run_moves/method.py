"""run-moves: runs of groups, and parts of layers, go to other devices as long as there is time."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
from pydantic import Field

from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.plan import Plan, Schedule
from placegap.instances.problem.semantics import Makespan, memory_rule
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Method, Params, Start, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.local_search.peak_memory import peak_arrays, peak_excess
from placegap.solvers.local_search.quick_schedule import (
    bottom_levels,
    kernel_data,
    new_work,
    nothing_booked,
    plan_of,
)
from placegap.solvers.local_search.run_moves import (
    HOT,
    PRICE,
    anneal,
    line_of,
    new_state,
    time_of,
)

NAME = "run-moves"

STARTS = ("single-device", "m-topo", "memory-cuts", "interleaved-cuts")
"""Where a search begins without a plan to start from, besides such a plan."""

USUAL_STEPS = 10_000
"""Moves where there is neither a time limit nor a number."""

LEAST_ROUND, ROUND_PER_GROUP = 2_000, 60
"""Moves of one cooling, at least and for each group, where the clock decides how many there are."""

CHUNK_S, MOVING_PER_JUDGING = 0.2, 10.0
"""About so long the kernel runs between two looks at the clock; and what the referee's time for
plans on the way is worth in moves."""


class RunMovesParams(Params):
    """Parameters of ``run-moves``.

    Attributes
    ----------
    steps : int or None
        Moves at most. By default they go on for the whole time limit; without one there are 10,000.
    insertion : bool
        Whether trials are scheduled by insertion; else no device waits that has something to do.
    anew : bool
        Whether it begins without the plan that it is given, which its own then has to beat.
    """

    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    insertion: bool = True
    anew: bool = False


def run_moves(task: Task[Makespan], params: RunMovesParams) -> Outcome:
    """Move runs and parts between devices by simulated annealing, from the best plan known.

    Colocation groups are ordered by the first of their ops in topological order, as in
    `interleaved_cuts`. A move sends a part (`nested_parts`), or some neighbours among the parts, to
    another device; lets a part take over the devices of one that looks the same, or exchange them
    with it, as the layers of a network do; shifts a border between two devices, sends a run of
    groups to one device, shifts what a run holds along it, exchanges two devices in a run, or
    exchanges two runs of equal length: where memory is full, nothing can move alone. Or the ops of
    a run become more or less urgent. Trials are scheduled by insertion, the longest way to the end
    first, and the referee judges the plans that come back. Plans that overfill memory at its peak
    are walked through, at a price that rises until the search fits again; the first one may be of
    that kind, where it is shorter than those that fit. A heuristic. With a time limit it cools
    again and again, from the same start; without one it is deterministic for a seed. A move costs
    a schedule, O((n + m) (log m + s)), s the stretches of time that are looked at for an item.

    Examples
    --------
    >>> from placegap.instances import example
    >>> run_moves(Task(example(), Makespan()), RunMovesParams()).plan.placement
    ((1,), (0,), (1,), (0,))
    """
    clock = task.limits.clock()
    known = best_start(task, () if task.incumbent is not None else STARTS)
    other = known
    if params.anew and task.incumbent is not None:
        other = best_start(replace(task, incumbent=None), STARTS)
    starts = filter(None, (other, _overfull(task)))
    start = min(starts, key=lambda one: one.value_ns, default=known)
    if start is None:
        return Outcome(message=f"no start: none of {', '.join(STARTS)} found a plan")
    search = _Search(task.instance, task.semantics, start, known, insertion=params.insertion)
    if task.instance.num_devices > 1:
        try:
            search.run(clock, params.steps, task.limits.seed)
        except KeyboardInterrupt:
            search.judge()
            return Outcome(search.best, message="interrupted", details={"moves": search.done})
    message = "" if search.best is not None else "no plan that it tried fits into memory"
    return Outcome(search.best, message=message, details={"moves": search.done})


def _overfull(task: Task[Makespan]) -> Start | None:
    """A start whose ops fit with their state alone, if memory counts at its peak."""
    if memory_rule(task.semantics) == "sum":
        return None
    floor, _ = relax_memory(task.instance, task.semantics)
    added = task.semantics.model_copy(update={"memory": "sum"})
    return best_start(replace(task, instance=floor, semantics=added, incumbent=None), STARTS)


class _Search:
    """The annealing of one instance from one plan, and the best plan that the referee has seen."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        start: Start,
        known: Start | None,
        *,
        insertion: bool,
    ) -> None:
        self.instance, self.semantics = instance, semantics
        self.data, self.line = kernel_data(instance, semantics), line_of(instance, semantics)
        self.work, self.peak = new_work(self.data), peak_arrays(instance, semantics)
        self.booked = nothing_booked(self.data, is_used=insertion)
        self.state = new_state(self.line, start.plan.devices)
        self.at_peak = memory_rule(semantics) == "peak"
        self.best: Plan | None = None if known is None else known.plan
        self.least = NO_WAY if known is None else known.value_ns
        self.done = 0
        schedule = evaluate(instance, start.plan, semantics).schedule
        assert schedule is not None  # a makespan has one
        self.begin(schedule)

    def begin(self, schedule: Schedule) -> None:
        """Take the ways to the end as priorities, or the start's order where that is better."""
        state = self.state
        bottom_levels(self.data, state.device, state.level)
        ordered = schedule.makespan_ns - schedule.start_ns - state.level
        unit, costs = PRICE * schedule.makespan_ns, []
        for shift in (np.zeros_like(ordered), ordered):
            now = self.time_of(state.at, shift)
            excess = 0.0
            if self.at_peak:
                excess = peak_excess(self.peak, state.device, self.work.start, self.work.end)
            costs.append((now + unit * excess, now, excess, shift))
        _, now, excess, shift = min(costs, key=lambda cost: cost[0])
        for kept in (state.shift, state.best_shift):
            kept[:] = shift
        state.value[:2] = now, NO_WAY if excess > 0.0 else now
        state.memory[0] = excess
        self.judged = int(state.value[1])

    def run(self, clock: Clock, steps: int | None, seed: int) -> None:
        """Anneal for so many moves, or round after round from the same start until time is over."""
        if steps is None and clock.limit_s is None:
            steps = USUAL_STEPS
        longest = max(LEAST_ROUND, ROUND_PER_GROUP * len(self.line.size_bytes))
        state, rng, began_s = self.state, np.random.default_rng(seed), now_s()
        kept = (state.at, state.shift, state.value[:1], state.memory)
        start = [part.copy() for part in kept]
        while clock.left_s != 0.0 and (self.done == 0 or steps is None):
            for part, first in zip(kept, start, strict=True):
                part[:] = first
            self.cool(clock, rng, began_s, longest if steps is None else steps)
        self.judge()

    def cool(self, clock: Clock, rng: np.random.Generator, began_s: float, most: int) -> None:
        """One round of at most so many moves, fewer where the time is over before."""
        hot_ns, before, done, chunk = HOT * float(self.state.value[0]), self.done, 0, 16
        total, told_s = most, now_s()
        while clock.left_s != 0.0 and done < total:
            asked_s = now_s()
            if clock.left_s is not None and self.done >= 16:
                rate = self.done / max(1e-6, asked_s - began_s)
                total = min(most, done + max(1, int(rate * clock.left_s)))
            chunk = min(chunk, total - done)
            anneal(
                self.data,
                self.line,
                self.peak,
                self.at_peak,
                self.state,
                self.work,
                self.booked,
                rng,
                done,
                chunk,
                total,
                hot_ns,
            )
            done += chunk
            self.done = before + done
            spent_s = max(1e-6, now_s() - asked_s)
            chunk = max(1, min(4 * chunk, int(chunk * CHUNK_S / spent_s)))
            if now_s() >= told_s:
                asked_s = now_s()
                self.judge()
                told_s = now_s() + MOVING_PER_JUDGING * (now_s() - asked_s)

    def time_of(self, at: Ints, shift: Ints) -> int:
        """The makespan of devices and shifts, whose times `work` then has."""
        return time_of(self.data, self.line, self.state, at, shift, self.work, self.booked, inf)

    def judge(self) -> None:
        """Show the best state to the referee, if it is another one than before."""
        state = self.state
        if state.value[1] == self.judged:
            return
        self.judged = int(state.value[1])
        self.time_of(state.best_at, state.best_shift)
        ordered = plan_of(self.instance, self.semantics, self.data, state.device, self.work)
        for plan in (ordered, Plan.on(state.device.tolist())):  # or the referee's own orders
            verdict = evaluate(self.instance, plan, self.semantics)
            value_ns = verdict.value_ns
            if verdict.feasible and value_ns is not None and value_ns < self.least:
                self.best, self.least = plan, value_ns
                tell(self.instance, self.semantics, NAME, value_ns=value_ns, plan=plan)


register(
    Method(
        name=NAME,
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="simulated annealing that moves runs, layers and parts of them between devices",
        run=run_moves,
        params=RunMovesParams,
        packages=("numba",),
        memory_rules=("sum", "peak"),
    )
)
