"""SIGTERM and SIGHUP end a command as Ctrl-C does.

`timeout`, batch systems and containers send the one, a terminal that closes the other. Each raises
`KeyboardInterrupt` in the main thread, and the exit status says which it was. A signal that is
ignored when the command begins stays so: SIGHUP under `nohup`, SIGINT in a script's background.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from placegap.solvers.core.clock import STOP_SIGNALS

REPEAT_S = 1.0
"""`timeout` and terminals that close send their signal twice: so near to another it is the same."""


@dataclass
class _State:
    number: int | None = None
    came_s: float = -math.inf
    held: bool = False
    pending: bool = False

    def clear(self) -> None:
        self.number, self.came_s, self.held, self.pending = None, -math.inf, False, False


_state = _State()


@contextmanager
def handled(*, for_good: bool = False) -> Iterator[None]:
    """Let the signals that stop a command raise `KeyboardInterrupt`, if they would end it.

    Those that come later are ignored, where the process ends then `for_good`: its status stands.
    """
    _state.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends = (signal.SIG_DFL, signal.default_int_handler)
    before = {n: signal.getsignal(n) for n in STOP_SIGNALS if signal.getsignal(n) in ends}
    try:
        for number in before:
            signal.signal(number, _interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if for_good else handler)


def is_stopped() -> bool:
    """Whether a signal has come, also if what it interrupted went on."""
    return _state.number is not None


def stop_status() -> int:
    """The exit status of a command that was stopped: 128 and the signal's number.

    Examples
    --------
    >>> stop_status()  # Ctrl-C, where nothing else is known
    130
    """
    return 128 + (signal.SIGINT if _state.number is None else _state.number)


@contextmanager
def held() -> Iterator[None]:
    """Do something whole: the first signal that comes meanwhile interrupts only afterwards."""
    before, _state.held = _state.held, True
    try:
        yield
    finally:
        _state.held = before
        if not before:
            _raise_pending()


@contextmanager
def allowed() -> Iterator[None]:
    """Wait for something, inside `held`: signals interrupt."""
    before, _state.held = _state.held, False
    try:
        _raise_pending()
        yield
    finally:
        _state.held = before


def _raise_pending() -> None:
    if _state.pending:
        _state.pending = False
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if number != signal.SIGINT and now - _state.came_s < REPEAT_S:
        return
    _state.number, _state.came_s = number, now
    if _state.held and not _state.pending:
        _state.pending = True
        return
    _state.pending = False
    raise KeyboardInterrupt
