"""The ideal DP with two levels of communication: servers take super-segments, devices segments.

A chain of devices and a chain of servers together are a chain of devices in which those of a server
follow each other. With value(U, I) the least max_load when servers U take ideal I,

    value(U + s, I) = min over J within I of max(value(U, J), inside_s(J, I), border_s(I - J)),

where inside_s(J, I) is the ideal DP of the devices of s from J to I (`any_kinds.inside_server`),
and border_s the cut of I - J at the costs of the server. The border depends on J, so that every J
needs a DP of its own: O(N^3) pairs of ideals in the worst case, far fewer in the windows of a
limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import Ideals, blocks_of, cut_between
from placegap.solvers.chains.layers import KindsSearch, Layer, Pipeline, strides_of, take
from placegap.solvers.chains.problem import Indices
from placegap.solvers.chains.servers import IdealPairs, Inside
from placegap.solvers.chains.windows import PriceBook
from placegap.solvers.core.clock import Clock
from placegap.solvers.ideal_dp.any_kinds.set_sums import set_sums

PAIRS = 1_000_000
"""States (J, devices taken, I) that are kept at a time, 14 bytes each."""


class ServerSearch(KindsSearch):
    """The DP over servers, and within them over devices.

    Ideals are looked at by size, so that J comes before I.
    """

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
        if self.empty < 0 or self.full < 0 or not self._may_start(limit):
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
            origin, server = (np.full(len(value), -1, np.int32) for _ in range(2))
            for s, at in before:
                self._add(s, used, layers[at], value, origin, server, limit, enough)
            new = np.flatnonzero(origin >= 0) if number else np.array([self.empty])
            layers.append(Layer(new.astype(np.int32), value[new], origin[new], server[new]))
            values[number] = value
            if value[self.full] <= enough:
                break
        return self._walk_back(int(value[self.full]), limit, enough, layers, strides)

    def _add(
        self,
        s: int,
        used: tuple[int, ...],
        before: Layer,
        value: Ints,
        origin: Indices,
        server: Indices,
        limit: int,
        enough: int,
    ) -> None:
        """Let one more server of a type take what lies between two ideals."""
        total, end = self.problem.counts, self._devices(used)
        start = end - self.problem.servers[s].of_kinds(
            self.problem.servers[s].counts, self.problem.num_kinds
        )
        within = self.windows.may_hold(total - start, limit, rest=True)
        ends = self.windows.may_hold(end, limit, rest=False)
        ends &= self.windows.may_hold(total - end, limit, rest=True)
        targets = np.flatnonzero(within)
        guide, border = self.problem.guide, self.problem.border[s]
        for first, pairs in self._pairs(s, before, targets, limit, enough):
            _close(
                pairs.ptr,
                pairs.ideal,
                pairs.value[-1],
                first,
                ends,
                self.ideals.members,
                self.ideals.cut_nets,
                self.cuts[s],
                border,
                guide.net_ptr,
                guide.pin,
                value,
                origin,
                server,
                s,
                limit,
                enough,
            )

    def _pairs(
        self, s: int, before: Layer, targets: Ints, limit: int, enough: int
    ) -> Iterator[tuple[int, IdealPairs]]:
        """The DP within the server from all new states, some at a time; the first state of each."""
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

    def _may_start(self, limit: int) -> bool:
        """Whether all devices together may hold everything within the limit."""
        return bool(self.windows.may_hold(self.problem.counts, limit, rest=True)[self.empty])

    def _devices(self, used: tuple[int, ...]) -> Ints:
        """Devices of each kind in some servers."""
        d = self.problem.num_kinds
        pools = self.problem.servers
        parts = [u * pool.of_kinds(pool.counts, d) for u, pool in zip(used, pools, strict=True)]
        return np.asarray(np.sum(parts, axis=0), np.int64)

    def _walk_back(
        self, value: int, limit: int, enough: int, layers: list[Layer], strides: list[int]
    ) -> Pipeline | None:
        """Walk back from the full ideal, and again through each server."""
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
    ptr: Ints,
    ideal: Ints,
    inside: Ints,
    first: int,
    ends: Flags,
    members: Ints,
    cut_nets: Ints,
    cut: Ints,
    border: Ints,
    net_ptr: Ints,
    pin: Ints,
    value: Ints,
    origin: Indices,
    server: Indices,
    mark: int,
    limit: int,
    enough: int,
) -> None:
    """Improve the values of ideals that a server may end at, by its border."""
    for j in range(len(ptr) - 1):
        source = ideal[ptr[j]]
        for at in range(ptr[j] + 1, ptr[j + 1]):
            target = ideal[at]
            if not ends[target] or value[target] <= enough or inside[at] >= value[target]:
                continue
            if abs(cut[target] - cut[source]) >= value[target]:
                continue
            now = max(
                inside[at],
                cut_between(members, cut_nets, cut, border, net_ptr, pin, target, source),
            )
            if now < value[target]:
                value[target], origin[target], server[target] = now, first + j, mark
