"""Branch and bound over the cuts of one number of stages, with the value of a matrix game as bound.

Relaxation: a path through the events of an iteration is a sum of step times with fixed counts, and
no iteration is shorter than one of its paths. So for given counts, or for a mean of several paths
(a *mixture*), the cheapest chain bounds the iteration time of all chains. A chain is a walk over
pairs of cuts, and a DP finds the cheapest one. The best mixture of paths against the best mixture
of walks is a matrix game, solved as an LP over the paths and walks generated so far. Each new walk
adds its longest path, and the mixture of walks adds the longest path of its mean times. The LP only
chooses the weights: they are rounded, and what they prove is summed in integers.

State: a part of the search (`Part`) has the pairs of cuts that each stage may still take. It is
split at a cut, or, where devices have several stages, at the number n of layers of a device: n <= k
or n >= k + 1. Such a limit is a sum over stages, like a path, and enters the mixture with a price
y >= 0: within n <= k no walk costs less than the cheapest of all walks with y (n - k) added.

Example by hand: three layers of 1 ns forward and 2 ns backward on two devices, `1f1b`, two
microbatches. Times of the steps (f0, f1, b1, b0) are (1, 2, 4, 2) for the chain 1|2 and
(2, 1, 2, 4) for 2|1. The iterations take 15 and 13 ns; the longest paths have the counts
P = (1, 2, 2, 1) and Q = (1, 1, 1, 2). P costs 15 and 12 on the two chains, Q costs 11 and 13. Alone
they prove 12 and 11, but (2 P + 3 Q) / 5 costs 12.6 on both: 13 is proved without a split.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import islice, product
from typing import NamedTuple

import highspy
import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import Instance, PipelineIteration, Plan
from placegap.instances.problem.integers import NEVER, to_whole
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.progress import Known
from placegap.solvers.pipeline.cuts import CutProblem, devices_alike, links_of_kinds
from placegap.solvers.pipeline.event_times import (
    EventTable,
    PairLayers,
    cheap_pairs,
    cheapest_walk,
    improve,
    iteration_time,
    layers_of,
    longest_path,
    times_of,
)

MOST_ORDERS = 120  # most orders of different devices that are tried for one chain


class Judge(Known):
    """The best plan; each chain is evaluated once."""

    def __init__(
        self,
        instance: Instance,
        semantics: PipelineIteration,
        clock: Clock,
        below_ns: int | None = None,
    ) -> None:
        super().__init__()
        #: If set, the first plan must be below it.
        self.instance, self.semantics, self.below_ns = instance, semantics, below_ns
        self.clock = clock
        #: The chain of the best plan, (S,) int64; None if a placer or another method found it.
        self.walk: tuple[Ints, CutProblem] | None = None
        #: 1 while plans that tie with the best one are looked for, else 0.
        self.slack_ns = 0
        self._alike, self._links_alike = devices_alike(instance), links_of_kinds(instance)
        self._known: dict[tuple[int, bytes], bool] = {}

    @property
    def limit_ns(self) -> int | None:
        """Only plans below it matter; None if every plan does."""
        return self.below_ns if self.value is None else self.value + self.slack_ns

    @property
    def num_used(self) -> int:
        """Devices of the best plan."""
        return 0 if self.plan is None else len(set(self.plan.placement))

    def one_order(self, problem: CutProblem) -> bool:
        """Whether the value of a chain is the same for all orders of devices of its kinds."""
        return self._alike or (bool(problem.kinds) and self._links_alike)

    def try_orders(self, walk: Ints, problem: CutProblem) -> bool:
        """Evaluate a chain on the devices in every order; False if orders are left out."""
        key = id(problem), walk.tobytes()
        if key not in self._known:
            self._known[key] = self._try_orders(walk, problem)
        return self._known[key]

    def _try_orders(self, walk: Ints, problem: CutProblem) -> bool:
        count = len(walk) // self.semantics.stages_per_device
        kind = problem.kind[walk[:count]].tolist()
        every = problem.kinds or (tuple(range(self.instance.num_devices)),)
        fixed = self.one_order(problem)
        # One order more than is tried: so it shows whether there are more.
        tried = list(islice(_orders(kind, every), 1 if fixed else MOST_ORDERS + 1))
        complete = len(tried) <= MOST_ORDERS
        if not complete and not problem.kinds:
            # The first 120 orders would differ in the last devices alone, so that four spread ones
            # are tried instead.
            tried = _likely(self.instance, count)
        stage = stages_of(walk, problem)
        for number, devices in enumerate(tried[:MOST_ORDERS]):
            # The first order is evaluated even without time, so that a run that is stopped early
            # has a plan.
            if number and self.clock.left_s == 0.0:
                return False
            self.judge(_on(devices, stage))
            # Identity, not equality: an equal plan of a placer came without a walk.
            if self.plan is not None and self.plan.stage is stage:
                self.walk = walk, problem
        return complete

    def keep(self, walk: Ints, problem: CutProblem) -> bool:
        """Replace the best plan by a chain of the same value; False if its value is another one."""
        plan = self.plan
        assert plan is not None
        assert plan.stage is not None
        count = len(walk) // self.semantics.stages_per_device
        device = dict(zip(plan.stage, plan.placement, strict=True))
        devices = tuple(device[s][0] for s in range(count))
        kind = problem.kind[walk[:count]].tolist()
        kinds = problem.kinds
        # On a device of another kind a stage would not have the work and memory that the chain
        # states, so the first devices of the right kinds are taken.
        if kinds and any(k not in kinds[d] for k, d in zip(devices, kind, strict=True)):
            devices = next(_orders(kind, kinds))
        other = _on(devices, stages_of(walk, problem))
        same = feasible_value(self.instance, other, self.semantics) == self.value
        if same:
            self.plan, self.walk = other, (walk, problem)
        return same

    def judge(self, plan: Plan) -> None:
        """Keep a feasible plan if it is better than the best, or ties with it on more devices."""
        value_ns = feasible_value(self.instance, plan, self.semantics)
        if value_ns is None or (self.below_ns is not None and value_ns >= self.below_ns):
            return
        if self.improve(value_ns, plan):
            # The walk belonged to the plan that was replaced.
            self.walk = None
        elif value_ns == self.value and len(set(plan.placement)) > self.num_used:
            self.plan, self.walk = plan, None


def stages_of(walk: Ints, problem: CutProblem) -> tuple[int, ...]:
    before = problem.members[problem.head[walk]].sum(axis=0)
    return tuple((len(walk) - before)[problem.block].tolist())


def _on(devices: Sequence[int], stage: tuple[int, ...]) -> Plan:
    """Ops in their stages, stages on the devices in turn."""
    return Plan(tuple((devices[s % len(devices)],) for s in stage), stage=stage)


def _orders(
    kind: Sequence[int], kinds: Sequence[Sequence[int]], taken: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Devices for stages of these kinds, each device once, the lower numbers first."""
    if len(taken) == len(kind):
        yield taken
        return
    for k in kinds[kind[len(taken)]]:
        if k not in taken:
            yield from _orders(kind, kinds, (*taken, k))


