"""Windows for any devices: which ideals some devices may hold, and the others the rest.

Give a device of kind c the price y_c per ns. If u_c devices of each kind hold a set I of blocks and
no load exceeds T, their time is worth at most T * sum of y_c u_c. A block v in I takes at least
min y_c time_c(v) of it, over kinds c with u_c > 0, and a net that I cuts at least min y_c weight_c:
some piece holds a pin of it inside I. So for *all* prices

    sum over v in I of min y_c time_c(v) + sum over cut nets of min y_c weight_c <= T sum of y_c u_c

and likewise for the rest of the blocks, which cuts the same nets, and the devices that are left.
With overlap each of the two sums has to obey alone. Good prices are the dual of the fractional
assignment of blocks to kinds; they are looked for in floating point and then rounded to integers,
so that what they prove is exact. With one kind of accelerator and of host this is the fractional
knapsack of `work_bound`. Replicas share a load and add to it, so it holds for them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import Amounts, CurrentSet, IdealPath, Ideals, next_ideal, write
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.problem import LARGEST_LOAD
from placegap.solvers.ideal_dp.any_kinds.set_sums import has_any, set_sums

LARGEST_PRICE = 4096
STEPS = 150
"""Rounds of the search for prices."""

SCARCE = 0.34
"""Prices are also made for clusters in which one kind is so much rarer."""


class CutFilter(NamedTuple):
    """Which ideals are kept: those whose cut costs at most `most`, at priced weights (e,)."""

    weight: Ints
    most: int


@dataclass(frozen=True)
class Prices:
    """Prices of some kinds, and what they make of blocks and nets.

    Attributes
    ----------
    price : (D,) int64
        Of a ns on each kind; 0 for the others, which must not be used.
    work, weight : (b,), (e,) int64
        Least price of each block and of each cut net.
    """

    price: Ints
    work: Ints
    weight: Ints


class PriceBook:
    """Prices for sets of kinds of a problem, found once."""

    def __init__(self, problem: KindsProblem) -> None:
        self.problem = problem
        self._known: dict[bytes, list[Prices]] = {}

    def prices(self, among: Flags) -> list[Prices]:
        """Prices for some kinds, the others being of no use; none for no kinds."""
        key = among.tobytes()
        if key not in self._known:
            self._known[key] = find_prices(self.problem, among) if among.any() else []
        return self._known[key]

    @property
    def of_all(self) -> list[Prices]:
        """Prices for all kinds."""
        return self.prices(np.ones(self.problem.num_kinds, np.bool_))


def find_prices(problem: KindsProblem, among: Flags) -> list[Prices]:
    """Prices of these kinds: for the devices there are, and with each kind scarce."""
    counts = np.where(among, problem.counts, 0).astype(np.float64)
    time = np.where(problem.fits & among[:, None], problem.time, -1)
    time = np.where(time < 0, np.inf, time)
    time = time[:, np.isfinite(time).any(axis=0)]
    mixes = [counts]
    if among.sum() > 1:
        for kind in np.flatnonzero(among):
            mixes.append(np.where(np.arange(len(counts)) == kind, SCARCE * counts, counts))
    largest = max(1, min(LARGEST_PRICE, LARGEST_LOAD // _largest_value(problem)))
    found: dict[bytes, Prices] = {}
    for mix in mixes:
        price = np.rint(_dual(time, mix) * largest).astype(np.int64)
        if price.any():
            found.setdefault(price.tobytes(), _priced(problem, among, price))
    return list(found.values())


def _largest_value(problem: KindsProblem) -> int:
    return (problem.largest_load + 1) * max(1, int(problem.counts.sum()))


def _priced(problem: KindsProblem, among: Flags, price: Ints) -> Prices:
    own = np.flatnonzero(among)
    cost = np.where(problem.fits, problem.time * price[:, None], np.iinfo(np.int64).max)[own]
    least = cost.min(axis=0)
    work = np.where(least == np.iinfo(np.int64).max, 0, least)
    return Prices(price, work, (problem.weight * price[:, None])[own].min(axis=0))


def _dual(time: Floats, counts: Floats) -> Floats:
    """Prices, the largest 1, that nearly maximize sum of min y time / sum of y counts."""
    own = np.flatnonzero(counts > 0)
    best = np.where(counts > 0, 1.0, 0.0)
    if len(own) > 1 and time.shape[1]:
        best[own] = _ascend(np.ascontiguousarray(time[own]), counts[own])
    return best


@kernel
def _ascend(time: Floats, counts: Floats) -> Floats:
    """Give every block to its cheapest kind, make kinds with much to do dearer, and again."""
    kinds, blocks = time.shape
    log, best, record = np.zeros(kinds), np.ones(kinds), -1.0
    for kind in range(kinds):
        total = 1e-9
        for v in range(blocks):
            if time[kind, v] != np.inf:
                total += time[kind, v]
        log[kind] = -np.log(total)
    for step in range(STEPS):
        price = np.exp(log - log.max())
        load, worth = np.zeros(kinds), 0.0
        for v in range(blocks):
            kind = int(np.argmin(price * time[:, v]))
            load[kind] += time[kind, v]
            worth += price[kind] * time[kind, v]
        bound = worth / (price * counts).sum()
        if bound > record:
            record, best = bound, price
        load /= counts
        if load.max() <= 0:
            break
        log += 0.6 * 0.97**step * (load - load.mean()) / load.max()
    return best


def work_bound(problem: KindsProblem, prices: list[Prices]) -> int:
    """A lower bound on every plan's max_load: the priced work, and the heaviest block.

    Examples
    --------
    43 ns of work on two devices, of which the second takes twice as long for everything: with the
    prices 2 and 1 all is worth 86, and so are 3 T of the two.

    >>> from placegap.instances import Cluster, Device, Graph, Instance, MaxLoad, Op
    >>> from placegap.solvers.chains.kinds_problem import build_kinds
    >>> ops = tuple(Op(name=f"{t}", time_ns={"x": t, "y": 2 * t}) for t in (20, 12, 11))
    >>> devices = tuple(Device(name=kind, kind=kind) for kind in "xy")
    >>> instance = Instance(name="i", graph=Graph(name="g", ops=ops, edges=()),
    ...                     cluster=Cluster(name="c", devices=devices, links=()))
    >>> problem = build_kinds(instance, MaxLoad(plans="chain"))
    >>> work_bound(problem, find_prices(problem, np.ones(2, np.bool_)))
    29
    """
    low = 0
    for p in prices:
        low = max(low, -(-int(p.work.sum()) // int(p.price @ problem.counts)))
    never = np.iinfo(np.int64).max
    least = np.full(problem.guide.num_blocks, never)
    for stage in problem.pool.stages:
        able = problem.fits[stage.kind]
        load = -(-problem.time[stage.kind] // stage.replicas)
        top, bottom = stage.sync
        if bottom == 0:
            able = able & (problem.parameter_bytes == 0)
        else:
            sync = problem.parameter_bytes.astype(object) * top
            load = load + np.array([-(-int(s) // bottom) for s in sync], np.int64)
        least = np.minimum(least, np.where(able, load, never))
    return max(low, int(least[least < never].max(initial=0)))


def keep_all_that_may_matter(problem: KindsProblem, prices: list[Prices], limit: int) -> CutFilter:
    """The test of an ideal and its rest together, whatever devices hold which; for enumeration."""
    nothing = np.zeros(problem.guide.num_nets, np.int64)
    best, share = CutFilter(nothing, 0), -1.0
    for p in prices:
        spare = limit * int(p.price @ problem.counts)
        if not problem.guide.overlap:
            spare -= int(p.work.sum())
        if spare < 0:
            return CutFilter(nothing, -1)
        tightness = float(p.weight.sum()) / (spare + 1)
        if tightness > share:
            best, share = CutFilter(p.weight, spare // 2), tightness
    return best


@kernel(allocates=False)
def walk_below(
    most: int, amounts: Amounts, now: CurrentSet, path: IdealPath, ideals: Ideals, stop: int
) -> bool:
    """Enumerate on, and keep the ideals of a cut of at most `most`; see `enumerate_ideals`."""
    while path.done[0] < stop and path.done[1] < len(ideals.members):
        if not next_ideal(amounts, now, path):
            return True
        if now.sums[0] <= most:
            write(now, ideals, path.done[1])
            path.done[1] += 1
    return False


def runs_on(problem: KindsProblem, among: Flags) -> Flags:
    """Blocks that some of these kinds can run and hold, (b,)."""
    return np.asarray(problem.fits[among].any(axis=0), np.bool_)


class PricedWindows:
    """The tests for a list of ideals; sums are kept per set of kinds.

    Parameters
    ----------
    book : PriceBook
    ideals : Ideals
    """

    def __init__(self, book: PriceBook, ideals: Ideals) -> None:
        self.problem, self.book, self.ideals = book.problem, book, ideals
        self._sums: dict[bytes, list[tuple[Prices, Ints, Ints]]] = {}
        blocks = book.problem.guide.blocks
        self._size = set_sums(ideals.members, blocks.resident_bytes)
        self._total_size = int(blocks.resident_bytes.sum())

    def may_hold(self, used: Ints, limit: int, *, rest: bool) -> Flags:
        """Whether devices, so many per kind, may hold each ideal, or what it leaves, within T."""
        problem, among = self.problem, used > 0
        found = np.ones(self.ideals.size, np.bool_)
        able = runs_on(problem, among)
        if not able.all():
            found &= ~has_any(~self.ideals.members if rest else self.ideals.members, ~able)
        for p, work, cut in self.sums(among):
            most = limit * int(p.price @ used)
            amount = int(p.work.sum()) - work if rest else work
            if problem.guide.overlap:
                found &= (amount <= most) & (cut <= most)
            else:
                found &= amount + cut <= most
        if (problem.room[among] > 0).all():
            room = sum(int(r) * int(u) for r, u in zip(problem.room, used, strict=True))
            size = self._total_size - self._size if rest else self._size
            found &= size <= min(room, LARGEST_LOAD)
        return found

    def sums(self, among: Flags) -> list[tuple[Prices, Ints, Ints]]:
        """Prices for some kinds, and the priced work and cut of each ideal."""
        key = among.tobytes()
        if key not in self._sums:
            self._sums[key] = [
                (p, set_sums(self.ideals.members, p.work), set_sums(self.ideals.cut_nets, p.weight))
                for p in self.book.prices(among)
            ]
        return self._sums[key]
