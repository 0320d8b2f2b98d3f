"""What is left after an ideal, at least: from the graph, or from labels of the other direction."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.kernels import kernel
from placegap.solvers.latency.ideals.labels import Labels
from placegap.solvers.latency.ideals.lattice import ChainLattice
from placegap.solvers.latency.masks import has


@kernel
def front_tails(lattice: ChainLattice, feeds: Ints, least_ns: Ints) -> Ints:
    """Longest path after each node in front of an ideal, through nodes outside of it, (f,)."""
    tail = np.zeros(len(least_ns), np.int64)
    for v in range(len(least_ns) - 1, -1, -1):
        for u in range(v):
            if has(feeds[u], v):
                tail[u] = max(tail[u], least_ns[v] + tail[v])
    found = np.zeros(len(lattice.front), np.int64)
    for i in range(len(lattice.mask)):
        for at in range(lattice.front_ptr[i], lattice.front_ptr[i + 1]):
            f = lattice.front[at]
            for v in range(f + 1, len(least_ns)):
                if has(feeds[f], v) and not has(lattice.mask[i], v):
                    found[at] = max(found[at], least_ns[v] + tail[v])
    return found


@kernel
def tails(
    lattice: ChainLattice,
    labels: Labels,
    opposite: Ints,
    other: ChainLattice,
    feeds: Ints,
    most_calls: int,
) -> tuple[Ints, Ints]:
    """`tail_ns` and `rest_ns` of another lattice, in which time runs the other way.

    ``opposite[j]`` is the ideal there of all that ideal j leaves out; `feeds` are bits of the
    nodes that each feeds, in the numbers of this lattice; node v has number m - 1 - v there.
    """
    m = len(feeds)
    tail = np.full((most_calls + 1, len(other.front)), NEVER, np.int64)
    rest = np.full((most_calls + 1, len(other.mask)), NEVER, np.int64)
    for j in range(len(lattice.mask)):
        k = opposite[j]
        offset = lattice.front_ptr[j]
        label = labels.head[j]
        while label >= 0:
            left = most_calls - labels.calls[label]
            longest = labels.end_ns[label, 0]
            for x in range(lattice.front_ptr[j + 1] - offset):
                longest = max(longest, labels.end_ns[label, 1 + x])
            rest[left, k] = min(rest[left, k], longest)
            for at in range(other.front_ptr[k], other.front_ptr[k + 1]):
                f, longest = m - 1 - other.front[at], np.int64(0)
                for x in range(lattice.front_ptr[j + 1] - offset):
                    if has(feeds[lattice.front[offset + x]], f):
                        longest = max(longest, labels.end_ns[label, 1 + x])
                tail[left, at] = min(tail[left, at], longest)
            label = labels.next[label]
    for c in range(most_calls - 1, -1, -1):  # what may have more calls may have fewer
        tail[c], rest[c] = np.minimum(tail[c], tail[c + 1]), np.minimum(rest[c], rest[c + 1])
    return tail, rest
