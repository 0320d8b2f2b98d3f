"""Least times through a section, for all ways to place some colocation groups of its ops.

With u and v the section's ends, every op of a placed group is on one device, and every other op
anywhere. `section_gaps` says what that takes at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.semantics import Makespan
from placegap.instances.structure.sections import Section
from placegap.solvers.bounds.section_gaps import (
    ChannelTable,
    SectionEdges,
    channel_table,
    paths_through,
    port_gap,
    raise_by_all,
    section_edges,
)
from placegap.solvers.bounds.work_windows import WorkWindows


class PlacedSection(NamedTuple):
    """A section with an entry, s inner ops and an exit, as a kernel reads it.

    Attributes
    ----------
    enter_ns, leave_ns : (K,) int64
        What the ends take; `NO_WAY` where they cannot be.
    own_ns : (s, K) int64
        What the inner ops take.
    mass : int
        Of the inner ops together, as in `work_windows`.
    edges : SectionEdges
        By consumers in topological order.
    group : (s + 2,) int64
        Colocation groups of the entry, the inner ops and the exit.
    """

    enter_ns: Ints
    leave_ns: Ints
    own_ns: Ints
    mass: int
    edges: SectionEdges
    group: Ints

    def key(self, names: dict[int, int]) -> tuple[object, ...]:
        """What two sections agree in that take the same times, with the groups' own names."""
        named = tuple(names.get(g, -1) for g in self.group.tolist())
        parts = (self.enter_ns, self.leave_ns, self.own_ns, *self.edges)
        return (named, self.mass, *(part.tobytes() for part in parts))


class SectionTimes:
    """Least times through the sections of a chain, with some groups on given devices."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        chain: Sequence[Section],
        windows: WorkWindows,
    ) -> None:
        self.time, self.weights = windows.time_ns, windows.weights
        self.parts = [_placed(instance, semantics, part, windows) for part in chain]
        self.last = chain[-1].ops[-1]
        self.last_group = int(instance.arrays.group[self.last])
        self.channels = channel_table(semantics, instance.num_devices)

    def num_edges(self, sections: Sequence[int]) -> int:
        """Of all these sections."""
        return sum(len(self.parts[s].edges.producer) for s in sections if s < len(self.parts))

    def key(self, sections: range, names: dict[int, int]) -> tuple[object, ...]:
        """What ranges of sections agree in that take the same times."""
        inner = [self.parts[s].key(names) for s in sections if s < len(self.parts)]
        if sections.stop > len(self.parts):
            inner.append((names.get(self.last_group, -1), self.time[self.last].tobytes()))
        return (*inner, sections.stop > len(self.parts))

    def through(self, sections: range, groups: Sequence[int], devices: Ints) -> Ints:
        """From the start of the first one's entry to that of the last one's exit.

        Parameters
        ----------
        sections : range
            One behind the last is the chain's last op.
        groups : sequence of int
        devices : (p, groups) int64
            Ways to place them. The last exit is anywhere.

        Returns
        -------
        (p, K, K) int64
            By the devices of both ends; `NO_WAY` where they cannot be.
        """
        num_devices = self.time.shape[1]
        stay = np.where(np.eye(num_devices, dtype=np.bool_), 0, NO_WAY)
        least = np.repeat(stay[None], len(devices), axis=0)
        place = {g: x for x, g in enumerate(groups)}
        for s in sections:
            if s == len(self.parts):  # the last op, which must be where it is
                table, at = self._last_one(place.get(self.last_group, -1), devices)
            else:
                table, at = self._one(self.parts[s], s + 1 == sections.stop, place, devices)
            least = _joined(least, table, at)
        return least

    def _one(
        self, part: PlacedSection, is_last: bool, place: dict[int, int], devices: Ints
    ) -> tuple[Ints, Ints]:
        """A table for each way to place the section's own groups, and which one a row has."""
        named = np.array([place.get(g, -1) for g in part.group.tolist()], np.int64)
        if is_last:
            named[-1] = -1
        mine = np.unique(named[named >= 0])
        rows, at = np.unique(devices[:, mine], axis=0, return_inverse=True)
        column = np.append(np.searchsorted(mine, named), 0)[:-1]
        column[named < 0] = -1
        tables = _tables(np.ascontiguousarray(rows), column, part, self.weights, self.channels)
        return tables, at.reshape(-1)

    def _last_one(self, column: int, devices: Ints) -> tuple[Ints, Ints]:
        num_devices = self.time.shape[1]
        can = self.time[self.last] < NO_WAY
        tables = np.full((num_devices + 1, num_devices, num_devices), NO_WAY)
        for d in np.flatnonzero(can).tolist():
            tables[d, d, d] = tables[-1, d, d] = 0
        free = np.full(len(devices), num_devices)
        return tables, free if column < 0 else devices[:, column]


