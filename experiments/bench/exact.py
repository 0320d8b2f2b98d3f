"""Rows of benchmarks of exact methods: one run each in a fresh process, and its value and bound.

A fresh process, so that the peak memory, Python's own included, is the run's. A small run before
it loads the compiled kernels.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from placegap.experiments.research.bench.measuring import cpu_s, peak_bytes
from placegap.instances.problem.example import example
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Semantics
from placegap.solvers import solve

T = TypeVar("T")

COUNTS = ("ideals", "blocks", "jobs")
"""Details that say how large a method found its input; the first that there are, are shown."""

SMALL_S = 10.0
"""For a small run that loads the kernels."""

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
    shown: int = 1,
) -> ExactRow:
    """Solve once, in this process; so many of `COUNTS` are shown."""
    solve(example(), semantics, method, time_limit_s=SMALL_S)
    cpu, wall = cpu_s(), time.perf_counter()
    found = solve(instance, semantics, method, params, time_limit_s=time_limit_s)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    counts = [f"{found.details[key]} {key}" for key in COUNTS if key in found.details][:shown]
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
