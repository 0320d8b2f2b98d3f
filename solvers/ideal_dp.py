"""The exact contiguous split for max-load: a DP over chains of ideals (Tarnawski et al., 2020).

The recurrence is the paper's (section 5.1); the way it is searched is not. An upper bound from
slicing topological orders and a lower bound from the work alone confine each ideal to a few counts
of devices; a first run only decides whether anything beats the upper bound; if so, bisection and one
run for the value close the gap. Everything is exact in integers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice

import numpy as np
from pydantic import Field

from placegap.instances.evaluate import evaluate
from placegap.instances.index import Ints
from placegap.instances.plan import Plan
from placegap.solvers.chain_problem import (
    ACCELERATOR,
    HOST,
    ChainProblem,
    build_problem,
    why_not_two_kinds,
)
from placegap.solvers.ideal_search import Search
from placegap.solvers.ideal_windows import build_windows
from placegap.solvers.ideals import (
    Ideals,
    all_blocks,
    bytes_per_ideal,
    enumerate_ideals,
    joined,
    record_prefixes,
)
from placegap.solvers.limits import Clock, LimitReached
from placegap.solvers.registry import Method, Params, Task, register
from placegap.solvers.result import Outcome, relative_gap
from placegap.solvers.slicing import best_slices
from placegap.solvers.topological_orders import NUM_ORDERS, orders
from placegap.solvers.work_bound import Relief, work_bound

MOST_BYTES = 800_000_000
"""Memory for ideals, and for what the search keeps of each."""

MOST_STATES = 20_000_000
"""States of the DP, over all layers; 16 bytes each."""

BISECTION = 0.004
"""Relative gap at which bisection hands over to a run for the value."""

BUCKETS, PER_BUCKET = 192, 8
"""The beam: ideals of least cut that are kept in each interval of work."""


class IdealDPParams(Params):
    """Parameters of `ideal-dp`.

    Attributes
    ----------
    max_ideals : int
        Give up on exactness when there are more ideals, and return what is proven until then.
    """

    max_ideals: int = Field(default=2_000_000, ge=2)


@dataclass
class _Bracket:
    """What is known so far: the best plan, in which device of each op, and a proven bound."""

    lower: int
    value: int | None = None
    devices: Ints | None = None
    origin: str = "combinatorial"

    def closed(self, gap: float) -> bool:
        found = relative_gap(self.value, self.lower)
        return found is not None and found <= gap

    def prove(self, lower: int) -> None:
        self.lower, self.origin = lower, "ideal-dp"


@dataclass
class _Run:
    """One run of the method: the problem, its limits, and what is known so far."""

    problem: ChainProblem
    relief: Relief
    bracket: _Bracket
    clock: Clock
    gap: float
    params: IdealDPParams
    details: dict[str, int | float | str]

    def better(self, ideals: Ideals, limit: int, enough: int) -> int | None:
        """Search some ideals for a split of at most `limit`, note it, and return its load."""
        search = Search(self.problem, self.relief, ideals, self.clock, MOST_STATES)
        return self.note(search, limit, enough)

    def note(self, search: Search, limit: int, enough: int) -> int | None:
        """Run the DP, keep the split that it finds, and return its load."""
        split = search.best(limit, enough)
        if split is None:
            return None
        self.bracket.value, self.bracket.devices = split.value, split.devices(self.problem)
        return split.value


def applies(task: Task, params: Params) -> str | None:
    """Why the DP cannot judge the task, or None."""
    if task.semantics.plans != "chain":
        return f"splits into chains of ideals (plans: chain), not {task.semantics.plans}"
    return why_not_two_kinds(task.instance)


def run(task: Task, params: Params) -> Outcome:
    """Solve, or return the best plan and bound when a limit is hit."""
    assert isinstance(params, IdealDPParams)
    began = time.perf_counter()
    clock = Clock(task.limits.time_limit_s)
    problem = build_problem(task.instance, overlap=task.semantics.load == "overlap")
    misfit = _misfit(task, problem)
    if misfit is not None:
        return Outcome(proven_infeasible=True, message=misfit)
    relief = Relief(problem)
    bracket = _Bracket(work_bound(problem, relief))
    details: dict[str, int | float | str] = {
        "blocks": problem.num_blocks, "nets": problem.nets.num_nets,
    }  # fmt: skip
    build_s = time.perf_counter() - began
    this = _Run(problem, relief, bracket, clock, task.limits.gap, params, details)
    message = ""
    try:
        _take_incumbent(this, task)
        _slice(this, task.limits.seed)
        _close(this, task.limits.seed)
    except LimitReached as limit:
        message = str(limit)
    if bracket.value is None or bracket.devices is None:
        if message:
            return Outcome(message=f"found no plan: {message}", build_s=build_s, details=details)
        return Outcome(
            proven_infeasible=True,
            message="every chain of ideals overfills the memory of some device",
            build_s=build_s,
            details=details,
        )
    return Outcome(
        plan=Plan.on(bracket.devices.tolist()),
        claim_ns=bracket.value,
        bound_ns=bracket.lower,
        bound_origin=bracket.origin,
        message=message,
        build_s=build_s,
        details=details,
    )


def _misfit(task: Task, problem: ChainProblem) -> str | None:
    """A block that fits no device at all, in words."""
    fits = (problem.need <= problem.room[:, None]).any(axis=0)
    if fits.all():
        return None
    ops = np.flatnonzero(problem.blocks.block == int(np.argmin(fits))).tolist()
    names = [repr(task.instance.graph.ops[i].name) for i in ops[:3]]
    listed = ", ".join(names) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")
    return f"no device can run and hold {listed}, which a chain plan keeps together"


def _take_incumbent(this: _Run, task: Task) -> None:
    if task.incumbent is None:
        return
    verdict = evaluate(task.instance, task.incumbent, task.semantics)
    if verdict.feasible and verdict.value_ns is not None:
        this.bracket.value, this.bracket.devices = verdict.value_ns, task.incumbent.devices


def _slice(this: _Run, seed: int) -> None:
    """Upper bound: the best slices of some topological orders."""
    problem, bracket = this.problem, this.bracket
    # a low limit ends segments early; it is raised until something fits
    limit = 2 * bracket.lower + 1 if bracket.value is None else bracket.value - 1
    for order in orders(problem, seed):
        if bracket.closed(this.gap):
            return
        split = best_slices(problem, order, limit)
        while split is None and bracket.value is None and limit < problem.largest_load:
            limit = min(8 * limit, problem.largest_load)
            split = best_slices(problem, order, limit)
        if split is not None:
            bracket.value, bracket.devices = split.value, split.devices(problem)
            limit = split.value - 1
        this.clock.check()


def _close(this: _Run, seed: int) -> None:
    """Enumerate the ideals that matter, and close the gap."""
    problem, bracket = this.problem, this.bracket
    if bracket.closed(this.gap):
        return
    limit = problem.largest_load if bracket.value is None else bracket.value - 1
    windows = build_windows(problem, this.relief, limit)
    try:
        ideals, this.details["ideals"] = enumerate_ideals(
            problem, windows, this.clock, this.params.max_ideals, MOST_BYTES
        )
    except LimitReached:
        _recombine(this, seed)
        raise
    this.details["kept_ideals"] = len(ideals)
    if len(ideals) == 0 or ideals.members[0].any():
        # the empty ideal comes first: it is in no window, so all devices together do not suffice
        if bracket.value is not None:
            bracket.prove(bracket.value)
        return
    if len(ideals) > 2 * BUCKETS * PER_BUCKET:
        this.better(ideals.take(_least_cut(problem, ideals)), limit, bracket.lower)
    _bisect(this, ideals)


def _bisect(this: _Run, ideals: Ideals) -> None:
    """Decide whether anything is better; if so, narrow the bracket and compute the value."""
    bracket, gap = this.bracket, this.gap
    search = Search(this.problem, this.relief, ideals, this.clock, MOST_STATES)
    limit = this.problem.largest_load if bracket.value is None else bracket.value - 1
    while not bracket.closed(gap):
        if this.note(search, limit, limit) is None:
            if bracket.value is None:
                return
            bracket.prove(limit + 1)
        assert bracket.value is not None
        if bracket.value - bracket.lower <= BISECTION * bracket.value:
            break
        limit = (bracket.lower + bracket.value) // 2
    if not bracket.closed(gap):
        assert bracket.value is not None
        this.note(search, bracket.value - 1, bracket.lower)
        bracket.prove(bracket.value)


def _recombine(this: _Run, seed: int) -> None:
    """Too many ideals: the DP over those that the topological orders run through."""
    problem, bracket = this.problem, this.bracket
    size = bytes_per_ideal(problem) * (problem.num_blocks + 1)
    num_orders = min(NUM_ORDERS, MOST_BYTES // 4 // size)
    if num_orders < 2:
        return
    some = islice(orders(problem, seed), num_orders)
    ideals = joined([record_prefixes(problem, order) for order in some])
    ideals = ideals.take(_least_cut(problem, ideals))
    limit = problem.largest_load if bracket.value is None else bracket.value - 1
    this.better(ideals, limit, bracket.lower)


def _least_cut(problem: ChainProblem, ideals: Ideals) -> Ints:
    """The ideals of least cut in each interval of work, in order; and the full one."""
    kind = ACCELERATOR if problem.counts[ACCELERATOR] else HOST
    work = ideals.time[:, kind]
    bucket = work // (int(work.max()) // BUCKETS + 1)
    order = np.lexsort((ideals.cut, bucket))
    first = np.searchsorted(bucket[order], bucket[order])
    chosen = order[np.arange(len(order)) - first < PER_BUCKET]
    return np.unique(np.append(chosen, ideals.find(all_blocks(problem))))


register(
    Method(
        name="ideal-dp",
        claim="exact",
        objectives=("max_load",),
        paper="Tarnawski et al., NeurIPS 2020",
        summary="Optimal chain of ideals for max-load on accelerators and hosts.",
        run=run,
        params=IdealDPParams,
        applies=applies,
        packages=("numba",),
    )
)
