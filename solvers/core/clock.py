"""Stop in time: the clock that methods look at between pieces of work.

It stands while numba compiles a kernel. Compiling takes tens of seconds when placegap runs for the
first time on a machine, and nothing later: no method's time, and no time limit, includes it.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numba.core.event import TimingListener


@cache
def _compiling() -> TimingListener:
    from numba.core import event

    listener = event.TimingListener()
    event.register("numba:compile", listener)
    return listener


def compiled_s() -> float:
    """Seconds that this process has spent on compiling kernels since it was first asked."""
    listener = _compiling()
    return listener.duration if listener.done else 0.0


def now_s() -> float:
    """Seconds by a clock that stands while kernels are compiled; only differences mean anything."""
    return time.perf_counter() - compiled_s()


class LimitReached(Exception):
    """A limit (time, memory, size) ends the search; the message says which."""


class Clock:
    """Raises `LimitReached` once the time is over.

    Examples
    --------
    >>> Clock(None).check()
    >>> Clock(0.0).check()
    Traceback (most recent call last):
    placegap.solvers.core.clock.LimitReached: the time limit is over
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self._began = now_s()

    def check(self) -> None:
        """Raise if the time is over."""
        if self.limit_s is not None and now_s() - self._began >= self.limit_s:
            raise LimitReached("the time limit is over")

    def part(self, share: float) -> Clock:
        """A clock for a part of the time that is left."""
        if self.limit_s is None:
            return Clock(None)
        return Clock(share * max(0.0, self.limit_s - (now_s() - self._began)))
