"""Value and bound of the best chain, closing in: orders, decisions, a run for the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from placegap.instances.problem import MaxLoad, Plan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.chains.ideals import Ideals, MemoryFull, enumerate_ideals, prefixes
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.layers import LayerSearch, Pipeline
from placegap.solvers.chains.orders import orders, places_to_cut
from placegap.solvers.chains.servers import ServerSearch
from placegap.solvers.chains.windows import PriceBook, walk_in_windows, window_tests, work_bound
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Told, unheard
from placegap.solvers.core.result import relative_gap
from placegap.solvers.core.starts import best_start

MOST_BYTES = 800_000_000
"""Memory for ideals, and for what a search keeps of each."""

BOUND_ROUNDS = 6
"""Where the ideals do not fit the memory: how many limits at which they do are tried."""

NUM_ORDERS, MOST_CUTS = 6, 400
"""Orders that are cut first, and at how many places at most."""

FEW = 2_000
"""Up to so many ideals one run over all comes first. It takes 10 for 22 ms on 30 ideals of the
published inputs, 17 for 24 on 1,428 and 72 for 61 on 2,906."""

MOST_SERVER_IDEALS = 16_000
"""With servers and more ideals than this the bound leaves the servers out."""

BISECTION = 0.004
"""Relative gap at which bisection hands over to a run for the value."""


class Bracket:
    """What is known of a problem's optimum, and how to learn more."""

    def __init__(self, task: Task[MaxLoad], problem: KindsProblem, clock: Clock) -> None:
        self.task, self.problem, self.clock = task, problem, clock
        self.gap = task.limits.gap
        self.book = PriceBook(problem)
        #: Proven bound, from `origin`.
        self.lower, self.origin = work_bound(problem, self.book.of_all), "combinatorial"
        #: Load of the best plan so far.
        self.value: int | None = None
        self.plan: Plan | None = None
        #: How many ideals there are, and how many were kept.
        self.counts: dict[str, int] = {}
        #: Called when one of the two is better.
        self.on_news: Told = unheard
        self.offer(task.incumbent)

    def offer(self, plan: Plan | None) -> None:
        """Take over a plan if it is feasible and better."""
        value = value_below(self.task, plan, self.value)
        if value is not None:
            self.adopt(value, plan)

    def adopt(self, value: int | None, plan: Plan | None) -> None:
        """Take over a plan of a known value."""
        self.value, self.plan = value, plan

    def improve(self, found: Pipeline | None) -> bool:
        """Take over a pipeline of at most `limit`; whether there is one."""
        if found is not None:
            self.adopt(found.value, Plan(found.placement))
            self.on_news(self.value, self.lower)
        return found is not None

    def prove(self, lower: int, origin: str = "ideal-dp") -> None:
        """Take over a bound that the DP has proven."""
        if lower > self.lower:
            self.lower, self.origin = lower, origin
            self.on_news(self.value, self.lower)

    @property
    def closed(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value, self.lower)
        return found is not None and found <= self.gap

    @property
    def limit(self) -> int:
        """Loads up to this are better than what is known."""
        return self.problem.largest_load if self.value is None else self.value - 1

    def cut(self, max_ideals: int) -> None:
        """Find a good plan soon: the DP over the ideals of one topological order after another.

        Where there are few ideals in all, one run over them is enough.
        """
        # a low limit keeps few states; it is raised until something fits
        limit, few = min(self.limit, 2 * self.lower + 1), self._few(max_ideals)
        for ideals in self._of_orders() if few is None else (few,):
            if self.closed:
                return
            search = self.search(ideals)
            while not self.improve(search.best(limit, self.lower)):
                if limit >= self.limit or (few is None and self.value is not None):
                    break
                limit = min(4 * limit, self.limit)
            if self.value is not None:
                limit = self.limit
        if few is not None and self.value is not None:
            self.prove(self.value)

    def _few(self, max_ideals: int) -> Ideals | None:
        """All ideals that matter, if they are few."""
        try:
            ideals, total = self._enumerate(self.limit, min(FEW, max_ideals))
        except LimitReached:
            self.clock.check()
            return None
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        return ideals

    def close(self, max_ideals: int) -> None:
        """Close the gap with the DP over all ideals that matter."""
        if self.closed:
            return
        try:
            ideals, total = self._enumerate(self.limit, max_ideals)
        except LimitReached as reached:
            self.clock.check()
            if isinstance(reached, MemoryFull) and not self.problem.servers:
                self._bisect_in_memory(max_ideals)
            raise
        if not self._start(ideals, total):
            return
        if self.problem.servers:
            self._without_servers(ideals)
            if not self.closed and ideals.size > MOST_SERVER_IDEALS:
                raise LimitReached(
                    f"{ideals.size} ideals, with servers at most {MOST_SERVER_IDEALS}"
                )
        self.finish(self.search(ideals))

    def _enumerate(self, limit: int, max_ideals: int) -> tuple[Ideals, int]:
        """The ideals that matter for loads up to a limit, and how many there are in all."""
        most = max(2, MOST_BYTES // bytes_per_ideal(self.book))
        walk = partial(walk_in_windows, window_tests(self.book, limit))
        problem, amounts = self.problem, self.book.amounts
        return enumerate_ideals(problem, amounts, walk, self.clock, max_ideals, most)

    def _bisect_in_memory(self, max_ideals: int) -> None:
        """Close the gap as far as the ideals fit the memory: lower limits leave fewer."""
        high = self.limit
        for _ in range(BOUND_ROUNDS):
            limit = (self.lower + high) // 2
            if self.closed or self.lower > limit:
                return
            try:
                ideals, _ = self._enumerate(limit, max_ideals)
            except MemoryFull:
                high = limit
                continue
            found = None
            if ideals.size and not ideals.members[0].any():
                found = self.search(ideals).best(limit, limit)
            if self.improve(found):
                high = self.limit
            else:
                self.prove(limit + 1)

    def _without_servers(self, ideals: Ideals) -> None:
        """A bound, and perhaps a better plan: the DP in which servers cost nothing."""
        relaxed = replace(self.task, incumbent=None)
        inner = Bracket(relaxed, replace(self.problem, servers=()), self.clock)
        inner.lower = self.lower
        inner.adopt(self.value, self.plan)
        try:
            inner.finish(inner.search(ideals))
        finally:
            self.prove(inner.lower, "ideal-dp without servers")
            self.offer(inner.plan)

    def _start(self, ideals: Ideals, total: int) -> bool:
        """Note the ideals that matter; whether any do.

        If not even the empty ideal does, all devices together do not suffice.
        """
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        if ideals.size == 0 or ideals.members[0].any():
            if self.value is not None:
                self.prove(self.value)
            return False
        return True

    def finish(self, search: LayerSearch) -> None:
        """Close the gap: by decisions to a relative gap, then by one run for the value."""
        self._bisect(search)
        if not self.closed and self.value is not None:
            self.improve(search.best(self.limit, self.lower))
            self.prove(self.value)

    def _bisect(self, search: LayerSearch) -> None:
        """Decide whether anything is better; if so, narrow the bracket to a relative gap.

        What a decision finds is often the optimum: then all that is missing is the proof that
        nothing is better still. So that is asked next, but not twice in a row, for it may go down
        ns by ns.
        """
        limit, straight = self.limit, False
        while not self.closed:
            improved = self.improve(search.best(limit, limit))
            if not improved:
                if self.value is None:
                    return  # no chain of ideals fits at all
                self.prove(limit + 1)
            assert self.value is not None
            if self.value - self.lower <= BISECTION * self.value:
                return
            straight = improved and not straight
            limit = self.limit if straight else (self.lower + self.value) // 2

    def search(self, ideals: Ideals) -> LayerSearch:
        """The DP over some ideals, with servers if there are any."""
        kind = ServerSearch if self.problem.servers else LayerSearch
        return kind(self.book, ideals, self.clock)

    def _of_orders(self) -> Iterator[Ideals]:
        problem = self.problem
        for order in islice(orders(problem, self.task.limits.seed), NUM_ORDERS):
            stops = places_to_cut(order, problem.time.max(axis=0), problem.nets, MOST_CUTS)
            yield prefixes(problem, self.book.amounts, order, stops)
            self.clock.check()

    def devices_of_kinds(self) -> list[tuple[int, ...]]:
        """Devices of each kind, by classes."""
        pool = self.problem.pool
        return [
            tuple(k for c, own in enumerate(pool.copies[0]) if pool.kinds[c] == kind for k in own)
            for kind in range(self.problem.num_kinds)
        ]

    def simple_plan(self) -> None:
        """A plan where even the orders were too much: slices in fixed sequences, one device."""
        semantics = self.task.semantics
        plain = MaxLoad(plans="chain", load=semantics.load)
        limits = replace(self.task.limits, time_limit_s=0.0)
        for name in ("slicing", "single-device"):
            task = replace(self.task, semantics=plain, limits=limits, incumbent=None)
            start = best_start(task, [name])
            self.offer(None if start is None else start.plan)


def value_below(task: Task[MaxLoad], plan: Plan | None, most: int | None) -> int | None:
    """Value of a plan if it is feasible and better than one of that value; else None."""
    if plan is None:
        return None
    verdict = evaluate(task.instance, plan, task.semantics)
    value = verdict.value_ns if verdict.feasible else None
    return value if value is not None and (most is None or value < most) else None


def bytes_per_ideal(book: PriceBook) -> int:
    """Memory that one ideal takes, with what a search keeps of it."""
    problem, pool, kinds = book.problem, book.problem.pool, book.problem.num_kinds
    layers: int = min(pool.num_layers, 2**20)
    kept = layers // (pool.counts[0] + 1) + 2
    rows = book.amounts.width if book.in_sums else (kinds + 1) * min(2**kinds, layers)
    total: int = 8 * (
        2 * (problem.num_words + problem.num_net_words) + 6 * kinds + kept + 2 * rows + 8
    )
    return total
