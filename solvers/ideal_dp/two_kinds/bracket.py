"""Value and bound of the best chain, closing in: slices, beam, decision, bisection.

Two engines decide: the search over pairs of ideals (`two_kinds.search`), which windows and trees
make fast where bounds are good; and the sweep over all ideals (`sweep.decide`), whose time hardly
depends on bounds. The search begins, and the sweep takes over when it has cost about as much as a
sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.referee.plan import Plan
from placegap.solvers.chains.orders import orders
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem
from placegap.solvers.chains.slice_two_kinds import Slices, best_slices
from placegap.solvers.chains.work_bound import Relief, work_bound
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.progress import Told, unheard
from placegap.solvers.core.result import relative_gap
from placegap.solvers.ideal_dp.ideals.enumerate import MemoryFull, bytes_per_ideal, enumerate_ideals
from placegap.solvers.ideal_dp.ideals.ideals import Ideals, all_blocks, joined, record_prefixes
from placegap.solvers.ideal_dp.ideals.windows import build_windows
from placegap.solvers.ideal_dp.sweep.decide import Sweep, why_no_sweep
from placegap.solvers.ideal_dp.sweep.lattice import TooLarge, build_lattice, least_bytes
from placegap.solvers.ideal_dp.sweep.net_steps import net_steps
from placegap.solvers.ideal_dp.sweep.walks import build_walks
from placegap.solvers.ideal_dp.two_kinds.search import Search, TooManyNodes

MOST_BYTES = 800_000_000
"""Memory for ideals, and for what the search keeps of each."""

MOST_STATES = 20_000_000
"""States of the DP, over all layers; 16 bytes each."""

BISECTION = 0.0002
"""Relative gap at which bisection hands over to a run for the value."""

NODES_PER_IDEAL, LEAST_NODES = 200, 20_000_000
"""Nodes of trees, per ideal, after which the sweep takes over; and how many it always has."""

BOUND_ROUNDS, BOUND_NODES_PER_IDEAL = 6, 1000
"""Decisions for a bound where not all ideals fit the memory, and what each may cost."""

SWEEP_ORDERS = 6
"""Topological orders among which the sweep chooses that in which nets are under way least."""

BUCKETS, PER_BUCKET = 192, 8
"""The beam: how many ideals of least cut are kept, in each interval of work."""


@dataclass
class Bracket:
    """What is known of a problem's optimum, and how to learn more.

    Attributes
    ----------
    problem : ChainProblem
    clock : Clock
    gap : float
        Relative gap that suffices.
    seed : int
    lower : int
        Proven bound, from `origin`.
    value : int or None
        Load of the best plan so far.
    devices : (n,) int64 or None
        Device of each op in that plan.
    counts : dict
        How many ideals there are, and how many were kept.
    on_news : callable (value, bound)
        Called when one of the two is better.
    """

    problem: ChainProblem
    clock: Clock
    gap: float = 0.0
    seed: int = 0
    value: int | None = None
    devices: Ints | None = None
    lower: int = 0
    origin: str = "combinatorial"
    counts: dict[str, int] = field(default_factory=dict)
    on_news: Told = unheard

    def __post_init__(self) -> None:
        self.relief = Relief(self.problem)
        if self.problem.fits.any(axis=0).all():
            self.lower = work_bound(self.problem, self.relief)

    @property
    def closed(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value, self.lower)
        return found is not None and found <= self.gap

    @property
    def limit(self) -> int:
        """Loads up to this are better than what is known."""
        return self.problem.largest_load if self.value is None else self.value - 1

    @property
    def plan(self) -> Plan | None:
        """The best plan so far."""
        return None if self.devices is None else Plan.on(self.devices.tolist())

    def tell_to(self, told: Told) -> None:
        """Let a function be called whenever value or bound are better."""
        self.on_news = told

    def adopt(self, value: int | None, plan: Plan | None) -> None:
        """Take over a plan of a known value."""
        self.value, self.devices = value, None if plan is None else plan.devices

    def improve(self, split: Slices | None) -> bool:
        """Take over a split of at most `limit`; whether there is one."""
        if split is not None:
            self.value, self.devices = split.value, split.devices(self.problem)
            self.on_news(self.value, self.lower)
        return split is not None

    def prove(self, lower: int) -> None:
        """Take over a bound that the DP has proven."""
        self.lower, self.origin = lower, "ideal-dp"
        self.on_news(self.value, self.lower)

    def search(self, ideals: Ideals, max_nodes: int | None = None) -> Search:
        """The DP over some ideals."""
        return Search(self.problem, self.relief, ideals, self.clock, MOST_STATES, max_nodes)


def slice_orders(bracket: Bracket) -> None:
    """Improve the value: the best slices of topological orders."""
    problem = bracket.problem
    # a low limit ends segments early; it is raised until something fits
    limit = min(bracket.limit, 2 * bracket.lower + 1)
    for order in _orders(bracket):
        if bracket.closed:
            return
        while not bracket.improve(best_slices(problem, order, limit)):
            if bracket.value is not None or limit >= bracket.limit:
                break
            limit = min(8 * limit, bracket.limit)
        if bracket.value is not None:
            limit = bracket.limit


def _orders(bracket: Bracket) -> Iterator[Ints]:
    for order in orders(bracket.problem, bracket.seed):
        yield order
        bracket.clock.check()


def close(bracket: Bracket, max_ideals: int) -> None:
    """Close the gap with the DP over all ideals that matter.

    Raises
    ------
    LimitReached
        If there are too many ideals; then the value comes from the ideals of some orders alone,
        and the bound from decisions at loads for which few enough matter.
    """
    if bracket.closed:
        return
    sweeps = why_no_sweep(bracket.problem) is None
    if not _close_by_search(bracket, max_ideals, sweeps=sweeps) and not _close_by_sweep(bracket):
        _close_by_search(bracket, max_ideals, sweeps=False)


def _close_by_search(bracket: Bracket, max_ideals: int, *, sweeps: bool) -> bool:
    """Close the gap over the ideals in windows; with `sweeps` only so long: False is then the end.

    All memory is free again.
    """
    windows = build_windows(bracket.problem, bracket.relief, bracket.limit)
    try:
        ideals, total = enumerate_ideals(
            bracket.problem, windows, bracket.clock, max_ideals, MOST_BYTES
        )
    except LimitReached as reached:
        _recombine(bracket)
        if isinstance(reached, MemoryFull):
            _raise_bound(bracket, max_ideals)
        raise
    bracket.counts.update(ideals=total, kept_ideals=ideals.size)
    if ideals.size == 0 or ideals.members[0].any():
        # the empty ideal is in no window: all devices together do not suffice
        if bracket.value is not None:
            bracket.prove(bracket.value)
        return True
    if ideals.size > 2 * BUCKETS * PER_BUCKET:
        beam = ideals.take(_least_cut(bracket.problem, ideals))
        bracket.improve(bracket.search(beam).best(bracket.limit, bracket.lower))
    sweeps = sweeps and least_bytes(total) <= MOST_BYTES
    search = bracket.search(ideals, max(LEAST_NODES, NODES_PER_IDEAL * total) if sweeps else None)
    try:
        _bisect(bracket, lambda limit: search.best(limit, limit), BISECTION)
        if not bracket.closed and bracket.value is not None:
            bracket.improve(search.best(bracket.limit, bracket.lower))
            bracket.prove(bracket.value)
    except TooManyNodes:
        return False
    return True


def _close_by_sweep(bracket: Bracket) -> bool:
    """Close the gap by sweeps over all ideals; whether they fit the memory."""
    sweep = _build_sweep(bracket)
    if sweep is not None:
        _bisect(bracket, sweep.decide, 0.0)
    return sweep is not None


def _build_sweep(bracket: Bracket) -> Sweep | None:
    problem, clock = bracket.problem, bracket.clock
    candidates = [
        (int((nets.last - nets.first).sum()), at, order, nets)
        for at, order in enumerate(islice(_orders(bracket), SWEEP_ORDERS))
        if (nets := net_steps(problem, order)) is not None
    ]
    if not candidates:
        return None
    _, _, order, nets = min(candidates, key=lambda candidate: candidate[:2])
    try:
        lattice = build_lattice(problem, order, bracket.counts["ideals"], clock, MOST_BYTES)
        paths = None
        if problem.counts[ACCELERATOR]:
            paths = build_walks(problem, lattice, nets, clock, MOST_BYTES)
            bracket.counts.update(walk_edges=len(paths.source))
    except TooLarge:
        return None
    return Sweep(problem, bracket.relief, lattice, paths, clock)


def _bisect(bracket: Bracket, decide: Callable[[int], Slices | None], until: float) -> None:
    """Decide whether anything is better; if so, narrow the bracket to a relative gap.

    What a decision finds is often the optimum: then all that is missing is the proof that nothing
    is better still. So that is asked next, but not twice in a row, for it may go down ns by ns.
    """
    limit, straight = bracket.limit, False
    while not bracket.closed:
        improved = bracket.improve(decide(limit))
        if not improved:
            if bracket.value is None:
                return  # no chain of ideals fits at all
            bracket.prove(limit + 1)
        assert bracket.value is not None
        if bracket.value - bracket.lower <= until * bracket.value:
            return
        straight = improved and not straight
        limit = bracket.limit if straight else (bracket.lower + bracket.value) // 2


def _raise_bound(bracket: Bracket, max_ideals: int) -> None:
    """Close the gap as far as the ideals in windows fit the memory: at lower limits they are fewer.

    By bisection; each search may only cost so much, as it may decide nothing.
    """
    high = bracket.limit
    for _ in range(BOUND_ROUNDS):
        limit = (bracket.lower + high) // 2
        if bracket.closed or bracket.lower > limit:
            return
        windows = build_windows(bracket.problem, bracket.relief, limit)
        try:
            ideals, _ = enumerate_ideals(
                bracket.problem, windows, bracket.clock, max_ideals, MOST_BYTES
            )
            found = None
            if ideals.size and not ideals.members[0].any():
                search = bracket.search(ideals, BOUND_NODES_PER_IDEAL * ideals.size)
                found = search.best(limit, limit)
        except (MemoryFull, TooManyNodes):
            high = limit
            continue
        if bracket.improve(found):
            high = bracket.limit
        else:
            bracket.prove(limit + 1)


def _recombine(bracket: Bracket) -> None:
    """Improve the value: the DP over ideals that the topological orders run through."""
    problem = bracket.problem
    if bytes_per_ideal(problem) * problem.num_blocks > MOST_BYTES // 4:
        return
    parts = []
    for order in _orders(bracket):
        prefixes = record_prefixes(problem, order)
        parts.append(prefixes.take(_least_cut(problem, prefixes)))
    ideals = joined(parts)
    ideals = ideals.take(_least_cut(problem, ideals))
    bracket.improve(bracket.search(ideals).best(bracket.limit, bracket.lower))


def _least_cut(problem: ChainProblem, ideals: Ideals) -> Ints:
    """The ideals of least cut in each interval of work, in order; and the full one."""
    kind = ACCELERATOR if problem.counts[ACCELERATOR] else HOST
    work = ideals.time[:, kind]
    bucket = work // (int(work.max()) // BUCKETS + 1)
    order = np.lexsort((ideals.cut, bucket))
    first = np.searchsorted(bucket[order], bucket[order])
    chosen = order[np.arange(len(order)) - first < PER_BUCKET]
    return np.unique(np.append(chosen, ideals.find(all_blocks(problem))))
