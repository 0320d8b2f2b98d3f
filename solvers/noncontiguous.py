"""The method ``noncontiguous``: max_load over plans of any kind, to proven optimality.

A start by the ideal DP, exact merging, new splits of pairs of devices; then column generation for a
bound, and dives through its columns for better plans; a MIP for what is left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from placegap.formulations.throughput_ip import count_rows
from placegap.instances.evaluate import evaluate
from placegap.instances.explain import explain_infeasible
from placegap.instances.index import Ints
from placegap.instances.plan import Plan
from placegap.solvers.column_generation import ColumnGeneration, choose_pricer, cover_all
from placegap.solvers.limits import Clock, LimitReached
from placegap.solvers.net_annealing import anneal
from placegap.solvers.pair_search import exchange_pairs
from placegap.solvers.plan_dives import dive
from placegap.solvers.registry import (
    ExactParams,
    Method,
    Params,
    Task,
    find_method,
    register,
    why_not,
)
from placegap.solvers.result import Outcome
from placegap.solvers.split_merging import merge_blocks
from placegap.solvers.split_problem import build_split_problem
from placegap.solvers.split_progress import Progress, least_work
from placegap.solvers.start import best_start

STARTS = ("ideal-dp", "m-topo", "single-device")

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
"""Most pricings at first and in each round."""

HEAT = (0.002, 0.008, 0.0005, 0.03)
"""Temperature that annealing starts with, run by run."""

MOVES_PER_BLOCK, MOVES_PER_S = 10_000, 200_000
"""Most moves of an annealing run: per block, and per second that is left."""

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
        Rounds of further pricing and dives, on finer grids.
    mip : bool
        Whether a MIP works on what is left after them.
    workers : int
        Most kinds of devices that are priced at a time, in threads.
    """

    moves: int = Field(default=500_000, ge=0)
    patience: int = Field(default=150, ge=0)
    rounds: int = Field(default=3, ge=0, le=len(PRICINGS) - 1)
    mip: bool = True
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task, params: Params) -> str | None:
    """Why the method cannot do the task, or None."""
    semantics = task.semantics
    if semantics.plans != "any":
        return f"its plans are of any kind, not {semantics.plans}"
    if semantics.replicas or semantics.levels == 2:
        return f"knows no replicas and no servers: not {semantics.label}"
    return None


def run(task: Task, params: Params) -> Outcome:
    """Solve, or return the best plan and bound when a limit or Ctrl-C comes."""
    assert isinstance(params, NoncontiguousParams)
    began = time.perf_counter()
    start = best_start(task, STARTS)
    if start is None:
        return _without_start(task, params)
    whole = build_split_problem(task.instance, overlap=task.semantics.load == "overlap")
    device = np.zeros(whole.num_blocks, np.int64)
    device[whole.block] = start.plan.devices
    merged = merge_blocks(whole, start.value_ns + 1, [device])
    problem = merged.problem
    progress = Progress(
        problem, task.limits.gap, start.value_ns, start.plan.devices, merged.plans[0]
    )
    progress.prove(least_work(problem), "work")
    progress.details.update(blocks=problem.num_blocks, nets=problem.nets.num_nets)
    build_s = time.perf_counter() - began
    message = ""
    try:
        _Search(task, params, progress, began).run(merged.plans[0])
    except LimitReached as limit:
        message = f"stopped: {limit}"
    except KeyboardInterrupt:
        message = "interrupted"
    return Outcome(
        plan=Plan.on(progress.devices.tolist()),
        claim_ns=progress.value_ns,
        bound_ns=progress.bound_ns,
        bound_origin=progress.origin,
        message=message,
        build_s=build_s,
        details=progress.details,
    )


