"""One Python process that serves its parent through a pipe, and never runs the user's script.

`multiprocessing` imports the parent's main module into every process that it spawns: a script
without a guard would run again there, and one from stdin could not start any. Here the interpreter
is started with a line of its own, and imports nothing but the module of the function that it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from placegap.solvers.core.clock import STOP_SIGNALS

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

BEGIN = (
    "import fcntl, sys; from multiprocessing.connection import Connection; "
    "pipe = Connection(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)); sys.path[:] = pipe.recv(); "
    "from placegap.solvers.core.worker_process import begin; begin(pipe)"
)
"""What the interpreter runs. The pipe is its standard input, whatever else is open or closed."""

_may_start_processes = True


class WorkerProcess:
    """A process that runs ``serve(pipe, *args)`` and ends with it, or with its parent.

    Parameters
    ----------
    serve : callable
        A function of a module (it is pickled by name).
    args : tuple
        What it gets besides its end of the pipe; can be pickled.
    alone : bool
        Whether it may start processes of its own (`may_start_processes`).

    Attributes
    ----------
    pipe : Connection
        The parent's end.

    Raises
    ------
    OSError
        If the process cannot be started.
    """

    def __init__(
        self, serve: Callable[..., None], args: tuple[Any, ...] = (), *, alone: bool = False
    ) -> None:
        from placegap.solvers.core.registry import METHODS  # which brings NumPy and pydantic

        self.pipe, other = Pipe()
        command = [sys.executable, *_flags(), "-P", "-c", BEGIN]
        # They go to whole process groups and are the parent's business: the child keeps the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            with other:
                self._process = subprocess.Popen(command, stdin=other.fileno())
        except BaseException:
            self.pipe.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what came meanwhile is raised here
            # where it has died, reading from the pipe tells so
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.pipe.send(sys.path)
                self.pipe.send((os.getpid(), alone, METHODS.outside()))
                self.pipe.send((serve, args))
        except BaseException:
            self.kill()
            raise

    def last_words(self) -> str:
        """How the process ended, in words; waits until it has."""
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process now; workers hold nothing that needs an orderly end."""
        self._process.kill()
        self._process.wait()
        self.pipe.close()


def _flags() -> list[str]:
    """The options that this interpreter runs with (warnings, -O, -I, -X)."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def begin(pipe: Connection) -> None:
    """Life of the process, once it can import this module."""
    global _may_start_processes
    parent, _may_start_processes, modules = pipe.recv()
    _die_with_parent(pipe, parent)
    from placegap.solvers.core.registry import METHODS

    METHODS.hear_of(modules)
    if "fork" in multiprocessing.get_all_start_methods():
        # a lock that a library makes when it is loaded then has no name, which a kill would leak
        multiprocessing.set_start_method("fork", force=True)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    serve, args = pipe.recv()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(pipe, *args)  # until the parent is gone, or done


def may_start_processes() -> bool:
    """Whether there are cores for processes of this one's own: not in one worker of many."""
    return _may_start_processes


def silence() -> None:
    """Solvers that print must not garble the parent's tables and progress."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if nowhere > 2:
        os.close(nowhere)


def _die_with_parent(pipe: Connection, parent: int) -> None:
    """Leave no orphan: a thread watches the pipe, and on Linux the kernel watches the parent."""
    watched = select.poll()
    watched.register(pipe.fileno(), 0)  # nothing but that the other end is closed

    def watch() -> None:
        watched.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    end_with_parent()
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def end_with_parent() -> None:
    """Have the kernel end this process when the thread that has started it ends (Linux alone)."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
