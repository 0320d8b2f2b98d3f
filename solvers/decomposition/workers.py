"""Where jobs on sections run: in this process, and in worker processes once the search takes long.

Workers are new processes (`worker_process`), and start only after a while, so that small problems
never wait for one. A process that is itself one worker of many starts none: it runs all of its jobs
itself, as a single worker does.
"""

from __future__ import annotations

import contextlib
from collections import deque
from multiprocessing.connection import Connection, wait

from placegap.solvers.core.clock import now_s
from placegap.solvers.core.worker_process import WorkerProcess, may_start_processes, silence
from placegap.solvers.decomposition.jobs import Job, SectionAnswer, work

SPAWN_AFTER_S = 1.0
"""Searches that are over by then start no processes, which take about as long to start."""


class SectionWorkers:
    """Runs jobs, several at a time.

    Parameters
    ----------
    number : int
        Most processes at a time; 1: this process alone.
    """

    def __init__(self, number: int) -> None:
        self.number = number if may_start_processes() else 1
        self._began = now_s()
        self._queue: deque[tuple[int, Job]] = deque()
        self._workers: list[_Worker] = []
        self._failed = False
        self._count = 0

    def __enter__(self) -> SectionWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def wanted(self) -> int:
        """How many jobs more would find a worker."""
        self._start_processes()
        ready = [worker for worker in self._workers if worker.ready]
        idle = sum(worker.ticket is None for worker in ready)
        return (idle if ready else 1) - len(self._queue)

    def submit(self, job: Job) -> int:
        """Hand in a job; its ticket comes back with the answer."""
        self._count += 1
        self._queue.append((self._count, job))
        return self._count

    def answers(self, patience_s: float | None) -> list[tuple[int, SectionAnswer]]:
        """The answers of some jobs, as soon as there are any; none if patience ends."""
        self._feed()
        busy = [worker for worker in self._workers if worker.ticket is not None]
        if not busy:
            ticket, job = self._queue.popleft()
            return [(ticket, work(job))]
        found: list[tuple[int, SectionAnswer]] = []
        heard = wait([worker.pipe for worker in busy], timeout=patience_s)
        for worker in busy:
            if worker.pipe in heard:
                ticket, answer = worker.receive()
                if answer is None:  # it died: run its job here
                    self._failed = True
                    self._workers.remove(worker)
                    worker.kill()
                    self._queue.appendleft((ticket, worker.job))
                else:
                    found.append((ticket, answer))
        return found

    def close(self) -> None:
        """End all processes now."""
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def _feed(self) -> None:
        for worker in self._workers:
            if self._queue and worker.ready and worker.ticket is None:
                worker.send(*self._queue.popleft())

    def _start_processes(self) -> None:
        waited = now_s() - self._began
        if self.number == 1 or self._failed or self._workers or waited < SPAWN_AFTER_S:
            return
        try:
            for _ in range(self.number):
                self._workers.append(_Worker())
        except OSError:  # no more processes: those that there are must do
            self._failed = not self._workers


class _Worker:
    """One process, the parent's end of its pipe, and the job it is at."""

    def __init__(self) -> None:
        self.process = WorkerProcess(_serve)
        self.pipe = self.process.pipe
        self.ticket: int | None = None
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it has said that it takes jobs."""
        if not self._ready and self.pipe.poll():
            with contextlib.suppress(EOFError, OSError):
                self._ready = self.pipe.recv() == "ready"
        return self._ready

    def send(self, ticket: int, job: Job) -> None:
        self.ticket, self.job = ticket, job
        with contextlib.suppress(BrokenPipeError):  # reading from the pipe tells that it died
            self.pipe.send(job)

    def receive(self) -> tuple[int, SectionAnswer | None]:
        assert self.ticket is not None
        ticket, self.ticket = self.ticket, None
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return ticket, None
        if isinstance(answer, BaseException):
            raise answer
        return ticket, answer

    def kill(self) -> None:
        """End the process now."""
        self.process.kill()


def _serve(pipe: Connection) -> None:
    """Life of a worker process."""
    silence()
    pipe.send("ready")
    while True:
        job = pipe.recv()
        try:
            answer: SectionAnswer | BaseException = work(job)
        except Exception as error:  # raised again by the parent
            answer = error
        pipe.send(answer)
