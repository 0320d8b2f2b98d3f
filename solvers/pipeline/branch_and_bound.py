"""Branch and bound over the cuts of one number of stages, with a game as its bound.

Every path through the events of an iteration bounds its time by a sum over steps, and so does a
mixture of paths. For a mixture the best chain of cuts is a cheapest walk; its cost is a bound on
all chains. The best mixture and the best one of walks are the two sides of a matrix game. It is
solved over the walks and paths met so far; each new walk brings its longest path, and the mixture
of walks brings the longest path of its mean times. The LP only chooses the mixture: what it proves
is added up in integers.

A mixture of walks may cut layers in two. Where a device has several stages, a part is split by the
whole number of its layers, a sum over stages like a path: each part has such limits, and prices of
what is beyond them in its mixture. For any prices y >= 0 no walk within the limits costs less than
the cheapest of all walks with y (n - k) added, as n <= k.
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
from placegap.solvers.core.progress import Incumbent
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

MOST_ORDERS = 120
"""Orders of different devices that are tried for one chain."""


class Judge(Incumbent):
    """The best chain, and values of chains, each computed once."""

    def __init__(
        self,
        instance: Instance,
        semantics: PipelineIteration,
        clock: Clock,
        below_ns: int | None = None,
    ) -> None:
        super().__init__()
        #: What the first plan must be below, if anything.
        self.instance, self.semantics, self.below_ns = instance, semantics, below_ns
        self.clock = clock
        #: (S,) int64: The chain of the best plan, where it came from here.
        self.walk: tuple[Ints, CutProblem] | None = None
        #: 1 where plans that are as good as the best are of use, too.
        self.slack_ns = 0
        self._alike, self._links_alike = devices_alike(instance), links_of_kinds(instance)
        self._known: dict[tuple[int, bytes], bool] = {}

    @property
    def limit_ns(self) -> int | None:
        """What a plan must be below to be of use."""
        return self.below_ns if self.value_ns is None else self.value_ns + self.slack_ns

    @property
    def num_used(self) -> int:
        """Devices of the best plan."""
        return 0 if self.plan is None else len(set(self.plan.placement))

    def one_order(self, problem: CutProblem) -> bool:
        """Whether a chain has one value, on devices in whatever order its kinds leave open."""
        return self._alike or (bool(problem.kinds) and self._links_alike)

    def ask(self, walk: Ints, problem: CutProblem) -> bool:
        """Judge a chain on devices in all orders, as long as there is time; whether these were all
        that there are.
        """
        key = id(problem), walk.tobytes()
        if key not in self._known:
            self._known[key] = self._ask(walk, problem)
        return self._known[key]

    def _ask(self, walk: Ints, problem: CutProblem) -> bool:
        count = len(walk) // self.semantics.stages_per_device
        kind = problem.kind[walk[:count]].tolist()
        every = problem.kinds or (tuple(range(self.instance.num_devices)),)
        fixed = self.one_order(problem)
        tried = list(islice(_orders(kind, every), 1 if fixed else MOST_ORDERS + 1))
        complete = len(tried) <= MOST_ORDERS
        if not complete and not problem.kinds:
            tried = _likely(self.instance, count)
        stage = stages_of(walk, problem)
        for number, devices in enumerate(tried[:MOST_ORDERS]):
            if number and self.clock.left_s == 0.0:
                return False
            self.judge(_on(devices, stage))
            if self.plan is not None and self.plan.stage is stage:
                self.walk = walk, problem
        return complete

    def keep(self, walk: Ints, problem: CutProblem) -> bool:
        """Put a chain in the best plan's place, if it has the same value.

        It takes that plan's devices, or, where some stage is of another kind than its device, the
        first ones of its kinds: else the plan would not have the work and memory of the chain.
        """
        plan = self.plan
        assert plan is not None
        assert plan.stage is not None
        count = len(walk) // self.semantics.stages_per_device
        device = dict(zip(plan.stage, plan.placement, strict=True))
        devices = tuple(device[s][0] for s in range(count))
        kind = problem.kind[walk[:count]].tolist()
        kinds = problem.kinds
        if kinds and any(k not in kinds[d] for k, d in zip(devices, kind, strict=True)):
            devices = next(_orders(kind, kinds))
        other = _on(devices, stages_of(walk, problem))
        same = feasible_value(self.instance, other, self.semantics) == self.value_ns
        if same:
            self.plan, self.walk = other, (walk, problem)
        return same

    def judge(self, plan: Plan) -> None:
        """Keep a plan if it is feasible, and better than the best or as good on more devices."""
        value_ns = feasible_value(self.instance, plan, self.semantics)
        if value_ns is None or (self.below_ns is not None and value_ns >= self.below_ns):
            return
        if self.improve(value_ns, plan):
            self.walk = None
        elif value_ns == self.value_ns and len(set(plan.placement)) > self.num_used:
            self.plan, self.walk = plan, None


def stages_of(walk: Ints, problem: CutProblem) -> tuple[int, ...]:
    """Stage of each op."""
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


MOST_BITS = 16
"""Of an integer weight of a path."""


class WalkLimits(NamedTuple):
    """What the walks of a part keep: ``rows @ times <= most``, for times as of `times_of`."""

    rows: Ints
    most: Ints

    def tightened(self, row: Ints, most: int) -> WalkLimits:
        """With one more, in place of the one of the same row."""
        other = (self.rows != row).any(axis=1)
        return WalkLimits(np.vstack([self.rows[other], row]), np.append(self.most[other], most))


class Part(NamedTuple):
    """A part of a search: the pairs and the limits of its walks; and walks, paths and weights that
    were of use in the part that it comes from.
    """

    layers: PairLayers
    limits: WalkLimits
    walks: tuple[Ints, ...] = ()
    paths: tuple[Ints, ...] = ()
    center: Weighted | None = None


class Weighted(NamedTuple):
    """Integer weights of a walk: `scale` times a mixture of paths, with prices of its limits.

    Within the limits their prices add no more than `free`.

    So no iteration of a walk that keeps the limits is shorter than (weight @ times - free) / scale.
    """

    weight: Ints
    scale: int
    free: int

    def toward(self, other: Weighted) -> Weighted:
        """A fourth of the way to others, rounded to what holds as well, as no time is negative."""
        if other.scale != self.scale:
            return other
        weight = (self.weight * 3 + other.weight) // 4
        return Weighted(weight, self.scale, -((-3 * self.free - other.free) // 4))


class Game:
    """What bounds of all parts of a search have in common."""

    def __init__(
        self, problem: CutProblem, table: EventTable, num_stages: int, num_devices: int
    ) -> None:
        self.problem, self.table = problem, table
        #: (N, 2 E + S) int64: Paths on which one stage or one device does nearly all work.
        self.paths = np.unique(
            list(_stage_paths(table, num_stages, num_devices, table.num_steps // num_stages)),
            axis=0,
        )
        #: Others that were a longest path, in the order in which they were met.
        self.met = dict[bytes, Ints]()
        most = sum(int(times.max(initial=0)) for times in (problem.work_ns, problem.update_ns))
        most += int(problem.forth_ns.max(initial=0) + problem.back_ns.max(initial=0))
        self._most = max(1, most) * len(table.step) * 2  # no path is longer
        self._size = 1 + num_stages * int(problem.size.max(initial=0))  # no limit is larger

    def weighted(self, limits: WalkLimits, solved: Solved) -> Weighted:
        """Integer weights of a mixture of paths with prices of limits.

        They are as fine as keeps the costs of paths below 2**60, and those of prices, which are cut
        where they are larger.
        """
        scale = 1 << max(0, min(MOST_BITS, 60 - self._most.bit_length()))
        of_paths, prices = solved.of_paths / solved.of_paths.sum() * scale, solved.prices * scale
        whole = to_whole(of_paths)
        whole[int(np.argmax(whole))] += scale - int(whole.sum())
        cut = min(1.0, 2.0**60 / max(1.0, 2.0 * float(prices.sum()) * self._size))
        price = to_whole(prices * cut)
        weight = np.asarray(whole @ solved.paths, np.int64) + price @ limits.rows
        return Weighted(weight, scale, int(price @ limits.most))

    def proven(self, layers: PairLayers, weighted: Weighted) -> tuple[int, Ints]:
        """What weights prove, and the walk that has it."""
        walk = cheapest_walk(self.problem, layers, weighted.weight)
        if walk.cost >= NEVER:
            return NEVER, walk.pairs
        return -((weighted.free - walk.cost) // weighted.scale), walk.pairs

    def cut_off(self, layers: PairLayers, value_ns: int) -> PairLayers:
        """Without the pairs that one of `paths`, or of those met last, proves to be in no chain
        below a value.
        """
        paths = np.vstack([self.paths, *list(self.met.values())[-LAST_PATHS:]])
        return cheap_pairs(self.problem, layers, paths, value_ns - 1)

    def time(self, walk: Ints) -> int:
        """Iteration time of a walk."""
        return iteration_time(self.table, times_of(self.problem, walk))


class Solved(NamedTuple):
    """A mixture of paths and prices of limits; a mixture of walks; what they are worth."""

    paths: Ints
    of_paths: Floats
    prices: Floats
    of_walks: Floats
    value_ns: float


class Mixture:
    """The LP of one part of a search: max t, t <= what each walk costs under a mixture of paths.

    A walk that breaks a limit also costs the limit's price for each unit.
    """

    def __init__(self, game: Game, part: Part, threads: int = 1) -> None:
        self.game, self.limits = game, part.limits
        self.walks, self.times = list[Ints](), list[Ints]()
        self.paths = dict[bytes, Ints]()
        for path in (*game.paths, *part.paths):
            self.paths[path.tobytes()] = path
        self._threads = threads

    def add(self, walk: Ints) -> None:
        """Note a walk, and its longest path."""
        self.walks.append(walk)
        self.times.append(times_of(self.game.problem, walk))
        self.add_path(self.times[-1])

    def add_path(self, times: Floats | Ints) -> None:
        """Note the longest path of some times."""
        path = longest_path(self.game.table, times)
        self.paths.setdefault(path.tobytes(), path)
        self.game.met.setdefault(path.tobytes(), path)

    def solve(self) -> Solved:
        """The best mixture of paths and prices of limits against the walks, and the other way."""
        paths = np.stack(list(self.paths.values()))
        times = np.stack(self.times)
        table = times.astype(float) @ paths.T
        unit = float(table.max()) or 1.0
        beyond = (times @ self.limits.rows.T - self.limits.most).astype(float)
        table = np.hstack([table / unit, beyond])
        rows, columns = table.shape
        priced = np.arange(columns) >= len(paths)
        model = highspy.HighsModel()
        lp = model.lp_
        inf = highspy.kHighsInf
        lp.num_col_, lp.num_row_ = columns + 1, rows + 1
        lp.col_cost_ = np.append(np.zeros(columns), -1.0)
        lp.col_lower_ = np.append(np.zeros(columns), -inf)
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
        if mixture.sum() <= 0:
            mixture = np.full(len(paths), 1.0)
        if of_walks.sum() <= 0:
            of_walks = np.full(rows, 1.0)
        value_ns = float(found.col_value[-1]) * unit
        return Solved(paths, mixture, prices, of_walks / of_walks.sum(), value_ns)


MOST_PRICE = 4.0
"""Of a unit beyond a limit, in the longest paths: what breaks a limit costs more than any plan."""

LAST_PATHS = 300
"""Single paths that pairs fall by. With none 128 layers on 16 devices take 30 times the parts, with
all of them most of the time of long searches goes there.
"""

ROUNDS = 100
"""Most rounds of the game in one part of the search."""

STALLED = 12
"""Rounds without progress after which a part is split."""

CONVERGED = 16
"""A part is split when no mixture can close more than such a part of what is open: else most of the
time goes into the last thousandth of bounds that are per cents too low.
"""

LEAST_SPLIT = 0.01
"""Of the fraction of a number of layers, times what is missing to a whole one."""


class PartSearch:
    """All chains of S stages on p devices; `judge` keeps the best plan of all parts.

    `beside` is from `held_beside`: how many other microbatches each stage holds.
    """

    def __init__(
        self,
        problem: CutProblem,
        judge: Judge,
        table: EventTable,
        beside: list[list[tuple[int, int]]],
        clock: Clock,
    ) -> None:
        self.problem, self.judge, self.table, self.clock = problem, judge, table, clock
        self.stages, self.beside = len(beside), beside
        self.num_devices = len(beside) // judge.semantics.stages_per_device
        self.game = Game(problem, table, self.stages, self.num_devices)
        every = np.arange(len(problem.tail))
        self.layers = layers_of([every[self._may(s)] for s in range(self.stages)])
        self.parts = 0
        #: Least value that chains may have whose devices could not all be tried.
        self.open_ns = NEVER
        self._heap = [(0, 0, self._whole(self.layers))]

    def _whole(self, layers: PairLayers) -> Part:
        """A search's first part."""
        width = 2 * self.table.num_steps + self.stages
        none = WalkLimits(np.zeros((0, width), np.int64), np.zeros(0, np.int64))
        return Part(layers, none)

    def _may(self, s: int) -> Flags:
        """Pairs that may be stage s: they fit, and leave a block for each other stage."""
        problem = self.problem
        held = problem.held_bytes(self.beside[s])
        size = problem.members.sum(axis=1)
        before, after = size[problem.tail], problem.num_blocks - size[problem.head]
        ends = (before == 0) == (s == 0), (after == 0) == (s == self.stages - 1)
        rest = self.stages - 1 - s
        placed = (problem.used[problem.tail] == s) | (problem.used[problem.tail] < 0)
        fits = held <= problem.room
        return np.asarray(fits & placed & ends[0] & ends[1] & (before >= s) & (after >= rest))

    def start(self) -> None:
        """Look for a good chain: the heaviest stage is light, then moves."""
        whole = self._cut_off(self._whole(self.layers))
        if whole is None:
            self._heap = []
            return
        self.layers, self._heap = whole.layers, [(0, 0, whole)]
        walk = self._light_walk()
        if walk is not None:
            self._improve(walk)

    def _improve(self, walk: Ints) -> None:
        """Judge what moves make of a chain."""
        table = self._pair_table(self.layers)
        better = improve(self.problem, self.table, table, walk)[1]
        inside = all(better[s] in self.layers.of(s) for s in range(self.stages))
        self._consider(better if inside else walk)

    def restricted(self, allowed: Flags, judge: Judge) -> PartSearch:
        """A search of its own among the chains whose stage s is a pair of ``allowed[s]``.

        The paths that are met serve both.
        """
        other = copy(self)
        every = np.arange(len(self.problem.tail))
        layers = layers_of([every[self._may(s) & allowed[s]] for s in range(self.stages)])
        other.judge, other.layers, other.parts, other.open_ns = judge, layers, 0, NEVER
        other._heap = [(0, 0, self._whole(layers))]
        return other

    def _light_walk(self) -> Ints | None:
        """A chain whose heaviest stage is as light as can be, by bisection."""
        problem = self.problem
        load = problem.work_ns
        low, high, best = 0, int(load.max(initial=0)), None
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
        """Pair of each tail and head, by layer; one table for all where that would be large."""
        problem = self.problem
        count = layers.number if layers.number * problem.num_cuts**2 <= 2_000_000 else 1
        table = np.full((count, problem.num_cuts, problem.num_cuts), -1, np.int64)
        for s in range(layers.number):
            own = layers.of(s)
            table[min(s, count - 1), problem.tail[own], problem.head[own]] = own
        return table

    def _consider(self, walk: Ints) -> bool:
        """Judge a chain if it may be better; whether its true value is settled."""
        limit = self.judge.limit_ns
        if limit is not None and self.game.time(walk) >= limit:
            return True
        return self.judge.ask(walk, self.problem)

    @property
    def bound_ns(self) -> int:
        """No chain of this part that is better than the best plan takes less."""
        return min([self.open_ns, self._value(), *(entry[0] for entry in self._heap[:1])])

    @property
    def is_open(self) -> bool:
        """Whether there may be a better chain."""
        return bool(self._heap) and self._heap[0][0] < self._value()

    def step(self) -> None:
        """Bound the part of the search that is lowest, and split it."""
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
        """Without pairs that are in no better chain; None if no chain is left."""
        layers = part.layers
        if self.judge.limit_ns is not None:
            layers = self.game.cut_off(layers, self.judge.limit_ns)
        for row, most in zip(*part.limits, strict=True):
            layers = cheap_pairs(self.problem, layers, row, int(most))
        if cheapest_walk(self.problem, layers, self.game.paths[0]).cost >= NEVER:
            return None
        return part._replace(layers=layers)

    def _process(self, part: Part, bound: int) -> Iterator[tuple[int, Part]]:
        """Bound one part, and split it if that does not close it."""
        game, problem, layers = self.game, self.problem, part.layers
        mixture, idle, center = Mixture(game, part), 0, part.center
        for walk in part.walks or [cheapest_walk(problem, layers, game.paths[0]).pairs]:
            mixture.add(walk)
        known, smooth = {walk.tobytes() for walk in mixture.walks}, True
        for rounds in range(ROUNDS):
            solved = mixture.solve()
            near = CONVERGED * (solved.value_ns - bound) <= self._value() - bound
            if near and bound and rounds and self.judge.limit_ns is not None:
                break
            weighted = game.weighted(part.limits, solved)
            if center is not None and smooth:
                weighted = center.toward(weighted)
            proven, walk = game.proven(layers, weighted)
            if proven >= self._value():
                return
            self._consider(walk)
            if proven >= self._value():
                return
            idle = 0 if proven > bound + bound // 20_000 else idle + 1
            if proven > bound or center is None:
                center = weighted
            bound = max(bound, proven)
            smooth = walk.tobytes() not in known
            known.add(walk.tobytes())
            mixture.add_path(solved.of_walks @ np.stack(mixture.times))
            mixture.add(walk)
            if self.judge.limit_ns is not None:
                # messages that skip stages are in the value alone, which may be far above all costs
                most = min(self.judge.limit_ns * weighted.scale + weighted.free, NEVER) - 1
                layers = cheap_pairs(problem, layers, weighted.weight, most)
                if cheapest_walk(problem, layers, weighted.weight).cost >= NEVER:
                    return
            if idle >= STALLED or self.clock.left_s == 0.0:
                break
        power = self.parts & (self.parts - 1) == 0  # the 1st, 2nd, 4th, .. part
        if power and self.stages > self.num_devices and self.clock.left_s != 0.0:
            middle = self._walk_near(layers, mixture.walks, solved.of_walks)
            if middle is not None:
                self._improve(middle)
        used = tuple(solved.paths[solved.of_paths > 0])
        rest = Part(layers, part.limits, tuple(mixture.walks), used, center)
        for child in self._split(rest, solved.of_walks):
            yield bound, child._replace(walks=self._within(child))

    def _walk_near(self, layers: PairLayers, walks: Sequence[Ints], share: Floats) -> Ints | None:
        """The chain whose cuts are nearest to the means of those of the first walks."""
        tail, head = self.problem.tail, self.problem.head
        mean = share @ head[np.stack(walks[: len(share)])]
        far = np.full(self.problem.num_cuts, np.inf)
        far[0] = 0.0
        came = np.zeros((self.stages, len(far)), np.int64)
        for s in range(self.stages):
            own = layers.of(s)
            now = far[tail[own]] + np.abs(head[own] - mean[s])
            order = np.argsort(-now, kind="stable")  # of equal heads the nearest is put last
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
        """Those of a part's walks that are of its pairs; prices see to its limits."""
        inside = np.zeros((self.stages, len(self.problem.tail)), np.bool_)
        for s in range(self.stages):
            inside[s, part.layers.of(s)] = True
        rows = np.arange(self.stages)
        return tuple(walk for walk in part.walks if inside[rows, walk].all())

    def _split(self, part: Part, share: Floats) -> Iterator[Part]:
        """Halves of the chains, by the layers of a device with several stages, or by one of their
        cuts; if all have the same, they are judged.

        They then differ in the kind of the last device, which the full cut does not tell.
        """
        problem, layers = self.problem, part.layers
        choices = [np.unique(problem.head[layers.of(s)]) for s in range(layers.number - 1)]
        sizes = [len(choice) for choice in choices]
        if max(sizes, default=1) == 1:
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
        places = np.stack([problem.head[walk] for walk in part.walks[: len(share)]]).astype(float)
        mean = share @ places
        spread = share @ (places - mean) ** 2
        spread = np.where(np.array([*sizes, 1]) > 1, spread, -1.0)
        s = int(np.argmax(spread[:-1])) if spread[:-1].max() > 1e-9 else int(np.argmax(sizes))
        choice = choices[s]
        middle = int(np.searchsorted(choice, mean[s], side="right")) - 1
        limit = choice[min(max(middle, 0), len(choice) - 2)]
        for lower in (True, False):
            parts = self._parts_of(layers)
            for t, ends in ((s, problem.head), (s + 1, problem.tail)):
                parts[t] = parts[t][(ends[parts[t]] <= limit) == lower]
            yield part._replace(layers=layers_of(parts))

    def _for_the_rest(self, limits: WalkLimits, part: Part) -> WalkLimits:
        """With what is left for a device when each other one has a limit: prices find it late."""
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
        """What counts the layers of a device among the times of a walk."""
        row = np.zeros(2 * self.table.num_steps + self.stages, np.int64)
        row[2 * self.table.num_steps + q :: self.num_devices] = 1
        return row

    def _device_limit(self, part: Part, share: Floats) -> tuple[Ints, int] | None:
        """A device with several stages whose mean number of layers is not whole, and would make it
        the heaviest if rounded up: a row of its layers, and the number rounded down.

        Not where that is a limit of the part, which the walks met do not keep yet.
        """
        if not self.stages > self.num_devices > 1:
            return None
        of_device = (len(share), -1, self.num_devices)
        pairs = np.stack(part.walks[: len(share)])
        size, work = (
            share @ each[pairs].reshape(of_device).sum(axis=1)
            for each in (self.problem.size, self.problem.work_ns)
        )
        up, down = np.ceil(size) - size, size - np.floor(size)
        heavy = work + up * work.sum() / max(size.sum(), 1.0) > work.max()
        score = np.where(heavy, up * down, 0.0)
        for q in np.argsort(-score, kind="stable"):
            if score[q] < LEAST_SPLIT:
                break
            row = self._layers_row(int(q))
            most = int(np.floor(size[q]))
            above = part.limits.most[(part.limits.rows == row).all(axis=1)]
            below = part.limits.most[(part.limits.rows == -row).all(axis=1)]
            if (most < above).all() and (-most <= below).all():
                return row, most
        return None


def _stage_paths(table: EventTable, stages: int, count: int, kinds: int) -> Iterator[Ints]:
    """For each stage, and each device with several, the longest paths where it takes nearly all
    time: all kinds of its events, or one.
    """
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
