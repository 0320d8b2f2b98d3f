"""Benchmarks of exact methods: how far they come on real graphs, in what time and memory.

Each row is one run in a fresh process, so that its peak memory is its own; compiled kernels come
from numba's cache, and the seconds are those of the method, without imports. Methods that have
proven their value stop; the others use their time limit up.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from placegap.experiments.sources import Source, load_source
from placegap.instances.corpus import corpus_names
from placegap.instances.semantics import Semantics
from placegap.solvers import solve

PORT = Semantics(objective="makespan", channels="port")
SAMPLE = Semantics(objective="makespan", channels="free", transfers="per_edge")
CHAIN = Semantics(objective="max_load", plans="chain")
ANY = Semantics(objective="max_load", plans="any")
COUNTS = ("ideals", "blocks", "sections", "parts")
"""Details that say how large a method found its input, the first that there is."""


@dataclass(frozen=True)
class Case:
    """One row: a method on an instance."""

    source: Source
    semantics: Semantics
    method: str
    time_limit_s: float

    @property
    def name(self) -> str:
        """Method, input and, where there is one, cluster."""
        path = Path(self.source.model)
        model = f"{path.parent.name}/{path.stem}" if path.suffix else self.source.model
        words = [self.method, model, self.source.cluster or ""]
        if self.semantics.objective == "latency_subgraphs":
            words.append(f"q={self.semantics.subgraphs}")
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class Row:
    """What a run found, in ns, seconds of wall clock and MB of peak memory."""

    name: str
    size: str
    value_ns: int | None
    bound_ns: int | None
    bound_origin: str
    gap: float | None
    wall_s: float
    peak_mb: float


HEADER = (
    f"{'method and input':56} {'size':>16} {'value ms':>14} {'bound ms':>14} {'gap %':>8}"
    f" {'seconds':>8} {'MB':>6}  proven by"
)


def rows(inputs: Path, only: str = "") -> Iterator[Row]:
    """Run the cases whose names contain `only`, one process each, and yield their rows."""
    chosen = [case for case in cases(inputs) if only in case.name]
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for case in chosen:
            yield pool.submit(measure, case).result()


def cases(inputs: Path) -> Iterator[Case]:
    """Every exact method on the corpus, and on published inputs where they are at hand."""
    for model in corpus_names():
        for cluster in ("celeritas-4xV100-pcie", "moirai-inter-server"):
            source = Source(model, cluster)
            yield Case(source, PORT, "decomposition", 60)
            yield Case(source, CHAIN, "ideal-dp", 60)
            yield Case(source, ANY, "noncontiguous", 60)
    for path in sorted((inputs / "moirai").glob("*.xls")):
        yield Case(Source(str(path)), SAMPLE, "decomposition", 30)
    published = inputs / "dnn-partitioning"
    for path in sorted((published / "throughput-inputs").glob("*/*.json")):
        yield Case(Source(str(path)), CHAIN, "ideal-dp", 60)
        yield Case(Source(str(path)), ANY, "noncontiguous", 120)
    for path in sorted((published / "latency-inputs").glob("*/*.json")):
        for calls in (1, 2):
            semantics = Semantics(objective="latency_subgraphs", subgraphs=calls)
            yield Case(Source(str(path)), semantics, "latency", 120)


def measure(case: Case) -> Row:
    """Run a case in this process."""
    instance = load_source(case.source)
    found = solve(instance, case.semantics, case.method, time_limit_s=case.time_limit_s)
    per_mb = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes there, KiB elsewhere
    return Row(
        name=case.name,
        size=next((f"{found.details[key]} {key}" for key in COUNTS if key in found.details), ""),
        value_ns=found.value_ns,
        bound_ns=found.bound_ns,
        bound_origin=found.bound_origin,
        gap=found.gap,
        wall_s=found.build_s + found.solve_s,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_mb,
    )


def line(row: Row) -> str:
    """A row of the table."""
    value, bound = ("-" if ns is None else f"{ns / 1e6:.6f}" for ns in (row.value_ns, row.bound_ns))
    gap = "-" if row.gap is None else f"{100 * row.gap:.4f}"
    return (
        f"{row.name:56} {row.size:>16} {value:>14} {bound:>14} {gap:>8}"
        f" {row.wall_s:8.2f} {row.peak_mb:6.0f}  {row.bound_origin}"
    )
