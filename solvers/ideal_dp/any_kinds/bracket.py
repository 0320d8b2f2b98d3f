"""Value and bound of the best chain on any devices, closing in: orders, beam, decisions, value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.semantics import Semantics
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.plan import Plan
from placegap.solvers.chains.cut_places import places_to_cut
from placegap.solvers.chains.orders import orders
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Told, unheard
from placegap.solvers.core.result import relative_gap
from placegap.solvers.core.starts import best_start
from placegap.solvers.ideal_dp.any_kinds.layers import LayerSearch, Pipeline
from placegap.solvers.ideal_dp.any_kinds.problem import KindsProblem
from placegap.solvers.ideal_dp.any_kinds.servers import ServerSearch
from placegap.solvers.ideal_dp.any_kinds.sets import (
    Sets,
    enumerate_sets,
    joined,
    prefixes,
    set_sums,
)
from placegap.solvers.ideal_dp.any_kinds.windows import (
    PriceBook,
    keep_all_that_may_matter,
    work_bound,
)

NUM_ORDERS, MOST_CUTS = 6, 400
"""Orders that are cut first, and at how many places at most."""

BUCKETS, PER_BUCKET = 128, 8
"""The beam: how many ideals of least cut are kept, in each interval of work."""

MOST_SERVER_IDEALS = 16_000
"""With servers and more ideals than this the bound leaves the servers out."""

MOST_BYTES = 800_000_000
"""Memory for ideals, and for what the search keeps of each."""

BISECTION = 0.004
"""Relative gap at which bisection hands over to a run for the value."""


@dataclass
class KindsBracket:
    """What is known of a problem's optimum, and how to learn more; as `two_kinds.bracket.Bracket`.

    Attributes
    ----------
    task : Task
    problem : KindsProblem
    clock : Clock
    lower : int
        Proven bound, from `origin`.
    value : int or None
        Load of the best plan so far.
    plan : Plan or None
    counts : dict
        How many ideals there are, and how many were kept.
    on_news : callable (value, bound)
        Called when one of the two is better.
    """

    task: Task
    problem: KindsProblem
    clock: Clock
    lower: int = 0
    origin: str = "combinatorial"
    value: int | None = None
    plan: Plan | None = None
    counts: dict[str, int] = field(default_factory=dict)
    on_news: Told = unheard

    def __post_init__(self) -> None:
        self.book = PriceBook(self.problem)
        self.lower = work_bound(self.problem, self.book.of_all)
        self.offer(self.task.incumbent)

    @property
    def closed(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value, self.lower)
        return found is not None and found <= self.task.limits.gap

    @property
    def limit(self) -> int:
        """Loads up to this are better than what is known."""
        return self.problem.largest_load if self.value is None else self.value - 1

    def tell_to(self, told: Told) -> None:
        """Let a function be called whenever value or bound are better."""
        self.on_news = told

    def adopt(self, value: int | None, plan: Plan | None) -> None:
        """Take over a plan of a known value."""
        self.value, self.plan = value, plan

    def offer(self, plan: Plan | None) -> None:
        """Take over a plan if it is feasible and better."""
        if plan is None:
            return
        verdict = evaluate(self.task.instance, plan, self.task.semantics)
        better = self.value is None or (verdict.value_ns or 0) < self.value
        if verdict.feasible and verdict.value_ns is not None and better:
            self.value, self.plan = verdict.value_ns, plan

    def improve(self, found: Pipeline | None) -> bool:
        """Take over a pipeline of at most `limit`; whether there is one."""
        if found is not None:
            self.value, self.plan = found.value, Plan(found.placement)
            self.on_news(self.value, self.lower)
        return found is not None

    def prove(self, lower: int, origin: str = "ideal-dp") -> None:
        """Take over a bound that the DP has proven."""
        if lower > self.lower:
            self.lower, self.origin = lower, origin
            self.on_news(self.value, self.lower)

    def search(self, sets: Sets) -> LayerSearch:
        """The DP over some ideals, with servers if there are any."""
        kind = ServerSearch if self.problem.servers else LayerSearch
        return kind(self.book, sets, self.clock)


def cut_orders(bracket: KindsBracket) -> None:
    """Improve the value: the DP over the ideals of one topological order after another."""
    # a low limit keeps few states; it is raised until something fits
    limit = min(bracket.limit, 2 * bracket.lower + 1)
    for sets in _of_orders(bracket):
        if bracket.closed:
            return
        search = bracket.search(sets)
        while not bracket.improve(search.best(limit, bracket.lower)):
            if bracket.value is not None or limit >= bracket.limit:
                break
            limit = min(4 * limit, bracket.limit)
        if bracket.value is not None:
            limit = bracket.limit


def _of_orders(bracket: KindsBracket) -> Iterator[Sets]:
    guide = bracket.problem.guide
    for order in islice(orders(guide, bracket.task.limits.seed), NUM_ORDERS):
        yield prefixes(guide, order, places_to_cut(order, guide.time[0], guide.nets, MOST_CUTS))
        bracket.clock.check()


def close(bracket: KindsBracket, max_ideals: int) -> None:
    """Close the gap with the DP over all ideals that matter.

    Raises
    ------
    LimitReached
        If there are too many ideals; then the value comes from the ideals of some orders alone.
    """
    if bracket.closed:
        return
    problem = bracket.problem
    keep = keep_all_that_may_matter(problem, bracket.book.of_all, bracket.limit)
    try:
        sets, total = enumerate_sets(
            problem.guide,
            keep,
            bracket.clock,
            max_ideals,
            max(2, MOST_BYTES // bytes_per_ideal(problem)),
        )
    except LimitReached:
        _recombine(bracket)
        raise
    bracket.counts.update(ideals=total, kept_ideals=sets.size)
    if sets.size == 0:
        # not even the empty ideal passes: all devices together do not suffice
        if bracket.value is not None:
            bracket.prove(bracket.value)
        return
    if sets.size > 2 * BUCKETS * PER_BUCKET:
        bracket.improve(_beam(bracket, sets))
    if problem.servers:
        _without_servers(bracket, sets)
        if not bracket.closed and sets.size > MOST_SERVER_IDEALS:
            raise LimitReached(f"{sets.size} ideals, with servers at most {MOST_SERVER_IDEALS}")
    _bisect(bracket, bracket.search(sets))


def bytes_per_ideal(problem: KindsProblem) -> int:
    """Memory that one ideal takes, with what a search keeps of it."""
    guide, kinds = problem.guide, problem.num_kinds
    layers: int = min(problem.pool.num_layers, 2**20)
    kept = layers // (problem.pool.counts[0] + 1) + 2
    priced = 2 * (kinds + 1) * min(2**kinds, layers)
    total: int = 8 * (2 * (guide.num_words + guide.num_net_words) + 6 * kinds + kept + priced + 8)
    return total


def _bisect(bracket: KindsBracket, search: LayerSearch) -> None:
    """Decide whether anything is better; if so, narrow the bracket and compute the value."""
    limit = bracket.limit
    while not bracket.closed:
        if not bracket.improve(search.best(limit, limit)):
            if bracket.value is None:
                return  # no chain of ideals fits at all
            bracket.prove(limit + 1)
        assert bracket.value is not None
        if bracket.value - bracket.lower <= BISECTION * bracket.value:
            break
        limit = (bracket.lower + bracket.value) // 2
    if not bracket.closed:
        bracket.improve(search.best(bracket.limit, bracket.lower))
        assert bracket.value is not None
        bracket.prove(bracket.value)


def _without_servers(bracket: KindsBracket, sets: Sets) -> None:
    """A bound, and perhaps a better plan: the DP in which servers cost nothing."""
    relaxed = replace(bracket.task, incumbent=None)
    inner = KindsBracket(relaxed, replace(bracket.problem, servers=()), bracket.clock)
    inner.lower, inner.value, inner.plan = bracket.lower, bracket.value, bracket.plan
    try:
        _bisect(inner, inner.search(sets))
    finally:
        bracket.prove(inner.lower, "ideal-dp without servers")
        bracket.offer(inner.plan)


def _recombine(bracket: KindsBracket) -> None:
    """Improve the value: the DP over ideals that several orders run through."""
    bracket.improve(_beam(bracket, joined(list(_of_orders(bracket)))))


def _beam(bracket: KindsBracket, sets: Sets) -> Pipeline | None:
    """The DP over the ideals of least cut in each interval of work."""
    chosen = sets.take(_least_cut(bracket.problem, sets))
    return bracket.search(chosen).best(bracket.limit, bracket.lower)


def _least_cut(problem: KindsProblem, sets: Sets) -> Ints:
    """The ideals of least cut in each interval of work, in order; the empty and the full one."""
    guide = problem.guide
    work = set_sums(sets.members, guide.time[0] + 1)
    cut = set_sums(sets.cut_nets, guide.nets.weight)
    bucket = work // (int(work.max()) // BUCKETS + 1)
    order = np.lexsort((cut, bucket))
    first = np.searchsorted(bucket[order], bucket[order])
    chosen = order[np.arange(len(order)) - first < PER_BUCKET]
    ends = [int(np.argmin(work)), int(np.argmax(work))]
    return np.unique(np.append(chosen, ends))


def simple_plan(bracket: KindsBracket) -> None:
    """A plan where even the orders were too much: slices in fixed sequences, a single device."""
    semantics = bracket.task.semantics
    plain = Semantics(objective="max_load", plans="chain", load=semantics.load)
    limits = replace(bracket.task.limits, time_limit_s=0.0)
    for name in ("slicing", "single-device"):
        task = replace(bracket.task, semantics=plain, limits=limits, incumbent=None)
        start = best_start(task, [name])
        bracket.offer(None if start is None else start.plan)
