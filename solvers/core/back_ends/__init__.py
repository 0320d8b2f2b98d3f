"""The MIP solvers to choose from: one call, one kind of outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placegap.solvers.core.back_ends.outcome import MipOutcome, Watch
from placegap.solvers.core.method import Limits
from placegap.solvers.core.result import solver_and_version

if TYPE_CHECKING:  # Pyomo takes a second to load, and most callers build no model
    import pyomo.environ as pyo

SolverName = str
"""highs, scip, or a solver that Pyomo has an interface for, such as gurobi (`by_pyomo`)."""

LABELS: dict[SolverName, str] = {"highs": "HiGHS", "scip": "SCIP"}


def label(solver: SolverName) -> str:
    """A solver as messages name it."""
    return LABELS.get(solver, solver)


def solve_model(
    model: pyo.ConcreteModel,
    limits: Limits,
    *,
    solver: SolverName = "highs",
    warm: bool = False,
    relax: bool = False,
    watch: Watch | None = None,
) -> MipOutcome:
    """Minimize a linear Pyomo model, and leave the best solution in its variables.

    Where there is none, no variable has a value, so that nobody reads that of another solve.

    Every solver runs on one thread, and its bound is that of a minimization with the tolerances
    that `back_ends.outcome.BOUND_MARGIN` covers. Ctrl-C stops HiGHS and SCIP, not the caller: the
    best solution so far is kept.

    Parameters
    ----------
    model : ConcreteModel
        Linear, with one objective to minimize.
    limits : Limits
        The time limit covers hand-off and solver; the gap is relative.
    solver : str
        "highs" is always installed; "scip" needs the extra ``scip``. Others are run by Pyomo, which
        has to find them: "gurobi", "cplex", "xpress", "cbc", "glpk" and more.
    warm : bool
        Start from the values of the variables, all of which are set.
    relax : bool
        Solve the LP relaxation.
    watch : callable (objective, dual bound), optional
        HiGHS calls it while it solves a MIP; no other solver does.

    Examples
    --------
    >>> from placegap.formulations import moirai
    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers import Limits
    >>> found = solve_model(moirai.build(example(), Makespan()), Limits())
    >>> found.ending, round(found.objective)
    ('optimal', 34)
    """
    from pyomo.environ import Var

    found = MipOutcome("unknown")
    try:
        if solver == "highs":
            from placegap.solvers.core.back_ends import highs

            found = highs.solve_model(model, limits, warm=warm, relax=relax, watch=watch)
        elif solver != "scip":
            from placegap.solvers.core.back_ends import by_pyomo

            found = by_pyomo.solve_model(model, limits, solver, warm=warm, relax=relax)
        else:
            from placegap.solvers.core.back_ends import scip

            found = scip.solve_model(model, limits, warm=warm, relax=relax)
    finally:  # Ctrl-C ends the hand-off by an exception
        if not found.has_solution:
            for variable in model.component_data_objects(Var):
                if not variable.fixed:
                    variable.set_value(None, skip_validation=True)
    return found


def require(solver: SolverName) -> None:
    """Raise an InputError, with what to install, if a solver cannot run here."""
    if solver == "scip":
        from placegap.solvers.core.back_ends import scip

        scip.package()
    elif solver != "highs":
        from placegap.solvers.core.back_ends import by_pyomo

        by_pyomo.engine_named(solver)


def word(solver: SolverName, solver_version: str = "") -> str:
    """The solver and its version, as results name what they rest on."""
    if solver == "highs":
        return solver_and_version("highspy")
    return f"{label(solver)} {solver_version}".rstrip()
