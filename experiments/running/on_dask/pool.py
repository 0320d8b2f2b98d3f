"""`run_pool` on a Dask cluster: Dask says where a task runs, and nothing else.

The tasks run as the local pool runs them (`one_run`), and this process alone hears of their
endings. A Dask worker that dies costs the tasks that it ran: each has crashed, and none is tried
again, whatever the scheduler is set to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pickle import UnpicklingError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from placegap.experiments.running.dask_pool import DIED, RemoteTask, end_idle, num_slots, run_one
from placegap.experiments.running.placing import one_line
from placegap.experiments.running.pool import Ending, PoolError, allowed

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")

POLL_S = 0.5
"""How often we look for new workers, and whether the scheduler is there."""


def run_on_dask(
    tasks: Iterable[T],
    function: Callable[[T], Any],
    *,
    client: Client,
    hard_limit_s: Callable[[T], float],
    modules: Sequence[str] = (),
    on_news: Callable[[Any], None] = lambda news: None,
) -> Generator[Ending[T]]:
    """Run ``function(task)`` on a Dask cluster; yield each task's ending as it comes.

    Tasks are drawn when the cluster has a free thread. Closing the generator, or an exception in
    its consumer, ends what runs.

    Parameters
    ----------
    tasks, function, hard_limit_s, modules
        As for `run_pool`; the workers must be able to import all of them.
    client : Client
        Of the cluster.
    on_news : callable
        Called with what tasks `send_news` of while they run, from another thread; tuples of plain
        values arrive as tuples.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, after the endings of all tasks that have returned.
    PoolError
        If the scheduler is lost, or a worker cannot do a task at all.
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
                limit_s = hard_limit_s(task)
                job = RemoteTask(task, function, tuple(modules), limit_s, slots == 1, topic)
                future = client.submit(run_one, job, key=f"placegap-{uuid.uuid4().hex}")
                busy[future] = task
                future.add_done_callback(ended.put)
            if not busy:
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
    """How a task ended, told by a future that has."""
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
            raise PoolError("somebody has cancelled the study's tasks on Dask") from None
        raise _lost(client) from None
    except (ImportError, AttributeError, RuntimeError, UnpicklingError) as error:
        # placegap is not there, or another version of it
        raise PoolError(
            f"a Dask worker cannot do it ({one_line(error)}); install the same placegap there"
        ) from None
    return replace(ending, task=task)


def _returned(busy: Mapping[Future[Any], T], client: Client) -> Generator[Ending[T]]:
    """What has been computed already, and nobody has read."""
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
