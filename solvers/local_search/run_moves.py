"""run-moves: runs of groups, and parts of layers, go to other devices as long as there is time.

Simulated annealing on quick schedules. A state is a device per place of the order of colocation
groups, and a shift of each op's priority; the priority itself is the longest way to the end under
the placement. The state of the ops fits; what overfills memory at its peak is charged for, the more
the longer the search has not fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel, set_all
from placegap.instances.problem import Instance, Makespan, Plan, Schedule
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.referee.evaluate import evaluate, feasible_value
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Params, Start, Task
from placegap.solvers.core.progress import Incumbent, teller
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.local_search.cooling import CoolingSteps, Pace, limit_of
from placegap.solvers.local_search.disjunctive_graph import Machines, machines_of
from placegap.solvers.local_search.nested_parts import alike, nested_parts
from placegap.solvers.local_search.peak_memory import Peak, peak_excess, peak_of
from placegap.solvers.local_search.quick_schedule import (
    Work,
    bottom_levels,
    insert_all,
    new_work,
    plan_of,
)

HOT, COLD = 4e-3, 2e-5
"""Temperatures at the beginning and at the end, in makespans of the start."""

DEARER, CHEAPER = 1.01, 0.998
"""What a move that leaves the search in, or out of, overfilled memory makes of memory's price."""

PRICE, LEAST_PRICE, MOST_PRICE = 2.0, 0.1, 100.0
"""Of one whole memory too many, in makespans of the start: at first, at least, at most."""

SHIFT_SHARE, PARTS_SHARE = 0.02, 0.8
"""Of all moves: those that make ops more or less urgent, and those that move parts."""

COPY_SHARE, EXCHANGE_SHARE, RENAME_SHARE = 0.5, 0.3, 0.65
"""Of the moves of parts, those that place a part like another one; of them, those that exchange,
and up to which share devices change names."""

MOST_PARTS = 5
"""Neighbours among the parts that go to one device together."""

LONGEST_RUN, MEAN_SHIFT = 0.25, 4.0
"""Of all groups, for the longest run that moves; and how far a border between devices goes."""

NAME = "run-moves"

STARTS = ("single-device", "m-topo", "memory-cuts", "interleaved-cuts")
"""Where a search begins without a plan to start from, besides such a plan."""

USUAL_STEPS = 10_000
"""Moves where there is neither a time limit nor a number."""

LEAST_ROUND, ROUND_PER_GROUP = 2_000, 60
"""Moves of one cooling, at least and for each group, where the clock decides how many there are."""

MOVING_PER_JUDGING = 10.0
"""What the referee's time for plans on the way is worth in moves."""


class RunMovesParams(Params):
    """Parameters of ``run-moves``."""

    #: Moves at most. By default they go on for the whole time limit; without one there are 10,000.
    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Whether it begins without the plan that it is given, which its own then has to beat.
    anew: bool = False


@method(
    NAME,
    objectives=("makespan",),
    paper="placegap",
    packages=("numba",),
    memory_rules=("sum", "peak"),
)
def run_moves(task: Task[Makespan], params: RunMovesParams) -> Outcome:
    """Simulated annealing that moves runs, layers and parts of them between devices.

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
    search = _Search(task.instance, task.semantics, start, known)
    if task.instance.num_devices > 1:
        try:
            search.run(clock, params.steps, task.limits.seed)
        except KeyboardInterrupt:
            search.judge()
            return Outcome(search.best.plan, message="interrupted", details={"moves": search.done})
    message = "" if search.best.plan is not None else "no plan that it tried fits into memory"
    return Outcome(search.best.plan, message=message, details={"moves": search.done})


def _overfull(task: Task[Makespan]) -> Start | None:
    """A start whose ops fit with their state alone, if memory counts at its peak."""
    if task.semantics.memory_rule == "sum":
        return None
    floor, _ = relax_memory(task.instance, task.semantics)
    added = task.semantics.model_copy(update={"memory": "sum"})
    return best_start(replace(task, instance=floor, semantics=added, incumbent=None), STARTS)


class RunWalks:
    """What walks of one instance are made in: kernels' arrays, and the state of one walk."""

    def __init__(self, instance: Instance, semantics: Makespan, start: Ints) -> None:
        self.instance, self.semantics = instance, semantics
        self.data, self.line = machines_of(instance, semantics), line_of(instance, semantics)
        self.work, self.state = new_work(self.data), new_state(self.line, start)
        self.peak = peak_of(instance, semantics, at_peak=semantics.memory_rule == "peak")

    def cool(self, pace: Pace, rng: np.random.Generator, most: int) -> Iterator[int]:
        """One round of at most `most` moves, fewer where the time is over before."""

        def walk(steps: CoolingSteps) -> None:
            anneal_runs(self.data, self.line, self.state, self.peak, self.work, rng, steps)

        hot_ns = HOT * float(self.state.value[0])
        return pace.cool(walk, most, hot_ns, COLD / HOT, fits=True)

    def time_of(self, at: Ints, shift: Ints) -> int:
        """The makespan of devices and shifts, whose times `work` then has."""
        return time_of(self.data, self.line, self.state, at, shift, self.work, inf)

    def plan(self) -> Plan:
        """The plan of the best state."""
        self.time_of(self.state.best_at, self.state.best_shift)
        return plan_of(self.instance, self.semantics, self.data, self.state.device, self.work)


