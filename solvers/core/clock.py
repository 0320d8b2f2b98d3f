"""Stop in time: the clock that methods look at between pieces of work.

It stands while numba compiles a kernel. Compiling takes tens of seconds when placegap runs for the
first time on a machine, and nothing later: no method's time, and no time limit, includes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol


class _Compiling(Protocol):
    """What is counted of compiling: kernels that are compiled now, since when, and all before."""

    depth: int
    began: float
    total_s: float


@cache
def _compiling() -> _Compiling:
    from numba.core import event

    class Counted(event.Listener):
        depth, began, total_s = 0, 0.0, 0.0  # kernels compile those that they call

        def on_start(self, started: object) -> None:
            if self.depth == 0:
                self.began = time.perf_counter()
            self.depth += 1

        def on_end(self, ended: object) -> None:
            self.depth -= 1
            if self.depth == 0:
                self.total_s += time.perf_counter() - self.began

    counted = Counted()
    event.register("numba:compile", counted)
    return counted


def compiled_s() -> float:
    """Seconds that this process has spent on compiling kernels since it was first asked; those of
    a kernel that is compiled now, perhaps by another thread, count.
    """
    counted = _compiling()
    began = counted.began
    return counted.total_s + (time.perf_counter() - began if counted.depth else 0.0)


@contextmanager
def while_compiling(
    begin: Callable[[], object], end: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Call `begin` whenever this process begins to compile a kernel meanwhile, then `end`.

    Examples
    --------
    >>> from numba import njit
    >>> with while_compiling(lambda: print("compiling"), lambda: print("done")):
    ...     njit(lambda x: x + 1)(1)
    compiling
    done
    2
    """
    from numba.core import event

    class Both(event.Listener):
        depth = 0  # kernels compile those that they call

        def on_start(self, started: object) -> None:
            self.depth += 1
            if self.depth == 1:
                begin()

        def on_end(self, ended: object) -> None:
            self.depth -= 1
            if self.depth == 0:
                end()

    with event.install_listener("numba:compile", Both()):
        yield


def now_s() -> float:
    """Seconds by a clock that stands while kernels are compiled; only differences mean anything."""
    return time.perf_counter() - compiled_s()


class LimitReached(Exception):
    """A limit (time, memory, size) ends the search; the message says which."""


class Clock:
    """A time limit that has begun: what is left of it, and `LimitReached` once it is over.

    Examples
    --------
    >>> Clock(None).check()
    >>> Clock(0.0).check()
    Traceback (most recent call last):
    placegap.solvers.core.clock.LimitReached: the time limit is over
    >>> Clock(8.0).part(0.5).left_s <= 4.0
    True
    """

    def __init__(self, limit_s: float | None, named_s: float | None = None) -> None:
        self.limit_s, self.named_s = limit_s, named_s
        self._began = now_s()

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return now_s() - self._began

    @property
    def left_s(self) -> float | None:
        """Seconds left, at least 0; None without a limit."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.spent_s)

    def check(self) -> None:
        """Raise if the time is over."""
        if self.left_s == 0.0:
            named = "" if self.named_s is None else f" of {self.named_s:g} s"
            raise LimitReached(f"the time limit{named} is over")

    def need_s(self) -> float | None:
        """Seconds left, None without a limit; raises if the time is over."""
        self.check()
        return self.left_s

    def part(self, share: float) -> Clock:
        """A clock that begins now, for a part of the time that is left."""
        left_s = self.left_s
        return Clock(None if left_s is None else share * left_s)
