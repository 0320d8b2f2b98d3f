"""The ideal DP of the devices of one server, from each of many ideals J to all that contain it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import Ideals
from placegap.solvers.chains.kinds_problem import KindsProblem, Pool, Stage
from placegap.solvers.chains.layers import offset_of, strides_of
from placegap.solvers.chains.problem import LARGEST_LOAD, Indices
from placegap.solvers.chains.transitions import Sharing, View, device_load, share, shared_load
from placegap.solvers.chains.windows import PricedWindows, runs_on
from placegap.solvers.core.clock import Clock
from placegap.solvers.ideal_dp.any_kinds.set_sums import set_sums


class IdealPairs(NamedTuple):
    """The DP from several ideals J, each with the candidates I, J first, by size.

    Attributes
    ----------
    ptr, ideal : (sources + 1,), (pairs,) int64
        Candidates of source j are ``ideal[ptr[j]:ptr[j + 1]]``.
    value : (layers, pairs) int64
        Least max_load with these devices of the server, value of J included.
    origin, stage : (layers, pairs) int32
        Pair before and last stage of new states, -1 of others.
    """

    ptr: Ints
    ideal: Ints
    value: Ints
    origin: Indices
    stage: Indices


class Rows(NamedTuple):
    """What the difference of two ideals may take of a server: additive rows, and their cuts.

    Attributes
    ----------
    work, cut : (rows, N) int64
    most : (rows,) int64
    overlap : bool
    """

    work: Ints
    cut: Ints
    most: Ints
    overlap: bool


class Inside:
    """One type of server, over ideals that are sorted by size."""

    def __init__(
        self,
        problem: KindsProblem,
        pool: Pool,
        ideals: Ideals,
        views: list[View],
        windows: PricedWindows,
    ) -> None:
        self.problem, self.pool, self.ideals, self.views = problem, pool, ideals, views
        self.windows, self.num_layers = windows, pool.num_layers
        self.strides = strides_of(pool.counts)
        total = int(problem.parameter_bytes.sum())
        self.sharings: list[Sharing] = [share(stage, total) for stage in pool.stages]
        self.devices = pool.of_kinds(pool.counts, problem.num_kinds)

    def count(self, sources: Indices, targets: Ints, limit: int) -> Ints:
        """How many candidates each source has."""
        rows = self._rows(limit)
        return np.asarray(_count(sources, targets, self.ideals.members, rows), np.int64)

    def run(
        self, sources: Indices, value: Ints, targets: Ints, limit: int, enough: int, clock: Clock
    ) -> IdealPairs:
        """Solve from all sources, which have these values, for loads up to `limit`."""
        rows = self._rows(limit)
        sizes = _count(sources, targets, self.ideals.members, rows)
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        ideal = np.zeros(ptr[-1], np.int64)
        _list(sources, targets, self.ideals.members, rows, ptr, ideal)
        shape = self.num_layers, len(ideal)
        pairs = IdealPairs(
            ptr,
            ideal,
            np.full(shape, limit + 1, np.int64),
            np.full(shape, -1, np.int32),
            np.full(shape, -1, np.int32),
        )
        pairs.value[0, ptr[:-1]] = value
        pairs.origin[0, ptr[:-1]] = ptr[:-1]
        for layer, used in enumerate(product(*(range(n + 1) for n in self.pool.counts))):
            for u, stride in zip(used, self.strides, strict=True):
                if u:
                    np.minimum(
                        pairs.value[layer], pairs.value[layer - stride], out=pairs.value[layer]
                    )
            for mark, stage in enumerate(self.pool.stages):
                if all(need <= u for need, u in zip(stage.uses, used, strict=True)):
                    before = layer - offset_of(stage, self.strides)
                    _extend(
                        self.views[stage.kind],
                        self.sharings[mark],
                        ptr,
                        ideal,
                        pairs.value[before],
                        pairs.origin[before],
                        pairs.value[layer],
                        pairs.origin[layer],
                        pairs.stage[layer],
                        mark,
                        enough,
                    )
                    clock.check()
        return pairs

    def path(self, pairs: IdealPairs, end: int) -> Iterator[tuple[Stage, int, int]]:
        """Stages from the first source's ideal to an ideal, the last first: stage, from, to."""
        at = int(np.flatnonzero(pairs.ideal[: pairs.ptr[1]] == end)[0])
        value = pairs.value[-1, at]
        number = int(np.flatnonzero((pairs.origin[:, at] >= 0) & (pairs.value[:, at] == value))[0])
        while number:
            stage = self.pool.stages[int(pairs.stage[number, at])]
            before = int(pairs.origin[number, at])
            yield stage, int(pairs.ideal[before]), int(pairs.ideal[at])
            number, at = number - offset_of(stage, self.strides), before

    def _rows(self, limit: int) -> Rows:
        """Priced work and cut, blocks that no device here can run, bytes if all memory is small."""
        problem, among = self.problem, self.devices > 0
        found = [
            (work, cut, limit * int(p.price @ self.devices))
            for p, work, cut in self.windows.sums(among)
        ]
        nothing = np.zeros(self.ideals.size, np.int64)
        able = runs_on(problem, among)
        if not able.all():
            found.append((set_sums(self.ideals.members, (~able).astype(np.int64)), nothing, 0))
        if (problem.room[among] > 0).all():
            size = set_sums(self.ideals.members, problem.guide.blocks.resident_bytes)
            room = sum(int(r) * int(u) for r, u in zip(problem.room, self.devices, strict=True))
            found.append((size, nothing, min(room, LARGEST_LOAD)))
        work, cut = (np.array([row[at] for row in found], np.int64) for at in (0, 1))
        shape = len(found), self.ideals.size
        most = np.array([row[2] for row in found], np.int64)
        return Rows(work.reshape(shape), cut.reshape(shape), most, problem.guide.overlap)


