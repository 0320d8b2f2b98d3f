"""Branch and bound over the cuts of one number of stages, with a game as its bound.

Every path through the events of an iteration bounds its time by a sum over steps, and so does a
mixture of paths. For a mixture the best chain of cuts is a cheapest walk; its cost is a bound on
all chains. The best mixture and the best one of walks are the two sides of a matrix game. It is
solved over the walks and paths met so far; each new walk brings its longest path, and the mixture
of walks brings the longest path of its mean times. The LP only chooses the mixture: what it proves
is added up in integers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import islice, product

import highspy
import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import Clock
from placegap.solvers.pipeline.cuts import CutProblem, devices_alike, links_alike
from placegap.solvers.pipeline.event_times import (
    CutWalk,
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
"""Orders of unlike devices that are tried for one chain."""


class Judge:
    """Values of chains, each asked once.

    Attributes
    ----------
    best : (int, Plan) or None
        The best plan so far, and its value.
    walk : (S,) int64 and CutProblem, or None
        The chain of the best plan, where it came from here.
    slack_ns : int
        1 where plans that are as good as the best are of use, too.
    below_ns : int or None
        What the first plan must be below, if anything.
    """

    def __init__(
        self,
        instance: Instance,
        semantics: PipelineIteration,
        clock: Clock,
        below_ns: int | None = None,
    ) -> None:
        self.instance, self.semantics, self.below_ns = instance, semantics, below_ns
        self.clock = clock
        self.best: tuple[int, Plan] | None = None
        self.walk: tuple[Ints, CutProblem] | None = None
        self.slack_ns = 0
        self._alike, self._links_alike = devices_alike(instance), links_alike(instance)
        self._known: dict[tuple[int, bytes], bool] = {}

    @property
    def limit_ns(self) -> int | None:
        """What a plan must be below to be of use."""
        return self.below_ns if self.best is None else self.best[0] + self.slack_ns

    @property
    def num_used(self) -> int:
        """Devices of the best plan."""
        return 0 if self.best is None else len(set(self.best[1].placement))

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
            if self.best is not None and self.best[1].stage is stage:
                self.walk = walk, problem
        return complete

    def keep(self, walk: Ints, problem: CutProblem) -> bool:
        """Put a chain in the best plan's place, if it has the same value.

        It takes that plan's devices, or, where some stage is of another kind than its device, the
        first ones of its kinds: else the plan would not have the work and memory of the chain.
        """
        assert self.best is not None
        plan = self.best[1]
        assert plan.stage is not None
        count = len(walk) // self.semantics.stages_per_device
        device = dict(zip(plan.stage, plan.placement, strict=True))
        devices = tuple(device[s][0] for s in range(count))
        kind = problem.kind[walk[:count]].tolist()
        kinds = problem.kinds
        if kinds and any(k not in kinds[d] for k, d in zip(devices, kind, strict=True)):
            devices = next(_orders(kind, kinds))
        other = _on(devices, stages_of(walk, problem))
        verdict = evaluate(self.instance, other, self.semantics)
        same = verdict.feasible and verdict.value_ns == self.best[0]
        if same:
            self.best, self.walk = (self.best[0], other), (walk, problem)
        return same

    def judge(self, plan: Plan) -> None:
        """Keep a plan if it is feasible, and better than the best or as good on more devices."""
        verdict = evaluate(self.instance, plan, self.semantics)
        value_ns = verdict.value_ns if verdict.feasible else None
        if value_ns is None or (self.below_ns is not None and value_ns >= self.below_ns):
            return
        used = len(set(plan.placement))
        if self.best is None or (value_ns, -used) < (self.best[0], -self.num_used):
            self.best, self.walk = (value_ns, plan), None


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


class Game:
    """Paths and walks of one number of devices, shared by all parts of a search.

    Parameters
    ----------
    problem : CutProblem
    table : EventTable
    """

    def __init__(self, problem: CutProblem, table: EventTable) -> None:
        self.problem, self.table = problem, table
        self.paths: list[Ints] = []
        self._known: set[bytes] = set()
        most = sum(
            int(times.max(initial=0))
            for times in (problem.forward_ns, problem.backward_ns, problem.weight_ns)
        )
        most += int(problem.forth_ns.max(initial=0) + problem.back_ns.max(initial=0))
        self._most = max(1, most) * len(table.step) * 2  # no path is longer

    def add(self, path: Ints) -> bool:
        """Note a path; whether it was new."""
        key = path.tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        self.paths.append(path)
        return True

    @property
    def bits(self) -> int:
        """How fine a mixture may be, so that costs stay below 2**61."""
        return max(0, min(MOST_BITS, 61 - self._most.bit_length()))

    def proven(self, layers: PairLayers, mixture: Floats) -> tuple[int, Ints, int, CutWalk]:
        """Bound of a mixture of the first paths, its weights, their scale, the walk that has it."""
        scale = 1 << self.bits
        whole = np.floor(mixture / mixture.sum() * scale).astype(np.int64)
        whole[int(np.argmax(whole))] += scale - int(whole.sum())
        weight = np.asarray(whole @ np.stack(self.paths[: len(whole)]), np.int64)
        walk = cheapest_walk(self.problem, layers, weight)
        bound = NEVER if walk.cost >= NEVER else -(-walk.cost // scale)
        return bound, weight, scale, walk

    def cut_off(self, layers: PairLayers, value_ns: int) -> PairLayers:
        """Without the pairs that some path alone proves to be in no chain below a value."""
        return cheap_pairs(self.problem, layers, np.stack(self.paths), value_ns - 1)

    def time(self, walk: Ints) -> int:
        """Iteration time of a walk."""
        return iteration_time(self.table, times_of(self.problem, walk))


class Mixture:
    """The LP of one part of a search: max t, t <= what each walk costs under a mixture of paths."""

    def __init__(self, game: Game, threads: int = 1) -> None:
        self.game = game
        self.walks: list[Ints] = []
        self._unit = 1.0
        self._threads = threads

    def add(self, walk: Ints) -> None:
        """Note a walk's times."""
        self.walks.append(times_of(self.game.problem, walk))

    def solve(self) -> tuple[Floats, Floats]:
        """The best mixture of paths against the walks, and of walks against the paths."""
        paths = np.stack(self.game.paths).astype(float)
        walks = np.stack(self.walks).astype(float)
        table = walks @ paths.T
        table /= table.max() or 1.0
        rows, columns = table.shape
        model = highspy.HighsModel()
        lp = model.lp_
        inf = highspy.kHighsInf
        lp.num_col_, lp.num_row_ = columns + 1, rows + 1
        lp.col_cost_ = np.append(np.zeros(columns), -1.0)
        lp.col_lower_ = np.append(np.zeros(columns), -inf)
        lp.col_upper_ = np.full(columns + 1, inf)
        lp.row_lower_ = np.append(np.zeros(rows), 1.0)
        lp.row_upper_ = np.append(np.full(rows, inf), 1.0)
        dense = np.vstack(
            [np.column_stack([table, -np.ones(rows)]), np.append(np.ones(columns), 0.0)]
        )
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.arange(0, (rows + 1) * (columns + 1) + 1, columns + 1)
        lp.a_matrix_.index_ = np.tile(np.arange(columns + 1), rows + 1)
        lp.a_matrix_.value_ = dense.ravel()
        highs = highspy.Highs()
        for option, setting in (
            ("output_flag", False),
            ("threads", self._threads),
            ("presolve", "off"),
        ):
            highs.setOptionValue(option, setting)
        highs.passModel(model)
        highs.run()
        found = highs.getSolution()
        mixture = np.maximum(np.array(found.col_value[:columns]), 0.0)
        of_walks = np.maximum(np.abs(np.array(found.row_dual[:rows])), 0.0)
        if mixture.sum() <= 0:
            mixture = np.full(columns, 1.0)
        if of_walks.sum() <= 0:
            of_walks = np.full(rows, 1.0)
        return mixture, of_walks / of_walks.sum()

    def mean_path(self, of_walks: Floats) -> Ints:
        """The longest path of a mixture's mean times."""
        return longest_path(
            self.game.table, of_walks @ np.stack(self.walks[: len(of_walks)]).astype(float)
        )


