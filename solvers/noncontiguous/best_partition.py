"""The best plan and the best bound of a search over plans of any kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.progress import Best
from placegap.solvers.noncontiguous.problem import SplitProblem


@dataclass(eq=False, kw_only=True)
class BestPartition(Best):
    """The best plan of blocks and ops.

    Attributes
    ----------
    problem : SplitProblem
        After merging.
    devices : (n,) int64
        Device of each op.
    merged : (b,) int64
        Device of each block, in the best plan of the problem's blocks.
    """

    problem: SplitProblem
    devices: Ints
    merged: Ints

    @property
    def plan_ns(self) -> int:
        """Value of the best plan: here there is always one."""
        assert self.value_ns is not None
        return self.value_ns

    def offer(self, device: Ints) -> None:
        """Take over a plan of the blocks if it fits and is better."""
        value_ns = int(self.problem.loads(device).max())
        if value_ns < self.plan_ns and self.problem.fits(device):
            self.merged = device.copy()
            self.offer_ops(value_ns, device[self.problem.block])

    def offer_ops(self, value_ns: int, devices: Ints) -> None:
        """Take over a feasible plan of the ops if it is better."""
        if self.improve(value_ns):
            self.devices = devices.copy()


def least_work(problem: SplitProblem) -> int:
    """The heaviest block where it is fastest: a bound that needs no search."""
    never = int(problem.time_ns.max()) + 1
    time_ns = np.where(problem.time_ns == UNSUPPORTED, never, problem.time_ns)
    return int(time_ns.min(axis=1).max())
