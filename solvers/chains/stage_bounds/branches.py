"""Stages split by single blocks: such a block is in an ideal, with all before it, or out of it.

Narrower intervals of work leave some blocks open that an LP takes by parts. Where one of them is
settled, all that it needs, or all that needs it, is settled as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Floats, Ints
from placegap.solvers.chains.stage_lp import BlockArcs

FREE = -1

WHOLE = 1e-6
"""A part of a block that is so near to 0 or 1 is none."""


class Settled(NamedTuple):
    """Of each block 1 if it is in the ideal, 0 if it is out, `FREE` else.

    Attributes
    ----------
    before, behind : (b,) int64
        For the ideals before the stage and with it.
    """

    before: Ints
    behind: Ints


def nothing_settled(num_blocks: int) -> Settled:
    """All blocks are open."""
    return Settled(np.full(num_blocks, FREE), np.full(num_blocks, FREE))


def joined_with(a: Ints, b: Ints) -> Ints | None:
    """What either settles; None if they contradict each other."""
    if ((a != FREE) & (b != FREE) & (a != b)).any():
        return None
    return np.where(a == FREE, b, a)


def close(settled: Settled, arcs: BlockArcs) -> Settled | None:
    """With all that follows from arcs and from nesting; None if nothing is left.

    Examples
    --------
    Of three blocks in a row the second is in the smaller ideal, so the first is in both:

    >>> row = BlockArcs(np.array([0, 1]), np.array([1, 2]))
    >>> before, behind = close(Settled(np.array([-1, 1, -1]), np.full(3, -1)), row)
    >>> before.tolist(), behind.tolist()
    ([1, 1, -1], [1, 1, -1])
    """
    y, z = settled.before.copy(), settled.behind.copy()
    left = -1
    while left != (left := int((y == FREE).sum() + (z == FREE).sum())):
        z[(y == 1) & (z == FREE)] = 1
        y[(z == 0) & (y == FREE)] = 0
        for ideal in (y, z):
            needed = arcs.tail[ideal[arcs.head] == 1]
            ideal[needed[ideal[needed] == FREE]] = 1
            needs = arcs.head[ideal[arcs.tail] == 0]
            ideal[needs[ideal[needs] == FREE]] = 0
    broken = any(((i[arcs.tail] == 0) & (i[arcs.head] == 1)).any() for i in (y, z))
    return None if broken or ((y == 1) & (z == 0)).any() else Settled(y, z)


def halves(settled: Settled, before: Floats, behind: Floats) -> tuple[Settled, Settled] | None:
    """With and without the block of which an LP takes nearest to a half; None if it takes none.

    Examples
    --------
    >>> parts = halves(nothing_settled(2), np.zeros(2), np.array([1.0, 0.3]))
    >>> [part.behind.tolist() for part in parts]
    [[-1, 1], [-1, 0]]
    """
    for level in (1, 0):
        part = (before, behind)[level]
        open_ = np.minimum(part, 1.0 - part)
        v = int(np.argmax(open_))
        if open_[v] > WHOLE:
            changed = [np.array(settled[level]), np.array(settled[level])]
            changed[0][v], changed[1][v] = 1, 0
            if level:
                return Settled(settled.before, changed[0]), Settled(settled.before, changed[1])
            return Settled(changed[0], settled.behind), Settled(changed[1], settled.behind)
    return None
