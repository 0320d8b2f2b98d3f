"""The bound on latency_subgraphs, and plans, from chains of ideals of a spine's nodes.

Searches go forward and backward in turn. What one has left at an ideal bounds what the next one has
still to do from there: so labels that lead nowhere are dropped, and with more labels each time the
search ends with a plan that has the bound, where the spine has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.integers import NEVER
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.latency.call_rows import Row
from placegap.solvers.latency.ideals.labels import (
    CallCosts,
    Labels,
    extend,
    new_labels,
    new_walk,
)
from placegap.solvers.latency.ideals.lattice import ChainLattice, build_lattice
from placegap.solvers.latency.ideals.tails import front_tails, tails
from placegap.solvers.latency.masks import masks, members
from placegap.solvers.latency.spine import Spine

MOST_NUMBERS = 2**26
"""Numbers of 8 bytes in all labels, and in the table of what is left."""

WIDEST = 62
"""Most nodes that feed the rest of an ideal: they are bits of a word."""

STEPS = 100_000
"""Labels times calls between two looks at the clock: a tenth of a second, about."""

MOST_PLACES = 30_000_000
"""Ideals times nodes: so many pairs are looked at for the lattice."""


class ChainsFound(NamedTuple):
    """A bound, and the row of a plan of the spine that may have it.

    Attributes
    ----------
    bound_ns : int
    row : Row or None
    exact : bool
        Whether more labels would find nothing else.
    ended : bool
        False if the time was over.
    """

    bound_ns: int
    row: Row | None
    exact: bool
    ended: bool


@dataclass(eq=False)
class _Side:
    """The lattice in one direction of time, and what it costs to go through it."""

    nodes: Ints
    inside: Flags
    feeds: Ints
    lattice: ChainLattice
    costs: CallCosts
    opposite: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def search(self, limit_ns: int, most: int, clock: Clock) -> tuple[Labels, bool]:
        """Labels of all ideals, and whether all are extended."""
        lattice, costs = self.lattice, self._with_stays_calls(limit_ns)
        width = 1 + int(np.diff(lattice.front_ptr).max(initial=0))
        first, count = 0, len(lattice.mask)
        enough = count * most * (costs.most_calls + 1)
        labels = new_labels(lattice, min(enough, MOST_NUMBERS // (width + 7)))
        walk = new_walk(lattice, len(self.nodes))
        while first < count:
            try:
                clock.check()
            except LimitReached:
                labels.head[:first] = -1
                return labels, False
            first = extend(lattice, costs, labels, walk, first, STEPS, limit_ns, most)
        return labels, True

    def _with_stays_calls(self, limit_ns: int) -> CallCosts:
        """Costs with the calls for what is left and no plan of less latency has on a host."""
        costs = self.costs
        least = np.minimum(costs.own_ns, costs.host_ns)
        before = _longest(self.inside.T[::-1, ::-1], least[::-1])[::-1]
        rest = np.minimum(before + _longest(self.inside, least), limit_ns)
        stays = np.where(costs.host_ns >= limit_ns - rest, costs.size_bytes, 0)
        bits = _bits(self.lattice.mask, len(stays))
        left = stays.sum() - bits.astype(np.int64) @ stays
        # rounded up, and compared with calls: bytes times calls may pass 64 bits
        calls = np.where(left > 0, NEVER, 0) if costs.room == 0 else -(-left // costs.room)
        return costs._replace(stays_calls=calls)

    def row(self, labels: Labels, at: int) -> Row:
        """Calls of the nodes on the way to a label."""
        call = np.full(int(self.nodes.max(initial=-1)) + 1, -1, np.int64)
        cost, number, way = int(labels.bound_ns[at]), 0, [at]
        while labels.parent[way[-1]] >= 0:
            way.append(int(labels.parent[way[-1]]))
        steps = list(zip(way[1:], way, strict=False))
        for before, after in steps if self.costs.backward else steps[::-1]:
            more = self.lattice.mask[labels.ideal[after]] & ~self.lattice.mask[labels.ideal[before]]
            ops = self.nodes[members(more, len(self.nodes))]
            if len(ops) > 1 or labels.calls[after] > labels.calls[before]:
                call[ops] = number
                number += 1
        return Row(cost, call)


class IdealChains:
    """Chains of ideals of a spine's nodes, searched forward and backward in turn."""

    def __init__(self, spine: Spine, forward: _Side, backward: _Side) -> None:
        self.spine, self._sides = spine, [forward, backward]

    def search(self, limit_ns: int, most: int, clock: Clock) -> ChainsFound:
        """The least latency below `limit_ns`, or a bound on it, with `most` labels per ideal.

        The bound is `limit_ns` if there is no plan below. Each search goes the other way than the
        one before, and uses what that one, if it ended, had left.
        """
        side, other = self._sides
        labels, ended = side.search(limit_ns, most, clock)
        open_labels = labels.head[-1:] if ended else labels.head[labels.head >= 0]
        best, least = -1, limit_ns
        for label in open_labels.tolist():
            while label >= 0:
                if labels.bound_ns[label] < least:
                    best, least = label, int(labels.bound_ns[label])
                label = int(labels.next[label])
        if not ended:
            return ChainsFound(least, None, exact=False, ended=False)
        merged = bool(labels.merged[: labels.state[0]].any())
        if best < 0:
            return ChainsFound(limit_ns, None, exact=True, ended=True)
        tail, rest = tails(
            side.lattice, labels, side.opposite, other.lattice, side.feeds, side.costs.most_calls
        )
        other.costs = other.costs._replace(tail_ns=tail, rest_ns=rest)
        self._sides = [other, side]
        call = np.full(len(self.spine.nodes.own_ns), -1, np.int64)
        row = side.row(labels, best)
        call[: len(row.call)] = row.call
        return ChainsFound(least, Row(least, call), not merged, ended=True)


