"""An implicit 8-ary tree over a list of source states, to skip sources that cannot help."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import Indices
from placegap.solvers.chains.transitions import View

FAN_OUT_BITS = 3
"""Each node stands for 2**3 nodes of the level below, in list order."""


class Sources(NamedTuple):
    """States (ideal, value) that one more device may extend, and the tree over them.

    Level 0 are the states themselves; node i of level l + 1 sums up nodes 8 i .. 8 i + 7 of level
    l. Consecutive states share most of their blocks, so that a node's common blocks say much.

    Attributes
    ----------
    ideal : (s,) int32
        Ideal of each state, ascending.
    start : (levels + 1,) int64
        First node of each level.
    value : (nodes,) int64
        Least value below each node.
    need, parameters : (nodes,) int64
        Largest need and most parameters.
    potential : (nodes, p) int64
        Largest potentials.
    common : (nodes - s, words) int64
        Blocks that all ideals below have in common; not for level 0.
    """

    ideal: Indices
    start: Ints
    value: Ints
    need: Ints
    parameters: Ints
    potential: Ints
    common: Ints


def build_sources(view: View, ideal: Indices, value: Ints) -> Sources:
    """The tree over source states with these ideals and values."""
    start = [0, len(ideal)]
    while start[-1] - start[-2] > 1:
        start.append(start[-1] + -(-(start[-1] - start[-2]) // (1 << FAN_OUT_BITS)))
    nodes = start[-1]
    sources = Sources(
        ideal,
        np.array(start, np.int64),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty((nodes, view.potential.shape[1]), np.int64),
        np.empty((nodes - len(ideal), view.members.shape[1]), np.int64),
    )
    _fill(sources, view, value)
    return sources


@kernel
def _fill(s: Sources, view: View, value: Ints) -> None:
    size = len(s.ideal)
    for i in range(size):
        s.value[i], s.need[i] = value[i], view.need[s.ideal[i]]
        s.parameters[i] = view.parameters[s.ideal[i]]
        s.potential[i] = view.potential[s.ideal[i]]
    for level in range(1, len(s.start) - 1):
        below, here = s.start[level - 1], s.start[level]
        for i in range(s.start[level], s.start[level + 1]):
            first = below + ((i - here) << FAN_OUT_BITS)
            for j in range(first, min(first + (1 << FAN_OUT_BITS), here)):
                words = view.members[s.ideal[j]] if level == 1 else s.common[j - size]
                if j == first:
                    s.value[i], s.need[i] = s.value[j], s.need[j]
                    s.parameters[i] = s.parameters[j]
                    s.potential[i], s.common[i - size] = s.potential[j], words
                    continue
                s.value[i] = min(s.value[i], s.value[j])
                s.need[i] = max(s.need[i], s.need[j])
                s.parameters[i] = max(s.parameters[i], s.parameters[j])
                for q in range(s.potential.shape[1]):
                    s.potential[i, q] = max(s.potential[i, q], s.potential[j, q])
                for word in range(view.members.shape[1]):
                    s.common[i - size, word] &= words[word]
