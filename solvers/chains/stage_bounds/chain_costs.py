"""What the stages of a chain cost: blocks and nets, as each kind of device sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.kernels import kernel

CHUNK = 64
"""Blocks whose descendants are found at once: the bits of a word."""


@dataclass(frozen=True, eq=False)
class BlockArcs:
    """Arcs between b blocks that are numbered topologically.

    Attributes
    ----------
    tail, head : (a,) int64
    """

    tail: Ints
    head: Ints


@dataclass(frozen=True, eq=False)
class ChainCosts:
    """b blocks, e nets and D kinds of devices.

    Attributes
    ----------
    arcs : BlockArcs
    time, need : (D, b) int64
        Time of each block on each kind; what it takes of a device's room.
    fits : (D, b) bool
        Whether a device of the kind can run and hold the block.
    room : (D,) int64
    weight : (D, e) int64
        What a device of each kind pays for a net that is cut.
    net_ptr, pin : (e + 1,), (p,) int64
        Pins of net i are the blocks ``pin[net_ptr[i]:net_ptr[i + 1]]``.
    counts : (D,) int64
        Devices of each kind.
    overlap : bool
        Load is the larger of compute and communication, not their sum.
    work : (b,) int64
        Least time of each block: the measure of how far a chain has come.
    before, after : (b,) int64
        Work of each block with all its ancestors, and with all its descendants.
    """

    arcs: BlockArcs
    time: Ints
    need: Ints
    fits: Flags
    room: Ints
    weight: Ints
    net_ptr: Ints
    pin: Ints
    counts: Ints
    overlap: bool
    work: Ints
    before: Ints
    after: Ints

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.work)

    @property
    def total_work(self) -> int:
        """Work of all blocks."""
        return int(self.work.sum())

    def backwards(self) -> ChainCosts:
        """The same chain from its end: a stage that comes last comes first."""
        return ChainCosts(
            BlockArcs(self.arcs.head, self.arcs.tail),
            self.time,
            self.need,
            self.fits,
            self.room,
            self.weight,
            self.net_ptr,
            self.pin,
            self.counts,
            self.overlap,
            self.work,
            self.after,
            self.before,
        )


def chain_costs(
    arcs: BlockArcs,
    costs: tuple[Ints, Ints, Ints],
    nets: tuple[Ints, Ints, Ints],
    counts: Ints,
    *,
    overlap: bool,
) -> ChainCosts:
    """Costs from arrays; `costs` are time, need and room, `nets` weight, net_ptr and pin.

    Kinds without a device are left out. A block that no kind fits has no work.
    O(b (a + b) / 64) for a arcs.

    Examples
    --------
    Two blocks in a row, of 4 and 6 ns, on two devices:

    >>> time, none = np.array([[4, 6]]), np.zeros((1, 2), np.int64)
    >>> costs = time, none, np.zeros(1, np.int64)
    >>> nets = np.array([[1]]), np.array([0, 2]), np.array([0, 1])
    >>> found = chain_costs(BlockArcs(np.array([0]), np.array([1])), costs, nets, np.array([2]),
    ...                     overlap=False)
    >>> found.before.tolist(), found.after.tolist()
    ([4, 10], [10, 6])
    """
    used = np.flatnonzero(counts)
    time, need, room = (part[used] for part in costs)
    fits = need <= room[:, None]
    never = np.iinfo(np.int64).max
    least = np.where(fits, time, never).min(axis=0)
    work = np.where(least == never, 0, least)
    before = _gathered(work, *group_by(arcs.head, len(work)), arcs.tail, 1)
    after = _gathered(work, *group_by(arcs.tail, len(work)), arcs.head, -1)
    weight, net_ptr, pin = nets
    return ChainCosts(
        arcs,
        time,
        need,
        np.asarray(fits),
        room,
        weight[used],
        net_ptr,
        pin,
        counts[used],
        overlap,
        work,
        before,
        after,
    )


def as_one_kind(costs: ChainCosts) -> ChainCosts:
    """All devices taken for one kind, with the least costs and the most room: a relaxation.

    Examples
    --------
    >>> time, need, room = np.array([[4], [6]]), np.array([[9], [2]]), np.array([8, 3])
    >>> nets = np.zeros((2, 0), np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
    >>> none = np.zeros(0, np.int64)
    >>> two = chain_costs(BlockArcs(none, none), (time, need, room), nets, np.array([1, 1]),
    ...                   overlap=False)
    >>> one = as_one_kind(two)  # the first kind cannot hold the block
    >>> one.time.tolist(), one.need.tolist(), one.room.tolist(), one.counts.tolist()
    ([[6]], [[2]], [8], [2])
    """
    room, never = costs.room.max(), np.iinfo(np.int64).max
    need = np.where(costs.fits, costs.need, never).min(axis=0)
    return replace(
        costs,
        time=costs.work[None],
        need=np.where(need == never, room + 1, need)[None],
        fits=np.asarray(costs.fits.any(axis=0, keepdims=True)),
        room=np.array([room]),
        weight=costs.weight.min(axis=0)[None],
        counts=np.array([costs.counts.sum()]),
    )


@kernel
def _gathered(work: Ints, pointer: Ints, arc: Ints, source: Ints, step: int) -> Ints:
    """Work of each block and of all that lead to it; `step` -1 goes through the blocks backwards.

    For 64 blocks at a time, which of them lead where: one word per block.
    """
    b = len(work)
    total = np.zeros(b, np.int64)
    of_byte = np.zeros((8, 256), np.int64)
    for first in range(0, b, CHUNK):
        last = min(b, first + CHUNK)
        of_byte[:] = 0
        for v in range(first, last):
            byte, bit = (v - first) // 8, 1 << ((v - first) % 8)
            for mask in range(256):
                if mask & bit:
                    of_byte[byte, mask] += work[v]
        leads = np.zeros(b, np.uint64)
        for at in range(b):
            v = at if step > 0 else b - 1 - at
            word = np.uint64(0)
            if first <= v < last:
                word = np.uint64(1) << np.uint64(v - first)
            for j in range(pointer[v], pointer[v + 1]):
                word |= leads[source[arc[j]]]
            leads[v] = word
            if word:
                for byte in range(8):
                    part = (word >> np.uint64(8 * byte)) & np.uint64(255)
                    total[v] += of_byte[byte, np.int64(part)]
    return total
