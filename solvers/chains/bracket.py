"""Value and bound of the best chain, closing in: orders, beam, decisions, stage LPs, moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from itertools import islice

import numpy as np

from placegap.instances.problem import MaxLoad, Plan
from placegap.instances.problem.array_types import Flags, Ints
from placegap.solvers.chains.ideals import (
    Ideals,
    MemoryFull,
    enumerate_ideals,
    joined,
    of_flags,
    of_least_cut,
    prefixes,
)
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.layers import LayerSearch, Pipeline
from placegap.solvers.chains.orders import orders, places_to_cut
from placegap.solvers.chains.servers import ServerSearch
from placegap.solvers.chains.stage_lp import BlockArcs, ChainCosts, as_one_kind, chain_costs
from placegap.solvers.chains.windows import (
    PriceBook,
    set_sums,
    walk_in_windows,
    window_tests,
    work_bound,
)
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.core.result import Bound
from placegap.solvers.core.starts import best_start

MOST_BYTES = 800_000_000
"""Memory for ideals, and for what a search keeps of each."""

BUCKETS, PER_BUCKET = 128, 8
"""The beam: intervals of work, and how many ideals of least cut are kept in each."""

MOVE_SHARE, MOVE_ROUNDS, MOVES_PER_PAIR, MOST_MOVES = 0.15, 24, 20, 5_000_000
FIRST_MOVES = 100_000
"""Of the time that is left, for moves of single blocks; rounds, steps of the first ones per pair
of blocks, and most steps of one, also where there is no hurry, and of the first where there is."""

MANY, LP_SHARE, MOST_LP_SHARE = 1_000_000, 0.3, 0.7
"""With more ideals than this the LPs come before the DP: over 350,000 to 760,000 it takes 2 to 10
CPU seconds, and they take some ten. Their share of the time, and their share where the ideals do
not fit."""

BOUND_SHARE, BOUND_ROUNDS = 0.2, 6
"""Where the ideals do not fit the memory: of the time that is left, for decisions at limits for
which they do; and how many such limits are tried."""

EXACT_SHARE = 0.6
"""Of the time that is left, for the DP over all ideals; then stage LPs raise the bound."""

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
        #: Whether its bounds are of use: the problem is exact or a relaxation.
        self.proves = True
        self._rounds: Iterator[int] | None = None
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

    def close_in_time(self, max_ideals: int) -> None:
        """Close the gap with the DP; where that does not end in its share of the time, with LPs."""
        whole = self.clock
        self.clock = whole.part(EXACT_SHARE)
        try:
            self.close(max_ideals)
        except LimitReached:
            self.clock = whole
            whole.check()
            self.raise_bound()
            if not self.is_close:
                raise
        finally:
            self.clock = whole

    def close(self, max_ideals: int) -> None:
        """Close the gap with the DP over all ideals that matter."""
        if self.is_close:
            return
        try:
            ideals, total = self._enumerate(self.limit, max_ideals)
        except LimitReached as reached:
            self.clock.check()
            self._for_a_share(MOST_LP_SHARE, self.raise_bound)
            self.beam(joined(list(self._of_orders())))
            if isinstance(reached, MemoryFull) and not self.problem.servers:
                self._for_a_share(BOUND_SHARE, partial(self._bisect_in_memory, max_ideals))
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
        guide, amounts = self.problem.guide, self.book.amounts
        return enumerate_ideals(guide, amounts, walk, self.clock, max_ideals, most)

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
        """Note the ideals that matter, and improve the value by a beam unless they are few.

        Whether any do: if not even the empty ideal, all devices together do not suffice.
        """
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        if ideals.size == 0 or ideals.members[0].any():
            if self.value_ns is not None:
                self.prove(Bound(self.value_ns, BY_DP))
            return False
        if ideals.size > 2 * BUCKETS * PER_BUCKET:
            self.beam(ideals)
        if ideals.size > MANY and not self.is_close:
            self._for_a_share(LP_SHARE, self.raise_bound)
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
        nothing is better still. So that is asked next, but not twice in a row, for it may go down
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

    def beam(self, ideals: Ideals) -> None:
        """Improve the value: the DP over the ideals of least cut."""
        search = self.search(self.of_least_cut(ideals))
        self.take(search.best(self.limit, self.bound_ns))

    def of_least_cut(self, ideals: Ideals) -> Ideals:
        """The ideals of least cut in each interval of work."""
        guide = self.problem.guide
        work = set_sums(ideals.members, guide.time[0] + 1)
        cut = set_sums(ideals.cut_nets, guide.nets.weight)
        return of_least_cut(guide, ideals, work, cut, BUCKETS, PER_BUCKET)

    def _of_orders(self) -> Iterator[Ideals]:
        guide = self.problem.guide
        for order in islice(orders(guide, self.task.limits.seed), NUM_ORDERS):
            stops = places_to_cut(order, guide.time[0], guide.nets, MOST_CUTS)
            yield prefixes(guide, self.book.amounts, order, stops)
            self.clock.check()

    def _for_a_share(self, share: float, work: Callable[[], None]) -> None:
        """Work within a share of the time that is left."""
        whole = self.clock
        self.clock = whole.part(share)
        try:
            work()
        except LimitReached:
            self.clock = whole
            whole.check()
        finally:
            self.clock = whole

    def raise_bound(self) -> None:
        """Raise the bound by stage LPs, and try chains of the ideals that they suggest."""
        # loads Pyomo and HiGHS
        from placegap.solvers.chains.raise_bound import (
            ORIGIN,
            Suggested,
            few_states,
            raise_bound,
            rounds,
        )

        costs = self.stage_costs() if self.proves else None
        if costs is None:
            return
        self._rounds = rounds(costs) if self._rounds is None else self._rounds
        self.move_blocks(costs, self.clock.part(MOVE_SHARE))
        suggested = Suggested(costs)

        def best() -> int | None:
            flags = suggested.take()
            if flags is not None:
                ideals = self.of_flags(flags)
                self.take(self.search(ideals).best(self.limit, self.bound_ns))
            return self.value_ns

        relaxed = costs if few_states(costs) else as_one_kind(costs)
        raise_bound(
            relaxed,
            self.bound_ns,
            best,
            lambda bound: self.prove(Bound(bound, ORIGIN)),
            suggested.see,
            self.clock,
            self.gap,
            self._rounds,
        )
        self.move_blocks(costs, self.clock.part(MOVE_SHARE))

    def stage_costs(self) -> ChainCosts | None:
        """What stage LPs compute on: blocks and nets as each kind sees them; None with replicas."""
        problem, guide = self.problem, self.problem.guide
        if self.task.semantics.replicas:
            return None
        return chain_costs(
            BlockArcs(problem.blocks.arc_tail, problem.blocks.arc_head),
            (problem.time, problem.need, problem.room),
            (problem.weight, guide.net_ptr, guide.pin),
            problem.counts,
            overlap=guide.overlap,
        )

    def of_flags(self, flags: Flags) -> Ideals:
        """Ideals from their members, (N, b) bool."""
        return joined([of_flags(self.problem.guide, self.book.amounts, flags)])

    def move_blocks(self, costs: ChainCosts, clock: Clock) -> None:
        """Improve the value: single blocks change their stage."""
        from placegap.solvers.chains.stage_moves import HEATS, anneal, moves

        if self.value_ns is None or self.plan is None or self.problem.servers:
            return
        kind_of = {k: kind for kind, own in enumerate(self.devices_of_kinds()) for k in own}
        block, tail, head = self.problem.blocks.block, costs.arcs.tail, costs.arcs.head
        device = np.zeros(costs.num_blocks, np.int64)
        if any(len(own) > 1 for own in self.plan.placement):
            return
        device[block] = self.plan.devices
        if (device[block] != self.plan.devices).any():
            return  # idle blocks are elsewhere than their neighbours
        row = in_a_row(device, tail, head, list(kind_of))
        stage = np.argsort(row)[np.searchsorted(np.sort(row), device)]
        table = moves(costs, np.array([kind_of[k] for k in row.tolist()], np.int64))
        rng, per_s = np.random.default_rng(0), 0.0
        for repeat in range(MOVE_ROUNDS):
            if self.is_close or clock.left_s == 0.0:
                return
            longer, heat = divmod(repeat, len(HEATS))
            steps = min(MOVES_PER_PAIR * costs.num_blocks**2 * 2**longer, MOST_MOVES)
            if clock.left_s is not None:
                steps = min(steps, max(1, int(per_s * clock.left_s / 2)) if repeat else FIRST_MOVES)
            began = clock.spent_s
            value, stage = anneal(table, stage, self.value_ns, steps, HEATS[heat], rng)
            per_s = steps / max(clock.spent_s - began, 1e-6)
            self.improve(int(value), Plan.on(row[stage][block]))

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


def in_a_row(device: Ints, tail: Ints, head: Ints, devices: list[int]) -> Ints:
    """Devices in an order in which no arc leads back; those without blocks last."""
    pairs = {(a, b) for a, b in zip(device[tail].tolist(), device[head].tolist(), strict=True)}
    used = sorted(set(device.tolist()))
    sorter = TopologicalSorter({k: sorted(a for a, b in pairs if b == k != a) for k in used})
    return np.array([*sorter.static_order(), *(k for k in devices if k not in used)], np.int64)


def bytes_per_ideal(book: PriceBook) -> int:
    """Memory that one ideal takes, with what a search keeps of it."""
    guide, pool, kinds = book.problem.guide, book.problem.pool, book.problem.num_kinds
    layers: int = min(pool.num_layers, 2**20)
    kept = layers // (pool.counts[0] + 1) + 2
    rows = book.amounts.width if book.in_sums else (kinds + 1) * min(2**kinds, layers)
    total: int = 8 * (2 * (guide.num_words + guide.num_net_words) + 6 * kinds + kept + 2 * rows + 8)
    return total
