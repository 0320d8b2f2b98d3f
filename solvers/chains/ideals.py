"""Ideals: sets of blocks closed under predecessors, as bit sets with sums over their blocks.

Each ideal is reached by one path of a depth-first search, so no table of those seen is needed.
Blocks whose predecessors are all inside are *ready*. The search takes the next ready block, and on
the way back leaves it out of all that follows: so each ideal comes once. Ready blocks form a linked
list whose tails all steps of a path share, so that memory for one path is enough. O(degree + words)
per ideal.

Example by hand: a feeds b and c. The order is {}, a, ab, abc, ac: below ab, c is still ready, and
after the way back to a, b is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.solvers.chains.problem import WORD, ChainBlocks, CutNets
from placegap.solvers.core.clock import Clock, LimitReached


class Ideals(NamedTuple):
    """N ideals."""

    #: members, cut_nets: (N, words) int64: Bit sets: blocks of the ideal; nets with pins inside and
    #: outside.
    members: Ints
    cut_nets: Ints
    #: (N, c + r) int64: Sums over the cut nets of c amounts, and over the blocks of r amounts
    #: (`Amounts`).
    sums: Ints

    @property
    def size(self) -> int:
        return len(self.members)

    def take(self, which: Ints) -> Ideals:
        """Some of them."""
        return Ideals(*(table[which] for table in self))

    def find(self, members: Ints) -> int:
        """Number of the ideal with these blocks, -1 if it is not here."""
        found = np.flatnonzero((self.members == members).all(axis=1))
        return int(found[0]) if len(found) else -1

    def resize(self, size: int) -> None:
        """Grow or shrink in place: there are never two copies in memory."""
        for table in self:
            table.resize((size, *table.shape[1:]), refcheck=False)


class Amounts(NamedTuple):
    """Quantities that are summed over a set of blocks and over the nets that it cuts."""

    nets: CutNets
    of_block: Ints  # (b, r) int64
    of_net: Ints  # (e, c) int64: Counts if the net is cut

    @property
    def width(self) -> int:
        """Number of sums."""
        return int(self.of_net.shape[1] + self.of_block.shape[1])


class CurrentSet(NamedTuple):
    """One set of blocks that changes step by step."""

    #: members, cut_nets: (words,) int64
    members: Ints
    cut_nets: Ints
    pins_in: Ints  # (e,) int64: Pins of each net that are in the set
    sums: Ints  # (c + r,) int64: As of `Ideals`


def room_for(problem: ChainBlocks, amounts: Amounts, size: int) -> Ideals:
    """Ideals to be written, all empty until then."""
    widths = problem.num_words, problem.num_net_words, amounts.width
    return Ideals(*(np.zeros((size, width), np.int64) for width in widths))


def empty_set(problem: ChainBlocks, amounts: Amounts) -> CurrentSet:
    """The set to start from."""
    sizes = problem.num_words, problem.num_net_words, problem.num_nets
    return CurrentSet(*(np.zeros(size, np.int64) for size in (*sizes, amounts.width)))


# Inlined, as are the steps of the enumeration: a call with this many arrays takes longer than they.
@kernel(inline="always", allocates=False)
def flip(amounts: Amounts, now: CurrentSet, v: int, step: int) -> None:
    """Put a block in (step 1) or take it out (step -1). O(nets of the block)."""
    nets, cuts = amounts.nets, amounts.of_net.shape[1]
    now.members[v // WORD] ^= np.int64(1) << (v % WORD)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        # A net is cut if some of its pins are inside and some are not.
        was_cut = 0 < now.pins_in[e] < nets.size[e]
        now.pins_in[e] += step
        is_cut = 0 < now.pins_in[e] < nets.size[e]
        if was_cut != is_cut:
            now.cut_nets[e // WORD] ^= np.int64(1) << (e % WORD)
            sign = 1 if is_cut else -1
            for amount in range(cuts):
                now.sums[amount] += sign * amounts.of_net[e, amount]
    for amount in range(amounts.of_block.shape[1]):
        now.sums[cuts + amount] += step * amounts.of_block[v, amount]


@kernel(inline="always", allocates=False)
def write(now: CurrentSet, ideals: Ideals, row: int) -> None:
    """Store the set as an ideal."""
    # Element by element: with rows as slices numba is twice as slow.
    for at in range(len(now.members)):
        ideals.members[row, at] = now.members[at]
    for at in range(len(now.cut_nets)):
        ideals.cut_nets[row, at] = now.cut_nets[at]
    for at in range(len(now.sums)):
        ideals.sums[row, at] = now.sums[at]


def prefixes(problem: ChainBlocks, amounts: Amounts, order: Ints, stops: Ints) -> Ideals:
    """The ideals that consist of the first blocks of a topological order, for some numbers."""
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


def bit_set(flags: Flags) -> Ints:
    """Flags as bits, (words,)."""
    wide = np.zeros(-(-len(flags) // WORD) * WORD, np.bool_)
    wide[: len(flags)] = flags
    return np.packbits(wide, bitorder="little").view(np.int64)


def blocks_of(members: Ints) -> Ints:
    """Blocks of a bit set."""
    return np.flatnonzero(np.unpackbits(members.view(np.uint8), bitorder="little"))


# Ideals of the first chunk, mostly without compiled code, and of each later one, after which the
# clock is checked.
FIRST_CHUNK, CHUNK = 256, 50_000


class MemoryFull(LimitReached):
    """The ideals that are kept take too much memory; at lower limits there are fewer."""


class IdealPath(NamedTuple):
    """The state of the enumeration."""

    #: succ_ptr, succ: Of the problem.
    succ_ptr: Ints
    succ: Ints
    waiting: Ints  # (b,) int64: Predecessors of each block that are not in
    #: ready, next_ready: (b,) int64: Cells of the lists: a block, and the cell that follows (-1:
    #: none).
    ready: Ints
    next_ready: Ints
    depth: Ints  # (1,) int64: Number of blocks on the path
    #: cell, block, cells: (b + 1,) int64: For each step of the path: the cell to try next, the
    #: block that was taken, and the number of cells in use.
    cell: Ints
    block: Ints
    cells: Ints
    done: Ints  # (2,) int64: Ideals met, and ideals kept


# Go on with `next_ideal` and store the ideals to keep: True at the end; False once a number of
# ideals is met or no room is left.
Walk = Callable[[Amounts, CurrentSet, IdealPath, Ideals, int], bool]


def enumerate_ideals(
    problem: ChainBlocks, amounts: Amounts, walk: Walk, clock: Clock, max_ideals: int, max_kept: int
) -> tuple[Ideals, int]:
    """All ideals that a walk keeps, and how many ideals there are in all."""
    # The empty ideal comes first, and each one after those on its path: neighbours share most
    # blocks.
    ideals = room_for(problem, amounts, min(max_kept, 4096))
    now, path, chunk = empty_set(problem, amounts), start_path(problem), FIRST_CHUNK
    while True:
        stop = min(int(path.done[0]) + chunk, max_ideals + 1)
        finished = walk(amounts, now, path, ideals, stop)
        met, kept = path.done.tolist()
        if finished:
            ideals.resize(kept)
            return ideals, met
        if met > max_ideals:
            raise LimitReached(f"there are more than {max_ideals} ideals (max_ideals)")
        clock.check()
        chunk = CHUNK
        # By half at a time: doubling would hold up to twice the memory needed.
        if kept == ideals.size:
            if kept == max_kept:
                raise MemoryFull(f"{max_kept} ideals fill the memory")
            ideals.resize(min(max_kept, kept * 3 // 2))


def start_path(problem: ChainBlocks) -> IdealPath:
    """The state before the empty ideal: all sources are ready, and no block is taken."""
    b = problem.num_blocks
    sources = np.flatnonzero(problem.arcs.num_preds == 0)
    ready, next_ready = (np.full(b, -1, np.int64) for _ in range(2))
    cell, block, cells = (np.full(b + 1, -1, np.int64) for _ in range(3))
    ready[: len(sources)] = sources
    next_ready[: len(sources) - 1] = np.arange(1, len(sources))
    cell[0], cells[0] = 0, len(sources)
    return IdealPath(
        *problem.arcs[:2],
        problem.arcs.num_preds.copy(),
        ready,
        next_ready,
        np.zeros(1, np.int64),
        cell,
        block,
        cells,
        np.zeros(2, np.int64),
    )


@kernel(inline="always")
def next_ideal(amounts: Amounts, now: CurrentSet, path: IdealPath) -> bool:
    """Go on to the next ideal, the empty one first; False if there is none."""
    # `cell` of a depth is the first ready block not yet tried there; the list behind it is shared
    # with the steps above. Cells made at a depth are given back by the count `cells` alone.
    joins = path.done[0] == 0
    while not joins:
        depth = path.depth[0]
        cell = path.cell[depth]
        joins = cell >= 0
        if joins:
            v, head, cells = path.ready[cell], path.next_ready[cell], path.cells[depth]
            # What this depth tries after the way back, with v left out for good.
            path.cell[depth] = head
            # Successors that become ready are put in front of the list, in new cells.
            for at in range(path.succ_ptr[v + 1] - 1, path.succ_ptr[v] - 1, -1):
                u = path.succ[at]
                path.waiting[u] -= 1
                if path.waiting[u] == 0:
                    path.ready[cells], path.next_ready[cells] = u, head
                    head = cells
                    cells += 1
            depth += 1
            path.cell[depth], path.block[depth], path.cells[depth] = head, v, cells
        else:  # all blocks are tried here: take the last one out
            if depth == 0:
                return False
            v = path.block[depth]
            for at in range(path.succ_ptr[v], path.succ_ptr[v + 1]):
                path.waiting[path.succ[at]] += 1
            depth -= 1
        path.depth[0] = depth
        flip(amounts, now, v, 1 if joins else -1)
    path.done[0] += 1
    return True


def ideals_as_bits(before: list[int], most: int) -> list[int] | None:
    """All ideals, the smaller first; None if there are more than `most`."""
    # O(N B) for N ideals of B blocks. `before` has, as bits, the blocks that each block needs in an
    # ideal beside itself.
    found, layer = [0], [0]
    while layer:
        grown: dict[int, None] = {}
        # Every ideal of n + 1 blocks is one of n blocks and a block that is ready there; the
        # dictionary removes copies and keeps the order.
        for ideal in layer:
            for b, needs in enumerate(before):
                if not ideal >> b & 1 and needs & ~ideal == 0:
                    grown[ideal | 1 << b] = None
            if len(found) + len(grown) > most:
                return None
        layer = list(grown)
        found += layer
    return found
