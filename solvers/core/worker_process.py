"""One Python process that serves its parent through a pipe, and never runs the user's script.

`multiprocessing` imports the parent's main module into every process that it spawns: a script
without a guard would run again there, and one from stdin could not start any. Here the interpreter
is started with a line of its own, and imports nothing but the module of the function that it runs.

Importing takes most of a second. So a command, as long as it has one thread, is copied instead
(`fork`): the copy has all modules that the command has loaded, and the instance that it has read.
A fork beside other threads may wait for ever for a lock that one of them held, and a solver's pool
of threads is not there in the copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from multiprocessing.context import ForkProcess
from typing import Any

from placegap.solvers.core.clock import STOP_SIGNALS

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

# What the interpreter runs. The pipe is its standard input, whatever else is open or closed.
BEGIN = (
    "import fcntl, sys; from multiprocessing.connection import Connection; "
    "pipe = Connection(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)); sys.path[:] = pipe.recv(); "
    "from placegap.solvers.core.worker_process import begin; begin(pipe)"
)

_may_start_processes = True


class WorkerProcess:
    """A process that runs ``serve(pipe, *args)`` and ends with it, or with its parent."""

    def __init__(
        self,
        serve: Callable[..., None],
        args: tuple[Any, ...] = (),
        *,
        alone: bool = False,
        copied: bool = False,
    ) -> None:
        #: The parent's end.
        # `serve` is pickled by name. It may start processes of its own if `alone`
        # (`may_start_processes`), and be a copy of this process if `copied`, where that is safe
        # (`has_one_thread`).
        self.pipe, other = Pipe()
        # They go to whole process groups and are the parent's business: the child keeps the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        self._process: _Copy | subprocess.Popen[bytes]
        copied = copied and has_one_thread()
        try:
            with other:
                if copied:
                    self._process = _Copy(
                        target=_copied, args=(self.pipe, other, os.getpid(), alone, serve, args)
                    )
                    self._process.start()
                else:
                    # the options that this interpreter runs with: warnings, -O, -I, -X
                    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
                    command = [sys.executable, *flags, "-P", "-c", BEGIN]
                    self._process = subprocess.Popen(command, stdin=other.fileno())
        except BaseException:
            self.pipe.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what came meanwhile is raised here
            if not copied:
                self._send(serve, args, alone)
        except BaseException:
            self.kill()
            raise

    def _send(self, serve: Callable[..., None], args: tuple[Any, ...], alone: bool) -> None:
        """What a new interpreter gets first."""
        from placegap.solvers.core.registry import METHODS  # which brings NumPy and pydantic

        # where it has died, reading from the pipe shows that
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(sys.path)
            self.pipe.send((os.getpid(), alone, METHODS.outside()))
            self.pipe.send((serve, args))

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


class _Copy(ForkProcess):
    """A fork, with the few calls of `subprocess.Popen` that are used here."""

    def wait(self) -> int:
        self.join()
        assert self.exitcode is not None
        return self.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.is_alive():
            assert self.pid is not None
            os.kill(self.pid, number)


def has_one_thread() -> bool:
    """Whether this process can be copied: on Linux, without threads, also those of libraries."""
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1


def _copied(
    parents: Connection,
    pipe: Connection,
    parent: int,
    alone: bool,
    serve: Callable[..., None],
    args: tuple[Any, ...],
) -> None:
    """Life of a copy."""
    parents.close()
    import fcntl  # Linux has it

    # its number may be that of a standard stream, where the parent's are closed
    pipe = Connection(fcntl.fcntl(pipe.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
    gc.freeze()  # looking for garbage among what the parent has made would copy all of its memory
    _live(pipe, parent, alone, lambda: (serve, args))


def begin(pipe: Connection) -> None:
    """Life of a new interpreter, once it can import this module."""
    parent, alone, modules = pipe.recv()

    def receive() -> tuple[Callable[..., None], tuple[Any, ...]]:
        from placegap.solvers.core.registry import METHODS

        METHODS.inherit(modules)
        serve, args = pipe.recv()
        return serve, args

    _live(pipe, parent, alone, receive)


def _live(
    pipe: Connection,
    parent: int,
    alone: bool,
    receive: Callable[[], tuple[Callable[..., None], tuple[Any, ...]]],
) -> None:
    """Life of the process, which ends with its parent."""
    global _may_start_processes  # noqa: PLW0603 (a fact of this process)
    _may_start_processes = alone
    _die_with_parent(pipe, parent)
    if "fork" in multiprocessing.get_all_start_methods():
        # a lock that a library makes when it is loaded then has no name, which a kill would leak
        multiprocessing.set_start_method("fork", force=True)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    serve, args = receive()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(pipe, *args)  # until the parent is gone, or done


def may_start_processes() -> bool:
    """Whether there are cores for processes of this one's own: not in one worker of many."""
    return _may_start_processes


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def silence() -> None:
    """Solvers that print must not garble the parent's tables and progress."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if nowhere > 2:
        os.close(nowhere)
    # a copy has its parent's streams, which may write elsewhere (a notebook's, those of a test)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (stays open)


def _die_with_parent(pipe: Connection, parent: int) -> None:
    """Leave no orphan: a thread watches the pipe, and on Linux the kernel watches the parent."""
    watched = select.poll()
    watched.register(pipe.fileno(), 0)  # nothing but that the other end is closed

    def watch() -> None:
        watched.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    end_with_parent()
    if os.getppid() != parent:  # it died before
        os._exit(1)


def end_with_parent() -> None:
    """Have the kernel end this process when the thread that has started it ends (Linux alone)."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
