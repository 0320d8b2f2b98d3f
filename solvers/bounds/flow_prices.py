"""Prices of machines that refute a rate, found by column generation and checked in integers.

Let all machines together pass F. With a price p of each machine, a machine with h layers charges
p / h to each of them. A layer is held by machines that pass F together, so it costs at least the
cheapest cover of F: a knapsack on a grid of F / `GRID`, capacities rounded up. If all layers cost
more than all machines are worth, no plan passes F.

Links count where no group of machines that are joined by links of F or more can do all layers. A
layer that one machine passes alone is *single*, and two single layers in a row are one machine's,
or those of two that a link of F joins: both in one group. So between single layers of different
groups some layer is held by several machines. Where it is one layer alone, each of its machines
has all of its tokens over one link between groups, or sends them over one: it passes no more than
the largest such link. A *cover of all layers* tells how many layers of each group are single, no
more than its machines do alone, and what covers the others; the cheapest one follows from a few
sums. By hand, two machines that pass 10 with one layer and hold no more, a link of 5, two layers:
above 5 only one layer is single, and both pass the other one, which takes three machines.

The best prices solve an LP with a row for each cover: maximize the price of the cheapest cover
where all machines are worth 1. Rows are added one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import highspy
import numpy as np

from placegap.instances.certificates.certificate_flow import CheapestLayers, FlowTerms, PricedItem
from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem.flow_problem import FlowProblem
from placegap.solvers.core.back_ends.outcome import THREADS
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.clock import Clock

# Units of a rate, first and last: with 4,000 the bound on 42 machines of 7 kinds is 0.03 % higher
# than with 20,000, and its search takes a fifth of the time.
GRIDS = (4_000, 20_000)
NEAR = (1e-4, 1e-6)  # relative widths at which the bisection ends, on each grid
WORTH = 10**9  # all prices together: charges are rounded down to integers
ENOUGH = 1e-3  # relative gap at which the value of a plan is tried as a bound
MOST_COVERS = 300  # of earlier rates that an LP begins with
MOST_ROUNDS = 200  # covers that are looked at for one rate


class PriceProof(NamedTuple):
    """A bound in the unit of rates, and the grid and prices that prove it."""

    bound: int
    grid: int
    prices: tuple[int, ...]


def terms_of(problem: FlowProblem) -> FlowTerms:
    """What the checker reads of a problem."""
    tables = [problem.tables[machine.kind] for machine in problem.machines]
    return FlowTerms(problem.num_layers, tables, problem.links)


class PriceSearch:
    """Prices that refute ever lower rates."""

    def __init__(self, problem: FlowProblem, clock: Clock) -> None:
        self.problem, self.clock, self.terms = problem, clock, terms_of(problem)
        self.rounds = 0
        self._covers = deque[tuple[int, Floats]](maxlen=MOST_COVERS)  # bounds, and what they use
        self.best: PriceProof | None = None

    def work_bound(self) -> int:
        """A rate that is refuted if one more is: no machine has work beyond it."""
        # With h layers a machine does h min(c(h), F) of the L F layer-tokens of a rate F. What is
        # missing is not monotone in F, but any rate that is refuted gives a bound.
        low, high = 0, 1
        while sum(self.works(high)) >= self.problem.num_layers * high:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            enough = sum(self.works(middle)) >= self.problem.num_layers * middle
            low, high = (middle, high) if enough else (low, middle)
        return low

    def works(self, rate: int) -> list[int]:
        """The most layer-tokens of each machine where it passes at most a rate."""
        passed = (self.terms.passes(i, rate) for i in range(self.problem.num_machines))
        return [max(h * cap for h, cap in enumerate(own, start=1)) for own in passed]

    def prove(self, least: int) -> Iterator[PriceProof]:
        """Ever better bounds, down to `least` or to what prices can prove."""
        high, low = self.work_bound(), max(1, least)
        if high <= low:
            return
        prices = np.array(self.works(high), float)
        for grid, near in zip(GRIDS, NEAR, strict=True):
            trial, step = high, near
            while True:
                tried = self.refute(trial, prices, grid)
                if tried is not None:
                    prices = tried
                    high = self._least(low, trial, prices, grid)
                    self.best = PriceProof(high, grid, tuple(to_integers(prices).tolist()))
                    yield self.best
                else:
                    low, step = max(low, trial), 1.0  # from here on by halves
                if high - low <= max(1, near * high):
                    break
                is_near = trial == high and high - low <= ENOUGH * high
                trial = low if is_near else max((low + high) // 2, int(high * (1 - step)))
                step *= 4
            low = max(1, least)

    def _refutes(self, bound: int, prices: Ints, grid: int) -> bool:
        found = self.terms.cheapest(bound, prices.tolist(), grid, _compiled)
        return found is None or found.charge > prices.sum()

    def _least(self, low: int, high: int, prices: Floats, grid: int) -> int:
        """The least bound that given prices prove, by bisection."""
        whole = to_integers(prices)
        if self._refutes(low, whole, grid):
            return low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._refutes(middle, whole, grid) else (middle, high)
        return high

    def refute(self, bound: int, prices: Floats, grid: int) -> Floats | None:
        """Prices that prove a bound, by a search from given ones; None if there are none."""
        classes = self._classes(bound + 1)
        lp = _PricesLp(np.bincount(classes))
        for at, uses in self._covers:
            if at >= bound:  # what covers more covers this, too
                lp.add(np.bincount(classes, uses).astype(np.float64))
        for _ in range(MOST_ROUNDS):
            self.clock.check()
            self.rounds += 1
            whole, record = to_integers(prices), _Record()
            found = self.terms.cheapest(bound, whole.tolist(), grid, record)
            if found is None or found.charge > whole.sum():
                return prices
            uses = self._uses(found, record)
            self._covers.append((bound, uses))
            lp.add(np.bincount(classes, uses).astype(np.float64))
            worth, each = lp.solve()
            if worth <= 1.0:
                break
            prices = each[classes]
        return None

    def _uses(self, found: CheapestLayers, record: _Record) -> Floats:
        """The share of each machine that the cheapest layers use."""
        uses = np.zeros(self.problem.num_machines)
        parts = [([item], number) for item, number in found.singles]
        parts += zip(record.covers(), (found.others, found.seams), strict=False)
        for items, number in parts:
            for item in items:
                uses[item.machine] += number / item.layers
        return uses

    def _classes(self, rate: int) -> Ints:
        """Numbers for machines, equal where these differ in nothing that counts for a rate."""
        group, _ = self.terms.groups(rate)
        kinds = [machine.kind for machine in self.problem.machines]
        most = [min(rate, *ends) for ends in zip(self.terms.into, self.terms.out, strict=True)]
        keys = [*zip(kinds, group, most, strict=True)]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys])


def to_integers(prices: Floats) -> Ints:
    """Prices of a sum of about `WORTH`."""
    whole: Ints = np.floor(np.maximum(prices, 0.0) * (WORTH / prices.sum())).astype(np.int64)
    return whole


@kernel
def _cover(charges: Ints, units: Ints, most: int) -> Ints:
    """`cover_table`, compiled."""
    table = np.zeros(most + 1, np.int64)
    for need in range(1, most + 1):
        least = 2**62
        for j in range(len(charges)):
            least = min(least, charges[j] + table[max(0, need - units[j])])
        table[need] = least
    return table


def _compiled(items: Sequence[PricedItem], most: int) -> list[int]:
    columns = np.array([(item.charge, item.units) for item in items]).T
    return [*_cover(columns[0].copy(), columns[1].copy(), most).tolist()]


class _Record:
    """Tables of covers, and the items of the cheapest ones."""

    def __init__(self) -> None:
        self.tables = list[tuple[Sequence[PricedItem], list[int]]]()

    def __call__(self, items: Sequence[PricedItem], most: int) -> list[int]:
        table = _compiled(items, most)
        self.tables.append((items, table))
        return table

    def covers(self) -> Iterator[list[PricedItem]]:
        """The cheapest cover by two items or more, from each table."""
        for items, table in self.tables:
            alone = min(items)
            need, chosen = len(table) - 1, list[PricedItem]()
            while need > 0 or len(chosen) < 2:
                left = [max(0, need - item.units) for item in items]
                if not chosen:  # another one follows in any case
                    rest = [table[n] if n else alone.charge for n in left]
                else:
                    rest = [table[n] for n in left]
                at = min(range(len(items)), key=lambda j: items[j].charge + rest[j])
                chosen.append(items[at])
                need = left[at]
            yield chosen


class _PricesLp:
    """Prices of classes that are worth 1 together, and make the cheapest of some covers dear."""

    def __init__(self, counts: Ints) -> None:
        self._highs = highs = silent_highs(threads=THREADS)
        self.num = len(counts)
        for _ in counts:
            highs.addVar(0.0, highspy.kHighsInf)
        highs.addVar(-highspy.kHighsInf, highspy.kHighsInf)
        highs.changeColCost(self.num, -1.0)
        columns = np.arange(self.num + 1, dtype=np.int32)
        highs.addRow(1.0, 1.0, self.num, columns[:-1], counts.astype(float))
        self._columns = columns

    def add(self, uses: Floats) -> None:
        """Add a cover by what it uses of each class."""
        values = np.append(-uses, 1.0)
        self._highs.addRow(-highspy.kHighsInf, 0.0, self.num + 1, self._columns, values)

    def solve(self) -> tuple[float, Floats]:
        """What the cheapest cover charges, and the prices."""
        self._highs.run()
        found = np.array(self._highs.getSolution().col_value)
        return float(found[-1]), found[:-1]
