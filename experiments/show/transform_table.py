"""Ops, edges and communication ratio before and after every transform.

``python -m placegap.experiments.show.transform_table [MODEL ...]`` prints the tables of
docs/transforms.md: the corpus and generated graphs on one cluster, then the files that are named,
on the devices that they bring.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from placegap.instances.corpus.corpus import ONNX_FAMILY, corpus_names, load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.io.cluster_file import load_cluster
from placegap.instances.io.document import Document
from placegap.instances.io.reader import read_model
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.problem.semantics import Makespan, MaxLoad, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.transforms.table import TRANSFORMS, Claim, coarsen

HEAD = ("transform", "ops", "edges", "CCR", "fewer ops", "best plan")

CLUSTER = "celeritas-4xV100-pcie"
KINDS = "V100-32GB-PCIe:1"
GENERATED: Mapping[str, tuple[tuple[str, int], ...]] = {
    "layered": (("ops", 1000), ("width", 8)),
    "blocks": (("blocks", 9), ("branches", 4), ("length", 2)),
    "fork-join": (("stages", 20), ("width", 18)),
    "training": (("ops", 1000), ("width", 8)),
}
PARAMS: Mapping[str, Mapping[str, object]] = {
    "pesto-merge": {"ops": 50},
    "co-placement": {"fixed_point": "no"},
}
SEMANTICS = (
    Makespan(),
    MaxLoad(plans="chain"),
)


class TransformRow(NamedTuple):
    """What a transform made of an instance; no figures where it is not for the semantics."""

    transform: str
    ops: int | None = None
    edges: int | None = None
    ccr: float | None = None
    claim: Claim | None = None


def size_of(instance: Instance) -> tuple[int, int, float]:
    """Ops, edges and communication to computing ratio (Celeritas, equation 1) of an instance."""
    ratio = round(communication_ratio(flow_of(instance.arrays)), 3)
    return instance.num_ops, len(instance.graph.edges), ratio


def table_rows(
    instance: Instance,
    semantics: Semantics,
    params: Mapping[str, Mapping[str, object]] | None = None,
) -> list[TransformRow]:
    """A row for the instance as it is ("none") and one per transform.

    `params` of transforms by name.
    """
    rows = [TransformRow("none", *size_of(instance))]
    for name in TRANSFORMS:
        chosen = (params or {}).get(name, {})
        label = " ".join((name, *(f"{key}={value}" for key, value in chosen.items())))
        try:
            found = coarsen(instance, name, chosen, semantics)
        except InputError:
            rows.append(TransformRow(label))
            continue
        rows.append(TransformRow(label, *size_of(found.merge.coarse), found.claim))
    return rows


def row_texts(row: TransformRow, num_ops: int) -> tuple[str, ...]:
    """The cells of a row under `HEAD`; `num_ops` are those of the instance as it is.

    Examples
    --------
    >>> row_texts(TransformRow("pesto-merge", 1000, 1200, 0.25, "restriction"), 3000)
    ('pesto-merge', '1,000', '1,200', '0.25', '3.00-fold', 'restriction')
    >>> row_texts(TransformRow("zero-time"), 3000)
    ('zero-time', 'n/a', '', '', '', '')
    """
    if row.ops is None:
        return row.transform, "n/a", "", "", "", ""
    fewer = "" if row.claim is None else f"{num_ops / row.ops:.2f}-fold"
    sizes = (f"{row.ops:,}", f"{row.edges:,}", f"{row.ccr:.3g}")
    return row.transform, *sizes, fewer, row.claim or ""


def markdown_table(instances: Sequence[Instance], semantics: Semantics) -> Iterator[str]:
    """Lines of a table: a row per instance, and "ops / CCR" after each transform."""
    columns = ["graph", "as it is"]
    rows = []
    for instance in instances:
        lines = table_rows(instance, semantics, PARAMS)
        columns[2:] = [line.transform for line in lines[1:]]
        rows.append((instance.graph.name, *(_cell(line) for line in lines)))
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cells)} |"


def _cell(row: TransformRow) -> str:
    mark = "*" if row.claim == "exact" else ""
    _, ops, _, ccr, _, _ = row_texts(row, 0)
    return f"{ops} / {ccr}{mark}" if row.ops else ops


def main() -> None:
    """Print the tables; the arguments are files."""
    cluster = load_cluster(CLUSTER)
    corpus = [load_corpus(name).instance(cluster) for name in corpus_names(ONNX_FAMILY)]
    drawn = [
        Document(name=family, graph=generate(family, {**dict(params), "kinds": KINDS}, seed=1))
        for family, params in GENERATED.items()
    ]
    files = [read_model(path).instance() for path in sys.argv[1:]]
    instances = [*corpus, *(document.instance(cluster) for document in drawn), *files]
    for semantics in SEMANTICS:
        print(f"**{semantics.label}**, ops / CCR, * = the optimum stays\n")
        for line in markdown_table(instances, semantics):
            print(line)
        print()


if __name__ == "__main__":
    main()
