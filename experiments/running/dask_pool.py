"""`run_pool` on a Dask cluster, which says where a task runs, and nothing else.

A task runs as in the local pool. Dask neither ends one that runs too long nor counts the memory of
what it starts, so a Dask worker only watches: a `TaskProcess` computes, and is killed at its hard
limit, or when its study has ended. Only the study's process gets the endings. A
Dask worker that dies costs the tasks that it ran: each has crashed, and none is tried again,
whatever the scheduler is set to.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pickle import UnpicklingError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from placegap.experiments.running.pool import Ending, PoolError, TaskProcess, Unfit, allowed
from placegap.experiments.running.provenance import made_by
from placegap.experiments.running.warm_up import one_line
from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.solvers.core.clock import STOP_SIGNALS
from placegap.solvers.core.method import why_not_installed

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

CONNECT_S = 10.0
"""Most seconds until a scheduler answers."""

CLOSE_S = 5.0


@contextmanager
def cluster_at(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address such as ``tcp://10.0.0.1:8786``."""
    _silence()
    from distributed import Client

    why = ""
    with _signals_blocked():
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
    if why:
        gc.collect()  # half a client that goes while another one starts would lock it for ever
        raise InputError(f"--scheduler {address}: no Dask scheduler answers ({why})")
    try:
        yield client
    finally:
        client.close(timeout=CLOSE_S)


@contextmanager
def local_cluster(workers: int) -> Iterator[Client]:
    """A client of a new cluster of workers on this machine, with one run at a time each."""
    _silence()
    from distributed import Client, LocalCluster

    with _signals_blocked():
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # it would count the Dask worker, and not the runs
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
        client = Client(cluster, set_as_default=False)
    try:
        yield client
    finally:
        client.close(timeout=CLOSE_S)
        cluster.close()


def num_slots(client: Client) -> int:
    """How many runs the cluster's workers take at a time: their threads."""
    return sum(client.nthreads().values())


