"""Value and bound of the best chain on accelerators and hosts: slices, beam, decision, bisection.

Two engines decide: the search over pairs of ideals (`two_kinds.search`), which windows and trees
make fast where bounds are good; and the sweep over all ideals (`sweep.decide`), whose time hardly
depends on bounds. The search begins, and the sweep takes over when it has cost about as much as a
sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.solvers.chains.bracket import MOST_BYTES, MOST_LP_SHARE, PER_BUCKET, Bracket
from placegap.solvers.chains.ideals import (
    Ideals,
    MemoryFull,
    enumerate_ideals,
    joined,
    of_flags,
    of_least_cut,
    prefixes,
    times_and_needs,
)
from placegap.solvers.chains.layers import Pipeline, TooManyNodes
from placegap.solvers.chains.orders import orders
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem
from placegap.solvers.chains.slices import Slices, best_slices
from placegap.solvers.chains.stage_lp import BlockArcs, ChainCosts, chain_costs
from placegap.solvers.chains.work_bound import Relief, work_bound
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.ideals.windows import build_windows, walk_in_windows
from placegap.solvers.ideal_dp.sweep.decide import Sweep, why_no_sweep
from placegap.solvers.ideal_dp.sweep.lattice import TooLarge, build_lattice, least_bytes
from placegap.solvers.ideal_dp.sweep.net_steps import net_steps
from placegap.solvers.ideal_dp.sweep.walks import build_walks
from placegap.solvers.ideal_dp.two_kinds.search import TwoKindsSearch

BISECTION = 0.0002
"""Relative gap at which bisection hands over to a run for the value."""

NODES_PER_IDEAL, LEAST_NODES = 200, 20_000_000
"""Nodes of trees, per ideal, after which the sweep takes over; and how many it always has."""

BOUND_ROUNDS, BOUND_NODES_PER_IDEAL = 6, 1000
"""Decisions for a bound where not all ideals fit the memory, and what each may cost."""

BOUND_SHARE = 0.2
"""Of the time that the DP has left, for those decisions."""

SWEEP_ORDERS = 6
"""Topological orders among which the sweep chooses that in which nets are under way least."""

BUCKETS = 192
"""The beam: intervals of work."""


class TwoKindsBracket(Bracket):
    """What is known where all accelerators are alike and all hosts are."""

    problem: ChainProblem

    def __init__(self, problem: ChainProblem, clock: Clock, gap: float, seed: int) -> None:
        super().__init__(problem, clock, gap)
        self.seed, self.relief, self.amounts = seed, Relief(problem), times_and_needs(problem)
        if problem.fits.any(axis=0).all():
            self.lower = work_bound(problem, self.relief)

    def cut(self) -> None:
        """Improve the value: the best slices of topological orders."""
        # a low limit ends segments early; it is raised until something fits
        limit = min(self.limit, 2 * self.lower + 1)
        for order in self._orders():
            if self.closed:
                return
            while not self.improve(self._pipeline(best_slices(self.problem, order, limit))):
                if self.value is not None or limit >= self.limit:
                    break
                limit = min(8 * limit, self.limit)
            if self.value is not None:
                limit = self.limit

    def close(self, max_ideals: int) -> None:
        """Close the gap with the DP over all ideals that matter.

        Raises
        ------
        LimitReached
            If there are too many ideals; then the value comes from the ideals of some orders alone,
            and the bound from decisions at loads for which few enough matter.
        """
        if self.closed:
            return
        sweeps = why_no_sweep(self.problem) is None
        if not self._close_by_search(max_ideals, sweeps=sweeps) and not self._close_by_sweep():
            self._close_by_search(max_ideals, sweeps=False)

    def stage_costs(self) -> ChainCosts:
        """The blocks and nets as accelerators and hosts see them."""
        problem, weight = self.problem, self.problem.nets.weight
        return chain_costs(
            BlockArcs(problem.blocks.arc_tail, problem.blocks.arc_head),
            (problem.time, problem.need, problem.room),
            (np.stack([weight, np.zeros_like(weight)]), problem.net_ptr, problem.pin),
            np.array(problem.counts, np.int64),
            overlap=problem.overlap,
        )

    def devices_of_kinds(self) -> list[tuple[int, ...]]:
        """Accelerators and hosts, where there are any."""
        return [own for own in self.problem.devices if own]

    def of_flags(self, flags: Flags) -> Ideals:
        """Ideals from their members, (N, b) bool."""
        return joined([of_flags(self.problem, self.amounts, flags)])

    def search(self, ideals: Ideals, max_nodes: int | None = None) -> TwoKindsSearch:
        """The DP over some ideals."""
        return TwoKindsSearch(self.problem, self.relief, ideals, self.clock, max_nodes)

    def of_least_cut(self, ideals: Ideals) -> Ideals:
        """The ideals of least cut in each interval of work."""
        kind = ACCELERATOR if self.problem.counts[ACCELERATOR] else HOST
        work, cut = ideals.sums[:, 1 + kind], ideals.sums[:, 0]
        return of_least_cut(self.problem, ideals, work, cut, BUCKETS, PER_BUCKET)

    def _pipeline(self, split: Slices | None) -> Pipeline | None:
        if split is None:
            return None
        devices = split.devices(self.problem).tolist()
        return Pipeline(split.value, tuple((k,) for k in devices))

    def _orders(self) -> Iterator[Ints]:
        for order in orders(self.problem, self.seed):
            yield order
            self.clock.check()

    def _enumerate(self, limit: int, max_ideals: int) -> tuple[Ideals, int]:
        """The ideals in windows for loads up to a limit, and how many ideals there are in all."""
        windows = build_windows(self.problem, self.relief, limit)
        return enumerate_ideals(
            self.problem,
            self.amounts,
            partial(walk_in_windows, windows),
            self.clock,
            max_ideals,
            max(2, MOST_BYTES // bytes_per_ideal(self.problem)),
        )

    def _close_by_search(self, max_ideals: int, *, sweeps: bool) -> bool:
        """Close the gap over the ideals in windows; with `sweeps` only so long: False then.

        All memory is free again.
        """
        try:
            ideals, total = self._enumerate(self.limit, max_ideals)
        except LimitReached as reached:
            self.clock.check()
            self.raise_bound_for(MOST_LP_SHARE)
            if bytes_per_ideal(self.problem) * self.problem.num_blocks <= MOST_BYTES // 4:
                self.recombine(self._of_orders())
            if isinstance(reached, MemoryFull):
                self._raise_bound(max_ideals)
            raise
        if not self.start(ideals, total, 2 * BUCKETS * PER_BUCKET):
            return True
        sweeps = sweeps and least_bytes(total) <= MOST_BYTES
        max_nodes = max(LEAST_NODES, NODES_PER_IDEAL * total) if sweeps else None
        try:
            self.finish(self.search(ideals, max_nodes), BISECTION)
        except TooManyNodes:
            return False
        return True

    def _of_orders(self) -> Iterator[Ideals]:
        stops = np.arange(self.problem.num_blocks + 1)
        for order in self._orders():
            yield self.of_least_cut(prefixes(self.problem, self.amounts, order, stops))

    def _close_by_sweep(self) -> bool:
        """Close the gap by sweeps over all ideals; whether they fit the memory."""
        sweep = self._build_sweep()
        if sweep is not None:
            decide = sweep.decide
            self.bisect(lambda limit: self._pipeline(decide(limit)), 0.0)
        return sweep is not None

    def _build_sweep(self) -> Sweep | None:
        problem, clock = self.problem, self.clock
        candidates = [
            (int((nets.last - nets.first).sum()), at, order, nets)
            for at, order in enumerate(islice(self._orders(), SWEEP_ORDERS))
            if (nets := net_steps(problem, order)) is not None
        ]
        if not candidates:
            return None
        _, _, order, nets = min(candidates, key=lambda candidate: candidate[:2])
        try:
            lattice = build_lattice(problem, order, self.counts["ideals"], clock, MOST_BYTES)
            paths = None
            if problem.counts[ACCELERATOR]:
                paths = build_walks(problem, lattice, nets, clock, MOST_BYTES)
                self.counts.update(walk_edges=len(paths.source))
        except TooLarge:
            return None
        return Sweep(problem, self.relief, lattice, paths, clock)

    def _raise_bound(self, max_ideals: int) -> None:
        """Close the gap as far as the ideals in windows fit the memory: lower limits leave fewer.

        By bisection; each search may only cost so much, as it may decide nothing.
        """
        whole = self.clock
        self.clock = whole.part(BOUND_SHARE)
        try:
            self._bisect_in_memory(max_ideals)
        finally:
            self.clock = whole

    def _bisect_in_memory(self, max_ideals: int) -> None:
        high = self.limit
        for _ in range(BOUND_ROUNDS):
            limit = (self.lower + high) // 2
            if self.closed or self.lower > limit:
                return
            try:
                ideals, _ = self._enumerate(limit, max_ideals)
                found = None
                if ideals.size and not ideals.members[0].any():
                    search = self.search(ideals, BOUND_NODES_PER_IDEAL * ideals.size)
                    found = search.best(limit, limit)
            except (MemoryFull, TooManyNodes):
                high = limit
                continue
            if self.improve(found):
                high = self.limit
            else:
                self.prove(limit + 1)


def bytes_per_ideal(problem: ChainProblem) -> int:
    """Memory that one ideal takes, with what a search keeps of it (potentials, tree, windows)."""
    return 8 * (problem.num_words * 9 // 8 + problem.num_net_words + 20)
