"""The ideal DP over devices of any kinds, servers aside."""

from __future__ import annotations

from placegap.instances.problem.array_types import Flags
from placegap.solvers.chains.ideals import Ideals
from placegap.solvers.chains.kinds_problem import KindsProblem
from placegap.solvers.chains.layers import LayerSearch, Pipeline, strides_of
from placegap.solvers.chains.transitions import View, build_view
from placegap.solvers.chains.windows import PriceBook, PricedWindows
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.any_kinds.set_sums import set_sums

MOST_VALUES = 50_000_000
"""Values of layers that are still needed, 8 bytes each."""


class KindsSearch(LayerSearch):
    """The DP over layers of devices of each class, confined by prices (`any_kinds.windows`)."""

    def __init__(self, book: PriceBook, ideals: Ideals, clock: Clock) -> None:
        problem = book.problem
        views = [see(problem, ideals, kind) for kind in range(problem.num_kinds)]
        total = int(problem.parameter_bytes.sum())
        super().__init__(problem.guide, problem.pool, ideals, views, total, clock)
        self.problem, self.windows = problem, PricedWindows(book, ideals)

    def inside(self, used: tuple[int, ...], limit: int) -> Flags:
        """Ideals that these devices may hold, and the others what is left, (N,)."""
        have = self.pool.of_kinds(used, self.problem.num_kinds)
        found = self.windows.may_hold(have, limit, rest=False)
        return found & self.windows.may_hold(self.problem.counts - have, limit, rest=True)

    def best(self, limit: int, enough: int) -> Pipeline | None:
        """A pipeline of least load, or None; as in `LayerSearch`.

        Examples
        --------
        The ideals of one order of the diamond, of which the first two ops and the others go to one
        device each: 5 + 10 + 1 + 10 and 20 + 8 + 1 + 10.

        >>> import numpy as np
        >>> from placegap.instances import MaxLoad, example
        >>> from placegap.solvers.chains.kinds_problem import build_kinds
        >>> from placegap.solvers.chains.ideals import prefixes, times_and_needs
        >>> problem = build_kinds(example(), MaxLoad(plans="chain"))
        >>> order, stops = np.array([0, 2, 1, 3]), np.arange(5)
        >>> ideals = prefixes(problem.guide, times_and_needs(problem.guide), order, stops)
        >>> KindsSearch(PriceBook(problem), ideals, Clock(None)).best(limit=100, enough=0)
        Pipeline(value=39, placement=((0,), (1,), (0,), (1,)))
        """
        if (strides_of(self.pool.counts)[0] + 1) * self.ideals.size > MOST_VALUES:
            raise LimitReached(f"{self.pool.num_layers} layers of states fill the memory")
        return super().best(limit, enough)


def see(problem: KindsProblem, ideals: Ideals, kind: int) -> View:
    """The ideals of a problem as one kind of device sees them."""
    members, weight = ideals.members, problem.weight[kind].copy()
    sums = (
        set_sums(members, problem.time[kind]),
        set_sums(members, problem.need[kind]),
        set_sums(ideals.cut_nets, weight),
        set_sums(members, problem.parameter_bytes),
    )
    return build_view(problem.guide, ideals, sums, weight, int(problem.room[kind]))
