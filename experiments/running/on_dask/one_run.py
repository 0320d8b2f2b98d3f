"""What a Dask worker does with one task: it runs in a process of its own, as in the local pool.

Dask neither ends a task that runs too long nor counts the memory of what a task starts. So a Dask
worker only watches: a `TaskProcess` computes, and is killed at its hard limit, or when the study
that wants it has gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from placegap.experiments.running.pool import Ending, PoolError, TaskProcess, Unfit
from placegap.experiments.running.provenance import made_by

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

T = TypeVar("T")

POLL_S = 0.2

DIED = "the Dask worker that ran it died"


@dataclass(frozen=True)
class RemoteTask(Generic[T]):
    """A task, and how to run it.

    Attributes
    ----------
    function, modules
        As for `run_pool`.
    limit_s : float
        Seconds after which the process is killed.
    alone : bool
        Whether it may start processes of its own.
    topic : str
        Of the Dask events that carry its news.
    """

    task: T
    function: Callable[[T], Any]
    modules: tuple[str, ...]
    limit_s: float
    alone: bool
    topic: str


_idle: dict[int, tuple[object, TaskProcess[Any]]] = {}
"""By thread: the kernel ends a process with the thread that has started it."""


def run_one(job: RemoteTask[T]) -> Ending[T]:
    """Run a task, in a thread of a Dask worker that waits for its process.

    Raises
    ------
    PoolError
        If processes cannot start here, or this machine cannot do the task (`Unfit`).
    """
    from distributed import Event, get_client, get_worker

    worker = get_worker()
    key = worker.get_current_task()
    claim = Event(key)  # Dask tries a task again when its worker has gone
    if claim.is_set() and get_client().run_on_scheduler(_num_deaths, key=key):
        return Ending(job.task, "crashed", None, DIED, 0.0)
    claim.set()
    ending = _run(job, worker)
    if isinstance(ending.answer, Unfit):
        raise PoolError(f"the worker at {worker.address} {ending.answer.why}")
    return replace(ending, made_by=made_by())


def _run(job: RemoteTask[T], worker: Worker) -> Ending[T]:
    kind = (job.function, job.modules, job.alone)
    had, process = _idle.pop(threading.get_ident(), (None, None))
    if process is not None and had != kind:
        process.kill()
        process = None
    if process is None:
        process = TaskProcess(job.function, job.modules, alone=job.alone)
    keep = False
    try:
        process.on_news = lambda news: worker.log_event(job.topic, news)
        process.send(job.task, job.limit_s)
        ending = None
        while ending is None:
            heard = wait([process.pipe], timeout=POLL_S)
            ending = process.ending(bool(heard))
            if ending is None and not _is_wanted(worker):
                raise PoolError("nobody waits for the run any more")
        keep = ending.fate == "done"
        return ending
    finally:
        if keep:
            _idle[threading.get_ident()] = kind, process
        else:
            process.kill()


def _num_deaths(key: str, dask_scheduler: Scheduler | None = None) -> int:
    """How many workers that had a task have died; those that were retired have not."""
    assert dask_scheduler is not None  # Dask hands it over
    return dask_scheduler.tasks[key].suspicious


def _is_wanted(worker: Worker) -> bool:
    """Whether somebody still waits for the task of this thread."""
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state == "executing"


def end_idle() -> None:
    """End the processes that wait for another task."""
    while _idle:
        _, (_, process) = _idle.popitem()
        process.kill()
