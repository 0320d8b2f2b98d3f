"""Stop in time: a clock that methods look at between pieces of work."""

from __future__ import annotations

import time


class LimitReached(Exception):
    """A limit (time, memory, size) ends the search; the message says which."""


class Clock:
    """Raises `LimitReached` once the time is over.

    Examples
    --------
    >>> Clock(None).check()
    >>> Clock(0.0).check()
    Traceback (most recent call last):
    placegap.solvers.limits.LimitReached: the time limit of 0.0 s is over
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self._began = time.perf_counter()

    def check(self) -> None:
        """Raise if the time is over."""
        if self.limit_s is not None and time.perf_counter() - self._began >= self.limit_s:
            raise LimitReached(f"the time limit of {self.limit_s} s is over")
