"""Better and better plans of one instance, for as long as there is time.

Each round cools a walk from the best schedule known (simulated annealing with reheating); rounds
get longer. Several walks with random numbers of their own go on in threads, and each round begins
with the best of all. Graphs that are too large for one walk are searched window by window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import Start, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.local_search.disjunctive_search import HOT, Search
from placegap.solvers.local_search.walk import ScheduleWindow

FIRST_ROUND, FIRST_PER_OP, GROWTH = 20_000, 50, 2
"""Moves of the first round, at least so many and so many for each op, and how much longer each
round is than the one before."""

ENOUGH_PER_OP = 100
"""Moves for each op that go with the full heat; fewer begin colder, in proportion."""

CHUNK_S, FIRST_CHUNK = 0.2, 16
"""About so long the kernel runs between two looks at the clock; its first moves."""

LARGEST_WALK = 60_000
"""Items of the largest graph that is searched as a whole."""

MOST_SHARED = 1_000_000
"""Edges of the largest graph of which several walks have copies."""

MOVES_PER_OP = 5
"""Moves of a window for each of its ops, in the first sweep; later ones have more, like rounds."""


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
    """The best plan that `improve` finds from a start until the time is over, as the referee says.

    Parameters
    ----------
    task, found
        The problem, and plans that fit. Where one of them fits at its peak, too, the best of these
        is the start, and so do all plans after it.
    by : str
        The method, for those who listen to its plans.
    clock : Clock
    steps, usual : int or None, int
        Moves of each walk; where neither they nor the clock have a limit, the usual ones.
    workers : int

    Returns
    -------
    tuple of (Plan, int, str)
        The best plan, how many were better than those before, and a message after Ctrl-C.
    """
    left_s = clock.left_s
    deadline = None if left_s is None else now_s() + left_s
    start = best_at_peak(task, found)
    best, least, plans, message = start.plan, start.value_ns, 0, ""
    better = improve(
        task.instance,
        task.semantics,
        [best],
        deadline=deadline,
        steps=usual if deadline is None and steps is None else steps,
        seed=task.limits.seed,
        workers=workers,
        at_peak=task.at_peak if fits_at_peak(task, best) else None,
    )
    try:
        for plan in better:
            value_ns = evaluate(task.instance, plan, task.semantics).value_ns
            if value_ns is not None and value_ns < least:
                best, least, plans = plan, value_ns, plans + 1
                tell(task.instance, task.semantics, by, value_ns=value_ns, plan=plan)
    except KeyboardInterrupt:
        message = "interrupted"
    return best, plans, message


def fits_at_peak(task: Task[Makespan], plan: Plan) -> bool:
    """Whether a plan fits where memory counts at its peak; True if it adds up.

    Examples
    --------
    >>> from placegap.instances import example
    >>> fits_at_peak(Task(example(), Makespan(), at_peak=example()), Plan.on([0, 1, 0, 0]))
    True
    """
    if task.at_peak is None:
        return True
    rules = task.semantics.model_copy(update={"memory": "peak"})
    return evaluate(task.at_peak, plan, rules).feasible


def best_at_peak(task: Task[Makespan], found: Sequence[Start]) -> Start:
    """The best plan that fits at its peak, else the best one."""
    order = sorted(found, key=lambda one: one.value_ns)
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
    """Plans that get better, from the best of the given ones on.

    Parameters
    ----------
    instance, semantics
        The problem; memory adds up (`sum`).
    starts : sequence of Plan
        Plans that do not fit are left out; where none is left, nothing comes.
    deadline : float or None
        By `clock.now_s`. What is found then depends on the machine.
    steps : int or None
        Moves of each walk. Either limit must be there.
    seed : int
        With `steps` alone the plans depend on nothing else.
    workers : int
        Walks side by side, in threads.
    at_peak : Instance or None
        As in `Task`: plans fit into its memory at their peak. So must the best start.

    Yields
    ------
    Plan
        With orders; each better than all before it and than all starts.

    Raises
    ------
    ValueError
        Without a limit.

    Examples
    --------
    >>> from placegap.instances import example
    >>> plans = list(improve(example(), Makespan(), [Plan.on([0] * 4)], steps=500))
    >>> evaluate(example(), plans[-1], Makespan()).value_ns
    34
    """
    if deadline is None and steps is None:
        raise ValueError("improve needs a deadline or a number of steps")
    best = _best_of(instance, semantics, starts)
    if best is None or best[1] == 0:
        return
    plan, value_ns = best
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
        yield from rounds.news(at_once=True)
        raise


class _Rounds:
    """The rounds of one call: walks side by side, the clock, and what was found last."""

    def __init__(
        self, searches: Sequence[Search], least_ns: int, deadline: float | None, steps: int | None
    ) -> None:
        self.searches, self.least_ns = searches, least_ns
        self.deadline, self.left = deadline, steps
        times = searches[0].instance.arrays.time_ns
        self.mean_ns = float(times[times != UNSUPPORTED].mean())
        self.rate, self.told, self.pause_s = 0.0, now_s(), 0.0

    def is_over(self) -> bool:
        late = self.deadline is not None and now_s() >= self.deadline
        return late or self.left == 0 or self.searches[0].value_ns == 0

    def best(self) -> Search:
        return min(self.searches, key=lambda search: search.value_ns)

    def meet(self) -> None:
        """All go on from the best schedule."""
        best = self.best()
        for search in self.searches:
            if search is not best:
                search.copy(best)

    def news(self, *, at_once: bool) -> Iterator[Plan]:
        """The best plan, if it is better than the last; in between not too often."""
        search, now = self.best(), now_s()
        if search.value_ns < self.least_ns and (at_once or now > self.told + self.pause_s):
            self.least_ns = search.value_ns
            plan = search.plan()
            self.told = now_s()
            self.pause_s = max(0.5, 5 * (self.told - now))
            yield plan

    def run(self) -> Iterator[Plan]:
        first = max(FIRST_ROUND, FIRST_PER_OP * self.searches[0].instance.num_ops)
        length, hot_ns = first, HOT * self.mean_ns
        with ThreadPoolExecutor(max(1, len(self.searches))) as pool:
            while not self.is_over():
                if self.searches[0].machines.num_items > LARGEST_WALK:
                    yield from self._sweep(pool, hot_ns, length // first)
                else:
                    windows = [search.whole() for search in self.searches]
                    yield from self._walk(pool, windows, length, hot_ns, whole=True)
                for search in self.searches:
                    search.back()
                yield from self.news(at_once=True)
                self.meet()
                length *= GROWTH

    def _walk(
        self,
        pool: ThreadPoolExecutor,
        windows: Sequence[ScheduleWindow],
        length: int,
        hot_ns: float,
        *,
        whole: bool,
    ) -> Iterator[Plan]:
        """One cooling of all searches, fitted to the time where little more than that is left."""
        done, chunk, began = 0, FIRST_CHUNK, now_s()
        total = length if self.left is None else min(length, self.left)
        while done < total and not self.is_over():
            now = now_s()
            if whole and self.deadline is not None and self.rate > 0:
                left = done + max(1, int(self.rate * (self.deadline - now)))
                if left < total or (done == 0 and left < (1 + GROWTH) * length):
                    total = left
            chunk = min(chunk, total - done)
            heat = min(1.0, total / (ENOUGH_PER_OP * len(windows[0].ops)))
            same = (repeat(value) for value in (done, chunk, total, heat * hot_ns))
            list(pool.map(Search.walk, self.searches, windows, *same))
            done += chunk
            if self.left is not None:
                self.left -= chunk
            spent_s = max(now_s() - now, 1e-6)
            self.rate = done / max(now_s() - began, 1e-6)
            chunk = max(1, min(4 * chunk, int(chunk * CHUNK_S / spent_s)))
            if whole:
                yield from self.news(at_once=False)

    def _sweep(self, pool: ThreadPoolExecutor, hot_ns: float, scale: int) -> Iterator[Plan]:
        """One window after the other, from the beginning to the end."""
        for windows in zip(*(search.windows() for search in self.searches), strict=True):
            if self.is_over():
                break
            for search, window in zip(self.searches, windows, strict=True):
                search.enter(window)
            length = scale * MOVES_PER_OP * len(windows[0].ops)
            yield from self._walk(pool, windows, length, hot_ns, whole=False)
            for search, window in zip(self.searches, windows, strict=True):
                search.leave(window)
            self.meet()
        for search in self.searches:
            search.refresh()


def _best_of(
    instance: Instance, semantics: Makespan, plans: Sequence[Plan]
) -> tuple[Plan, int] | None:
    """The best plan that fits, and its value."""
    best: tuple[Plan, int] | None = None
    for plan in plans:
        verdict = evaluate(instance, plan, semantics)
        value_ns = verdict.value_ns if verdict.feasible else None
        if value_ns is not None and (best is None or value_ns < best[1]):
            best = plan, value_ns
    return best


def adapted(instance: Instance, plan: Plan, found: Makespan, semantics: Makespan) -> Plan | None:
    """A plan found under one semantics for another, looser one, under which it is no worse.

    Free channels are looser than links, those than ports, and those than half-duplex ports; to send
    a tensor once to each device is looser than once per edge. None where `semantics` is not looser.
    Memory at its peak is to be checked anew: more is done at once.

    Examples
    --------
    >>> from placegap.instances import example
    >>> port, free = Makespan(channels="port"), Makespan(channels="free")
    >>> plan = adapted(example(), Plan.on([0, 1, 0, 0]), port, free)
    >>> evaluate(example(), plan, free).value_ns <= 35
    True
    >>> adapted(example(), plan, free, port) is None
    True
    """
    ranks = ("half_duplex", "port", "link", "free")
    fewer = semantics.transfers in (found.transfers, "per_tensor")
    if ranks.index(semantics.channels) < ranks.index(found.channels) or not fewer:
        return None
    schedule, tensor = simulate(instance, plan, found), instance.arrays.index.tensor
    times = zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)
    sent = schedule.transfers
    first: dict[Transfer, tuple[int, int]] = {}
    for item, target, start, end in zip(
        sent.item.tolist(),
        sent.destination.tolist(),
        sent.start_ns.tolist(),
        sent.end_ns.tolist(),
        strict=True,
    ):
        same = found.transfers == semantics.transfers
        transfer = Transfer(item if same else int(tensor[item]), target)
        if transfer not in first or end < first[transfer][1]:
            first[transfer] = start, end
    rows = [(transfer, *when) for transfer, when in first.items()]
    return plan_from_times(instance, semantics, schedule.device.tolist(), list(times), rows)
