"""The one place where CP-SAT runs: safe parameters, checked rows, and a check of its claims.

CP-SAT 9.15 has proven wrong optima (docs/trust.md). So the part of its presolve that did is off, a
model with too large numbers is not run at all, and a claim that contradicts a known plan is a fault
of the solver: it is reported, and what was proven in that run is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from placegap.formulations.shared.cp_families import CpModel, RowTooLarge, refuse_large_rows
from placegap.formulations.shared.or_tools import cp_model
from placegap.instances.problem import Instance, Plan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.back_ends.outcome import Ending, say_ending, say_rest
from placegap.solvers.core.clock import Clock, run_stoppable
from placegap.solvers.core.method import Start, Task
from placegap.solvers.core.progress import has_listener, reporter
from placegap.solvers.core.result import (
    Bound,
    Outcome,
    is_better,
    no_plan,
    refutation,
    solver_and_version,
)

SOLVER = solver_and_version("ortools")

BOUND_SEARCH = ("objective_lb_search_no_lp",)
# Complete searches of 2 or 3 workers, and of more; CP-SAT fills up with neighbourhood searches.
PORTFOLIO = (*BOUND_SEARCH, "no_lp")
# ``refused``: the model was not run; ``fault``: CP-SAT's claim contradicts a known plan.
CpEnding = Ending | Literal["refused", "fault"]


M = TypeVar("M", bound=CpModel)


@dataclass(frozen=True)
class Settings:
    """How CP-SAT is to search."""

    workers: int = 1  # threads
    limit_s: float | None = None
    gap: float = 0.0  # a relative gap that suffices
    seed: int = 0
    #: Without relaxation and probing, and, beside others, with a worker that only raises the bound.
    #: One worker proved random schedules of 24 and 30 ops 2 to 4 times faster, sections of 13 to 36
    #: ops 2 to 20 times, 14 ops slightly slower; two got GoogLeNet to 1.007 ms after 20 s, against
    #: 0.912 ms.
    scheduling: bool = True


@dataclass(frozen=True)
class Answer:
    """What a run of CP-SAT has shown, as far as no known plan contradicts it."""

    ending: CpEnding  # ``optimal``: to the requested gap and the model's unit
    reason: str = ""  # why the model was refused
    #: plan, value_ns: The solution, which the referee finds feasible, and its value by the referee.
    plan: Plan | None = None
    value_ns: int | None = None
    claim_ns: int | None = None  # the plan's time by CP-SAT, where times are exact
    #: No plan within the horizon takes less. None where nothing is proven, or no such plan exists.
    bound_ns: int | None = None
    faults: tuple[str, ...] = ()
    seconds: float = 0.0  # how long CP-SAT ran
    interrupted: bool = False  # Ctrl-C came meanwhile, whether or not the search had ended by then
    details: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def infeasible(self) -> bool:
        """Whether no plan within the horizon exists."""
        return self.ending == "infeasible"


def run_cp_sat(
    model: M,
    extract: Callable[[M, Instance], Plan],
    settings: Settings,
    known_ns: int | None = None,
) -> Answer:
    """Run CP-SAT on a model, and discard what a known plan contradicts."""
    # If the value `known_ns` of a feasible plan is within the horizon, the model has that plan.
    try:
        refuse_large_rows(model.cp)
    except RowTooLarge as error:
        return Answer("refused", reason=f"no CP-SAT: its model is not safe for {SOLVER}: {error}")
    solver = _new_solver(settings)
    # An interrupt before the search begins is repeated until it takes effect.
    callbacks = _callbacks(model, solver)
    status, interrupted = run_stoppable(lambda: model.solve(solver, *callbacks), solver.stop_search)
    if status == cp_model.MODEL_INVALID:
        why = model.cp.validate().strip()
        return Answer("refused", reason=f"no CP-SAT: {SOLVER} rejects its model: {why}")
    answer = Answer(
        search_ending(status, interrupted, settings.limit_s, solver.wall_time),
        seconds=solver.wall_time,
        interrupted=interrupted,
        details={
            "rows": len(model.cp.proto.constraints),
            "columns": len(model.cp.proto.variables),
            "solver_status": solver.status_name(status),
        },
    )
    return _checked(answer, model, extract, solver, status, known_ns)


def search(
    task: Task,
    start: Start | None,
    prepare: Callable[[Start | None], M],
    extract: Callable[[M, Instance], Plan],
    own_proof: Callable[[M], tuple[int, str]],
    settings: Settings,
    clock: Clock,
) -> Outcome:
    """Solve a method's model from a start within the task's limits; the better plan comes back."""
    # The bound holds for all plans: the horizon excludes only those that are worse than the start.
    # Where times had to be rounded and a far better plan was found, the model is built again for
    # that horizon, with a finer unit. `prepare` builds the model of all plans that are no worse
    # than a start, with that start as its hint. `own_proof` is a bound of at least 0 that needs no
    # solver, and its origin. `clock` is that of the task's limits; the limit in `settings` is
    # ignored.
    best, build_s, faults = start, 0.0, tuple[str, ...]()
    bound, solver_ns = Bound(0), 0
    claim: int | None = None
    unit_ns = 1
    while True:
        started_s = clock.spent_s
        try:
            model = prepare(best)
            unit_ns = model.unit_ns
            build_s += clock.spent_s - started_s
            left = replace(settings, limit_s=clock.left_s)
            known = None if best is None else best.value
            found = run_cp_sat(model, extract, left, known)
        except KeyboardInterrupt:
            found = Answer("interrupted", reason=f"interrupted before {SOLVER} answered")
            break
        except MemoryError:
            found = Answer("memory_limit", reason=f"out of memory before {SOLVER} answered")
            break
        faults += found.faults
        bound = max(bound, Bound(*own_proof(model)), key=Bound.rank)
        solver_ns = max(solver_ns, found.bound_ns or 0)
        coarse = not model.exact and found.ending == "optimal"
        if found.plan is None or found.value_ns is None:
            break
        if best is None or not is_better(best.value, found.value_ns):
            best, claim = Start(found.plan, found.value_ns), found.claim_ns
        # half of what the model allows, and so a unit of half the size or less
        if not coarse or found.interrupted or found.value_ns > model.horizon_ns // 2:
            break
    infeasible = found.infeasible
    value = None if best is None else best.value
    solver_bound = Bound(solver_ns, "cp-sat", SOLVER)
    wrong = refutation(solver_bound, value, task.semantics)
    if wrong:  # in an earlier round
        fault = f"{SOLVER} on {task.instance.name}: {wrong}"
        found, faults = replace(found, ending="fault"), (*faults, fault)
        solver_bound = solver_bound._replace(value=0)
    bound = max(bound, solver_bound, key=Bound.rank)
    better = value is not None and is_better(value, start and start.value)
    if found.reason or found.ending == "refused":
        message = found.reason
    elif value is not None and value == bound.value and not faults:
        message = ""
    elif found.ending == "optimal":
        rounded = f"optimal but for times that are rounded down to {unit_ns} ns"
        message = say_rest(value, bound.value, task.limits, rounded)
    else:
        message = say_ending(
            found.ending, SOLVER, task.limits, clock.spent_s, start=start is not None, better=better
        )
    return Outcome(
        plan=None if best is None else best.plan,
        claim=claim,
        bound=no_plan(SOLVER) if infeasible else bound,
        faults=faults,
        message=message,
        build_s=build_s,
        details={**found.details, "ending": found.ending},
    )


def _checked(
    answer: Answer,
    model: M,
    extract: Callable[[M, Instance], Plan],
    solver: cp_model.CpSolver,
    status: object,
    known_ns: int | None,
) -> Answer:
    """The answer with plan and bound, or as a fault where a known plan is against it."""
    faults, semantics = list[str](), model.semantics
    within = known_ns is not None and known_ns <= model.horizon_ns
    where = f"{SOLVER} on {model.instance.name}"
    if status == cp_model.INFEASIBLE:
        claim = f"claims that no plan takes at most {model.horizon_ns} ns"
        fault = f"{where}: {claim}, but there is one of {known_ns} ns"
        return replace(answer, ending="fault", faults=(fault,)) if within else answer
    known = [known_ns] if within and known_ns is not None else []
    plan, value, claim_ns = None, None, None
    if model.values is not None:
        plan = extract(model, model.instance)
        verdict = evaluate(model.instance, plan, semantics)
        claim_ns = solver.value(model.objective) * model.unit_ns if model.exact else None
        if not verdict.feasible or verdict.value is None:
            broken = "; ".join(str(violation) for violation in verdict.violations[:3])
            faults.append(f"{where}: has an infeasible plan: {broken}")
            plan = None
        else:
            value = verdict.value
            known.append(value)
            if claim_ns is not None and is_better(claim_ns, value):
                faults.append(
                    f"{where}: claims {claim_ns} ns for a plan that takes {value} ns by the referee"
                )
    bound = max(0, int(solver.response_proto.inner_objective_lower_bound)) * model.unit_ns
    wrong = refutation(Bound(bound), min(known, default=None), semantics)
    if wrong:
        faults.append(f"{where}: {wrong}")
    if faults:  # nothing is proven; a plan that the referee has judged remains
        return replace(answer, ending="fault", plan=plan, value_ns=value, faults=tuple(faults))
    return replace(answer, plan=plan, value_ns=value, claim_ns=claim_ns, bound_ns=bound)


class _OnSolution(cp_model.CpSolverSolutionCallback):
    """Reports the value of each solution that CP-SAT finds."""

    def __init__(self, on_value: Callable[[int], None]) -> None:
        super().__init__()
        self.on_value = on_value

    def on_solution_callback(self) -> None:
        self.on_value(round(self.objective_value))


def _callbacks(model: CpModel, solver: cp_model.CpSolver) -> tuple[_OnSolution, ...]:
    """A callback that reports values, where times are exact, and bounds, if there is a listener."""
    if not has_listener(model.instance, model.semantics):
        return ()
    on_progress = reporter(model.instance, model.semantics, "cp-sat")

    def on_bound(bound: float) -> None:
        if math.isfinite(bound):
            on_progress(None, math.floor(bound) * model.unit_ns)

    solver.best_bound_callback = on_bound
    return (
        (_OnSolution(lambda value: on_progress(value * model.unit_ns, None)),)
        if model.exact
        else ()
    )


def _new_solver(settings: Settings) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.catch_sigint_signal = False  # its handler would stay, and ends the process
    parameters.presolve_inclusion_work_limit = 0  # google/or-tools issue 5293: sums in 32 bits
    parameters.num_workers = settings.workers
    parameters.random_seed = settings.seed % 2**31
    parameters.relative_gap_limit = settings.gap
    if settings.limit_s is not None:
        parameters.max_time_in_seconds = max(0.0, settings.limit_s)
    if settings.scheduling:
        parameters.linearization_level = 0
        parameters.cp_model_probing_level = 0
        if settings.workers > 1:
            few = settings.workers < 4
            parameters.subsolvers.extend(BOUND_SEARCH if few else PORTFOLIO)
    return solver


def search_ending(
    status: object, interrupted: bool, limit_s: float | None, seconds: float
) -> Ending:
    """How a search ended; ``optimal``: to the requested gap."""
    if status == cp_model.OPTIMAL:
        return "optimal"
    if status == cp_model.INFEASIBLE:
        return "infeasible"
    if interrupted:
        return "interrupted"
    # presolve may end the search a little before the limit; nothing else is known to
    return "time_limit" if limit_s is not None and seconds >= 0.9 * limit_s - 0.1 else "unknown"
