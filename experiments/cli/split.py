"""``placegap split``: a finer model, heavy ops in parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.models import check_json_name, print_sizes
from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    Model,
    UnitOption,
    parse_dims,
    parse_pairs,
    read_instance,
)
from placegap.experiments.show.rendering import check_outputs, output, spinner

if TYPE_CHECKING:
    from placegap.instances.transforms.op_splitting import OpSplit

RULE = "fd-dps"
"""The method whose parameters say what is split."""


def split_command(
    model: Model,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="KEY=VALUE",
            help=f"What is split, and how: a parameter of {RULE} ('placegap methods'); repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the finer instance (.json[.gz]).")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Write which op is part of which (.json)."),
    ] = None,
    cluster: ClusterOption = None,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Split heavy ops of a model into parts and gathers, by the rule of FD-DPS.

    Plans and bounds of the finer instance say nothing about the model as it is.
    """
    from placegap.experiments.running.sources import Source
    from placegap.instances.transforms.split_rule import SplitRule, split_heavy_ops
    from placegap.solvers.core.registry import find_method, parse_params

    for path in filter(None, (out, map_file)):
        check_json_name(path)
    check_outputs(out, map_file)
    rule = SplitRule(**dict(parse_params(find_method(RULE), parse_pairs(param or ()))))
    instance = read_instance(Source(model, cluster, time_unit, dims=parse_dims(dim)))
    with spinner(f"splitting {instance.name}"):
        split = split_heavy_ops(instance, rule)
    _write(split, out, map_file)
    content = {"split_ops": split.num_split, "parts": split.num_parts}
    print_sizes(instance, split.fine, split.summary, content, as_json)
    if not as_json and split.num_split:
        output().print("another instance: its plans and bounds are none of the model as it is")


def _write(split: OpSplit, out: Path | None, map_file: Path | None) -> None:
    """The finer instance; the op that each of its ops is, is a part of, or gathers, by name."""
    from placegap.instances.io.document import Document, save_document, write_json

    if out is not None:
        save_document(Document.of(split.fine), out)
    if map_file is not None:
        names = [op.name for op in split.coarse.graph.ops]
        ends = zip(split.fine.graph.ops, split.op.tolist(), strict=True)
        write_json({op.name: names[i] for op, i in ends}, map_file)
