"""Rows of stages of one d and one t, none longer than a limit, with the least sum of times.

least[I, p] is the least sum of p stages for the layers outside of ideal I. The first of them takes
J - I for a larger ideal J. It has p microbatches in flight, as all stages have the same d, so what
it takes is known: the time of its fastest modes that fit. A bisection over the knapsacks of
`decide` finds it when a sum needs it, and it is kept for other limits.

placegap's own; a least sum for each limit on the longest is how Alpa makes stages (Zheng et al.,
OSDI 2022), whose stages have their modes beforehand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem.integers import NEVER, NO_WAY
from placegap.solvers.core.clock import Clock
from placegap.solvers.hybrid.decide import PAIRS, RowStage, StageRows, border, fill, fits, nests
from placegap.solvers.hybrid.modes import NO
from placegap.solvers.hybrid.problem import HybridProblem, Tables

MOST_KEPT = 2**24
"""Times of stages that are kept, 128 MB; 80 layers on 64 devices have 420,000."""


class Uniform(NamedTuple):
    """What all stages have: a tensor degree by number, d, and names of modes to choose from.

    `stages` is their most number; `rate` is the scaled cost of a ns.
    """

    tensor: int
    replicas: int
    names: Ints
    stages: int
    rate: int


class SumLimits(NamedTuple):
    """Ns of a stage, ns of all stages together, and bytes of a device."""

    longest: int
    total: int
    memory: int


class SumRow(NamedTuple):
    """A row of stages, the first one first, and its times in ns."""

    total: int
    longest: int
    stages: tuple[RowStage, ...]


@kernel
def least_sums(
    tables: Tables,
    uniform: Uniform,
    limits: SumLimits,
    known: Ints,
    least: Ints,
    after: Ints,
    rows: tuple[int, int],
) -> None:
    """Fill rows of the table of least sums, from the first down to the second, and the ideals
    after the first stage of each entry.

    ``known[I, J, p]`` is the time of a stage, or -2 - x where it is known to be above x. Modes that
    cannot be decided count as fitting, so that no sum is too large.
    """
    n, q, d, rate = len(tables.members), uniform.tensor, uniform.replicas, uniform.rate
    stage = StageRows(
        np.zeros(tables.inside.shape[1] + 1, np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.tail), np.bool_),
    )
    for small in range(rows[0], rows[1] - 1, -1):
        for p in range(uniform.stages + 1):
            least[small, p] = NEVER
        before = (tables.least_cost[q, small] + (d - 1) * tables.least_sync[q, small]) // rate
        most = uniform.stages - -(-before // max(1, limits.longest))
        for large in range(n - 1, small, -1):  # of rows that are alike, one of long first stages
            cost = tables.least_cost[q, large] - tables.least_cost[q, small]
            cost += (d - 1) * (tables.least_sync[q, large] - tables.least_sync[q, small])
            low = -(-cost // rate)
            if low > limits.longest or tables.unable[q, large] > tables.unable[q, small]:
                continue
            if not nests(tables, small, large):
                continue
            held = tables.least_held[q, large] - tables.least_held[q, small]
            fixed = tables.least_fixed[q, large] - tables.least_fixed[q, small]
            count = base = 0
            for p in range(1, most + 1):  # with more in flight, it takes no less
                if held * p + fixed > limits.memory:
                    break
                time = known[small, large, p]
                low = max(low, time if time >= 0 else -1 - time)
                if low > limits.longest:
                    break
                rest = least[large, p - 1]
                if rest == NEVER or rest + low + before > limits.total:
                    continue
                if time < 0:
                    if count == 0:
                        base = border(tables, stage.crosses, small, large)
                        count = fill(tables, stage, q, small, large)
                        low = max(low, -(-(cost + base) // rate))
                    high, ask = limits.longest + 1, low
                    while low < high:  # the first one is often the answer
                        bounds = (ask * rate - base, limits.memory)
                        if fits(tables, stage, count, uniform.names, d, p, bounds) == NO:
                            low = ask + 1
                        else:
                            high = ask
                        ask = (low + high) // 2
                    known[small, large, p] = low if low <= limits.longest else -1 - low
                    if low > limits.longest:
                        break
                if rest + low + before <= limits.total and rest + low < least[small, p]:
                    least[small, p], after[small, p] = rest + low, large


class LeastSums:
    """Answers for limit after limit; the times of stages are kept."""

    def __init__(self, problem: HybridProblem, uniform: Uniform, clock: Clock) -> None:
        self.problem, self.uniform, self.clock = problem, uniform, clock
        n = len(problem.tables.members)
        self._known = np.full((n, n, uniform.stages + 1), -1)
        self._least = np.full((n, uniform.stages + 1), NEVER)
        self._after = np.zeros((n, uniform.stages + 1), np.int64)

    def within(self, longest_ns: int, total_ns: int) -> SumRow | None:
        """The row of least sum, none of it longer, or None if no such row takes so little."""
        n, tables = len(self._least), self.problem.tables
        # no stage costs more than NO_WAY, and each edge is in two stages
        most = min(total_ns, 2 * NO_WAY)
        limits = SumLimits(min(longest_ns, NO_WAY), most, self.problem.memory)
        self._least[n - 1] = NEVER
        self._least[n - 1, 0] = 0
        step = max(1, PAIRS // (n * self.uniform.stages))
        for last in range(n - 2, -1, -step):
            self.clock.check()
            rows = last, max(0, last - step + 1)
            least_sums(tables, self.uniform, limits, self._known, self._least, self._after, rows)
        p = int(self._least[0].argmin())
        total = int(self._least[0, p])
        if total == NEVER:
            return None
        stages, longest, at = list[RowStage](), 0, 0
        for left in range(p, 0, -1):
            after = int(self._after[at, left])
            longest = max(longest, int(self._known[at, after, left]))
            stages.append(RowStage(at, after, self.uniform.tensor, self.uniform.replicas))
            at = after
        return SumRow(total, longest, tuple(stages))
