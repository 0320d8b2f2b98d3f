"""A linear Pyomo model as arrays, for solvers and files, and what duals prove on it.

Compiling to a sparse matrix and handing that over at once takes a fraction of the time of Pyomo's
own interfaces. The garbage collector is off meanwhile: a model is millions of small objects, none
of which can be freed.

For min c x + offset, row_lower <= A x <= row_upper, lower <= x <= upper, any y proves

    sum of y_i (row_lower_i if y_i > 0 else row_upper_i) + sum of the least d_j x_j,  d = c - A' y,

once y_i is 0 where that side of row i is open (Neumaier, Shcherbina 2004). The sums are floating
point; what rounding may have added, also to the coefficients, is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats
from placegap.instances.kernels.loading import loading
from placegap.instances.reading.errors import paused_collector

if TYPE_CHECKING:  # Pyomo takes half a second to load
    import pyomo.environ as pyo


@dataclass(frozen=True)
class StandardForm:
    """Minimize cost x + offset, row_lower <= A x <= row_upper, lower <= x <= upper."""

    variables: Sequence[Any]
    constraints: Sequence[Any]
    matrix: Any
    cost: Floats
    offset: float
    lower: Floats
    upper: Floats
    is_integer: Flags
    row_lower: Floats
    row_upper: Floats

    @property
    def is_mip(self) -> bool:
        """Whether any column is integer."""
        return bool(self.is_integer.any())

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds of the columns alone keep the objective from falling for ever."""
        falls = np.isfinite(self.lower[self.cost > 0]).all()
        return bool(falls and np.isfinite(self.upper[self.cost < 0]).all())

    def values(self) -> list[float]:
        """The current values of the variables, all of which are set."""
        return [float(variable.value) for variable in self.variables]

    def load(self, values: Sequence[float]) -> None:
        """Write a solution into the variables."""
        for variable, value in zip(self.variables, values, strict=True):
            variable.set_value(float(value), skip_validation=True)


def compile_model(model: pyo.ConcreteModel, *, relax: bool = False) -> StandardForm:
    """The standard form of a linear model; `relax` makes integer variables continuous."""
    with loading():
        from pyomo.common.dependencies import scipy_available
        from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

        assert scipy_available  # asking loads it
    with paused_collector():
        form = LinearStandardFormCompiler().write(model, mixed_form=True, set_sense=None)
        bounds = [column.bounds for column in form.columns]
        sense = np.array([row.bound_type for row in form.rows])  # -1: >=, 0: ==, 1: <=
        right = np.asarray(form.rhs, float)
        return StandardForm(
            variables=form.columns,
            constraints=[row.constraint for row in form.rows],
            matrix=form.A,
            cost=form.c.toarray()[0],
            offset=float(form.c_offset[0]),
            lower=np.array([-math.inf if low is None else low for low, _ in bounds], float),
            upper=np.array([math.inf if up is None else up for _, up in bounds], float),
            is_integer=np.array(
                [not relax and column.is_integer() for column in form.columns], bool
            ),
            row_lower=np.where(sense == 1, -math.inf, right),
            row_upper=np.where(sense == -1, math.inf, right),
        )


EPSILON = 2.0**-52  # from 1 to the next number of 64 bits


def proven_bound(form: StandardForm, dual: Floats, most: float) -> float:
    """A lower bound on the LP's value over the solutions with no variable beyond `most`."""
    # The duals of the rows may be of any quality. `most` stands in where a variable has no bound of
    # its own.
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
