"""What every CP-SAT method does alike: set up the solver, say how its search ended."""

from __future__ import annotations

from ortools.sat.python import cp_model

from placegap.solvers.mip_outcome import Ending
from placegap.solvers.registry import Limits
from placegap.solvers.result import Outcome
from placegap.solvers.start import Start


def new_solver(limits: Limits, workers: int, spent_s: float) -> cp_model.CpSolver:
    """A solver with the limits of a task, of which `spent_s` seconds are spent."""
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False  # its handler would stay, and ends the process
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = limits.seed % 2**31
    solver.parameters.relative_gap_limit = limits.gap
    if limits.time_limit_s is not None:
        solver.parameters.max_time_in_seconds = max(0.0, limits.time_limit_s - spent_s)
    return solver


def search_ending(status: object, interrupted: bool) -> Ending:
    """How the search ended; ``optimal``: to the requested gap.

    Examples
    --------
    >>> search_ending(cp_model.FEASIBLE, interrupted=False)
    'time_limit'
    """
    if status == cp_model.OPTIMAL:
        return "optimal"
    if status == cp_model.INFEASIBLE:
        return "infeasible"
    return "interrupted" if interrupted else "time_limit"  # the only limit that is set


def unsolved(ending: Ending, start: Start | None) -> Outcome:
    """What is known when CP-SAT has said nothing: the model was not built, or it heard no stop."""
    why = "interrupted" if ending == "interrupted" else "out of memory"
    return Outcome(
        plan=start.plan if start else None,
        message=f"{why} before CP-SAT answered{'; the start is returned' if start else ''}",
        details={"ending": ending},
    )
