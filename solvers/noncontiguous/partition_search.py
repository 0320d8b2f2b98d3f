"""Plans of `noncontiguous`: annealing from the best one, hotter and cooler by turns.

Many blocks are searched on coarser problems first (`annealing.search_levels`).
"""

from __future__ import annotations

from dataclasses import dataclass

from placegap.instances.kernels.array_types import Ints
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.noncontiguous.annealing import anneal, search_levels
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
            self.improve(value_ns)
            self.merged, self.devices = device.copy(), device[self.problem.block]


LARGE = 1_000
"""Blocks from which on local search begins on coarser problems."""

HEATS = (1.0, 0.3, 3.0)
"""Factors of the temperatures of searches on levels, one after the other."""

KICKS = 4
"""Searches from the best plan in each round."""

HEAT = (0.002, 0.008, 0.0005, 0.03)
"""Temperature that annealing starts with, run by run."""

MOVES_PER_BLOCK, MOVES_PER_S = 10_000, 200_000
"""Most moves of an annealing run: per block, and per second that is left."""


class PartitionSearch:
    """Local search: what is found goes to `progress`."""

    def __init__(self, progress: BestPartition, clock: Clock, moves: int, seed: int) -> None:
        #: Of the whole search.
        self.progress, self.clock = progress, clock
        #: Most moves of an annealing run.
        self.moves, self.seed = moves, seed
        self.searches = self.kicks = self.level_searches = 0

    @property
    def is_large(self) -> bool:
        """Whether the search begins on coarser problems."""
        return self.progress.problem.num_blocks > LARGE

    def improve(self, device: Ints, part: float, kicks: int) -> None:
        """Search coarser problems from a plan if it is large, then from the best one, so often."""
        self.clock.check()
        clock = self.clock.part(part)
        if self.is_large:
            self.search_levels(device, clock)
        for _ in range(kicks):
            if clock.left_s == 0.0:
                self.clock.check()
                return
            if self.progress.is_close:
                return
            self.kick(clock)

    def kick(self, clock: Clock) -> None:
        """Search from the best plan, with another temperature than last time."""
        if self.is_large:
            self.search_levels(self.progress.merged, clock)
        else:
            self.anneal(self.progress.merged, HEAT[self.kicks % len(HEAT)], clock)
            self.kicks += 1

    def search_levels(self, device: Ints, clock: Clock) -> None:
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

    def anneal(self, device: Ints, hot: float, clock: Clock) -> None:
        """Anneal from a plan."""
        problem, left = self.progress.problem, clock.left_s
        moves = min(self.moves, MOVES_PER_BLOCK * problem.num_blocks)
        if left is not None:
            moves = min(moves, int(MOVES_PER_S * left))
        device = anneal(
            problem, device, seed=self.next_seed(), moves=moves, hot=hot, power=40.0, clock=clock
        )
        self.progress.offer(device)

    def next_seed(self) -> int:
        """A seed for each local search."""
        self.searches += 1
        return self.seed * 1_000_003 + self.searches
