"""Better and better plans of one instance, for as long as there is time.

Each round cools a walk from the best schedule known (simulated annealing with reheating); rounds
get longer. Several walks with random numbers of their own go on in threads, and each round begins
with the best of all. Graphs that are too large for one walk are searched window by window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.orders import plan_from_times
from placegap.instances.referee.plan import Plan, Transfer
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.clock import now_s
from placegap.solvers.local_search.disjunctive import (
    LABEL,
    MACHINE,
    all_starts,
    all_tails,
    empty_orders,
    fill,
    machines_of,
)
from placegap.solvers.local_search.walk import (
    MOST_TOGETHER,
    Rooms,
    Trace,
    Window,
    anneal,
    find_exits,
    makespan_of,
    restore,
)

HOT, COLD = 0.3, 0.01
"""Temperatures at the beginning and at the end of a round, in mean times of an op."""

FIRST_ROUND, GROWTH = 20_000, 2
"""Moves of the first round, and how much longer each round is than the one before."""

CHUNK_S, FIRST_CHUNK = 0.2, 16
"""About so long the kernel runs between two looks at the clock; its first moves."""

WINDOW_OPS, MOST_EXITS = 2_000, 512
"""Ops of a window, and how many items behind it may wait for what is in it."""

LARGEST_WALK = 60_000
"""Items of the largest graph that is searched as a whole."""

WINDOW_MOVES = 10
"""Moves of a window for each of its ops."""


class Search:
    """A schedule that is searched, what it is made of, and the best one of this round.

    Parameters
    ----------
    instance, semantics
        The problem.
    seed : sequence of int
        Of the random numbers.

    Examples
    --------
    >>> from placegap.instances import example
    >>> search = Search(example(), Makespan(), [0])
    >>> search.load(Plan.on([0] * 4))
    43
    >>> search.walk(search.whole(), 0, 200, 200, 10.0)
    >>> search.value_ns
    34
    """

    def __init__(self, instance: Instance, semantics: Makespan, seed: Sequence[int]) -> None:
        self.instance, self.semantics = instance, semantics
        arrays, k = instance.arrays, instance.num_devices
        self.machines = machines_of(instance, semantics)
        self.orders = empty_orders(instance, semantics, self.machines)
        member_ptr, member = group_by(arrays.group, arrays.num_groups)
        self.rooms = Rooms(
            arrays.group, member_ptr, member, arrays.resident_bytes, arrays.memory_bytes,
            np.zeros(k, np.int64),
        )  # fmt: skip
        item, ends, device, *_ = self.orders
        self.trace = Trace(
            np.zeros(2, np.int64), np.zeros(MOST_TOGETHER, np.int64),
            np.zeros(MOST_TOGETHER, np.int64), np.empty_like(item), np.empty_like(ends),
            np.empty_like(device), np.zeros(k, np.int64),
        )  # fmt: skip
        self.rng = np.random.default_rng(list(seed))
        self.saved = False

    @property
    def value_ns(self) -> int:
        """Makespan of the best schedule."""
        return int(self.trace.value[1])

    def load(self, plan: Plan) -> int:
        """Take over the schedule of a plan; its makespan."""
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
        self.saved = False
        return schedule.makespan_ns

    def copy(self, other: Search) -> None:
        """Take over the schedule of another search of the same problem."""
        for mine, its in zip(self.orders[:3], other.orders[:3], strict=True):
            mine[:] = its
        self.rooms.held_bytes[:] = other.rooms.held_bytes
        self.trace.value[:] = other.trace.value
        self.saved = False

    def whole(self) -> Window:
        """A window of everything."""
        size = self.machines.num_items
        exits = np.zeros(MOST_EXITS + 1, np.int64)
        return Window(np.arange(self.instance.num_ops), size, size + 1, exits)

    def windows(self) -> Iterator[Window]:
        """Windows of `WINDOW_OPS` ops that overlap by half, along the schedule as it is by then."""
        size, n = self.machines.num_items, self.instance.num_ops
        for first in range(0, max(1, n - WINDOW_OPS // 2), WINDOW_OPS // 2):
            order = np.argsort(self.orders.item[:n, LABEL], kind="stable")
            last = first + WINDOW_OPS
            begin = int(order[first - 1]) if first else size
            end = int(order[last]) if last < n else size + 1
            exits = np.zeros(MOST_EXITS + 1, np.int64)
            if not find_exits(self.machines, self.orders, end, exits):
                end = size + 1
            yield Window(order[first:last], begin, end, exits)

    def walk(self, window: Window, done: int, steps: int, total: int, hot_ns: float) -> None:
        """Go on by some steps of a walk of `total` steps."""
        self.saved = anneal(
            self.machines, self.orders, self.rooms, window, self.trace, self.rng, done, steps,
            total, hot_ns, hot_ns * COLD / HOT, self.saved,
        )  # fmt: skip

    def settle(self, window: Window) -> None:
        """Let what is behind a window follow it."""
        all_starts(self.machines, self.orders, window.begin)

    def refresh(self) -> None:
        """Compute all tails anew, and the makespan."""
        all_tails(self.machines, self.orders)
        self.trace.value[:] = makespan_of(self.orders, self.whole(), self.instance.num_devices)

    def back(self) -> None:
        """Return to the best schedule."""
        if self.saved:
            restore(self.orders, self.rooms, self.trace)
        self.trace.value[0] = self.trace.value[1]
        self.saved = False

    def plan(self) -> Plan:
        """The plan of the best schedule."""
        n, k = self.instance.num_ops, self.instance.num_devices
        item, device = self.orders.item, self.orders.device
        if self.saved:
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


def improve(
    instance: Instance,
    semantics: Makespan,
    starts: Sequence[Plan],
    *,
    deadline: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    workers: int = 1,
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
    searches = [Search(instance, semantics, [seed, number]) for number in range(workers)]
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
        length = FIRST_ROUND
        with ThreadPoolExecutor(max(1, len(self.searches))) as pool:
            while not self.is_over():
                if self.searches[0].machines.num_items > LARGEST_WALK:
                    yield from self._sweep(pool)
                else:
                    windows = [search.whole() for search in self.searches]
                    yield from self._walk(pool, windows, length, HOT * self.mean_ns)
                for search in self.searches:
                    search.back()
                yield from self.news(at_once=True)
                best = self.best()
                for search in self.searches:
                    if search is not best:
                        search.copy(best)
                length *= GROWTH

    def _walk(
        self, pool: ThreadPoolExecutor, windows: Sequence[Window], length: int, hot_ns: float
    ) -> Iterator[Plan]:
        """One cooling of all searches, fitted to the time where little more than that is left."""
        done, chunk, began = 0, FIRST_CHUNK, now_s()
        total = length if self.left is None else min(length, self.left)
        while done < total and not self.is_over():
            now = now_s()
            if self.deadline is not None and self.rate > 0:
                left = done + max(1, int(self.rate * (self.deadline - now)))
                if left < total or (done == 0 and left < (1 + GROWTH) * length):
                    total = left
            chunk = min(chunk, total - done)
            jobs = zip(self.searches, windows, strict=True)
            list(pool.map(lambda job: job[0].walk(job[1], done, chunk, total, hot_ns), jobs))
            done += chunk
            if self.left is not None:
                self.left -= chunk
            spent_s = max(now_s() - now, 1e-6)
            self.rate = done / max(now_s() - began, 1e-6)
            chunk = max(1, min(4 * chunk, int(chunk * CHUNK_S / spent_s)))
            yield from self.news(at_once=False)

    def _sweep(self, pool: ThreadPoolExecutor) -> Iterator[Plan]:
        """One window after the other, without heat, from the beginning to the end."""
        for windows in zip(*(search.windows() for search in self.searches), strict=True):
            if self.is_over():
                break
            for search, window in zip(self.searches, windows, strict=True):
                search.trace.value[:] = makespan_of(
                    search.orders, window, search.instance.num_devices
                )
            yield from self._walk(pool, windows, WINDOW_MOVES * WINDOW_OPS, 0.0)
            for search, window in zip(self.searches, windows, strict=True):
                search.settle(window)
        for search in self.searches:
            search.refresh()


def _best_of(
    instance: Instance, semantics: Makespan, plans: Sequence[Plan]
) -> tuple[Plan, int] | None:
    """The best plan that fits, and its value."""
    best: tuple[Plan, int] | None = None
    for plan in plans:
        verdict = evaluate(instance, plan, semantics)
        if verdict.feasible and verdict.value_ns is not None:
            if best is None or verdict.value_ns < best[1]:
                best = plan, verdict.value_ns
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
        sent.item.tolist(), sent.destination.tolist(), sent.start_ns.tolist(),
        sent.end_ns.tolist(), strict=True,
    ):  # fmt: skip
        same = found.transfers == semantics.transfers
        transfer = Transfer(item if same else int(tensor[item]), target)
        if transfer not in first or end < first[transfer][1]:
            first[transfer] = start, end
    rows = [(transfer, *when) for transfer, when in first.items()]
    return plan_from_times(instance, semantics, schedule.device.tolist(), list(times), rows)
