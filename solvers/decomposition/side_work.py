"""A chain with the work beside it (`bounds.side_work`), whose arcs the search raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placegap.formulations.shared.devices import identical_devices
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY, UNSUPPORTED
from placegap.instances.problem.sections import Interval
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.bounds.interval_arcs import chain_arcs
from placegap.solvers.bounds.side_work.branches import MOST_NODES, Branches
from placegap.solvers.bounds.side_work.two_sides import FREE, HERE, SideArcs, TwoSides
from placegap.solvers.bounds.work_windows import work_windows
from placegap.solvers.decomposition.arcs import Use
from placegap.solvers.decomposition.chain import Chain, Lengths


class SideWork:
    """A chain whose paths cost what one device cannot give away.

    Parameters
    ----------
    instance : Instance
        With two devices or more.
    semantics : Makespan
    chain : Chain
        Of intervals; it begins and ends with an op.
    limit_ns : int
        Longer paths are of no interest.
    is_over : callable
        Whether time is over.
    most_nodes : int
        Of a search over sides.
    """

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        chain: Chain,
        limit_ns: int,
        is_over: Callable[[], bool],
        most_nodes: int = MOST_NODES,
    ) -> None:
        self.chain, self.limit_ns = chain, limit_ns
        self.is_over, self.most_nodes = is_over, most_nodes
        entries = [section.entry for section in chain.sections]
        ops = [op for op in (*entries, chain.sections[-1].exit) if op is not None]
        self.device = _fastest(instance)
        num = instance.num_devices
        self.others = [k for k in range(num) if k != self.device]
        sides = TwoSides(instance, semantics, self.device, ops)
        begin = sides.fixed.copy()
        alike = max(map(len, identical_devices(instance)), default=1) == instance.num_devices
        if alike and begin[sides.chain[0]] == FREE:
            begin[sides.chain[0]] = HERE  # the device is called by where the chain begins
        self.branches = Branches(sides, begin)

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """What no plan is below, by the lengths of the arcs, and the arcs that it is made of."""
        tables = [np.minimum(lengths(uses), self.limit_ns + 1) for uses in self.chain.uses]
        ends = (self.chain.before_ns, self.chain.after_ns)
        head, tail = (np.minimum(end, self.limit_ns + 1) for end in ends)
        arcs = SideArcs(self._sides(head), self._sides(tail), self._pairs(tables))
        found = self.branches.search(arcs, self.limit_ns, self.is_over, self.most_nodes)
        return min(found.bound_ns, NO_WAY), self._path(tables, head, tail, found.here)

    def _sides(self, time_ns: Ints) -> Ints:
        return np.array([time_ns[self.others].min(), time_ns[self.device]], np.int64)

    def _pairs(self, tables: Sequence[Ints]) -> Ints:
        sets = (self.others, [self.device])
        return np.array(
            [[[table[np.ix_(a, b)].min() for b in sets] for a in sets] for table in tables],
            np.int64,
        )

    def _path(self, tables: Sequence[Ints], head: Ints, tail: Ints, here: Flags) -> list[Use]:
        """The shortest path whose devices are on these sides."""
        allowed = [[self.device] if side else self.others for side in here]
        rest, ways = tail, list[Ints]()
        for table, after in zip(tables[::-1], allowed[:0:-1], strict=True):
            choice = table[:, after] + rest[after]
            ways.append(np.array(after)[choice.argmin(axis=1)])
            rest = choice.min(axis=1)
        at = min(allowed[0], key=lambda k: int(head[k] + rest[k]))
        path = []
        for uses, way in zip(self.chain.uses, ways[::-1], strict=True):
            path.append(uses[at][way[at]])
            at = int(way[at])
        return path


def _fastest(instance: Instance) -> int:
    """The device on which all ops together take least."""
    time = instance.arrays.time_ns
    unable = (time == UNSUPPORTED).sum(axis=0)
    total = np.where(time == UNSUPPORTED, 0, time).sum(axis=0)
    return int(np.lexsort((total, unable))[0])


def raise_by_work(instance: Instance, chain: Chain, candidates: Sequence[Interval]) -> None:
    """Raise the arcs of a chain to what paths and work prove of its intervals (`interval_arcs`)."""
    windows = work_windows(instance, candidates=candidates)
    if windows is None:
        return
    _, _, tables = chain_arcs(
        instance, chain.sections, windows.time_ns, windows.mass, windows.weights
    )
    for uses, table in zip(chain.uses, tables.tolist(), strict=False):  # there may be fewer arcs
        for row, least in zip(uses, table, strict=True):
            for use, least_ns in zip(row, least, strict=True):
                use.arc.lower_ns = max(use.arc.lower_ns, least_ns)
