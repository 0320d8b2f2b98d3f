"""Benchmarks of exact methods: made families, the corpus, and published inputs if at hand.

Methods that have proven their value stop; the others use their time limit up. The last rows hold
the portfolio of bounds against what the corpus records: where it proves more, the record is stale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from placegap.experiments.research.bench.measuring import (
    ExactRow,
    apart,
    measure,
    peak_bytes,
    workbooks,
)
from placegap.experiments.research.workloads.partitioning_like import (
    KINDS,
    on_devices,
    partitioning_graph,
)
from placegap.experiments.running.provenance import cpu_s
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
from placegap.instances.problem import Instance, LatencySubgraphs, Makespan, MaxLoad, Semantics
from placegap.solvers.bounds.portfolio import bound
from placegap.solvers.core.result import relative_gap

PORT = Makespan(channels="port")
CHAIN = MaxLoad(plans="chain")
ANY = MaxLoad(plans="any")
CLUSTERS = ("celeritas-4xV100-pcie", "moirai-inter-server")  # four alike, and four all unlike

Rules = Sequence[tuple[Semantics, str]]

CORPUS_S, LIMIT_S, GROWTH_S, RECORDED_S = 20.0, 60.0, 300.0, 3.0  # time limits
BEHIND = "behind"  # status of a recorded bound that the portfolio beats in `RECORDED_S`

RECORD_ANEW = (
    "python -m placegap.experiments.research.record_best --portfolio 60"
    " instances/data/corpus/best-known.json"
)


@dataclass(frozen=True)
class ExactCase:
    """A method on an instance, which is made where it is measured."""

    input: str
    make: Callable[[], Instance]
    semantics: Semantics
    method: str
    limit_s: float

    @property
    def name(self) -> str:
        """Method, input and number of calls."""
        calls = "".join(f" q={n}" for name, n in self.semantics if name == "subgraphs")
        return f"{self.method} {self.input}{calls}"


def growth_cases(*, large: bool = False) -> Iterator[ExactCase]:
    """The ideal DP over chains side by side and blocks of branches, on 2 to 32 devices."""
    # `large` adds ten million ideals.
    chains = [{"chains": c, "length": n} for c, n in ((5, 9), (2, 999), (3, 99), (6, 9))]
    blocks = [{"blocks": 10, "branches": 4, "length": n} for n in (9, 17)]
    rows = [("parallel-chains", params, 8) for params in chains]
    rows += [("blocks", params, 8) for params in blocks]
    rows += [("parallel-chains", chains[2], count) for count in (2, 32)]
    if large:
        rows.append(("parallel-chains", {"chains": 3, "length": 215}, 8))
    for (family, params, count), ratio in product(rows, (0.1, 1.0)):
        sizes = "x".join(map(str, params.values()))
        shape = {**params, "communication_ratio": ratio, "kinds": "V100-32GB:1"}
        make = partial(made, family, shape, f"{count}xV100-32GB, nvlink")
        yield ExactCase(
            f"{family} {sizes} K={count} cc={ratio:g}", make, CHAIN, "ideal-dp", GROWTH_S
        )


def like_cases() -> Iterator[ExactCase]:
    """Graphs like dnn-partitioning's, whose zero-time ops hold bytes, by three methods."""
    # On six accelerators and a host without limits, and on five and eight hosts with memory that
    # binds.
    rules = (
        (CHAIN, "ideal-dp"),
        (ANY, "noncontiguous"),
        (LatencySubgraphs(subgraphs=1), "latency"),
    )
    for family, training, tight in product(KINDS, (False, True), (False, True)):
        words = [f"like {family}", *["training"] * training, *["tight"] * tight]
        for semantics, method in rules:
            make = partial(like, family, training=training, tight=tight)
            yield ExactCase(" ".join(words), make, semantics, method, LIMIT_S)


