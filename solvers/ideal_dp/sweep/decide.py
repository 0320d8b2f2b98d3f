"""Decide whether a chain of ideals has a given load: one pass over all stages per device.

label(h, I) is the least number of accelerators that, with h hosts, take ideal I at loads up to a
limit. The ideals of label k follow from those of label k - 1 by one pass over the graph of stage
costs (`sweep.walks`) from all of them at once; no pair of ideals is looked at. For x vertices and m
edges a decision takes O(a (h + 1) m) time for a accelerators and h hosts, where the work of the
ideals confines each pass to a part of the edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem
from placegap.solvers.chains.slices import Slices
from placegap.solvers.chains.work_bound import Relief
from placegap.solvers.core.clock import Clock
from placegap.solvers.ideal_dp.ideals.windows import IdealWindows, build_windows, window
from placegap.solvers.ideal_dp.sweep.lattice import IdealLattice
from placegap.solvers.ideal_dp.sweep.passes import FAR, pass_back, pass_forth, pass_host
from placegap.solvers.ideal_dp.sweep.walks import Walks

Labels = NDArray[np.int16]

NO_LABEL = 2**15 - 1


def why_no_sweep(problem: ChainProblem) -> str | None:
    """Why decisions by sweeps are not exact for a problem, or None.

    A walk has one length: it cannot hold load and memory, nor compute and communication apart.
    """
    if problem.overlap:
        return "communication overlaps with compute"
    for kind in (ACCELERATOR, HOST):
        if problem.devices[kind] and (problem.room[kind] > 0 or problem.need[kind].max() > 1):
            return "memory is tight"
    if max(problem.counts) >= NO_LABEL:
        return "there are too many devices"
    return None


class Sweep:
    """Decisions over all ideals of a problem that `why_no_sweep` does not refuse.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> from placegap.solvers.ideal_dp.sweep.lattice import build_lattice
    >>> from placegap.solvers.ideal_dp.sweep.net_steps import net_steps
    >>> from placegap.solvers.ideal_dp.sweep.walks import build_walks
    >>> problem, order, clock = build_problem(example()), np.arange(4), Clock(None)
    >>> lattice = build_lattice(problem, order, 6, clock, 10_000)
    >>> paths = build_walks(problem, lattice, net_steps(problem, order), clock, 10**7)
    >>> sweep = Sweep(problem, Relief(problem), lattice, paths, clock)
    >>> sweep.decide(38), sweep.decide(39).value
    (None, 39)
    """

    def __init__(
        self,
        problem: ChainProblem,
        relief: Relief,
        lattice: IdealLattice,
        paths: Walks | None,
        clock: Clock,
    ) -> None:
        self.problem = problem
        self.relief = relief
        self.lattice = lattice
        self.paths = paths
        self.clock = clock
        fits = problem.need[HOST] <= problem.room[HOST]
        self._host_cost = np.where(fits, problem.time[HOST], FAR)[lattice.order]
        self._added = problem.time[ACCELERATOR if problem.counts[ACCELERATOR] else HOST][
            lattice.order
        ]
        made = 0 if paths is None else len(paths.ideal)
        self._distance = np.empty(lattice.size + made, np.int64)

    def decide(self, limit: int) -> Slices | None:
        """A split of load at most `limit`, or None if there is none.

        Raises
        ------
        LimitReached
            If the time is over.
        """
        accelerators, hosts = self.problem.counts
        windows = build_windows(self.problem, self.relief, limit)
        labels = np.full((hosts + 1, self.lattice.size), NO_LABEL, np.int16)
        labels[0, 0] = 0
        most = np.empty(self.lattice.size, np.int16)
        for h in range(hosts + 1):
            _latest(windows, h, self.lattice, most)
            if h:
                _carry(labels[h - 1], labels[h], most)
            for k in range(accelerators + 1):
                if k:
                    self._extend(ACCELERATOR, labels[h], k - 1, labels[h], k, most, limit)
                if h:
                    self._extend(HOST, labels[h - 1], k, labels[h], k, most, limit)
                if h == hosts and labels[h, -1] <= k:
                    return self._split(labels, limit)
        return None

    def _extend(
        self,
        kind: int,
        before: Labels,
        k_before: int,
        labels: Labels,
        k: int,
        most: Labels,
        limit: int,
    ) -> None:
        """Label ideals k that one device takes from those labelled `k_before` in `before`."""
        work = self.lattice.work
        first, last = _ends(before, k_before)
        if last < 0:
            return
        low, high = int(work[first]), int(work[_last_within(most, k)])
        if self._added_by(kind):
            high = min(high, int(work[last]) + limit)
        if low > high:
            return
        begin, end = (int(at) for at in np.searchsorted(work, [low, high + 1]))
        _start(before, k_before, begin, end, self._distance)
        self._pass(kind, low, high, limit, backwards=False)
        _label(self._distance, labels, k, most, begin, end, limit)
        self.clock.check()

    def _added_by(self, kind: int) -> bool:
        """Whether the lattice's work is the compute of this kind."""
        return kind == ACCELERATOR or not self.problem.counts[ACCELERATOR]

    def _pass(self, kind: int, low: int, high: int, limit: int, *, backwards: bool) -> None:
        lattice = self.lattice
        if kind == HOST:
            pass_host(
                lattice, self._host_cost, self._added, low, high, limit, backwards, self._distance
            )
            return
        assert self.paths is not None
        run = pass_back if backwards else pass_forth
        run(self.paths, lattice.work, low, high, limit, self._distance)

    def _split(self, labels: Labels, limit: int) -> Slices:
        """Walk back from the full ideal: at each step the device of least load."""
        work, h, at = self.lattice.work, self.problem.counts[HOST], self.lattice.size - 1
        kind_of, number = (np.zeros(self.problem.num_blocks, np.int64) for _ in range(2))
        value = 0
        while at:
            k = int(labels[h, at])
            if h and labels[h - 1, at] == k:
                h -= 1
                continue
            for kind, before, wanted in ((ACCELERATOR, h, k - 1), (HOST, h - 1, k)):
                if min(before, wanted) < 0:
                    continue
                high = int(work[at])
                low = max(0, high - limit) if self._added_by(kind) else 0
                begin, end = (int(i) for i in np.searchsorted(work, [low, high + 1]))
                self._distance[begin:end] = FAR
                self._distance[at] = 0
                self._pass(kind, low, high, limit, backwards=True)
                source = _nearest(self._distance, labels[before], wanted, begin, end, limit)
                if source >= 0:
                    break
            taken = np.setdiff1d(self.lattice.blocks(at), self.lattice.blocks(source))
            value = max(value, int(self._distance[source]))
            k, h = wanted, before
            kind_of[taken], number[taken] = kind, k if kind == ACCELERATOR else h
            at = source
        return Slices(value, kind_of, number)


