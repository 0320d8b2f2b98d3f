"""The papers' workloads beside what the papers say.

``python -m placegap.experiments.research.bench.workloads`` prints its tables. CCR is Celeritas'
(1): the transfer times of all edges over the times of all ops, on the paper's cluster. Memory is
what all ops keep, of the cluster's accelerators. Seconds are of one processor, for building.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from placegap.experiments.research.workloads.catalogue import (
    build_workload,
    count_parameters,
    workloads,
)
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem.mean_costs import communication_ratio, flow_of

HEADS = (
    *("workload", "ops", "paper", "edges", "paper", "parameters, M", "published", "GFLOP", "CCR"),
    *("paper", "memory", "s"),
)


def table_rows(only: str = "") -> Iterator[tuple[str, ...]]:
    """One row of texts per workload whose name contains `only`."""
    for name, workload in workloads().items():
        if only not in name:
            continue
        began = time.process_time()
        document = build_workload(name)
        seconds, graph = time.process_time() - began, document.graph
        instance = document.instance(load_cluster(workload.cluster))
        kept = sum(op.resident_bytes for op in graph.ops)
        room = sum(
            device.memory_bytes or 0 for device in instance.cluster.devices if not device.is_host
        )
        millions = count_parameters(name) / 1e6
        yield (
            name,
            str(len(graph.ops)),
            _beside(len(graph.ops), workload.ops),
            str(len(graph.edges)),
            _beside(len(graph.edges), workload.edges),
            f"{millions:.2f}",
            "-" if workload.parameters is None else _beside(millions, workload.parameters),
            f"{sum(op.flops or 0 for op in graph.ops) / 1e9:.0f}",
            f"{communication_ratio(flow_of(instance.arrays)):.1f}",
            "-" if workload.ccr is None else f"{workload.ccr:.1f}",
            f"{100 * kept / room:.0f} %",
            f"{seconds:.1f}",
        )


def _beside(ours: float, paper: float | None) -> str:
    """What the paper says, and how far ours is from it."""
    if paper is None:
        return "-"
    return f"{paper:.{0 if isinstance(paper, int) else 2}f} ({100 * (ours / paper - 1):+.1f} %)"


def main() -> None:
    """Print the tables; an argument is a part of the names to print."""
    print(f"| {' | '.join(HEADS)} |")
    print(f"|---|{'---:|' * (len(HEADS) - 1)}")
    for row in table_rows(*sys.argv[1:2]):
        print(f"| {' | '.join(row)} |", flush=True)
    print("\n| workload | sizes | written as | open in the paper, so ours |\n|---|---|---|---|")
    for name, workload in workloads().items():
        if name in sys.argv[1:2] or not sys.argv[1:]:
            sizes = ", ".join(f"{key} {size}" for key, size in workload.sizes.items())
            print(f"| {name} | {sizes} | {workload.dialect.means} | {workload.note} |")


if __name__ == "__main__":
    main()
