"""Windows: ideals that some devices may hold, while the others hold the rest, with no load above T.

Let a device of kind c have the price y_c per ns. If u_c devices of each kind hold a set I of blocks
and no load exceeds T, their time is worth at most T * sum of y_c u_c. A block v in I takes at least
min y_c time_c(v) of it, over kinds c with u_c > 0, and a net that I cuts at least min y_c weight_c:
the device that holds a pin of it inside I pays for it. So for *all* prices

    sum over v in I of min y_c time_c(v) + sum over cut nets of min y_c weight_c <= T sum of y_c u_c

and likewise for the rest of the blocks, which cuts the same nets, and the remaining devices. With
overlap each of the two sums must be within the right side alone. Good prices are the dual of the
fractional assignment of blocks to kinds; they are computed in floating point and then rounded to
integers, so that what they prove is exact. Replicas divide a load and add synchronisation to it, so
the inequality holds for them, too.

Example by hand: two blocks take 4 ns each on kind 1 and 12 ns each on kind 2, one device of each,
no nets. With prices y = (3, 1) every block takes 12 of a value of T (3 + 1), so 24 <= 4 T: T >= 6,
the fractional optimum (1.5 blocks and half a block). An ideal of one block needs 12 <= T on
device 2 alone, and 4 <= T on device 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem.integers import to_whole
from placegap.solvers.chains.ideals import Amounts, CurrentSet, IdealPath, Ideals, next_ideal, write
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.problem import LARGEST_LOAD, WORD

LARGEST_PRICE = 4096
STEPS = 150  # rounds of the search for prices
SCARCE = 0.34  # prices are also computed for clusters in which a kind has this share of devices

# With more vectors of devices, or more rows for their sets of kinds, the enumeration only tests
# what all devices together can hold: each row costs every ideal two sums, and each vector at least
# one comparison.
MOST_VECTORS, MOST_ROWS = 512, 32


@dataclass(frozen=True, eq=False)
class WindowRow:
    """One inequality over blocks and cut nets: the most that devices of some kinds can take."""

    #: work, weight: (b,): Of each block held, and of each net cut.
    work: Ints
    weight: Ints
    #: price, room: (D,) int64: A device of each kind takes ``T * price + room``.
    price: Ints
    room: Ints

    def most(self, used: Ints, limit: int) -> int:
        """The most that given numbers of devices of each kind take within a limit T."""
        pairs = zip(self.price.tolist(), self.room.tolist(), used.tolist(), strict=True)
        most: int = sum((limit * price + room) * u for price, room, u in pairs)
        return min(most, LARGEST_LOAD)


class PriceBook:
    """The rows for each set of kinds of a problem, each computed once."""

    def __init__(self, problem: KindsProblem) -> None:
        self.problem = problem
        self._known: dict[bytes, list[WindowRow]] = {}
        self._total_bytes = int(problem.blocks.resident_bytes.sum())
        self.of_all = find_prices(problem, np.ones(problem.num_kinds, np.bool_))
        #: Sets of kinds whose rows are columns of all ideals' sums, one set after another; empty
        #: where the vectors of devices, or these rows, are too many.
        self.in_sums: list[Flags] = []
        vectors = prod(count + 1 for count in problem.counts.tolist())
        # Sums over every ideal are kept while it is enumerated, as they change by one block at a
        # time.
        if vectors <= MOST_VECTORS and 2**problem.num_kinds <= MOST_ROWS:
            choices = product((False, True), repeat=problem.num_kinds)
            self.in_sums = [np.array(among, np.bool_) for among in choices]
        rows = [row for among in self.in_sums for row in self.rows(among)]
        if not rows or len(rows) > MOST_ROWS:
            self.in_sums, rows = [], self.of_all
        work = np.stack([row.work for row in rows], axis=1)
        weight = np.stack([row.weight for row in rows], axis=1)
        #: The sums of an ideal: for each row its cut, then for each row its work.
        self.amounts = Amounts(problem.nets, work if self.in_sums else 0 * work, weight)

    def rows(self, among: Flags) -> list[WindowRow]:
        """Rows for devices of some kinds: prices, blocks that none of them runs, and bytes."""
        # A block that none of them can run counts 1, and they may take 0 of these. Bytes are a row
        # only where each of the kinds has a limit (`room` is 0 where memory holds everything).
        key = among.tobytes()
        if key not in self._known:
            problem = self.problem
            rows = list(self.of_all) if among.all() else find_prices(problem, among)
            no_net = np.zeros(problem.num_nets, np.int64)
            nothing = np.zeros(problem.num_kinds, np.int64)
            unable = np.asarray(~problem.fits[among].any(axis=0), np.int64)
            if unable.any():
                rows.append(WindowRow(unable, no_net, nothing, nothing))
            if among.any() and (problem.room[among] > 0).all():
                room = np.where(among, np.minimum(problem.room, self._total_bytes), 0)
                rows.append(WindowRow(problem.blocks.resident_bytes, no_net, nothing, room))
            self._known[key] = rows
        return self._known[key]


def find_prices(problem: KindsProblem, among: Flags) -> list[WindowRow]:
    """Rows with good prices for these kinds: for all their devices, and with each kind scarce."""
    # Windows are parts of the devices, for which prices of the whole cluster may be poor:
    # prices for clusters that lack one kind cover them. Larger integer prices are more precise, but
    # price times load must stay within 64 bits.
    counts = np.where(among, problem.counts, 0).astype(np.float64)
    time = np.where(problem.fits & among[:, None], problem.time, -1)
    time = np.where(time < 0, np.inf, time)
    time = time[:, np.isfinite(time).any(axis=0)]
    mixes = [counts]
    if among.sum() > 1:
        for kind in np.flatnonzero(among):
            mixes.append(np.where(np.arange(len(counts)) == kind, SCARCE * counts, counts))
    largest_value = (problem.largest_load + 1) * max(1, int(problem.counts.sum()))
    largest = max(1, min(LARGEST_PRICE, LARGEST_LOAD // largest_value))
    found: dict[bytes, WindowRow] = {}
    for mix in mixes:
        price = to_whole(np.rint(_dual(time, mix) * largest))
        if price.any():
            price //= np.gcd.reduce(price)  # one kind alone has the price 1
            found.setdefault(price.tobytes(), _priced(problem, among, price))
    return list(found.values())


def _priced(problem: KindsProblem, among: Flags, price: Ints) -> WindowRow:
    own, never = np.flatnonzero(among), np.iinfo(np.int64).max
    cost = np.where(problem.fits, problem.time * price[:, None], never)[own]
    least = cost.min(axis=0)
    work = np.where(least == never, 0, least)
    weight = (problem.weight * price[:, None])[own].min(axis=0)
    return WindowRow(work, weight, price, np.zeros_like(price))


def _dual(time: Floats, counts: Floats) -> Floats:
    """Prices, the largest 1, that nearly maximize sum of min y time / sum of y counts."""
    own = np.flatnonzero(counts > 0)
    best = np.where(counts > 0, 1.0, 0.0)
    if len(own) > 1 and time.shape[1]:
        best[own] = _ascend(np.ascontiguousarray(time[own]), counts[own])
    return best


# numpy adds up eight numbers and more in another order
@kernel(bounded=lambda time, counts: 2 * STEPS * time.size if len(time) < 8 else math.inf)
def _ascend(time: Floats, counts: Floats) -> Floats:
    """Prices by subgradient ascent: blocks go to their cheapest kind, busy kinds cost more."""
    # The value to maximize, sum of min y time / sum of y counts, does not change if all prices are
    # scaled, so steps are taken in the logarithm. They start from prices at which every kind would
    # be worth the same on all blocks.
    kinds, blocks = time.shape
    log, best, record, rate = np.zeros(kinds), np.ones(kinds), -1.0, 0.6
    for kind in range(kinds):
        total = 1e-9
        for v in range(blocks):
            if time[kind, v] != np.inf:
                total += time[kind, v]
        log[kind] = -math.log(total)
    for _ in range(STEPS):
        price, load, worth = np.zeros(kinds), np.zeros(kinds), 0.0
        for kind in range(kinds):
            price[kind] = math.exp(log[kind] - log.max())  # `np.exp` differs from compiled code
        for v in range(blocks):
            kind, least = 0, price[0] * time[0, v]
            for other in range(1, kinds):
                now = price[other] * time[other, v]
                if now < least:
                    kind, least = other, now
            load[kind] += time[kind, v]
            worth += least
        bound = worth / (price * counts).sum()
        if bound > record:
            record, best = bound, price
        # A kind with more work per device than the mean is too cheap. The steps shrink by 3 % a
        # round.
        load /= counts
        if load.max() <= 0:
            break
        log += rate * (load - load.mean()) / load.max()
        rate *= 0.97
    return best


def work_bound(problem: KindsProblem, prices: list[WindowRow]) -> int:
    """A lower bound on every plan's max_load: the priced work, and the heaviest block."""
    # The first is the inequality above for all devices and all blocks, which cut no net. The second
    # takes each block on the stage that is fastest for it, replicas and their synchronisation
    # included.
    low = 0
    for p in prices:
        low = max(low, -(-int(p.work.sum()) // int(p.price @ problem.counts)))
    never = np.iinfo(np.int64).max
    least = np.full(problem.num_blocks, never)
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


class WindowTests(NamedTuple):
    """Arrays for the kernel: the tests of an ideal under each vector of devices."""

    #: held, rest: (V, 2) int64: The range of rows for the devices of each vector, and for the other
    #: devices.
    held: Ints
    rest: Ints
    #: most_held, most_rest: (V, R) int64: The most that these devices and the others take of a row.
    most_held: Ints
    most_rest: Ints
    total: Ints  # (R,) int64: Work of all blocks under each row
    overlap: bool
    latest: Ints  # (1,) int64: The vector that the last ideal passed with


def window_tests(book: PriceBook, limit: int) -> WindowTests:
    """The tests for loads up to a limit."""
    # With too many sets of kinds there is one test for an ideal and its rest together: all devices
    # do all work, and both sides pay for the nets between them, so twice the cut is at most what
    # the work leaves.
    problem = book.problem
    counts, overlap, total = (problem.counts, problem.overlap, book.amounts.of_block.sum(axis=0))
    latest = np.zeros(1, np.int64)
    if not book.in_sums:  # the sums over the blocks are 0 here
        spare = [
            row.most(counts, limit) - int(row.work.sum()) * (not overlap) for row in book.of_all
        ]
        most = np.array([spare], np.int64) // 2
        every, none = np.array([[0, len(total)]]), np.zeros((1, 2), np.int64)
        return WindowTests(every, none, most, most, total, overlap, latest)
    sizes = np.cumsum([0, *(len(book.rows(among)) for among in book.in_sums)])
    place = {among.tobytes(): sizes[at : at + 2] for at, among in enumerate(book.in_sums)}
    rows = [row for among in book.in_sums for row in book.rows(among)]
    vectors = np.array(list(product(*(range(count + 1) for count in counts.tolist()))), np.int64)

    def tests(used: Ints) -> tuple[Ints, Ints]:
        most = np.array([[row.most(u, limit) for row in rows] for u in used], np.int64)
        return np.stack([place[(u > 0).tobytes()] for u in used]), most

    held, most_held = tests(vectors)
    rest, most_rest = tests(counts - vectors)
    return WindowTests(held, rest, most_held, most_rest, total, overlap, latest)


def _steps(w: WindowTests, amounts: Amounts, now: CurrentSet, path: IdealPath, *to: Any) -> int:
    """Steps of `walk_in_windows`: an ideal is tested, and a block joins for it and leaves."""
    nets, succs = (int(np.diff(p).max(initial=0)) for p in (amounts.nets.block_ptr, path.succ_ptr))
    each = w.most_held.size + 2 * succs + 2 * nets * (1 + amounts.width)
    return int(to[-1] - path.done[0]) * each


@kernel(bounded=_steps)
def walk_in_windows(
    w: WindowTests, amounts: Amounts, now: CurrentSet, path: IdealPath, ideals: Ideals, stop: int
) -> bool:
    """Go on enumerating, and keep the ideals that pass some test (`enumerate_ideals`)."""
    rows, s = len(w.total), now.sums
    while path.done[0] < stop and path.done[1] < len(ideals.members):
        if not next_ideal(amounts, now, path):
            return True
        # One vector of devices suffices. Neighbouring ideals mostly pass with the same one: it
        # comes first.
        for number in range(len(w.held)):
            x = (w.latest[0] + number) % len(w.held)
            passes = True
            for r in range(w.held[x, 0], w.held[x, 1]):
                work, cut = s[rows + r], s[r]
                if (max(work, cut) if w.overlap else work + cut) > w.most_held[x, r]:
                    passes = False
                    break
            if passes:
                for r in range(w.rest[x, 0], w.rest[x, 1]):
                    work, cut = w.total[r] - s[rows + r], s[r]
                    if (max(work, cut) if w.overlap else work + cut) > w.most_rest[x, r]:
                        passes = False
                        break
            if passes:
                w.latest[0] = x
                write(now, ideals, path.done[1])
                path.done[1] += 1
                break
    return False


class RowSums(NamedTuple):
    """Work and cut of each of N ideals under each row, (N, r); and the work of all blocks."""

    work: Ints
    cut: Ints
    total: Ints


class PricedWindows:
    """The tests for a list of ideals; sums are kept for each set of kinds."""

    def __init__(self, book: PriceBook, ideals: Ideals) -> None:
        self.problem, self.book, self.ideals = book.problem, book, ideals
        self._sums: dict[bytes, RowSums] = {}
        at, rows = 0, ideals.sums.shape[1] // 2
        for among in book.in_sums:
            own = book.rows(among)
            work = ideals.sums[:, rows + at : rows + at + len(own)].copy()
            cut = ideals.sums[:, at : at + len(own)].copy()
            total = np.array([row.work.sum() for row in own], np.int64)
            self._sums[among.tobytes()] = RowSums(work, cut, total)
            at += len(own)

    def inside(self, used: Ints, limit: int) -> Flags:
        """Ideals that these numbers of devices may hold while the other devices hold the rest."""
        found = self.may_hold(used, limit, rest=False)
        found &= self.may_hold(self.problem.counts - used, limit, rest=True)
        return found

    def may_hold(self, used: Ints, limit: int, *, rest: bool) -> Flags:
        """Whether numbers of devices per kind may hold each ideal, or what it leaves, within T."""
        among = used > 0
        most = np.array([row.most(used, limit) for row in self.book.rows(among)], np.int64)
        return np.asarray(_may_hold(self.sums(among), most, self.problem.overlap, rest))

    def sums(self, among: Flags) -> RowSums:
        """The sums of each ideal for some kinds."""
        key = among.tobytes()
        if key not in self._sums:
            rows, ideals = self.book.rows(among), self.ideals
            work, cut = (np.zeros((ideals.size, len(rows)), np.int64) for _ in range(2))
            for at, row in enumerate(rows):
                work[:, at] = set_sums(ideals.members, row.work)
                cut[:, at] = set_sums(ideals.cut_nets, row.weight)
            total = np.array([row.work.sum() for row in rows], np.int64)
            self._sums[key] = RowSums(work, cut, total)
        return self._sums[key]


@kernel(bounded=True)
def _may_hold(sums: RowSums, most: Ints, overlap: bool, rest: bool) -> Flags:
    found = np.ones(len(sums.work), np.bool_)
    for i in range(len(found)):
        for r in range(len(most)):
            work = sums.total[r] - sums.work[i, r] if rest else sums.work[i, r]
            cut = sums.cut[i, r]
            if (max(work, cut) if overlap else work + cut) > most[r]:
                found[i] = False
                break
    return found


def set_sums(sets: Ints, weight: Ints) -> Ints:
    """Sum of the weights of each set's elements, (N,); O(N bits / 8)."""
    # One byte of all sets at a time: a table has the sum of weights for each of its 256 values.
    if not weight.any():
        return np.zeros(len(sets), np.int64)
    padded = np.zeros(sets.shape[1] * WORD, np.int64)
    padded[: len(weight)] = weight
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    table = padded.reshape(-1, 8) @ bits.T.astype(np.int64)
    sums = np.zeros(len(sets), np.int64)
    for own, byte in zip(table, np.ascontiguousarray(sets).view(np.uint8).T, strict=True):
        sums += own[byte]
    return sums
