"""Plans of `noncontiguous`: local search from a plan, then from what kicks make of the best one.

Two devices share their blocks anew (`noncontiguous.pair_splits`), unless all are too entangled for
that; many blocks are searched on coarser problems first (`annealing.search_levels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.noncontiguous.annealing import anneal, search_levels
from placegap.solvers.noncontiguous.pair_splits import can_split, exchange_pairs, shake
from placegap.solvers.noncontiguous.problem import SplitProblem


@dataclass(eq=False, kw_only=True)
class BestPartition(Incumbent):
    """The best plan of blocks and ops."""

    #: After merging.
    problem: SplitProblem
    #: (n,) int64: Device of each op.
    devices: Ints
    #: (b,) int64: Device of each block, in the best plan of the problem's blocks.
    merged: Ints

    @property
    def plan_ns(self) -> int:
        """Value of the best plan: here there is always one."""
        assert self.value_ns is not None
        return self.value_ns

    def offer(self, device: Ints) -> None:
        """Take over a plan of the blocks if it fits and is better."""
        value_ns = int(self.problem.loads(device).max())
        if value_ns < self.plan_ns and self.problem.fits(device):
            self.merged = device.copy()
            self.offer_ops(value_ns, device[self.problem.block])

    def offer_ops(self, value_ns: int, devices: Ints) -> None:
        """Take over a feasible plan of the ops if it is better."""
        if self.improve(value_ns):
            self.devices = devices.copy()


LARGE = 1_000
"""Blocks from which on local search begins on coarser problems."""

PAIRS_SHARE = 0.2
"""Of the time of a local search: to see whether two devices are too entangled to be split."""

HEATS = (1.0, 0.3, 3.0)
"""Factors of the temperatures of searches on levels, one after the other."""

KICKS = 4
"""Plans that local search starts from anew, in each of the first rounds."""

NOISE = (0.3, 0.1, 0.5, 0.2)
"""By which part times and transfers are drawn lower at most, kick by kick."""

OTHER_EVERY = 3
"""Of so many kicks one does not need the frontier of two devices: annealing, on levels if LARGE."""

HEAT = (0.002, 0.008, 0.0005, 0.03)
"""Temperature that annealing starts with, run by run."""

MOVES_PER_BLOCK, MOVES_PER_S = 10_000, 200_000
"""Most moves of an annealing run: per block, and per second that is left."""


class PartitionSearch:
    """Local search and kicks: what is found goes to `progress`."""

    def __init__(
        self, progress: BestPartition, clock: Clock, *, moves: int, patience: int, seed: int
    ) -> None:
        #: Of the whole search.
        self.progress, self.clock = progress, clock
        #: Splits of two devices in a row that may fail to better the plan.
        #: Most moves of an annealing run.
        self.moves, self.patience, self.seed = moves, patience, seed
        self.searches = self.kicks = self.level_searches = 0
        self.by_pairs = not self.is_large
        #: (b,) int64: The order in which frontiers take the blocks.
        self.order: Ints = np.arange(progress.problem.num_blocks)

    @property
    def is_large(self) -> bool:
        """Whether the search begins on coarser problems."""
        return self.progress.problem.num_blocks > LARGE

    def improve(self, device: Ints, part: float, kicks: int | None) -> None:
        """Local search from a plan, then from what kicks make of the best plan, so many or all."""
        self.clock.check()
        clock = self.clock.part(part)
        if self.is_large:
            if not self.by_pairs:
                problem = self.progress.problem
                self.by_pairs = can_split(problem, device, self.order, clock.part(PAIRS_SHARE))
            device = self.search_levels(device, clock)
        self.split_pairs(device, clock)
        for _ in count() if kicks is None else range(kicks):
            if clock.left_s == 0.0:
                self.clock.check()
                return
            if self.progress.is_close:
                return
            self.split_pairs(self.kick(clock), clock)

    def kick(self, clock: Clock) -> Ints:
        """A plan elsewhere, not far from the best one."""
        others, last = divmod(self.kicks, OTHER_EVERY)
        self.kicks += 1
        if not self.by_pairs:
            return self.search_levels(self.progress.merged, clock)
        if last == OTHER_EVERY - 1:
            if self.is_large:
                return self.search_levels(self.progress.merged, clock)
            return self.anneal(self.progress.merged, HEAT[others % len(HEAT)], clock)
        noise = NOISE[(self.kicks - 1 - others) % len(NOISE)]
        return shake(
            self.progress.problem,
            self.progress.merged,
            self.order,
            seed=self.next_seed(),
            noise=noise,
            patience=self.patience,
            clock=clock,
        )

    def split_pairs(self, device: Ints, clock: Clock) -> None:
        """Pairs of devices share their blocks anew, unless all are too entangled."""
        progress = self.progress
        if not self.by_pairs:
            return
        progress.offer(
            exchange_pairs(
                progress.problem,
                device,
                self.order,
                seed=self.next_seed(),
                patience=self.patience,
                clock=clock,
                enough_ns=progress.bound_ns,
            )
        )

    def search_levels(self, device: Ints, clock: Clock) -> Ints:
        """Anneal from a plan on coarser problems, then on finer and finer ones.

        By turns the coarse blocks keep the plan's cuts, or are made afresh.
        """
        seed = self.next_seed()
        again, afresh = divmod(self.level_searches, 2)
        self.level_searches += 1
        found = search_levels(
            self.progress.problem,
            device,
            seed=seed,
            clock=clock,
            heat=HEATS[again % len(HEATS)],
            afresh=bool(afresh),
        )
        self.progress.offer(found)
        return found

    def anneal(self, device: Ints, hot: float, clock: Clock) -> Ints:
        """Anneal from a plan."""
        problem, left = self.progress.problem, clock.left_s
        moves = min(self.moves, MOVES_PER_BLOCK * problem.num_blocks)
        if left is not None:
            moves = min(moves, int(MOVES_PER_S * left))
        device = anneal(
            problem, device, seed=self.next_seed(), moves=moves, hot=hot, power=40.0, clock=clock
        )
        self.progress.offer(device)
        return device

    def next_seed(self) -> int:
        """A seed for each local search."""
        self.searches += 1
        return self.seed * 1_000_003 + self.searches
