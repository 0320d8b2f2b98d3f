"""Value and bound of the best chain, brought together: orders, decisions, a run for the value.

First a good plan, from ideals along a few orders (`Bracket.cut`). Then decisions over all ideals
that windows leave: is there a plan within a limit? A no raises the bound, a plan lowers the value,
until they are close; a last run computes the value with the bound as its floor (`Bracket.finish`).
This is exact: a run with ``enough`` = bound is right about every value above the bound.

With two levels of communication servers take super-segments, devices segments: a chain of devices
in which those of a server follow each other. With value(U, I) the least max_load when servers U
take ideal I,

    value(U + s, I) = min over J within I of max(value(U, J), inside_s(J, I), border_s(I - J)),

where inside_s(J, I) is the ideal DP of the devices of s from J to I (`Inside`), and border_s the
cut of I - J at the costs of the server. The border depends on J, so that every J needs a DP of its
own: O(N^3) pairs of ideals in the worst case, far fewer in the windows of a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import MaxLoad, Plan
from placegap.solvers.chains.ideals import Ideals, MemoryFull, blocks_of, enumerate_ideals, prefixes
from placegap.solvers.chains.kinds_problem import KindsProblem, Pool, Stage
from placegap.solvers.chains.layers import Layer, LayerSearch, Pipeline, offset_of, strides_of, take
from placegap.solvers.chains.orders import orders, places_to_cut
from placegap.solvers.chains.problem import Indices
from placegap.solvers.chains.transitions import (
    Cuts,
    Sharing,
    States,
    View,
    cut_between,
    share,
    stage_load,
)
from placegap.solvers.chains.windows import (
    PriceBook,
    PricedWindows,
    set_sums,
    walk_in_windows,
    window_tests,
    work_bound,
)
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Known
from placegap.solvers.core.result import Bound
from placegap.solvers.core.starts import best_start


class IdealPairs(NamedTuple):
    """The DP from several ideals J, each with its candidates I: J first, then by size."""

    #: ptr, ideal: (sources + 1,): Candidates of source j are ``ideal[ptr[j]:ptr[j + 1]]``.
    ptr: Ints
    ideal: Ints
    value: Ints  # (layers, pairs): least max_load with these devices of the server, with J's value
    #: origin, stage: (layers, pairs) int32: Pair before and last stage of new states, -1 of others.
    origin: Indices
    stage: Indices


class Rows(NamedTuple):
    """Limits on the difference of two ideals in a server: additive rows and their cuts."""

    #: work, cut: (N, rows) int64
    work: Ints
    cut: Ints
    most: Ints  # (rows,) int64
    overlap: bool


class Inside:
    """The DP within one type of server, over ideals sorted by size."""

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
        """The number of candidates of each source."""
        rows = self._rows(limit)
        return np.diff(_candidates(sources, targets, self.ideals.members, rows, False)[0])

    def run(
        self, sources: Indices, value: Ints, targets: Ints, limit: int, enough: int, clock: Clock
    ) -> IdealPairs:
        """Solve from all sources, which have these values, for loads up to `limit`."""
        rows = self._rows(limit)
        ptr, ideal = _candidates(sources, targets, self.ideals.members, rows, True)
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
                    view, sharing = self.views[stage.kind], self.sharings[mark]
                    _extend(view, sharing, pairs, before, layer, mark, enough)
                    clock.check()
        return pairs

    def path(self, pairs: IdealPairs, end: int) -> Iterator[tuple[Stage, int, int]]:
        """Stages from the first source's ideal to an ideal, the last first: stage, from, to."""
        # The first layer that has the value is that of fewest devices.
        at = int(np.flatnonzero(pairs.ideal[: pairs.ptr[1]] == end)[0])
        value = pairs.value[-1, at]
        number = int(np.flatnonzero((pairs.origin[:, at] >= 0) & (pairs.value[:, at] == value))[0])
        while number:
            stage = self.pool.stages[int(pairs.stage[number, at])]
            before = int(pairs.origin[number, at])
            yield stage, int(pairs.ideal[before]), int(pairs.ideal[at])
            number, at = number - offset_of(stage, self.strides), before

    def _rows(self, limit: int) -> Rows:
        """The windows' limits on what the server's devices take between two ideals."""
        among = self.devices > 0
        sums = self.windows.sums(among)
        most = [row.most(self.devices, limit) for row in self.windows.book.rows(among)]
        return Rows(sums.work, sums.cut, np.array(most, np.int64), self.problem.overlap)


