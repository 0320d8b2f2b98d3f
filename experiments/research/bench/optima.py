"""Benchmarks of exact methods on real graphs: the corpus, and published inputs if at hand.

Methods that have proven their value stop; the others use their time limit up. The last rows hold
the portfolio of bounds against what the corpus records: where it proves more, the record is stale.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from placegap.experiments.research.bench.measuring import (
    ExactRow,
    apart,
    cpu_s,
    measure,
    peak_bytes,
    workbooks,
)
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.corpus.corpus import (
    ONNX_FAMILY,
    BestEntry,
    corpus_names,
    load_best_known,
    load_corpus,
)
from placegap.instances.corpus.generate import generate
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.problem import LatencySubgraphs, Makespan, MaxLoad, Semantics, plan_class
from placegap.solvers.bounds.portfolio import bound
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import relative_gap
from placegap.solvers.core.starts import best_start, placers

PORT = Makespan(channels="port")
CHAIN = MaxLoad(plans="chain")
ANY = MaxLoad(plans="any")
CLUSTERS = ("celeritas-4xV100-pcie", "moirai-inter-server")
"""Four alike, and four of which no two are."""

CORPUS_S, PUBLISHED_S, RECORDED_S = 20.0, 60.0, 3.0
"""Time limits."""

BEHIND = "behind"
"""Status of a recorded bound that the portfolio beats in `RECORDED_S`."""

RECORD_ANEW = (
    "python -m placegap.experiments.research.record_best --portfolio 60"
    " instances/data/corpus/best-known.json"
)


@dataclass(frozen=True)
class OptimumCase:
    """A method on an instance."""

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
class Wide:
    """A generated graph without cuts; every device holds `share` of all bytes, if that is given."""

    family: str
    ops: int
    width: int
    share: float | None = None

    @property
    def name(self) -> str:
        """Method, family, size, memory."""
        memory = "" if self.share is None else f" memory {self.share:.0%}"
        return f"decomposition {self.family} {self.ops} width {self.width}{memory}"


WIDE = (
    Wide("training", 334, 12),
    Wide("training", 1_270, 12),
    Wide("layered", 1_000, 50),
    Wide("layered", 3_810, 50),
    Wide("training", 334, 12, 0.4),
    Wide("layered", 60, 4, 0.3),
)
"""A training graph has three times as many ops."""


@dataclass(frozen=True)
class RecordedCase:
    """What the portfolio proves now of an instance whose optimum is not recorded."""

    entry: BestEntry

    @property
    def name(self) -> str:
        """Graph and cluster, and its semantics."""
        return f"portfolio {' '.join(self.entry.key)}"


def recorded_cases(entries: Iterable[BestEntry]) -> Iterator[RecordedCase]:
    """Those that are open; a bound on plans of any kind is one on convex ones, too."""
    for entry in entries:
        if entry.value_ns != entry.bound_ns and plan_class(entry.semantics) != "convex":
            yield RecordedCase(entry)


def optima_rows(inputs: Path, only: str = "") -> Iterator[ExactRow]:
    """Run the cases whose names contain `only`."""
    yield from apart((case for case in WIDE if only in case.name), run_wide)
    yield from apart((case for case in cases(inputs) if only in case.name), run)
    recorded = recorded_cases(load_best_known())
    yield from apart((case for case in recorded if only in case.name), run_recorded)


def cases(inputs: Path) -> Iterator[OptimumCase]:
    """Every exact method for large graphs on what it was made for."""
    for model in corpus_names(ONNX_FAMILY):
        for cluster in CLUSTERS:
            source = Source(model, cluster)
            yield OptimumCase(source, PORT, "decomposition", CORPUS_S)
            yield OptimumCase(source, CHAIN, "ideal-dp", CORPUS_S)
            yield OptimumCase(source, ANY, "noncontiguous", CORPUS_S)
    for path in workbooks(inputs):
        yield OptimumCase(Source(str(path)), PORT, "decomposition", PUBLISHED_S)
    published = inputs / "dnn-partitioning"
    for path in sorted((published / "throughput-inputs").glob("*/*.json")):
        yield OptimumCase(Source(str(path)), CHAIN, "ideal-dp", PUBLISHED_S)
        yield OptimumCase(Source(str(path)), ANY, "noncontiguous", PUBLISHED_S)
    for path in sorted((published / "latency-inputs").glob("*/*.json")):
        for calls in (1, 2):
            semantics = LatencySubgraphs(subgraphs=calls)
            yield OptimumCase(Source(str(path)), semantics, "latency", PUBLISHED_S)


def run(case: OptimumCase) -> ExactRow:
    """Run a case in this process."""
    instance = load_source(case.source)
    return measure(case.name, instance, case.semantics, case.method, {}, case.time_limit_s)


def run_recorded(case: RecordedCase) -> ExactRow:
    """Let the portfolio prove what it can in seconds; the row says if the record is behind."""
    entry = case.entry
    instance = load_corpus(entry.graph).instance(load_cluster(entry.cluster))
    for _ in range(2):  # the first time compiles, and its limit runs meanwhile
        cpu, wall = cpu_s(), time.perf_counter()
        found = bound(instance, entry.semantics, RECORDED_S, best_ns=entry.value_ns)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    is_behind = found.ns > (entry.bound_ns or 0) and entry.content_hash == instance.content_hash
    said = f"; the recorded bound is BEHIND: {entry.bound_ns} ns" if is_behind else ""
    return ExactRow(
        case.name,
        "",
        BEHIND if is_behind else "kept",
        entry.value_ns,
        found.ns,
        found.origin + said,
        relative_gap(entry.value_ns, found.ns),
        cpu,
        wall,
        peak_bytes(),
    )


def run_wide(case: Wide) -> ExactRow:
    """Run a case in this process; the best fast placer's value stands where the size does."""
    cluster = load_cluster(CLUSTERS[0])
    shape = {"ops": case.ops, "width": case.width, "kinds": f"{cluster.devices[0].kind}:1"}
    graph = generate(case.family, shape, seed=1)
    if case.share is not None:
        room = int(case.share * sum(op.resident_bytes for op in graph.ops))
        devices = [d.model_copy(update={"memory_bytes": room}) for d in cluster.devices]
        cluster = cluster.model_copy(update={"devices": tuple(devices)})
    instance = Document(name=case.name, graph=graph).instance(cluster)
    task = Task(instance, PORT)
    start = best_start(task, placers(task))
    row = measure(case.name, instance, PORT, "decomposition", {"workers": 1}, CORPUS_S)
    return replace(row, size="-" if start is None else f"placers {start.value_ns / 1e6:.3f}")