def _likely(instance: Instance, count: int) -> list[tuple[int, ...]]:
    """Some orders of the devices: as they are, by speed, and both backwards."""
    speed = np.maximum(instance.arrays.time_ns, 0).sum(axis=0)
    rows = [list(range(instance.num_devices)), np.argsort(speed, kind="stable").tolist()]
    chosen = [tuple(row[:count]) for row in rows]
    return list(dict.fromkeys([*chosen, *(row[::-1] for row in chosen)]))


MOST_BITS = 16  # most bits of an integer weight of a path


class WalkLimits(NamedTuple):
    """Limits on the walks of a part: ``rows @ times <= most``, for times as of `times_of`."""

    rows: Ints
    most: Ints

    def tightened(self, row: Ints, most: int) -> WalkLimits:
        """These limits and one more, which replaces a limit of the same row."""
        other = (self.rows != row).any(axis=1)
        return WalkLimits(np.vstack([self.rows[other], row]), np.append(self.most[other], most))


class Part(NamedTuple):
    """Walks over the given pairs within the limits."""

    # Walks, paths and weights of the parent part start its LP.
    layers: PairLayers
    limits: WalkLimits
    walks: tuple[Ints, ...] = ()
    paths: tuple[Ints, ...] = ()
    center: Weighted | None = None


