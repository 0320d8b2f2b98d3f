"""How a solver's search ended, in words for the result's message."""

from __future__ import annotations

from typing import Literal

from placegap.solvers.core.back_ends.outcome import Ending
from placegap.solvers.core.method import Limits
from placegap.solvers.core.result import relative_gap

ENDINGS: dict[Ending, str] = {
    "optimal": "",
    "infeasible": "{solver} proves that no plan exists",
    "unbounded": "{solver} takes the model for unbounded",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
    "memory_limit": "out of memory",
    "unknown": "{solver} ended without saying why",
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
    """Which limit was hit, or why the search stopped, and what that means for the plan.

    Parameters
    ----------
    ending : str
        ``fault``: the solver contradicts a known plan.
    solver : str
    limits : Limits
        Of the method.
    seconds : float
        How long the method took.
    start : bool
        Whether it had a plan to start from.
    better : bool
        Whether the search found a plan that is better than that, or any at all.

    Examples
    --------
    >>> say_ending("time_limit", "HiGHS", Limits(8.0), 8.04, start=True, better=False)
    'time limit of 8 s reached, no better plan than the start was found in 8.0 s'
    >>> say_ending("optimal", "HiGHS", Limits(8.0), 1.0, start=True, better=False)
    ''
    """
    if ending == "fault":
        why = f"{solver} contradicts a known plan, and is not believed"
    elif ending == "time_limit":
        why = f"time limit of {limits.named_s:g} s reached"
    else:
        why = ENDINGS[ending].format(solver=solver)
    if better or ending in ("optimal", "infeasible"):
        return why
    what = "no better plan than the start was found" if start else "no plan found"
    return f"{why}, {what} in {seconds:.1f} s"


def say_rest(value_ns: int | None, bound_ns: int | None, limits: Limits, otherwise: str) -> str:
    """Why a search that ended by itself leaves a gap: it was asked for no less, or `otherwise`.

    Examples
    --------
    >>> say_rest(100, 96, Limits(gap=0.05), "times are rounded")
    'the requested gap of 5 % is met'
    >>> say_rest(100, 99, Limits(), "times are rounded"), say_rest(7, 7, Limits(), "rounded")
    ('times are rounded', '')
    """
    gap = relative_gap(value_ns, bound_ns)
    if not gap:
        return ""
    return (
        f"the requested gap of {100 * limits.gap:.3g} % is met" if gap <= limits.gap else otherwise
    )
