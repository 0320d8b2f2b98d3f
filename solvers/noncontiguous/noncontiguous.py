"""The method ``noncontiguous``: max_load over plans of any kind, with a bound close to the plan.

It starts from the ideal DP and merges blocks that some optimal plan keeps together
(`merge_blocks`). Then column generation for a bound (`column_generation`) and annealing for better
plans take turns until the gap is small enough, the time is over or nothing more is found. The bound
is that of an LP and may stay below the optimum, however long it runs.

Annealing continues from the best plan with alternating temperatures. Problems of many blocks are
searched on coarser levels first (`annealing.search_levels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import MaxLoad, Plan
from placegap.instances.problem.explain import explain_infeasible
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock, LimitReached, raise_if_stopped
from placegap.solvers.core.method import EFFORT, ExactParams, Params, Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, internal_error, no_plan
from placegap.solvers.core.starts import best_start
from placegap.solvers.noncontiguous.annealing import (
    AnnealingRun,
    anneal,
    longer_runs,
    search_levels,
)
from placegap.solvers.noncontiguous.column_generation import (
    ColumnGeneration,
    choose_pricer,
    cover_all,
)
from placegap.solvers.noncontiguous.pricing import Pricer
from placegap.solvers.noncontiguous.problem import SplitProblem, build_split_problem, merge_blocks


@dataclass(eq=False, kw_only=True)
class BestPartition(Known):
    """The best plan, by blocks and by ops, and the best bound."""

    problem: SplitProblem  # the problem after merging
    devices: Ints  # (n,) int64: Device of each op
    merged: Ints  # (b,) int64: Device of each block, in the best plan of the problem's blocks

    @property
    def plan_ns(self) -> int:
        """Value of the best plan; there always is one here."""
        assert self.value is not None
        return self.value

    def offer(self, device: Ints) -> None:
        """Take over a plan of the blocks if it fits and is better."""
        value_ns = int(self.problem.loads(device).max())
        if value_ns < self.plan_ns and self.problem.fits(device):
            self.improve(value_ns)
            self.merged, self.devices = device.copy(), device[self.problem.block]


LARGE = 1_000  # with more blocks than this, local search begins on coarser problems
HEATS = (1.0, 0.3, 3.0)  # factors of the temperatures of searches on levels, in turn
KICKS = 4  # number of searches from the best plan in each round
# Most moves of an annealing run per remaining second: of one in the first cycle of temperatures,
# and of later, longer ones, which follow where the relative gap is at least `WORTH`.
MOVES_PER_S, MOST_PER_S, WORTH = 200_000, 500_000, 0.002


class PartitionSearch:
    """Local search; better plans go to `progress`."""

    def __init__(self, progress: BestPartition, clock: Clock, moves: int, seed: int) -> None:
        #: Best plan and clock of the whole search.
        self.progress, self.clock = progress, clock
        #: Most moves of an annealing run that is not to be longer.
        self.moves, self.seed = moves, seed
        self.searches = self.level_searches = 0
        self.runs = longer_runs(moves, progress.problem.num_blocks)

    @property
    def is_large(self) -> bool:
        """Whether the search begins on coarser problems."""
        return self.progress.problem.num_blocks > LARGE

    def improve(self, device: Ints, part: float, kicks: int) -> None:
        """Search coarser problems from a plan if it is large, then `kicks` times from the best."""
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
        """Search from the best plan, another way than last time."""
        if self.is_large:
            self.search_levels(self.progress.merged, clock)
        else:
            self.anneal(self.progress.merged, next(self.runs), clock)

    def search_levels(self, device: Ints, clock: Clock) -> None:
        """Anneal from a plan on coarser problems, then on finer and finer ones."""
        # In turn, coarse blocks keep the plan's cuts or are made without regard to them.
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

    def anneal(self, device: Ints, run: AnnealingRun, clock: Clock) -> None:
        """Anneal from a plan."""
        progress, left, moves = self.progress, clock.left_s, run.moves
        is_worth = progress.bound.value < (1 - WORTH) * progress.plan_ns
        if left is None or not is_worth:
            moves = min(moves, self.moves)
        if left is not None:
            moves = min(moves, int((MOST_PER_S if is_worth else MOVES_PER_S) * left))
        device = anneal(
            progress.problem,
            device,
            seed=self.next_seed(),
            moves=moves,
            hot=run.hot,
            power=run.power,
            clock=clock,
        )
        progress.offer(device)

    def next_seed(self) -> int:
        self.searches += 1
        return self.seed * 1_000_003 + self.searches


# Grids of loads, coarse to fine: moves times cells, fewest cells, most cells.
GRIDS = ((8e6, 400, 4_000), (6e7, 2_000, 16_000), (1.5e8, 4_000, 32_000), (5e8, 8_000, 100_000))
FINE = (8e8, 8_000, 200_000)  # the grid to try the best prices on once more: it rounds least
SHARP = 4  # a grid is fine enough if rounding costs at most a quarter of the gap
# Most pricings in the first round and in each later one; the last number holds for all others.
PRICINGS = (600, 800, 2_000, 1_000)
# Shares of the remaining time: for pricing, each local search, and the first search on coarser
# problems; and for the first local search.
SHARE, LESS = 0.3, 0.25
# Shares of the remaining time for merging, and for the frontiers that pricing needs.
MERGE_SHARE, SET_UP_SHARE = 0.1, 0.2
# Moves times cells that a pricing does in a second, at least; largest share of the remaining time
# for one pricing.
PRICED_PER_S, PRICING_SHARE = 2e8, 0.05
NEAR = 2_000  # on coarser grids the search ends within 1/2000 of the cells: rounding costs more
FLOOR = "floor"  # origin of the bound that the task states; the caller has its proof

STARTS = ("ideal-dp", "m-topo", "single-device")

P = ParamSpec("P")
T = TypeVar("T")


class NoncontiguousParams(ExactParams):
    #: Most moves of an annealing run; under a time limit later runs have more.
    moves: int = Field(default=500_000, ge=0, json_schema_extra=EFFORT)
    #: Rounds of further pricing and local search, on finer grids, after the first one; where there
    #: is a time limit, others follow as long as each finds something.
    rounds: int = Field(default=3, ge=0, le=len(PRICINGS) - 1, json_schema_extra=EFFORT)
    #: Most kinds of devices that are priced at a time, in threads.
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the method cannot do the task, or None."""
    semantics = task.semantics
    if semantics.plans != "any":
        return f"its plans are of any kind, not {semantics.plans}"
    if semantics.replicas or semantics.levels == 2:
        return f"does not support replicas or servers, so not {semantics.label}"
    return None


