"""Branch and bound over the cuts of one number of stages, with a game as its bound."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from copy import copy
from itertools import product

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.integers import NEVER
from placegap.solvers.core.clock import Clock
from placegap.solvers.pipeline.branch_and_bound import Game, Judge, Mixture
from placegap.solvers.pipeline.cuts import CutProblem
from placegap.solvers.pipeline.event_times import (
    EventTable,
    PairLayers,
    cheap_pairs,
    cheapest_walk,
    improve,
    layers_of,
    longest_path,
    times_of,
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
