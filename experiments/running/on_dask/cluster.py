"""Dask clusters: one that is there already, or one on this machine."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.solvers.core.clock import STOP_SIGNALS
from placegap.solvers.core.method import why_not_installed

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0
"""Most seconds until a scheduler answers."""

CLOSE_S = 5.0


@contextmanager
def cluster_at(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    MissingExtra
        If distributed is not installed.
    InputError
        If no scheduler answers there.
    """
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
    """A client of a new cluster on this machine, of so many workers with one run at a time each.

    Raises
    ------
    MissingExtra
        If distributed is not installed.
    """
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
    """How many runs the cluster's workers take at a time: their threads.

    Raises
    ------
    OSError
        If the scheduler is gone.
    """
    return sum(client.nthreads().values())


def _silence() -> None:
    """Let what placegap says be all that is said; MissingExtra where there is no distributed."""
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
