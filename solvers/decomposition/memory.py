"""Memory along a chain: section plans that fit together, and runs whose arcs the search raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.formulations.sections.paths import ways_through
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.memory_runs import MemoryRuns, memory_runs
from placegap.solvers.decomposition.arcs import Chain, Lengths, Use, lower_table

MOST_LABELS = 32
"""Partial paths that are kept per cut and device."""


class Runs(NamedTuple):
    """A chain, and what memory asks of it."""

    chain: Chain
    runs: MemoryRuns

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """Least cost of runs that fit, and the arcs that it is made of; `NEVER` if none fit."""
        uses = self.chain.uses
        least, ends, _ = self.runs.cheapest([lengths(each) for each in uses])
        return least, [each[a][b] for each, (a, b) in zip(uses, ends, strict=False)]

    def priced(
        self, lengths: Lengths, value_ns: int, stop: Callable[[], bool] = lambda: False
    ) -> Runs:
        """The same runs with the prices of bytes that prove most."""
        tables = [lengths(each) for each in self.chain.uses]
        return self._replace(runs=self.runs.priced(tables, value_ns, stop))


def runs_of(instance: Instance, chain: Chain) -> Runs | None:
    """What memory asks of a chain; None if it asks nothing, or the chain is too long."""
    known: dict[int, tuple[Ints, Ints]] = {}

    def through(s: int) -> tuple[Ints, Ints]:
        alike = chain.uses[s][0][0].arc.section  # equal sections share it
        if id(alike) not in known:
            known[id(alike)] = ways_through(instance, alike)
        return known[id(alike)]

    runs = memory_runs(instance, chain.sections, chain.before_ns, chain.after_ns, through)
    return None if runs is None else Runs(chain, runs)


class Label(NamedTuple):
    """A path up to a cut: its length, the bytes it needs per device, and how it came there."""

    length_ns: int
    need: tuple[int, ...]
    use: Use | None
    before: Label | None


def fitting_path(instance: Instance, tiles: Chain, limit_ns: int) -> tuple[int, list[Use]]:
    """A short path of arcs with plans that fit into memory together; `NO_WAY` if none is found.

    Labels are extended section by section. Of two at the same cut and device, one that is no
    shorter and needs no less anywhere is dropped, and so is what cannot end within the limit; what
    remains beyond `MOST_LABELS` as well, so that this is a heuristic.
    """
    capacity = instance.arrays.memory_bytes.tolist()
    _, back = tiles.distances(lower_table)
    none = tuple(0 for _ in capacity)
    labels = [[Label(int(length), none, None, None)] for length in tiles.before_ns]
    for uses, rest in zip(tiles.uses, back[1:], strict=True):
        found: list[list[Label]] = [[] for _ in rest]
        for here, row in zip(labels, uses, strict=True):
            for b, use in enumerate(row):
                upper, most = use.arc.upper_ns, limit_ns - int(rest[b])
                if upper is None or not here or here[0].length_ns + upper > most:
                    continue
                need = _need(instance, use)
                for label in here:
                    total = tuple(x + y for x, y in zip(label.need, need, strict=True))
                    length = label.length_ns + upper
                    if length <= most and all(x <= y for x, y in zip(total, capacity, strict=True)):
                        found[b].append(Label(length, total, use, label))
        labels = [_undominated(here) for here in found]
    ends = [label for here in labels for label in here[:1]]
    if not ends:
        return NO_WAY, []
    at: Label | None = min(ends, key=lambda label: label.length_ns)
    assert at is not None
    length, path = at.length_ns, []
    while at is not None and at.use is not None:
        path.append(at.use)
        at = at.before
    return length, path[::-1]


def _need(instance: Instance, use: Use) -> tuple[int, ...]:
    """Bytes per device of a section's ops, its entry aside: that belongs to the section before."""
    section, plan = use.section, use.arc.plan
    need = np.zeros(instance.num_devices, np.int64)
    first = section.entry is not None
    if plan is not None:
        device = np.argsort(use.names)[plan.devices]
        np.add.at(need, device[first:], instance.arrays.resident_bytes[list(section.ops[first:])])
    elif use.leave is not None:
        need[use.leave] = instance.arrays.resident_bytes[section.ops[-1]]
    return tuple(need.tolist())


def _undominated(labels: list[Label]) -> list[Label]:
    kept: list[Label] = []
    for label in sorted(labels, key=lambda label: (label.length_ns, label.need)):
        if len(kept) == MOST_LABELS:
            break
        if not any(
            all(x <= y for x, y in zip(other.need, label.need, strict=True)) for other in kept
        ):
            kept.append(label)
    return kept