@kernel(allocates=False)
def _latest(w: IdealWindows, hosts: int, lattice: IdealLattice, most: Labels) -> None:
    """Most accelerators that each ideal may have with so many hosts; -1 if it is in no window."""
    for i in range(len(most)):
        fewest, at_most = window(
            w,
            hosts,
            lattice.time[i, 0],
            lattice.time[i, 1],
            lattice.need[i, 0],
            lattice.need[i, 1],
            lattice.cut[i],
        )
        most[i] = at_most if fewest <= at_most else -1


@kernel(allocates=False)
def _carry(before: Labels, labels: Labels, most: Labels) -> None:
    """A host more may stay empty."""
    for i in range(len(labels)):
        labels[i] = before[i] if before[i] <= most[i] else NO_LABEL


@kernel(allocates=False)
def _ends(labels: Labels, k: int) -> tuple[int, int]:
    """First and last ideal of a label; (0, -1) if there is none."""
    first, last = 0, -1
    for i in range(len(labels)):
        if labels[i] == k:
            if last < 0:
                first = i
            last = i
    return first, last


@kernel(allocates=False)
def _last_within(most: Labels, k: int) -> int:
    """Last ideal that may have k accelerators; there is one, the full ideal."""
    i = len(most) - 1
    while i > 0 and most[i] < k:
        i -= 1
    return i


@kernel(allocates=False)
def _start(labels: Labels, k: int, begin: int, end: int, distance: Ints) -> None:
    for i in range(begin, end):
        distance[i] = 0 if labels[i] == k else FAR


@kernel(allocates=False)
def _label(
    distance: Ints, labels: Labels, k: int, most: Labels, begin: int, end: int, limit: int
) -> None:
    for i in range(begin, end):
        if distance[i] <= limit and k < labels[i] and k <= most[i]:
            labels[i] = k


@kernel(allocates=False)
def _nearest(distance: Ints, labels: Labels, k: int, begin: int, end: int, limit: int) -> int:
    """The nearest ideal of a label, the first of several; -1 if none is within the limit."""
    best, least = -1, limit + 1
    for i in range(begin, end):
        if labels[i] == k and distance[i] < least:
            best, least = i, distance[i]
    return best