@method(
    "noncontiguous",
    objectives=("max_load",),
    cites="Tarnawski et al. 2020 (the problem)",
    scope="max_load, any plans",
    applies=applies,
    packages=("numba", "highspy"),
)
def run(task: Task[MaxLoad], params: NoncontiguousParams) -> Outcome:
    """Annealing, and a bound by column generation; for graphs that the IP does not close."""
    clock = task.limits.clock()
    start = best_start(task, STARTS)
    if start is None:
        reasons = explain_infeasible(task.instance)
        if reasons:
            return Outcome(bound=no_plan(), message="; ".join(reasons))
        return Outcome(message="no plan that fits into memory was found")
    whole = build_split_problem(task.instance, overlap=task.semantics.load == "overlap")
    device = np.zeros(whole.num_blocks, np.int64)
    device[whole.block] = start.plan.devices
    merged = merge_blocks(whole, start.value + 1, [device], clock.part(MERGE_SHARE))
    problem = merged.problem
    progress = BestPartition(
        problem=problem,
        gap=task.limits.gap,
        value=start.value,
        bound=Bound(0, "work"),
        devices=start.plan.devices,
        merged=merged.plans[0],
        on_progress=reporter(task.instance, task.semantics, "noncontiguous"),
    )
    progress.prove(Bound(_least_work(problem), "work"))
    progress.prove(Bound(task.floor_ns, FLOOR))
    progress.details.update(blocks=problem.num_blocks, nets=problem.nets.num_nets)
    build_s = clock.spent_s
    search = SplitSearch(task, params, progress, clock)
    search.run(merged.plans[0])
    message = search.ending
    if message and progress.plan_ns == start.value:
        message += f"; no plan better than the first, of {start.value} ns, was found"
    return Outcome(
        plan=Plan.on(progress.devices.tolist()),
        claim=progress.plan_ns,
        bound=None if progress.bound.origin == FLOOR else progress.bound,
        faults=tuple(progress.faults),
        message=message,
        build_s=build_s,
        details=progress.details,
    )