def _silence() -> None:
    """Silence all output but placegap's; MissingExtra where there is no distributed."""
    missing = why_not_installed("distributed", "dask")
    if missing is not None:
        raise MissingExtra(missing)
    import distributed  # its import sets the levels of its loggers

    for name in (distributed.__name__, "tornado", "asyncio"):
        for logger in [name, *(n for n in logging.root.manager.loggerDict if n.startswith(name))]:
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """What is started here hears none of the signals that go to whole process groups.

    Threads and processes keep the mask of the thread that starts them: Ctrl-C stops the study, and
    no worker, whose run would be lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


if TYPE_CHECKING:
    from distributed import Scheduler, Worker


LOOK_S = 0.2

DIED = "the Dask worker that ran it died"


@dataclass(frozen=True)
class RemoteTask(Generic[T]):
    """A task, and how to run it."""

    task: T
    #: function, modules: As for `run_pool`.
    function: Callable[[T], Any]
    modules: tuple[str, ...]
    #: Seconds after which the process is killed.
    limit_s: float
    #: Whether it may start processes of its own.
    alone: bool
    #: Of the Dask events that carry its news.
    topic: str


_idle: dict[int, tuple[object, TaskProcess[Any]]] = {}
"""By thread: the kernel ends a process with the thread that has started it."""


def run_one(job: RemoteTask[T]) -> Ending[T]:
    """Run a task, in a thread of a Dask worker that waits for its process."""
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
            heard = wait([process.pipe], timeout=LOOK_S)
            ending = process.ending(bool(heard))
            if ending is None and not _is_wanted(worker):
                raise PoolError("the study no longer waits for this run")
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
    """Whether a study still waits for the task of this thread."""
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state == "executing"


def end_idle() -> None:
    """End the processes that wait for another task."""
    while _idle:
        _, (_, process) = _idle.popitem()
        process.kill()


if TYPE_CHECKING:
    from distributed import Client, Future


POLL_S = 0.5
"""How often we look for new workers, and whether the scheduler is there."""


def run_on_dask(
    tasks: Iterable[T | None],
    function: Callable[[T], Any],
    *,
    client: Client,
    hard_limit_s: Callable[[T], float],
    modules: Sequence[str] = (),
    on_news: Callable[[Any], None] = lambda news: None,
) -> Generator[Ending[T]]:
    """Run ``function(task)`` on a Dask cluster; yield each task's ending as it comes.

    Tasks are drawn when the cluster has a free thread. Closing the generator, or an exception in
    its consumer, ends what runs. The workers must be able to import the modules. `on_news` is
    called from another thread, with what tasks `send_news` of; arguments are those of `run_pool`.
    """
    queue = iter(tasks)
    busy: dict[Future[Any], T] = {}
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    exhausted = False
    topic = f"placegap-{uuid.uuid4().hex}"
    client.subscribe_topic(topic, lambda event: on_news(event[1]))
    try:
        while True:
            slots = _slots(client)
            while not exhausted and len(busy) < max(1, slots):
                try:
                    task = next(queue)
                except StopIteration:
                    exhausted = True
                    break
                if task is None:  # not yet
                    break
                limit_s = hard_limit_s(task)
                job = RemoteTask(task, function, tuple(modules), limit_s, slots == 1, topic)
                future = client.submit(run_one, job, key=f"placegap-{uuid.uuid4().hex}")
                busy[future] = task
                future.add_done_callback(ended.put)
            if exhausted and not busy:
                return
            try:
                over = _next(ended)
                if over is None:
                    continue
                ending = _ending(over, busy[over], client)
            except KeyboardInterrupt:
                yield from _returned(busy, client)
                raise
            del busy[over]
            _drop_claim(over, client)
            yield ending
    finally:
        _end(busy, client, topic)


def _slots(client: Client) -> int:
    try:
        if client.status == "running":
            return num_slots(client)
    except (OSError, TimeoutError):
        pass
    raise _lost(client)


def _lost(client: Client) -> PoolError:
    address = client.scheduler.address if client.scheduler else "its address"
    return PoolError(f"the Dask scheduler at {address} is gone")


def _next(ended: SimpleQueue[Future[Any]]) -> Future[Any] | None:
    """A future that has ended; None if there is none after a while."""
    try:
        with allowed():
            return ended.get(timeout=POLL_S)
    except Empty:
        return None


def _ending(future: Future[Any], task: T, client: Client) -> Ending[T]:
    """How a task ended, from a future that is done."""
    from distributed import KilledWorker

    try:
        with allowed():
            ending: Ending[T] = future.result()
    except KilledWorker:
        return Ending(task, "crashed", None, DIED, 0.0)
    except PoolError as error:
        raise PoolError(f"on Dask, {error}") from None
    except CancelledError:
        if client.status == "running":
            raise PoolError("the study's tasks on Dask were cancelled") from None
        raise _lost(client) from None
    except (ImportError, AttributeError, RuntimeError, UnpicklingError) as error:
        # placegap is not there, or another version of it
        raise PoolError(
            f"a Dask worker cannot do it ({one_line(error)}); install the same placegap there"
        ) from None
    return replace(ending, task=task)


def _returned(busy: Mapping[Future[Any], T], client: Client) -> Generator[Ending[T]]:
    """What has been computed already, and is not read yet."""
    for future, task in busy.items():
        if future.status == "finished":
            with suppress(PoolError, TimeoutError):
                yield _ending(future, task, client)


def _drop_claim(future: Future[Any], client: Client) -> None:
    from distributed import Event

    with suppress(OSError, TimeoutError):
        Event(future.key, client=client).clear()


def _end(busy: Mapping[Future[Any], T], client: Client, topic: str) -> None:
    """End what still runs, and the processes that wait for more."""
    if client.status != "running":
        return
    with suppress(OSError, TimeoutError, CancelledError):
        client.unsubscribe_topic(topic)
        client.cancel(list(busy))
        for future in busy:
            _drop_claim(future, client)
        client.run(end_idle, on_error="ignore")
