"""A bound on max_load over plans of any kind: cover by sets of single devices.

If max_load T can be reached, sets of blocks that single devices hold within T cover every block,
one set per device. So for any prices of blocks, all devices together must be able to hold all of
the price: a load T with sum_k n_k P_k(T) < total price is refuted, where P_k(T) is the most price
that a device of kind k holds within T. One pricing (`noncontiguous.knapsack`) gives P_k for all T,
and so the best bound that its prices prove, in integers. Column generation looks for the prices: at
a target load, by the level method (`step_to_level`), between the best prices known and the dual of
the covering LP over the sets found so far (`CoveringLP`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import highspy
import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.solvers.core.back_ends.outcome import THREADS
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.knapsack import TOTAL_PRICE, Grid, Prices, best_sets, most_price
from placegap.solvers.noncontiguous.pricing import Pricer, build_pricer, choices
from placegap.solvers.noncontiguous.problem import SplitProblem

STEP = 0.5
"""How far down from the best theta to the LP's the next prices aim."""

ENOUGH = 1e-5
"""By how much less than the whole price the devices shall hold, for a target to be refuted."""

MOST_CUTS = 250
"""Pricings that the next prices look back to."""

LEAST_REACH = 0.05
"""How far a block's price may move at least, relative to that of the mean block."""

MOST_TRIES = 4
"""Prices nearer and nearer to the LP's own that are tried before the LP counts as solved."""

TOLERANCE = 1e-7

HEAVY = 2e6
"""Moves times cells from which on a pricing is worth a thread."""

T = TypeVar("T")

COARSE = (2e7, 1_000, 4_000)
"""Grid on which pricers are compared: moves times cells, the fewest cells and the most."""


