"""The best plan's value and the best bound of a search, as its phases find them."""

from __future__ import annotations

from dataclasses import dataclass, field

from placegap.solvers.core.progress import Told, unheard
from placegap.solvers.core.result import relative_gap
from placegap.solvers.core.trust import PROOF


@dataclass(eq=False, kw_only=True)
class Best:
    """The best value and the best bound so far; a search adds how it keeps its plan.

    Attributes
    ----------
    gap : float
        Relative gap that suffices.
    value_ns : int or None
        None without a plan.
    bound_ns : int
    origin, rests_on : str
        What proves the bound, and on whose word (`trust`).
    on_news : callable (value, bound)
        Called with what is better.
    faults : list of str
        What a phase or a solver said that a known plan contradicts, or how it failed.
    details : dict

    Examples
    --------
    >>> best = Best(gap=0.1)
    >>> best.improve(100), best.improve(120), best.value_ns
    (True, False, 100)
    >>> best.prove(90, "work")
    >>> best.is_close, best.origin
    (True, 'work')
    """

    gap: float
    value_ns: int | None = None
    bound_ns: int = 0
    origin: str = ""
    rests_on: str = PROOF
    on_news: Told = unheard
    faults: list[str] = field(default_factory=list)
    details: dict[str, int | float | str] = field(default_factory=dict)

    def improve(self, value_ns: int) -> bool:
        """Whether the value of a feasible plan is better; if so it is the best now."""
        if self.value_ns is not None and value_ns >= self.value_ns:
            return False
        self.value_ns = value_ns
        self.on_news(value_ns, None)
        return True

    def prove(self, bound_ns: int, origin: str, rests_on: str = PROOF) -> None:
        """Take over a bound if it is better; one above the plan's value is a fault."""
        if self.value_ns is not None and bound_ns > self.value_ns:
            self.faults.append(
                f"{origin} says that nothing below {bound_ns} ns is reached, but a plan of"
                f" {self.value_ns} ns is known"
            )
        elif bound_ns > self.bound_ns:
            self.bound_ns, self.origin, self.rests_on = bound_ns, origin, rests_on
            self.on_news(None, bound_ns)

    @property
    def is_close(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value_ns, self.bound_ns)
        return found is not None and found <= self.gap
