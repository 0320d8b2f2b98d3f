"""``placegap convert`` and ``generate``: commands that write graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    Model,
    ParamOption,
    TimesOption,
    UnitOption,
    parse_dims,
    parse_pairs,
    warn_measured,
    warn_open,
    with_tracing,
)
from placegap.experiments.show.rendering import spinner, warn
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import TraceOptions


@with_tracing
def convert_command(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .json or .json.gz file.")],
    *,
    cluster: ClusterOption = None,
    tracing: TraceOptions,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    times: TimesOption = None,
    weight_gradients: Annotated[
        bool,
        typer.Option(
            "--weight-gradients",
            help="Training steps: mark backward ops that only weights need (zero_bubble).",
        ),
    ] = False,
) -> None:
    """Write a model in placegap's own format; with a cluster, as an instance on it."""
    from placegap.experiments.running.sources import (
        check_rates,
        find_cluster,
        find_model,
        on_cluster,
    )
    from placegap.instances.io.document import Document, save_document
    from placegap.instances.problem.gradients import mark_weight_gradients

    check_json_name(out)
    with spinner(f"reading {model}"):
        chosen = None if cluster is None else find_cluster(cluster)
        check_rates(model, chosen, times)
        document = find_model(model, time_unit, parse_dims(dim), tracing)
        if cluster is not None or times is not None:
            document = Document.of(on_cluster(document, chosen, times))
        if weight_gradients:
            graph = mark_weight_gradients(document.graph)
            document = document.model_copy(update={"graph": graph, "best_known": ()})
        save_document(document, out)
    warn_open(document.graph, model)
    if weight_gradients and not any(op.weight_gradient for op in document.graph.ops):
        warn(f"{model}: has no backward ops, so that none is marked; --train makes a training step")
    if times is not None:
        warn_measured(document.graph)


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
    """Write a random graph of a family, or a workload; the same seed gives the same file."""
    from placegap.instances.corpus.generate import generate
    from placegap.instances.corpus.workloads import build_workload, is_workload
    from placegap.instances.io.document import Document, save_document

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
