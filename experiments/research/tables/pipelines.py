"""Iteration times of pipelines, as experiments/research/data/pipelines.csv has them.

``python -m placegap.experiments.research.tables.pipelines [MODEL ...]`` prints one table: language
models as chains of layers (`instances.corpus.layer_chains`) in p stages with m microbatches, by an
even split, by max_load's optimum, by the proposal for PyTorch, and by stage-cuts with its proof.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from placegap.experiments.research.tables.named_rows import print_named_rows
from placegap.instances.corpus.layer_chains import MODELS, SHAPES, layer_chain
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import cost_graph
from placegap.instances.problem import Cluster, Device, Graph, Instance, Link, PipelineIteration
from placegap.solvers import Result, run_method

STAGES, ROUNDS = (2, 4, 8, 16), (1, 2, 4, 8)
METHODS = ("even-split", "heaviest-stage", "simulated-moves")
HEADS = ("model", "p", "m", "even split", "max_load", "proposal", "stage-cuts", "gap", "s")
TIME_LIMIT_S = 60.0


def pipeline_of(graph: Graph, count: int) -> Instance:
    """The graph on H200, each in a server of its own."""
    # Their links carry 50 GB/s (InfiniBand NDR, 400 Gb/s) after 5 us.
    kind, names = "H200", [f"h200-{k}" for k in range(count)]
    memory_bytes = catalogue()[kind].memory_bytes
    cluster = Cluster(
        name=f"{count}x{kind}",
        devices=tuple(Device(name=name, kind=kind, memory_bytes=memory_bytes) for name in names),
        links=tuple(
            Link(source=a, target=b, bandwidth_bytes_per_s=50 * 10**9, latency_ns=5000)
            for a in names
            for b in names
            if a != b
        ),
    )
    graph = cost_graph(graph, cluster, compute_percent=50, bandwidth_percent=80)
    return Instance(name=f"{graph.name}-{count}", graph=graph, cluster=cluster)


def rows(names: Sequence[str], stages: Sequence[int] = STAGES) -> Iterator[tuple[str, ...]]:
    """One row per model, number of devices and number of microbatches."""
    # Methods are shown by how far their iteration is above the bound of stage-cuts; stage-cuts by
    # its time in ms.
    for name in names:
        graph = layer_chain(name)
        for count in stages:
            instance = pipeline_of(graph, count)
            for factor in ROUNDS:
                semantics = PipelineIteration(microbatches=factor * count)
                best = run_method(instance, semantics, "stage-cuts", time_limit_s=TIME_LIMIT_S)
                others = [
                    run_method(instance, semantics, method, time_limit_s=TIME_LIMIT_S)
                    for method in METHODS
                ]
                yield (
                    name,
                    str(count),
                    str(factor * count),
                    *(_above(o, best) for o in others),
                    *_proof(best),
                    f"{best.solve_s:.1f}",
                )


def _above(result: Result, best: Result) -> str:
    """How far a plan is above the bound, or that it has none that fits."""
    if result.value_ns is None or not best.bound_ns:
        return "does not fit"
    return f"+{100 * (result.value_ns / best.bound_ns - 1):.1f} %"


def _proof(best: Result) -> tuple[str, str]:
    if best.value_ns is None or best.gap is None:
        return "none fits", "proven" if best.status == "infeasible" else "open"
    return f"{best.value_ns / 1e6:.1f}", "0" if best.gap == 0 else f"{100 * best.gap:.2f} %"


def main(names: Sequence[str]) -> None:
    """Print the table of the named models, or of all, row by row."""
    print_named_rows(HEADS, SHAPES, list(names) or MODELS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
