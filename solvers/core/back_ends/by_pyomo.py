"""Gurobi, CPLEX, Xpress, CBC, GLPK and others that Pyomo has an interface for, if they are here.

Nothing is taken on trust that is not from HiGHS or SCIP either: the referee evaluates the plan, and
a bound above the value of a known plan is a fault of the solver (`run_mip`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import ApplicationError, InfeasibleConstraintException
from pyomo.common.log import LoggingIntercept
from pyomo.opt import TerminationCondition

from placegap.instances.kernels.array_types import Floats
from placegap.instances.reading.errors import InputError, paused_collector, question
from placegap.solvers.core.back_ends.outcome import THREADS, Ending, MipOutcome
from placegap.solvers.core.back_ends.standard_form import StandardForm, compile_model
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Limits


class OptionNames(NamedTuple):
    """Names of a solver's options, as its interfaces in Pyomo spell them, and how to get it."""

    time_limit: str
    gap: str
    seed: str
    threads: str
    install: str


KNOWN: dict[str, OptionNames] = {
    "gurobi": OptionNames("TimeLimit", "MIPGap", "Seed", "Threads", "pip install gurobipy"),
    "cplex": OptionNames(
        "timelimit", "mip_tolerances_mipgap", "randomseed", "threads", "pip install cplex"
    ),
    "xpress": OptionNames("timelimit", "miprelstop", "randomseed", "threads", "pip install xpress"),
    "cbc": OptionNames("sec", "ratio", "randomCbcSeed", "threads", "apt install coinor-cbc"),
    "glpk": OptionNames("tmlim", "mipgap", "", "", "apt install glpk-utils"),
    "highs": OptionNames(
        "time_limit", "mip_rel_gap", "random_seed", "threads", "pip install highspy"
    ),
}
"""By the name without how it is called: that of ``gurobi_direct`` and ``appsi_gurobi``, too."""

TOLERANCE = 1e-5  # of a claimed solution; solvers allow 1e-6
WHOLE_SECONDS = ("glpk",)  # what takes no part of one

ENDINGS: Mapping[str, Ending] = {
    "optimal": "optimal",
    "globallyOptimal": "optimal",
    "infeasible": "infeasible",
    "unbounded": "unbounded",
    "maxTimeLimit": "time_limit",
    "userInterrupt": "interrupted",
    "resourceInterrupt": "memory_limit",
}


def solve_model(
    model: pyo.ConcreteModel,
    limits: Limits,
    solver: str,
    *,
    warm: bool = False,
    relax: bool = False,
) -> MipOutcome:
    """Minimize a linear model by a solver of Pyomo; like `highs.solve_model`, but for Ctrl-C."""
    began, engine = now_s(), engine_named(solver)
    try:
        form = compile_model(model, relax=relax)
    except InfeasibleConstraintException:  # all variables of a row are fixed, to the wrong values
        return MipOutcome("infeasible", hand_off_s=now_s() - began)
    can_start = warm and getattr(engine, "warm_start_capable", lambda: False)()
    relaxation = pyo.TransformationFactory("core.relax_integer_vars")
    handed_off = now_s()
    try:
        if relax:
            relaxation.apply_to(model)
        with paused_collector():
            found = engine.solve(
                model,
                load_solutions=False,
                options=_options(solver, limits),
                **({"warmstart": True} if can_start else {}),
            )
    except (ApplicationError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"solver={solver} failed: {reason}") from error
    finally:
        if relax:
            relaxation.apply_to(model, undo=True)
    condition = found.solver.termination_condition
    ending = ENDINGS.get(str(condition), "unknown")
    if condition == TerminationCondition.infeasibleOrUnbounded and form.is_bounded:
        ending = "infeasible"
    if ending == "unknown" and limits.time_limit_s is not None:
        ending = "time_limit" if now_s() - began >= limits.time_limit_s else ending
    has_solution, objective = False, None
    if ending not in ("infeasible", "unbounded") and len(found.solution) > 0:
        form.load([0.0] * len(form.variables))  # some leave out zeros
        with LoggingIntercept():  # it warns where the solver was stopped
            model.solutions.load_from(found)
        values = np.array(form.values())
        has_solution = _fits(form, values)  # CBC states one when it has found none
        objective = float(form.cost @ values) + form.offset if has_solution else None
    return MipOutcome(
        ending,
        objective=objective,
        dual_bound=_bound(found, ending, objective, solver, limits),
        has_solution=has_solution,
        hand_off_s=handed_off - began,
        solve_s=now_s() - handed_off,
        rows=form.matrix.shape[0],
        columns=form.matrix.shape[1],
        solver_version=".".join(map(str, engine.version() or ())),
    )


def _fits(form: StandardForm, values: Floats) -> bool:
    """Whether a claimed solution satisfies rows, bounds and integrality."""
    sides = (
        (form.matrix @ values, form.row_lower, form.row_upper),
        (values, form.lower, form.upper),
    )
    for value, low, up in sides:
        off = TOLERANCE * np.maximum(1.0, np.abs(value))
        if (value < low - off).any() or (value > up + off).any():
            return False
    whole = values[form.is_integer]
    return bool((np.abs(whole - np.round(whole)) <= TOLERANCE).all())


def engine_named(solver: str) -> Any:
    """Pyomo's interface to a solver; an InputError, with what to do, if it cannot run here."""
    # Of an unregistered name Pyomo would run whatever program has that name.
    names = list(dict.fromkeys(["highs", "scip", *KNOWN]))
    if solver not in {*names, *pyo.SolverFactory}:
        among = f"among {', '.join(names)} and what else Pyomo has an interface for"
        raise InputError(f"there is no solver {solver!r} {among}{question(solver, names)}")
    for name in (solver, f"{solver}_direct", f"appsi_{solver}"):
        if name in list(pyo.SolverFactory):
            engine = pyo.SolverFactory(name)
            if engine.available(exception_flag=False):
                return engine
    known = KNOWN.get(_family(solver))
    how = "" if known is None or not known.install else f" ({known.install})"
    raise InputError(f"solver={solver}: Pyomo does not find it, or its licence; install it{how}")


def _family(solver: str) -> str:
    return solver.removeprefix("appsi_").partition("_")[0]


def _options(solver: str, limits: Limits) -> dict[str, float]:
    """The limits in a solver's own words; of one that is not `KNOWN` none."""
    known = KNOWN.get(_family(solver))
    if known is None:
        return {}
    options: dict[str, float] = {known.gap: float(limits.gap)}
    options |= {name: THREADS for name in (known.threads,) if name}
    options |= {name: limits.seed % 2**31 for name in (known.seed,) if name}
    if limits.time_limit_s is not None:
        whole = _family(solver) in WHOLE_SECONDS
        options[known.time_limit] = (
            math.ceil(limits.time_limit_s) if whole else float(limits.time_limit_s)
        )
    return options


def _bound(
    found: Any, ending: Ending, objective: float | None, solver: str, limits: Limits
) -> float | None:
    """The proven bound of a minimization."""
    if ending in ("infeasible", "unbounded"):
        return None
    stated = found.problem.lower_bound
    bound = float(stated) if isinstance(stated, int | float) else -math.inf
    if ending == "optimal" and objective is not None and _family(solver) in KNOWN:
        # Some state none with an optimum, or the value of the plan although a gap was allowed.
        least = objective - float(limits.gap) * abs(objective)
        bound = least if not math.isfinite(bound) else bound
        bound = min(bound, least) if limits.gap else bound
    return bound if math.isfinite(bound) else None
