"""When to stop: the clock that methods look at between pieces of work, and Ctrl-C.

The clock stands while a kernel is compiled. Compiling takes tens of seconds when placegap runs
for the first time on a machine, and nothing later: no method's time, and no time limit, includes
it. `Clock.check` raises where the time is over; `Clock.is_over` is for loops that end by
themselves, and also says so after a stop was asked for.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What a terminal, `timeout` and batch systems send to stop a command and all of its processes."""

STOP = signal.SIGUSR1
"""Tells a worker's task to stop. The signals that stop a command reach whole process groups: a
worker hears none of them, or a second one would hit what the first has set off."""

POLL_S = 0.2
PATIENCE_S = 3.0
"""How long after Ctrl-C a solver may take to end; HiGHS' presolve can take far longer."""


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

    def is_over(self) -> bool:
        """Whether the time is over, or a stop was asked for.

        Examples
        --------
        >>> Clock(None).is_over(), Clock(0.0).is_over()
        (False, True)
        """
        return self.left_s == 0.0 or stop_asked()

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


def now_s() -> float:
    """Seconds by a clock that stands while kernels are compiled; only differences mean anything."""
    return time.perf_counter() - compiled_s()


def compiled_s() -> float:
    """Seconds that this process has spent on compiling kernels since it was first asked; those of
    a kernel that is compiled now, perhaps by another thread, count.
    """
    spent = _compiling()
    began = spent.began
    return spent.total_s + (0.0 if began is None else time.perf_counter() - began)


@dataclass
class _Compiling:
    """Since when a kernel is compiled, and how long all before have taken."""

    began: float | None = None
    total_s: float = 0.0

    def begin(self) -> None:
        self.began = time.perf_counter()

    def end(self) -> None:
        began, self.began = self.began, None
        if began is not None:  # an interrupt may have come before it was set
            self.total_s += time.perf_counter() - began


@cache
def _compiling() -> _Compiling:
    from placegap.instances.problem.kernels import watchers  # which loads NumPy

    spent = _Compiling()
    watchers.append((spent.begin, spent.end))
    return spent


@contextmanager
def other_compiles() -> Iterator[None]:
    """Wait for another process that compiles kernels: the clock stands as for those of this one.

    Examples
    --------
    >>> clock, wall = now_s(), time.perf_counter()
    >>> with other_compiles():
    ...     time.sleep(0.01)
    >>> now_s() - clock < 0.01 <= time.perf_counter() - wall
    True
    """
    spent = _compiling()
    spent.begin()
    try:
        yield
    finally:
        spent.end()


@contextmanager
def while_compiling(
    begin: Callable[[], object], end: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Call `begin` whenever this process begins to compile a kernel meanwhile, then `end`.

    Examples
    --------
    >>> from placegap.instances.problem.kernels import kernel
    >>> with while_compiling(lambda: print("compiling"), lambda: print("done")):
    ...     kernel(lambda x: x + 1.5)(1)
    compiling
    done
    2.5
    """
    from placegap.instances.problem.kernels import watchers

    watcher = (begin, end)
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


def never() -> bool:
    """Whether to stop, where nothing asks for it."""
    return False


_asked = threading.Event()
_working = threading.Event()


def stop_asked() -> bool:
    """Whether a worker was asked to stop: what it calls may have used the interrupt up.

    A compiler that is interrupted fails with an error of its own, for example.
    """
    return _asked.is_set()


def raise_if_stopped(error: Exception) -> None:
    """Go on as after an interrupt, where a stop was asked for before something failed."""
    if stop_asked():
        raise KeyboardInterrupt from error


@contextmanager
def interruptible() -> Iterator[None]:
    """Be at a task, which `end_orderly` may interrupt."""
    _working.set()
    try:
        yield
    finally:
        _working.clear()


def end_orderly(signum: int, frame: FrameType | None) -> None:
    """Handler of `STOP`: let the task end like one that Ctrl-C stops, and leave it alone then."""
    asked = stop_asked()
    _asked.set()
    if not asked and _working.is_set():
        raise KeyboardInterrupt


def _take_ctrl_c_back() -> None:
    """Install Python's own handler again: CP-SAT, called elsewhere, leaves one that ends us."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def run_stoppable(work: Callable[[], T], stop: Callable[[], None]) -> tuple[T, bool]:
    """Run a solver in a thread, so that Ctrl-C arrives; what it returns, and whether it did.

    A solver written in C keeps Python's main thread from seeing an interrupt, and a handler of its
    own would stay behind. So it runs beside the main thread, which waits.

    Parameters
    ----------
    work : callable
        The solver's call.
    stop : callable
        Asks the solver to end. It is called again and again until `work` returns, because many
        solvers forget a request that comes before they have begun.

    Raises
    ------
    KeyboardInterrupt
        The solver has not ended within `PATIENCE_S` of Ctrl-C: it is in a phase that hears nothing.
        Its thread is left to itself.
    BaseException
        What `work` raises.

    Examples
    --------
    >>> run_stoppable(lambda: 7, stop=lambda: None)
    (7, False)
    """
    done = threading.Event()
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    _take_ctrl_c_back()
    thread = threading.Thread(target=run, daemon=True)
    begun, stopped, given_up = False, False, math.inf
    while True:
        if time.monotonic() > given_up:
            raise KeyboardInterrupt
        try:
            if not begun:
                begun = True  # before the call, which waits, and may be interrupted after it began
                thread.start()
            if stopped:
                stop()
            if done.wait(POLL_S):  # an interrupted join would take the thread for finished
                break
        except KeyboardInterrupt:
            stopped, given_up = True, min(given_up, time.monotonic() + PATIENCE_S)
    for failure in failures:
        raise failure
    return answers[0], stopped
