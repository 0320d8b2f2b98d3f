"""What Dask costs, and how it scales: ``python -m`` with the name of this module.

The same tasks run in the local pool and on a Dask cluster of this machine, with 1, 2, 4, ...
workers up to the cores: tasks of one second of computing each, and tasks that do nothing. It
takes about four times `--tasks` seconds on any number of cores: the machine should be idle.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os import cpu_count
from typing import Any

from placegap.experiments.running.dask_pool import local_cluster, run_on_dask
from placegap.experiments.running.pool import Ending, run_pool

LIMIT_S = 600.0


def compute(steps: int) -> int:
    """The result of some steps of a fixed computation."""
    state = 1
    for _ in range(steps):
        state = (1103515245 * state + 12345) % 2**31
    return state


def steps_per_s() -> int:
    """How many steps this machine computes in a second, about."""
    began = time.perf_counter()
    compute(10**6)
    return int(10**6 / (time.perf_counter() - began))


def seconds(run: Callable[..., Iterable[Ending[int]]], steps: Sequence[int]) -> float:
    """Seconds for all tasks, once every worker has had one."""
    began = time.perf_counter()
    for ending in run(steps, compute, hard_limit_s=lambda task: LIMIT_S):
        if ending.fate != "done":
            raise RuntimeError(ending.message)
    return time.perf_counter() - began


def row(workers: int, num_tasks: int, steps: int) -> tuple[str, ...]:
    """A line of the table: seconds of the local pool and of Dask, for long tasks and empty ones."""
    pool: Callable[..., Any] = partial(run_pool, workers=workers)
    found = [seconds(pool, [count] * num_tasks) for count in (steps, 0)]
    with local_cluster(workers) as client:
        dask: Callable[..., Any] = partial(run_on_dask, client=client)
        found += [seconds(dask, [count] * num_tasks) for count in (steps, 0)]
    return (str(workers), *(f"{found_s:.1f} s" for found_s in found))


def main() -> None:
    """Print the table in Markdown, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--most", type=int, default=cpu_count() or 1, help="most workers")
    asked = parser.parse_args()
    steps = steps_per_s()
    print(f"{asked.tasks} tasks of {steps} steps (1 s of computing each), and as many of none\n")
    print("| workers | pool | pool, empty | Dask | Dask, empty |\n| --- | --- | --- | --- | --- |")
    workers = 1
    while workers <= asked.most:
        print("| " + " | ".join(row(workers, asked.tasks, steps)) + " |", flush=True)
        workers *= 2


if __name__ == "__main__":
    from placegap.experiments.research.bench import (
        dask_scaling as scaling,  # workers find it by this name
    )

    scaling.main()
