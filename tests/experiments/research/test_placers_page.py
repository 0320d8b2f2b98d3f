"""Figures of the page on transforms are those of the fusion today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from placegap.experiments.research.graph_figures import ccr
from placegap.experiments.research.pages import doc_rows
from placegap.instances import Cluster, Device, Instance, Link
from placegap.instances.corpus.generate import generate
from placegap.instances.transforms.table import coarsen

FUSED = doc_rows("transforms.md", "size of")


def first_now(rows: list[Any], name: Callable[[Any], str]) -> list[Any]:
    """The first row of a table is made in every run of the tests, the other ones in deep runs."""
    deep = pytest.mark.deep
    return [pytest.param(row, id=name(row), marks=[deep] * (n > 0)) for n, row in enumerate(rows)]


@pytest.mark.parametrize("row", first_now(FUSED, lambda row: row["size of"]))
def test_the_table_of_fused_training_graphs(row: dict[str, str]) -> None:
    num_ops = int(row["ops"].replace(",", ""))
    shape = {"ops": num_ops // 3, "width": 8, "density": 0.3, "communication_ratio": 20}
    graph = generate("training", shape, seed=1)
    need = sum(op.resident_bytes for op in graph.ops)
    names = [f"gpu{number}" for number in range(4)]
    cluster = Cluster(
        name="four",
        devices=tuple(Device(name=n, kind="gpu", memory_bytes=int(1.5 * need / 4)) for n in names),
        links=tuple(
            Link(source=a, target=b, bandwidth_bytes_per_s=10**10)
            for a in names
            for b in names
            if a != b
        ),
    )
    instance = Instance(name="fused", graph=graph, cluster=cluster)
    fused = coarsen(instance, "celeritas-fusion").merge.coarse
    before, after = ccr(instance), ccr(fused)
    assert row == {
        "size of": row["size of"],
        "ops": f"{instance.num_ops:,}",
        "CCR": f"{before:.1f}",
        "fused ops": f"{fused.num_ops}",
        "CCR after": f"{after:.1f}",
        "fewer ops": f"{instance.num_ops / fused.num_ops:.0f}-fold",
        "lower CCR": f"{before / after:.1f}-fold",
    }
