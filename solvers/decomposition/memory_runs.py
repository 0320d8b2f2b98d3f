"""Runs that fit into memory (`bounds.memory_runs`) along a chain, whose arcs the search raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from placegap.formulations.shared.times import ways_through
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.solvers.bounds.memory_runs import MemoryRuns, memory_runs
from placegap.solvers.decomposition.arcs import Use
from placegap.solvers.decomposition.chain import Chain, Lengths


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
