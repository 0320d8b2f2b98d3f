"""A bound on max_load over plans of any kind: fractional cover by sets of single devices.

Relaxation: if max_load T can be reached, sets of blocks that single devices hold within T cover
every block, one set per device (Dantzig-Wolfe over equal devices, so without their symmetry). So
for any prices of blocks, all devices together must be able to hold the total price: T is refuted if
sum_k n_k P_k(T) < total price, where P_k(T) is the highest price of a set that a device of kind k
holds within T. One pricing (`noncontiguous.knapsack`) gives P_k for all T, and so the best bound
that its prices prove, in integers.

Column generation looks for good prices at a target load: by the level method (`step_to_level`),
between the best prices so far and the dual of the covering LP over the sets found (`CoveringLP`).

Example by hand: three blocks of 2 ns, two equal devices, no nets. The work alone proves 3 ns. With
a price of 1 for each block, a device holds 1 below 4 ns: both hold 2 < 3, so every load below 4 is
refuted, and two blocks on one device reach 4.
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

STEP = 0.5  # position of the level between the best theta (0) and that of the LP (1)
ENOUGH = 1e-5  # the level is at most 1 - ENOUGH if the LP can: a theta below 1 refutes the target
MOST_CUTS = 250  # number of latest pricings that the level method takes into account
LEAST_REACH = 0.05  # least step of a block's price, relative to that of the mean block
# Number of prices, nearer and nearer to the LP's own, that may give no new set before the LP counts
# as solved.
MOST_TRIES = 4

TOLERANCE = 1e-7

HEAVY = 2e6  # moves times cells above which a pricing runs in a thread of its own

T = TypeVar("T")

COARSE = (2e7, 1_000, 4_000)  # grid to compare pricers on: moves times cells, fewest and most cells


@dataclass(eq=False)
class ColumnGeneration:
    """The search for prices on a grid of loads."""

    pricer: Pricer
    value_ns: int  # value of the best plan, the largest bound of interest
    num_cells: int  # number of cells of the grid
    lower: int = 0  # loads below cell `lower` are refuted
    sets: dict[tuple[int, bytes], tuple[int, Ints]] = field(default_factory=dict)
    cover: Cover | None = None
    #: best, proof: (b,) float: Prices of least theta at the last target, and those that refuted the
    #: most cells.
    proof: Floats | None = None
    cuts: list[tuple[int, Floats]] = field(default_factory=list)
    iterations: int = 0
    lost_ns: int = 0  # how far the bound was below that of other searches when this one began

    def __post_init__(self) -> None:
        self.unit_ns = max(1, -(-self.value_ns // self.num_cells))
        self.num_cells = self.value_ns // self.unit_ns + 1
        self.grids = self.pricer.grids(self.unit_ns, self.num_cells)
        #: The covering LP reaches theta = 1 at cell `upper`, or it is beyond `value_ns`.
        self.upper = max(0, self.value_ns - 1) // self.unit_ns + 1
        #: The `upper` of a search on another grid, in cells of this one: a first target, but no
        #: limit, since rounding to coarse cells makes the LP reach theta = 1 too early.
        self.likely: int | None = None
        self.best = first = self.pricer.first_prices()
        self.reach_of = np.maximum(first / first.mean(), LEAST_REACH)

    @property
    def bound_ns(self) -> int:
        return min(self.value_ns, self.lower * self.unit_ns)

    @property
    def contradicted(self) -> bool:
        """Whether even `value_ns` is refuted, which a plan reaches: a fault."""
        return self.lower > self.value_ns // self.unit_ns

    def take_over(self, before: ColumnGeneration) -> None:
        """Start from the prices and the sets of a search on another grid."""
        self.best = before.best
        self.prove(before.best)
        problem = self.pricer.problem
        first = [devices[0] for devices in problem.members()]
        # Cells come from the true loads of the sets: those of the other grid were rounded down.
        for key, (_, blocks) in before.sets.items():
            inside = np.zeros(problem.num_blocks, np.bool_)
            inside[blocks] = True
            cell = problem.set_load(first[key[0]], inside) // self.unit_ns
            if len(blocks) and key not in self.sets and cell < self.num_cells:
                self.sets[key] = cell, blocks
        self.likely = min(self.upper, before.upper * before.unit_ns // self.unit_ns + 1)

    def begin(self, bound_ns: int) -> None:
        """Start from a bound that is proven elsewhere."""
        self.lost_ns = max(0, bound_ns - self.bound_ns)
        self.lower = max(self.lower, bound_ns // self.unit_ns)

    def prove(self, prices: Floats) -> None:
        """Raise the bound to what these prices prove."""
        price = to_integers(prices)
        held = self._by_kind(lambda grid: most_price(grid, price))
        self._refute(self._staircase(held), price)

    def _by_kind(self, priced: Callable[[Grid], T]) -> list[T]:
        """The result for each kind, in threads if several take long (kernels release the GIL)."""
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
        # The staircase rises with the load: all cells below the first that reaches the total are
        # refuted.
        refuted = int(np.searchsorted(staircase, total, side="left"))
        if refuted > self.lower:
            self.lower, self.proof = refuted, price.astype(np.float64)

    def close(self, clock: Clock, enough_ns: int, most: int, near: int = 0) -> None:
        """Bisect until lower and upper are at most `near` cells apart or the bound is enough."""
        end, step = self.iterations + most, 0
        while (
            self.upper - self.lower > near and self.bound_ns < enough_ns and self.iterations < end
        ):
            target = (self.lower + self.upper) // 2
            if self.likely is not None:
                # From the likely cell upwards in doubling steps, until a target is covered.
                step = max(1, self.likely - self.lower) if step == 0 else 2 * step
                target = min(target, max(self.likely, self.lower + step - 1))
            if self.reach(clock, target, end - self.iterations) and self.iterations < end:
                self.upper, self.likely = target, None

    def reach(self, clock: Clock, target: int, most: int) -> bool:
        """Search prices that refute a target cell: False if some do."""
        # Otherwise it is fractionally covered, unless `most` pricings were too few.
        # theta is the price that all devices hold within the target, as a share of all: below 1 the
        # target is refuted. The LP over the sets so far bounds the least theta from below, and the
        # prices tried from above.
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
            # Exact pricing of all kinds; a good price may refute more than the target.
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
            # Without a set that the LP's prices undervalue, the LP would not change: it is not
            # solved again.
            if cut:
                self.cover, tries = lp.solve(clock.left_s), 0
            elif tries > MOST_TRIES:
                # Even at the LP's own prices no set violates it: they are optimal, to tolerances.
                return True
            else:
                tries += 1
            if self.cover is None or self.cover.theta >= 1.0 - TOLERANCE:
                return True
            prices = self._next_prices(self.cover, best_theta, np.array(cuts), tries)
        return True

    def _next_prices(self, cover: Cover, best_theta: float, cuts: Floats, tries: int) -> Floats:
        """A step to the level; after tries without a new set, nearer to the LP's own prices."""
        level = (1 - STEP) * best_theta + STEP * cover.theta
        if cover.theta < 1.0 - ENOUGH:
            level = min(level, 1.0 - ENOUGH)
        near = step_to_level(self.best, cuts, level, self.reach_of)
        part = 0.5**tries if tries < MOST_TRIES else 0.0
        return part * near + (1.0 - part) * cover.price

    def _worthy(self, target: int) -> list[tuple[int, Ints]]:
        """Sets of a load within the target, at most a number: those of the highest price."""
        rows = [(kind, blocks) for (kind, _), (cell, blocks) in self.sets.items() if cell <= target]
        most = 100 + len(self.grids) * len(self.best)
        worth = np.array([self.best[blocks].sum() for _, blocks in rows])
        return [rows[at] for at in np.sort(np.argsort(-worth, kind="stable")[:most]).tolist()]

    def _price(self, prices: Floats, target: int) -> tuple[float, Floats, list[tuple[int, Ints]]]:
        """The share of the price that all devices hold, how often each block is, and new sets."""
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
    """The pricer whose weights prove the best bound with the first prices, on a coarse grid."""
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
    """Prices as integers, none negative, whose sum is positive and at most about `TOTAL_PRICE`."""
    # Floating point ends here: the proof is for these integers, whatever was rounded away, even if
    # some given prices are not finite.
    sound = np.where(np.isfinite(prices), np.maximum(prices, 0.0), 0.0)
    sound /= max(float(sound.max(initial=0.0)), np.finfo(np.float64).tiny)
    scaled: Prices = np.floor(sound / max(float(sound.sum()), 1.0) * TOTAL_PRICE).astype(np.int32)
    if not scaled.any():
        scaled[int(np.argmax(sound))] = 1
    return scaled


