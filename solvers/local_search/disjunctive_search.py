"""disjunctive-search: placement and orders by local search in the disjunctive graph.

Each round cools a walk from the best schedule (simulated annealing with reheating), and each round
is longer than the one before. Several walks with different random numbers run in threads; each
round starts from the best of all. Large graphs are searched window by window: those that are too
large for one walk, and others as long as that pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np
from pydantic import Field

from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.evaluate import evaluate, feasible_value
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Params, Start, Task
from placegap.solvers.core.progress import Known, report, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start, placers
from placegap.solvers.local_search.cooling import CoolingSteps, Pace
from placegap.solvers.local_search.disjunctive_graph import (
    LABEL,
    MACHINE,
    all_starts,
    all_tails,
    empty_orders,
    fill,
    machines_of,
)
from placegap.solvers.local_search.list_schedules import contended_lists
from placegap.solvers.local_search.peak_memory import peak_of, schedule_fits
from placegap.solvers.local_search.walk import (
    MOST_TOGETHER,
    Rooms,
    ScheduleWindow,
    Trace,
    find_exits,
    makespan_of,
    restore,
    save,
    walk_on,
)

HOT, COLD = 0.2, 0.005  # temperatures at the beginning and end of a round, in mean times of an op
WINDOW_OPS, MOST_EXITS = 500, 512  # ops of a window, and most items behind it that may wait for it
# Moves of the first round, at least and per op, and the factor from each round to the next.
FIRST_ROUND, FIRST_PER_OP, GROWTH = 20_000, 50, 4
ENOUGH_PER_OP = 100  # moves per op of a round at full heat; with fewer it begins colder
# Items of the largest graph that is searched as a whole, and ops beyond which windows come first,
# while a cold sweep finds a notable share of the makespan: four find in 10 s three times what the
# whole finds (layers of 10,000 ops).
LARGEST_WALK, LARGEST_FIRST, NOTABLE = 60_000, 4_000, 2e-3
MOST_SHARED = 1_000_000  # edges of the largest graph of which several walks hold copies
WINDOW_MOVES_PER_OP = 5  # moves per op of a window in the first sweep; later ones are longer

NAME = "disjunctive-search"

# Number of moves, per op, at least and at most, without a time limit or a number of steps.
USUAL_PER_OP, LEAST_MOVES, MOST_MOVES = 200, 2_000, 200_000


class DisjunctiveSearchParams(Params):
    #: Moves of each walk. By default they last for the whole time limit; without one there are 200
    #: per op, but at most 200,000.
    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Number of walks, in threads.
    workers: int = Field(default=2, ge=1, le=1024)
    #: Whether placers make a first plan where the task has no incumbent.
    start: bool = True


@method(
    NAME,
    objectives=("makespan",),
    cites="Balas and Vazacopoulos 1998; Mastrolilli and Gambardella 2000",
    packages=("numba",),
    seeded=True,
)
def disjunctive_search(task: Task[Makespan], params: DisjunctiveSearchParams) -> Outcome:
    """Local search over devices and orders, in the disjunctive graph.

    Improve the best plan of all fast placers for as long as there is time. A heuristic: simulated
    annealing over devices of ops and orders on devices and channels, with exact recomputation of
    what a move changes (the disjunctive graph of Balas and Vazacopoulos 1998; moves of an op to any
    place on any device as in Mastrolilli and Gambardella 2000). Deterministic for a seed without a
    time limit.
    """
    clock, instance = task.limits.clock(), task.instance
    begins = params.start and task.incumbent is None
    start = best_start(task, placers(task) if begins else ())
    found = [] if start is None else [start]
    before_s = clock.spent_s
    for plan in contended_lists(instance, task.semantics):
        value_ns = feasible_value(instance, plan, task.semantics)
        if value_ns is not None:
            found.append(Start(plan, value_ns))
            report(instance, task.semantics, NAME, value=value_ns, plan=plan)
        left_s, before_s, one_s = clock.left_s, clock.spent_s, clock.spent_s - before_s
        if left_s is not None and left_s < 4 * one_s:  # another would take most of the time
            break
    if not found:
        return Outcome(message="no start: none of the fast placers found a plan")
    usual = max(LEAST_MOVES, min(MOST_MOVES, USUAL_PER_OP * instance.num_ops))
    best, plans, message = improve_start(
        task, found, NAME, clock, steps=params.steps, usual=usual, workers=params.workers
    )
    return Outcome(best, message=message, details={"plans": plans})


def improve_start(
    task: Task[Makespan],
    found: Sequence[Start],
    by: str,
    clock: Clock,
    *,
    steps: int | None,
    usual: int,
    workers: int,
) -> tuple[Plan, int, str]:
    """The best plan that `improve` finds from a start until the time is over."""
    # If a plan in `found` also fits at its peak, the best of these is the start, and all later
    # plans fit at their peak. Walks have `steps` moves, or `usual` moves if neither `steps` nor the
    # clock sets a limit. Returns the plan, the number of improvements, and a message after Ctrl-C.
    left_s = clock.left_s
    deadline = None if left_s is None else now_s() + left_s
    start = best_at_peak(task, found)
    report, plans, message = reporter(task.instance, task.semantics, by), 0, ""
    best = Known(plan=start.plan, value=start.value, on_progress=report)
    better = improve(
        task.instance,
        task.semantics,
        [start.plan],
        deadline=deadline,
        steps=usual if deadline is None and steps is None else steps,
        seed=task.limits.seed,
        workers=workers,
        at_peak=task.at_peak if fits_at_peak(task, start.plan) else None,
    )
    try:
        for plan in better:
            plans += best.offer_plan(task, plan)
    except KeyboardInterrupt:
        message = "interrupted"
    return best.plan or start.plan, plans, message


def fits_at_peak(task: Task[Makespan], plan: Plan) -> bool:
    """Whether a plan fits at its peak; True under the rule `sum`."""
    if task.at_peak is None:
        return True
    rules = task.semantics.model_copy(update={"memory": "peak"})
    return evaluate(task.at_peak, plan, rules).feasible


def best_at_peak(task: Task[Makespan], found: Sequence[Start]) -> Start:
    """The best plan that fits at its peak, else the best one."""
    order = sorted(found, key=lambda one: one.value)
    return next((one for one in order if fits_at_peak(task, one.plan)), order[0])


def improve(
    instance: Instance,
    semantics: Makespan,
    starts: Sequence[Plan],
    *,
    deadline: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    workers: int = 1,
    at_peak: Instance | None = None,
) -> Iterator[Plan]:
    """Plans with orders, each better than all before it and than all starts."""
    # Memory counts by the rule `sum`. Starts that do not fit are left out. There must be a
    # `deadline`, by `clock.now_s`, or a number of `steps` of each walk; with `steps` alone the
    # plans depend only on the seed. `workers` is the number of walks, in threads. Plans also fit
    # into the memory of `at_peak` at their peak, as in `Task`; so must the best start.
    if deadline is None and steps is None:
        raise ValueError("improve needs a deadline or a number of steps")
    best = Known()
    for each in starts:
        best.improve(feasible_value(instance, each, semantics), each)
    if best.plan is None or not best.value:
        return
    plan, value_ns = best.plan, best.value
    if len(instance.graph.edges) > MOST_SHARED:
        workers = 1
    searches = [Search(instance, semantics, [seed, at], at_peak) for at in range(workers)]
    searches[0].load(plan)
    for search in searches[1:]:
        search.copy(searches[0])
    rounds = _Rounds(searches, value_ns, deadline, steps)
    try:
        yield from rounds.run()
    except KeyboardInterrupt:
        yield from rounds.report(at_once=True)
        raise


class _Rounds:
    """The rounds of one call: its walks, the clock, and the last plan reported."""

    def __init__(
        self, searches: Sequence[Search], least_ns: int, deadline: float | None, steps: int | None
    ) -> None:
        self.searches, self.least_ns = searches, least_ns
        self.pace, self.left = Pace(deadline), steps
        times = searches[0].instance.arrays.time_ns
        self.mean_ns = float(times[times != UNSUPPORTED].mean())
        self.reported_s, self.pause_s = now_s(), 0.0

    def is_over(self) -> bool:
        return self.pace.is_over or self.left == 0 or self.searches[0].value_ns == 0

    def best(self) -> Search:
        return min(self.searches, key=lambda search: search.value_ns)

    def meet(self) -> None:
        """Copy the best schedule to all searches."""
        best = self.best()
        for search in self.searches:
            if search is not best:
                search.copy(best)

    def report(self, *, at_once: bool) -> Iterator[Plan]:
        """The best plan, if it is better than the last one; unless `at_once`, not too often."""
        search, now = self.best(), now_s()
        if search.value_ns < self.least_ns and (at_once or now > self.reported_s + self.pause_s):
            self.least_ns = search.value_ns
            plan = search.plan()
            self.reported_s = now_s()
            self.pause_s = max(0.5, 5 * (self.reported_s - now))
            yield plan

    def run(self) -> Iterator[Plan]:
        first = max(FIRST_ROUND, FIRST_PER_OP * self.searches[0].instance.num_ops)
        length, hot_ns = first, HOT * self.mean_ns
        with ThreadPoolExecutor(max(1, len(self.searches))) as pool:
            num_items, sweeps = self.searches[0].machines.num_items, 0
            pays = self.searches[0].instance.num_ops > LARGEST_FIRST
            while not self.is_over():
                before_ns = self.best().value_ns
                if pays or num_items > LARGEST_WALK:
                    yield from self._sweep(pool, hot_ns, length // first)
                    sweeps += 1
                else:
                    windows = [search.whole() for search in self.searches]
                    yield from self._walk(pool, windows, length, hot_ns, whole=True)
                for search in self.searches:
                    search.back()
                yield from self.report(at_once=True)
                self.meet()
                if not pays or sweeps == 1:
                    length *= GROWTH
                elif self.best().value_ns > (1.0 - NOTABLE) * before_ns:
                    pays, length = False, length if num_items > LARGEST_WALK else first

    def _walk(
        self,
        pool: ThreadPoolExecutor,
        windows: Sequence[ScheduleWindow],
        length: int,
        hot_ns: float,
        *,
        whole: bool,
    ) -> Iterator[Plan]:
        """One cooling of all searches; the last one of the whole graph takes all remaining time."""
        # A round that would leave too little time for the next one is stretched to the end. Short
        # coolings begin colder: there is no time to recover from a hot start.
        left = self.pace.moves_left if whole else None
        if left is not None and left < (1 + GROWTH) * length:
            length = left
        if self.left is not None:
            length = min(length, self.left)
        heat = min(1.0, length / (ENOUGH_PER_OP * len(windows[0].ops)))

        def walk(steps: CoolingSteps) -> None:
            same = (repeat(value) for value in steps[:4])
            list(pool.map(Search.walk, self.searches, windows, *same))

        for count in self.pace.cool(walk, length, heat * hot_ns, COLD / HOT, fits=whole):
            if self.left is not None:
                self.left -= count
            if whole:
                yield from self.report(at_once=False)
            if self.is_over():
                break

    def _sweep(self, pool: ThreadPoolExecutor, hot_ns: float, scale: int) -> Iterator[Plan]:
        """Search one window after the other along the schedule."""
        for windows in zip(*(search.windows() for search in self.searches), strict=True):
            if self.is_over():
                break
            for search, window in zip(self.searches, windows, strict=True):
                search.enter(window)
            length = scale * WINDOW_MOVES_PER_OP * len(windows[0].ops)
            yield from self._walk(pool, windows, length, hot_ns, whole=False)
            for search, window in zip(self.searches, windows, strict=True):
                search.leave(window)
            self.meet()
        for search in self.searches:
            search.refresh()


class Search:
    """A schedule under search, its arrays, and the best schedule of this round."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        seed: Sequence[int],
        at_peak: Instance | None = None,
    ) -> None:
        # With `at_peak` the best schedule must fit into the memory of that instance at its peak, as
        # the first one does; `instance` then has the bytes that are held in any case.
        self.instance, self.semantics = instance, semantics
        arrays, k = instance.arrays, instance.num_devices
        self.machines = machines_of(instance, semantics)
        self.orders = empty_orders(instance, semantics, self.machines)
        member_ptr, member = group_by(arrays.group, arrays.num_groups)
        self.rooms = Rooms(
            arrays.group,
            member_ptr,
            member,
            arrays.resident_bytes,
            arrays.memory_bytes,
            np.zeros(k, np.int64),
        )
        item, ends, device, *_ = self.orders
        self.trace = Trace(
            np.zeros(2, np.int64),
            np.zeros(1, np.bool_),
            np.zeros(MOST_TOGETHER, np.int64),
            np.zeros(MOST_TOGETHER, np.int64),
            np.empty_like(item),
            np.empty_like(ends),
            np.empty_like(device),
            np.zeros(k, np.int64),
        )
        floor = at_peak or instance
        self.peak = peak_of(floor, semantics, at_peak=at_peak is not None)
        self.rng = np.random.default_rng(list(seed))

    @property
    def value_ns(self) -> int:
        """Makespan of the best schedule."""
        return int(self.trace.value[1])

    def load(self, plan: Plan) -> int:
        """Take over the schedule of a plan; returns its makespan."""
        # Items are put in the order of their times. Ties go by topological position, with a
        # transfer right behind its producer, so that items without time stay in a valid order.
        arrays, n = self.instance.arrays, self.instance.num_ops
        schedule = simulate(self.instance, plan, self.semantics)
        position = arrays.index.topological_position
        start, end, level, item = schedule.start_ns, schedule.end_ns, 2 * position, np.arange(n)
        sent = schedule.transfers
        if not self.machines.free:
            number = sent.item
            if self.machines.per_tensor:
                number = sent.item * self.instance.num_devices + sent.destination
            start, end = np.append(start, sent.start_ns), np.append(end, sent.end_ns)
            level = np.append(level, 2 * position[sent.producer] + 1)
            item = np.append(item, n + number)
        sequence = item[np.lexsort((item, level, end, start))]
        fill(self.machines, self.orders, schedule.device, sequence)
        held = self.rooms.held_bytes
        held[:] = 0
        np.add.at(held, schedule.device, arrays.resident_bytes)
        self.trace.value[:] = schedule.makespan_ns
        self.trace.saved[0] = False
        return schedule.makespan_ns

    def copy(self, other: Search) -> None:
        """Take over the schedule of another search of the same problem."""
        for mine, its in zip(self.orders[:4], other.orders[:4], strict=True):
            mine[:] = its
        self.rooms.held_bytes[:] = other.rooms.held_bytes
        self.trace.value[:] = other.trace.value
        self.trace.saved[0] = False

    def whole(self) -> ScheduleWindow:
        size = self.machines.num_items
        exits = np.zeros(MOST_EXITS + 1, np.int64)
        return ScheduleWindow(np.arange(self.instance.num_ops), size, size + 1, exits, False)

    def windows(self) -> Iterator[ScheduleWindow]:
        """Windows of `WINDOW_OPS` ops that overlap by half, along the current schedule."""
        size, n = self.machines.num_items, self.instance.num_ops
        for first in range(0, max(1, n - WINDOW_OPS // 2), WINDOW_OPS // 2):
            order = np.argsort(self.orders.item[:n, LABEL], kind="stable")
            last = first + WINDOW_OPS
            begin = int(order[first - 1]) if first else size
            end = int(order[last]) if last < n else size + 1
            exits = np.zeros(MOST_EXITS + 1, np.int64)
            # Too many items behind wait for the window: it is extended to the end of the schedule.
            if not find_exits(self.machines, self.orders, end, exits):
                end = size + 1
            yield ScheduleWindow(order[first:last], begin, end, exits, True)

    def walk(
        self, window: ScheduleWindow, done: int, count: int, total: int, hot_ns: float
    ) -> None:
        """Make `count` steps of a cooling of `total` steps."""
        steps = CoolingSteps(done, count, total, hot_ns, COLD / HOT)
        held, trace = (self.machines, self.orders, self.rooms), self.trace
        walk_on(*held, window, trace, self.peak, self.rng, steps)

    def enter(self, window: ScheduleWindow) -> None:
        """Begin with a window: the state is saved once, not at each better schedule."""
        self.trace.value[:] = makespan_of(self.orders, window, self.instance.num_devices)
        save(self.orders, self.rooms, self.trace)

    def leave(self, window: ScheduleWindow) -> None:
        """Keep the result of a window unless it is worse, and recompute the starts behind it."""
        is_worse = self.trace.value[0] > self.trace.value[1]
        if not is_worse and self.peak.at_peak:
            all_starts(self.machines, self.orders, window.begin)
            is_worse = not schedule_fits(self.machines, self.orders, self.peak)
        if is_worse:
            restore(self.orders, self.rooms, self.trace)
        else:
            self.trace.value[1] = self.trace.value[0]
        all_starts(self.machines, self.orders, window.begin)
        self.trace.value[0] = self.trace.value[1]
        self.trace.saved[0] = False

    def refresh(self) -> None:
        """Recompute all starts, tails and the makespan."""
        all_starts(self.machines, self.orders, self.machines.num_items)
        all_tails(self.machines, self.orders)
        self.trace.value[:] = makespan_of(self.orders, self.whole(), self.instance.num_devices)

    def back(self) -> None:
        """Return to the best schedule."""
        if self.trace.saved[0]:
            restore(self.orders, self.rooms, self.trace)
        self.trace.value[0] = self.trace.value[1]
        self.trace.saved[0] = False

    def plan(self) -> Plan:
        """The plan of the best schedule."""
        n, k = self.instance.num_ops, self.instance.num_devices
        item, device = self.orders.item, self.orders.device
        if self.trace.saved[0]:
            item, device = self.trace.best_item, self.trace.best_device
        order = np.argsort(item[:n, LABEL], kind="stable")
        on_device = tuple(tuple(order[device[order] == d].tolist()) for d in range(k))
        sent = np.flatnonzero(item[n : self.machines.num_items, MACHINE] >= 0)
        sent = sent[np.argsort(item[n + sent, LABEL], kind="stable")]
        if self.machines.per_tensor:
            number, target = np.divmod(sent, k)
        else:
            number, target = sent, device[self.machines.consumer[sent]]
        transfers = [Transfer(*row) for row in zip(number.tolist(), target.tolist(), strict=True)]
        channels: dict[int, tuple[Transfer, ...]] = {}
        for c in range(k, len(self.orders.ends)):
            used = np.flatnonzero((item[n + sent, MACHINE : MACHINE + 2] == c).any(axis=1))
            if len(used):
                channels[c - k] = tuple(transfers[at] for at in used.tolist())
        return Plan(tuple((d,) for d in device.tolist()), on_device, channels or None)
