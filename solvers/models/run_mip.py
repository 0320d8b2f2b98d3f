"""Run a MIP formulation as a method: refuse what is too large, start, build, solve, check."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from placegap.instances.problem import Plan
from placegap.instances.reading.errors import paused_collector
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.back_ends import SolverName, label, require, solve_model, word
from placegap.solvers.core.back_ends.outcome import (
    BOUND_MARGIN,
    Ending,
    MipOutcome,
    Watch,
    bound_ns,
    say_ending,
    say_rest,
)
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Formulation, Params, Start, Task
from placegap.solvers.core.progress import has_listener, reporter
from placegap.solvers.core.result import Bound, Outcome, is_better, no_plan, refutation
from placegap.solvers.core.starts import best_start

if TYPE_CHECKING:  # `latency-ip` solves its model by CP-SAT, unless it is asked for the MIP
    import pyomo.environ as pyo

MIP = ("pyomo", "highspy")  # distributions whose versions belong to a result of a MIP or an LP


class MipParams(Params):
    """Parameters of every method that solves a MIP."""

    #: The MIP solver: highs, scip (`pip install 'placegap[scip]'`), or what Pyomo finds: gurobi, ..
    solver: SolverName = "highs"


def run_mip(
    task: Task, formulation: Formulation, solver: SolverName = "highs", clock: Clock | None = None
) -> Outcome:
    """Solve a formulation within the task's limits."""
    # The plan is the better of the solver's and the start, which is kept outside the solver. The
    # bound is the solver's, rounded up to the granularity. There is no claim about the plan's
    # value: the model's times are scaled, and the referee's value is exact. A plan that exceeds a
    # device's memory by what `shared.families.memory_capacity` lets through is excluded, and the
    # search goes on. If the solver contradicts a known plan (no plan exists, a bound above its
    # value) or the rules, the outcome names a fault, and the solve proves nothing.
    # ``details["ending"]`` is how the solve ended, and the message says it in words. `clock` is
    # that of the task's limits.
    require(solver)
    clock = clock or task.limits.clock()
    best = start = best_start(task, formulation.starts)
    started_s, build_s, plan, bound = clock.spent_s, 0.0, None, None
    try:
        model = prepare(formulation, start)
        built_s = clock.spent_s
        found, plan = _search(model, task, formulation, solver, start, clock)
        build_s = built_s - started_s + found.hand_off_s
        bound = _bound(task, found.dual_bound, model.unit_ns.value, formulation.granularity_ns)
    except KeyboardInterrupt:  # the solver itself returns what it has
        found = MipOutcome("interrupted")
    except MemoryError:
        found = MipOutcome("memory_limit")
    said, faults = word(solver, found.solver_version), list[str]()
    proven = None if bound is None else Bound(bound, solver, said)
    if found.ending == "infeasible":
        proven = no_plan(said)
    if plan is not None:
        verdict = evaluate(task.instance, plan, task.semantics)
        if not verdict.feasible or verdict.value is None:
            reasons = "; ".join(str(violation) for violation in verdict.violations[:3])
            faults.append(f"has an infeasible plan: {reasons}")
        elif is_better(verdict.value, start and start.value, task.semantics):
            best = Start(plan, verdict.value)
    faults += filter(None, [refutation(proven, best and best.value, task.semantics)])
    ending: Ending | Literal["fault"] = "fault" if faults else found.ending
    if faults:
        bound = proven = None
    value, name = best and best.value, label(solver)
    if ending == "optimal" or (value is not None and value == bound):
        message = say_rest(value, bound, task.limits, f"solved to {name}'s tolerances")
    else:
        message = say_ending(
            ending,
            name,
            task.limits,
            clock.spent_s,
            start=start is not None,
            better=best is not start,
        )
    details: dict[str, int | float | str] = {
        "rows": found.rows,
        "columns": found.columns,
        "nodes": found.nodes,
        "ending": ending,
    }
    if found.solver_version:
        details["solver_version"] = found.solver_version
    return Outcome(
        plan=best and best.plan,
        bound=proven,
        faults=tuple(f"{said} on {task.instance.name}: {fault}" for fault in faults),
        message=message,
        build_s=build_s,
        details=details,
    )


