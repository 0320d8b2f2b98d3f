"""How measurements are made: CPU seconds, peak memory, and rows of exact methods.

CPU seconds, of all threads and of programs that are waited for, vary less on a shared machine than
those on the wall do. A placer's process is a fork, so that a large instance need not be handed
over: what starts threads (HiGHS, Mt-KaHyPar) must not have run before in the measuring process.
An exact method runs once in a fresh process, so that the peak memory, Python's own included, is
the run's; a small run before it loads the compiled kernels.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from placegap.experiments.running.provenance import cpu_s
from placegap.instances.problem import Instance, Semantics
from placegap.instances.problem.example import example
from placegap.solvers import run_method

REPEATS = 3
ENOUGH_S = 10.0  # a call is not repeated once this many CPU seconds were spent on it


@dataclass(frozen=True)
class Measured:
    """Least CPU time of a call, peak memory of its process (instance included), and a remark."""

    cpu_s: float
    peak_bytes: int
    remark: str


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
    """Most memory that this process had so far."""
    # Where the kernel tells that of the program alone, for what `resource` says also counts the
    # process that started it.
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


T = TypeVar("T")

# Details that say how large a method found its input; the first that there are, are shown.
COUNTS = ("ideals", "blocks", "jobs")
SMALL_S = 10.0  # for a small run that loads the kernels

HEADER = (
    f"{'exact method and input':58} {'size':>26} {'value ms':>14} {'bound ms':>14} {'gap %':>8}"
    f" {'CPU s':>8} {'wall s':>8} {'MB':>6}  proved by"
)


@dataclass(frozen=True)
class ExactRow:
    """What a run found: ns, seconds of the solve, bytes of its whole process."""

    name: str
    size: str
    status: str
    value_ns: int | None
    bound_ns: int | None
    bound_origin: str
    gap: float | None
    cpu_s: float
    wall_s: float
    peak_bytes: int

    def __str__(self) -> str:
        value, bound = (
            "-" if ns is None else f"{ns / 1e6:.6f}" for ns in (self.value_ns, self.bound_ns)
        )
        gap = "-" if self.gap is None else f"{100 * self.gap:.4f}"
        return (
            f"{self.name:58} {self.size:>26} {value:>14} {bound:>14} {gap:>8} {self.cpu_s:8.2f}"
            f" {self.wall_s:8.2f} {self.peak_bytes / 2**20:6.0f}  {self.bound_origin}"
        )


def apart(cases: Iterable[T], measure: Callable[[T], ExactRow]) -> Iterator[ExactRow]:
    """Measure one case after the other, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for case in cases:
            yield pool.submit(measure, case).result()


def measure(
    name: str,
    instance: Instance,
    semantics: Semantics,
    method: str,
    params: dict[str, object],
    time_limit_s: float,
) -> ExactRow:
    """Solve once, in this process."""
    run_method(example(), semantics, method, time_limit_s=SMALL_S)
    cpu, wall = cpu_s(), time.perf_counter()
    found = run_method(instance, semantics, method, params, time_limit_s=time_limit_s)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    counts = [f"{found.details[key]} {key}" for key in COUNTS if key in found.details][:1]
    return ExactRow(
        name,
        ", ".join(counts),
        found.status,
        found.value_ns,
        found.bound_ns,
        found.bound_origin,
        found.gap,
        cpu,
        wall,
        peak_bytes(),
    )


def workbooks(inputs: Path, pattern: str = "*.xls") -> list[Path]:
    """Moirai's workbooks; none, and a line that says why, where their reader is not installed."""
    found = sorted((inputs / "moirai").glob(pattern))
    if found and find_spec("xlrd") is None:
        print(f"left out, needs xlrd, pip install 'placegap[xls]': {', '.join(map(str, found))}")
        return []
    return found
