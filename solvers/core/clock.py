"""When to stop: the clock that methods look at between pieces of work, and interrupts.

The clock stands while a kernel is loaded or compiled, or the module of a method is loaded.
Compiling takes tens of seconds when placegap runs for the first time on a machine, and loading up
to two in each process: no method's time, and no time limit, includes it. `Clock.check` raises where
the time is over; `Clock.is_over` is for loops that end by themselves, and also says so after a stop
was requested.

Interrupts come from Ctrl-C, from the signal that stops a worker, from a callback that ends the
search, and from a search that has made a proof needless. Each takes effect only in an
`Interruptible` region, and never during an import, while a kernel is compiled or a model is built.
"""

from __future__ import annotations

import _thread
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

from placegap.instances.kernels.loading import loading_s

T = TypeVar("T")

# What a terminal, `timeout` and batch systems send to stop a command and all of its processes.
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

# Tells a worker's task to stop. The signals that stop a command reach whole process groups: a
# worker ignores all of them, or a second one would hit what the first has set off.
STOP = signal.SIGUSR1
USUAL_S = 60.0  # the time limit where none is given

POLL_S = 0.2
PATIENCE_S = 3.0  # how long after Ctrl-C a solver may take to end; HiGHS' presolve can take longer


class LimitReached(Exception):
    """A limit (time, memory, size) ends the search; the message says which."""


class Clock:
    """A time limit that has begun: what is left of it, and `LimitReached` once it is over."""

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
        """Whether the time is over, or a stop was requested."""
        return self.left_s == 0.0 or stop_requested()

    def check(self) -> None:
        """Raise if the time is over."""
        if self.left_s == 0.0:
            named = "" if self.named_s is None else f" of {self.named_s:g} s"
            raise LimitReached(f"the time limit{named} has passed")

    def need_s(self) -> float | None:
        """Seconds left, None without a limit; raises if the time is over."""
        self.check()
        return self.left_s

    def part(self, share: float) -> Clock:
        """A clock that begins now, for a part of the time that is left."""
        left_s = self.left_s
        return Clock(None if left_s is None else share * left_s)


def now_s() -> float:
    """Seconds by a clock that stands while modules and kernels are loaded or compiled."""
    # Only differences mean anything.
    return time.perf_counter() - loading_s()


@contextmanager
def while_compiling(
    begin: Callable[[], object], end: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Call `begin` whenever this process begins to compile a kernel meanwhile, then `end`."""
    from placegap.instances.kernels.loading import watchers

    watcher = (begin, end)
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


def never() -> bool:
    """Never stop."""
    return False


# Modules and packages whose calls end before an interrupt takes effect. After half an import, or
# half a compilation, all later calls of the session would fail.
PROTECTED = (
    "importlib",
    "numba",
    "llvmlite",
    "pyomo",
    "weakref",
    "placegap.formulations",
    "placegap.instances.kernels.compiled_kernels",
    "placegap.solvers.core.back_ends.standard_form",
)

# Makes the main thread look for requests. By default it is ignored; one from elsewhere does no
# harm.
WAKE = signal.SIGURG
RETRY_S = 0.01  # until the next look for requests, where the last one found a protected call

_entered: list[Interruptible] = []
_outermost: list[FrameType] = []
_handlers_before: dict[int, Any] = {}
_waiting: list[int] = []  # signals to stop the command that came during a protected call


class Interruptible:
    """A region of code in which a request to end raises `KeyboardInterrupt`, once."""

    def __init__(self) -> None:
        #: is_requested, has_interrupted: Whether an end was requested, and whether that has
        #: interrupted the region.
        # A request that comes before the region is entered, or during a protected call
        # (`PROTECTED`), takes effect afterwards. One that comes after the region has no effect. The
        # signals that stop a command wait for the end of a protected call, too; then the handler
        # runs that they had before the region. Only the main thread can be interrupted.
        self.is_requested = self.has_interrupted = False

    def interrupt(self) -> None:
        """Request the end, from any thread or signal handler."""
        self.is_requested = True
        if self in _entered:
            _thread.interrupt_main(WAKE)

    def __enter__(self) -> Self:
        if self.is_requested and not self.has_interrupted:
            self.has_interrupted = True
            raise KeyboardInterrupt
        if threading.current_thread() is threading.main_thread():
            _entered.append(self)
            if len(_entered) == 1:
                _outermost[:] = [sys._getframe(1)]
                for number in (*STOP_SIGNALS, WAKE):
                    handler = signal.getsignal(number)
                    if (callable(handler) or number == WAKE) and number not in _handlers_before:
                        _handlers_before[number] = handler or signal.SIG_DFL
                        signal.signal(number, _on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self not in _entered:
            return
        _entered.remove(self)
        if not _entered:
            _outermost.clear()
            while _handlers_before:  # SIGINT, which may interrupt then, is the last one
                signal.signal(*_handlers_before.popitem())
            late, _waiting[:] = _waiting[:], []
            for number in late:
                _thread.interrupt_main(signal.Signals(number))


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Handler of `WAKE`, and of the signals that stop a command, while a region is entered."""
    if number != WAKE and number not in _waiting:
        _waiting.append(number)
    requests = [one for one in _entered if one.is_requested and not one.has_interrupted]
    if not requests and not _waiting:
        return
    if _is_protected(frame):
        _thread.start_new_thread(_wake_again, ())
        return
    for region in requests:
        region.has_interrupted = True
    try:
        while _waiting:
            number = _waiting.pop()
            _handlers_before[number](number, frame)
    except BaseException:
        for region in _entered[:1]:
            region.is_requested = region.has_interrupted = True
        raise
    if requests:
        raise KeyboardInterrupt


def _is_protected(frame: FrameType | None) -> bool:
    """Whether a protected call is under way; or a finalizer, in which exceptions are lost."""
    while frame is not None and frame not in _outermost:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code in _BORDERS or frame.f_code.co_name == "__del__":
            return True
        if any(module == one or module.startswith(f"{one}.") for one in PROTECTED):
            return True
        frame = frame.f_back
    return False


_BORDERS = (Interruptible.__enter__.__code__, Interruptible.__exit__.__code__)


def _wake_again() -> None:
    time.sleep(RETRY_S)
    _thread.interrupt_main(WAKE)


def stop_requested() -> bool:
    """Whether an end was requested: what runs now may have caught the interrupt."""
    return any(region.is_requested for region in tuple(_entered))


def raise_if_stopped(error: Exception) -> None:
    """Go on as after an interrupt, where a stop was requested before something failed."""
    if stop_requested():
        raise KeyboardInterrupt from error


def _take_ctrl_c_back() -> None:
    """Install Python's own handler again: CP-SAT, called elsewhere, leaves one that ends us."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def run_stoppable(work: Callable[[], T], stop: Callable[[], None]) -> tuple[T, bool]:
    """Run a solver in a thread, so that Ctrl-C arrives; what it returns, and whether it did."""
    # A solver written in C keeps Python's main thread from seeing an interrupt, and a handler of
    # its own would stay behind. So it runs beside the main thread, which waits. `stop` requests the
    # end. It is called again and again until `work` returns, because many solvers forget a request
    # that comes before they have begun.
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