def ways_to_place(allowed: Sequence[Sequence[int]]) -> Ints:
    """All ways to choose one device for each group, a row for each.

    Examples
    --------
    >>> ways_to_place([[0, 1], [1]]).tolist()
    [[0, 1], [1, 1]]
    """
    rows = list(product(*allowed))
    return np.array(rows, np.int64).reshape(len(rows), len(allowed))


def _placed(
    instance: Instance, semantics: Makespan, part: Section, windows: WorkWindows
) -> PlacedSection:
    inner = np.array(part.ops[1:-1], np.int64)
    edges = section_edges(instance, part, semantics)
    order = np.argsort(edges.consumer, kind="stable")
    return PlacedSection(
        windows.time_ns[part.ops[0]],
        windows.time_ns[part.ops[-1]],
        windows.time_ns[inner],
        int(windows.mass[inner].sum()),
        SectionEdges(*(np.ascontiguousarray(column[order]) for column in edges)),
        instance.arrays.group[list(part.ops)],
    )


@kernel
def _joined(least: Ints, table: Ints, at: Ints) -> Ints:
    """The least sums of a way so far and one through the next section."""
    num_devices = least.shape[1]
    found = np.full(least.shape, NO_WAY)
    for p in range(len(least)):
        for a in range(num_devices):
            for c in range(num_devices):
                if least[p, a, c] >= NO_WAY:
                    continue
                for b in range(num_devices):
                    way = least[p, a, c] + table[at[p], c, b]
                    found[p, a, b] = min(found[p, a, b], way)
    return found


@kernel
def _tables(
    devices: Ints, column: Ints, part: PlacedSection, weights: Ints, channels: ChannelTable
) -> Ints:
    """From the start of the entry to that of the exit, (p, K, K), with the groups placed.

    `column` has the group of the entry, of each inner op and of the exit; -1: anywhere.
    """
    size, num_devices = part.own_ns.shape
    edges = part.edges
    found = np.full((len(devices), num_devices, num_devices), NO_WAY)
    every = np.empty((size + 2, num_devices), np.int64)
    for p in range(len(devices)):
        every[0], every[1 : size + 1], every[size + 1] = part.enter_ns, part.own_ns, part.leave_ns
        is_free = False  # whether some inner op is in no placed group
        for x in range(size + 2):
            for d in range(num_devices):
                if column[x] >= 0 and devices[p, column[x]] != d:
                    every[x, d] = NO_WAY
            is_free = is_free or (column[x] < 0 and 0 < x <= size)
        own = every[1 : size + 1]
        gap, head, tail = paths_through(
            every[0], own, every[size + 1], edges.producer, edges.consumer, edges.move_ns
        )
        if is_free:
            raise_by_all(gap, own, head, tail, part.mass, weights)
        if size > 0:
            gap = port_gap(gap, own, head, tail, edges, channels)
        for a in range(num_devices):
            for b in range(num_devices):
                if gap[a, b] < NO_WAY:
                    found[p, a, b] = min(NO_WAY, every[0, a] + gap[a, b])
    return found