def _least_work(problem: SplitProblem) -> int:
    """A bound without search: the heaviest block, on its fastest device."""
    never = int(problem.time_ns.max()) + 1
    time_ns = np.where(problem.time_ns == UNSUPPORTED, never, problem.time_ns)
    return int(time_ns.min(axis=1).max())


class SplitSearch:
    """The phases in turn until the gap is small enough or the time is over."""

    def __init__(
        self,
        task: Task[MaxLoad],
        params: NoncontiguousParams,
        progress: BestPartition,
        clock: Clock,
    ) -> None:
        # `ending` says why the search ended with a larger gap. A phase that fails is recorded as a
        # fault, and the search continues without it.
        self.task, self.params, self.progress, self.clock = task, params, progress, clock
        self.plans = PartitionSearch(progress, clock, params.moves, task.limits.seed)
        self.pricer: Pricer | None = None
        self.ending = ""

    def run(self, device: Ints) -> None:
        """Alternate local search for plans and pricing for bounds."""
        try:
            self.begin(device)
            number = self.rounds()
            self.ending = f"ended after {number} rounds of pricing"
        except LimitReached as limit:
            self.ending = f"stopped: {limit}"
        except KeyboardInterrupt:
            self.ending = "interrupted"
        if self.progress.is_close:
            self.ending = ""

    def begin(self, device: Ints) -> None:
        """A first bound and a first local search."""
        progress = self.progress
        self.clock.check()
        # Before the set-up, which may take a fifth of the time: each later phase gains from a
        # better plan, as grids of loads end at its value.
        if self.plans.is_large:
            self.attempt("local search", self.plans.search_levels, device, self.share(SHARE))
            device = progress.merged
        self.pricer = self.attempt("the pricing's set-up", self.set_up)
        if self.pricer is not None:  # a first bound, from the work alone
            self.attempt("pricing", self.new_columns, self.pricer, 0)
        self.attempt("local search", self.plans.improve, device, LESS, 0)
        if self.pricer is not None and not progress.is_close:
            self.attempt("pricing", self.prove_first, self.pricer)

    def set_up(self) -> Pricer | None:
        """The frontiers, or None if their share of the time is over."""
        progress = self.progress
        try:
            return choose_pricer(
                progress.problem, progress.plan_ns, self.params.workers, self.share(SET_UP_SHARE)
            )
        except LimitReached:
            self.clock.check()
            return None

    def rounds(self) -> int:
        """Rounds of pricing and local search; returns their number."""
        # `rounds` rounds always take place. With a time limit more follow, each as long as the one
        # before it has improved the plan or the bound.
        progress, goes_on = self.progress, self.task.limits.time_limit_s is not None
        grid, columns, number, finds = -1, None, 0, False
        while not progress.is_close and (number <= self.params.rounds or (goes_on and finds)):
            known = progress.plan_ns, progress.bound.value
            if self.pricer is not None:
                priced = self.attempt(
                    "column generation", self.price_round, self.pricer, grid + 1, columns, number
                )
                grid, columns = (grid, columns) if priced is None else priced
            self.attempt("local search", self.plans.improve, progress.merged, SHARE, KICKS)
            finds = (progress.plan_ns, progress.bound.value) != known
            number += 1
        return number

    def attempt(
        self, phase: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The result of a phase; None if it fails, which is recorded as a fault."""
        try:
            return work(*args, **kwargs)
        except (LimitReached, KeyboardInterrupt):
            raise
        except Exception as error:
            raise_if_stopped(error)
            words = internal_error(f"noncontiguous ({phase})", error)
            if words not in self.progress.faults:
                self.progress.faults.append(words)
            return None

    def price_round(
        self, pricer: Pricer, grid: int, before: ColumnGeneration | None, number: int
    ) -> tuple[int, ColumnGeneration]:
        """Prices on a grid, or on a finer one if rounding costs too much of the gap."""
        # Finer grids lose less but cost more per pricing: a bound found on one grid is the start on
        # the next, and `lost_ns` says how much of a known bound the grid cannot express.
        progress, finest = self.progress, len(GRIDS) - 1
        grid = min(grid, finest)
        columns = self.new_columns(pricer, grid, before)
        while grid < finest and SHARP * columns.lost_ns > progress.plan_ns - progress.bound.value:
            grid += 1
            columns = self.new_columns(pricer, grid, before)
        near = 0 if grid == finest else columns.num_cells // NEAR
        self.price(columns, PRICINGS[min(number, len(PRICINGS) - 1)], near)
        return grid, columns

    def prove_first(self, pricer: Pricer) -> None:
        """Prove what the first prices, from the work alone, prove on the finest grid."""
        self.prove_finely(self.new_columns(pricer, 0))

    def share(self, part: float) -> Clock:
        """A clock for a share of the remaining time."""
        self.clock.check()
        return self.clock.part(part)

    def new_columns(
        self, pricer: Pricer, grid: int, before: ColumnGeneration | None = None
    ) -> ColumnGeneration:
        """Column generation on a grid, started from a coarser one."""
        self.clock.check()
        progress = self.progress
        cells = self.cells(pricer, GRIDS[grid])
        columns = cover_all(pricer, progress.plan_ns, cells)
        if before is not None:
            columns.take_over(before)
        self.learn(columns)
        columns.begin(progress.bound.value)
        return columns

    def cells(self, pricer: Pricer, grid: tuple[float, int, int]) -> int:
        """Cells of a grid, fewer if one pricing would take too much of the remaining time."""
        work, fewest, most = grid
        left = self.clock.need_s()
        if left is not None:
            can = PRICING_SHARE * PRICED_PER_S * left / len(pricer.kinds)
            work, fewest = min(work, can), min(fewest, int(can / pricer.num_moves))
        return pricer.cells(self.progress.plan_ns, work, fewest, most)

    def learn(self, columns: ColumnGeneration) -> None:
        """Take over the bound of the prices, unless the best plan contradicts it."""
        if columns.contradicted:
            self.progress.faults.append("column generation refuted a load that a plan reaches")
        else:
            self.progress.prove(Bound(columns.bound_ns, "column generation"))

    def price(self, columns: ColumnGeneration, most: int, near: int) -> None:
        """Raise the bound for a number of pricings and `SHARE` of the time."""
        progress = self.progress
        if progress.is_close:
            return
        enough_ns = math.ceil((1 - progress.gap) * progress.plan_ns)
        try:
            columns.close(self.share(SHARE), enough_ns, most, near)
        except LimitReached:
            self.clock.check()
        finally:
            self.learn(columns)
            progress.details.update(cells=columns.num_cells, sets=len(columns.sets))
        self.prove_finely(columns)

    def prove_finely(self, columns: ColumnGeneration) -> None:
        """Try the best prices on the finest grid."""
        # Any prices prove something on any grid, and one pricing costs little beside the search
        # for them.
        progress = self.progress
        if progress.is_close:
            return
        pricer = columns.pricer
        fine = cover_all(pricer, progress.plan_ns, self.cells(pricer, FINE))
        for prices in (columns.proof, columns.best):
            if prices is not None:
                self.clock.check()
                fine.prove(prices)
        self.learn(fine)
