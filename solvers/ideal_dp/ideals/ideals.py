"""Ideals: sets of blocks closed under predecessors, as bit sets with their sums and cuts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.cut_nets import CutNets
from placegap.solvers.chains.problem import WORD, ChainProblem


class Ideals(NamedTuple):
    """N ideals.

    Attributes
    ----------
    members, cut_nets : (N, words) int64
        Bit sets: blocks of the ideal; nets with pins inside and outside.
    time, need : (N, 2) int64
        Sums over the blocks, per kind of device.
    cut : (N,) int64
        Weight of the cut nets.
    """

    members: Ints
    cut_nets: Ints
    time: Ints
    need: Ints
    cut: Ints

    @property
    def size(self) -> int:
        """Number of ideals."""
        return len(self.cut)

    def take(self, which: Ints) -> Ideals:
        """Some of them."""
        return Ideals(*(table[which] for table in self))

    def find(self, members: Ints) -> int:
        """Number of the ideal with these blocks, -1 if it is not here."""
        found = np.flatnonzero((self.members == members).all(axis=1))
        return int(found[0]) if len(found) else -1

    def resize(self, size: int) -> None:
        """Make room, or give it back, in place: at no time are there two copies."""
        for table in self:
            table.resize((size, *table.shape[1:]), refcheck=False)


class Current(NamedTuple):
    """One set of blocks that changes step by step.

    Attributes
    ----------
    members, cut_nets : (words,) int64
    pins_in : (e,) int64
        Pins of each net that are in the set.
    sums : (5,) int64
        Its time on accelerators and hosts, its need on both, its cut.
    """

    members: Ints
    cut_nets: Ints
    pins_in: Ints
    sums: Ints


class Costs(NamedTuple):
    """What changes when a block joins a set; of a problem."""

    nets: CutNets
    time: Ints
    need: Ints


def room_for(problem: ChainProblem, size: int) -> Ideals:
    """Ideals to be written, all empty until then."""
    shapes = (problem.num_words,), (problem.num_net_words,), (2,), (2,), ()
    return Ideals(*(np.zeros((size, *shape), np.int64) for shape in shapes))


def empty_set(problem: ChainProblem) -> tuple[Current, Costs]:
    """The set to start from, and what its changes cost."""
    sizes = problem.num_words, problem.num_net_words, problem.num_nets, 5
    current = Current(*(np.zeros(size, np.int64) for size in sizes))
    return current, Costs(problem.nets, problem.time, problem.need)


@njit(cache=True)
def flip(costs: Costs, now: Current, v: int, step: int) -> None:
    """Put a block in (step 1) or take it out (step -1). O(nets of the block)."""
    nets = costs.nets
    now.members[v // WORD] ^= np.int64(1) << (v % WORD)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        was_cut = 0 < now.pins_in[e] < nets.size[e]
        now.pins_in[e] += step
        is_cut = 0 < now.pins_in[e] < nets.size[e]
        if was_cut != is_cut:
            now.cut_nets[e // WORD] ^= np.int64(1) << (e % WORD)
            now.sums[4] += nets.weight[e] if is_cut else -nets.weight[e]
    for kind in range(2):
        now.sums[kind] += step * costs.time[kind, v]
        now.sums[2 + kind] += step * costs.need[kind, v]


@njit(cache=True)
def write(now: Current, ideals: Ideals, row: int) -> None:
    """Write the set down as an ideal."""
    ideals.members[row] = now.members
    ideals.cut_nets[row] = now.cut_nets
    ideals.time[row] = now.sums[:2]
    ideals.need[row] = now.sums[2:4]
    ideals.cut[row] = now.sums[4]


def record_prefixes(problem: ChainProblem, order: Ints) -> Ideals:
    """The b + 1 ideals that a topological order of the blocks runs through.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> ideals = record_prefixes(build_problem(example()), np.arange(4))
    >>> ideals.members[:, 0].tolist(), ideals.cut.tolist()
    ([0, 1, 3, 7, 15], [0, 21, 21, 11, 0])
    """
    ideals = room_for(problem, problem.num_blocks + 1)
    now, costs = empty_set(problem)
    _record(order, costs, now, ideals)
    return ideals


@njit(cache=True)
def _record(order: Ints, costs: Costs, now: Current, ideals: Ideals) -> None:
    for i, v in enumerate(order):
        flip(costs, now, v, 1)
        write(now, ideals, i + 1)


def joined(parts: list[Ideals]) -> Ideals:
    """The ideals of all parts, each once, in the order of their bit sets: the empty one first."""
    members = np.concatenate([part.members for part in parts])
    which = np.unique(members.view(np.uint64), axis=0, return_index=True)[1].astype(np.int64)
    return Ideals(*(np.concatenate(tables) for tables in zip(*parts, strict=True))).take(which)


def all_blocks(problem: ChainProblem) -> Ints:
    """The bit set of all blocks, (words,)."""
    bits = np.zeros(problem.num_words * WORD, np.uint8)
    bits[: problem.num_blocks] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)