class _Search(RunWalks):
    """The annealing of one instance from one plan, and the best plan that the referee has seen."""

    def __init__(
        self, instance: Instance, semantics: Makespan, start: Start, known: Start | None
    ) -> None:
        super().__init__(instance, semantics, start.plan.devices)
        self.best = Incumbent(on_news=teller(instance, semantics, NAME))
        if known is not None:
            self.best.plan, self.best.value_ns = known
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
            if self.peak.at_peak:
                times = self.work.start, self.work.end
                excess = peak_excess(self.data, self.peak, state.device, *times)
            costs.append((now + unit * excess, now, excess, shift))
        _, now, excess, shift = min(costs, key=lambda cost: cost[0])
        for kept in (state.shift, state.best_shift):
            kept[:] = shift
        state.value[:2] = now, NO_WAY if excess > 0.0 else now
        state.memory[0] = excess
        self.judged = int(state.value[1])

    def run(self, clock: Clock, steps: int | None, seed: int) -> None:
        """Anneal for some moves, or round after round from the same start until time is over."""
        if steps is None and clock.limit_s is None:
            steps = USUAL_STEPS
        longest = max(LEAST_ROUND, ROUND_PER_GROUP * len(self.line.size_bytes))
        state, rng = self.state, np.random.default_rng(seed)
        pace = Pace(None if clock.left_s is None else now_s() + clock.left_s)
        kept = (state.at, state.shift, state.value[:1], state.memory)
        start = [part.copy() for part in kept]
        while not pace.is_over and (self.done == 0 or steps is None):
            for part, first in zip(kept, start, strict=True):
                part[:] = first
            told_s = now_s()
            for chunk in self.cool(pace, rng, longest if steps is None else steps):
                self.done += chunk
                if now_s() >= told_s:
                    asked_s = now_s()
                    self.judge()
                    told_s = now_s() + MOVING_PER_JUDGING * (now_s() - asked_s)
        self.judge()

    def judge(self) -> None:
        """Show the best state to the referee, if it is another one than before."""
        state = self.state
        if state.value[1] == self.judged:
            return
        self.judged = int(state.value[1])
        for plan in (self.plan(), Plan.on(state.device.tolist())):  # or the referee's own orders
            self.best.improve(feasible_value(self.instance, plan, self.semantics), plan)


class Line(NamedTuple):
    """The order of the colocation groups, P places for n ops and K devices."""

    #: (n,) int64: Of each op's group.
    place: Ints
    #: (P, K) bool: Where each place can be.
    able: Flags
    #: (P,) int64: What each place holds at least, under either rule of memory.
    size_bytes: Ints
    #: (K,) int64
    room_bytes: Ints
    #: member_ptr, member: The ops of each place, as a CSR list.
    member_ptr: Ints
    member: Ints
    #: part_ptr, part: The places of each of `nested_parts`, as a CSR list.
    part_ptr: Ints
    part: Ints
    #: same_ptr, same: The numbers of parts that look the same, as a CSR list.
    same_ptr: Ints
    same: Ints


