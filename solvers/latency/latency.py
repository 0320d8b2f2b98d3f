"""The method ``latency``: latency_subgraphs, a plan with a certified bound.

A bound and a first plan come from rows of calls along a spine (`spine`, `sections`, `call_rows`).
Annealing follows from these and from slices, and CP-SAT closes the remaining gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from placegap.formulations import latency_ip as model
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import LatencySubgraphs, Plan
from placegap.instances.problem.integers import NEVER
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import LimitReached, now_s, raise_if_stopped
from placegap.solvers.core.method import EFFORT, ExactParams, Params, Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import PROOF, Bound, Outcome, no_plan, solver_and_version
from placegap.solvers.core.starts import best_start
from placegap.solvers.latency import ip as latency_ip
from placegap.solvers.latency.annealing import anneal_calls
from placegap.solvers.latency.call_rows import best_row, row_places
from placegap.solvers.latency.calls import CallProblem, build_call_problem
from placegap.solvers.latency.slices import group_slices, with_slices
from placegap.solvers.latency.spine import Nodes, build_nodes, build_spine

# Nodes beside more nodes of the longest path than this are left out; None keeps all nodes.
BESIDE = (None, 16, 32, 8)
HEAT = (0.03, 0.01, 0.003)  # first temperatures of annealing runs, in turn
STEPS_PER_S = 2e7  # ops and edges that annealing evaluates per second, at least; limits its moves
LARGEST_MATRIX = 4000  # with more ops only the critical path is a bound: reachability is a matrix
# Shares of the time limit: after the first no further spine is begun; the second is for chains.
ROWS_SHARE, CHAINS_SHARE = 0.4, 0.3
ANNEALING_SHARE = 0.4  # share of the remaining time for annealing before CP-SAT


class LatencyParams(ExactParams):
    #: Most moves of an annealing run.
    moves: int = Field(default=300_000, ge=0, json_schema_extra=EFFORT)
    #: Number of times that annealing goes through all of `HEAT`.
    rounds: int = Field(default=3, ge=0, json_schema_extra=EFFORT)
    #: Whether CP-SAT follows after annealing.
    finish: bool = True
    #: Threads of CP-SAT.
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task[LatencySubgraphs], params: Params) -> str | None:
    """Why the method cannot do the task, or None."""
    reason = model.why_not(task.semantics)
    return None if reason is None else f"its model {reason}"


@dataclass(eq=False, kw_only=True)
class BestCalls(Known):
    """The best plan as the place of each op, None without one, and why none can exist."""

    problem: CallProblem
    place: Ints | None = None
    infeasible: str = ""

    def offer(self, place: Ints | None) -> None:
        """Take over a feasible plan if it is better."""
        if place is not None and self.improve(self.problem.latency_ns(place)):
            self.place = place.copy()

    def prove_infeasible(self, reason: str, basis: str = PROOF) -> None:
        """Record that no plan exists; the first of several reasons is kept."""
        if not self.infeasible:
            self.infeasible, self.bound = reason, no_plan(basis)

    @property
    def done(self) -> bool:
        """Whether the gap is small enough, or no plan exists."""
        return bool(self.infeasible) or self.is_close


@method(
    "latency",
    objectives=("latency_subgraphs",),
    claim="exact",
    cites="Tarnawski et al. 2020 (the problem)",
    scope="latency_subgraphs",
    applies=applies,
    packages=("numba", "ortools"),
)
def run(task: Task[LatencySubgraphs], params: LatencyParams) -> Outcome:
    """Rows of calls between bottlenecks; for graphs that the IP does not close."""
    search = _Search(task, params)
    try:
        search.run()
    except LimitReached as limit:
        search.words.append(f"stopped: {limit}")
    except KeyboardInterrupt:
        search.words.append("interrupted")
    except MemoryError:
        search.words.append("out of memory")
    progress = search.progress
    message = "; ".join(search.words)
    if progress.place is None:
        message = progress.infeasible or message or "no plan was found"
    return Outcome(
        plan=None if progress.place is None else progress.problem.plan(progress.place),
        claim=progress.value,
        bound=progress.bound,
        faults=tuple(progress.faults),
        message=message,
        details=progress.details,
    )


class _Search:
    """The phases in turn until the gap is small enough or the time is over."""

    def __init__(self, task: Task[LatencySubgraphs], params: LatencyParams) -> None:
        self.task, self.params, self.clock = task, params, task.limits.clock()
        subgraphs = task.semantics.subgraphs
        self.progress = BestCalls(
            problem=build_call_problem(task.instance, subgraphs),
            gap=task.limits.gap,
            bound=Bound(0, "critical path"),
        )
        self.progress.on_progress = reporter(task.instance, task.semantics, "latency")
        self.progress.prove(Bound(_critical_path_ns(task), "critical path"))
        self.starts: list[Ints] = []
        self.steps_per_s = STEPS_PER_S
        self.words: list[str] = []

    def run(self) -> None:
        """First plans, bounds, annealing, CP-SAT, and annealing again while time is left."""
        # Rows first: they are fast, mostly give the best bound, and their plans start annealing.
        # CP-SAT comes last, as its model takes the plan and the bound of all others.
        progress = self.progress
        self.guard("first plans", self.first_plans)
        self.clock.check()
        self.guard("rows", self.rows)
        if not progress.done:
            self.guard("chains", self.chains)
        progress.details["start_ns"] = progress.value or 0
        self.guard("annealing", self.anneal)
        progress.details["annealed_ns"] = progress.value or 0
        if not progress.done and self.params.finish:
            self.guard("CP-SAT", self.finish)
        if not progress.done and self.params.finish and self.params.rounds:
            self.guard("annealing", self.anneal_on)
        if not progress.done and not self.words:
            self.words.append("all rounds of annealing are done, and nothing else is left to try")

    def guard(self, phase: str, work: Callable[[], None]) -> None:
        """Run a phase; if it fails, note the reason and continue without it."""
        try:
            work()
        except (LimitReached, MemoryError):
            raise
        except Exception as error:
            raise_if_stopped(error)
            reason = f"{phase} failed: {type(error).__name__}: {error}"
            self.words.append(reason)
            known = self.progress.details.get("failed")
            self.progress.details["failed"] = f"{known}; {reason}" if known else reason

    def offer_start(self, plan: Plan | None) -> None:
        """Take over a plan that the referee finds feasible, and keep it as a start of annealing."""
        if plan is not None and evaluate(self.task.instance, plan, self.task.semantics).feasible:
            place = self.progress.problem.place(plan)
            self.progress.offer(place)
            self.starts.append(place)

    def first_plans(self) -> None:
        """Plans of the incumbent, of placers and of slices."""
        start = best_start(self.task, latency_ip.STARTS)
        self.offer_start(None if start is None else start.plan)
        self.offer_start(with_slices(self.task).incumbent)
        instance, subgraphs = self.task.instance, self.task.semantics.subgraphs
        if instance.arrays.num_groups < instance.num_ops and subgraphs > 1:
            for plan in group_slices(instance, subgraphs):
                self.offer_start(plan)

    def rows(self) -> None:
        """Bounds from rows of calls along spines, and a plan from each row."""
        task, progress, arrays = self.task, self.progress, self.task.instance.arrays
        accelerators = np.flatnonzero(~arrays.is_host)
        if task.instance.num_ops > LARGEST_MATRIX:
            self.words.append(f"no rows and chains for more than {LARGEST_MATRIX} ops")
            return
        room = int(arrays.memory_bytes[accelerators].max(initial=0))
        seen: dict[tuple[int, tuple[int, ...]], None] = {}
        for nodes, representatives_only, beside in self.spines():
            left = self.clock.need_s()
            late = left is not None and left < (1 - ROWS_SHARE) * (task.limits.time_limit_s or 0)
            if seen and late:
                break
            spine = build_spine(nodes, beside, representatives_only=representatives_only)
            # Different limits often leave out the same nodes: each spine is solved once.
            key = len(nodes.own_ns), tuple(spine.left_out)
            if progress.done or key in seen:
                continue
            seen[key] = None
            most_calls = min(progress.problem.num_calls, len(nodes.own_ns))
            # Rows above the best plan are of no use, as bounds or as plans.
            limit_ns = NEVER - 1 if progress.value is None else progress.value
            try:
                clock = self.clock.part(1 - CHAINS_SHARE)
                row = best_row(spine, room, most_calls, limit_ns, clock)
            except LimitReached:
                self.words.append("rows stopped early")
                break
            if row.cost_ns >= NEVER:
                progress.prove_infeasible("no row of calls holds all ops")
                return
            progress.prove(Bound(row.cost_ns, "sections"))
            place = row_places(progress.problem, spine, row)
            if place is not None:
                progress.offer(place)
                self.starts.append(place)
        progress.details["sections_ns"] = progress.bound.value

    def spines(self) -> Iterator[tuple[Nodes, bool, int | None]]:
        """Nodes, whether only representatives of groups are kept, and the limit of `BESIDE`."""
        # Every spine is a relaxation, and which one proves most depends on the graph. All nodes
        # come first; fewer nodes have more bottlenecks and shorter sections, but cost less.
        instance, subgraphs = self.task.instance, self.task.semantics.subgraphs
        grouped = subgraphs == 1 and instance.arrays.num_groups < instance.num_ops
        for apart in (False, True)[: 1 + grouped]:
            nodes = build_nodes(instance, subgraphs, apart=apart)
            for beside in BESIDE:
                yield nodes, False, beside
        for beside in BESIDE:
            yield nodes, True, beside

    def chains(self) -> None:
        """A bound from chains of ops."""
        self.clock.check()
        share_s = self.clock.part(CHAINS_SHARE).limit_s
        chains = chain_bound_ns(self.task.instance, self.task.semantics, share_s)
        if chains >= NEVER:
            self.progress.prove_infeasible("some path of ops fits nowhere")
        else:
            self.progress.prove(Bound(chains, "chains"))

    def anneal(self) -> None:
        """Anneal from the best plan and the starts in turn, each time at another temperature."""
        left = self.clock.need_s()
        rest = 0.0 if left is None or not self.params.finish else (1 - ANNEALING_SHARE) * left
        for number in range(self.params.rounds * len(HEAT)):
            if self.progress.done or self.progress.place is None:
                return
            start = self.progress.place
            if number % 3 == 0 and number // 3 < len(self.starts):
                start = self.starts[-1 - number // 3]
            if rest and (self.clock.need_s() or 0.0) <= rest:
                return
            self.anneal_once(number, start, rest)

    def anneal_once(self, number: int, start: Ints, rest_s: float = 0.0) -> None:
        """One run of annealing, in at most half of the remaining time less `rest_s`."""
        size = self.task.instance.num_ops + len(self.task.instance.arrays.index.producer)
        left, moves = self.clock.need_s(), min(self.params.moves, 20_000 * size)
        if left is not None:
            spare_s = max(0.0, left - rest_s)
            moves = min(moves, 1 + int(self.steps_per_s * spare_s / size) // 2)
        seed = self.task.limits.seed * 1_000_003 + number
        heat = HEAT[number % len(HEAT)]
        problem, began = self.progress.problem, now_s()
        self.progress.offer(anneal_calls(problem, start, seed=seed, moves=moves, hot=heat))
        took_s = now_s() - began
        if took_s > 1:  # long enough to measure the machine's rate
            self.steps_per_s = min(self.steps_per_s, moves * size / took_s)

    def anneal_on(self) -> None:
        """Anneal from the best plan until the time is over; no bound can rise any more."""
        if self.clock.need_s() is None or self.progress.place is None:
            return
        number = self.params.rounds * len(HEAT)
        while not self.progress.done:
            self.clock.check()
            self.anneal_once(number, self.progress.place)
            number += 1

    def finish(self) -> None:
        """Run the CP-SAT model of ``latency-ip`` from the best plan and bound."""
        progress = self.progress
        limits = replace(self.task.limits, time_limit_s=self.clock.need_s())
        place = progress.place
        plan = None if place is None else progress.problem.plan(place)
        task = replace(self.task, limits=limits, incumbent=plan)
        method = latency_ip.LatencyIpParams(workers=self.params.workers)
        reason = latency_ip.applies(task, method)
        if reason is not None:
            self.words.append(f"no exact finish: latency-ip: {reason}")
            return
        outcome = latency_ip.solve_cp(task, self.params.workers, progress.bound.value)
        progress.faults.extend(outcome.faults)
        if outcome.message:
            self.words.append(outcome.message)
        if outcome.proven_infeasible:
            progress.prove_infeasible(outcome.message, solver_and_version("ortools"))
            return
        if outcome.plan is not None:
            progress.offer(progress.problem.place(outcome.plan))
        if outcome.bound is not None:
            progress.prove(outcome.bound)


def _critical_path_ns(task: Task[LatencySubgraphs]) -> int:
    """A bound without search: the longest path, with every op on its fastest device."""
    arrays, index = task.instance.arrays, task.instance.arrays.index
    least = np.where(arrays.time_ns < 0, NEVER, arrays.time_ns).min(axis=1)
    end = least.copy()
    for i in index.topological_order.tolist():
        producers = index.producer[index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]]]
        end[i] += end[producers].max(initial=0)
    return int(end.max())
