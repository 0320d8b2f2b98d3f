"""Ideals: sets of blocks closed under predecessors, as bit sets, and their enumeration.

Each ideal is reached along one path only: blocks whose predecessors are in are *ready*; a ready
block is taken next, or left out of everything that follows on this path. Ready blocks form a list
that shares its tails among the paths, so that the search needs memory for one path. Times, needs,
cut and the set of cut nets are kept up to date along the path. O(degree + words) per ideal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from placegap.instances.index import Ints
from placegap.solvers.chain_problem import ACCELERATOR, HOST, WORD, ChainProblem
from placegap.solvers.ideal_windows import Windows, window
from placegap.solvers.limits import Clock, LimitReached

CHUNK = 200_000
"""Ideals between two looks at the clock."""


@dataclass(frozen=True, eq=False)
class Ideals:
    """N ideals in the order of the search; each follows the ideals on its path.

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

    def __len__(self) -> int:
        return len(self.cut)

    def take(self, which: Ints) -> Ideals:
        """Some of them."""
        return Ideals(*(table[which] for table in self._tables()))

    def find(self, members: Ints) -> int:
        """Number of the ideal with these blocks, -1 if it is not here."""
        found = np.flatnonzero((self.members == members).all(axis=1))
        return int(found[0]) if len(found) else -1

    def _tables(self) -> tuple[Ints, ...]:
        return self.members, self.cut_nets, self.time, self.need, self.cut

    @staticmethod
    def empty(problem: ChainProblem, size: int) -> Ideals:
        """Room for `size` ideals."""
        return Ideals(
            np.zeros((size, problem.num_words), np.int64),
            np.zeros((size, problem.num_net_words), np.int64),
            np.zeros((size, 2), np.int64),
            np.zeros((size, 2), np.int64),
            np.zeros(size, np.int64),
        )

    def resize(self, size: int) -> None:
        """Make room, or give it back, in place: at no time are there two copies."""
        for table in self._tables():
            table.resize((size, *table.shape[1:]), refcheck=False)


def joined(parts: list[Ideals]) -> Ideals:
    """The ideals of all parts, each once, ordered by their bit sets: the empty ideal comes first."""
    members = np.concatenate([part.members for part in parts])
    which = np.unique(members.view(np.uint64), axis=0, return_index=True)[1]
    tables = zip(*(part._tables() for part in parts), strict=True)
    return Ideals(*(np.concatenate(table) for table in tables)).take(which)


def all_blocks(problem: ChainProblem) -> Ints:
    """The bit set of all blocks, (words,)."""
    bits = np.zeros(problem.num_words * WORD, np.uint8)
    bits[: problem.num_blocks] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)


