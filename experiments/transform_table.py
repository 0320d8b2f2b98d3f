"""Ops, edges and communication ratio before and after every transform.

``python -m placegap.experiments.transform_table [MODEL ...]`` prints the tables of
docs/transforms.md: the corpus and generated graphs on one cluster, then the files that are named,
on the devices that they bring.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from placegap.experiments.sources import Source, load_source
from placegap.instances.corpus import corpus_names
from placegap.instances.errors import InputError
from placegap.instances.flow import communication_ratio, flow_of
from placegap.instances.model import Instance
from placegap.instances.semantics import Semantics
from placegap.instances.transforms import TRANSFORMS, coarsen

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
    Semantics(objective="makespan"),
    Semantics(objective="max_load", plans="chain"),
)


def figures(instance: Instance) -> dict[str, int | float]:
    """Size and communication to computing ratio (Celeritas, equation 1) of an instance."""
    return {
        "ops": instance.num_ops,
        "edges": len(instance.graph.edges),
        "CCR": round(communication_ratio(flow_of(instance.arrays)), 3),
    }


def table_rows(
    instance: Instance,
    semantics: Semantics,
    params: Mapping[str, Mapping[str, object]] | None = None,
) -> list[tuple[str, ...]]:
    """A line for the instance and one per transform, in the order of `HEAD`.

    `params` of transforms by name. A transform that is not for the semantics has no figures.
    """
    rows = [("none", *_texts(figures(instance)), "", "")]
    for name in TRANSFORMS:
        chosen = (params or {}).get(name, {})
        label = " ".join((name, *(f"{key}={value}" for key, value in chosen.items())))
        try:
            found = coarsen(instance, name, chosen, semantics)
        except InputError:
            rows.append((label, "n/a", "", "", "", ""))
            continue
        coarse = found.merge.coarse
        fewer = f"{instance.num_ops / coarse.num_ops:.2f}-fold"
        rows.append((label, *_texts(figures(coarse)), fewer, found.claim))
    return rows


def _texts(sizes: Mapping[str, int | float]) -> tuple[str, ...]:
    return tuple(
        f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in sizes.values()
    )


def markdown_table(instances: Sequence[Instance], semantics: Semantics) -> Iterator[str]:
    """Lines of a table: a row per instance, and "ops / CCR" after each transform."""
    columns = ["graph", "as it is"]
    rows = []
    for instance in instances:
        lines = table_rows(instance, semantics, PARAMS)
        columns[2:] = [line[0] for line in lines[1:]]
        rows.append((instance.graph.name, *(_cell(line) for line in lines)))
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cells)} |"


def _cell(line: tuple[str, ...]) -> str:
    mark = "*" if line[5] == "exact" else ""
    return "n/a" if line[1] == "n/a" else f"{line[1]} / {line[3]}{mark}"


def main() -> None:
    """Print the tables; the arguments are files."""
    corpus = [load_source(Source(name, CLUSTER)) for name in corpus_names()]
    drawn = [
        load_source(Source(family, CLUSTER, generated=((*params, ("kinds", KINDS)), 1)))
        for family, params in GENERATED.items()
    ]
    files = [load_source(Source(path)) for path in sys.argv[1:]]
    for semantics in SEMANTICS:
        print(f"**{semantics.label}**, ops / CCR, * = the optimum stays\n")
        for line in markdown_table([*corpus, *drawn, *files], semantics):
            print(line)
        print()


if __name__ == "__main__":
    main()
