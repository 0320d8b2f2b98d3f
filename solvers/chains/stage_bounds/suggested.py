"""Ideals that the LPs of stages suggest: where a good chain may cut."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags
from placegap.solvers.chains.stage_lp import ChainCosts, Reach

THRESHOLDS = (0.05, 0.35, 0.65, 0.95)
"""What an LP has of a block at least, for the block to be in the ideal."""

ENOUGH, MOST = 150, 2000
"""New ideals after which chains of them are tried, and how many are kept."""


class Suggested:
    """The ideals of the last LPs, each once."""

    def __init__(self, costs: ChainCosts) -> None:
        self.costs, self._new = costs, 0
        every = np.ones(costs.num_blocks, np.bool_)
        self._ends = [~every, every]
        self._known: dict[bytes, Flags] = {}

    def see(self, found: Reach) -> None:
        """Round the ideal behind a stage, at several thresholds."""
        if found.behind is None:
            return
        tail, head = self.costs.arcs.tail, self.costs.arcs.head
        for threshold in THRESHOLDS:
            flags = found.behind >= threshold
            key = np.packbits(flags).tobytes()
            if key in self._known or (flags[head] & ~flags[tail]).any():
                continue
            self._known[key] = flags
            self._new += 1
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def take(self) -> Flags | None:
        """All ideals and both ends, (N, b), if there are enough new ones."""
        if self._new < ENOUGH:
            return None
        self._new = 0
        return np.array(self._ends + list(self._known.values()))
