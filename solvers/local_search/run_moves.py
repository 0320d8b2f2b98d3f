"""run-moves: simulated annealing that moves runs of groups, and parts of layers, between devices.

State: a device for each place in an order of the colocation groups, and a shift of each op's
priority. The priority itself is the longest path to the end under the placement, and a quick
schedule (`insert_all`) gives the makespan. Every state fits by the least bytes of each op. Under
the rule `peak`, what overfills memory at its peak costs a price, which rises while the search does
not fit and falls while it does.
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
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.referee.evaluate import evaluate, feasible_value
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Params, Start, Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.local_search.cooling import CoolingSteps, Pace, limit_of
from placegap.solvers.local_search.disjunctive_graph import Machines, machines_of
from placegap.solvers.local_search.list_schedules import WindowLists, contended_lists
from placegap.solvers.local_search.nested_parts import alike, nested_parts
from placegap.solvers.local_search.peak_memory import Peak, peak_excess, peak_of
from placegap.solvers.local_search.quick_schedule import (
    Work,
    bottom_levels,
    insert_all,
    new_work,
    plan_of,
)

# All stretches, then windows, are placed anew until as many in a row have found less than a notable
# share of the makespan: rolls, and lists, at least and as a share of all. Given a number of steps,
# there is a list for so many steps, and no roll.
IDLE_ROLLS, IDLE_LISTS, IDLE_SHARE, NOTABLE, STEPS_PER_LIST = 2, 100, 0.4, 1e-3, 10
# What lists must gain for the annealing to begin with their placement: it is scattered, and moves
# of whole parts find less from there (Celeritas' Inception_V3, 2 % gained: 2.01 s, and 1.90).
WORTH = 0.05
# Of the time, for lists that have gained as much (layers of 1,000 ops, 15 s: 20.8 ms, and 21.7).
LISTS_SHARE = 0.8
HOT, COLD = 4e-3, 2e-5  # temperatures at the beginning and at the end, in makespans of the start
DEARER, CHEAPER = 1.01, 0.998  # factors of memory's price after a move without, and with, room
# Price of exceeding one whole memory, in makespans of the start: first, least, most.
PRICE, LEAST_PRICE, MOST_PRICE = 2.0, 0.1, 100.0
SHIFT_SHARE, PARTS_SHARE = 0.02, 0.8  # shares of moves that change priorities, that move parts
# Share of the moves of parts that place one part like another; among these, the shares up to which
# two parts exchange their devices, or two devices their names.
COPY_SHARE, EXCHANGE_SHARE, RENAME_SHARE = 0.5, 0.3, 0.65
# A part is light with less than this share of the time and bytes of a mean group, as reads of
# weights and shapes are. Few draws take any part: Celeritas' Inception_V3 has three light ones of
# four, and comes to 1.53 s in a minute, where it came to 1.77 by draws of any part.
LIGHT, ANY_SHARE = 0.1, 0.1
MOST_PARTS = 5  # most neighbouring parts that move to one device together
# Longest run that moves, as a share of all groups; mean distance that a border between devices is
# shifted.
LONGEST_RUN, MEAN_SHIFT = 0.25, 4.0

NAME = "run-moves"

# Placers whose plans the search starts from if the task has no incumbent.
STARTS = ("single-device", "m-topo", "memory-cuts", "interleaved-cuts")
USUAL_STEPS = 10_000  # number of moves if there is neither a time limit nor a number of steps
# Moves of one cooling, at least and per group, where the time limit decides their number.
LEAST_ROUND, ROUND_PER_GROUP = 2_000, 60
MOVING_PER_JUDGING = 10.0  # time for moves before the next plan, in times of judging the last one


class RunMovesParams(Params):
    #: Most moves. By default they last for the whole time limit; without one there are 10,000.
    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Whether to start without the incumbent, which the result must still beat.
    anew: bool = False


@method(
    NAME,
    objectives=("makespan",),
    paper="placegap",
    packages=("numba",),
    memory_rules=("sum", "peak"),
    seeded=True,
)
def run_moves(task: Task[Makespan], params: RunMovesParams) -> Outcome:
    """Simulated annealing that moves runs, layers and parts of them between devices.

    Before the annealing, windows of the schedule are placed anew by list scheduling
    (`WindowLists`), as long as that shortens it; where few parts are equal, stretch after stretch
    by many short lists before, and for most of the time where that has found much.

    Colocation groups are ordered by the first of their ops in topological order, as in
    `interleaved_cuts`. A move sends a part (`nested_parts`), or some neighbouring parts, to another
    device; copies the devices of an equal part, or exchanges them with it, as for the layers of a
    network; shifts a border between two devices; sends a run of groups to one device; rotates the
    devices of a run; exchanges two devices in a run; or exchanges two runs of equal length, since
    with full memory no group can move alone. Parts with next to no time and bytes are drawn seldom.
    Some moves raise or lower the priorities of a run.
    Trials are scheduled by insertion, the longest path to the end first, and the referee evaluates
    the best plans. Plans that overfill memory at its peak may be visited, at a price that rises
    until the search fits again; the start may be one, if it is shorter than those that fit. A
    heuristic. With a time limit it cools again and again from the same start; without one it is
    deterministic for a seed. A move costs a schedule, O((n + m) (log m + s)) for s stretches of
    time per item.
    """
    clock = task.limits.clock()
    known = best_start(task, () if task.incumbent is not None else STARTS)
    other = known
    if params.anew and task.incumbent is not None:
        other = best_start(replace(task, incumbent=None), STARTS)
    found = filter(None, (other, _overfull(task)))
    start = min(found, key=lambda one: one.value, default=known)
    if start is None:
        return Outcome(message=f"no start: none of {', '.join(STARTS)} found a plan")
    search = _Search(task.instance, task.semantics, known)
    starts = [start] if known is None or other is known else [known, start]
    if task.instance.num_devices > 1:
        try:
            search.run(clock, starts, params.steps, task.limits.seed)
        except KeyboardInterrupt:
            search.judge()
            return Outcome(search.best.plan, message="interrupted", details={"moves": search.done})
    message = "" if search.best.plan is not None else "no plan that it tried fits into memory"
    return Outcome(search.best.plan, message=message, details={"moves": search.done})


def _overfull(task: Task[Makespan]) -> Start | None:
    """Under the rule `peak`, a start that fits without tensors and workspace; else None."""
    if task.semantics.memory_rule == "sum":
        return None
    floor, _ = relax_memory(task.instance, task.semantics)
    added = task.semantics.model_copy(update={"memory": "sum"})
    return best_start(replace(task, instance=floor, semantics=added, incumbent=None), STARTS)


class RunWalks:
    """Arrays of one instance for the kernels, and the state of one walk."""

    def __init__(self, instance: Instance, semantics: Makespan, start: Ints) -> None:
        self.instance, self.semantics = instance, semantics
        self.data, self.line = machines_of(instance, semantics), line_of(instance, semantics)
        self.work, self.state = new_work(self.data), new_state(self.line, start)
        self.peak = peak_of(instance, semantics, at_peak=semantics.memory_rule == "peak")

    def cool(self, pace: Pace, rng: np.random.Generator, most: int) -> Iterator[int]:
        """One round of at most `most` moves, fewer if the time is over before."""

        def walk(steps: CoolingSteps) -> None:
            anneal_runs(self.data, self.line, self.state, self.peak, self.work, rng, steps)

        hot_ns = HOT * float(self.state.value[0])
        return pace.cool(walk, most, hot_ns, COLD / HOT, fits=True)

    def time_of(self, at: Ints, shift: Ints) -> int:
        """The makespan of devices and shifts; `work` then has the times."""
        return time_of(self.data, self.line, self.state, at, shift, self.work, inf)

    def plan(self) -> Plan:
        """The plan of the best state."""
        self.time_of(self.state.best_at, self.state.best_shift)
        return plan_of(self.instance, self.semantics, self.data, self.state.device, self.work)


class _Search(RunWalks):
    """The annealing of one instance from one plan, and the best plan by the referee's value."""

    def __init__(self, instance: Instance, semantics: Makespan, known: Start | None) -> None:
        super().__init__(instance, semantics, np.zeros(instance.num_ops, np.int64))
        self.best = Known(on_progress=reporter(instance, semantics, NAME))
        if known is not None:
            self.best.plan, self.best.value = known
        self.done, self.next_s = 0, now_s()

    def begin(self, plan: Plan) -> None:
        """Take the longest paths as priorities, or the plan's own order if that is better."""
        # A shift of start times minus levels makes the priorities those of the plan's schedule.
        state = self.state
        schedule = evaluate(self.instance, plan, self.semantics).schedule
        assert schedule is not None  # a makespan has one
        state.at[self.line.place] = state.device[:] = plan.devices
        state.best_at[:] = state.at
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
        # insertion may make the start shorter than what is known: then it is judged
        self.judged = max(int(state.value[1]), self.best.value or 0)

    def run(self, clock: Clock, starts: list[Start], steps: int | None, seed: int) -> None:
        """Anneal for some moves, or round after round from the same start until time is over."""
        # The start is the first one that windows shorten by much, or the last one: so the windows
        # of an earlier turn, whose time was over, go on from its plan.
        if steps is None and clock.limit_s is None:
            steps = USUAL_STEPS
        longest = max(LEAST_ROUND, ROUND_PER_GROUP * len(self.line.size_bytes))
        state, rng = self.state, np.random.default_rng(seed)
        kept = (state.at, state.shift, state.value[:1], state.memory)
        first = [part.copy() for part in kept]
        for start in starts:
            self.begin(start.plan)
            first = [part.copy() for part in kept]
            if not self.peak.at_peak:
                before_ns = int(state.value[0])
                self.place_windows(clock, None if steps is None else steps // STEPS_PER_LIST, rng)
                self.judge()
                if state.value[0] < (1.0 - WORTH) * before_ns:
                    first = [part.copy() for part in kept]
                    break
        pace = Pace(None if clock.left_s is None else now_s() + clock.left_s)
        while not pace.is_over and (self.done == 0 or steps is None):
            for part, its_first in zip(kept, first, strict=True):
                part[:] = its_first
            for chunk in self.cool(pace, rng, longest if steps is None else steps):
                self.done += chunk
                self.judge_at_times()
        self.judge()

    def place_windows(self, clock: Clock, most: int | None, rng: np.random.Generator) -> None:
        """Place all ops, then windows anew by lists, while that shortens the schedule."""
        # A list decides on hundreds of ops in the time of one move: on large graphs, where there is
        # time for few moves, it finds far more. Every list starts from the shortest schedule.
        state, whole = self.state, clock.part(LISTS_SHARE)
        start_ns = float(state.value[0])
        for plan in contended_lists(self.instance, self.semantics):
            if most == 0 or clock.is_over():
                return
            self.take_if_shorter(plan.devices, by_levels=True)
        lists, failed = WindowLists(self.instance, self.data), 0
        # Where few parts are equal, as with random times, lists find far more than moves. Layers of
        # networks are alike, and moves find more (Celeritas' Inception_V3: 1.79 s, and 1.86).
        rolls = most is None and 2 * len(self.line.same) < len(self.line.part_ptr)
        while rolls and failed < IDLE_ROLLS and not clock.is_over():
            before_ns = float(state.value[0])
            rolled = lists.roll(state.at[self.line.place], rng, clock.is_over)
            self.take_if_shorter(rolled, by_levels=True)
            failed = 0 if state.value[0] < (1.0 - NOTABLE) * before_ns else failed + 1
            self.judge_at_times()
        self.time_of(state.at, state.shift)
        notable_ns, done, found_at, by_start = float(state.value[0]), 0, 0, self.by_start()
        while done != most:
            pays = rolls and state.value[0] < (1.0 - WORTH) * start_ns
            idle = done - found_at >= max(IDLE_LISTS, IDLE_SHARE * done)
            if clock.is_over() or (idle and (whole.is_over() or not pays)):
                return
            done += 1
            device = lists.draw(state.at[self.line.place], by_start, rng)
            if device is None or not self.take_if_shorter(device):
                continue
            by_start = self.by_start()
            if state.value[0] < (1.0 - NOTABLE) * notable_ns:
                notable_ns, found_at = float(state.value[0]), done
            self.judge_at_times()

    def take_if_shorter(self, device: Ints, *, by_levels: bool = False) -> bool:
        """Take over devices that fit and keep the makespan or shorten it."""
        # Priorities are those of now. For devices that are all new those of an earlier plan's order
        # may be bad ones: they are also tried `by_levels` alone, without a shift.
        state, limit = self.state, float(self.state.value[0])
        state.trial[self.line.place] = device
        for shift in (state.shift, np.zeros_like(state.shift)) if by_levels else (state.shift,):
            now = time_of(self.data, self.line, state, state.trial, shift, self.work, limit)
            if now <= limit:
                state.at[:] = state.best_at[:] = state.trial
                state.shift[:] = state.best_shift[:] = shift
                state.value[:] = now
                return True
        return False

    def by_start(self) -> Ints:
        """The ops by their starts in the last schedule."""
        position = self.instance.arrays.index.topological_position
        return np.lexsort((position, self.work.start[: len(position)]))

    def judge_at_times(self) -> None:
        """Judge, but for a small part of the time alone."""
        if now_s() >= self.next_s:
            began_s = now_s()
            self.judge()
            self.next_s = now_s() + MOVING_PER_JUDGING * (now_s() - began_s)

    def judge(self) -> None:
        """Evaluate the best state by the referee, if it is a new one."""
        state = self.state
        if state.value[1] == self.judged:
            return
        self.judged = int(state.value[1])
        for plan in (self.plan(), Plan.on(state.device.tolist())):  # or the referee's own orders
            self.best.improve(feasible_value(self.instance, plan, self.semantics), plan)


class Line(NamedTuple):
    """The order of the colocation groups, P places for n ops and K devices."""

    place: Ints  # (n,) int64: Place of each op's group
    able: Flags  # (P, K) bool: Whether each device can run each place
    size_bytes: Ints  # (P,) int64: Least bytes of each place, under either rule of memory
    room_bytes: Ints  # (K,) int64
    #: member_ptr, member: The ops of each place, as a CSR list.
    member_ptr: Ints
    member: Ints
    #: part_ptr, part: The places of each of `nested_parts`, as a CSR list.
    part_ptr: Ints
    part: Ints
    #: same_ptr, same: The numbers of equal parts, as a CSR list.
    same_ptr: Ints
    same: Ints
    #: heavy, heavy_same: Parts, and lists of equal parts, that are not light.
    heavy: Ints
    heavy_same: Ints


def line_of(instance: Instance, semantics: Makespan) -> Line:
    """The order of an instance, and the least bytes, by which moves are refused at once."""
    arrays = instance.arrays
    order = arrays.group_order
    place = arrays.place_of_ops(order)
    least = (
        arrays if semantics.memory_rule == "sum" else relax_memory(instance, semantics)[0].arrays
    )
    member_ptr, member = group_by(place, len(order))
    parts = nested_parts(instance, order)
    part_ptr, part = _listed(parts)
    same_ptr, same = _listed(alike(instance, order, parts))
    time_ns = np.where(arrays.able, arrays.time_ns, NO_WAY).min(axis=1)
    shares = _shares(np.bincount(place, time_ns)) + _shares(least.group_bytes[order])
    heavy = np.add.reduceat(shares[part], part_ptr[:-1]) >= 2 * LIGHT / len(order)
    return Line(
        place,
        arrays.group_runs[order],
        least.group_bytes[order],
        arrays.memory_bytes,
        member_ptr,
        member,
        part_ptr,
        part,
        same_ptr,
        same,
        np.flatnonzero(heavy),
        np.flatnonzero(heavy[same[same_ptr[:-1]]]),
    )


def _shares(amount: Ints | Floats) -> Floats:
    """Each amount as a share of all of them."""
    return amount / max(1.0, float(amount.sum()))


def _listed(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Lists of numbers as pointers, and all numbers in a row."""
    numbers = [number for row in rows for number in row]
    return np.cumsum([0, *map(len, rows)]), np.array(numbers, np.int64)


class RunState(NamedTuple):
    """The current state, a trial, and the best state."""

    # ``value[:]`` is (current makespan, least that fits), ``memory[:]`` the excess of memory now,
    # as a share of a device's memory, and its price. `at` and its like are (P,), the others (n,);
    # `device` is that of the trial.
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
    """The state of a placement that respects colocation, (n,), before it is evaluated."""
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
    """The makespan of devices (``state.device``) and shifts; `work` has the times."""
    # If the longest path is above the limit, it is returned, and nothing is scheduled.
    # No schedule is shorter than the longest path, so the move is rejected without one.
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
    """Try some moves of a cooling; `peak` reads the times in `work`."""
    at, trial, value, memory = state.at, state.trial, state.value, state.memory
    held = state.held
    for step in range(steps.done, steps.done + steps.moves):
        price = memory[1] * steps.hot / HOT
        # The random number of Metropolis's rule is drawn before the schedule, so that the rule is a
        # limit on its value and a trial whose longest path exceeds it is not scheduled.
        limit = limit_of(value[0] + price * memory[0], steps, step, rng)
        copy_to(trial, at)
        copy_to(state.trial_shift, state.shift)
        kind = rng.random()
        if kind < SHIFT_SHARE:
            # The priorities of most ops of a run change by the same amount.
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
            # Places that cannot run there stay. The least bytes must fit at any temperature.
            differs, fits = False, True
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
        # The price balances itself: it rises by 1 % for a move in overfilled memory and falls by
        # 0.2 % otherwise, so the search is near the border of what fits, where the best plans are.
        memory[1] *= DEARER if memory[0] > 0.0 else CHEAPER
        memory[1] = min(max(memory[1], LEAST_PRICE), MOST_PRICE)


@kernel(nogil=True, allocates=False)
def _move_parts(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """Move a part or some neighbouring parts to another device, or copy or exchange devices."""
    ptr, part, k = line.part_ptr, line.part, line.able.shape[1]
    if len(line.same) > 0 and rng.random() < COPY_SHARE:
        # Part j gets the devices of an equal part i, and with an exchange i those of j. In a third
        # of these moves the devices of their first places change roles, so that equal layers may
        # follow one another on other devices.
        c = _draw(rng, len(line.same_ptr) - 1, line.heavy_same)
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
    i = _draw(rng, len(ptr) - 1, line.heavy)
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
def _draw(rng: np.random.Generator, num: int, heavy: Ints) -> int:
    """One of some numbers, mostly one of the heavy ones."""
    if len(heavy) > 0 and rng.random() >= ANY_SHARE:
        return int(heavy[draw(rng, len(heavy))])
    return draw(rng, num)


@kernel(nogil=True, allocates=False)
def _move(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """Write the devices after one move of a run into the trial, whatever their memory."""
    # By `kind`: 40 % shift a border between two devices, 25 % send a run to one device, 10 % rotate
    # a run's devices, 15 % exchange two devices in a run, 10 % exchange two runs. Short runs are
    # drawn far more often than long ones.
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
