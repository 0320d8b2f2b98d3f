"""The checker's view of an instance, which keeps a time limit that the checker knows nothing of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placegap.instances.io.certificate_checker import Terms
from placegap.instances.problem.instance import Instance
from placegap.solvers.core.clock import Clock

S_PER_PART, S_PER_MOVE = 30e-6, 0.6e-6
"""Seconds that `Terms` takes for each op and edge, and for each edge and pair of devices."""

MOST_MOVES = 50_000_000
"""Times of edges from device to device that are held in memory: 2 GB."""


def fits(instance: Instance, clock: Clock) -> bool:
    """Whether the view can be made in the time that is left; nothing can interrupt that."""
    num_edges, left_s = len(instance.graph.edges), clock.left_s
    moves = num_edges * instance.num_devices**2
    takes_s = S_PER_PART * (instance.num_ops + num_edges) + S_PER_MOVE * moves
    return moves <= MOST_MOVES and (left_s is None or takes_s < left_s)


class TimedTerms(Terms):
    """The checker's view; what takes long raises `LimitReached` when the time is over.

    Parameters
    ----------
    parts, rules : dict
        As `Terms` reads them.
    clock : Clock
        It may be replaced by that of a part of the work.
    """

    def __init__(self, parts: dict[str, Any], rules: dict[str, Any], clock: Clock) -> None:
        self.clock = clock
        self._whole = dict[bool, dict[int, list[Any]]]()
        super().__init__(parts, rules)

    def ends(self, order: Any, back: bool = False, start: Any = None) -> dict[int, list[Any]]:
        """Least ends of ops; those of the whole instance are worked out once."""
        whole = start is None and len(order) == len(self.order)
        if whole and back in self._whole:
            return self._whole[back]
        found = super().ends(self._watched(order), back, start)
        if whole:
            self._whole[back] = found
        return found

    def _watched(self, order: list[int]) -> Iterator[int]:
        for i in order:
            self.clock.check()
            yield i
