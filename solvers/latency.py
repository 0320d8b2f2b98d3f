"""The method ``latency``: latency_subgraphs, from starts to a plan with a certified bound.

A bound and a first plan from rows of calls along a spine, annealing from these and from slices, and
CP-SAT for what is left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import Field

from placegap.formulations import latency_ip as model
from placegap.formulations.latency_chains import chain_bound_ns
from placegap.instances.evaluate import evaluate
from placegap.instances.index import Ints
from placegap.instances.plan import Plan
from placegap.solvers import latency_ip
from placegap.solvers.latency_annealing import anneal_calls
from placegap.solvers.latency_calls import NEVER, CallProblem, build_call_problem
from placegap.solvers.latency_rows import row_places
from placegap.solvers.latency_section_chain import best_row
from placegap.solvers.latency_slices import with_slices
from placegap.solvers.latency_spine import build_nodes, build_spine
from placegap.solvers.limits import Clock, LimitReached
from placegap.solvers.registry import ExactParams, Method, Params, Task, register
from placegap.solvers.result import Outcome, relative_gap
from placegap.solvers.start import best_start

BESIDE = (None, 8, 16, 32)
"""Nodes beside more nodes of the longest path than this are left out; None: nothing is."""

HEAT = (0.03, 0.01, 0.003)
"""Temperatures that annealing starts with, run by run."""

STEPS_PER_S = 2e7
"""Ops and edges that annealing evaluates per second, at least; limits its moves."""

LARGEST_MATRIX = 4000
"""Graphs of more ops have no bound but the longest op: reachability is a matrix."""


class LatencyParams(ExactParams):
    """Parameters of ``latency``.

    Attributes
    ----------
    moves : int
        Most moves of an annealing run.
    rounds : int
        How often annealing goes through all of `HEAT`.
    finish : bool
        Whether CP-SAT works on what is left after it.
    workers : int
        Threads of CP-SAT.
    """

    moves: int = Field(default=300_000, ge=0)
    rounds: int = Field(default=3, ge=0)
    finish: bool = True
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task, params: Params) -> str | None:
    """Why the method cannot do the task, or None."""
    reason = model.why_not(task.semantics)
    return None if reason is None else f"its model {reason}"


@dataclass(eq=False)
class Progress:
    """The best plan and the best bound so far; value and place None without a plan."""

    problem: CallProblem
    gap: float
    value_ns: int | None = None
    place: Ints | None = None
    bound_ns: int = 0
    origin: str = "ops"
    infeasible: str = ""
    details: dict[str, int | float | str] = field(default_factory=dict)

    def offer(self, place: Ints | None) -> None:
        """Take over a feasible plan if it is better."""
        if place is not None:
            value = self.problem.latency_ns(place)
            if self.value_ns is None or value < self.value_ns:
                self.value_ns, self.place = value, place.copy()

    def prove(self, bound_ns: int, origin: str) -> None:
        """Take over a bound if it is better."""
        if bound_ns > self.bound_ns:
            self.bound_ns, self.origin = bound_ns, origin

    @property
    def done(self) -> bool:
        """Whether the gap is small enough, or no plan exists."""
        found = relative_gap(self.value_ns, self.bound_ns)
        return bool(self.infeasible) or (found is not None and found <= self.gap)


def run(task: Task, params: Params) -> Outcome:
    """Search, or return the best plan and bound when a limit or Ctrl-C comes."""
    assert isinstance(params, LatencyParams)
    search = _Search(task, params)
    message = ""
    try:
        search.run()
    except LimitReached as limit:
        message = f"stopped: {limit}"
    except KeyboardInterrupt:
        message = "interrupted"
    except MemoryError:
        message = "out of memory"
    progress = search.progress
    if progress.place is None:
        message = progress.infeasible or message or "no plan was found"
    return Outcome(
        plan=None if progress.place is None else progress.problem.plan(progress.place),
        claim_ns=progress.value_ns,
        bound_ns=None if progress.infeasible else progress.bound_ns,
        bound_origin=progress.origin,
        proven_infeasible=bool(progress.infeasible),
        message=search.message or message,
        details=progress.details,
    )


class _Search:
    """The phases, in turn, until the gap is small enough or the time is over."""

    def __init__(self, task: Task, params: LatencyParams) -> None:
        self.task, self.params, self.began = task, params, time.perf_counter()
        subgraphs = task.semantics.subgraphs
        self.progress = Progress(build_call_problem(task.instance, subgraphs), task.limits.gap)
        self.starts: list[Ints] = []
        self.annealed, self.message = 0, ""

    def run(self) -> None:
        """First plans, bounds, annealing, CP-SAT."""
        self.first_plans()
        self.left_s()
        self.bounds()
        self.progress.details["start_ns"] = self.progress.value_ns or 0
        self.anneal()
        self.progress.details["annealed_ns"] = self.progress.value_ns or 0
        if self.params.finish and not self.progress.done:
            self.finish()

    def left_s(self) -> float | None:
        """Seconds left, None without a limit."""
        limit_s = self.task.limits.time_limit_s
        if limit_s is None:
            return None
        left = limit_s - (time.perf_counter() - self.began)
        if left <= 0:
            raise LimitReached(f"the time limit of {limit_s} s is over")
        return left

    def offer_start(self, plan: Plan | None) -> None:
        """Take over a plan that the referee accepts, and anneal from it later."""
        if plan is not None and evaluate(self.task.instance, plan, self.task.semantics).feasible:
            place = self.progress.problem.place(plan)
            self.progress.offer(place)
            self.starts.append(place)

    def first_plans(self) -> None:
        """The incumbent, placers, slices."""
        start = best_start(self.task, latency_ip.STARTS)
        self.offer_start(None if start is None else start.plan)
        self.offer_start(with_slices(self.task).incumbent)

    def bounds(self) -> None:
        """Rows of calls along spines, and chains; a plan from each row."""
        task, progress, arrays = self.task, self.progress, self.task.instance.arrays
        progress.prove(_longest_op(task), "ops")
        accelerators = np.flatnonzero(~arrays.is_host)
        if task.instance.num_ops > LARGEST_MATRIX:
            return
        nodes = build_nodes(task.instance, task.semantics.subgraphs)
        most_calls = min(progress.problem.data.num_calls, len(nodes.own_ns))
        room = int(arrays.memory_bytes[accelerators].max(initial=0))
        seen: dict[tuple[int, ...], None] = {}
        for beside in BESIDE:
            clock = Clock(self.left_s())
            spine = build_spine(nodes, beside)
            if progress.done or tuple(spine.left_out) in seen:
                continue
            seen[tuple(spine.left_out)] = None
            limit_ns = NEVER - 1 if progress.value_ns is None else progress.value_ns
            row = best_row(spine, room, most_calls, limit_ns, clock)
            if row.cost_ns >= NEVER:
                progress.infeasible = "no row of calls holds all ops"
                return
            progress.prove(row.cost_ns, "sections")
            place = row_places(progress.problem, spine, row)
            if place is not None:
                progress.offer(place)
                self.starts.append(place)
        progress.details["sections_ns"] = progress.bound_ns
        self.left_s()
        if not progress.done:
            chains = chain_bound_ns(task.instance, task.semantics)
            if chains >= NEVER:
                progress.infeasible = "some path of ops fits nowhere"
            else:
                progress.prove(chains, "chains")

    def anneal(self) -> None:
        """From the best plan and the starts in turn, each time at another temperature."""
        progress, index = self.progress, self.task.instance.arrays.index
        size = self.task.instance.num_ops + len(index.producer)
        for number in range(self.params.rounds * len(HEAT)):
            if progress.done or progress.place is None:
                return
            left, moves = self.left_s(), min(self.params.moves, 20_000 * size)
            if left is not None:
                moves = min(moves, int(STEPS_PER_S * left / size) // 2)
            start = progress.place
            if number % 3 == 0 and number // 3 < len(self.starts):
                start = self.starts[-1 - number // 3]
            seed = self.task.limits.seed * 1_000_003 + number
            heat = HEAT[number % len(HEAT)]
            progress.offer(anneal_calls(progress.problem, start, seed=seed, moves=moves, hot=heat))

    def finish(self) -> None:
        """Hand what is left to the CP-SAT model of ``latency-ip``."""
        progress = self.progress
        limits = replace(self.task.limits, time_limit_s=self.left_s())
        place = progress.place
        plan = None if place is None else progress.problem.plan(place)
        task = replace(self.task, limits=limits, incumbent=plan)
        method = latency_ip.LatencyParams(workers=self.params.workers)
        reason = latency_ip.applies(task, method)
        if reason is not None:
            self.message = f"no exact finish: latency-ip: {reason}"
            return
        outcome = latency_ip.solve_cp(task, self.params.workers, progress.bound_ns)
        self.message = outcome.message
        if outcome.proven_infeasible:
            progress.infeasible = outcome.message
            return
        if outcome.plan is not None:
            progress.offer(progress.problem.place(outcome.plan))
        progress.prove(outcome.bound_ns or 0, outcome.bound_origin)


def _longest_op(task: Task) -> int:
    """The longest op where it is fastest: a bound that needs no search."""
    times = task.instance.arrays.time_ns
    return int(np.where(times < 0, NEVER, times).min(axis=1).max())


register(
    Method(
        name="latency",
        claim="exact",
        objectives=("latency_subgraphs",),
        paper="Tarnawski et al. 2020 (the problem)",
        summary="single-sample latency: rows of calls along a spine, annealing, CP-SAT",
        run=run,
        params=LatencyParams,
        applies=applies,
        packages=("numba", "ortools"),
    )
)
