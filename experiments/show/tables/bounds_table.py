"""Bounds on makespans by themselves: which one wins, how fast, and what the best placer leaves.

One row per family, cluster and channel model, for graphs of 1,000 ops; `--large` adds those of
10,000 and 83,206 ops; `--corpus` takes the networks that ship, on their own clusters. Generated
graphs are of seeds and clusters other than those that any bound was chosen on. The gap is to the
best of some fast placers, or to the recorded value: not the bound alone is to blame for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from rich.table import Table

from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import output
from placegap.instances.corpus.corpus import corpus_names, known_of, load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.io.cluster_file import load_cluster
from placegap.instances.io.document import Document
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.solvers import solve
from placegap.solvers.bounds.cheap_bounds import Bound
from placegap.solvers.bounds.portfolio import improving_bounds
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.result import relative_gap

FAMILIES: tuple[tuple[str, dict[str, int]], ...] = (
    ("layered", {}),
    ("layered", {"width": 50}),
    ("training", {}),
    ("series-parallel", {}),
)
SIZES, LARGE = (1_000,), (10_000, 83_206)
CLUSTERS = ("celeritas-4xV100-pcie", "moirai-inter-server")
PLACERS = ("etf", "heft", "mp-dps", "single-device")
SEED, TIME_LIMIT_S = 7, 20.0
OPS_OF = {"training": 3}
"""A training graph has three times as many ops as its parameter says."""


class BoundRow(NamedTuple):
    """An instance with its semantics, and the value of the best plan that is known."""

    instance: Instance
    semantics: Makespan
    value_ns: int | None


def generated(sizes: tuple[int, ...]) -> Iterator[BoundRow]:
    """Graphs of all families and sizes, with ports and with free channels."""
    for family, shape in FAMILIES:
        for ops in sizes:
            for name in CLUSTERS:
                cluster = load_cluster(name)
                kinds = {device.kind: 1.0 + at for at, device in enumerate(cluster.devices)}
                params = {**shape, "ops": ops // OPS_OF.get(family, 1), "kinds": kinds}
                graph = generate(family, params, seed=SEED)
                title = " ".join([family, *(f"{k}={v}" for k, v in shape.items()), str(ops), name])
                instance = Document(name=title, graph=graph).instance(cluster)
                for semantics in (Makespan(), Makespan(channels="free")):
                    values = [solve(instance, semantics, placer).value_ns for placer in PLACERS]
                    known = [value for value in values if value is not None]
                    yield BoundRow(instance, semantics, min(known, default=None))


def shipped() -> Iterator[BoundRow]:
    """The networks of the corpus on their own clusters, with recorded makespans."""
    for name in corpus_names("networks"):
        document = load_corpus(name)
        if document.cluster is None:
            continue
        instance = document.instance(document.cluster)
        for semantics in (Makespan(), Makespan(memory="peak")):
            for known in known_of(instance, semantics):
                yield BoundRow(instance, semantics, known.value_ns)


def main(arguments: list[str]) -> None:
    """Print the table."""
    sizes = (*SIZES, *LARGE) if "--large" in arguments else SIZES
    table = Table("instance", "semantics", "quick, ms", "bound, ms", "by", "s", "best, ms", "gap")
    for row in shipped() if "--corpus" in arguments else generated(sizes):
        began = now_s()
        found: list[Bound] = list(improving_bounds(row.instance, row.semantics, TIME_LIMIT_S))
        spent, best = now_s() - began, found[-1]
        gap = relative_gap(row.value_ns, best.ns)
        table.add_row(
            row.instance.name,
            row.semantics.label,
            f"{found[0].ns / 1e6:.3f}",
            f"{best.ns / 1e6:.3f}",
            best.origin,
            f"{spent:.1f}",
            "none" if row.value_ns is None else f"{row.value_ns / 1e6:.3f}",
            "unknown" if gap is None else format_gap(gap),
        )
    output().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
