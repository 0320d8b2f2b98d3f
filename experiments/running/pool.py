"""A small pool of worker processes with hard time limits, and the signals that end it.

A worker serves one task after another through a pipe. It is replaced when a task runs past its hard
limit or takes the process down; the other workers go on. The limit stands while a worker compiles
kernels. Workers never outlive their parent, and never run its main module (`worker_process`).

SIGTERM and SIGHUP end a command as Ctrl-C does: `timeout`, batch systems and containers send the
one, a terminal that closes the other. Each raises `KeyboardInterrupt` in the main thread, and the
exit status says which it was. A signal that is ignored when the command begins stays so: SIGHUP
under `nohup`, SIGINT in a script's background.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Generic, Literal, TypeVar

from placegap.instances.kernels.kernel_folder import cache_folder
from placegap.solvers.core.clock import STOP, STOP_SIGNALS, Interruptible
from placegap.solvers.core.worker_process import WorkerProcess, silence

REPEAT_S = 1.0  # `timeout` and closing terminals send their signal twice: so near, it is the same


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
    """Let the signals that stop a command raise `KeyboardInterrupt`, if they would end it."""
    # Those that come later are ignored, where the process ends then `for_good`: its status stands.
    _state.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends, found = (signal.SIG_DFL, signal.default_int_handler), map(signal.getsignal, STOP_SIGNALS)
    before = {
        number: handler
        for number, handler in zip(STOP_SIGNALS, found, strict=True)
        if handler in ends or getattr(handler, "__module__", "") == "placegap"  # while it is loaded
    }
    try:
        for number in before:
            signal.signal(number, _interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if for_good else handler)


def is_stopped() -> bool:
    """Whether a signal has come, even if what it interrupted went on."""
    return _state.number is not None


def stop_status() -> int:
    """The exit status of a command that was stopped: 128 and the signal's number."""
    return 128 + (signal.SIGINT if _state.number is None else _state.number)


@contextmanager
def held() -> Iterator[None]:
    """Delay the first signal until the block has ended."""
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


T = TypeVar("T")
Fate = Literal["done", "timeout", "crashed"]


@dataclass(frozen=True)
class Ending(Generic[T]):
    """How a task ended: `answer` is what the function returned, if the fate is "done"."""

    # `last_news` is its last report.
    task: T
    fate: Fate
    answer: Any
    message: str
    wall_s: float
    last_progress: Any = None


STARTS = 2  # a worker that dies before its first task may have been killed; a second one was not


class PoolError(RuntimeError):
    """Worker processes cannot start at all."""


@dataclass(frozen=True)
class _Report:
    """What a task reports before it ends, and whether its clock stands from now on, or goes on."""

    content: Any
    paused: bool | None = None


_listeners: list[Callable[[_Report], None]] = []


def send_progress(content: Any, *, paused: bool | None = None) -> None:
    """Send something that can be pickled to the parent of this task; without a pool, do nothing."""
    # From `paused` being True to False, the clock of the task's hard limit stands: the task reads
    # its instance or compiles a kernel.
    for listener in _listeners:
        with contextlib.suppress(BrokenPipeError):  # reading from the pipe shows that it died
            listener(_Report(content, paused))


@contextlib.contextmanager
def _listening(listener: Callable[[_Report], None]) -> Iterator[None]:
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


POLL_S = 0.1  # how long what makes tasks may take before the pool looks whether others have ended


def in_thread(make: Callable[[], T]) -> Iterator[T | None]:
    """The result of a thread; None until it is there (`run_pool`)."""
    made: Future[T] = Future()

    def fulfil() -> None:
        try:
            made.set_result(make())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()  # no Ctrl-C waits for it
    while not futures.wait([made], POLL_S).done:
        yield None
    yield made.result()


def run_here(
    tasks: Iterable[T | None],
    function: Callable[[T], Any],
    *,
    on_progress: Callable[[Any], None] | None = None,
    **_: Any,
) -> Generator[Ending[T]]:
    """`run_pool` without processes: one task after another, with no hard limit."""

    def pass_on(report: _Report) -> None:
        if on_progress is not None:
            on_progress(report.content)

    for task in tasks:
        if task is None:
            continue
        began = time.monotonic()
        with _listening(pass_on):
            answer = function(task)
        yield Ending(task, "done", answer, "", time.monotonic() - began)


