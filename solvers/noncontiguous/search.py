"""The search of `noncontiguous`: phases in turn, until the gap is small enough or time is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from pydantic import Field

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import Clock, LimitReached, raise_if_stopped
from placegap.solvers.core.method import EFFORT, ExactParams, Task
from placegap.solvers.core.registry import find_method, why_not
from placegap.solvers.core.result import internal_error, word_of
from placegap.solvers.noncontiguous.column_generation import (
    ColumnGeneration,
    choose_pricer,
    cover_all,
    dive,
)
from placegap.solvers.noncontiguous.partition_search import KICKS, BestPartition, PartitionSearch
from placegap.solvers.noncontiguous.pricing import Pricer

GRIDS = (
    (8e6, 400, 4_000),
    (6e7, 2_000, 16_000),
    (1.5e8, 4_000, 32_000),
    (5e8, 8_000, 100_000),
)
"""Grids of loads, coarse to fine: moves times cells, the fewest cells and the most."""

FINE = (8e8, 8_000, 200_000)
"""The grid on which prices are tried once more: it loses least to rounding."""

SHARP = 4
"""A grid will do if rounding costs it no more than the gap divided by this."""

PRICINGS = (600, 800, 2_000, 1_000)
"""Most pricings at first and in each round; the last one goes on for later rounds."""

MOST_ROUNDS = len(PRICINGS) - 1

PRICE_SHARE, SEARCH_SHARE, DIVES_SHARE, MIP_SHARE = 0.3, 0.3, 0.25, 0.25
"""Parts of the time that is left: pricing, local search and dives of a round; and the MIP."""

SET_UP_SHARE = 0.2
"""Of the time, for the frontiers: without them there is no pricing."""

PRICED_PER_S, PRICING_SHARE = 2e8, 0.05
"""Moves times cells that a pricing does in a second, at least; of the time left, for each."""

LEVELS_SHARE = 0.3
"""Of the time: for a search on coarser problems, before anything else."""

NEAR = 2_000
"""On all but the finest grid a cell in so many is near enough: rounding costs more than that."""

ROWS_PER_S = 10_000
"""Rows of the MIP that are built and handed over in a second, at least."""

AIMS = (0.1, 0.4, 0.2, 0.6, 0.05, 0.8)
"""Where dives aim between bound and value, one after the other."""


class NoncontiguousParams(ExactParams):
    """Parameters of ``noncontiguous``.

    Attributes
    ----------
    moves : int
        Most moves of an annealing run.
    patience : int
        Splits of two devices in a row that may fail to better the plan.
    rounds : int
        Rounds of further pricing and dives, on finer grids, before the MIP; where there is a time
        limit, others follow it.
    mip : bool
        Whether a MIP works on what is left after them.
    workers : int
        Most kinds of devices that are priced at a time, in threads.
    """

    moves: int = Field(default=500_000, ge=0, json_schema_extra=EFFORT)
    patience: int = Field(default=150, ge=0, json_schema_extra=EFFORT)
    rounds: int = Field(default=3, ge=0, le=MOST_ROUNDS, json_schema_extra=EFFORT)
    mip: bool = True
    workers: int = Field(default=2, ge=1, le=1024)


CLOSED = "the MIP came to its end: what gap is left is its tolerance"

P = ParamSpec("P")
T = TypeVar("T")


class SplitSearch:
    """The phases, in turn, until the gap is small enough or the time is over.

    `ending` says why it ended, where the gap is not small enough. A phase that fails is recorded as
    a fault, and the search goes on without it.
    """

    def __init__(
        self,
        task: Task[MaxLoad],
        params: NoncontiguousParams,
        progress: BestPartition,
        clock: Clock,
    ) -> None:
        self.task, self.params, self.progress, self.clock = task, params, progress, clock
        self.plans = PartitionSearch(
            progress, clock, moves=params.moves, patience=params.patience, seed=task.limits.seed
        )
        self.aimed: set[int] = set()
        self.pricer: Pricer | None = None
        self.ending = ""

    def run(self, device: Ints) -> None:
        """Plans by local search, bounds by pricing, plans by dives; the MIP; and again."""
        try:
            self.begin(device)
            self.rounds()
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
        if self.plans.is_large:
            self.attempt("local search", self.plans.search_levels, device, self.share(LEVELS_SHARE))
            device = progress.merged
        self.pricer = self.attempt("the pricing's set-up", self.set_up)
        if self.pricer is not None:  # a first bound, from the work alone
            self.plans.order = self.pricer.order
            self.attempt("pricing", self.new_columns, self.pricer, 0)
        self.attempt("local search", self.plans.improve, device, 0.25, 0)
        if self.pricer is not None and not progress.is_close:
            self.attempt("pricing", self.prove_first, self.pricer)

    def set_up(self) -> Pricer | None:
        """The frontiers, or None if the time for them is over."""
        progress = self.progress
        try:
            return choose_pricer(
                progress.problem, progress.plan_ns, self.params.workers, self.share(SET_UP_SHARE)
            )
        except LimitReached:
            self.clock.check()
            return None

    def rounds(self) -> None:
        """Rounds of pricing, local search and dives; after the first ones the MIP.

        Without a time limit it is the MIP that ends the search. With one, rounds follow until the
        time is over, unless the MIP comes to its end.
        """
        grid, columns, number = -1, None, 0
        while not self.progress.is_close:
            if number == self.params.rounds + 1 and self.turn_to_mip():
                return
            late = number > self.params.rounds
            if self.pricer is not None:
                priced = self.attempt(
                    "column generation", self.price_round, self.pricer, grid + 1, columns, number
                )
                grid, columns = (grid, columns) if priced is None else priced
            self.attempt("local search", self.improve_best, late)
            if columns is not None:
                self.attempt("dives", self.dives, columns, AIMS if number else AIMS[:2])
            number += 1

    def attempt(
        self, phase: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """What a phase gives, None if it fails: then the fault is kept, and what was found."""
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
        """Prices on a grid that is fine enough."""
        grid, columns = self.sharp_columns(pricer, grid, before)
        most = PRICINGS[min(number, len(PRICINGS) - 1)]
        near = 0 if grid == len(GRIDS) - 1 else columns.num_cells // NEAR
        self.price(columns, most, PRICE_SHARE, near)
        return grid, columns

    def prove_first(self, pricer: Pricer) -> None:
        """What the work alone proves on the finest grid."""
        self.prove_finely(self.new_columns(pricer, 0))

    def improve_best(self, late: bool) -> None:
        """Local search from the best plan; in late rounds until its part of the time is over."""
        if not self.progress.is_close:
            endless = late and self.task.limits.time_limit_s is not None
            self.plans.improve(self.progress.merged, SEARCH_SHARE, None if endless else KICKS)

    def share(self, part: float) -> Clock:
        """A clock for part of the time that is left."""
        self.clock.check()
        return self.clock.part(part)

    def sharp_columns(
        self, pricer: Pricer, grid: int, before: ColumnGeneration | None
    ) -> tuple[int, ColumnGeneration]:
        """Column generation on a grid, or on a finer one if rounding takes much of the gap."""
        progress = self.progress
        while True:
            grid = min(grid, len(GRIDS) - 1)
            columns = self.new_columns(pricer, grid, before)
            gap_ns = progress.plan_ns - progress.bound_ns
            if grid == len(GRIDS) - 1 or SHARP * columns.lost_ns <= gap_ns:
                return grid, columns
            grid += 1

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
        columns.begin(progress.bound_ns)
        return columns

    def cells(self, pricer: Pricer, grid: tuple[float, int, int]) -> int:
        """Cells of a grid, fewer where one pricing would take much of the time that is left."""
        work, fewest, most = grid
        left = self.clock.need_s()
        if left is not None:
            can = PRICING_SHARE * PRICED_PER_S * left / len(pricer.kinds)
            work, fewest = min(work, can), min(fewest, int(can / pricer.num_moves))
        return pricer.cells(self.progress.plan_ns, work, fewest, most)

    def learn(self, columns: ColumnGeneration) -> None:
        """Take over what the prices prove, unless the plan that is known shows it to be wrong."""
        if columns.contradicted:
            self.progress.faults.append("column generation refuted a load that a plan reaches")
        else:
            self.progress.prove(columns.bound_ns, "column generation")

    def price(self, columns: ColumnGeneration, most: int, part: float, near: int) -> None:
        """Raise the bound for a number of pricings and a part of the time."""
        progress = self.progress
        if progress.is_close:
            return
        enough_ns = math.ceil((1 - progress.gap) * progress.plan_ns)
        try:
            columns.close(self.share(part), enough_ns, most, near)
        except LimitReached:
            self.clock.check()
        finally:
            self.learn(columns)
            progress.details.update(cells=columns.num_cells, sets=len(columns.sets))
        self.prove_finely(columns)

    def prove_finely(self, columns: ColumnGeneration) -> None:
        """Try the best prices on the finest grid."""
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

    def dives(self, columns: ColumnGeneration, aims: Sequence[float]) -> None:
        """Plans from the columns, mended by local search, in a part of the time."""
        progress, clock = self.progress, self.share(DIVES_SHARE)
        for aim in aims:
            target = int(progress.bound_ns + aim * (progress.plan_ns - progress.bound_ns))
            if progress.is_close or target in self.aimed or target == 0:
                continue
            try:
                clock.check()
            except LimitReached:
                return
            self.aimed.add(target)
            device = dive(columns, target, clock.part(0.5))
            if device is not None and progress.problem.fits(device):
                progress.offer(device)
                self.plans.improve(device, 0.1, 1)

    def turn_to_mip(self) -> bool:
        """The throughput IP on what is left; whether that ends the search.

        It gets all the time if there is no limit, else a part, for more rounds follow.
        """
        left, number = self.clock.need_s(), self.params.rounds
        why = self.mip(None if left is None else MIP_SHARE * left)
        self.ending = f"ended after {number + 1} rounds of pricing; {why}"
        return left is None or why == CLOSED

    def mip(self, left: float | None) -> str:
        """Hand what is left to the throughput IP, if there is time to build it; how it ended."""
        progress, limits = self.progress, self.task.limits
        if not self.params.mip:
            return "the MIP is switched off"
        if left is not None:
            from placegap.formulations.throughput_ip import count_rows  # brings Pyomo

            rows = count_rows(self.task.instance, self.task.semantics, symmetry=True)
            if rows > ROWS_PER_S * left:
                return f"the MIP's {rows} rows cannot be built in the time that is left"
        task = replace(
            self.task,
            limits=replace(limits, time_limit_s=left),
            incumbent=Plan.on(progress.devices.tolist()),
        )
        method = find_method("throughput-ip")
        reason = why_not(method, task, method.params())
        if reason is not None:
            return f"the MIP does not apply: {reason}"
        outcome = self.attempt(f"the MIP ({word_of('highspy')})", method.run, task, method.params())
        if outcome is None:
            return "the MIP failed"
        progress.faults.extend(outcome.faults)
        if outcome.plan is not None:
            value_ns = evaluate(self.task.instance, outcome.plan, self.task.semantics).value_ns
            if value_ns is not None:
                progress.offer_ops(value_ns, outcome.plan.devices)
        if outcome.bound_ns is not None:
            progress.prove(outcome.bound_ns, "highs")
        if outcome.details.get("ending") == "optimal":
            return CLOSED
        return f"the MIP: {outcome.message or 'ended'}"
