"""Ideals as bit sets only: enumerated once, and summed up for as many costs as are needed.

`ideals.enumerate` keeps sums for two kinds of devices while it walks; here sums come later, a byte
of the set at a time, for any number of kinds and prices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.cut_nets import CutNets
from placegap.solvers.chains.problem import WORD, ChainProblem
from placegap.solvers.core.clock import Clock, LimitReached

CHUNK = 50_000
"""Ideals between two looks at the clock."""


class Sets(NamedTuple):
    """N ideals.

    Attributes
    ----------
    members, cut_nets : (N, words) int64
        Bit sets: blocks of the ideal; nets with pins inside and outside.
    """

    members: Ints
    cut_nets: Ints

    @property
    def size(self) -> int:
        """Number of ideals."""
        return len(self.members)

    def take(self, which: Ints) -> Sets:
        """Some of them."""
        return Sets(self.members[which], self.cut_nets[which])

    def find(self, members: Ints) -> int:
        """Number of the ideal with these blocks, -1 if it is not here."""
        found = np.flatnonzero((self.members == members).all(axis=1))
        return int(found[0]) if len(found) else -1


class Filter(NamedTuple):
    """Which ideals are kept: priced cut at most `most` (`any_kinds.windows`).

    Attributes
    ----------
    weight : (e,) int64
        Priced weight of each net.
    most : int
    """

    weight: Ints
    most: int


class _Walk(NamedTuple):
    """Where the search stands; see `ideals.enumerate`."""

    members: Ints
    cut_nets: Ints
    pins_in: Ints
    cut: Ints
    waiting: Ints
    ready: Ints
    next_ready: Ints
    cell: Ints
    block: Ints
    cells: Ints
    depth: Ints
    done: Ints


def enumerate_sets(
    guide: ChainProblem, keep: Filter, clock: Clock, max_ideals: int, max_kept: int
) -> tuple[Sets, int]:
    """All ideals that pass the filter, and how many there are in all.

    Each ideal comes after the ones on its path of additions, so that neighbours share most blocks.
    O(degree + words) per ideal, one path of memory beside the sets.

    Raises
    ------
    LimitReached
        If there are more than `max_ideals`, more than `max_kept` pass, or the time is over.
    """
    sets = Sets(
        np.zeros((min(max_kept, 4096), guide.num_words), np.int64),
        np.zeros((min(max_kept, 4096), guide.num_net_words), np.int64),
    )
    walk = _start(guide)
    while True:
        stop = min(int(walk.done[0]) + CHUNK, max_ideals + 1)
        finished = _go_on(guide.succ_ptr, guide.succ, guide.nets, keep, walk, sets, stop)
        met, kept = walk.done.tolist()
        if finished or met > max_ideals or kept == len(sets.members) == max_kept:
            if finished:
                _resize(sets, kept)
                return sets, met
            few = met > max_ideals
            raise LimitReached(
                f"there are more than {max_ideals} ideals (max_ideals)"
                if few
                else f"{max_kept} ideals fill the memory"
            )
        clock.check()
        if kept == len(sets.members):
            _resize(sets, min(max_kept, kept * 3 // 2))


def _resize(sets: Sets, size: int) -> None:
    """Make room, or give it back, in place: at no time are there two copies."""
    for table in sets:
        table.resize((size, table.shape[1]), refcheck=False)


def _start(guide: ChainProblem) -> _Walk:
    """Before the empty ideal: all sources are ready, and no block is taken."""
    b = guide.num_blocks
    sources = np.flatnonzero(guide.num_preds == 0)
    ready, next_ready = (np.full(b, -1, np.int64) for _ in range(2))
    cell, block, cells = (np.full(b + 1, -1, np.int64) for _ in range(3))
    ready[: len(sources)] = sources
    next_ready[: len(sources) - 1] = np.arange(1, len(sources))
    cell[0], cells[0] = 0, len(sources)
    members, cut_nets, pins_in, cut, depth, done = (
        np.zeros(n, np.int64)
        for n in (guide.num_words, guide.num_net_words, guide.num_nets, 1, 1, 2)
    )
    return _Walk(
        members, cut_nets, pins_in, cut, guide.num_preds.copy(), ready, next_ready, cell, block,
        cells, depth, done,
    )  # fmt: skip


@njit(cache=True)
def _go_on(
    succ_ptr: Ints, succ: Ints, nets: CutNets, keep: Filter, w: _Walk, sets: Sets, stop: int
) -> bool:
    """True when all is done, False when `stop` ideals are met or no room is left."""
    depth = w.depth[0]
    if w.done[0] == 0:
        _note(keep, w, sets)
    while depth >= 0:
        if w.done[0] >= stop or w.done[1] == len(sets.members):
            w.depth[0] = depth
            return False
        cell = w.cell[depth]
        if cell < 0:  # every way on from here is done: take the last block out
            if depth > 0:
                v = w.block[depth]
                for at in range(succ_ptr[v], succ_ptr[v + 1]):
                    w.waiting[succ[at]] += 1
                _flip(nets, keep, w, v, -1)
            depth -= 1
            continue
        v, head, cells = w.ready[cell], w.next_ready[cell], w.cells[depth]
        w.cell[depth] = head
        for at in range(succ_ptr[v + 1] - 1, succ_ptr[v] - 1, -1):
            w.waiting[succ[at]] -= 1
            if w.waiting[succ[at]] == 0:
                w.ready[cells], w.next_ready[cells] = succ[at], head
                head = cells
                cells += 1
        _flip(nets, keep, w, v, 1)
        depth += 1
        w.cell[depth], w.block[depth], w.cells[depth] = head, v, cells
        _note(keep, w, sets)
    return True


@njit(cache=True)
def _flip(nets: CutNets, keep: Filter, w: _Walk, v: int, step: int) -> None:
    """Put a block in (step 1) or take it out (step -1)."""
    w.members[v // WORD] ^= np.int64(1) << (v % WORD)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        was_cut = 0 < w.pins_in[e] < nets.size[e]
        w.pins_in[e] += step
        is_cut = 0 < w.pins_in[e] < nets.size[e]
        if was_cut != is_cut:
            w.cut_nets[e // WORD] ^= np.int64(1) << (e % WORD)
            w.cut[0] += keep.weight[e] if is_cut else -keep.weight[e]


@njit(cache=True)
def _note(keep: Filter, w: _Walk, sets: Sets) -> None:
    """Count the ideal, and write it down if it passes."""
    w.done[0] += 1
    if w.cut[0] <= keep.most:
        sets.members[w.done[1]] = w.members
        sets.cut_nets[w.done[1]] = w.cut_nets
        w.done[1] += 1


def prefixes(guide: ChainProblem, order: Ints, stops: Ints) -> Sets:
    """The ideals that a topological order runs through, at some positions.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> sets = prefixes(build_problem(example()), np.arange(4), np.array([0, 1, 2, 4]))
    >>> sets.members[:, 0].tolist(), sets.cut_nets[:, 0].tolist()
    ([0, 1, 3, 15], [0, 3, 6, 0])
    """
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    inside = position[None, :] < stops[:, None]
    cut = np.zeros((len(stops), guide.num_nets), np.bool_)
    if guide.num_nets:
        first = np.minimum.reduceat(position[guide.pin], guide.net_ptr[:-1])
        last = np.maximum.reduceat(position[guide.pin], guide.net_ptr[:-1])
        cut = (first < stops[:, None]) & (stops[:, None] <= last)
    return Sets(_packed(inside, guide.num_words), _packed(cut, guide.num_net_words))


def _packed(flags: np.typing.NDArray[np.bool_], num_words: int) -> Ints:
    """Rows of flags as bit sets."""
    wide = np.zeros((len(flags), num_words * WORD), np.bool_)
    wide[:, : flags.shape[1]] = flags
    return np.packbits(wide, axis=1, bitorder="little").view(np.int64)


def joined(parts: list[Sets]) -> Sets:
    """The ideals of all parts, each once, in the order of their bit sets: the empty one first."""
    members = np.concatenate([part.members for part in parts])
    which = np.unique(members.view(np.uint64), axis=0, return_index=True)[1].astype(np.int64)
    return Sets(members, np.concatenate([part.cut_nets for part in parts])).take(which)


def set_sums(sets: Ints, weight: Ints) -> Ints:
    """Sum of the weights of each set's elements, (N,); O(N bits / 8).

    Examples
    --------
    >>> set_sums(np.array([[0b0], [0b101]]), np.array([5, 6, 7])).tolist()
    [0, 12]
    """
    table = np.zeros((sets.shape[1] * 8, 256), np.int64)
    padded = np.zeros(sets.shape[1] * WORD, np.int64)
    padded[: len(weight)] = weight
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    table[:] = padded.reshape(-1, 8) @ bits.T.astype(np.int64)
    return _sum_bytes(np.ascontiguousarray(sets).view(np.uint8), table)


@njit(cache=True)
def _sum_bytes(sets: np.typing.NDArray[np.uint8], table: Ints) -> Ints:
    sums = np.zeros(len(sets), np.int64)
    for i in range(len(sets)):
        for byte in range(sets.shape[1]):
            sums[i] += table[byte, sets[i, byte]]
    return sums


def has_any(sets: Ints, elements: np.typing.NDArray[np.bool_]) -> np.typing.NDArray[np.bool_]:
    """Whether each set has one of some elements, (N,).

    Examples
    --------
    >>> has_any(np.array([[0b0], [0b101]]), np.array([False, True, True])).tolist()
    [False, True]
    """
    mask = _packed(elements[None, :], sets.shape[1])[0]
    return np.asarray((sets & mask).any(axis=1))
