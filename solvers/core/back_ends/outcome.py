"""How a solve ended: what MIP solvers report, a dual bound in ns, and words for a message."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from placegap.solvers.core.method import Limits
from placegap.solvers.core.result import relative_gap

# Of every MIP solver: a study runs as many workers as there are cores, and HiGHS' number is global
# to the process: a second solve with another one fails.
THREADS = 1
BOUND_MARGIN = 1e-6  # off a dual bound, relative to max(1, bound): the solvers' tolerances are 1e-6
MOST_PARTS = 400_000  # ops x devices + edges x devices^2 of the largest model that CP-SAT is given

Ending = Literal[
    "optimal", "infeasible", "unbounded", "time_limit", "interrupted", "memory_limit", "unknown"
]

# Called with a MIP solver's objective and dual bound, infinite where it has none.
Watch = Callable[[float, float], None]


@dataclass(frozen=True)
class MipOutcome:
    """How a solve ended."""

    ending: Ending  # ``optimal`` means: to the requested gap
    #: objective, dual_bound: In the model's unit; None where there is none.
    objective: float | None = None
    dual_bound: float | None = None
    has_solution: bool = False  # the variables of the model hold the best solution found
    hand_off_s: float = 0.0
    solve_s: float = 0.0
    rows: int = 0
    columns: int = 0
    nodes: int = 0
    solver_version: str = ""  # empty where the method's own packages state it


def bound_ns(dual_bound: float | None, unit_ns: float, granularity: int) -> int | None:
    """The dual bound of a minimization in ns, rounded up to a multiple of the granularity."""
    # The optimum is a multiple of the granularity, so what lies above the bound less the margin is
    # at least the next multiple. `unit_ns` are nanoseconds per model unit.
    if dual_bound is None:
        return None
    safe = dual_bound - BOUND_MARGIN * max(1.0, abs(dual_bound))
    return max(0, granularity * math.ceil(safe * unit_ns / granularity))


ENDINGS: dict[Ending, str] = {
    "optimal": "",
    "infeasible": "{solver} proves that no plan exists",
    "unbounded": "{solver} reports an unbounded model",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
    "memory_limit": "out of memory",
    "unknown": "{solver} ended without a reason",
}


def say_ending(
    ending: Ending | Literal["fault"],
    solver: str,
    limits: Limits,
    seconds: float,
    *,
    start: bool,
    better: bool,
) -> str:
    """Which limit was hit, or why the search stopped, and what that means for the plan."""
    # ``fault``: the solver contradicts a known plan. `start` says whether there was a plan to start
    # from, and `better` whether the search found a better one, or any at all.
    if ending == "fault":
        why = f"{solver} contradicts a known plan; its result is discarded"
    elif ending == "time_limit":
        why = f"time limit of {limits.named_s:g} s reached"
    else:
        why = ENDINGS[ending].format(solver=solver)
    if better or ending in ("optimal", "infeasible"):
        return why
    what = "no better plan than the start was found" if start else "no plan found"
    return f"{why}, {what} in {seconds:.1f} s"


def say_rest(value_ns: int | None, bound_ns: int | None, limits: Limits, otherwise: str) -> str:
    """Why a search that ended by itself leaves a gap: the requested one is met, or `otherwise`."""
    gap = relative_gap(value_ns, bound_ns)
    if not gap:
        return ""
    return (
        f"the requested gap of {100 * limits.gap:.3g} % is met" if gap <= limits.gap else otherwise
    )
