"""Value and bound of the best chain, closing in: what the engines for its two classes share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from graphlib import TopologicalSorter
from typing import Protocol

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.blocks import Blocks
from placegap.instances.problem.plan import Plan
from placegap.solvers.chains.ideals import Ideals, joined
from placegap.solvers.chains.layers import LayerSearch, Pipeline
from placegap.solvers.chains.stage_lp import ChainCosts, as_one_kind
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.progress import Told, unheard
from placegap.solvers.core.result import relative_gap

MOST_BYTES = 800_000_000
"""Memory for ideals, and for what a search keeps of each."""

PER_BUCKET = 8
"""The beam: how many ideals of least cut are kept, in each interval of work."""

MOVE_SHARE, MOVE_ROUNDS, MOVES_PER_PAIR, MOST_MOVES = 0.15, 24, 20, 5_000_000
FIRST_MOVES = 100_000
"""Of the time that is left, for moves of single blocks; rounds, steps of the first ones per pair
of blocks, and most steps of one, also where there is no hurry, and of the first where there is."""

MANY, LP_SHARE, MOST_LP_SHARE = 200_000, 0.3, 0.7
"""With more ideals than this the LPs come before the DP; their share of the time, and their share
where the ideals do not fit."""

EXACT_SHARE = 0.6
"""Of the time that is left, for the DP over all ideals; then stage LPs raise the bound."""


def in_a_row(device: Ints, tail: Ints, head: Ints, devices: list[int]) -> Ints:
    """Devices in an order in which no arc leads back; those without blocks last.

    Examples
    --------
    >>> in_a_row(np.array([2, 0]), np.array([0]), np.array([1]), [0, 1, 2]).tolist()
    [2, 0, 1]
    """
    pairs = {(a, b) for a, b in zip(device[tail].tolist(), device[head].tolist(), strict=True)}
    used = sorted(set(device.tolist()))
    sorter = TopologicalSorter({k: sorted(a for a, b in pairs if b == k != a) for k in used})
    return np.array([*sorter.static_order(), *(k for k in devices if k not in used)], np.int64)


class BracketProblem(Protocol):
    """What the engines' problems have in common."""

    @property
    def blocks(self) -> Blocks:
        """The blocks."""

    @property
    def fits(self) -> Flags:
        """Whether a device of each kind can run and hold each block, (D, b)."""

    @property
    def largest_load(self) -> int:
        """No plan has more load than this."""


