"""What colocation groups of more than one node mean for calls along a spine.

With one call per accelerator, a call that holds one of a group holds all. With several, ops of a
group may be in several calls; each of them has the whole group's memory, because its accelerator
has. The nodes of a call count with their own memory wherever they are in it; `GroupMemory.more` is
what the groups of its bottlenecks s to t and of the sections between have elsewhere: not in the
sections at its ends, which it may hold a part of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.solvers.latency.spine import Spine


@dataclass(frozen=True, eq=False)
class GroupMemory:
    """Tables of calls by their first and last bottleneck; (0, 0) without groups.

    Attributes
    ----------
    more_bytes : (T, T) int64
        Memory of groups of the call, elsewhere.
    unfinished_bytes : (T, T) int64
        Memory of the groups that may have nodes in the call, its first section included, and after
        its last bottleneck.
    is_torn : (T, T) bool
        Whether the call has a part of a group that must be in one.
    """

    more_bytes: Ints
    unfinished_bytes: Ints
    is_torn: Flags

    def more(self, s: int, t: int) -> int:
        """Memory of groups of the call of bottlenecks s to t, elsewhere."""
        return int(self.more_bytes[s, t]) if self.more_bytes.size else 0

    def more_than_before(self, starts: Ints, t: int) -> Ints:
        """How that grows when calls that start at some bottlenecks take t; 0 where none starts."""
        if not self.more_bytes.size or not t:
            return np.zeros_like(starts)
        return np.where(starts < 0, 0, self.more_bytes[starts, t] - self.more_bytes[starts, t - 1])

    def unfinished(self, starts: Ints, t: int) -> Ints:
        """Memory that a linked call counts itself."""
        if not self.more_bytes.size:
            return np.zeros_like(starts)
        found: Ints = self.unfinished_bytes[starts, t]
        return found

    def torn(self, starts: Ints, t: int) -> Flags:
        """Whether calls up to bottleneck t have a part of a group that must be in one."""
        if not self.more_bytes.size:
            return np.zeros(len(starts), np.bool_)
        found: Flags = self.is_torn[starts, t]
        return found


def group_memory(spine: Spine) -> GroupMemory:
    """The tables of a spine; O(T^2) for each group of several nodes.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.latency.spine import build_nodes, build_spine
    >>> group_memory(build_spine(build_nodes(example(), 1))).more_bytes.shape
    (0, 0)
    """
    nodes, place = spine.nodes, places(spine)
    held: dict[int, list[int]] = {}
    for v in np.flatnonzero(place >= 0).tolist():
        held.setdefault(int(nodes.group[v]), []).append(v)
    groups = [np.array(inside) for inside in held.values() if len(inside) > 1]
    count = len(spine.bottlenecks) if groups else 0
    more, unfinished = np.zeros((2, count, count), np.int64)
    torn = np.zeros((count, count), np.bool_)
    first = 2 * np.arange(count)[:, None]  # section before the call
    last = 2 * np.arange(count)[None, :] + 2  # section after it
    for inside in groups:
        at, size = place[inside], spine.size_bytes[inside]
        total = int(size.sum())
        touched, around, before, later = np.zeros((4, count, count), np.int64)
        for y, b in zip(at.tolist(), size.tolist(), strict=True):
            touched |= (first < y) & (y < last)
            around += b * ((first <= y) & (y <= last))
            before |= (first <= y) & (y < last)
            later |= y >= last
        more += touched * (total - around)
        unfinished += total * (before & later)
        if nodes.once:
            torn |= (touched > 0) & ~((at.min() >= first) & (at.max() <= last))
    return GroupMemory(more, unfinished, torn)


def places(spine: Spine) -> Ints:
    """2 t for nodes of section t, 2 t + 1 for the bottleneck behind it, -1 if left out, (m,)."""
    place = np.full(len(spine.nodes.own_ns), -1, np.int64)
    for t, inner in enumerate(spine.sections):
        place[inner] = 2 * t
    place[spine.bottlenecks] = 2 * np.arange(len(spine.bottlenecks)) + 1
    return place
