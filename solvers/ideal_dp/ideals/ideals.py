"""Ideals: sets of blocks closed under predecessors, as bit sets with sums over their blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import WORD, ChainProblem, CutNets


class Ideals(NamedTuple):
    """N ideals.

    Attributes
    ----------
    members, cut_nets : (N, words) int64
        Bit sets: blocks of the ideal; nets with pins inside and outside.
    sums : (N, 1 + r) int64
        Weight of the cut nets, and the sums over the blocks of r amounts (`Amounts`).
    """

    members: Ints
    cut_nets: Ints
    sums: Ints

    @property
    def size(self) -> int:
        """Number of ideals."""
        return len(self.members)

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


class Amounts(NamedTuple):
    """What is summed up of a set of blocks.

    Attributes
    ----------
    nets : CutNets
        Their weights count where they are cut.
    of_block : (b, r) int64
    """

    nets: CutNets
    of_block: Ints


class CurrentSet(NamedTuple):
    """One set of blocks that changes step by step.

    Attributes
    ----------
    members, cut_nets : (words,) int64
    pins_in : (e,) int64
        Pins of each net that are in the set.
    sums : (1 + r,) int64
        As of `Ideals`.
    """

    members: Ints
    cut_nets: Ints
    pins_in: Ints
    sums: Ints


def times_and_needs(problem: ChainProblem) -> Amounts:
    """Times on accelerators and on hosts, needs on both, and the cut for accelerators."""
    return Amounts(problem.nets, np.vstack([problem.time, problem.need]).T.copy())


def cuts_only(problem: ChainProblem, weight: Ints) -> Amounts:
    """Nothing but the cut, at other weights of the nets."""
    nothing = np.zeros((problem.num_blocks, 0), np.int64)
    return Amounts(problem.nets._replace(weight=weight), nothing)


def room_for(problem: ChainProblem, amounts: Amounts, size: int) -> Ideals:
    """Ideals to be written, all empty until then."""
    widths = problem.num_words, problem.num_net_words, 1 + amounts.of_block.shape[1]
    return Ideals(*(np.zeros((size, width), np.int64) for width in widths))


def empty_set(problem: ChainProblem, amounts: Amounts) -> CurrentSet:
    """The set to start from."""
    sizes = problem.num_words, problem.num_net_words, problem.num_nets
    return CurrentSet(
        *(np.zeros(size, np.int64) for size in (*sizes, 1 + amounts.of_block.shape[1]))
    )


# inlined, as are the steps of the enumeration: a call with so many arrays takes longer than they do
@kernel(inline="always", allocates=False)
def flip(amounts: Amounts, now: CurrentSet, v: int, step: int) -> None:
    """Put a block in (step 1) or take it out (step -1). O(nets of the block)."""
    nets = amounts.nets
    now.members[v // WORD] ^= np.int64(1) << (v % WORD)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        was_cut = 0 < now.pins_in[e] < nets.size[e]
        now.pins_in[e] += step
        is_cut = 0 < now.pins_in[e] < nets.size[e]
        if was_cut != is_cut:
            now.cut_nets[e // WORD] ^= np.int64(1) << (e % WORD)
            now.sums[0] += nets.weight[e] if is_cut else -nets.weight[e]
    for amount in range(amounts.of_block.shape[1]):
        now.sums[1 + amount] += step * amounts.of_block[v, amount]


@kernel(inline="always", allocates=False)
def write(now: CurrentSet, ideals: Ideals, row: int) -> None:
    """Write the set down as an ideal."""
    # element by element: rows as slices take numba twice as long
    for at in range(len(now.members)):
        ideals.members[row, at] = now.members[at]
    for at in range(len(now.cut_nets)):
        ideals.cut_nets[row, at] = now.cut_nets[at]
    for at in range(len(now.sums)):
        ideals.sums[row, at] = now.sums[at]


def prefixes(problem: ChainProblem, amounts: Amounts, order: Ints, stops: Ints) -> Ideals:
    """The ideals that a topological order of the blocks runs through, at some positions.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> problem = build_problem(example())
    >>> amounts = times_and_needs(problem)
    >>> ideals = prefixes(problem, amounts, np.arange(4), np.array([0, 1, 2, 4]))
    >>> ideals.members[:, 0].tolist(), ideals.sums[:, 0].tolist()
    ([0, 1, 3, 15], [0, 21, 21, 0])
    """
    ideals = room_for(problem, amounts, len(stops))
    _write_prefixes(order, stops, amounts, empty_set(problem, amounts), ideals)
    return ideals


@kernel
def _write_prefixes(
    order: Ints, stops: Ints, amounts: Amounts, now: CurrentSet, ideals: Ideals
) -> None:
    length = 0
    for row in range(len(stops)):
        while length < stops[row]:
            flip(amounts, now, order[length], 1)
            length += 1
        write(now, ideals, row)


def of_flags(problem: ChainProblem, amounts: Amounts, flags: Flags) -> Ideals:
    """Ideals from their members, (N, b) bool, in any order.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> problem = build_problem(example())
    >>> flags = np.array([[True, True, False, False]])
    >>> of_flags(problem, times_and_needs(problem), flags).sums[:, 0].tolist()
    [21]
    """
    ideals = room_for(problem, amounts, len(flags))
    for row, own in enumerate(flags):
        pins_in = np.add.reduceat(np.append(own[problem.pin], 0), problem.net_ptr)[:-1]
        is_cut = (pins_in > 0) & (pins_in < amounts.nets.size)
        ideals.members[row] = bit_set(own)
        if len(is_cut):
            ideals.cut_nets[row] = bit_set(is_cut)
        ideals.sums[row, 0] = amounts.nets.weight[is_cut].sum()
        ideals.sums[row, 1:] = amounts.of_block[own].sum(axis=0)
    return ideals


def joined(parts: list[Ideals]) -> Ideals:
    """The ideals of all parts, each once, in the order of their bit sets: the empty one first."""
    members = np.concatenate([part.members for part in parts])
    which = np.unique(members.view(np.uint64), axis=0, return_index=True)[1].astype(np.int64)
    return Ideals(*(np.concatenate(tables) for tables in zip(*parts, strict=True))).take(which)


def of_least_cut(
    problem: ChainProblem, ideals: Ideals, work: Ints, cut: Ints, buckets: int, most: int
) -> Ideals:
    """The ideals of least cut, so many in each interval of work; the full one in any case."""
    bucket = work // (int(work.max()) // buckets + 1)
    order = np.lexsort((cut, bucket))
    first = np.searchsorted(bucket[order], bucket[order])
    chosen = order[np.arange(len(order)) - first < most]
    return ideals.take(np.unique(np.append(chosen, ideals.find(all_blocks(problem)))))


def bit_set(flags: Flags) -> Ints:
    """Flags as bits, (words,).

    Examples
    --------
    >>> bit_set(np.array([True, False, True])).tolist()
    [5]
    """
    wide = np.zeros(-(-len(flags) // WORD) * WORD, np.bool_)
    wide[: len(flags)] = flags
    return np.packbits(wide, bitorder="little").view(np.int64)


def all_blocks(problem: ChainProblem) -> Ints:
    """The bit set of all blocks, (words,)."""
    return bit_set(np.ones(problem.num_blocks, np.bool_))


def blocks_of(members: Ints) -> Ints:
    """Blocks of a bit set.

    Examples
    --------
    >>> blocks_of(np.array([5])).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.unpackbits(members.view(np.uint8), bitorder="little"))