@dataclass(eq=False)
class ColumnGeneration:
    """The search for prices on a grid of loads."""

    pricer: Pricer
    #: A load that is reached; bounds end there.
    value_ns: int
    #: How fine the grid is.
    num_cells: int
    #: Loads below cell `lower` are refuted.
    lower: int = 0
    sets: dict[tuple[int, bytes], tuple[int, Ints]] = field(default_factory=dict)
    cover: Cover | None = None
    #: best, proof: (b,) float: Prices of least theta at the last target, and those that refuted
    #: most.
    proof: Floats | None = None
    cuts: list[tuple[int, Floats]] = field(default_factory=list)
    iterations: int = 0
    #: By how much a bound known elsewhere was better when the search began.
    lost_ns: int = 0

    def __post_init__(self) -> None:
        self.unit_ns = max(1, -(-self.value_ns // self.num_cells))
        self.num_cells = self.value_ns // self.unit_ns + 1
        self.grids = self.pricer.grids(self.unit_ns, self.num_cells)
        #: The covering LP reaches theta = 1 at cell `upper`, or it is beyond `value_ns`.
        self.upper = max(0, self.value_ns - 1) // self.unit_ns + 1
        #: Where a search on another grid saw that: a cell to begin with, no limit, since what
        #: coarse cells lose in rounding makes the LP reach theta = 1 too early.
        self.likely: int | None = None
        self.best = first = self.pricer.first_prices()
        self.reach_of = np.maximum(first / first.mean(), LEAST_REACH)

    @property
    def bound_ns(self) -> int:
        """What is proven."""
        return min(self.value_ns, self.lower * self.unit_ns)

    @property
    def contradicted(self) -> bool:
        """Whether even `value_ns` is refuted: a fault, if that load is reached."""
        return self.lower > self.value_ns // self.unit_ns

    def take_over(self, before: ColumnGeneration) -> None:
        """Start from the prices and the sets of a search on another grid."""
        self.best = before.best
        self.prove(before.best)
        problem = self.pricer.problem
        first = [devices[0] for devices in problem.members()]
        for key, (_, blocks) in before.sets.items():  # by their true loads
            inside = np.zeros(problem.num_blocks, np.bool_)
            inside[blocks] = True
            cell = problem.set_load(first[key[0]], inside) // self.unit_ns
            if len(blocks) and key not in self.sets and cell < self.num_cells:
                self.sets[key] = cell, blocks
        self.likely = min(self.upper, before.upper * before.unit_ns // self.unit_ns + 1)

    def begin(self, bound_ns: int) -> None:
        """Take a bound for granted that is proven elsewhere."""
        self.lost_ns = max(0, bound_ns - self.bound_ns)
        self.lower = max(self.lower, bound_ns // self.unit_ns)

    def prove(self, prices: Floats) -> None:
        """Raise the bound to what these prices prove."""
        price = to_integers(prices)
        held = self._by_kind(lambda grid: most_price(grid, price))
        self._refute(self._staircase(held), price)

    def _by_kind(self, priced: Callable[[Grid], T]) -> list[T]:
        """The answer for each kind, in threads where two or more take long: kernels run beside."""
        heavy = sum(len(grid.shift) * grid.num_cells > HEAVY for grid in self.grids)
        threads = min(heavy, self.pricer.threads)
        if threads < 2:
            return [priced(grid) for grid in self.grids]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(priced, self.grids))

    def _staircase(self, held: list[Prices]) -> Ints:
        total = np.zeros(self.num_cells, np.int64)
        for count, value in zip(self.pricer.counts, held, strict=True):
            total += count * value.astype(np.int64)
        return total

    def _refute(self, staircase: Ints, price: Prices) -> None:
        total = int(price.astype(np.int64).sum())
        refuted = int(np.searchsorted(staircase, total, side="left"))
        if refuted > self.lower:
            self.lower, self.proof = refuted, price.astype(np.float64)

    def close(self, clock: Clock, enough_ns: int, most: int, near: int = 0) -> None:
        """Narrow lower and upper to neighbours or `near` cells, or until the bound is enough."""
        end, step = self.iterations + most, 0
        while (
            self.upper - self.lower > near and self.bound_ns < enough_ns and self.iterations < end
        ):
            target = (self.lower + self.upper) // 2
            if self.likely is not None:
                # from there on, in steps that double, until one is reached
                step = max(1, self.likely - self.lower) if step == 0 else 2 * step
                target = min(target, max(self.likely, self.lower + step - 1))
            if self.reach(clock, target, end - self.iterations) and self.iterations < end:
                self.upper, self.likely = target, None

    def reach(self, clock: Clock, target: int, most: int) -> bool:
        """Work on one target cell with some pricings: False if it is refuted.

        Otherwise it is fractionally covered, unless the pricings were too few.
        """
        lp = CoveringLP(len(self.best), self.pricer.counts)
        for kind, blocks in self._worthy(target):
            lp.add(kind, blocks)
        best_theta, tries = np.inf, 0
        prices = self.best / self.best.sum()
        self.cover = None
        cuts = [times for cell, times in self.cuts if cell <= target]
        for _ in range(most):
            clock.check()
            self.iterations += 1
            theta, times, fresh = self._price(prices, target)
            if self.lower > target:
                self.best = prices
                return False
            if theta < best_theta:
                best_theta, self.best = theta, prices
            cuts.append(times)
            del cuts[:-MOST_CUTS]
            cut = self.cover is None
            for kind, blocks in fresh:
                lp.add(kind, blocks)
                if self.cover is not None:
                    worth = self.cover.price[blocks].sum()
                    cut |= bool(worth > self.cover.kind_value[kind] + TOLERANCE * 0.1)
            if cut:
                self.cover, tries = lp.solve(clock.left_s), 0
            elif tries > MOST_TRIES:
                return True  # the LP's own prices are the best there are, to its tolerances
            else:
                tries += 1
            if self.cover is None or self.cover.theta >= 1.0 - TOLERANCE:
                return True
            prices = self._next_prices(self.cover, best_theta, np.array(cuts), tries)
        return True

    def _next_prices(self, cover: Cover, best_theta: float, cuts: Floats, tries: int) -> Floats:
        """A step to the level; after tries that taught the LP nothing, nearer to its own prices."""
        level = (1 - STEP) * best_theta + STEP * cover.theta
        if cover.theta < 1.0 - ENOUGH:
            level = min(level, 1.0 - ENOUGH)
        near = step_to_level(self.best, cuts, level, self.reach_of)
        part = 0.5**tries if tries < MOST_TRIES else 0.0
        return part * near + (1.0 - part) * cover.price

    def _worthy(self, target: int) -> list[tuple[int, Ints]]:
        """Sets for a target, no more than it takes: those worth most at the best prices."""
        rows = [(kind, blocks) for (kind, _), (cell, blocks) in self.sets.items() if cell <= target]
        most = 100 + len(self.grids) * len(self.best)
        worth = np.array([self.best[blocks].sum() for _, blocks in rows])
        return [rows[at] for at in np.sort(np.argsort(-worth, kind="stable")[:most]).tolist()]

    def _price(self, prices: Floats, target: int) -> tuple[float, Floats, list[tuple[int, Ints]]]:
        """Price that all devices hold at the target, as a share; how often each block; new sets."""
        price = to_integers(prices)
        fresh: list[tuple[int, Ints]] = []
        times, heaviest = np.zeros(len(price)), 0
        answers = self._by_kind(lambda grid: best_sets(grid, price, [target]))
        held = [value for value, _ in answers]
        for kind, (_, (found,)) in enumerate(answers):
            times[found.blocks] += self.pricer.counts[kind]
            heaviest = max(heaviest, found.cell)
            key = kind, found.blocks.tobytes()
            if key not in self.sets:
                self.sets[key] = found.cell, found.blocks
                fresh.append((kind, found.blocks))
        self.cuts.append((heaviest, times))
        del self.cuts[:-MOST_CUTS]
        staircase = self._staircase(held)
        self._refute(staircase, price)
        return float(staircase[target] / price.astype(np.int64).sum()), times, fresh


def cover_all(pricer: Pricer, value_ns: int, num_cells: int) -> ColumnGeneration:
    """The search for the whole problem, with the bound that the first prices prove."""
    search = ColumnGeneration(pricer, value_ns, num_cells)
    search.prove(search.best)
    return search


def choose_pricer(
    problem: SplitProblem, value_ns: int, threads: int = 1, clock: Clock | None = None
) -> Pricer:
    """The pricer whose weights prove most with the first prices, on a coarse grid."""
    tried: list[tuple[int, Pricer]] = []
    for weights in choices(problem, value_ns):
        if tried and clock is not None and clock.left_s == 0.0:
            break
        like = tried[0][1] if tried else None
        pricer = build_pricer(problem, weights, threads, like, clock)
        cells = pricer.cells(value_ns, *COARSE)
        tried.append((cover_all(pricer, value_ns, cells).bound_ns, pricer))
    return max(tried, key=lambda found: found[0])[1]


def to_integers(prices: Floats) -> Prices:
    """Prices as integers, none negative, whose sum is positive and at most about `TOTAL_PRICE`.

    Floating point ends here: what is proven is proven for these integers, whatever was rounded
    away, even where the prices given are no numbers.
    """
    sound = np.where(np.isfinite(prices), np.maximum(prices, 0.0), 0.0)
    sound /= max(float(sound.max(initial=0.0)), np.finfo(np.float64).tiny)
    scaled: Prices = np.floor(sound / max(float(sound.sum()), 1.0) * TOTAL_PRICE).astype(np.int32)
    if not scaled.any():
        scaled[int(np.argmax(sound))] = 1
    return scaled


SCALE = 1000.0
"""Prices sum to this inside the LP, so that its absolute tolerances are small to them."""


class Cover(NamedTuple):
    """theta over the sets known, prices of the blocks, value of each kind."""

    theta: float
    price: Floats
    kind_value: Floats


class CoveringLP:
    """The master: fractional cover of all blocks by sets of single devices.

        theta = max t  subject to  sum over sets that hold v of lambda >= t   for every block v,
                                   sum over sets of kind k of lambda <= n_k   for every kind k.

    Its dual prices blocks, minimize sum n_k z_k with z_k >= price(S) for every set S of kind k and
    prices that sum to 1; that is the LP solved here, a row per set.
    """

    def __init__(self, num_blocks: int, counts: Sequence[int]) -> None:
        self.num_blocks = num_blocks
        self._highs = highs = silent_highs(threads=THREADS)
        for _ in range(num_blocks):
            highs.addVar(0.0, highspy.kHighsInf)
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

    def solve(self, limit_s: float | None = None) -> Cover | None:
        """The optimum over the sets known; None if HiGHS does not find it in time."""
        if limit_s is not None:  # HiGHS counts the time of all runs
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + limit_s)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._highs.getSolution()
        values = np.maximum(np.array(solution.col_value), 0.0) / SCALE
        objective = self._highs.getInfo().objective_function_value
        return Cover(objective / SCALE, values[: self.num_blocks], values[self.num_blocks :])


SWEEPS = 100
"""Rounds over all half spaces at most."""

CLOSE = 1e-7
"""A half space that is missed by less counts as met."""


def step_to_level(best: Floats, cuts: Floats, level: float, reach: Floats) -> Floats:
    """Prices near the best ones at which no cut is worth more than the level.

    The level method (Lemarechal, Nemirovskii and Nesterov 1995): of all prices at which the sets
    found so far are worth at most a level, those nearest to the best prices known. A step is
    measured against each block's first price, so that large prices move further than small ones.
    The projection onto the half spaces is Hildreth's (1957): one after the other, again and again.
    `best` and the result sum to 1. A cut has how often each block is held, all devices together;
    `reach` is how far each price may move, relative to the others'. O(m b) a round; about at the
    level if the rounds do not suffice.
    """
    prices = np.maximum(_project(best, cuts, level, reach), 0.0)
    total = prices.sum()
    return prices / total if total > 0 else best


@kernel(nogil=True, fastmath=True)
def _project(best: Floats, cuts: Floats, level: float, reach: Floats) -> Floats:
    m, n = cuts.shape
    x, on_cut, on_zero = best.copy(), np.zeros(m), np.zeros(n)
    norm, room = np.zeros(m), 0.0
    for j in range(n):
        room += reach[j]
    for i in range(m):
        for j in range(n):
            norm[i] += cuts[i, j] * cuts[i, j] * reach[j]
    for _ in range(SWEEPS):
        missed = 0.0
        for i in range(m):
            if norm[i] <= 0.0:
                continue
            worth = 0.0
            for j in range(n):
                worth += cuts[i, j] * x[j]
            step = max(-on_cut[i], (worth - level) / norm[i])
            if step != 0.0:
                missed = max(missed, abs(step) * norm[i])
                on_cut[i] += step
                for j in range(n):
                    x[j] -= step * reach[j] * cuts[i, j]
        total = 0.0
        for j in range(n):
            step = max(-on_zero[j], -x[j] / reach[j])
            on_zero[j] += step
            x[j] += step * reach[j]
            total += x[j]
        step = (total - 1.0) / room
        for j in range(n):
            x[j] -= step * reach[j]
        if missed < CLOSE:
            break
    return x
