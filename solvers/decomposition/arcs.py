"""The arcs of the section graph, bounds on the least time of each, and chains of sections.

Sections that are equal share their arcs, and so do device pairs that identical devices make equal:
twelve layers of a transformer, or sixteen pairs of four equal GPUs, are solved once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from placegap.formulations.shared.times import bare_lengths, path_bounds, windows
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.device_classes import Classes, identical_devices
from placegap.instances.problem.graph_index import numbered
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Section

PROOFS = ("path", "section lp", "cp-sat")  # what proves a bound, the weakest first


@dataclass(eq=False)
class Arc:
    """The least time from the end of a section's entry to the end of its exit, on two devices."""

    section: Section  # the section that is solved in place of all equal ones
    #: entry, leave: The devices that it is solved for.
    entry: int | None
    leave: int | None
    lower_ns: int  # a proven bound; `NO_WAY` without a schedule that a better plan could use
    #: The time of `plan`; of a section with nothing but its ends, which needs none, its time.
    upper_ns: int | None = None
    plan: Plan | None = None  # a plan of the section, with ops numbered as in ``section.ops``
    proof: int = 0  # what proves the bound, as a position in `PROOFS`
    placed_ns: int | None = None  # time of the plan that placers made first; `NO_WAY` without one
    #: steps, undecided: Jobs so far, and those of CP-SAT among them that ran out of time.
    steps: int = 0
    undecided: int = 0
    final: bool = False  # whether more jobs would be useless
    #: ticket, kind: The number of its job, while there is one; and its kind, or that of the last
    #: one: "lp" or "cp".
    ticket: int | None = None
    kind: str = ""

    def __post_init__(self) -> None:
        #: The bound that paths prove.
        self.path_ns = self.lower_ns

    @property
    def open(self) -> bool:
        """Whether a job may raise the bound."""
        return not self.final and self.lower_ns < NO_WAY and self.lower_ns != self.upper_ns


@dataclass(frozen=True, eq=False)
class Use:
    """An arc as one section and device pair uses it."""

    # `entry` and `leave` are its devices, None where it has no entry or exit; `names[k]` is the
    # device of the arc that stands for device k.
    section: Section
    entry: int | None
    leave: int | None
    arc: Arc
    names: tuple[int, ...]


@dataclass(eq=False)
class ArcTable:
    """All arcs of an instance's sections, made when they are needed."""

    instance: Instance
    semantics: Makespan
    known: dict[Hashable, Arc] = field(default_factory=dict)

    @cached_property
    def classes(self) -> Classes:
        """Devices that may be swapped."""
        return identical_devices(self.instance)

    def uses(self, section: Section) -> list[list[Use]]:
        """The arcs of a section by the devices of entry (rows) and exit (columns)."""
        # `able` and not the ops' times alone: where an op can be depends on all ops of its group,
        # and some of these may be outside of the section
        key = _key(self.instance, section, self.instance.arrays.able)
        # without inner ops nothing is left to decide: the time is exact, and the arc never refined
        exact = section.num_inner == 0
        if exact:
            lengths = bare_lengths(self.instance, section, self.semantics)
        else:
            lengths = path_bounds(self.instance, section)
        rows, columns = lengths.shape
        table = []
        for a in range(rows):
            row = []
            for b in range(columns):
                entry = None if section.entry is None else a
                leave = None if section.exit is None else b
                # a swap of identical devices leads to the arc that stands for this one, too
                names = self._names([k for k in (entry, leave) if k is not None])
                ends = (
                    None if entry is None else names[entry],
                    None if leave is None else names[leave],
                )
                lower = int(lengths[a, b])
                upper = lower if exact and lower < NO_WAY else None
                made = Arc(section, ends[0], ends[1], lower, upper, final=exact)
                arc = self.known.setdefault((key, *ends), made)
                row.append(Use(section, entry, leave, arc, names))
            table.append(row)
        return table

    def _names(self, pinned: Sequence[int]) -> tuple[int, ...]:
        """A swap of identical devices that moves the pinned ones to the first of their classes."""
        names = list(range(self.instance.num_devices))
        for members in self.classes:
            first = [k for k in dict.fromkeys(pinned) if k in members]
            rest = [k for k in members if k not in first]
            for old, new in zip([*first, *rest], members, strict=True):
                names[old] = new
        return tuple(names)


def _key(instance: Instance, section: Section, possible: Flags) -> Hashable:
    """Equal for sections that are equal up to the names of ops and tensors."""
    # Ops are in topological order, so that layers of one kind are listed alike. Isomorphic sections
    # in another order get another key, which only costs time.
    arrays, ops, edges = instance.arrays, list(section.ops), list(section.edges)
    index = arrays.index
    local = {i: at for at, i in enumerate(ops)}
    return (
        section.entry is None,
        section.exit is None,
        len(ops),
        arrays.time_ns[ops].tobytes(),
        possible[ops].tobytes(),
        arrays.resident_bytes[ops].tobytes(),
        tuple(numbered(arrays.group[ops].tolist())),
        tuple(local[i] for i in index.producer[edges].tolist()),
        tuple(local[i] for i in index.consumer[edges].tolist()),
        tuple(numbered(index.tensor[edges].tolist())),
        arrays.transfer_ns[index.tensor[edges]].tobytes(),
    )


def lower_table(uses: list[list[Use]]) -> Ints:
    """The bounds of a section's arcs."""
    return np.array([[use.arc.lower_ns for use in row] for row in uses], np.int64)


def upper_table(uses: list[list[Use]]) -> Ints:
    """The times of the plans of a section's arcs, `NO_WAY` where there is none."""
    return np.array(
        [[NO_WAY if use.arc.upper_ns is None else use.arc.upper_ns for use in row] for row in uses],
        np.int64,
    )


Lengths = Callable[[list[list[Use]]], Ints]  # of a section's arcs, by entry and exit device


@dataclass(frozen=True)
class Chain:
    """Sections of which each begins where the one before ends."""

    sections: tuple[Section, ...]
    uses: tuple[list[list[Use]], ...]
    before_ns: Ints  # (rows of the first section,): the earliest end of the first section's entry
    #: (columns of the last section,) int64: The least time after the end of the last section's
    #: exit.
    after_ns: Ints

    def distances(self, lengths: Lengths) -> tuple[list[Ints], list[Ints]]:
        """Least times up to each node of the chain, and from it to the end, by its device."""
        tables = [lengths(uses) for uses in self.uses]
        ahead = [self.before_ns]
        for table in tables:
            ahead.append(np.minimum((ahead[-1][:, None] + table).min(axis=0), NO_WAY))
        back = [self.after_ns]
        for table in reversed(tables):
            back.append(np.minimum((table + back[-1][None, :]).min(axis=1), NO_WAY))
        return ahead, back[::-1]

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """Length and arcs of a shortest path; if several tie, that of the lowest devices."""
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
        # an arc that several sections or device pairs share may take what the most generous one
        # allows
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
    """A chain that begins and ends somewhere within the graph."""
    # The heads of its first op and the tails of its last one are those of plans of at most the
    # limit (`windows`); a bound from the chain is one on these.
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