@kernel(allocates=False)
def _is_candidate(members: Ints, rows: Rows, source: int, target: int) -> bool:
    for row in range(len(rows.most)):
        work = rows.work[row, target] - rows.work[row, source]
        cut = abs(rows.cut[row, target] - rows.cut[row, source])
        if (max(work, cut) if rows.overlap else work + cut) > rows.most[row]:
            return False
    for word in range(members.shape[1]):
        if members[source, word] & ~members[target, word]:
            return False
    return True


@kernel
def _count(sources: Indices, targets: Ints, members: Ints, rows: Rows) -> Ints:
    sizes = np.zeros(len(sources), np.int64)
    for j in range(len(sources)):
        for target in targets:
            if target >= sources[j] and _is_candidate(members, rows, sources[j], target):
                sizes[j] += 1
    return sizes


@kernel(allocates=False)
def _list(
    sources: Indices, targets: Ints, members: Ints, rows: Rows, ptr: Ints, ideal: Ints
) -> None:
    for j in range(len(sources)):
        at = ptr[j]
        for target in targets:
            if target >= sources[j] and _is_candidate(members, rows, sources[j], target):
                ideal[at] = target
                at += 1


@kernel
def _extend(
    d: View,
    sharing: Sharing,
    ptr: Ints,
    ideal: Ints,
    value_before: Ints,
    origin_before: Indices,
    value: Ints,
    origin: Indices,
    stage_of: Indices,
    mark: int,
    enough: int,
) -> None:
    """Improve the values of a layer by one more stage after the new states of another."""
    longest = 0
    for j in range(len(ptr) - 1):
        longest = max(longest, ptr[j + 1] - ptr[j])
    new = np.empty(longest, np.int64)
    for j in range(len(ptr) - 1):
        found, passed = 0, ptr[j]
        for at in range(ptr[j], ptr[j + 1]):
            while passed < at:
                if origin_before[passed] >= 0:
                    new[found] = passed
                    found += 1
                passed += 1
            if value[at] <= enough:
                continue
            target = ideal[at]
            most = sharing.replicas * (value[at] - 1)
            for number in range(found):
                before = new[number]
                source = ideal[before]
                if value_before[before] >= value[at]:
                    continue
                if d.need[target] - d.need[source] > d.room:
                    continue
                helps = True
                for q in range(d.potential.shape[1]):
                    if d.potential[target, q] - d.potential[source, q] > most:
                        helps = False
                if not helps:
                    continue
                load = device_load(d, target, source, most + 1)
                if sharing.replicas > 1:
                    parameters = d.parameters[target] - d.parameters[source]
                    load = shared_load(sharing, load, parameters, value[at])
                now = max(value_before[before], load)
                if now < value[at]:
                    value[at], origin[at], stage_of[at] = now, before, mark
                    most = sharing.replicas * (now - 1)
                    if now <= enough:
                        break
