"""One measurement in a process of its own: CPU seconds, peak memory, a limit that holds.

CPU seconds, of all threads and of programs that are waited for, vary less on a shared machine than
those on the wall do. The process is a fork, so that a large instance need not be handed over: what
starts threads (HiGHS, Mt-KaHyPar) must not have run before in the process that asks.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

REPEATS = 3
ENOUGH_S = 10.0
"""A call is not repeated once so many CPU seconds were spent on it."""


@dataclass(frozen=True)
class Measured:
    """Least CPU time of a call, peak memory of its process (instance included), and a remark."""

    cpu_s: float
    peak_bytes: int
    remark: str


def cpu_s() -> float:
    """CPU seconds of this process and of the programs that it ran."""
    programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + programs.ru_utime + programs.ru_stime


def least_cpu_s(run: Callable[[], object]) -> float:
    """Least CPU time of a few calls, in seconds."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < ENOUGH_S:
        gc.collect()
        began = cpu_s()
        run()
        times.append(cpu_s() - began)
    return min(times)


def peak_bytes() -> int:
    """Most memory that this process had so far.

    Where the kernel tells that of the program alone, for what `resource` says also counts the
    process that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure_apart(
    run: Callable[[], str], warm_up: Callable[[], object], limit_s: float
) -> Measured | str:
    """Measure a call in a fork of this process.

    Parameters
    ----------
    run : callable () -> str
        What is timed; it returns a remark.
    warm_up : callable
        A small call of the same kind: it compiles the kernels, or loads them.
    limit_s : float
        Seconds on the wall, all repetitions included, after which the process is killed.

    Returns
    -------
    Measured or str
        Or why there is no measurement, in words.

    Examples
    --------
    >>> found = measure_apart(lambda: "done", lambda: None, 60)
    >>> found.remark, found.cpu_s < 1
    ('done', True)
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(there, run, warm_up))
    process.start()
    there.close()
    try:
        if not here.poll(limit_s):
            return f"killed after {limit_s:g} s"
        found: Measured | str = here.recv()
        return found
    except EOFError:
        process.join()
        return f"its process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
        here.close()


def _measure(there: Connection, run: Callable[[], str], warm_up: Callable[[], object]) -> None:
    remarks: list[str] = []
    gc.freeze()  # what the fork inherits is no garbage of the call
    try:
        warm_up()
        seconds = least_cpu_s(lambda: remarks.append(run()))
        there.send(Measured(seconds, peak_bytes(), remarks[-1]))
    except Exception as error:
        there.send(f"{type(error).__name__}: {error}")
