"""What the duals of an LP prove, whatever a solver says of them.

For min c x + offset, row_lower <= A x <= row_upper, lower <= x <= upper, any y proves

    sum of y_i (row_lower_i if y_i > 0 else row_upper_i) + sum of the least d_j x_j,  d = c - A' y,

once y_i is 0 where that side of row i is open (Neumaier, Shcherbina 2004). The sums are floating
point; what rounding may have added, also to the coefficients, is taken off.
"""

from __future__ import annotations

import math

import numpy as np

from placegap.instances.problem.array_types import Floats
from placegap.solvers.core.back_ends.standard_form import StandardForm

EPSILON = 2.0**-52


def proven_bound(form: StandardForm, dual: Floats, most: float) -> float:
    """A lower bound on the LP's value over the solutions with no variable beyond `most`.

    Parameters
    ----------
    form : StandardForm
    dual : (rows,) float64
        Of the rows, in any quality.
    most : float
        Where a variable has no bound of its own, no solution that matters is further from 0.

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> from placegap.solvers.core.back_ends.standard_form import compile_model
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var(bounds=(0, None))
    >>> model.row = pyo.Constraint(expr=2 * model.x >= 3)
    >>> model.objective = pyo.Objective(expr=model.x)
    >>> round(proven_bound(compile_model(model), np.array([0.5]), 100.0), 9)
    1.5
    """
    return _prove(form, form.cost, dual, most) + form.offset


def proves_infeasible(form: StandardForm, ray: Floats, most: float) -> bool:
    """Whether a ray of the dual, in either direction, proves that the LP has no solution."""
    nothing = np.zeros_like(form.cost)
    return any(_prove(form, nothing, side, most) > 0 for side in (ray, -ray))


def _prove(form: StandardForm, cost: Floats, dual: Floats, most: float) -> float:
    y = np.where(np.isinf(form.row_lower), np.minimum(dual, 0.0), dual)
    y = np.where(np.isinf(form.row_upper), np.maximum(y, 0.0), y)
    side = np.where(y > 0, form.row_lower, form.row_upper)
    rows = np.where(y == 0, 0.0, y * np.where(y == 0, 0.0, side))
    matrix = form.matrix.tocsc()
    reduced = cost - matrix.T @ y
    lower = np.where(np.isinf(form.lower), -most, form.lower)
    upper = np.where(np.isinf(form.upper), most, form.upper)
    columns = np.minimum(reduced * lower, reduced * upper)
    size = np.abs(cost) + abs(matrix).T @ np.abs(y)
    largest = np.maximum(np.abs(lower), np.abs(upper))
    terms = int(np.diff(matrix.indptr).max(initial=0)) + 10
    slack = terms * EPSILON * (math.fsum(np.abs(rows)) + math.fsum(size * largest))
    return math.fsum(rows) + math.fsum(columns) - slack