class _Search:
    """The phases, in turn, until the gap is small enough or the time is over."""

    def __init__(
        self, task: Task, params: NoncontiguousParams, progress: Progress, began: float
    ) -> None:
        self.task, self.params, self.progress, self.began = task, params, progress, began
        self.searches = 0
        self.aimed: set[int] = set()

    def run(self, device: Ints) -> None:
        """Plans by local search, bounds by pricing, plans by dives; the MIP at the end."""
        progress = self.progress
        self.left_s()
        self.pricer = choose_pricer(progress.problem, progress.value_ns, self.params.workers)
        self.new_columns(0)  # a first bound, from the work alone
        self.improve(device, 0.25, 0)
        if progress.done:
            return
        self.prove_finely(self.new_columns(0))
        grid, columns = self.sharp_columns(0, None)
        self.price(columns, PRICINGS[0], 0.25)
        self.improve(progress.merged, 0.1, len(HEAT))
        self.dives(columns, AIMS[:2])
        for most in PRICINGS[1 : 1 + self.params.rounds]:
            if progress.done:
                break
            grid, columns = self.sharp_columns(grid + 1, columns)
            self.price(columns, most, 0.4)
            self.dives(columns, AIMS)
        if self.params.mip and not progress.done:
            self.mip()

    def left_s(self) -> float | None:
        """Seconds left, None without a limit."""
        limit_s = self.task.limits.time_limit_s
        if limit_s is None:
            return None
        left = limit_s - (time.perf_counter() - self.began)
        if left <= 0:
            raise LimitReached(f"the time limit of {limit_s} s is over")
        return left

    def share(self, part: float) -> Clock:
        """A clock for part of the time that is left."""
        left = self.left_s()
        return Clock(None if left is None else part * left)

    def improve(self, device: Ints, part: float, annealings: int) -> None:
        """Local search from a plan: pair splits; annealing of the best plan and pair splits."""
        clock = self.share(part)
        self.split_pairs(device, clock)
        for hot in HEAT[:annealings]:
            try:
                clock.check()
            except LimitReached:
                self.left_s()
                return
            if self.progress.done:
                return
            self.split_pairs(self.anneal(self.progress.merged, hot), clock)

    def split_pairs(self, device: Ints, clock: Clock) -> None:
        """Pairs of devices share their blocks anew."""
        progress = self.progress
        order = self.pricer.order
        progress.offer(
            exchange_pairs(
                progress.problem, device, order, seed=self.next_seed(),
                patience=self.params.patience, clock=clock, enough_ns=progress.bound_ns,
            )
        )  # fmt: skip

    def anneal(self, device: Ints, hot: float) -> Ints:
        """Anneal from a plan."""
        problem, left = self.progress.problem, self.left_s()
        moves = min(self.params.moves, MOVES_PER_BLOCK * problem.num_blocks)
        if left is not None:
            moves = min(moves, int(MOVES_PER_S * left))
        device = anneal(problem, device, seed=self.next_seed(), moves=moves, hot=hot, power=40.0)
        self.progress.offer(device)
        return device

    def next_seed(self) -> int:
        """A seed for each local search."""
        self.searches += 1
        return self.task.limits.seed * 1_000_003 + self.searches

    def sharp_columns(
        self, grid: int, before: ColumnGeneration | None
    ) -> tuple[int, ColumnGeneration]:
        """Column generation on a grid, or on a finer one if rounding takes much of the gap."""
        progress = self.progress
        while True:
            grid = min(grid, len(GRIDS) - 1)
            columns = self.new_columns(grid, before)
            gap_ns = progress.value_ns - progress.bound_ns
            if grid == len(GRIDS) - 1 or SHARP * columns.lost_ns <= gap_ns:
                return grid, columns
            grid += 1

    def new_columns(self, grid: int, before: ColumnGeneration | None = None) -> ColumnGeneration:
        """Column generation on a grid, started from a coarser one."""
        self.left_s()
        progress = self.progress
        cells = self.pricer.cells(progress.value_ns, *GRIDS[grid])
        columns = cover_all(self.pricer, progress.value_ns, cells)
        if before is not None:
            columns.take_over(before)
        progress.prove(columns.bound_ns, "column generation")
        columns.begin(progress.bound_ns)
        return columns

    def price(self, columns: ColumnGeneration, most: int, part: float) -> None:
        """Raise the bound for a number of pricings and a part of the time."""
        progress = self.progress
        if progress.done:
            return
        enough_ns = math.ceil((1 - progress.gap) * progress.value_ns)
        try:
            columns.close(self.share(part), enough_ns, most)
        except LimitReached:
            self.left_s()
        finally:
            progress.prove(columns.bound_ns, "column generation")
            progress.details.update(cells=columns.num_cells, sets=len(columns.sets))
        self.prove_finely(columns)

    def prove_finely(self, columns: ColumnGeneration) -> None:
        """Try the best prices on the finest grid."""
        progress = self.progress
        if progress.done:
            return
        fine = cover_all(
            self.pricer, progress.value_ns, self.pricer.cells(progress.value_ns, *FINE)
        )
        for prices in (columns.proof, columns.best):
            if prices is not None:
                self.left_s()
                fine.prove(prices)
        progress.prove(fine.bound_ns, "column generation")

    def dives(self, columns: ColumnGeneration, aims: Sequence[float]) -> None:
        """Plans from the columns, mended by local search."""
        progress = self.progress
        for aim in aims:
            target = int(progress.bound_ns + aim * (progress.value_ns - progress.bound_ns))
            if progress.done or target in self.aimed or target == 0:
                continue
            self.aimed.add(target)
            try:
                device = dive(columns, target, self.share(0.25))
            except LimitReached:
                self.left_s()
                continue
            if device is not None and progress.problem.fits(device):
                progress.offer(device)
                self.improve(device, 0.1, 1)

    def mip(self) -> None:
        """Hand what is left to the throughput IP, if there is time to build it."""
        progress, limits, left = self.progress, self.task.limits, self.left_s()
        if left is not None:
            rows = count_rows(self.task.instance, self.task.semantics, symmetry=True)
            if rows > ROWS_PER_S * left:
                return
        task = replace(
            self.task,
            limits=replace(limits, time_limit_s=left),
            incumbent=Plan.on(progress.devices.tolist()),
        )
        method = find_method("throughput-ip")
        if why_not(method, task, method.params()) is not None:
            return
        outcome = method.run(task, method.params())
        if outcome.plan is not None:
            value_ns = evaluate(self.task.instance, outcome.plan, self.task.semantics).value_ns
            if value_ns is not None:
                progress.offer_ops(value_ns, outcome.plan.devices)
        if outcome.bound_ns is not None:
            progress.prove(outcome.bound_ns, outcome.bound_origin)


def _without_start(task: Task, params: NoncontiguousParams) -> Outcome:
    """No placer finds room: say why, or leave it to the MIP."""
    reasons = explain_infeasible(task.instance)
    if reasons:
        return Outcome(proven_infeasible=True, message="; ".join(reasons))
    method = find_method("throughput-ip")
    if params.mip and why_not(method, task, method.params()) is None:
        return method.run(task, method.params())
    return Outcome(message="no plan that fits into memory was found")


register(
    Method(
        name="noncontiguous",
        claim="exact",
        objectives=("max_load",),
        paper="Tarnawski et al., NeurIPS 2020 (the problem)",
        summary="Optimal max-load split of any kind: column generation, pair splits, dives.",
        run=run,
        params=NoncontiguousParams,
        applies=applies,
        packages=("numba", "highspy"),
    )
)