def run_pool(
    tasks: Iterable[T | None],
    function: Callable[[T], Any],
    *,
    workers: int,
    hard_limit_s: Callable[[T], float],
    modules: Sequence[str] = (),
    stop_s: float = 0.0,
    on_progress: Callable[[Any], None] | None = None,
) -> Generator[Ending[T]]:
    """Run ``function(task)`` in worker processes; yield each task's ending as it comes."""
    # Tasks are drawn only when a worker is free, so with one worker a generator of tasks may look
    # at the endings before. One that has no task yet waits a little and yields None. Closing the
    # generator, or an exception in its consumer, kills the workers. The function is pickled by
    # name, and should not raise. A single worker may start processes of its own. The hard limit of
    # a task leaves out what it reports to (`send_progress`). After Ctrl-C each task gets a
    # `KeyboardInterrupt` and `stop_s` seconds to end; the endings of those that return in time are
    # yielded, and then `KeyboardInterrupt` is raised. A second Ctrl-C raises it at once.
    queue = iter(tasks)
    idle: list[TaskProcess[T]] = []
    busy: list[TaskProcess[T]] = []
    exhausted = False
    try:
        while True:
            most_s = math.inf
            while not exhausted and len(busy) < workers:
                try:
                    task = next(queue)
                except StopIteration:
                    exhausted = True
                    break
                if task is None:
                    most_s = 0.0  # the tasks have waited
                    break
                worker = (
                    idle.pop()
                    if idle
                    else TaskProcess(
                        function,
                        modules,
                        stoppable=stop_s > 0,
                        alone=workers == 1,
                        on_progress=on_progress,
                    )
                )
                busy.append(worker)
                worker.send(task, hard_limit_s(task))
            if exhausted and not busy:
                return
            try:
                ended = _endings(busy, _wait(busy, most_s))
            except KeyboardInterrupt:
                yield from _last_endings(busy, stop_s) if stop_s > 0 else _returned(busy)
                raise
            for worker, ending in ended:
                busy.remove(worker)
                if ending.fate == "done":
                    idle.append(worker)
                else:
                    worker.kill()
                yield ending
    finally:
        for worker in idle + busy:
            worker.kill()


def _wait(busy: list[TaskProcess[T]], most_s: float = math.inf) -> Sequence[object]:
    """Wait until a worker answers, dies or runs out of time; the pipes that have something."""
    ends = [worker.deadline for worker in busy if worker.paused_since is None]
    patience = min(most_s, max(0.0, min(ends, default=math.inf) - time.monotonic()))
    pipes = [worker.pipe for worker in busy]
    with allowed():
        return wait(pipes, timeout=None if math.isinf(patience) else patience)


def _endings(
    busy: list[TaskProcess[T]], ready: Sequence[object]
) -> list[tuple[TaskProcess[T], Ending[T]]]:
    endings = ((worker, worker.ending(worker.pipe in ready)) for worker in busy)
    return [(worker, ending) for worker, ending in endings if ending is not None]


def _returned(busy: list[TaskProcess[T]]) -> Generator[Ending[T]]:
    """What has been computed already, and is not read yet."""
    for worker in busy:
        ending = None
        with contextlib.suppress(PoolError):  # one that was stopped before its first task
            while ending is None and worker.pipe.poll():  # reports may come before the answer
                ending = worker.ending(is_ready=True)
        if ending is not None and ending.fate == "done":
            yield ending


def _last_endings(busy: list[TaskProcess[T]], stop_s: float) -> Generator[Ending[T]]:
    """Stop the workers; the endings of those that return in time."""
    stopping = [worker for worker in busy if worker.ask_to_stop(stop_s)]
    while stopping:
        for worker, ending in _endings(stopping, _wait(stopping)):
            stopping.remove(worker)
            if ending.fate == "done":
                yield ending