@kernel
def _candidates(
    sources: Indices, targets: Ints, members: Ints, rows: Rows, listed: bool
) -> tuple[Ints, Ints]:
    """Where the candidates of each source begin, and, if they are to be listed, the candidates."""
    # One pass counts and a second one writes, so that no array grows. Ideals are sorted by size:
    # only later ones can contain a source. Sums come before the bit sets, as they exclude more.
    ptr, ideal = np.zeros(len(sources) + 1, np.int64), np.zeros(0, np.int64)
    for writes in range(2 if listed else 1):
        if writes:
            ideal = np.zeros(ptr[-1], np.int64)
        at = 0
        for j in range(len(sources)):
            for target in targets:
                holds = target >= sources[j]
                for row in range(len(rows.most)):
                    if not holds:
                        break
                    work = rows.work[target, row] - rows.work[sources[j], row]
                    cut = abs(rows.cut[target, row] - rows.cut[sources[j], row])
                    total = max(work, cut) if rows.overlap else work + cut
                    holds = total <= rows.most[row]
                for word in range(members.shape[1]):
                    if not holds:
                        break
                    holds = not members[sources[j], word] & ~members[target, word]
                if holds:
                    if writes:
                        ideal[at] = target
                    at += 1
            ptr[j + 1] = at
    return ptr, ideal


@kernel
def _extend(
    d: View, sharing: Sharing, pairs: IdealPairs, before: int, layer: int, mark: int, enough: int
) -> None:
    """Improve the values of a layer by one more stage after the new states of another."""
    # For each source J, `new` collects the new states before the candidate at hand: smaller ideals
    # come first, so no later one can lie within it.
    ptr, ideal, value = pairs.ptr, pairs.ideal, pairs.value[layer]
    value_before, origin_before = pairs.value[before], pairs.origin[before]
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
                state = new[number]
                source = ideal[state]
                if value_before[state] >= value[at]:
                    continue
                if d.need[target] - d.need[source] > d.room:
                    continue
                # The potentials of `transitions`: a bound on the load without looking at nets.
                helps = True
                for q in range(d.potential.shape[1]):
                    if d.potential[target, q] - d.potential[source, q] > most:
                        helps = False
                if not helps:
                    continue
                load = stage_load(d, sharing, target, source, value[at])
                now = max(value_before[state], load)
                if now < value[at]:
                    value[at], pairs.origin[layer, at], pairs.stage[layer, at] = now, state, mark
                    most = sharing.replicas * (now - 1)
                    if now <= enough:
                        break


PAIRS = 1_000_000  # most states (J, devices taken, I) that are kept at a time, 14 bytes each


