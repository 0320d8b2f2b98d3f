"""The ideal DP: layers of states (devices taken of each class, ideal), for loads up to a limit.

value(u, I) is the least max_load when at most u_c devices of each class c take ideal I. It falls as
u grows. So a state is *new* only if its value is below that of all (u - one device, I), and only
new states are extended: what the others reach, fewer devices reach at the same value.

Devices may be of any kinds; servers are in `bracket.ServerSearch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.solvers.chains.ideals import Ideals, bit_set, blocks_of
from placegap.solvers.chains.kinds_problem import Stage
from placegap.solvers.chains.problem import Indices
from placegap.solvers.chains.transitions import (
    Cuts,
    Extension,
    States,
    View,
    build_sources,
    no_peak,
    relax,
    share,
)
from placegap.solvers.chains.windows import PriceBook, PricedWindows, set_sums
from placegap.solvers.core.clock import Clock, LimitReached

BUDGET = 2_000_000  # nodes of trees between two checks of the clock
MOST_STATES = 20_000_000  # most new states of all layers, 20 bytes each


@dataclass(frozen=True)
class Pipeline:
    """A chain plan: its load, and the devices of each op."""

    value: int
    placement: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Layer:
    """New states: ideals, values, numbers of the states before and of the last stage or server."""

    ideal: Indices
    value: Ints
    origin: Indices
    last: Indices


class LayerSearch:
    """The DP over a list of ideals of a problem, the empty ideal and the full one among them."""

    def __init__(self, book: PriceBook, ideals: Ideals, clock: Clock) -> None:
        # With all ideals that matter in the list the search is exact, with some of them it is a
        # heuristic. Servers cost nothing here. The sums of the ideals are the amounts of `book`.
        self.problem, self.ideals, self.clock = book.problem, ideals, clock
        self.blocks, self.pool = book.problem.blocks, book.problem.pool
        self.windows = PricedWindows(book, ideals)
        self.views = [see(self.windows, kind) for kind in range(self.problem.num_kinds)]
        total = int(self.problem.parameter_bytes.sum())
        self.sharings = [share(stage, total) for stage in self.pool.stages]
        #: What stages hold at their peak, empty if that is not checked; and (D,) int64, the bytes
        #: that a device of each kind can hold then.
        self.peak, self.peak_room = no_peak(), np.zeros(len(self.views), np.int64)
        full = bit_set(np.ones(self.problem.num_blocks, np.bool_))
        self.empty, self.full = ideals.find(np.zeros_like(full)), ideals.find(full)

    def best(self, limit: int, enough: int) -> Pipeline | None:
        """A pipeline of least load, or None if none has at most `limit`."""
        # The search ends at a load of at most `enough`. With a lower bound as `enough` the pipeline
        # is optimal; with ``enough == limit`` the search only decides whether there is one.
        if self.empty < 0 or self.full < 0:
            return None
        counts = self.pool.counts
        strides = strides_of(counts)
        if (strides[0] + 1) * self.ideals.size > MOST_VALUES:
            raise LimitReached(f"{self.pool.num_layers} layers of states fill the memory")
        # Vectors of devices are numbered in lexicographic order. One device less of class c lowers
        # the number by strides[c], at most strides[0], so the values of that many layers are kept;
        # a stage leads at most `reach` layers on.
        reach = max(offset_of(stage, strides) for stage in self.pool.stages)
        values: dict[int, Ints] = {}
        layers: list[Layer] = []
        found: tuple[int, int, int] | None = None
        states = 0
        for number, used in enumerate(product(*(range(count + 1) for count in counts))):
            if number:
                before = [number - d for d, u in zip(strides, used, strict=True) if u]
                known = np.minimum.reduce([values[at] for at in before])
                targets = known > enough
                have = self.pool.of_kinds(used, self.problem.num_kinds)
                targets &= self.windows.inside(have, limit)
                # After the last device only the full ideal counts.
                if used == counts:
                    targets[: self.full] = targets[self.full + 1 :] = False
                layer = self._layer(used, layers, strides, np.flatnonzero(targets), known, enough)
            else:
                known = np.full(self.ideals.size, limit + 1, np.int64)
                one = np.zeros(1, np.int32)
                layer = Layer(one + np.int32(self.empty), np.zeros(1, np.int64), one, one)
            known[layer.ideal] = layer.value
            layers.append(layer)
            values[number] = known
            values.pop(number - strides[0], None)
            states += len(layer.ideal)
            if states > MOST_STATES:
                raise LimitReached(f"{states} states of the ideal DP fill the memory")
            if number >= reach:  # nothing extends it any more: `_trace` needs no values
                layers[number - reach] = replace(
                    layers[number - reach], value=np.zeros(0, np.int64)
                )
            here = np.flatnonzero(layer.ideal == self.full)
            if len(here) and (found is None or known[self.full] < found[0]):
                found = int(known[self.full]), number, int(here[0])
            if found is not None and found[0] <= enough:
                break
        return None if found is None else self._trace(*found, layers, strides)

    def _layer(
        self,
        used: tuple[int, ...],
        layers: list[Layer],
        strides: list[int],
        chosen: Ints,
        known: Ints,
        enough: int,
    ) -> Layer:
        """The new states with these devices."""
        targets = chosen.astype(np.int32)
        states = States(known[chosen], *(np.full(len(targets), -1, np.int32) for _ in range(2)))
        for mark, stage in enumerate(self.pool.stages):
            if any(need > u for need, u in zip(stage.uses, used, strict=True)):
                continue
            before = layers[len(layers) - offset_of(stage, strides)]
            if len(before.ideal) == 0 or len(targets) == 0:
                continue
            view = self.views[stage.kind]
            sources = build_sources(view, before.ideal, before.value)
            room = int(self.peak_room[stage.kind])
            extension = Extension(view, sources, self.sharings[mark], mark, self.peak, room)
            at = 0
            while at < len(targets):
                with np.errstate(over="ignore"):  # `cut_between` wraps around 64 bits on purpose
                    at = relax(extension, targets, states, enough, at, BUDGET)
                self.clock.check()
        new = states.origin >= 0
        return Layer(targets[new], states.value[new], states.origin[new], states.last[new])

    def _trace(
        self, value: int, number: int, at: int, layers: list[Layer], strides: list[int]
    ) -> Pipeline:
        """Walk back from a state of the full ideal."""
        pieces = []
        while number:
            layer = layers[number]
            stage = self.pool.stages[int(layer.last[at])]
            inside, at = self.ideals.members[layer.ideal[at]], int(layer.origin[at])
            number -= offset_of(stage, strides)
            outside = self.ideals.members[layers[number].ideal[at]]
            pieces.append((blocks_of(inside & ~outside), stage))
        free = [list(own) for own in self.pool.copies[0]]
        return self.pipeline(value, [(own, take(free, stage)) for own, stage in reversed(pieces)])

    def pipeline(self, value: int, pieces: Sequence[tuple[Ints, tuple[int, ...]]]) -> Pipeline:
        """The plan of a value, from the blocks of each stage and its devices."""
        of_block: list[tuple[int, ...]] = [()] * self.blocks.num_blocks
        for blocks, devices in pieces:
            for v in blocks.tolist():
                of_block[v] = devices
        return Pipeline(value, tuple(of_block[v] for v in self.blocks.block.tolist()))


def strides_of(counts: Sequence[int]) -> list[int]:
    """By how much the number of a layer grows with one more device of each class."""
    return [prod(count + 1 for count in counts[c + 1 :]) for c in range(len(counts))]


def offset_of(stage: Stage, strides: list[int]) -> int:
    """By how much the number of a layer grows with a stage."""
    return sum(need * stride for need, stride in zip(stage.uses, strides, strict=True))


def take(free: list[list[int]], stage: Stage) -> tuple[int, ...]:
    """Remove devices for a stage from those free in each class, and return them."""
    taken = [own.pop(0) for own, need in zip(free, stage.uses, strict=True) for _ in range(need)]
    return tuple(sorted(taken))


MOST_VALUES = 50_000_000  # most values of layers that are still needed, 8 bytes each


def see(windows: PricedWindows, kind: int) -> View:
    """Work, needs and cuts of a problem's ideals on one kind of device."""
    problem, ideals = windows.problem, windows.ideals
    alone = windows.sums(np.arange(problem.num_kinds) == kind)  # its first price is 1
    work, cut = alone.work[:, 0].copy(), alone.cut[:, 0].copy()
    weight = problem.weight[kind].copy()
    pays = bool(weight.any())
    # Load adds work and cut, or under overlap is the larger of them: these are its potentials.
    if not pays:
        columns = [work]
    else:
        columns = [work, cut, -cut] if problem.overlap else [work + cut, work - cut]
    return View(
        Cuts(ideals.members, ideals.cut_nets, cut, weight, problem.net_ptr, problem.pin),
        work,
        set_sums(ideals.members, problem.need[kind]),
        set_sums(ideals.members, problem.parameter_bytes),
        np.stack(columns, axis=1),
        int(problem.room[kind]),
        pays,
        problem.overlap,
    )
