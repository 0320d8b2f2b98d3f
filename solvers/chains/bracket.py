"""Value and bound of the best chain, closing in: orders, decisions, a run for the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from placegap.instances.problem import MaxLoad, Plan
from placegap.solvers.chains.ideals import Ideals, MemoryFull, enumerate_ideals, prefixes
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.layers import LayerSearch, Pipeline
from placegap.solvers.chains.orders import orders, places_to_cut
from placegap.solvers.chains.servers import ServerSearch
from placegap.solvers.chains.windows import PriceBook, walk_in_windows, window_tests, work_bound
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.core.result import Bound
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


BY_DP = "ideal-dp"


class Bracket(Incumbent):
    """What is known of a problem's optimum, and how to learn more."""

    def __init__(self, task: Task[MaxLoad], problem: KindsProblem, clock: Clock) -> None:
        self.task, self.problem, self.clock = task, problem, clock
        self.book = PriceBook(problem)
        least = Bound(work_bound(problem, self.book.of_all), "combinatorial")
        super().__init__(gap=task.limits.gap, bound=least)
        #: How many ideals there are, and how many were kept.
        self.counts: dict[str, int] = {}
        self.offer_plan(task, task.incumbent)

    def take(self, found: Pipeline | None) -> bool:
        """Take over a pipeline of at most `limit`; whether there is one."""
        return found is not None and self.improve(found.value, Plan(found.placement))

    @property
    def limit(self) -> int:
        """Loads up to this are better than what is known."""
        return self.problem.largest_load if self.value_ns is None else self.value_ns - 1

    def cut(self, max_ideals: int) -> None:
        """Find a good plan soon: the DP over the ideals of one topological order after another.

        Where there are few ideals in all, one run over them is enough.
        """
        # a low limit keeps few states; it is raised until something fits
        limit, few = min(self.limit, 2 * self.bound_ns + 1), self._few(max_ideals)
        for ideals in self._of_orders() if few is None else (few,):
            if self.is_close:
                return
            search = self.search(ideals)
            while not self.take(search.best(limit, self.bound_ns)):
                if limit >= self.limit or (few is None and self.value_ns is not None):
                    break
                limit = min(4 * limit, self.limit)
            if self.value_ns is not None:
                limit = self.limit
        if few is not None and self.value_ns is not None:
            self.prove(Bound(self.value_ns, BY_DP))

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
        if self.is_close:
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
            if not self.is_close and ideals.size > MOST_SERVER_IDEALS:
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
            limit = (self.bound_ns + high) // 2
            if self.is_close or self.bound_ns > limit:
                return
            try:
                ideals, _ = self._enumerate(limit, max_ideals)
            except MemoryFull:
                high = limit
                continue
            found = None
            if ideals.size and not ideals.members[0].any():
                found = self.search(ideals).best(limit, limit)
            if self.take(found):
                high = self.limit
            else:
                self.prove(Bound(limit + 1, BY_DP))

    def _without_servers(self, ideals: Ideals) -> None:
        """A bound, and perhaps a better plan: the DP in which servers cost nothing."""
        relaxed = replace(self.task, incumbent=None)
        inner = Bracket(relaxed, replace(self.problem, servers=()), self.clock)
        inner.bound, inner.value_ns, inner.plan = self.bound, self.value_ns, self.plan
        try:
            inner.finish(inner.search(ideals))
        finally:
            self.prove(Bound(inner.bound_ns, "ideal-dp without servers"))
            self.offer_plan(self.task, inner.plan)

    def _start(self, ideals: Ideals, total: int) -> bool:
        """Note the ideals that matter; whether any do.

        If not even the empty ideal does, all devices together do not suffice.
        """
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        if ideals.size == 0 or ideals.members[0].any():
            if self.value_ns is not None:
                self.prove(Bound(self.value_ns, BY_DP))
            return False
        return True

    def finish(self, search: LayerSearch) -> None:
        """Close the gap: by decisions to a relative gap, then by one run for the value."""
        self._bisect(search)
        if not self.is_close and self.value_ns is not None:
            self.take(search.best(self.limit, self.bound_ns))
            self.prove(Bound(self.value_ns, BY_DP))

    def _bisect(self, search: LayerSearch) -> None:
        """Decide whether anything is better; if so, narrow the bracket to a relative gap.

        What a decision finds is often the optimum: then all that is missing is the proof that
        nothing is better still. So that is tried next, but not twice in a row, for it may go down
        ns by ns.
        """
        limit, straight = self.limit, False
        while not self.is_close:
            improved = self.take(search.best(limit, limit))
            if not improved:
                if self.value_ns is None:
                    return  # no chain of ideals fits at all
                self.prove(Bound(limit + 1, BY_DP))
            assert self.value_ns is not None
            if self.value_ns - self.bound_ns <= BISECTION * self.value_ns:
                return
            straight = improved and not straight
            limit = self.limit if straight else (self.bound_ns + self.value_ns) // 2

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
            self.offer_plan(self.task, None if start is None else start.plan)


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