class ServerSearch(LayerSearch):
    """The DP over servers, and within them over devices; ideals are sorted by size: J before I."""

    def __init__(self, book: PriceBook, ideals: Ideals, clock: Clock) -> None:
        bits = np.ascontiguousarray(ideals.members).view(np.uint8)
        size = np.unpackbits(bits, axis=1).sum(axis=1, dtype=np.int64)
        super().__init__(book, ideals.take(np.argsort(size, kind="stable")), clock)
        problem = book.problem
        self.of_type = [
            Inside(problem, pool, self.ideals, self.views, self.windows) for pool in problem.servers
        ]
        self.cuts = [set_sums(self.ideals.cut_nets, own) for own in problem.border]

    def best(self, limit: int, enough: int) -> Pipeline | None:
        """A pipeline of least load, or None if none has at most `limit`; as in `LayerSearch`."""
        if self.empty < 0 or self.full < 0:
            return None
        if not self.windows.may_hold(self.problem.counts, limit, rest=True)[self.empty]:
            return None
        counts = [len(pool.copies) for pool in self.problem.servers]
        strides = strides_of(counts)
        values: dict[int, Ints] = {}
        layers: list[Layer] = []
        for number, used in enumerate(product(*(range(count + 1) for count in counts))):
            before = [(s, number - strides[s]) for s, u in enumerate(used) if u]
            value = np.full(self.ideals.size, limit + 1, np.int64)
            for _, at in before:
                np.minimum(value, values[at], out=value)
            if number == 0:
                value[self.empty] = 0
            states = States(value, *(np.full(len(value), -1, np.int32) for _ in range(2)))
            for s, at in before:
                self._add(s, used, layers[at], states, limit, enough)
            new = np.flatnonzero(states.origin >= 0) if number else np.array([self.empty])
            ends = new.astype(np.int32)
            layers.append(Layer(ends, value[new], states.origin[new], states.last[new]))
            values[number] = value
            if value[self.full] <= enough:
                break
        return self._walk_back(int(value[self.full]), limit, enough, layers, strides)

    def _add(
        self, s: int, used: tuple[int, ...], before: Layer, states: States, limit: int, enough: int
    ) -> None:
        """Improve the states by one more server of a type."""
        # Windows test both ends: the servers used so far must be able to hold I, the others the
        # rest. Within the server only the rest is tested, as a part of its devices may hold less.
        total, end = self.problem.counts, self._devices(used)
        start = end - self.problem.servers[s].of_kinds(
            self.problem.servers[s].counts, self.problem.num_kinds
        )
        within = self.windows.may_hold(total - start, limit, rest=True)
        ends = self.windows.may_hold(end, limit, rest=False)
        ends &= self.windows.may_hold(total - end, limit, rest=True)
        targets = np.flatnonzero(within)
        problem, ideals = self.problem, self.ideals
        own = self.problem.border[s]
        border = Cuts(
            ideals.members, ideals.cut_nets, self.cuts[s], own, problem.net_ptr, problem.pin
        )
        for first, pairs in self._pairs(s, before, targets, limit, enough):
            _close(pairs, first, border, ends, states, s, enough)

    def _pairs(
        self, s: int, before: Layer, targets: Ints, limit: int, enough: int
    ) -> Iterator[tuple[int, IdealPairs]]:
        """The DP within the server from all new states, in portions; the first state of each."""
        inside = self.of_type[s]
        room = max(1, PAIRS // inside.num_layers)
        sizes = inside.count(before.ideal, targets, limit)
        first = 0
        while first < len(before.ideal):
            last = first + max(1, int(np.searchsorted(np.cumsum(sizes[first:]), room, "right")))
            chosen = slice(first, last)
            yield (
                first,
                inside.run(
                    before.ideal[chosen], before.value[chosen], targets, limit, enough, self.clock
                ),
            )
            first = last

    def _devices(self, used: tuple[int, ...]) -> Ints:
        """Number of devices of each kind in some servers."""
        d = self.problem.num_kinds
        pools = self.problem.servers
        parts = [u * pool.of_kinds(pool.counts, d) for u, pool in zip(used, pools, strict=True)]
        return np.asarray(np.sum(parts, axis=0), np.int64)

    def _walk_back(
        self, value: int, limit: int, enough: int, layers: list[Layer], strides: list[int]
    ) -> Pipeline | None:
        """Walk back from the full ideal, and again through each server."""
        # The DP within a server is run again for its one source: its states were not kept.
        if value > limit:
            return None
        problem = self.problem
        number, at = next(
            (number, int(found[0]))
            for number, layer in enumerate(layers)
            if len(found := np.flatnonzero((layer.ideal == self.full) & (layer.value == value)))
        )
        left = [list(pool.copies) for pool in problem.servers]
        pieces = []
        everything = np.arange(self.ideals.size)
        while number:
            layer = layers[number]
            s, end = int(layer.last[at]), int(layer.ideal[at])
            at, number = int(layer.origin[at]), number - strides[s]
            one = slice(at, at + 1)
            start = layers[number].ideal[one]
            pairs = self.of_type[s].run(
                start, layers[number].value[one], everything, limit, enough, self.clock
            )
            free = [list(own) for own in left[s].pop(0)]
            for stage, low, high in self.of_type[s].path(pairs, end):
                taken = self.ideals.members[high] & ~self.ideals.members[low]
                pieces.append((blocks_of(taken), take(free, stage)))
        return self.pipeline(value, pieces)


@kernel(allocates=False)
def _close(
    pairs: IdealPairs, first: int, border: Cuts, ends: Flags, states: States, mark: int, enough: int
) -> None:
    """Improve the values of ideals that a server may end at, with the cost of its border."""
    ptr, value, layer = pairs.ptr, states.value, len(pairs.value) - 1
    for j in range(len(ptr) - 1):
        source = pairs.ideal[ptr[j]]
        for at in range(ptr[j] + 1, ptr[j + 1]):
            target, inside = pairs.ideal[at], pairs.value[layer, at]
            if not ends[target] or value[target] <= enough or inside >= value[target]:
                continue
            # The potential of a cut: cut(I - J) is at least the difference of the two.
            if abs(border.cut[target] - border.cut[source]) >= value[target]:
                continue
            now = max(inside, cut_between(border, target, source))
            if now < value[target]:
                value[target], states.origin[target], states.last[target] = now, first + j, mark


MOST_BYTES = 800_000_000  # memory for ideals, and for what a search keeps of each
BOUND_ROUNDS = 6  # if the ideals do not fit the memory: limits that are tried to find some that do
NUM_ORDERS, MOST_CUTS = 6, 400  # number of orders that are cut first, and most places to cut each
# Up to this many ideals, one run over all replaces the orders. It takes 10 instead of 22 ms on 30
# ideals of the published inputs, 17 instead of 24 on 1,428, and 72 instead of 61 on 2,906.
FEW = 2_000
MOST_SERVER_IDEALS = 16_000  # with servers and more ideals than this the bound ignores the servers
BISECTION = 0.004  # relative gap at which bisection hands over to a run for the value


BY_DP = "ideal-dp"


class Bracket(Known):
    """Best plan and bound of one problem, and the searches that improve them."""

    def __init__(self, task: Task[MaxLoad], problem: KindsProblem, clock: Clock) -> None:
        self.task, self.problem, self.clock = task, problem, clock
        self.book = PriceBook(problem)
        least = Bound(work_bound(problem, self.book.of_all), "combinatorial")
        super().__init__(gap=task.limits.gap, bound=least)
        #: Number of ideals, and number of those kept.
        self.counts: dict[str, int] = {}
        self.offer_plan(task, task.incumbent)

    def take(self, found: Pipeline | None) -> bool:
        """Take over a pipeline if there is one and it is better; False otherwise."""
        return found is not None and self.improve(found.value, Plan(found.placement))

    @property
    def limit(self) -> int:
        """The largest load that is an improvement."""
        return self.problem.largest_load if self.value is None else self.value - 1

    def cut(self, max_ideals: int) -> None:
        """Find a good plan fast: the DP over the ideals of one topological order after another."""
        # If there are few ideals in all, one run over them replaces the orders.
        # A low limit keeps few states; it is raised until a plan is found.
        limit, few = min(self.limit, 2 * self.bound.value + 1), self._few(max_ideals)
        for ideals in self._of_orders() if few is None else (few,):
            if self.is_close:
                return
            search = self.search(ideals)
            while not self.take(search.best(limit, self.bound.value)):
                if limit >= self.limit or (few is None and self.value is not None):
                    break
                limit = min(4 * limit, self.limit)
            if self.value is not None:
                limit = self.limit
        if few is not None and self.value is not None:
            self.prove(Bound(self.value, BY_DP))

    def _few(self, max_ideals: int) -> Ideals | None:
        """All ideals within the windows, if they are few; else None."""
        try:
            ideals, total = self._enumerate(self.limit, min(FEW, max_ideals))
        except LimitReached:
            self.clock.check()
            return None
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        return ideals

    def close(self, max_ideals: int) -> None:
        """Close the gap with the DP over all ideals within the windows."""
        if self.is_close:
            return
        try:
            ideals, total = self._enumerate(self.limit, max_ideals)
        except LimitReached as reached:
            self.clock.check()
            if isinstance(reached, MemoryFull) and not self.problem.servers:
                self._bisect_in_memory(max_ideals)
            raise
        if not self._start(ideals, total):
            return
        if self.problem.servers:
            self._without_servers(ideals)
            if not self.is_close and ideals.size > MOST_SERVER_IDEALS:
                raise LimitReached(
                    f"{ideals.size} ideals, with servers at most {MOST_SERVER_IDEALS}"
                )
        self.finish(self.search(ideals))

    def _enumerate(self, limit: int, max_ideals: int) -> tuple[Ideals, int]:
        """The ideals within the windows of a limit, and the number of all ideals."""
        most = max(2, MOST_BYTES // bytes_per_ideal(self.book))
        walk = partial(walk_in_windows, window_tests(self.book, limit))
        problem, amounts = self.problem, self.book.amounts
        return enumerate_ideals(problem, amounts, walk, self.clock, max_ideals, most)

    def _bisect_in_memory(self, max_ideals: int) -> None:
        """Close the gap as far as the ideals fit the memory: lower limits leave fewer ideals."""
        high = self.limit
        for _ in range(BOUND_ROUNDS):
            limit = (self.bound.value + high) // 2
            if self.is_close or self.bound.value > limit:
                return
            try:
                ideals, _ = self._enumerate(limit, max_ideals)
            except MemoryFull:
                high = limit
                continue
            found = None
            # Without the empty ideal not even all devices hold everything within the limit.
            if ideals.size and not ideals.members[0].any():
                found = self.search(ideals).best(limit, limit)
            if self.take(found):
                high = self.limit
            else:
                self.prove(Bound(limit + 1, BY_DP))

    def _without_servers(self, ideals: Ideals) -> None:
        """A bound, and perhaps a better plan, from the DP without the costs of servers."""
        relaxed = replace(self.task, incumbent=None)
        inner = Bracket(relaxed, replace(self.problem, servers=()), self.clock)
        inner.bound, inner.value, inner.plan = self.bound, self.value, self.plan
        try:
            inner.finish(inner.search(ideals))
        finally:
            self.prove(Bound(inner.bound.value, "ideal-dp without servers"))
            self.offer_plan(self.task, inner.plan)

    def _start(self, ideals: Ideals, total: int) -> bool:
        """Note the numbers of ideals; False, with the value proven, if the windows leave none."""
        # If they exclude even the empty ideal, all devices together cannot hold the rest of it.
        self.counts.update(ideals=total, kept_ideals=ideals.size)
        if ideals.size == 0 or ideals.members[0].any():
            if self.value is not None:
                self.prove(Bound(self.value, BY_DP))
            return False
        return True

    def finish(self, search: LayerSearch) -> None:
        """Close the gap: by decisions down to a relative gap, then by one run for the value."""
        self._bisect(search)
        if not self.is_close and self.value is not None:
            self.take(search.best(self.limit, self.bound.value))
            self.prove(Bound(self.value, BY_DP))

    def _bisect(self, search: LayerSearch) -> None:
        """Decide whether anything is better; if so, narrow the bracket to a relative gap."""
        # The plan of a decision is often optimal, and then only the proof is missing: so value - 1
        # is tried next (`straight`). Not twice in a row, as values could fall ns by ns.
        limit, straight = self.limit, False
        while not self.is_close:
            improved = self.take(search.best(limit, limit))
            if not improved:
                if self.value is None:
                    return  # no chain of ideals fits at all
                self.prove(Bound(limit + 1, BY_DP))
            assert self.value is not None
            if self.value - self.bound.value <= BISECTION * self.value:
                return
            straight = improved and not straight
            limit = self.limit if straight else (self.bound.value + self.value) // 2

    def search(self, ideals: Ideals) -> LayerSearch:
        """The search over some ideals, with servers if there are any."""
        kind = ServerSearch if self.problem.servers else LayerSearch
        return kind(self.book, ideals, self.clock)

    def _of_orders(self) -> Iterator[Ideals]:
        problem = self.problem
        for order in islice(orders(problem, self.task.limits.seed), NUM_ORDERS):
            stops = places_to_cut(order, problem.time.max(axis=0), problem.nets, MOST_CUTS)
            yield prefixes(problem, self.book.amounts, order, stops)
            self.clock.check()

    def devices_of_kinds(self) -> list[tuple[int, ...]]:
        """Devices of each kind, by classes."""
        pool = self.problem.pool
        return [
            tuple(k for c, own in enumerate(pool.copies[0]) if pool.kinds[c] == kind for k in own)
            for kind in range(self.problem.num_kinds)
        ]

    def simple_plan(self) -> None:
        """A plan where even the orders were too much: slices in fixed sequences, one device."""
        semantics = self.task.semantics
        plain = MaxLoad(plans="chain", load=semantics.load)
        limits = replace(self.task.limits, time_limit_s=0.0)
        for name in ("slicing", "single-device"):
            task = replace(self.task, semantics=plain, limits=limits, incumbent=None)
            start = best_start(task, [name])
            self.offer_plan(self.task, None if start is None else start.plan)


def bytes_per_ideal(book: PriceBook) -> int:
    """Memory that one ideal takes, with what a search keeps of it."""
    problem, pool, kinds = book.problem, book.problem.pool, book.problem.num_kinds
    layers: int = min(pool.num_layers, 2**20)
    kept = layers // (pool.counts[0] + 1) + 2
    rows = book.amounts.width if book.in_sums else (kinds + 1) * min(2**kinds, layers)
    total: int = 8 * (
        2 * (problem.num_words + problem.num_net_words) + 6 * kinds + kept + 2 * rows + 8
    )
    return total
