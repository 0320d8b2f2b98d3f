"""A chain of sections and its shortest paths: what lies before, behind and on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.times import windows
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Section
from placegap.solvers.decomposition.arcs import Arc, ArcTable, Use

Lengths = Callable[[list[list[Use]]], Ints]
"""Lengths of the arcs of a section, by the devices of entry and exit."""


@dataclass(frozen=True)
class Chain:
    """Sections of which each begins where the one before ends.

    Attributes
    ----------
    sections : tuple of Section
    uses : per section, the arcs by the devices of its entry and exit
    before_ns : (rows of the first section,) int64
        When the entry of the first section can end at the earliest.
    after_ns : (columns of the last section,) int64
        So much time passes at least after the end of the last section's exit.
    """

    sections: tuple[Section, ...]
    uses: tuple[list[list[Use]], ...]
    before_ns: Ints
    after_ns: Ints

    def distances(self, lengths: Lengths) -> tuple[list[Ints], list[Ints]]:
        """Per node layer, the least time up to each device, and from each device to the end."""
        tables = [lengths(uses) for uses in self.uses]
        ahead = [self.before_ns]
        for table in tables:
            ahead.append(np.minimum((ahead[-1][:, None] + table).min(axis=0), NO_WAY))
        back = [self.after_ns]
        for table in reversed(tables):
            back.append(np.minimum((table + back[-1][None, :]).min(axis=1), NO_WAY))
        return ahead, back[::-1]

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """Length and arcs of a shortest path; of equal ones, that of the lowest devices."""
        ahead, back = self.distances(lengths)
        total = int((ahead[0] + back[0]).min())
        at, path = int((ahead[0] + back[0]).argmin()), []
        for uses, rest in zip(self.uses, back[1:], strict=True):
            to = int((lengths(uses)[at] + rest).argmin())
            path.append(uses[at][to])
            at = to
        return min(total, NO_WAY), path

    def room(self, limit_ns: int, lengths: Lengths) -> dict[Arc, int]:
        """For every arc, how long it may take in a path of at most the limit."""
        ahead, back = self.distances(lengths)
        found: dict[Arc, int] = {}
        for uses, head, tail in zip(self.uses, ahead, back[1:], strict=False):
            for a, row in enumerate(uses):
                for b, use in enumerate(row):
                    spare = limit_ns - int(head[a]) - int(tail[b])
                    found[use.arc] = max(found.get(use.arc, spare), spare)
        return found


def tiling(table: ArcTable, sections: Sequence[Section]) -> Chain:
    """The chain of sections that make up a whole graph."""
    zero = np.zeros(1, np.int64)
    return Chain(tuple(sections), tuple(table.uses(section) for section in sections), zero, zero)


def interval_chain(table: ArcTable, sections: Sequence[Section], limit_ns: int) -> Chain:
    """A chain that begins and ends somewhere within the graph.

    The heads of its first op and the tails of its last one are those of plans of at most the limit
    (`windows`); a bound from the chain is one on these.
    """
    first, last = sections[0].entry, sections[-1].exit
    assert first is not None
    assert last is not None
    window, times = windows(table.instance, limit_ns), table.instance.arrays.time_ns
    before = np.where(window.possible[first], window.head_ns[first] + times[first], NO_WAY)
    after = np.where(window.possible[last], window.tail_ns[last], NO_WAY)
    return Chain(
        tuple(sections),
        tuple(table.uses(section) for section in sections),
        np.minimum(before, NO_WAY),
        after,
    )
