"""``placegap convert`` and ``generate``: commands that write graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    ParamOption,
    UnitOption,
    parse_dims,
    parse_pairs,
)
from placegap.experiments.cli.reading import warn_assumed
from placegap.experiments.show.rendering import spinner
from placegap.instances.reading.errors import InputError


def convert_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A readable file, a name of the corpus, or a paper's workload."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .json or .json.gz file.")],
    cluster: ClusterOption = None,
    time_unit: UnitOption = None,
    dim: DimOption = None,
) -> None:
    """Write a model in placegap's own format; with a cluster, as an instance on it."""
    from placegap.experiments.running.sources import find_cluster, find_model
    from placegap.instances.files.document import Document, save_document

    check_json_name(out)
    with spinner(f"reading {model}"):
        document = find_model(model, time_unit, parse_dims(dim))
        if cluster is not None:
            document = Document.of(document.instance(find_cluster(cluster)))
        save_document(document, out)
    warn_assumed(document.graph, model)


def generate_command(
    family: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY", help="A family of graphs, or a paper's workload; see 'instances'."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .json or .json.gz file.")],
    param: ParamOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Write a random graph of a family, or a paper's workload; the same seed gives the same file."""
    from placegap.instances.corpus.generate import generate
    from placegap.instances.corpus.workloads.registry import build_workload, is_workload
    from placegap.instances.files.document import Document, save_document

    check_json_name(out)
    params = parse_pairs(param or ())
    with spinner(f"generating {family}"):
        if is_workload(family):
            document = build_workload(family, params)
        else:
            graph = generate(family, params, seed)
            document = Document(name=graph.name, graph=graph)
        save_document(document, out)


def check_json_name(path: Path) -> None:
    """Refuse names of other files than .json and .json.gz."""
    if not path.name.endswith((".json", ".json.gz")):
        raise InputError("the name must end in .json or .json.gz", path)
