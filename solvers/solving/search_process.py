"""The other process of `auto`: it looks for plans beside the one that proves.

It runs its steps by itself, from the best known plan, and reports what they find. A thread of the
first process starts it, listens to it, and interrupts a proof that the search has made needless or
that runs past the limit. However the process ends, what it has reported is known.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

from placegap.instances.kernels.loading import loading, loading_s
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.solvers.core.clock import STOP, Clock, Interruptible, stop_requested, while_compiling
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.core.objective import LARGE_PARTS, Step, able, strategy, with_params
from placegap.solvers.core.progress import each_plan_once
from placegap.solvers.core.result import Result
from placegap.solvers.core.starts import task_for
from placegap.solvers.core.worker_process import WorkerProcess, silence
from placegap.solvers.solving.incumbent import Contradiction, JudgedKnown

# Where memory runs out, Linux ends the search before the process that holds the best plan.
DIES_FIRST = "500"
# What the search gets at the end of all time to return what it has; half of it before it is
# interrupted.
GRACE_S = 2.0
LATE_S = 2.0  # seconds past the limit when a proof is interrupted: some rarely look at the clock

POLL_S = 0.1

LEAST_STEP_S = 0.05  # with less time left no other step begins
# Of the time that is left, for a placer: where memory is tight at its peak, each takes many runs.
PLACER_SHARE = 0.1
# A search that shortens the plan of those before it by this share has the last turn: the first one,
# begun anew, rarely finds as much (layers of 1,000 random ops: the second finds in 4 s what the
# first does in 40).
FAR = 0.01


class Begun(NamedTuple):
    """What the process sends before each step: the method that runs now, and its rules."""

    method: str
    semantics: Semantics


class Compiled(NamedTuple):
    """What the process sends when it compiles a kernel, and after that: seconds so far."""

    is_compiling: bool
    seconds: float


def plans(
    known: JudgedKnown, seed: int, waiting: Iterable[str] = (), workers: int = 1
) -> Iterator[Step]:
    """The steps that look for plans, without end where a seed makes a difference."""
    # First the objective's own placers and those that are still `waiting`, then what else it begins
    # with. Then each of its searches has a turn, and the one that finds most all others, each with
    # another seed. The one search of a large graph has `workers`.
    task = known.task
    found = strategy(task)
    first = list(able(task, found.first_plans))
    yield from (step for step in first if step.is_placer)
    for name in waiting:
        narrower = task_for(task, name)
        if narrower is not None:
            yield Step(name, narrower.semantics, PLACER_SHARE, is_placer=True)
    yield from (step for step in first if not step.is_placer)
    is_large = task.instance.num_parts > LARGE_PARTS
    turns = list(able(task, found.searches, workers if is_large else 1))
    if not turns:
        return
    # The first search has half of the time: less of an annealing says little of what it finds. Each
    # of the others has a part of a sixth, and the one that finds most has the rest.
    num, last = len(turns), turns[0]
    for at, step in enumerate(turns if num > 1 else ()):
        before_ns = known.value
        yield _at_turn(step, 0, seed, 1 / (3 * num - 2 - at) if at else 1 / 2)
        if at and known.by == step.method and _is_far_below(known.value, before_ns):
            last = step
    for turn in count(int(num > 1)):
        yield _at_turn(last, turn, seed, 1.0)


def _at_turn(step: Step, turn: int, seed: int, share: float) -> Step:
    """A search with the seed of its turn."""
    later = replace(step, share=share, seed=seed + turn)
    # an annealing from the plan that the same annealing has found rarely finds a better one
    return with_params(later, {"anew": turn > 0})


def _is_far_below(value: int | None, before: int | None) -> bool:
    return value is not None and before is not None and value < (1 - FAR) * before


class SearchProcess:
    """The search beside the proof, from a while after the beginning to the end of the time."""

    def __init__(
        self,
        known: JudgedKnown,
        clock: Clock,
        head_start_s: float | None,
        waiting: Sequence[str] = (),
        workers: int = 1,
    ) -> None:
        # Results go to `known`. The proof works alone for `head_start_s` seconds; None: there is no
        # other process, and the limit alone is watched. `waiting` are placers that have not run
        # yet; `workers` are threads of a search that has all cores.
        self.known, self.clock, self.head_start_s = known, clock, head_start_s
        self.waiting, self.workers = waiting, workers
        #: To be entered for each proof: the one that runs is interrupted when nothing is left to
        #: prove, or no time.
        self.proof = Interruptible()
        self._process: WorkerProcess | None = None
        self._compiled = Compiled(is_compiling=False, seconds=0.0)
        self._compiled_at = 0.0
        self._step: Begun | None = None  # before the first one nothing can be interrupted
        self._listener: Callable[[Any], None] | None = None
        self._closing, self._ended = threading.Event(), threading.Event()
        if head_start_s is None:
            self._ended.set()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        began = time.monotonic()
        while not (self._ended.is_set() or self.known.is_over):
            spent_s = time.monotonic() - began
            if self._step is None or self._process is None or spent_s > GRACE_S:
                break
            if kind is not None or spent_s > GRACE_S / 2:
                self._process.send_signal(STOP)
                kind = None
            self._ended.wait(POLL_S)
        self._closing.set()
        self._thread.join()

    def send_plan(self, plan: Plan) -> None:
        """Let the search begin its next step from a better plan."""
        if self._process is not None:
            with contextlib.suppress(OSError):  # it has died, and the thread will see that
                self._process.pipe.send(plan)

    def wait(self) -> None:
        """Wait until the search has ended, the time is over, or nothing is left to find."""
        # The search gets the time back that it spent on kernels, and the clock stands meanwhile.
        waited_s = 0.0
        while not (self._ended.is_set() or self.known.is_over or stop_requested()):
            late_s = waited_s - self._left_s()
            if late_s <= 0:
                self._ended.wait(POLL_S)
                continue
            if self._process is None or late_s > self._compiling_s():
                return
            began = time.monotonic()
            with loading():  # of the other process, which counts no more than ours
                self._ended.wait(POLL_S)
            waited_s += time.monotonic() - began

    def _left_s(self) -> float:
        """Of the limit; negative after it."""
        return (self.clock.limit_s or 0.0) - self.clock.spent_s

    def _compiling_s(self) -> float:
        """Seconds that the other process has spent on kernels, which no limit includes."""
        compiled = self._compiled
        running_s = time.monotonic() - self._compiled_at if compiled.is_compiling else 0.0
        return compiled.seconds + running_s

    def _watch(self) -> None:
        """Life of the thread. It also ends the process: on Linux that ends with this thread."""
        try:
            self._wait_for_start()
            while not self._closing.is_set():
                self._end_a_needless_proof()
                if self._process is None or self._ended.is_set():
                    self._closing.wait(POLL_S)
                else:
                    self._receive(self._process)
        finally:
            self._ended.set()
            if self._process is not None:
                self._process.kill()

    def _wait_for_start(self) -> None:
        if self.head_start_s is None:
            return
        while self.clock.spent_s < self.head_start_s and not self._closing.wait(POLL_S):
            self._end_a_needless_proof()
        if self._closing.is_set() or self.known.is_over:
            return
        task, left_s = self.known.task, self.clock.left_s
        order = Order(
            task.semantics,
            Limits(left_s, task.limits.gap, task.limits.seed),
            self.known.plan,
            tuple(self.waiting),
            self.workers,
        )
        try:
            packed = pickle.dumps(task.instance, pickle.HIGHEST_PROTOCOL)
            self._process = WorkerProcess(_serve, (packed, order))
        except OSError as error:
            self.known.notes["search"] = f"its process cannot start ({error.strerror})"
            self._ended.set()

    def _end_a_needless_proof(self) -> None:
        is_closed = self.known.is_over and not self.known.is_preliminary  # of the proof itself
        if (is_closed or self._left_s() < -LATE_S) and not self.proof.is_requested:
            self.proof.interrupt()

    def _receive(self, process: WorkerProcess) -> None:
        try:
            if process.pipe.poll(POLL_S):
                self._take(process.pipe.recv())
        except (EOFError, OSError):
            if not self._ended.is_set():
                self.known.notes[self._step.method if self._step else "search"] = (
                    f"its process died ({process.last_words()})"
                )
            self._ended.set()

    def _take(self, message: Any) -> None:
        known = self.known
        if isinstance(message, Begun):
            self._step = message
            self._listener = known.listener(message.method, message.semantics)
        elif isinstance(message, Compiled):
            self._compiled, self._compiled_at = message, time.monotonic()
        elif message is None:
            self._ended.set()
        elif isinstance(message, Result | Contradiction | str):
            assert self._step is not None
            known.take_answer(self._step.method, message)
        elif self._listener is not None:
            self._listener(message)


class Order(NamedTuple):
    """What the other process gets besides its instance."""

    semantics: Semantics
    limits: Limits
    known: Plan | None
    waiting: tuple[str, ...]
    workers: int


def _serve(pipe: Connection, packed: bytes, order: Order) -> None:
    """Life of the process: one step after another, until its time is over or the parent is gone."""
    instance: Instance = pickle.loads(packed)
    silence()
    _die_first()
    region, lock = Interruptible(), threading.Lock()
    signal.signal(STOP, lambda number, frame: region.interrupt())

    def send(message: object) -> None:
        with lock:  # solvers report from threads of their own
            pipe.send(message)

    end_s = time.monotonic() + (order.limits.time_limit_s or 0.0)  # loading counts: it ends in time
    task = Task(instance, order.semantics, order.limits)
    known = JudgedKnown(task=task)
    if order.known is not None:
        known.offer(order.known, "the start")
    with while_compiling(
        lambda: send(Compiled(is_compiling=True, seconds=loading_s())),
        lambda: send(Compiled(is_compiling=False, seconds=loading_s())),
    ):
        for step in plans(known, order.limits.seed, order.waiting, order.workers):
            left_s = end_s - time.monotonic()
            if left_s < LEAST_STEP_S or region.is_requested:
                break
            while pipe.poll():
                known.offer(pipe.recv(), "the proof")
            send(Begun(step.method, step.semantics))
            with region:
                limit_s = min(left_s, step.share * left_s)
                answer = known.run(step, limit_s, each_plan_once(send))
            if isinstance(answer, Result):
                known.take(answer)
            send(answer)
    send(None)


def _die_first() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(DIES_FIRST)