class Weighted(NamedTuple):
    """Integer weights of a walk: `scale` times a mixture of paths, plus prices of the limits."""

    # Within the limits the prices add at most `free`. So no iteration of a walk within the limits
    # is shorter than (weight @ times - free) / scale.
    weight: Ints
    scale: int
    free: int

    def toward(self, other: Weighted) -> Weighted:
        """A quarter of the way to other weights, rounded so that the bound still holds."""
        if other.scale != self.scale:
            return other
        # No time is negative, so weights may be rounded down; what is subtracted is rounded up.
        weight = (self.weight * 3 + other.weight) // 4
        return Weighted(weight, self.scale, -((-3 * self.free - other.free) // 4))


class Game:
    """What the bounds of all parts of a search share: the problem, the events and the paths."""

    def __init__(
        self, problem: CutProblem, table: EventTable, num_stages: int, num_devices: int
    ) -> None:
        self.problem, self.table = problem, table
        #: (N, 2 E + S) int64: Paths on which one stage or one device does nearly all work.
        self.paths = np.unique(
            list(_stage_paths(table, num_stages, num_devices, table.num_steps // num_stages)),
            axis=0,
        )
        #: Further longest paths, in the order in which they were found.
        self.met = dict[bytes, Ints]()
        most = sum(int(times.max(initial=0)) for times in (problem.work_ns, problem.update_ns))
        most += int(problem.forth_ns.max(initial=0) + problem.back_ns.max(initial=0))
        # Upper bounds on the length of a path and on a limit, so that no sum of `weighted` leaves
        # 64 bits.
        self._most = max(1, most) * len(table.step) * 2  # no path is longer
        self._size = 1 + num_stages * int(problem.size.max(initial=0))  # no limit is larger

    def weighted(self, limits: WalkLimits, solved: Solved) -> Weighted:
        """Integer weights of a mixture of paths with prices of limits."""
        # As fine as possible while the costs of all paths together stay below 2**60.
        scale = 1 << max(0, min(MOST_BITS, 60 - self._most.bit_length()))
        of_paths, prices = solved.of_paths / solved.of_paths.sum() * scale, solved.prices * scale
        whole = to_whole(of_paths)
        # Any weights >= 0 that sum to `scale` are a mixture: what rounding cuts off goes to the
        # largest, where it changes the bound least.
        whole[int(np.argmax(whole))] += scale - int(whole.sum())
        # Likewise any prices >= 0 are valid (Lagrange), so prices that would overflow are scaled
        # down: this weakens the bound, but it stays a bound.
        cut = min(1.0, 2.0**60 / max(1.0, 2.0 * float(prices.sum()) * self._size))
        price = to_whole(prices * cut)
        weight = np.asarray(whole @ solved.paths, np.int64) + price @ limits.rows
        return Weighted(weight, scale, int(price @ limits.most))

    def proven(self, layers: PairLayers, weighted: Weighted) -> tuple[int, Ints]:
        """The bound that some weights prove, and the cheapest walk under them."""
        walk = cheapest_walk(self.problem, layers, weighted.weight)
        if walk.cost >= NEVER:
            return NEVER, walk.pairs
        # Rounded up, as iteration times are integers.
        return -((weighted.free - walk.cost) // weighted.scale), walk.pairs

    def cut_off(self, layers: PairLayers, value_ns: int) -> PairLayers:
        """The pairs without those that a single path excludes from all chains below a value."""
        paths = np.vstack([self.paths, *list(self.met.values())[-LAST_PATHS:]])
        return cheap_pairs(self.problem, layers, paths, value_ns - 1)

    def time(self, walk: Ints) -> int:
        return iteration_time(self.table, times_of(self.problem, walk))


class Solved(NamedTuple):
    """Optimum of the LP: a mixture of paths, prices of limits, a mixture of walks, the value."""

    paths: Ints
    of_paths: Floats
    prices: Floats
    of_walks: Floats
    value_ns: float


class Mixture:
    """The LP of one part of a search: max t, where t is at most the cost of each walk."""

    def __init__(self, game: Game, part: Part, threads: int = 1) -> None:
        # The cost of a walk is its mean over a mixture of paths, plus the price of a limit for each
        # unit by which the walk exceeds it.
        self.game, self.limits = game, part.limits
        self.walks, self.times = list[Ints](), list[Ints]()
        self.paths = dict[bytes, Ints]()
        for path in (*game.paths, *part.paths):
            self.paths[path.tobytes()] = path
        self._threads = threads

    def add(self, walk: Ints) -> None:
        """Add a walk and its longest path."""
        self.walks.append(walk)
        self.times.append(times_of(self.game.problem, walk))
        self.add_path(self.times[-1])

    def add_path(self, times: Floats | Ints) -> None:
        """Add the longest path for some times."""
        path = longest_path(self.game.table, times)
        self.paths.setdefault(path.tobytes(), path)
        self.game.met.setdefault(path.tobytes(), path)

    def solve(self) -> Solved:
        """The best mixture of paths and prices against the walks, and the best mixture of walks."""
        paths = np.stack(list(self.paths.values()))
        times = np.stack(self.times)
        table = times.astype(float) @ paths.T
        unit = float(table.max()) or 1.0
        beyond = (times @ self.limits.rows.T - self.limits.most).astype(float)
        # Costs are scaled to at most 1. `beyond` is negative for a walk within the limit, so prices
        # lower its row: they pay only where walks of the mixture break the limit.
        table = np.hstack([table / unit, beyond])
        rows, columns = table.shape
        priced = np.arange(columns) >= len(paths)
        # Columns: weights of the paths, prices of the limits, t. Rows: (costs) - t >= 0 for each
        # walk, and weights that sum to 1. The duals of the rows are the mixture of walks.
        model = highspy.HighsModel()
        lp = model.lp_
        inf = highspy.kHighsInf
        lp.num_col_, lp.num_row_ = columns + 1, rows + 1
        lp.col_cost_ = np.append(np.zeros(columns), -1.0)
        lp.col_lower_ = np.append(np.zeros(columns), -inf)
        # If all walks so far break a limit, its price would grow without end: hence MOST_PRICE.
        lp.col_upper_ = np.append(np.where(priced, MOST_PRICE, inf), inf)
        lp.row_lower_ = np.append(np.zeros(rows), 1.0)
        lp.row_upper_ = np.append(np.full(rows, inf), 1.0)
        dense = np.vstack([np.column_stack([table, -np.ones(rows)]), np.append(~priced, 0.0)])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.arange(0, (rows + 1) * (columns + 1) + 1, columns + 1)
        lp.a_matrix_.index_ = np.tile(np.arange(columns + 1), rows + 1)
        lp.a_matrix_.value_ = dense.ravel()
        highs = silent_highs(threads=self._threads, presolve="off")
        highs.passModel(model)
        highs.run()
        found = highs.getSolution()
        chosen = np.maximum(np.array(found.col_value[:columns]), 0.0)
        mixture, prices = chosen[~priced], chosen[priced] * unit
        of_walks = np.maximum(np.abs(np.array(found.row_dual[:rows])), 0.0)
        # Every mixture proves something: should the LP fail, equal weights are worse but valid.
        if mixture.sum() <= 0:
            mixture = np.full(len(paths), 1.0)
        if of_walks.sum() <= 0:
            of_walks = np.full(rows, 1.0)
        value_ns = float(found.col_value[-1]) * unit
        return Solved(paths, mixture, prices, of_walks / of_walks.sum(), value_ns)


# Highest price of a unit beyond a limit; 1 is the cost of the longest path of all walks. So a walk
# that breaks a limit by one unit costs more than any plan.
MOST_PRICE = 4.0
# Most single paths that are tried on all pairs, the latest ones. With none, 128 layers on 16
# devices take 30 times the parts; with all, long searches spend most of their time there.
LAST_PATHS = 300
ROUNDS = 100  # most rounds of LP and cheapest walk in one part of the search
STALLED = 12  # rounds without progress after which a part is split
# A part is split once further rounds could close at most 1/16 of the gap to the best plan: else
# most of the time goes into the last thousandth of bounds that are per cents too low.
CONVERGED = 16
LEAST_SPLIT = 0.01  # least x (1 - x) for the fraction x of a mean number of layers to split at


class PartSearch:
    """All chains of S stages on p devices; `judge` keeps the best plan over all S."""

    def __init__(
        self,
        problem: CutProblem,
        judge: Judge,
        table: EventTable,
        beside: list[list[tuple[int, int]]],
        clock: Clock,
    ) -> None:
        # `beside` is from `held_beside`: how many other microbatches each stage holds.
        self.problem, self.judge, self.table, self.clock = problem, judge, table, clock
        self.stages, self.beside = len(beside), beside
        self.num_devices = len(beside) // judge.semantics.stages_per_device
        self.game = Game(problem, table, self.stages, self.num_devices)
        every = np.arange(len(problem.tail))
        self.layers = layers_of([every[self._may(s)] for s in range(self.stages)])
        self.parts = 0
        #: Least bound of the chains that were not evaluated on all orders of the devices.
        self.open_ns = NEVER
        self._heap = [(0, 0, self._whole(self.layers))]

    def _whole(self, layers: PairLayers) -> Part:
        """The first part of a search."""
        width = 2 * self.table.num_steps + self.stages
        none = WalkLimits(np.zeros((0, width), np.int64), np.zeros(0, np.int64))
        return Part(layers, none)

    def _may(self, s: int) -> Flags:
        """Pairs that may be stage s: they fit, and leave a block for each other stage."""
        problem = self.problem
        held = problem.held_bytes(self.beside[s])
        # The first stage alone begins with the empty cut, and the last alone ends with the full
        # one. The memory of a device with several stages is checked stage by stage here, which can
        # only allow too much: the evaluation of the plan checks the sum.
        size = problem.members.sum(axis=1)
        before, after = size[problem.tail], problem.num_blocks - size[problem.head]
        ends = (before == 0) == (s == 0), (after == 0) == (s == self.stages - 1)
        rest = self.stages - 1 - s
        # A cut that knows how many devices lie before it fits one stage only.
        placed = (problem.used[problem.tail] == s) | (problem.used[problem.tail] < 0)
        fits = held <= problem.room
        return np.asarray(fits & placed & ends[0] & ends[1] & (before >= s) & (after >= rest))

    def start(self) -> None:
        """Look for a good chain: the lightest heaviest stage, then moves of cuts."""
        whole = self._cut_off(self._whole(self.layers))
        # No chain of this number of stages can be below the best plan.
        if whole is None:
            self._heap = []
            return
        self.layers, self._heap = whole.layers, [(0, 0, whole)]
        walk = self._light_walk()
        if walk is not None:
            self._improve(walk)

    def _improve(self, walk: Ints) -> None:
        """Improve a chain by moves of cuts, and evaluate the result."""
        table = self._pair_table(self.layers)
        better = improve(self.problem, self.table, table, walk)[1]
        # A table shared by all stages (`_pair_table`) may lead to a pair that does not fit its
        # stage.
        inside = all(better[s] in self.layers.of(s) for s in range(self.stages))
        self._consider(better if inside else walk)

    def restricted(self, allowed: Flags, judge: Judge) -> PartSearch:
        """A separate search over the chains whose stage s is a pair of ``allowed[s]``."""
        # It shares the paths found so far.
        other = copy(self)
        every = np.arange(len(self.problem.tail))
        layers = layers_of([every[self._may(s) & allowed[s]] for s in range(self.stages)])
        other.judge, other.layers, other.parts, other.open_ns = judge, layers, 0, NEVER
        other._heap = [(0, 0, self._whole(layers))]
        return other

    def _light_walk(self) -> Ints | None:
        """A chain of least max_load, by bisection."""
        problem = self.problem
        load = problem.work_ns
        low, high, best = 0, int(load.max(initial=0)), None
        # Under weights of 0 the cheapest walk only says whether there is one.
        nothing = np.zeros_like(self.game.paths[0])
        while low <= high:
            limit = (low + high) // 2
            light = layers_of([part[load[part] <= limit] for part in self._parts_of(self.layers)])
            walk = cheapest_walk(problem, light, nothing)
            if walk.cost < NEVER:
                best, high = walk.pairs, limit - 1
            else:
                low = limit + 1
        return best

    @staticmethod
    def _parts_of(layers: PairLayers) -> list[Ints]:
        return [layers.of(s) for s in range(layers.number)]

    def _pair_table(self, layers: PairLayers) -> Ints:
        """Pair of each tail and head, by stage; one table for all stages where that is large."""
        problem = self.problem
        count = layers.number if layers.number * problem.num_cuts**2 <= 2_000_000 else 1
        table = np.full((count, problem.num_cuts, problem.num_cuts), -1, np.int64)
        for s in range(layers.number):
            own = layers.of(s)
            table[min(s, count - 1), problem.tail[own], problem.head[own]] = own
        return table

    def _consider(self, walk: Ints) -> bool:
        """Evaluate a chain if it may be better; False if orders of its devices were left out."""
        # The time without messages that skip stages, on the fastest devices, bounds the value: most
        # chains need no evaluation by the referee.
        limit = self.judge.limit_ns
        if limit is not None and self.game.time(walk) >= limit:
            return True
        return self.judge.try_orders(walk, self.problem)

    @property
    def bound_ns(self) -> int:
        """Bound on the chains of this search that are better than the best plan."""
        return min([self.open_ns, self._value(), *(entry[0] for entry in self._heap[:1])])

    @property
    def is_open(self) -> bool:
        """Whether there may be a better chain."""
        return bool(self._heap) and self._heap[0][0] < self._value()

    def step(self) -> None:
        """Bound and split the part of the lowest bound."""
        bound, _, part = heapq.heappop(self._heap)
        rest = self._cut_off(part)
        if rest is None:
            return
        self.parts += 1
        for number, (child_bound, child) in enumerate(self._process(rest, bound)):
            heapq.heappush(self._heap, (child_bound, 2 * self.parts + number, child))

    def _value(self) -> int:
        return NEVER if self.judge.limit_ns is None else self.judge.limit_ns

    def _cut_off(self, part: Part) -> Part | None:
        """The part without pairs that no better chain uses; None if no chain is left."""
        layers = part.layers
        if self.judge.limit_ns is not None:
            layers = self.game.cut_off(layers, self.judge.limit_ns)
        # A pair whose lightest walk breaks a limit on its own. Several limits at once are left to
        # prices.
        for row, most in zip(*part.limits, strict=True):
            layers = cheap_pairs(self.problem, layers, row, int(most))
        if cheapest_walk(self.problem, layers, self.game.paths[0]).cost >= NEVER:
            return None
        return part._replace(layers=layers)

    def _process(self, part: Part, bound: int) -> Iterator[tuple[int, Part]]:
        """Bound one part, and split it if that does not close it."""
        # Column generation for the matrix game: the LP weighs the paths against the walks found so
        # far, the DP answers with the cheapest walk of all (a valid bound, whatever the weights),
        # and that walk and its longest path enter the LP.
        game, problem, layers = self.game, self.problem, part.layers
        mixture, idle, center = Mixture(game, part), 0, part.center
        for walk in part.walks or [cheapest_walk(problem, layers, game.paths[0]).pairs]:
            mixture.add(walk)
        known, smooth = {walk.tobytes() for walk in mixture.walks}, True
        for rounds in range(ROUNDS):
            solved = mixture.solve()
            # The LP's value estimates how far the bound can rise with these paths. The first round
            # is never skipped: all walks of its LP came from the parent part.
            near = CONVERGED * (solved.value_ns - bound) <= self._value() - bound
            if near and bound and rounds and self.judge.limit_ns is not None:
                break
            weighted = game.weighted(part.limits, solved)
            # Optima of the LP jump from round to round while walks are few (as with Kelley's
            # cutting planes). So the weights tried lie a quarter of the way from the best ones so
            # far to the LP's (Wentges' smoothing).
            if center is not None and smooth:
                weighted = center.toward(weighted)
            proven, walk = game.proven(layers, weighted)
            if proven >= self._value():
                return
            # The walk may be a better chain, which lowers the limit that the bound is compared
            # with.
            self._consider(walk)
            if proven >= self._value():
                return
            idle = 0 if proven > bound + bound // 20_000 else idle + 1
            if proven > bound or center is None:
                center = weighted
            bound = max(bound, proven)
            # A walk that is known already would change nothing in the LP: then the LP's own weights
            # are tried next, which find a new walk unless they are optimal.
            smooth = walk.tobytes() not in known
            known.add(walk.tobytes())
            # The answer of the other side of the game: the longest path for the mean times of the
            # LP's walks.
            mixture.add_path(solved.of_walks @ np.stack(mixture.times))
            mixture.add(walk)
            if self.judge.limit_ns is not None:
                # No walk of a better plan costs `most` + 1 or more. Messages that skip stages are
                # in the value alone, which may be far above all costs: hence NEVER.
                most = min(self.judge.limit_ns * weighted.scale + weighted.free, NEVER) - 1
                layers = cheap_pairs(problem, layers, weighted.weight, most)
                if cheapest_walk(problem, layers, weighted.weight).cost >= NEVER:
                    return
            if idle >= STALLED or self.clock.left_s == 0.0:
                break
        # Where devices have several stages, the mixture's mean cuts are a good start for moves.
        # Moves cost more than a part: they are tried in the 1st, 2nd, 4th, .. part.
        power = self.parts & (self.parts - 1) == 0
        if power and self.stages > self.num_devices and self.clock.left_s != 0.0:
            middle = self._walk_near(layers, mixture.walks, solved.of_walks)
            if middle is not None:
                self._improve(middle)
        # The children begin with all walks that remain theirs, and with the paths of positive
        # weight.
        used = tuple(solved.paths[solved.of_paths > 0])
        rest = Part(layers, part.limits, tuple(mixture.walks), used, center)
        for child in self._split(rest, solved.of_walks):
            yield bound, child._replace(walks=self._within(child))

    def _walk_near(self, layers: PairLayers, walks: Sequence[Ints], share: Floats) -> Ints | None:
        """The chain whose cuts are nearest to the mean cuts of a mixture of walks."""
        # A DP over the pairs, stage by stage: `far` is the least sum of distances up to each cut.
        tail, head = self.problem.tail, self.problem.head
        mean = share @ head[np.stack(walks[: len(share)])]
        far = np.full(self.problem.num_cuts, np.inf)
        far[0] = 0.0
        came = np.zeros((self.stages, len(far)), np.int64)
        for s in range(self.stages):
            own = layers.of(s)
            now = far[tail[own]] + np.abs(head[own] - mean[s])
            # The farthest first: where several pairs have the same head, the nearest one is written
            # last and stays.
            order = np.argsort(-now, kind="stable")
            far = np.full(len(far), np.inf)
            far[head[own[order]]], came[s, head[own[order]]] = now[order], own[order]
        if not np.isfinite(far[-1]):
            return None
        walk = np.zeros(self.stages, np.int64)
        cut = len(far) - 1
        for s in reversed(range(self.stages)):
            walk[s] = came[s, cut]
            cut = int(tail[walk[s]])
        return walk

    def _within(self, part: Part) -> tuple[Ints, ...]:
        """The walks of a part that use only its pairs; limits are left to prices."""
        inside = np.zeros((self.stages, len(self.problem.tail)), np.bool_)
        for s in range(self.stages):
            inside[s, part.layers.of(s)] = True
        rows = np.arange(self.stages)
        return tuple(walk for walk in part.walks if inside[rows, walk].all())

    def _split(self, part: Part, share: Floats) -> Iterator[Part]:
        """Halves of the chains, by the layers of a device with several stages, or by a cut."""
        problem, layers = self.problem, part.layers
        choices = [np.unique(problem.head[layers.of(s)]) for s in range(layers.number - 1)]
        sizes = [len(choice) for choice in choices]
        if max(sizes, default=1) == 1:
            # All cuts are fixed. Chains may still differ in the kind of the last device, which the
            # full cut does not state: they are evaluated one by one.
            for pairs in product(*(layers.of(s) for s in range(layers.number))):
                walk = np.array(pairs, np.int64)
                if not self._consider(walk):
                    self.open_ns = min(self.open_ns, self.game.time(walk))
            return
        limit = self._device_limit(part, share)
        if limit is not None:
            row, most = limit
            yield part._replace(limits=self._for_the_rest(part.limits.tightened(row, most), part))
            yield part._replace(limits=part.limits.tightened(-row, -most - 1))
            return
        # Split where the walks of the mixture disagree most: the cut of the largest variance.
        # Without variance one walk is optimal and its bound still below its value; then the cut
        # with most choices is split.
        places = np.stack([problem.head[walk] for walk in part.walks[: len(share)]]).astype(float)
        mean = share @ places
        spread = share @ (places - mean) ** 2
        spread = np.where(np.array([*sizes, 1]) > 1, spread, -1.0)
        s = int(np.argmax(spread[:-1])) if spread[:-1].max() > 1e-9 else int(np.argmax(sizes))
        choice = choices[s]
        middle = int(np.searchsorted(choice, mean[s], side="right")) - 1
        # Both halves keep at least one choice, so that each split ends.
        limit = choice[min(max(middle, 0), len(choice) - 2)]
        for lower in (True, False):
            parts = self._parts_of(layers)
            # The cut is the head of stage s and the tail of the next one: both lose the other
            # half's pairs.
            for t, ends in ((s, problem.head), (s + 1, problem.tail)):
                parts[t] = parts[t][(ends[parts[t]] <= limit) == lower]
            yield part._replace(layers=layers_of(parts))

    def _for_the_rest(self, limits: WalkLimits, part: Part) -> WalkLimits:
        """With the lower limit of the one device without an upper limit, if it is the only one."""
        # If the others have at most some layers, the rest is left for this device. The LP would
        # reach the same by prices of all other limits at once, after many rounds.
        rows = [self._layers_row(q) for q in range(self.num_devices)]
        most = [limits.most[(limits.rows == row).all(axis=1)] for row in rows]
        free = [q for q, each in enumerate(most) if not len(each)]
        if len(free) != 1:
            return limits
        rest = sum(int(each[0]) for each in most if len(each))
        rest -= int(self.problem.size[part.walks[0]].sum())
        old = limits.most[(limits.rows == -rows[free[0]]).all(axis=1)]
        return limits.tightened(-rows[free[0]], min([rest, *old.tolist()]))

    def _layers_row(self, q: int) -> Ints:
        """The row that counts the layers of a device in the times of a walk."""
        row = np.zeros(2 * self.table.num_steps + self.stages, np.int64)
        row[2 * self.table.num_steps + q :: self.num_devices] = 1
        return row

    def _device_limit(self, part: Part, share: Floats) -> tuple[Ints, int] | None:
        """A device with several stages whose mean number of layers is fractional; or None."""
        # The row of its layers, and that number, rounded down.
        if not self.stages > self.num_devices > 1:
            return None
        of_device = (len(share), -1, self.num_devices)
        pairs = np.stack(part.walks[: len(share)])
        size, work = (
            share @ each[pairs].reshape(of_device).sum(axis=1)
            for each in (self.problem.size, self.problem.work_ns)
        )
        up, down = np.ceil(size) - size, size - np.floor(size)
        # Unless the number rounded up makes the device the heaviest (at mean work per layer), the
        # half n >= k + 1 keeps about the same bound, and the split gains little.
        heavy = work + up * work.sum() / max(size.sum(), 1.0) > work.max()
        score = np.where(heavy, up * down, 0.0)
        for q in np.argsort(-score, kind="stable"):
            if score[q] < LEAST_SPLIT:
                break
            row = self._layers_row(int(q))
            most = int(np.floor(size[q]))
            # A limit that the part already has is not set again: the walks found so far just break
            # it.
            above = part.limits.most[(part.limits.rows == row).all(axis=1)]
            below = part.limits.most[(part.limits.rows == -row).all(axis=1)]
            if (most < above).all() and (-most <= below).all():
                return row, most
        return None


def _stage_paths(table: EventTable, stages: int, count: int, kinds: int) -> Iterator[Ints]:
    """Paths that stay as long as they can on one stage or device, in all kinds of events or one."""
    # They include the two bounds by hand of docs/pipelines.md. Other steps have a thousandth of the
    # time, so that among the longest such paths the one with most other steps is taken.
    steps = table.num_steps
    own = [np.arange(s, s + 1) for s in range(stages)]
    own += [np.arange(q, stages, count) for q in range(count if count < stages else 0)]
    for share in (np.ones(kinds), *np.eye(kinds)):
        for s in own:
            times = np.full(2 * steps + stages, 1e-3)
            times[steps:] = 0
            times[s] += share[0]
            for kind in range(1, kinds):
                times[2 * stages - 1 - s if kind == 1 else kind * stages + s] += share[kind]
            yield longest_path(table, times)
