"""When `auto` ends: its time limit, which stands while a part compiles its kernels."""

from __future__ import annotations

from placegap.solvers.core.clock import Clock


class Deadline:
    """The time that is left of a limit, less what is kept for the last words of the parts.

    Parameters
    ----------
    clock : Clock
    reserve_s : float
        For handing over the last plans, and judging them.

    Examples
    --------
    >>> Deadline(Clock(0.0), 0.0).left_s
    0.0
    """

    def __init__(self, clock: Clock, reserve_s: float) -> None:
        self.clock, self.reserve_s = clock, reserve_s
        self._stood_s = 0.0

    def stand_still(self, seconds: float) -> None:
        """Leave out seconds that a part has spent on compiling."""
        self._stood_s += max(0.0, seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, -self._beyond_s())

    @property
    def over_s(self) -> float:
        """Seconds since the end, at least 0."""
        return max(0.0, self._beyond_s())

    def _beyond_s(self) -> float:
        limit_s = self.clock.limit_s
        assert limit_s is not None
        return self.clock.spent_s + self.reserve_s - limit_s - self._stood_s