class Bracket(ABC):
    """What is known of a problem's optimum, and how to learn more.

    Attributes
    ----------
    problem : BracketProblem
    clock : Clock
    gap : float
        Relative gap that suffices.
    lower : int
        Proven bound, from `origin`.
    value : int or None
        Load of the best plan so far.
    plan : Plan or None
    counts : dict
        How many ideals there are, and how many were kept.
    on_news : callable (value, bound)
        Called when one of the two is better.
    proves : bool
        Whether its bounds are of use: the problem is exact or a relaxation.
    costs_are_exact : bool
        Whether `stage_costs` are what a stage costs, and not only a bound on it.
    """

    def __init__(self, problem: BracketProblem, clock: Clock, gap: float) -> None:
        self.problem, self.clock, self.gap = problem, clock, gap
        self.lower, self.origin = 0, "combinatorial"
        self.value: int | None = None
        self.plan: Plan | None = None
        self.counts: dict[str, int] = {}
        self.on_news: Told = unheard
        self.proves = self.costs_are_exact = True
        self._rounds: Iterator[int] | None = None

    @abstractmethod
    def cut(self) -> None:
        """Find a good plan soon, among the ideals of some topological orders."""

    @abstractmethod
    def close(self, max_ideals: int) -> None:
        """Close the gap with the DP over all ideals that matter.

        Raises
        ------
        LimitReached
            If there are too many ideals; then the value comes from the ideals of some orders alone.
        """

    @abstractmethod
    def stage_costs(self) -> ChainCosts | None:
        """What `chains.stage_bounds` computes on; None where it does not hold."""

    @abstractmethod
    def devices_of_kinds(self) -> list[tuple[int, ...]]:
        """Devices of each kind of `stage_costs`."""

    @abstractmethod
    def of_flags(self, flags: Flags) -> Ideals:
        """Ideals from their members, (N, b) bool."""

    @abstractmethod
    def search(self, ideals: Ideals) -> LayerSearch:
        """The DP over some ideals."""

    @abstractmethod
    def of_least_cut(self, ideals: Ideals) -> Ideals:
        """The ideals of least cut in each interval of work."""

    @property
    def closed(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value, self.lower)
        return found is not None and found <= self.gap

    @property
    def limit(self) -> int:
        """Loads up to this are better than what is known."""
        return self.problem.largest_load if self.value is None else self.value - 1

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

    def beam(self, ideals: Ideals) -> None:
        """Improve the value: the DP over the ideals of least cut."""
        search = self.search(self.of_least_cut(ideals))
        self.improve(search.best(self.limit, self.lower))

    def recombine(self, parts: Iterable[Ideals]) -> None:
        """Improve the value: the DP over ideals that several topological orders run through."""
        self.beam(joined(list(parts)))

    def close_in_time(self, max_ideals: int) -> None:
        """Close the gap with the DP; where that does not end in its share of the time, with LPs.

        Raises
        ------
        LimitReached
            Of the DP, if the gap is still open.
        """
        whole = self.clock
        self.clock = whole.part(EXACT_SHARE)
        try:
            self.close(max_ideals)
        except LimitReached:
            self.clock = whole
            whole.check()
            self.raise_bound()
            if not self.closed:
                raise
        finally:
            self.clock = whole

    def raise_bound_for(self, share: float) -> None:
        """Raise the bound within a share of the time that is left."""
        whole = self.clock
        self.clock = whole.part(share)
        try:
            self.raise_bound()
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
                self.improve(self.search(ideals).best(self.limit, self.lower))
            return self.value

        relaxed = costs if few_states(costs) else as_one_kind(costs)
        raise_bound(
            relaxed,
            self.lower,
            best,
            lambda bound: self.prove(bound, ORIGIN),
            suggested.see,
            self.clock,
            self.gap,
            self._rounds,
        )
        self.move_blocks(costs, self.clock.part(MOVE_SHARE))

    def move_blocks(self, costs: ChainCosts, clock: Clock) -> None:
        """Improve the value: single blocks change their stage."""
        from placegap.solvers.chains.stage_moves import HEATS, anneal, moves

        if self.value is None or self.plan is None or not self.costs_are_exact:
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
            if self.closed or clock.left_s == 0.0:
                return
            longer, heat = divmod(repeat, len(HEATS))
            steps = min(MOVES_PER_PAIR * costs.num_blocks**2 * 2**longer, MOST_MOVES)
            if clock.left_s is not None:
                steps = min(steps, max(1, int(per_s * clock.left_s / 2)) if repeat else FIRST_MOVES)
            began = clock.spent_s
            value, stage = anneal(table, stage, self.value, steps, HEATS[heat], rng)
            per_s = steps / max(clock.spent_s - began, 1e-6)
            if value < self.value:
                self.adopt(int(value), Plan.on(row[stage][block]))
                self.on_news(self.value, self.lower)

    def start(self, ideals: Ideals, total: int, few: int) -> bool:
        """Note the ideals that matter, and improve the value by a beam unless they are few.

        Whether any do: if not even the empty ideal, all devices together do not suffice.
        """
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        if ideals.size == 0 or ideals.members[0].any():
            if self.value is not None:
                self.prove(self.value)
            return False
        if ideals.size > few:
            self.beam(ideals)
        if ideals.size > MANY and not self.closed:
            self.raise_bound_for(LP_SHARE)
        return True

    def finish(self, search: LayerSearch, until: float) -> None:
        """Close the gap: by decisions to a relative gap, then by one run for the value."""
        self.bisect(lambda limit: search.best(limit, limit), until)
        if not self.closed and self.value is not None:
            self.improve(search.best(self.limit, self.lower))
            self.prove(self.value)

    def bisect(self, decide: Callable[[int], Pipeline | None], until: float) -> None:
        """Decide whether anything is better; if so, narrow the bracket to a relative gap.

        What a decision finds is often the optimum: then all that is missing is the proof that
        nothing is better still. So that is asked next, but not twice in a row, for it may go down
        ns by ns.
        """
        limit, straight = self.limit, False
        while not self.closed:
            improved = self.improve(decide(limit))
            if not improved:
                if self.value is None:
                    return  # no chain of ideals fits at all
                self.prove(limit + 1)
            assert self.value is not None
            if self.value - self.lower <= until * self.value:
                return
            straight = improved and not straight
            limit = self.limit if straight else (self.lower + self.value) // 2
