"""The ideals of a spine's nodes, each with the ideals that have one node more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import copy_to, kernel
from placegap.solvers.latency.masks import beyond, has, ideals

FEW = 1_000
"""Ideals that there is room for at first."""


class ChainLattice(NamedTuple):
    """N ideals of m nodes, none before one of fewer nodes.

    Attributes
    ----------
    mask : (N, words) int64
    child_ptr : (N + 1,) int64
    child, added : (arcs,) int64
        Number of each ideal with one node more, and that node.
    front_ptr : (N + 1,) int64
    front : (f,) int64
        Nodes of each ideal that feed some node outside of it, ascending.
    """

    mask: Ints
    child_ptr: Ints
    child: Ints
    added: Ints
    front_ptr: Ints
    front: Ints


def build_lattice(before: Ints, feeds: Ints, most: int) -> ChainLattice | None:
    """The lattice, or None if there are more than `most` ideals; O(N m words).

    Parameters
    ----------
    before : (m, words) int64
        Bits of all nodes before each; nodes are in topological order.
    feeds : (m, words) int64
        Bits of the nodes that each feeds, with none between.
    most : int

    Examples
    --------
    Two nodes in a row, and one beside them:

    >>> from placegap.solvers.latency.masks import masks
    >>> row = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]], bool)
    >>> lattice = build_lattice(masks(row.T), masks(row), 100)
    >>> lattice.mask[:, 0].tolist(), lattice.child[: lattice.child_ptr[1]].tolist()
    ([0, 1, 4, 3, 5, 7], [1, 2])
    """
    room = min(FEW, most)  # room for all that there may be takes long to clear
    mask, count = ideals(before, room)
    while count > room and room < most:
        room = min(30 * room, most)
        mask, count = ideals(before, room)
    if count > room:
        return None
    mask = np.ascontiguousarray(mask[:count])
    return ChainLattice(mask, *_arcs(before, mask), *_fronts(feeds, mask))


@kernel(allocates=False)
def _hash(mask: Ints, size: int) -> int:
    """A place in a table of `size` cells, a power of two."""
    key = np.int64(1469598103934665603)
    for w in range(len(mask)):
        key = (key ^ mask[w]) * np.int64(1099511628211)
        key ^= (key >> 29) & np.int64(0x7FFFFFFFF)
    return int(key & (size - 1))


@kernel
def _arcs(before: Ints, mask: Ints) -> tuple[Ints, Ints, Ints]:
    """Offsets, children and added nodes."""
    count, size = len(mask), 4
    while size < 2 * count:
        size *= 2
    table = np.full(size, -1, np.int64)
    total = 0
    for i in range(count):
        at = _hash(mask[i], size)
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = i
        for v in range(len(before)):
            total += not has(mask[i], v) and not beyond(before[v], mask[i])
    ptr = np.zeros(count + 1, np.int64)
    child, added = np.empty(total, np.int64), np.empty(total, np.int64)
    wanted = np.zeros_like(mask[0])
    filled = 0
    for i in range(count):
        for v in range(len(before)):
            if has(mask[i], v) or beyond(before[v], mask[i]):
                continue
            copy_to(wanted, mask[i])
            wanted[v // 64] |= np.int64(1) << (v % 64)
            at = _hash(wanted, size)
            while (mask[table[at]] != wanted).any():
                at = (at + 1) & (size - 1)
            child[filled], added[filled] = table[at], v
            filled += 1
        ptr[i + 1] = filled
    return ptr, child, added


@kernel
def _fronts(feeds: Ints, mask: Ints) -> tuple[Ints, Ints]:
    """Offsets, and the nodes of each ideal that feed something outside."""
    ptr = np.zeros(len(mask) + 1, np.int64)
    for i in range(len(mask)):
        ptr[i + 1] = ptr[i]
        for v in range(len(feeds)):
            ptr[i + 1] += has(mask[i], v) and beyond(feeds[v], mask[i])
    front = np.empty(ptr[-1], np.int64)
    for i in range(len(mask)):
        at = ptr[i]
        for v in range(len(feeds)):
            if has(mask[i], v) and beyond(feeds[v], mask[i]):
                front[at] = v
                at += 1
    return ptr, front