def build_chains(spine: Spine, room: int, most_calls: int) -> IdealChains | None:
    """Chains of ideals, or None if there are too many, or some that too many nodes lead out of.

    Parameters
    ----------
    spine : Spine
    room : int
        Bytes of the largest accelerator.
    most_calls : int
        Of all accelerators together.
    """
    kept = np.setdiff1d(np.arange(len(spine.nodes.own_ns)), spine.left_out)
    sides = []
    for nodes, backward in ((kept, False), (kept[::-1], True)):
        inside = spine.nodes.after[np.ix_(nodes, nodes)]
        inside = inside.T.copy() if backward else inside
        covers = _covers(inside)
        feeds = masks(covers)
        lattice = build_lattice(masks(inside.T), feeds, MOST_PLACES // max(1, len(kept)))
        if lattice is None or np.diff(lattice.front_ptr).max(initial=0) > WIDEST:
            return None
        if (most_calls + 1) * (len(lattice.front) + len(lattice.mask)) > MOST_NUMBERS:
            return None
        costs = _costs(spine, nodes, covers, lattice, (room, most_calls, backward))
        sides.append(_Side(nodes, inside, feeds, lattice, costs))
    for side, other in (sides, sides[::-1]):
        number = {row.tobytes(): k for k, row in enumerate(other.lattice.mask)}
        left_out = masks(~_bits(side.lattice.mask, len(kept))[:, ::-1], len(kept))
        side.opposite = np.array([number[row.tobytes()] for row in left_out], np.int64)
    return IdealChains(spine, sides[0], sides[1])


def _bits(mask: Ints, count: int) -> Flags:
    octets = np.ascontiguousarray(mask, "<i8").view(np.uint8)
    found: Flags = np.unpackbits(octets, axis=1, bitorder="little")[:, :count].astype(np.bool_)
    return found


def _covers(inside: Flags) -> Flags:
    """Which pairs of an order have nothing between."""
    between = inside.astype(np.float32) @ inside.astype(np.float32) > 0
    found: Flags = inside & ~between
    return found


def _longest(inside: Flags, weight: Ints) -> Ints:
    """From the end of each node to the end of everything, (m,)."""
    tail, weight = np.zeros(len(weight), np.int64), np.where(weight < NEVER, weight, 0)
    for v in range(len(weight) - 1, -1, -1):
        tail[v] = (tail + weight)[inside[v]].max(initial=0)
    return tail


def _lists(ends: list[list[int]]) -> tuple[Ints, Ints]:
    ptr = np.zeros(len(ends) + 1, np.int64)
    ptr[1:] = np.cumsum([len(row) for row in ends])
    return ptr, np.array([j for row in ends for j in row], np.int64)


def _costs(
    spine: Spine, which: Ints, covers: Flags, lattice: ChainLattice, limits: tuple[int, int, bool]
) -> CallCosts:
    """Costs of these nodes in this order of time; `stays_calls` is empty."""
    nodes, (room, most_calls, backward) = spine.nodes, limits
    own, host = nodes.own_ns[which], nodes.host_ns[which]
    number = np.full(len(nodes.own_ns), -1, np.int64)
    number[which] = np.arange(len(which))
    nets = [net for net in spine.nets if number[net.producer] >= 0]
    consumes = np.zeros((len(nets), len(which)), np.bool_)
    for e, net in enumerate(nets):
        consumes[e, number[list(net.consumers)]] = True
    producer = np.array([number[net.producer] for net in nets], np.int64)
    mates = nodes.group[which][:, None] == nodes.group[which][None, :]
    np.fill_diagonal(mates, np.False_)
    mates &= nodes.once
    touched = [
        [e for e in range(len(nets)) if consumes[e, v] or producer[e] == v]
        for v in range(len(which))
    ]
    least = np.minimum(own, host)
    tail_ns = front_tails(lattice, masks(covers), np.where(least < NEVER, least, 0))
    return CallCosts(
        own,
        host,
        spine.size_bytes[which],
        np.tile(tail_ns, (most_calls + 1, 1)),
        np.zeros((most_calls + 1, len(lattice.mask)), np.int64),
        *_lists([np.flatnonzero(row).tolist() for row in covers.T]),
        np.asarray(~covers.any(axis=1)),
        masks(mates),
        producer,
        masks(consumes, len(which)),
        np.array([net.move_ns for net in nets], np.int64),
        *_lists(touched),
        backward,
        np.zeros(0, np.int64),
        room,
        most_calls,
    )
