"""The two lanes of `auto`: each one process, which takes the steps of its list one by one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any

from placegap.solvers.bounds.cheap_bounds import Bound
from placegap.solvers.core.interrupts import STOP
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import News
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import Result
from placegap.solvers.core.trust import PROOF, SOLVERS, word_of
from placegap.solvers.core.worker_process import WorkerProcess
from placegap.solvers.solving.auto.board import Answer, Board, Contradiction
from placegap.solvers.solving.auto.deadline import Deadline
from placegap.solvers.solving.auto.parts import COMPILING, Order, start_part
from placegap.solvers.solving.auto.rules import SECOND_S, AutoStep

GRACE_S = 2.0
"""What steps get at the end of all time to return what they have."""

LATE_S, LATE_SHARE = 5.0, 0.5
"""What a step gets beyond its own limit before it is asked to stop: seconds, and a share."""

POLL_S = 0.5

COMPILE_S = 120.0
"""The longest wait for kernels after the time limit; how much of it was compiling is known then."""


class Lane:
    """A list of steps, and the process that runs one of them now.

    Parameters
    ----------
    task : Task
    packed : bytes
        Its instance, pickled.
    steps : iterator of AutoStep
    is_nice : bool
        Whether the process gives way to others.
    """

    def __init__(
        self, task: Task, packed: bytes, steps: Iterator[AutoStep], *, is_nice: bool
    ) -> None:
        self.task, self.packed, self.steps, self.is_nice = task, packed, steps, is_nice
        self.process: WorkerProcess | None = None
        self.step: AutoStep | None = None
        self.limit_s: float | None = None  # of the step, once it runs
        self.began_s = 0.0
        self.known_ns = 0  # the bound when the step began
        self.compiled_s = 0.0
        self.is_stopped = self.is_done = self.is_compiling = False
        with contextlib.suppress(OSError):  # the next step tries again
            self.process = start_part(packed, is_nice=is_nice)

    def feed(self, board: Board) -> None:
        """Hand the process its next step, if it has none; the lane is done after the last one."""
        if self.step is not None or self.is_done:
            return
        self.step, self.limit_s = next(self.steps, None), None
        if self.step is None:
            self.is_done = True
            self.close()
            return
        try:
            if self.process is None:
                self.process = start_part(self.packed, is_nice=self.is_nice)
                self.compiled_s = 0.0
            known = (board.plan, board.value_ns)
            self._send(Order(self.step, 0.0, self.task.limits.gap, *known))
        except OSError as error:
            board.notes[self.step.method] = f"its process cannot start ({error.strerror})"
            self.step, self.is_done = None, True

    def hear(self, board: Board, deadline: Deadline) -> None:
        """Take in what the process has said, and see to it that it ends in time."""
        while self.process is not None and self.process.pipe.poll():
            try:
                message = self.process.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._has_died(board)
                return
            self._take(message, board, deadline)
        if self.limit_s is None or self.process is None or self.step is None:
            return
        spent_s = time.monotonic() - self.began_s
        late_s = spent_s - self.limit_s
        has_proven = board.bound_ns > self.known_ns
        patience_s = LATE_S + LATE_SHARE * self.limit_s
        if late_s > 2 * patience_s:
            self._end(board, "ended: it ran past its limit")
            self.close()
        elif late_s > patience_s or self.step.gives_up(
            spent_s / max(1e-6, self.limit_s), has_proven=has_proven
        ):
            self.stop()

    def stop(self) -> None:
        """Ask the step to return what it has."""
        if self.process is not None and self.step is not None and not self.is_stopped:
            self.is_stopped = True
            self.process.send_signal(STOP)

    def close(self) -> None:
        """End the process now."""
        if self.process is not None:
            self.process.kill()
            self.process = None
        self.is_stopped = False

    def _send(self, message: object) -> None:
        assert self.process is not None
        with contextlib.suppress(BrokenPipeError):  # reading from the pipe tells that it died
            self.process.pipe.send(message)

    def _take(self, message: Any, board: Board, deadline: Deadline) -> None:
        assert self.step is not None
        if message == COMPILING:
            self.is_compiling = True
        elif isinstance(message, Bound):
            board.take_bound(message)
        elif isinstance(message, News):
            self._take_news(self.step, message, board)
        elif isinstance(message, Result | Contradiction | str):
            self._end(board, message)
            if self.is_stopped:  # such a process starts nothing any more
                self.close()
        else:  # ready for the step
            compiled_s, self.is_compiling = message[1], False
            deadline.stand_still(compiled_s - self.compiled_s)
            self.compiled_s = compiled_s
            left_s = deadline.left_s
            self.limit_s = min(left_s, max(SECOND_S, self.step.share * left_s))
            self.began_s, self.known_ns = time.monotonic(), board.bound_ns
            self._send(self.limit_s)

    def _take_news(self, step: AutoStep, news: News, board: Board) -> None:
        """Plans are judged; a bound rests on the solvers of the method until the result comes."""
        if news.plan is not None:
            board.offer(news.plan, news.by)
        if step.semantics == self.task.semantics and news.bound_ns is not None:
            words = [word_of(p) for p in METHODS[step.method].packages if p in SOLVERS]
            origin, rests_on = news.bound_by or step.method, ", ".join(words) or PROOF
            board.prove(news.bound_ns, origin, rests_on, is_first_word=True)

    def _has_died(self, board: Board) -> None:
        assert self.process is not None
        self.is_compiling = False
        self._end(board, f"its process died ({self.process.last_words()})")
        self.close()

    def _end(self, board: Board, answer: Answer) -> None:
        if self.step is not None:
            board.take_answer(self.step.method, answer)
        self.step = self.limit_s = None


def run_lanes(lanes: list[Lane], board: Board, deadline: Deadline) -> None:
    """Run the lanes until nothing is left to find, to do, or of the time."""
    try:
        while not board.is_over and (deadline.left_s > 0 or _compile(lanes, deadline)):
            for lane in lanes:
                if deadline.left_s > 0:
                    lane.feed(board)
            if all(lane.is_done for lane in lanes):
                return
            _wait(lanes, min(POLL_S, deadline.left_s or POLL_S))
            for lane in lanes:
                lane.hear(board, deadline)
        if not board.is_over or board.is_first_word:
            last_words(lanes, board, deadline, GRACE_S)
    except KeyboardInterrupt:
        for lane in lanes:
            lane.stop()
        last_words(lanes, board, deadline, GRACE_S)
        raise
    finally:
        for lane in lanes:
            lane.close()


def _compile(lanes: list[Lane], deadline: Deadline) -> bool:
    """Whether kernels are compiled, which no limit includes, if that does not take forever."""
    return any(lane.is_compiling for lane in lanes) and deadline.over_s < COMPILE_S


def last_words(lanes: list[Lane], board: Board, deadline: Deadline, grace_s: float) -> None:
    """Wait for the steps that run to end; those that do not are asked to stop half way."""
    began_s = time.monotonic()
    while (waited_s := time.monotonic() - began_s) < grace_s:
        busy = [lane for lane in lanes if lane.limit_s is not None and lane.process is not None]
        if not busy or (board.is_over and not board.is_first_word):
            return
        if waited_s > grace_s / 2:
            for lane in busy:
                lane.stop()
        _wait(busy, 0.1)
        for lane in busy:
            lane.hear(board, deadline)


def _wait(lanes: list[Lane], patience_s: float) -> None:
    wait([lane.process.pipe for lane in lanes if lane.process is not None], timeout=patience_s)
