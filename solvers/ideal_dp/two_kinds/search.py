"""The search over pairs of ideals, for accelerators that are alike and hosts that are."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import Ideals
from placegap.solvers.chains.kinds_problem import NO_SYNC, Pool, Stage
from placegap.solvers.chains.layers import LayerSearch
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, Indices
from placegap.solvers.chains.transitions import View, build_view
from placegap.solvers.chains.work_bound import Relief
from placegap.solvers.core.clock import Clock
from placegap.solvers.ideal_dp.ideals.windows import IdealWindows, build_windows, window


class TwoKindsSearch(LayerSearch):
    """The DP over layers (hosts, accelerators), confined by `ideals.windows`.

    The sums of `ideals` are `times_and_needs`.
    """

    def __init__(
        self,
        problem: ChainProblem,
        relief: Relief,
        ideals: Ideals,
        clock: Clock,
        max_nodes: int | None = None,
    ) -> None:
        views = [see(problem, ideals, kind) for kind in (ACCELERATOR, HOST)]
        super().__init__(problem, _pool(problem), ideals, views, 0, clock, max_nodes)
        self.problem, self.relief = problem, relief
        self._known: tuple[int, int, Indices, Indices] | None = None

    def inside(self, used: tuple[int, ...], limit: int) -> Flags:
        """Ideals in the window of so many devices, (N,)."""
        accelerators, hosts = self.pool.of_kinds(used, 2).tolist()
        if self._known is None or self._known[:2] != (limit, hosts):
            windows = build_windows(self.problem, self.relief, limit)
            self._known = limit, hosts, *_windows_of(windows, hosts, self.ideals.sums)
        _, _, fewest, most = self._known
        return np.asarray((fewest <= accelerators) & (accelerators <= most))


def see(problem: ChainProblem, ideals: Ideals, kind: int) -> View:
    """The ideals of a problem as one kind of device sees them."""
    pays = kind == ACCELERATOR
    columns = [ideals.sums[:, at].copy() for at in ((1 + kind), (3 + kind))]
    none = np.zeros(ideals.size, np.int64)
    weight = problem.nets.weight if pays else np.zeros_like(problem.nets.weight)
    cut = ideals.sums[:, 0].copy() if pays else none
    return build_view(
        problem, ideals, (columns[0], columns[1], cut, none), weight, int(problem.room[kind])
    )


def _pool(problem: ChainProblem) -> Pool:
    """The devices, hosts first: so accelerators are tried with as few hosts as will do."""
    kinds = tuple(kind for kind in (HOST, ACCELERATOR) if problem.devices[kind])
    stages = [
        Stage(kind, tuple(int(kind == own) for own in kinds), 1, NO_SYNC) for kind in sorted(kinds)
    ]
    return Pool((tuple(problem.devices[kind] for kind in kinds),), kinds, tuple(stages))


@kernel
def _windows_of(w: IdealWindows, hosts: int, sums: Ints) -> tuple[Indices, Indices]:
    """Fewest and most accelerators of each ideal with so many hosts."""
    fewest, most = np.zeros(len(sums), np.int32), np.zeros(len(sums), np.int32)
    for i in range(len(sums)):
        s = sums[i]
        fewest[i], most[i] = window(w, hosts, s[1], s[2], s[3], s[4], s[0])
    return fewest, most
