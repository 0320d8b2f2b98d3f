"""Solvers that tell when they begin, by a file; importing this in a worker patches them there."""

from typing import Any

import highspy
from doubles.stop_jobs import mark
from ortools.sat.python import cp_model

from placegap.solvers.core import clock

LARGE = 300
"""Models of the warm-up are smaller."""


def _tell_when_solving() -> None:
    cp_sat_solve, highs_run = cp_model.CpSolver.solve, highspy.Highs.run

    def solve(solver: Any, model: Any, *callbacks: Any) -> Any:
        if len(model.proto.variables) > LARGE:
            mark("solving")
        return cp_sat_solve(solver, model, *callbacks)

    def run(solver: Any) -> Any:
        if solver.getNumCol() > LARGE:
            mark("solving")
        return highs_run(solver)

    cp_model.CpSolver.solve = solve
    highspy.Highs.run = run


_tell_when_solving()
clock.PATIENCE_S = 90.0
