"""Ops, edges and communication ratio before and after every transform (docs/transforms.md).

``python -m placegap.experiments.research.tables.transforms [MODEL ...]`` prints the tables: the
corpus and generated graphs on one cluster, then the files that are named, on the devices that they
bring.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from placegap.experiments.show.transform_table import TransformRow, row_texts, table_rows
from placegap.instances.corpus.corpus import ONNX_FAMILY, corpus_names, load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.importers.reader import load_model
from placegap.instances.problem import Instance, Makespan, MaxLoad, Semantics

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
SEMANTICS = (Makespan(), MaxLoad(plans="chain"))


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
    files = [load_model(path).instance() for path in sys.argv[1:]]
    instances = [*corpus, *(document.instance(cluster) for document in drawn), *files]
    for semantics in SEMANTICS:
        print(f"**{semantics.label}**, ops / CCR, * = the optimum stays\n")
        for line in markdown_table(instances, semantics):
            print(line)
        print()


if __name__ == "__main__":
    main()