class TaskProcess(Generic[T]):
    """One process, the parent's end of its pipe, and its current task."""

    def __init__(
        self,
        function: Callable[[T], Any],
        modules: Sequence[str],
        *,
        stoppable: bool = False,
        alone: bool = False,
        on_progress: Callable[[Any], None] | None = None,
    ) -> None:
        # Stoppable tasks can be stopped early (`ask_to_stop`); one that is alone may start
        # processes of its own.
        self.on_progress = on_progress
        self.job, self.alone = (function, tuple(modules), stoppable), alone
        self.starts = 0
        self._start()
        self.began, self.deadline = time.monotonic(), math.inf
        self.paused_since: float | None = None

    def _start(self) -> None:
        try:
            cache_folder()  # says where kernels are kept: a worker has no place to print it
            self.process = WorkerProcess(_serve, self.job, alone=self.alone, copied=True)
        except OSError as error:
            raise PoolError(f"worker processes cannot start ({error.strerror})") from None
        self.pipe, self.ready = self.process.pipe, False
        self.starts += 1

    def send(self, task: T, limit_s: float) -> None:
        """Hand over a task; its clock starts when the worker has started."""
        self.task = task
        self.limit_s = limit_s
        self.last_progress: Any = None
        self._start_clock()
        with contextlib.suppress(BrokenPipeError):  # reading from the pipe shows that it died
            self.pipe.send(task)

    def ending(self, is_ready: bool) -> Ending[T] | None:
        """The ending of the current task, or None while it runs."""
        wall_s = time.monotonic() - self.began
        if not is_ready:
            if self.paused_since is not None or time.monotonic() < self.deadline:
                return None
            message = f"killed at the hard limit of {self.limit_s:g} s"
            return Ending(self.task, "timeout", None, message, wall_s, self.last_progress)
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            how = self.process.last_words()
            if not self.ready and self.starts < STARTS:
                self.kill()
                self._start()
                self.send(self.task, self.limit_s)
                return None
            if not self.ready:
                raise PoolError(f"worker processes cannot start ({how})") from None
            message = f"the worker process died ({how})"
            return Ending(self.task, "crashed", None, message, wall_s, self.last_progress)
        if isinstance(answer, _Report):
            self._pause(answer.paused)
            self.last_progress = answer.content
            if self.on_progress is not None:
                self.on_progress(answer.content)
            return self.ending(is_ready=False)  # reporting is no excuse for running on
        if self.ready:
            return Ending(self.task, "done", answer, "", wall_s, self.last_progress)
        self.ready = True
        self._start_clock()
        return None

    def _pause(self, begins: bool | None) -> None:
        """Let the clock stand, or go on."""
        if begins is None:
            return
        now = time.monotonic()
        if self.paused_since is not None:
            self.deadline += now - self.paused_since
        self.paused_since = now if begins else None

    def _start_clock(self) -> None:
        self.began, self.paused_since = time.monotonic(), None
        self.deadline = self.began + self.limit_s if self.ready else math.inf

    def ask_to_stop(self, stop_s: float) -> bool:
        """Interrupt the task, which ends within some seconds; False if there is none."""
        if not self.ready and self.pipe.poll():  # it may be at its task, and we have not read so
            self.ending(is_ready=True)
        if not self.ready:
            return False
        self.deadline, self.paused_since = min(self.deadline, time.monotonic() + stop_s), None
        self.process.send_signal(STOP)
        return True

    def kill(self) -> None:
        self.process.kill()


def _serve(
    pipe: Connection, function: Callable[[Any], Any], modules: Sequence[str], stoppable: bool
) -> None:
    """Life of a worker process."""
    for module in modules:
        import_module(module)
    silence()
    region, lock = Interruptible(), threading.Lock()
    if stoppable:
        signal.signal(STOP, lambda number, frame: region.interrupt())

    def send(message: object) -> None:
        with lock:  # solvers report from threads of their own
            pipe.send(message)

    send("ready")
    with _listening(send):
        while True:
            task = pipe.recv()
            if region.is_requested:  # before it was here
                return
            with region:
                answer = function(task)
            send(answer)