SCALE = 1000.0  # prices sum to this inside the LP, so that its absolute tolerances are small


class Cover(NamedTuple):
    """theta over the sets found so far, prices of the blocks, value of each kind."""

    theta: float
    price: Floats
    kind_value: Floats


class CoveringLP:
    """The master problem: fractional cover of all blocks by sets of single devices.

        theta = max t  subject to  sum over sets that hold v of lambda >= t   for every block v,
                                   sum over sets of kind k of lambda <= n_k   for every kind k.

    Its dual has a price for each block: minimize sum n_k z_k with z_k >= price(S) for every set S
    of kind k, and prices that sum to 1. The dual is solved here, with a row per set.
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
        """The optimum over the sets so far; None if HiGHS does not find it in time."""
        if limit_s is not None:  # HiGHS's limit is on the total time of all runs
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + limit_s)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._highs.getSolution()
        values = np.maximum(np.array(solution.col_value), 0.0) / SCALE
        objective = self._highs.getInfo().objective_function_value
        return Cover(objective / SCALE, values[: self.num_blocks], values[self.num_blocks :])


SWEEPS = 100  # most rounds over all half spaces
CLOSE = 1e-7  # a half space violated by less counts as met


def step_to_level(best: Floats, cuts: Floats, level: float, reach: Floats) -> Floats:
    """Prices near the best ones at which no cut is worth more than the level."""
    # The level method (Lemarechal, Nemirovskii and Nesterov 1995): the prices nearest to the best
    # ones so far at which the sets of every earlier pricing are worth at most the level. Distances
    # are relative to each block's first price (`reach`), so that large prices move further than
    # small ones. `best` and the result sum to 1. A cut states how often each block is held by all
    # devices together. O(m b) a round; near the level if the rounds do not suffice.
    prices = np.maximum(_project(best, cuts, level, reach), 0.0)
    total = prices.sum()
    return prices / total if total > 0 else best


@kernel(nogil=True, fastmath=True)
def _project(best: Floats, cuts: Floats, level: float, reach: Floats) -> Floats:
    # Hildreth's projection (1957): onto one half space after the other, again and again. `on_cut`
    # and `on_zero` are the multipliers, which stay >= 0: a later step may take back an earlier one.
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