def line_of(instance: Instance, semantics: Makespan) -> Line:
    """The order of an instance, and the bytes by which moves are refused at once."""
    arrays = instance.arrays
    order = arrays.group_order
    place = arrays.place_of_ops(order)
    least = (
        arrays if semantics.memory_rule == "sum" else relax_memory(instance, semantics)[0].arrays
    )
    member_ptr, member = group_by(place, len(order))
    parts = nested_parts(instance, order)
    return Line(
        place,
        arrays.group_runs[order],
        least.group_bytes[order],
        arrays.memory_bytes,
        member_ptr,
        member,
        *_listed(parts),
        *_listed(alike(instance, order, parts)),
    )


def _listed(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Lists of numbers as pointers, and all numbers in a row."""
    numbers = [number for row in rows for number in row]
    return np.cumsum([0, *map(len, rows)]), np.array(numbers, np.int64)


class RunState(NamedTuple):
    """Where the search is, a trial, and the best seen.

    ``value[:]`` is (now, least that fits), and ``memory[:]`` by which
    share of its memory a device is too full now, and its price. `at` and its like are (P,), and
    the others (n,); `device` is that of the trial.
    """

    at: Ints
    trial: Ints
    best_at: Ints
    shift: Ints
    trial_shift: Ints
    best_shift: Ints
    device: Ints
    level: Ints
    held: Ints
    value: Ints
    memory: Floats


def new_state(line: Line, device: Ints) -> RunState:
    """The state of a placement that respects colocation, (n,), before it is judged."""
    at = np.empty(len(line.size_bytes), np.int64)
    at[line.place] = device
    n, k = len(device), len(line.room_bytes)
    shift, trial_shift, best_shift, level = np.zeros((4, n), np.int64)
    return RunState(
        at,
        at.copy(),
        at.copy(),
        shift,
        trial_shift,
        best_shift,
        device.copy(),
        level,
        np.zeros(k, np.int64),
        np.zeros(2, np.int64),
        np.array([0.0, PRICE]),
    )


@kernel(nogil=True, allocates=False)
def time_of(
    data: Machines, line: Line, state: RunState, at: Ints, shift: Ints, work: Work, limit: float
) -> int:
    """The makespan of devices and shifts; `work` has the times, and ``state.device`` the devices.

    Where the longest way is above the limit, it is returned, and nothing is scheduled.
    """
    device, level = state.device, state.level
    for i in range(len(device)):
        device[i] = at[line.place[i]]
    bottom_levels(data, device, level)
    longest = 0
    for i in range(len(device)):
        longest = max(longest, level[i])
        level[i] += shift[i]
    if longest > limit:
        return int(longest)
    return insert_all(data, device, level, work)


@kernel(nogil=True, allocates=False)
def anneal_runs(
    data: Machines,
    line: Line,
    state: RunState,
    peak: Peak,
    work: Work,
    rng: np.random.Generator,
    steps: CoolingSteps,
) -> None:
    """Try some moves of a cooling; `peak` looks at the times in `work`."""
    at, trial, value, memory = state.at, state.trial, state.value, state.memory
    held = state.held
    for step in range(steps.done, steps.done + steps.moves):
        price = memory[1] * steps.hot / HOT
        limit = limit_of(value[0] + price * memory[0], steps, step, rng)
        copy_to(trial, at)
        copy_to(state.trial_shift, state.shift)
        kind = rng.random()
        if kind < SHIFT_SHARE:  # ops of a run become more or less urgent, all by as much
            p = draw(rng, len(at))
            far = 1 + int(rng.exponential(MEAN_SHIFT))
            by = int(rng.standard_normal() * value[0] * 0.02)
            for q in range(p, min(p + far, len(at))):
                for i in line.member[line.member_ptr[q] : line.member_ptr[q + 1]]:
                    if rng.random() < 0.7:
                        state.trial_shift[i] += by
        else:
            if kind < SHIFT_SHARE + PARTS_SHARE:
                _move_parts(line, at, trial, rng)
            else:
                _move(line, at, trial, rng)
            differs, fits = False, True  # places that cannot follow stay
            set_all(held, 0)
            for q in range(len(at)):
                if not line.able[q, trial[q]]:
                    trial[q] = at[q]
                differs = differs or trial[q] != at[q]
                held[trial[q]] += line.size_bytes[q]
            for a in range(len(held)):
                fits = fits and held[a] <= line.room_bytes[a]
            if not differs or not fits:
                continue
        now, excess = time_of(data, line, state, trial, state.trial_shift, work, limit), 0.0
        if peak.at_peak and now <= limit:
            excess = peak_excess(data, peak, state.device, work.start, work.end)
        if now + price * excess <= limit:
            copy_to(at, trial)
            copy_to(state.shift, state.trial_shift)
            value[0], memory[0] = now, excess
            if excess == 0.0 and now < value[1]:
                value[1] = now
                copy_to(state.best_at, at)
                copy_to(state.best_shift, state.shift)
        memory[1] *= DEARER if memory[0] > 0.0 else CHEAPER
        memory[1] = min(max(memory[1], LEAST_PRICE), MOST_PRICE)


@kernel(nogil=True, allocates=False)
def _move_parts(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """A part goes to another device, or some neighbours among the parts, or two exchange theirs."""
    ptr, part, k = line.part_ptr, line.part, line.able.shape[1]
    if len(line.same) > 0 and rng.random() < COPY_SHARE:
        # one is placed like another one that looks the same, which may be placed like it in turn;
        # the devices of their first places may change names
        c = draw(rng, len(line.same_ptr) - 1)
        first, count = line.same_ptr[c], line.same_ptr[c + 1] - line.same_ptr[c]
        i, j = line.same[first + draw(rng, count)], line.same[first + draw(rng, count)]
        a, b = at[part[ptr[i]]], at[part[ptr[j]]]
        kind = rng.random()
        for p in range(ptr[i + 1] - ptr[i]):
            d = at[part[ptr[i] + p]]
            if kind < EXCHANGE_SHARE:
                trial[part[ptr[i] + p]] = at[part[ptr[j] + p]]
            elif kind < RENAME_SHARE and d == a:
                d = b
            elif kind < RENAME_SHARE and d == b:
                d = a
            trial[part[ptr[j] + p]] = d
        return
    i = draw(rng, len(ptr) - 1)
    a, kind = at[part[ptr[i]]], rng.random()
    if kind < 0.75:
        last = i + 1 if kind < 0.4 else min(len(ptr) - 1, i + 1 + draw(rng, MOST_PARTS))
        b = (a + 1 + draw(rng, k - 1)) % k
        for p in part[ptr[i] : ptr[last]]:
            trial[p] = b
        return
    j = draw(rng, len(ptr) - 1)
    b = at[part[ptr[j]]]
    for p in part[ptr[i] : ptr[i + 1]]:
        trial[p] = b
    for p in part[ptr[j] : ptr[j + 1]]:
        trial[p] = a


@kernel(nogil=True, allocates=False)
def _move(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """Write the devices after one move, whatever their memory, into the trial."""
    num, k = line.able.shape
    kind = rng.random()
    length = 1 + int(LONGEST_RUN * (num - 1) * rng.random() ** 4)
    i = draw(rng, num - length + 1)
    if kind < 0.4:
        borders = 0
        for p in range(num - 1):
            borders += at[p] != at[p + 1]
        border, which = -1, draw(rng, borders) if borders > 0 else -1
        while which >= 0:
            border += 1
            which -= at[border] != at[border + 1]
        far = 1 + int(rng.exponential(MEAN_SHIFT))
        if border < 0:
            return
        if rng.random() < 0.5:
            for p in range(border + 1, min(num, border + 1 + far)):
                trial[p] = at[border]
        else:
            for p in range(max(0, border + 1 - far), border + 1):
                trial[p] = at[border + 1]
    elif kind < 0.65:
        to = draw(rng, k)
        for p in range(i, i + length):
            trial[p] = to
    elif kind < 0.75:
        by = draw(rng, length + 1)
        for p in range(length):
            trial[i + (p + by) % length] = at[i + p]
    elif kind < 0.9:
        a, b = draw(rng, k), draw(rng, k)
        for p in range(i, i + length):
            if at[p] == a:
                trial[p] = b
            elif at[p] == b:
                trial[p] = a
    else:
        j = draw(rng, num - length + 1)
        for p in range(length):
            trial[i + p] = at[j + p]
        for p in range(length):
            trial[j + p] = at[i + p]
