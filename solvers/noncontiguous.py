"""The method ``noncontiguous``: max_load over plans of any kind, to proven optimality.

A start by the ideal DP, exact merging, annealing; then column generation for a bound, and dives
through its columns for better plans, each helping the other; a MIP for what is left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import Field

from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.explain import explain_infeasible
from placegap.instances.index import Ints
from placegap.instances.plan import Plan
from placegap.solvers.column_generation import ColumnGeneration, cover_all
from placegap.solvers.limits import Clock, LimitReached
from placegap.solvers.net_annealing import anneal
from placegap.solvers.plan_dives import dive
from placegap.solvers.pricer import build_pricer
from placegap.solvers.registry import Method, Params, Task, find_method, register, why_not
from placegap.solvers.result import Outcome, relative_gap
from placegap.solvers.split_merging import merge_blocks
from placegap.solvers.split_problem import SplitProblem, build_split_problem
from placegap.solvers.start import best_start

STARTS = ("ideal-dp", "m-topo", "single-device")

GRIDS = ((6e7, 2_000, 16_000), (1.5e8, 4_000, 32_000))
"""First and last grid of loads: moves times cells, the fewest cells and the most."""

FINE = (8e8, 8_000, 200_000)
"""The grid on which prices are tried once more: it loses least to rounding."""

PRICINGS = (400, 2_000, 1_000)
"""Most pricings on the first grid, on the last, and in each later round."""

HEAT = ((0.02, 20.0), (0.005, 20.0), (0.05, 30.0), (0.02, 40.0))
"""Temperature and power that annealing starts with, run by run."""

MOVES_PER_BLOCK, MOVES_PER_S = 10_000, 200_000
"""Most moves of an annealing run: per block, and per second that is left."""

AIMS = (0.1, 0.4, 0.2, 0.6, 0.05, 0.8)
"""Where dives aim between bound and value, one after the other."""


class NoncontiguousParams(Params):
    """Parameters of ``noncontiguous``.

    Attributes
    ----------
    moves : int
        Most moves of an annealing run.
    rounds : int
        Rounds of dives and further pricing on the last grid.
    mip : bool
        Whether a MIP works on what is left after them.
    """

    moves: int = Field(default=2_000_000, ge=0)
    rounds: int = Field(default=3, ge=0)
    mip: bool = True


def applies(task: Task, params: Params) -> str | None:
    """Why the method cannot do the task, or None."""
    semantics = task.semantics
    if semantics.plans != "any":
        return f"its plans are of any kind, not {semantics.plans}"
    if semantics.load != "add" or semantics.replicas or semantics.levels == 2:
        return f"knows only loads that add up, without replicas and servers: not {semantics.label}"
    return None


@dataclass(eq=False)
class Progress:
    """The best plan and the best bound so far.

    Attributes
    ----------
    problem : SplitProblem
        After merging.
    gap : float
        Relative gap that suffices.
    value_ns : int
    devices : (n,) int64
        Device of each op.
    bound_ns : int
    origin : str
        What proves the bound.
    details : dict
    """

    problem: SplitProblem
    gap: float
    value_ns: int
    devices: Ints
    bound_ns: int = 0
    origin: str = "work"
    details: dict[str, int | float | str] = field(default_factory=dict)

    def offer(self, device: Ints) -> None:
        """Take over a plan of the blocks if it fits and is better."""
        if self.problem.fits(device):
            self.offer_ops(int(self.problem.loads(device).max()), device[self.problem.block])

    def offer_ops(self, value_ns: int, devices: Ints) -> None:
        """Take over a feasible plan of the ops if it is better."""
        if value_ns < self.value_ns:
            self.value_ns, self.devices = value_ns, devices.copy()

    def prove(self, bound_ns: int, origin: str) -> None:
        """Take over a bound if it is better."""
        if bound_ns > self.bound_ns:
            self.bound_ns, self.origin = min(bound_ns, self.value_ns), origin

    @property
    def done(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value_ns, self.bound_ns)
        return found is not None and found <= self.gap


def run(task: Task, params: Params) -> Outcome:
    """Solve, or return the best plan and bound when a limit or Ctrl-C comes."""
    assert isinstance(params, NoncontiguousParams)
    began = time.perf_counter()
    start = best_start(task, STARTS)
    if start is None:
        return _without_start(task, params)
    whole = build_split_problem(task.instance)
    device = np.zeros(whole.num_blocks, np.int64)
    device[whole.block] = start.plan.devices
    merged = merge_blocks(whole, start.value_ns + 1, [device])
    problem = merged.problem
    progress = Progress(problem, task.limits.gap, start.value_ns, start.plan.devices)
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


def least_work(problem: SplitProblem) -> int:
    """The heaviest block where it is fastest: a bound that needs no search."""
    never = int(problem.time_ns.max()) + 1
    time_ns = np.where(problem.time_ns == UNSUPPORTED, never, problem.time_ns)
    return int(time_ns.min(axis=1).max())


class _Search:
    """The phases, in turn, until the gap is small enough or the time is over."""

    def __init__(
        self, task: Task, params: NoncontiguousParams, progress: Progress, began: float
    ) -> None:
        self.task, self.params, self.progress, self.began = task, params, progress, began
        self.annealed = 0
        self.aimed: set[int] = set()

    def run(self, device: Ints) -> None:
        """Plans by annealing, bounds by pricing, plans by dives; the MIP at the end."""
        progress = self.progress
        self.left_s()
        self.pricer = build_pricer(progress.problem)
        self.new_columns(0)  # a first bound, from the work alone
        self.anneal(device, len(HEAT))
        if progress.done:
            return
        columns = self.new_columns(0)
        self.price(columns, PRICINGS[0], 0.35)
        self.dives(columns, AIMS[:2])
        if self.params.rounds and not progress.done:
            columns = self.new_columns(1, columns)
            self.price(columns, PRICINGS[1], 0.4)
        for _ in range(self.params.rounds):
            self.dives(columns, AIMS)
            self.price(columns, PRICINGS[2], 0.5)
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

    def anneal(self, device: Ints, runs: int) -> None:
        """Anneal from a plan, at several temperatures."""
        problem = self.progress.problem
        moves = min(self.params.moves, MOVES_PER_BLOCK * problem.num_blocks)
        for hot, power in HEAT[:runs]:
            if self.progress.done:
                return
            left = self.left_s()
            if left is not None:
                moves = min(moves, int(MOVES_PER_S * left))
            seed = self.task.limits.seed * 1_000_003 + self.annealed
            self.annealed += 1
            self.progress.offer(
                anneal(problem, device, seed=seed, moves=moves, hot=hot, power=power)
            )

    def new_columns(self, grid: int, before: ColumnGeneration | None = None) -> ColumnGeneration:
        """Column generation on a grid, started from a coarser one."""
        progress = self.progress
        cells = self.pricer.cells(*GRIDS[grid])
        columns = cover_all(self.pricer, progress.value_ns, cells)
        if before is not None:
            columns.take_over(before)
        columns.lower = max(columns.lower, progress.bound_ns // columns.unit_ns)
        progress.prove(columns.bound_ns, "column generation")
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
        fine = cover_all(self.pricer, progress.value_ns, self.pricer.cells(*FINE))
        for prices in (columns.proof, columns.best):
            if prices is not None:
                fine.prove(prices)
        progress.prove(fine.bound_ns, "column generation")

    def dives(self, columns: ColumnGeneration, aims: Sequence[float]) -> None:
        """Plans from the columns, annealed."""
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
            if device is not None:
                progress.offer(device)
                self.anneal(device, 2)

    def mip(self) -> None:
        """Hand what is left to the throughput IP."""
        progress, limits = self.progress, self.task.limits
        task = replace(
            self.task,
            limits=replace(limits, time_limit_s=self.left_s()),
            incumbent=Plan.on(progress.devices.tolist()),
        )
        method = find_method("throughput-ip")
        if why_not(method, task, method.params()) is not None:
            return
        outcome = method.run(task, method.params())
        if outcome.plan is not None and outcome.claim_ns is not None:
            progress.offer_ops(outcome.claim_ns, outcome.plan.devices)
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
        summary="Optimal max-load split of any kind: column generation, dives, annealing.",
        run=run,
        params=NoncontiguousParams,
        applies=applies,
        packages=("numba", "highspy"),
    )
)
