"""What every MIP solver reports, and how its dual bound becomes a bound in ns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

THREADS = 1
"""Of every MIP solver: a study runs as many workers as there are cores, and HiGHS' number is
global to the process: a second solve with another one fails."""

BOUND_MARGIN = 1e-6
"""Taken off a dual bound, relative to max(1, bound): the solvers' own tolerances are 1e-6."""

Ending = Literal[
    "optimal", "infeasible", "unbounded", "time_limit", "interrupted", "memory_limit", "unknown"
]

Watch = Callable[[float, float], None]
"""Called with a MIP solver's objective and dual bound, infinite where it has none."""


@dataclass(frozen=True)
class MipOutcome:
    """How a solve ended.

    Attributes
    ----------
    ending : str
        ``optimal`` means: to the requested gap.
    objective, dual_bound : float or None
        In the model's unit; None where there is none.
    has_solution : bool
        The variables of the model hold the best solution found.
    hand_off_s, solve_s : float
    rows, columns, nodes : int
    solver_version : str
        Empty where the method's own packages tell it.
    """

    ending: Ending
    objective: float | None = None
    dual_bound: float | None = None
    has_solution: bool = False
    hand_off_s: float = 0.0
    solve_s: float = 0.0
    rows: int = 0
    columns: int = 0
    nodes: int = 0
    solver_version: str = ""


def bound_ns(dual_bound: float | None, unit_ns: float, granularity: int) -> int | None:
    """The dual bound of a minimization in ns, rounded up to a multiple of the granularity.

    The optimum is a multiple of the granularity, so what lies above the bound less the margin is
    at least the next multiple.

    Parameters
    ----------
    dual_bound : float or None
        In model units.
    unit_ns : float
        Nanoseconds per model unit.
    granularity : int
        In ns; divides the optimum.

    Examples
    --------
    >>> bound_ns(29.9999999, 1e6, 1_000_000), bound_ns(29.5, 1e6, 1_000_000)
    (30000000, 30000000)
    >>> bound_ns(30.0000001, 1e6, 1_000_000), bound_ns(0.0, 1.0, 5), bound_ns(None, 1.0, 1)
    (30000000, 0, None)
    """
    if dual_bound is None:
        return None
    safe = dual_bound - BOUND_MARGIN * max(1.0, abs(dual_bound))
    return max(0, granularity * math.ceil(safe * unit_ns / granularity))
