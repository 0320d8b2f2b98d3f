"""The ideal DP over any devices: layers of states (devices taken of each class, ideal).

value(u, I) is the least max_load when u_c devices of each class c at most take ideal I. It falls as
u grows. So a state is *new* only if its value is below that of all (u - one device, I), and only
new states are extended: what the others reach is reached with fewer devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.problem import Indices, words
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.any_kinds.pools import Stage
from placegap.solvers.ideal_dp.any_kinds.problem import KindsProblem
from placegap.solvers.ideal_dp.any_kinds.sets import Sets
from placegap.solvers.ideal_dp.any_kinds.stages import View, build_tree, relax, see, share
from placegap.solvers.ideal_dp.any_kinds.windows import PriceBook, Windows

BUDGET = 2_000_000
"""Nodes of trees between two looks at the clock."""

MOST_STATES = 20_000_000
"""New states of all layers; 20 bytes each."""

MOST_VALUES = 50_000_000
"""Values of layers that are still needed, 8 bytes each."""


@dataclass(frozen=True)
class Pipeline:
    """A chain plan: its load, and the devices of each op."""

    value: int
    placement: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class _Layer:
    """New states: ideals, values, number of the state before, and the last stage."""

    ideal: Indices
    value: Ints
    origin: Indices
    stage: Indices


class LayerSearch:
    """The DP over a list of ideals of a problem, the empty ideal and the full one among them.

    With all ideals that matter it is exact, with some of them a heuristic. Servers are not looked
    at (`any_kinds.servers`).
    """

    def __init__(self, book: PriceBook, sets: Sets, clock: Clock) -> None:
        problem = book.problem
        self.problem, self.sets, self.clock = problem, sets, clock
        self.windows = Windows(book, sets)
        self.views: list[View] = [see(problem, sets, kind) for kind in range(problem.num_kinds)]
        total = int(problem.parameter_bytes.sum())
        self.sharings = [share(stage, total) for stage in problem.pool.stages]
        self.empty = sets.find(np.zeros(sets.members.shape[1], np.int64))
        self.full = sets.find(all_of(problem))

    def best(self, limit: int, enough: int) -> Pipeline | None:
        """A pipeline of least load, or None if none has at most `limit`.

        Loads up to `enough` are all good: the search for better ones ends there. With `enough` a
        lower bound the pipeline is optimal; with ``enough == limit`` this only decides.

        Raises
        ------
        LimitReached
            If the time is over or there are too many states.

        Examples
        --------
        The ideals of one order of the diamond, of which the first two ops and the others go to one
        device each: 5 + 10 + 1 + 10 and 20 + 8 + 1 + 10.

        >>> from placegap.instances import Semantics, example
        >>> from placegap.solvers.ideal_dp.any_kinds.problem import build_kinds
        >>> from placegap.solvers.ideal_dp.any_kinds.sets import prefixes
        >>> problem = build_kinds(example(), Semantics(objective="max_load", plans="chain"))
        >>> sets = prefixes(problem.guide, np.array([0, 2, 1, 3]), np.arange(5))
        >>> LayerSearch(PriceBook(problem), sets, Clock(None)).best(limit=100, enough=0)
        Pipeline(value=39, placement=((0,), (1,), (0,), (1,)))
        """
        if self.empty < 0 or self.full < 0:
            return None
        pool = self.problem.pool
        strides = strides_of(pool.counts)
        if (strides[0] + 1) * self.sets.size > MOST_VALUES:
            raise LimitReached(f"{pool.num_layers} layers of states fill the memory")
        values: dict[int, Ints] = {}
        layers: list[_Layer] = []
        states = 0
        for number, used in enumerate(product(*(range(count + 1) for count in pool.counts))):
            before = [number - stride for u, stride in zip(used, strides, strict=True) if u]
            inherited = np.full(self.sets.size, limit + 1, np.int64)
            for at in before:
                np.minimum(inherited, values[at], out=inherited)
            layer = self._layer(used, layers, strides, inherited, limit, enough)
            inherited[layer.ideal] = layer.value
            layers.append(layer)
            values[number] = inherited
            values.pop(number - strides[0], None)
            states += len(layer.ideal)
            if states > MOST_STATES:
                raise LimitReached(f"{states} states of the ideal DP fill the memory")
            if inherited[self.full] <= enough:
                break
        return self._trace(int(inherited[self.full]), limit, layers, strides)

    def _layer(
        self, used: tuple[int, ...], layers: list[_Layer], strides: list[int], inherited: Ints,
        limit: int, enough: int,
    ) -> _Layer:  # fmt: skip
        """The new states with these devices."""
        pool, problem = self.problem.pool, self.problem
        if not layers:
            one = np.zeros(1, np.int32)
            return _Layer(one + np.int32(self.empty), np.zeros(1, np.int64), one - 1, one)
        have = pool.of_kinds(used, problem.num_kinds)
        inside = inherited > enough
        inside &= self.windows.may_hold(have, limit, rest=False)
        inside &= self.windows.may_hold(problem.counts - have, limit, rest=True)
        targets = np.flatnonzero(inside).astype(np.int32)
        value = inherited[targets]
        origin, stage_of = (np.full(len(targets), -1, np.int32) for _ in range(2))
        for mark, stage in enumerate(pool.stages):
            if any(need > u for need, u in zip(stage.uses, used, strict=True)):
                continue
            source = layers[len(layers) - offset_of(stage, strides)]
            if len(source.ideal) == 0 or len(targets) == 0:
                continue
            view = self.views[stage.kind]
            tree = build_tree(view, source.ideal, source.value)
            at = 0
            while at < len(targets):
                at = relax(
                    view, tree, self.sharings[mark], targets, value, origin, stage_of, mark,
                    enough, at, BUDGET,
                )  # fmt: skip
                self.clock.check()
        new = origin >= 0
        return _Layer(targets[new], value[new], origin[new], stage_of[new])

    def _trace(
        self, value: int, limit: int, layers: list[_Layer], strides: list[int]
    ) -> Pipeline | None:
        """Walk back from the full ideal."""
        if value > limit:
            return None
        pool = self.problem.pool
        number, at = next(
            (number, int(found[0]))
            for number, layer in enumerate(layers)
            if len(found := np.flatnonzero((layer.ideal == self.full) & (layer.value == value)))
        )
        pieces = []
        while number:
            layer = layers[number]
            stage = pool.stages[int(layer.stage[at])]
            inside, at = self.sets.members[layer.ideal[at]], int(layer.origin[at])
            number -= offset_of(stage, strides)
            outside = self.sets.members[layers[number].ideal[at]]
            pieces.append((blocks_of(inside & ~outside, self.problem), stage))
        free = [list(own) for own in pool.copies[0]]
        devices = [(blocks, take(free, stage)) for blocks, stage in reversed(pieces)]
        return Pipeline(value, placement_of(self.problem, devices))


def strides_of(counts: Sequence[int]) -> list[int]:
    """How the layers are numbered: by how much the number grows with each class.

    Examples
    --------
    >>> strides_of([2, 1])
    [2, 1]
    """
    return [prod(count + 1 for count in counts[c + 1 :]) for c in range(len(counts))]


def offset_of(stage: Stage, strides: list[int]) -> int:
    """How far a stage leads in the numbering of layers."""
    return sum(need * stride for need, stride in zip(stage.uses, strides, strict=True))


def take(free: list[list[int]], stage: Stage) -> tuple[int, ...]:
    """Devices for a stage, of those that are free in each class; they are taken out."""
    taken = [own.pop(0) for own, need in zip(free, stage.uses, strict=True) for _ in range(need)]
    return tuple(sorted(taken))


def placement_of(
    problem: KindsProblem, pieces: Sequence[tuple[Ints, tuple[int, ...]]]
) -> tuple[tuple[int, ...], ...]:
    """Devices of each op, from the blocks of each stage."""
    of_block: list[tuple[int, ...]] = [()] * problem.guide.num_blocks
    for blocks, devices in pieces:
        for v in blocks.tolist():
            of_block[v] = devices
    return tuple(of_block[v] for v in problem.guide.blocks.block.tolist())


def blocks_of(members: Ints, problem: KindsProblem) -> Ints:
    """Blocks of a bit set."""
    bits = np.unpackbits(members.view(np.uint8), bitorder="little", count=problem.guide.num_blocks)
    return np.flatnonzero(bits)


def all_of(problem: KindsProblem) -> Ints:
    """The bit set of all blocks, (words,)."""
    bits = np.zeros(words(problem.guide.num_blocks) * 64, np.uint8)
    bits[: problem.guide.num_blocks] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)