def bytes_per_ideal(problem: ChainProblem) -> int:
    """Memory that one ideal takes, with what a search keeps of it (potentials, tree, windows)."""
    return 8 * (problem.num_words * 9 // 8 + problem.num_net_words + 20)


def enumerate_ideals(
    problem: ChainProblem, windows: Windows, clock: Clock, max_ideals: int, max_bytes: int
) -> tuple[Ideals, int]:
    """All ideals that lie in some window, and how many ideals there are in all.

    Raises
    ------
    LimitReached
        If there are more than `max_ideals`, those in a window take more than `max_bytes`, or the
        time is over.
    """
    most = max(2, max_bytes // bytes_per_ideal(problem))
    ideals = Ideals.empty(problem, min(most, 4096))
    state = _start(problem)
    done = np.zeros(2, np.int64)  # visited, stored
    while True:
        finished = _walk(
            problem.succ_ptr, problem.succ, problem.nets.block_ptr, problem.nets.net,
            problem.net_size, problem.weight, problem.time, problem.need, windows, *state, done,
            ideals.members, ideals.cut_nets, ideals.time, ideals.need, ideals.cut,
            min(int(done[0]) + CHUNK, max_ideals + 1),
        )  # fmt: skip
        if finished:
            ideals.resize(int(done[1]))
            return ideals, int(done[0])
        if done[0] > max_ideals:
            raise LimitReached(f"there are more than {max_ideals} ideals (max_ideals)")
        clock.check()
        if done[1] == len(ideals):
            if done[1] == most:
                raise LimitReached(f"{most} ideals fill the memory")
            ideals.resize(min(most, len(ideals) * 3 // 2))


def _start(problem: ChainProblem) -> tuple[Ints, ...]:
    """State of the search before the first ideal; see `_walk`."""
    b = problem.num_blocks
    ready_block, ready_next = np.zeros(b, np.int64), np.full(b, -1, np.int64)
    path = np.full((b + 1, 3), -1, np.int64)
    sources = np.flatnonzero(problem.num_preds == 0)
    ready_block[: len(sources)] = sources
    ready_next[: len(sources) - 1] = np.arange(1, len(sources))
    path[0] = 0, -1, len(sources)
    return (
        problem.num_preds.copy(), np.zeros(problem.nets.num_nets, np.int64),
        ready_block, ready_next, path, np.zeros(1, np.int64),
        np.zeros(problem.num_words, np.int64), np.zeros(problem.num_net_words, np.int64),
        np.zeros(5, np.int64),
    )  # fmt: skip


@njit(cache=True)
def _walk(
    succ_ptr: Ints, succ: Ints, block_ptr: Ints, net: Ints, net_size: Ints, weight: Ints,
    time: Ints, need: Ints, w: Windows,
    waiting: Ints, pins_in: Ints, ready_block: Ints, ready_next: Ints, path: Ints, depth_at: Ints,
    now_members: Ints, now_nets: Ints, sums: Ints, done: Ints,
    members: Ints, cut_nets: Ints, out_time: Ints, out_need: Ints, out_cut: Ints, stop: int,
) -> bool:  # fmt: skip
    """Go on with the search; True when it is over, False when `stop` is reached or no room is left.

    State: predecessors that each block waits for, pins of each net that are in, the cells of the
    ready lists (block, next cell), and per step of the path the cell to try next, the block taken
    and the number of cells in use before. `sums` holds work, host work, need, host need and cut.
    """
    depth = depth_at[0]
    if done[0] == 0:
        _store(w, sums, now_members, now_nets, done, members, cut_nets, out_time, out_need, out_cut)
    while depth >= 0:
        if done[0] >= stop or done[1] == len(out_cut):
            depth_at[0] = depth
            return False
        cell = path[depth, 0]
        if cell < 0:  # all continuations are done: take the last block out
            if depth > 0:
                v = path[depth, 1]
                for at in range(succ_ptr[v], succ_ptr[v + 1]):
                    waiting[succ[at]] += 1
                _flip(v, -1, block_ptr, net, net_size, weight, pins_in, now_members, now_nets, sums)
                for kind in range(2):
                    sums[kind] -= time[kind, v]
                    sums[2 + kind] -= need[kind, v]
            depth -= 1
            continue
        v, head, cells = ready_block[cell], ready_next[cell], path[depth, 2]
        path[depth, 0] = head
        for at in range(succ_ptr[v + 1] - 1, succ_ptr[v] - 1, -1):
            waiting[succ[at]] -= 1
            if waiting[succ[at]] == 0:
                ready_block[cells], ready_next[cells] = succ[at], head
                head = cells
                cells += 1
        _flip(v, 1, block_ptr, net, net_size, weight, pins_in, now_members, now_nets, sums)
        for kind in range(2):
            sums[kind] += time[kind, v]
            sums[2 + kind] += need[kind, v]
        depth += 1
        path[depth, 0], path[depth, 1], path[depth, 2] = head, v, cells
        _store(w, sums, now_members, now_nets, done, members, cut_nets, out_time, out_need, out_cut)
    return True


@njit(cache=True)
def _flip(
    v: int, step: int, block_ptr: Ints, net: Ints, net_size: Ints, weight: Ints, pins_in: Ints,
    now_members: Ints, now_nets: Ints, sums: Ints,
) -> None:  # fmt: skip
    """Put a block in (step 1) or take it out (step -1): members, cut nets and cut."""
    now_members[v // WORD] ^= np.int64(1) << (v % WORD)
    for at in range(block_ptr[v], block_ptr[v + 1]):
        e = net[at]
        was_cut = 0 < pins_in[e] < net_size[e]
        pins_in[e] += step
        is_cut = 0 < pins_in[e] < net_size[e]
        if was_cut != is_cut:
            now_nets[e // WORD] ^= np.int64(1) << (e % WORD)
            sums[4] += weight[e] if is_cut else -weight[e]


@njit(cache=True)
def _store(
    w: Windows, sums: Ints, now_members: Ints, now_nets: Ints, done: Ints,
    members: Ints, cut_nets: Ints, out_time: Ints, out_need: Ints, out_cut: Ints,
) -> None:  # fmt: skip
    """Count the ideal, and keep it if it lies in some window."""
    done[0] += 1
    for hosts in range(w.counts[HOST] + 1):
        fewest, most = window(w, hosts, sums[0], sums[1], sums[2], sums[3], sums[4])
        if fewest <= most:
            row = done[1]
            members[row], cut_nets[row] = now_members, now_nets
            out_time[row], out_need[row], out_cut[row] = sums[:2], sums[2:4], sums[4]
            done[1] += 1
            return


def record_prefixes(problem: ChainProblem, order: Ints) -> Ideals:
    """The b + 1 ideals that a topological order of the blocks runs through.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chain_problem import build_problem
    >>> ideals = record_prefixes(build_problem(example()), np.arange(4))
    >>> ideals.members[:, 0].tolist(), ideals.cut.tolist()
    ([0, 1, 3, 7, 15], [0, 21, 21, 11, 0])
    """
    ideals = Ideals.empty(problem, problem.num_blocks + 1)
    _, pins_in, *_, now_members, now_nets, sums = _start(problem)
    _record(
        order, problem.nets.block_ptr, problem.nets.net, problem.net_size, problem.weight,
        problem.time, problem.need, pins_in, now_members, now_nets, sums,
        ideals.members, ideals.cut_nets, ideals.time, ideals.need, ideals.cut,
    )  # fmt: skip
    return ideals


@njit(cache=True)
def _record(
    order: Ints, block_ptr: Ints, net: Ints, net_size: Ints, weight: Ints, time: Ints, need: Ints,
    pins_in: Ints, now_members: Ints, now_nets: Ints, sums: Ints,
    members: Ints, cut_nets: Ints, out_time: Ints, out_need: Ints, out_cut: Ints,
) -> None:  # fmt: skip
    for i, v in enumerate(order):
        _flip(v, 1, block_ptr, net, net_size, weight, pins_in, now_members, now_nets, sums)
        for kind in (ACCELERATOR, HOST):
            sums[kind] += time[kind, v]
            sums[2 + kind] += need[kind, v]
        members[i + 1], cut_nets[i + 1] = now_members, now_nets
        out_time[i + 1], out_need[i + 1], out_cut[i + 1] = sums[:2], sums[2:4], sums[4]