def prepare(formulation: Formulation, start: Start | None) -> pyo.ConcreteModel:
    """The model that is solved first, its variables at the start's values if there is one."""
    with paused_collector():
        model = formulation.build(start)
    if start is not None:
        formulation.warm_start(model, start.plan)
    return model


def _search(
    model: pyo.ConcreteModel,
    task: Task,
    formulation: Formulation,
    solver: SolverName,
    start: Start | None,
    clock: Clock,
) -> tuple[MipOutcome, Plan | None]:
    """Solve until the plan fits the devices' memory to the byte, or until the solver is stopped."""
    from placegap.formulations.shared.families import exclude_overload  # loads Pyomo

    proven, watch = -math.inf, _watch(model, task, formulation)
    while True:
        limits = task.limits.left(clock)
        found = solve_model(model, limits, solver=solver, warm=start is not None, watch=watch)
        # rows that exclude a plan only raise the optimum: what was proven before stands
        proven = max(proven, -math.inf if found.dual_bound is None else found.dual_bound)
        if math.isfinite(proven) and found.ending != "infeasible":
            found = replace(found, dual_bound=proven)
        plan = formulation.extract(model) if found.has_solution else None
        if plan is None or not exclude_overload(model, plan):
            return found, plan
        if found.ending == "interrupted":
            return replace(found, has_solution=False), None
        if start is not None:
            formulation.warm_start(model, start.plan)


def _bound(task: Task, dual_bound: float | None, unit_ns: float, granularity_ns: int) -> int | None:
    """The dual bound in the unit of the rules, on the safe side."""
    if dual_bound is None or not task.semantics.is_maximized:
        return bound_ns(dual_bound, unit_ns, granularity_ns)
    margin = BOUND_MARGIN * max(1.0, abs(dual_bound))
    return math.floor((margin - dual_bound) * unit_ns)  # what is minimized is the value, negated


def _watch(model: pyo.ConcreteModel, task: Task, formulation: Formulation) -> Watch | None:
    """A callback that reports the running solver's value and bound; None without a listener."""
    if not has_listener(task.instance, task.semantics):
        return None
    unit_ns = model.unit_ns.value
    on_progress = reporter(task.instance, task.semantics, formulation.name)

    def watch(objective: float, dual_bound: float) -> None:
        is_known = math.isfinite(objective)
        value = task.semantics.cost(round(objective * unit_ns)) if is_known else None
        known = dual_bound if math.isfinite(dual_bound) else None
        on_progress(value, _bound(task, known, unit_ns, formulation.granularity_ns))

    return watch


# ---------------------------------------------------------------------------------------- too large


MOST_ROWS = 300_000  # larger MIPs are refused: building takes minutes, HiGHS' root node for ever
MOST_LP_ROWS = 1_000_000  # larger LPs are refused: they take a minute to build, and many to solve
MOST_EDGES = 20_000  # larger graphs are refused before pairs are counted: an edge has some ten rows
LONGEST_NS = 2**53  # longer horizons, over 100 days, are refused: floats do not resolve their ns


def why_too_long(horizon_ns: int) -> str | None:
    """Why the times of a model are out of reach, or None; no plan takes longer than the horizon."""
    return "its times are too long for floating-point numbers" if horizon_ns > LONGEST_NS else None


def why_too_many_rows(rows: int, form: str = "", most: int = 0) -> str | None:
    """Why a model with this many rows is out of reach, or None; `form` is which model it is."""
    most = most or MOST_ROWS
    model = f"its model ({form})" if form else "its model"
    return f"{model} would have {rows} rows, more than {most}" if rows > most else None
