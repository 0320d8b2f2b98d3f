"""The best plan and the best bound of a search over plans of any kind."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placegap.instances.problem.arrays import UNSUPPORTED
from placegap.instances.problem.graph_index import Ints
from placegap.solvers.core.progress import Told, unheard
from placegap.solvers.core.result import relative_gap
from placegap.solvers.noncontiguous.problem import SplitProblem


@dataclass(eq=False)
class Progress:
    """The best plan and the best bound so far.

    Attributes
    ----------
    problem : SplitProblem
        After merging.
    gap : float
        Relative gap that suffices.
    value_ns : int
    devices : (n,) int64
        Device of each op.
    merged : (b,) int64
        Device of each block, in the best plan of the problem's blocks.
    bound_ns : int
    origin : str
        What proves the bound.
    on_news : callable (value, bound)
        Called with what is better.
    details : dict
    faults : list of str
        What a phase or a solver said that a known plan contradicts, or how it failed.
    """

    problem: SplitProblem
    gap: float
    value_ns: int
    devices: Ints
    merged: Ints
    bound_ns: int = 0
    origin: str = "work"
    on_news: Told = unheard
    details: dict[str, int | float | str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def offer(self, device: Ints) -> None:
        """Take over a plan of the blocks if it fits and is better."""
        value_ns = int(self.problem.loads(device).max())
        if value_ns < self.value_ns and self.problem.fits(device):
            self.merged = device.copy()
            self.offer_ops(value_ns, device[self.problem.block])

    def offer_ops(self, value_ns: int, devices: Ints) -> None:
        """Take over a feasible plan of the ops if it is better."""
        if value_ns < self.value_ns:
            self.value_ns, self.devices = value_ns, devices.copy()
            self.on_news(value_ns, None)

    def prove(self, bound_ns: int, origin: str) -> None:
        """Take over a bound if it is better; one above the plan's value is a fault."""
        if bound_ns > self.value_ns:
            self.faults.append(
                f"{origin} says that no load below {bound_ns} ns is reached, but a plan of"
                f" {self.value_ns} ns is known"
            )
        elif bound_ns > self.bound_ns:
            self.bound_ns, self.origin = bound_ns, origin
            self.on_news(None, bound_ns)

    @property
    def done(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value_ns, self.bound_ns)
        return found is not None and found <= self.gap


def least_work(problem: SplitProblem) -> int:
    """The heaviest block where it is fastest: a bound that needs no search."""
    never = int(problem.time_ns.max()) + 1
    time_ns = np.where(problem.time_ns == UNSUPPORTED, never, problem.time_ns)
    return int(time_ns.min(axis=1).max())