ROUNDS = 40
"""Most rounds of the game in one part of the search."""

STALLED = 8
"""Rounds without progress after which a part is split."""


class PartSearch:
    """All chains of S stages on p devices.

    Parameters
    ----------
    problem : CutProblem
    judge : Judge
        It keeps the best plan of all parts.
    table : EventTable
    beside : list of lists of (int, int)
        How many other microbatches each stage holds (`held_beside`).
    clock : Clock

    Attributes
    ----------
    open_ns : int
        Least value that chains may have whose devices could not all be tried.
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
        self.game = Game(problem, table)
        self.stages, self.beside = len(beside), beside
        self.num_devices = len(beside) // judge.semantics.stages_per_device
        every = np.arange(len(problem.tail))
        self.layers = layers_of([every[self._may(s)] for s in range(self.stages)])
        for path in _stage_paths(table, self.stages, problem.passes):
            self.game.add(path)
        self.parts = 0
        self.open_ns = NEVER
        self._heap: list[tuple[int, int, PairLayers]] = [(0, 0, self.layers)]

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
        rest = self._cut_off(self.layers)
        if rest is None:
            self._heap = []
            return
        self.layers, self._heap = rest, [(0, 0, rest)]
        walk = self._light_walk()
        if walk is not None:
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
        other._heap = [(0, 0, layers)]
        return other

    def _light_walk(self) -> Ints | None:
        """A chain whose heaviest stage is as light as can be, by bisection."""
        problem = self.problem
        load = problem.work_ns
        low, high, best = 0, int(load.max(initial=0)), None
        nothing = np.zeros(2 * self.table.num_steps, np.int64)
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
        bound, _, layers = heapq.heappop(self._heap)
        rest = self._cut_off(layers)
        if rest is None:
            return
        self.parts += 1
        for number, (child_bound, child) in enumerate(self._process(rest, bound)):
            heapq.heappush(self._heap, (child_bound, 2 * self.parts + number, child))

    def _value(self) -> int:
        return NEVER if self.judge.limit_ns is None else self.judge.limit_ns

    def _cut_off(self, layers: PairLayers) -> PairLayers | None:
        """Without pairs that are in no better chain; None if no chain is left."""
        if self.judge.limit_ns is not None:
            layers = self.game.cut_off(layers, self.judge.limit_ns)
        if cheapest_walk(self.problem, layers, self.game.paths[0]).cost >= NEVER:
            return None
        return layers

    def _process(self, layers: PairLayers, bound: int) -> Iterator[tuple[int, PairLayers]]:
        """Bound one part, and split it if that does not close it."""
        game, problem = self.game, self.problem
        mixture, idle = Mixture(game), 0
        mixture.add(cheapest_walk(problem, layers, game.paths[0]).pairs)
        of_walks = np.ones(1)
        walks = [cheapest_walk(problem, layers, game.paths[0]).pairs]
        for _ in range(ROUNDS):
            of_paths, of_walks = mixture.solve()
            proven, weight, scale, walk = game.proven(layers, of_paths)
            if proven >= self._value():
                return
            self._consider(walk.pairs)
            if proven >= self._value():
                return
            idle = 0 if proven > bound + bound // 20_000 else idle + 1
            bound = max(bound, proven)
            game.add(longest_path(self.table, times_of(problem, walk.pairs)))
            game.add(mixture.mean_path(of_walks))
            walks.append(walk.pairs)
            mixture.add(walk.pairs)
            if self.judge.limit_ns is not None:
                # messages that skip stages are in the value alone, which may be far above all costs
                most = min(self.judge.limit_ns * scale, NEVER) - 1
                layers = cheap_pairs(problem, layers, weight, most)
                if cheapest_walk(problem, layers, weight).cost >= NEVER:
                    return
            if idle >= STALLED or self.clock.left_s == 0.0:
                break
        rest = self._cut_off(layers)
        if rest is None:
            return
        for child in self._split(rest, walks[: len(of_walks)], of_walks):
            smaller = self._cut_off(child)
            if smaller is not None:
                yield bound, smaller

    def _split(self, layers: PairLayers, walks: list[Ints], share: Floats) -> Iterator[PairLayers]:
        """Halves of the chains, by one of their cuts; if all have the same, they are judged.

        They then differ in the kind of the last device, which the full cut does not tell.
        """
        problem = self.problem
        choices = [np.unique(problem.head[layers.of(s)]) for s in range(layers.number - 1)]
        sizes = [len(choice) for choice in choices]
        if max(sizes, default=1) == 1:
            for pairs in product(*(layers.of(s) for s in range(layers.number))):
                walk = np.array(pairs, np.int64)
                if not self._consider(walk):
                    self.open_ns = min(self.open_ns, self.game.time(walk))
            return
        places = np.stack([problem.head[walk] for walk in walks]).astype(float)
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
            yield layers_of(parts)


def _stage_paths(table: EventTable, stages: int, passes: int) -> Iterator[Ints]:
    """For each stage, the longest paths where it takes nearly all time: all passes, or one."""
    steps = table.num_steps
    for share in ((1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))[: passes + 1]:
        for s in range(stages):
            times = np.full(2 * steps, 1e-3)
            times[steps:] = 0
            times[s] += share[0]
            if passes > 1:
                times[2 * stages - 1 - s] += share[1]
            if passes > 2:
                times[2 * stages + s] += share[2]
            yield longest_path(table, times)
