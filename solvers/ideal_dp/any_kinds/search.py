"""The ideal DP over devices of any kinds, servers aside."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.any_kinds.windows import PriceBook, PricedWindows, set_sums
from placegap.solvers.ideal_dp.ideals.ideals import Ideals
from placegap.solvers.ideal_dp.ideals.views import View, build_view
from placegap.solvers.ideal_dp.layers import LayerSearch, Pipeline, strides_of

MOST_VALUES = 50_000_000
"""Values of layers that are still needed, 8 bytes each."""


class KindsSearch(LayerSearch):
    """The DP over layers of devices of each class, confined by prices (`any_kinds.windows`)."""

    def __init__(self, book: PriceBook, ideals: Ideals, clock: Clock) -> None:
        problem = book.problem
        windows = PricedWindows(book, ideals)
        views = [see(windows, kind) for kind in range(problem.num_kinds)]
        total = int(problem.parameter_bytes.sum())
        super().__init__(problem.guide, problem.pool, ideals, views, total, clock)
        self.problem, self.windows = problem, windows

    def inside(self, used: tuple[int, ...], limit: int) -> Flags:
        """Ideals that these devices may hold, and the others what is left, (N,)."""
        return self.windows.inside(self.pool.of_kinds(used, self.problem.num_kinds), limit)

    def best(self, limit: int, enough: int) -> Pipeline | None:
        """A pipeline of least load, or None; as in `LayerSearch`.

        Examples
        --------
        The ideals of one order of the diamond, of which the first two ops and the others go to one
        device each: 5 + 10 + 1 + 10 and 20 + 8 + 1 + 10.

        >>> from placegap.instances import MaxLoad, example
        >>> from placegap.solvers.ideal_dp.any_kinds.problem import build_kinds
        >>> from placegap.solvers.ideal_dp.ideals.ideals import prefixes
        >>> problem = build_kinds(example(), MaxLoad(plans="chain"))
        >>> order, stops = np.array([0, 2, 1, 3]), np.arange(5)
        >>> book = PriceBook(problem)
        >>> ideals = prefixes(problem.guide, book.amounts, order, stops)
        >>> KindsSearch(book, ideals, Clock(None)).best(limit=100, enough=0)
        Pipeline(value=39, placement=((0,), (1,), (0,), (1,)))
        """
        if (strides_of(self.pool.counts)[0] + 1) * self.ideals.size > MOST_VALUES:
            raise LimitReached(f"{self.pool.num_layers} layers of states fill the memory")
        return super().best(limit, enough)


def see(windows: PricedWindows, kind: int) -> View:
    """The ideals of a problem as one kind of device sees them."""
    problem, ideals = windows.problem, windows.ideals
    alone = windows.sums(np.arange(problem.num_kinds) == kind)  # its first price is 1
    sums = (
        alone.work[:, 0].copy(),
        set_sums(ideals.members, problem.need[kind]),
        alone.cut[:, 0].copy(),
        set_sums(ideals.members, problem.parameter_bytes),
    )
    weight, room = problem.weight[kind].copy(), int(problem.room[kind])
    return build_view(problem.guide, ideals, sums, weight, room)
