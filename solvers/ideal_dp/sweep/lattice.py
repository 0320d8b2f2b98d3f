"""The lattice of all ideals: each with a number, and the arcs I -> I + v between them.

Numbers ascend with work, so that the ideals that one stage may reach from others lie side by side.
No bit sets are kept: an ideal is known by the sum of its blocks' random 64-bit keys while the arcs
are joined, afterwards by the arcs themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import (
    CHUNK,
    Amounts,
    CurrentSet,
    IdealPath,
    bit_number,
    empty_set,
    flip,
    next_block,
    start_path,
    times_and_needs,
)
from placegap.solvers.chains.problem import ACCELERATOR, HOST, WORD, ChainProblem, Indices
from placegap.solvers.core.clock import Clock

KEY_SEED = 7
"""Of the first keys; where two ideals share a key the next seed is taken."""

PER_IDEAL, PER_ARC = 100, 12
"""Bytes, with copies and the hash table while the lattice is built."""


class TooLarge(Exception):
    """What is to be built takes too much memory; the message says what."""


class IdealLattice(NamedTuple):
    """N ideals and a arcs, in the order of steps.

    Attributes
    ----------
    work : (N,) int64
        Time on accelerators, on hosts where there are no accelerators; ascending.
    time, need : (N, 2) int64, int32
        Sums over the blocks, per kind of device.
    cut : (N,) int64
        Weight of the nets with pins inside and outside.
    parent, block : (N,) int32
        Some ideal below, and the block that it lacks; -1 for the empty ideal, which is number 0.
    order : (b,) int64
        Topological order of the blocks; the block of step s is ``order[s]``.
    step_ptr : (b + 1,) int64
        The arcs of step s are ``step_ptr[s]:step_ptr[s + 1]``.
    below, above : (a,) int32
        Ideals without and with the block of the step; `above` ascends within a step.
    """

    work: Ints
    time: Ints
    need: Indices
    cut: Ints
    parent: Indices
    block: Indices
    order: Ints
    step_ptr: Ints
    below: Indices
    above: Indices

    @property
    def size(self) -> int:
        """Number of ideals."""
        return len(self.work)

    def blocks(self, ideal: int) -> Ints:
        """Blocks of an ideal. O(blocks)."""
        found = []
        while self.block[ideal] >= 0:
            found.append(int(self.block[ideal]))
            ideal = int(self.parent[ideal])
        return np.array(found, np.int64)


class _Found(NamedTuple):
    """Ideals as they are met: keys, sums, the way there, and their maximal blocks (CSR)."""

    key: Ints
    time: Ints
    need: Indices
    cut: Ints
    parent: Indices
    block: Indices
    top_ptr: Ints
    top: Indices


def least_bytes(num_ideals: int) -> int:
    """Memory that a lattice of so many ideals takes if its graph is narrow.

    Examples
    --------
    >>> least_bytes(1_000_000)
    124000000
    """
    return num_ideals * (PER_IDEAL + 2 * PER_ARC)


def build_lattice(
    problem: ChainProblem, order: Ints, num_ideals: int, clock: Clock, max_bytes: int
) -> IdealLattice:
    """All ideals of a problem that has `num_ideals`. O(N log N + arcs).

    Raises
    ------
    TooLarge
        If ideals and arcs take more than `max_bytes`.
    LimitReached
        If the time is over.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> lattice = build_lattice(build_problem(example()), np.arange(4), 6, Clock(None), 10_000)
    >>> lattice.work.tolist(), lattice.below.tolist(), lattice.above.tolist()
    ([0, 5, 15, 25, 35, 43], [0, 1, 2, 1, 3, 4], [1, 3, 4, 2, 4, 5])
    """
    seed = KEY_SEED
    while True:
        keys = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, problem.num_blocks)
        found = _enumerate(problem, keys, num_ideals, clock, max_bytes)
        kind = ACCELERATOR if problem.counts[ACCELERATOR] else HOST
        by_rank = _ranks(found, kind)
        table = np.full(1 << int(2 * num_ideals).bit_length(), -1, np.int32)
        if _insert(found.key, by_rank, table):
            break
        seed += 1
    clock.check()
    num_arcs = int(found.top_ptr[-1])
    per_block = np.bincount(found.top[:num_arcs], minlength=problem.num_blocks)
    step_ptr = np.concatenate([[0], np.cumsum(per_block[order])]).astype(np.int64)
    fill = np.empty(problem.num_blocks, np.int64)
    fill[order] = step_ptr[:-1]
    below, above = np.empty(num_arcs, np.int32), np.empty(num_arcs, np.int32)
    _join(found, keys, by_rank, table, fill, below, above)
    rank = np.empty(num_ideals, np.int32)
    rank[by_rank] = np.arange(num_ideals, dtype=np.int32)
    parent = found.parent[by_rank]
    parent[1:] = rank[parent[1:]]
    time = found.time[by_rank]
    return IdealLattice(
        np.ascontiguousarray(time[:, kind]),
        time,
        found.need[by_rank],
        found.cut[by_rank],
        parent,
        found.block[by_rank],
        order,
        step_ptr,
        below,
        above,
    )


def _ranks(found: _Found, kind: int) -> Indices:
    """Ideals as met, in the order of their numbers: by work, then by the number of blocks.

    So an ideal comes after those within it.
    """
    size = np.zeros(len(found.key), np.int32)
    _sizes(found.parent, size)
    return np.lexsort((size, found.time[:, kind])).astype(np.int32)


@kernel(allocates=False)
def _sizes(parent: Indices, size: Indices) -> None:
    for i in range(1, len(parent)):  # a parent is met before its children
        size[i] = size[parent[i]] + 1


def _enumerate(
    problem: ChainProblem, keys: Ints, num_ideals: int, clock: Clock, max_bytes: int
) -> _Found:
    if least_bytes(num_ideals) > max_bytes:
        raise TooLarge("the lattice of ideals fills the memory")
    found = _Found(
        key=np.zeros(num_ideals, np.int64),
        time=np.zeros((num_ideals, 2), np.int64),
        need=np.zeros((num_ideals, 2), np.int32),
        cut=np.zeros(num_ideals, np.int64),
        parent=np.zeros(num_ideals, np.int32),
        block=np.zeros(num_ideals, np.int32),
        top_ptr=np.zeros(num_ideals + 1, np.int64),
        top=np.zeros(max(64, 2 * num_ideals), np.int32),
    )
    found.parent[0] = found.block[0] = -1
    amounts, path = times_and_needs(problem), start_path(problem)
    now = empty_set(problem, amounts)
    path.done[0] = 1  # the empty ideal
    b = problem.num_blocks
    maximal, inside = np.zeros(problem.num_words, np.int64), np.zeros(b, np.int64)
    ids, key = np.zeros(b + 1, np.int64), np.zeros(1, np.int64)
    while True:
        stop = min(int(path.done[0]) + CHUNK, num_ideals)
        _walk(
            problem.pred_ptr,
            problem.pred,
            amounts,
            keys,
            now,
            path,
            maximal,
            inside,
            ids,
            key,
            found,
            stop,
        )
        if path.done[0] == num_ideals:
            return found
        clock.check()
        if len(found.top) - found.top_ptr[path.done[0]] <= b:
            tops = len(found.top) * 3 // 2 + b
            if PER_IDEAL * num_ideals + PER_ARC * tops > max_bytes:
                raise TooLarge("the lattice of ideals fills the memory")
            found.top.resize(tops, refcheck=False)


@kernel
def _walk(
    pred_ptr: Ints,
    pred: Ints,
    amounts: Amounts,
    keys: Ints,
    now: CurrentSet,
    path: IdealPath,
    maximal: Ints,
    inside: Ints,
    ids: Ints,
    key: Ints,
    found: _Found,
    stop: int,
) -> None:
    """Enumerate on until `stop` ideals are met or room runs out.

    `inside` counts the successors of each block that are in, `maximal` is the bit set of blocks
    with none, `ids` the numbers of the ideals on the path, `key` that of the current one.
    """
    while path.done[0] < stop:
        met = path.done[0]
        if len(found.top) - found.top_ptr[met] <= len(keys):
            return
        v, step = next_block(path), 1
        if v < 0:
            v, step = ~v, -1
        flip(amounts, now, v, step)
        key[0] += step * keys[v]
        maximal[v // WORD] ^= np.int64(1) << (v % WORD)
        for at in range(pred_ptr[v], pred_ptr[v + 1]):
            u = pred[at]
            inside[u] += step
            if inside[u] == max(step, 0):  # it was, or is again, maximal
                maximal[u // WORD] ^= np.int64(1) << (u % WORD)
        if step < 0:
            continue
        depth = path.depth[0]
        found.parent[met], found.block[met] = ids[depth - 1], v
        ids[depth] = met
        found.key[met], found.cut[met] = key[0], now.sums[0]
        for kind in range(2):
            found.time[met, kind], found.need[met, kind] = now.sums[1 + kind], now.sums[3 + kind]
        end = found.top_ptr[met]
        for word in range(len(maximal)):
            left = maximal[word]
            while left:
                bit = left & -left
                left ^= bit
                found.top[end] = word * WORD + bit_number(bit)
                end += 1
        found.top_ptr[met + 1] = end
        path.done[0] = met + 1


@kernel(allocates=False)
def _insert(key: Ints, by_rank: Indices, table: Indices) -> bool:
    """Fill the table of ranks by key; False if two ideals share a key."""
    mask = len(table) - 1
    for rank in range(len(by_rank)):
        here = key[by_rank[rank]]
        at = here & mask
        while table[at] >= 0:
            if key[by_rank[table[at]]] == here:
                return False
            at = (at + 1) & mask
        table[at] = rank
    return True


@kernel(allocates=False)
def _join(
    found: _Found,
    keys: Ints,
    by_rank: Indices,
    table: Indices,
    fill: Ints,
    below: Indices,
    above: Indices,
) -> None:
    """Write the arcs of each block, in the order of the ideals above."""
    mask = len(table) - 1
    for rank in range(len(by_rank)):
        i = by_rank[rank]
        for at in range(found.top_ptr[i], found.top_ptr[i + 1]):
            v = found.top[at]
            wanted = found.key[i] - keys[v]
            slot = wanted & mask
            while found.key[by_rank[table[slot]]] != wanted:
                slot = (slot + 1) & mask
            below[fill[v]], above[fill[v]] = table[slot], rank
            fill[v] += 1
