"""Ctrl-C while a solver computes: the solver ends early, its caller gets what it has."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


_asked = threading.Event()


def never() -> bool:
    """Whether to stop, where nothing asks for it."""
    return False


def note_stop() -> None:
    """Remember that this process was asked to stop, for good."""
    _asked.set()


def stop_asked() -> bool:
    """Whether a worker was asked to stop: what it calls may have used the interrupt up.

    A compiler that is interrupted fails with an error of its own, for example.
    """
    return _asked.is_set()


@dataclass
class _State:
    """Whether this worker is at a task."""

    working: bool = False


_state = _State()


@contextmanager
def interruptible() -> Iterator[None]:
    """Be at a task, which `end_orderly` may interrupt."""
    _state.working = True
    try:
        yield
    finally:
        _state.working = False


def end_orderly(signum: int, frame: FrameType | None) -> None:
    """Handler of `STOP`: let the task end like one that Ctrl-C stops, and leave it alone then."""
    asked = stop_asked()
    note_stop()
    if not asked and _state.working:
        raise KeyboardInterrupt


def raise_if_stopped(error: Exception) -> None:
    """Go on as after an interrupt, where a stop was asked for before something failed."""
    if stop_asked():
        raise KeyboardInterrupt from error


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
