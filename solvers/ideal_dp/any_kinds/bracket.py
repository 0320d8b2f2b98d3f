"""Value and bound of the best chain on any devices, closing in: orders, beam, decisions, value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from placegap.instances.problem.array_types import Flags
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.chains.bracket import MOST_BYTES, MOST_LP_SHARE, PER_BUCKET, Bracket
from placegap.solvers.chains.ideals import (
    Ideals,
    cuts_only,
    enumerate_ideals,
    joined,
    of_flags,
    of_least_cut,
    prefixes,
)
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.layers import KindsSearch
from placegap.solvers.chains.orders import orders, places_to_cut
from placegap.solvers.chains.servers import ServerSearch
from placegap.solvers.chains.stage_lp import BlockArcs, ChainCosts, chain_costs
from placegap.solvers.chains.windows import (
    PriceBook,
    keep_all_that_may_matter,
    walk_below,
    work_bound,
)
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.starts import best_start
from placegap.solvers.ideal_dp.any_kinds.set_sums import set_sums

NUM_ORDERS, MOST_CUTS = 6, 400
"""Orders that are cut first, and at how many places at most."""

BUCKETS = 128
"""The beam: intervals of work."""

MOST_SERVER_IDEALS = 16_000
"""With servers and more ideals than this the bound leaves the servers out."""

BISECTION = 0.004
"""Relative gap at which bisection hands over to a run for the value."""


class KindsBracket(Bracket):
    """What is known for devices of any kinds."""

    problem: KindsProblem

    def __init__(self, task: Task[MaxLoad], problem: KindsProblem, clock: Clock) -> None:
        super().__init__(problem, clock, task.limits.gap)
        self.costs_are_exact = not problem.servers
        self.task, self.book = task, PriceBook(problem)
        self.lower = work_bound(problem, self.book.of_all)
        self.offer(task.incumbent)

    def offer(self, plan: Plan | None) -> None:
        """Take over a plan if it is feasible and better."""
        if plan is None:
            return
        verdict = evaluate(self.task.instance, plan, self.task.semantics)
        better = self.value is None or (verdict.value_ns or 0) < self.value
        if verdict.feasible and verdict.value_ns is not None and better:
            self.adopt(verdict.value_ns, plan)

    def cut(self) -> None:
        """Improve the value: the DP over the ideals of one topological order after another."""
        # a low limit keeps few states; it is raised until something fits
        limit = min(self.limit, 2 * self.lower + 1)
        for ideals in self._of_orders():
            if self.closed:
                return
            search = self.search(ideals)
            while not self.improve(search.best(limit, self.lower)):
                if self.value is not None or limit >= self.limit:
                    break
                limit = min(4 * limit, self.limit)
            if self.value is not None:
                limit = self.limit

    def close(self, max_ideals: int) -> None:
        """Close the gap with the DP over all ideals that matter; as in `Bracket`."""
        if self.closed:
            return
        problem, guide = self.problem, self.problem.guide
        keep = keep_all_that_may_matter(problem, self.book.of_all, self.limit)
        try:
            ideals, total = enumerate_ideals(
                guide,
                cuts_only(guide, keep.weight),
                partial(walk_below, keep.most),
                self.clock,
                max_ideals,
                max(2, MOST_BYTES // bytes_per_ideal(problem)),
            )
        except LimitReached:
            self.clock.check()
            self.raise_bound_for(MOST_LP_SHARE)
            self.recombine(self._of_orders())
            raise
        if not self.start(ideals, total, 2 * BUCKETS * PER_BUCKET):
            return
        if problem.servers:
            self._without_servers(ideals)
            if not self.closed and ideals.size > MOST_SERVER_IDEALS:
                raise LimitReached(
                    f"{ideals.size} ideals, with servers at most {MOST_SERVER_IDEALS}"
                )
        self.finish(self.search(ideals), BISECTION)

    def stage_costs(self) -> ChainCosts | None:
        """The blocks and nets as each kind sees them, servers aside; None with replicas."""
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

    def devices_of_kinds(self) -> list[tuple[int, ...]]:
        """Devices of each kind, by classes."""
        pool = self.problem.pool
        return [
            tuple(k for c, own in enumerate(pool.copies[0]) if pool.kinds[c] == kind for k in own)
            for kind in range(self.problem.num_kinds)
        ]

    def of_flags(self, flags: Flags) -> Ideals:
        """Ideals from their members, (N, b) bool."""
        guide = self.problem.guide
        return joined([of_flags(guide, cuts_only(guide, guide.nets.weight), flags)])

    def search(self, ideals: Ideals) -> KindsSearch:
        """The DP over some ideals, with servers if there are any."""
        kind = ServerSearch if self.problem.servers else KindsSearch
        return kind(self.book, ideals, self.clock)

    def of_least_cut(self, ideals: Ideals) -> Ideals:
        """The ideals of least cut in each interval of work."""
        guide = self.problem.guide
        work = set_sums(ideals.members, guide.time[0] + 1)
        cut = set_sums(ideals.cut_nets, guide.nets.weight)
        return of_least_cut(guide, ideals, work, cut, BUCKETS, PER_BUCKET)

    def _of_orders(self) -> Iterator[Ideals]:
        guide = self.problem.guide
        amounts = cuts_only(guide, guide.nets.weight)
        for order in islice(orders(guide, self.task.limits.seed), NUM_ORDERS):
            stops = places_to_cut(order, guide.time[0], guide.nets, MOST_CUTS)
            yield prefixes(guide, amounts, order, stops)
            self.clock.check()

    def _without_servers(self, ideals: Ideals) -> None:
        """A bound, and perhaps a better plan: the DP in which servers cost nothing."""
        relaxed = replace(self.task, incumbent=None)
        inner = KindsBracket(relaxed, replace(self.problem, servers=()), self.clock)
        inner.lower = self.lower
        inner.adopt(self.value, self.plan)
        try:
            inner.finish(inner.search(ideals), BISECTION)
        finally:
            self.prove(inner.lower, "ideal-dp without servers")
            self.offer(inner.plan)

    def simple_plan(self) -> None:
        """A plan where even the orders were too much: slices in fixed sequences, one device."""
        semantics = self.task.semantics
        plain = MaxLoad(plans="chain", load=semantics.load)
        limits = replace(self.task.limits, time_limit_s=0.0)
        for name in ("slicing", "single-device"):
            task = replace(self.task, semantics=plain, limits=limits, incumbent=None)
            start = best_start(task, [name])
            self.offer(None if start is None else start.plan)


def bytes_per_ideal(problem: KindsProblem) -> int:
    """Memory that one ideal takes, with what a search keeps of it."""
    guide, kinds = problem.guide, problem.num_kinds
    layers: int = min(problem.pool.num_layers, 2**20)
    kept = layers // (problem.pool.counts[0] + 1) + 2
    priced = 2 * (kinds + 1) * min(2**kinds, layers)
    total: int = 8 * (2 * (guide.num_words + guide.num_net_words) + 6 * kinds + kept + priced + 8)
    return total
