"""The master of column generation: fractional cover of the blocks by sets of single devices.

    theta = max t  subject to  sum over sets that hold v of lambda >= t   for every block v,
                               sum over sets of kind k of lambda <= n_k   for every kind k.

Its dual prices blocks, minimize sum n_k z_k with z_k >= price(S) for every set S of kind k and
prices that sum to 1; that is the LP solved here, a row per set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.solvers.core.back_ends.outcome import THREADS

SCALE = 1000.0
"""Prices sum to this inside the LP, so that its absolute tolerances are small to them."""


class Cover(NamedTuple):
    """theta over the sets known, prices of the blocks, value of each kind, weight of each set."""

    theta: float
    price: Floats
    kind_value: Floats
    weight: Floats


class CoveringLP:
    """The master over some blocks.

    Parameters
    ----------
    active : (b,) bool
        Blocks to be covered; the prices of the others are 0.
    counts : sequence of int
        Devices of each kind.

    Examples
    --------
    Two devices, three blocks, of which any two fit: each is covered 4/3 times.

    >>> lp = CoveringLP(np.ones(3, np.bool_), [2])
    >>> for pair in ([0, 1], [0, 2], [1, 2]):
    ...     lp.add(0, np.array(pair))
    >>> round(lp.solve().theta, 6)
    1.333333
    """

    def __init__(self, active: Flags, counts: Sequence[int]) -> None:
        self.num_blocks = len(active)
        self.num_sets = 0
        self._highs = highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", THREADS)
        for is_active in active.tolist():
            highs.addVar(0.0, highspy.kHighsInf if is_active else 0.0)
        for kind, count in enumerate(counts):
            highs.addVar(0.0, highspy.kHighsInf)
            highs.changeColCost(self.num_blocks + kind, float(count))
        blocks = np.arange(self.num_blocks, dtype=np.int32)
        highs.addRow(SCALE, SCALE, self.num_blocks, blocks, np.ones(self.num_blocks))

    def add(self, kind: int, blocks: Ints) -> None:
        """A set that devices of a kind can hold."""
        columns = np.append(blocks, self.num_blocks + kind).astype(np.int32)
        values = np.append(-np.ones(len(blocks)), 1.0)
        self._highs.addRow(0.0, highspy.kHighsInf, len(columns), columns, values)
        self.num_sets += 1

    def solve(self, limit_s: float | None = None) -> Cover | None:
        """The optimum over the sets known; None if HiGHS does not find it, in so many seconds."""
        if limit_s is not None:  # HiGHS counts the time of all runs
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + limit_s)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._highs.getSolution()
        values = np.maximum(np.array(solution.col_value), 0.0) / SCALE
        objective = self._highs.getInfo().objective_function_value
        return Cover(
            objective / SCALE,
            values[: self.num_blocks],
            values[self.num_blocks :],
            np.array(solution.row_dual[1:]),
        )