def wide_cases() -> Iterator[ExactCase]:
    """Generated graphs without cuts; a training graph has three times as many ops."""
    sizes = (("training", 334, 12), ("training", 1_270, 12), ("layered", 1_000, 50))
    for family, ops, width in sizes:
        shape = {"ops": ops, "width": width, "kinds": "V100-32GB:1"}
        make = partial(made, family, shape, CLUSTERS[0])
        name = f"{family} {ops} width {width}"
        yield ExactCase(name, make, PORT, "decomposition", CORPUS_S)


def real_cases(inputs: Path) -> Iterator[ExactCase]:
    """Every exact method for large graphs on what it was made for."""
    for model, cluster in product(corpus_names(ONNX_FAMILY), CLUSTERS):
        make = partial(load_source, Source(model, cluster))
        for semantics, method in (
            (PORT, "decomposition"),
            (CHAIN, "ideal-dp"),
            (ANY, "noncontiguous"),
        ):
            yield ExactCase(f"{model} {cluster}", make, semantics, method, CORPUS_S)
    published = inputs / "dnn-partitioning"
    calls = [(LatencySubgraphs(subgraphs=q), "latency") for q in (1, 2)]
    groups: tuple[tuple[list[Path], Rules], ...] = (
        (workbooks(inputs), [(PORT, "decomposition")]),
        (
            sorted((published / "throughput-inputs").glob("*/*.json")),
            [(CHAIN, "ideal-dp"), (ANY, "noncontiguous")],
        ),
        (sorted((published / "latency-inputs").glob("*/*.json")), calls),
    )
    for paths, rules in groups:
        for path, (rule, method) in product(paths, rules):
            make = partial(load_source, Source(str(path)))
            yield ExactCase(f"{path.parent.name}/{path.stem}", make, rule, method, LIMIT_S)


def made(family: str, shape: dict[str, object], cluster: str) -> Instance:
    """A graph of a family on a cluster."""
    graph = generate(family, shape, seed=1)
    return Document(name=graph.name, graph=graph).instance(load_cluster(cluster))


def like(family: str, *, training: bool, tight: bool) -> Instance:
    """A graph like dnn-partitioning's, weights apart, on its devices."""
    graph = partitioning_graph(family, training=training, apart=True)
    return on_devices(graph, 5, 8, memory_share=1.5) if tight else on_devices(graph, 6, 1)


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
        if entry.value_ns != entry.bound_ns and entry.semantics.plan_class != "convex":
            yield RecordedCase(entry)


def exact_rows(inputs: Path, *, large: bool = False, only: str = "") -> Iterator[ExactRow]:
    """Run the cases whose names contain `only`."""
    cases = (growth_cases(large=large), like_cases(), wide_cases(), real_cases(inputs))
    yield from apart((case for part in cases for case in part if only in case.name), run)
    recorded = recorded_cases(load_best_known())
    yield from apart((case for case in recorded if only in case.name), run_recorded)


def run(case: ExactCase) -> ExactRow:
    """Run a case in this process."""
    params: dict[str, object] = {"max_ideals": 10**8} if case.method == "ideal-dp" else {}
    return measure(case.name, case.make(), case.semantics, case.method, params, case.limit_s)


def run_recorded(case: RecordedCase) -> ExactRow:
    """Let the portfolio prove what it can in seconds; the row says if the record is behind."""
    entry = case.entry
    instance = load_corpus(entry.graph).instance(load_cluster(entry.cluster))
    for _ in range(2):  # the first time compiles, and its limit runs meanwhile
        cpu, wall = cpu_s(), time.perf_counter()
        found = bound(instance, entry.semantics, RECORDED_S, best_ns=entry.value_ns)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    is_behind = found.value > (entry.bound_ns or 0) and entry.content_hash == instance.content_hash
    said = f"; the recorded bound is BEHIND: {entry.bound_ns} ns" if is_behind else ""
    return ExactRow(
        case.name,
        "",
        BEHIND if is_behind else "kept",
        entry.value_ns,
        found.value,
        found.origin + said,
        relative_gap(entry.value_ns, found.value),
        cpu,
        wall,
        peak_bytes(),
    )
