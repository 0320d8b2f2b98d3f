"""``placegap coarsen``: what a transform makes of a model, and a file of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.models import check_json_name
from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    Model,
    UnitOption,
    parse_dims,
    parse_pairs,
    read_instance,
    with_rules,
)
from placegap.experiments.running.placing import Rules
from placegap.experiments.show.rendering import check_outputs, output, plain_table, spinner
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.experiments.show.transform_table import TransformRow
    from placegap.instances.problem.instance import Instance
    from placegap.instances.problem.semantics import Semantics
    from placegap.instances.transforms.table import Claim, Coarsening

SIZE = ("ops", "edges", "ccr")
MEANING: dict[Claim, str] = {
    "exact": "the optimum stays: plans and bounds hold for the model as it is",
    "restriction": "plans hold for the model as it is, bounds do not: the best plan may be lost",
    "neither": "bounds do not hold for the model as it is, and a plan may break one of its rules",
}


@with_rules
def coarsen_command(
    model: Model,
    *,
    transform: Annotated[
        str | None,
        typer.Option("--with", metavar="TRANSFORM", help="Default: a line for each of them."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="Of the transform; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the coarse instance (.json[.gz]).")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Write which op became part of which (.json)."),
    ] = None,
    cluster: ClusterOption = None,
    rules: Rules,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge ops of a model: sizes before and after, and whether the best plan can be lost.

    The semantics that the options choose decides the latter. `place --coarsen` uses the same
    transforms and brings the plan back.
    """
    from placegap.experiments.running.sources import Source
    from placegap.experiments.show.transform_table import table_rows
    from placegap.instances.transforms.table import coarsen, find_transform

    for path in filter(None, (out, map_file)):
        check_json_name(path)
    check_outputs(out, map_file)
    params = parse_pairs(param or ())
    if transform is None and (params or out or map_file):
        raise InputError("--param, -o and --map belong to one transform: name it by --with")
    if transform is not None:
        find_transform(transform, params)
    instance = read_instance(Source(model, cluster, time_unit, dims=parse_dims(dim)))
    semantics = rules.override(instance.semantics)
    with spinner(f"coarsening {instance.name}"):
        if transform is None:
            rows = table_rows(instance, semantics)
        else:
            found = coarsen(instance, transform, params, semantics)
    if transform is None:
        _print_all(instance, semantics, rows, as_json)
        return
    _write(found, out, map_file)
    content = {"transform": transform, "claim": found.claim, "semantics": semantics.label}
    print_sizes(instance, found.merge.coarse, f"{transform}, {semantics.label}", content, as_json)
    if not as_json:
        _explain([found.claim])


def _print_all(
    instance: Instance, semantics: Semantics, rows: Sequence[TransformRow], as_json: bool
) -> None:
    """A line per transform, or a JSON list of what they made."""
    from placegap.experiments.show.transform_table import HEAD, row_texts

    if as_json:
        print(json.dumps([row._asdict() for row in rows]), flush=True)
        return
    texts = [row_texts(row, instance.num_ops) for row in rows]
    _print(f"{instance.name}: {semantics.label}", HEAD, texts)
    _explain(row.claim for row in rows)


def print_sizes(
    before: Instance, after: Instance, what: str, content: Mapping[str, object], as_json: bool
) -> None:
    """Sizes of an instance and of what was made of it; as JSON with further `content`."""
    from placegap.experiments.show.transform_table import HEAD, size_of

    sizes = {"before": size_of(before), "after": size_of(after)}
    if as_json:
        named = {when: dict(zip(SIZE, size, strict=True)) for when, size in sizes.items()}
        whole = {"instance": before.name, **content, **named}
        print(json.dumps(whole, ensure_ascii=False), flush=True)
        return
    rows = [(when, *map(str, size)) for when, size in sizes.items()]
    _print(f"{before.name}: {what}", ("", *HEAD[1:4]), rows)


def _print(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = output()
    console.print(title, markup=False, soft_wrap=True)
    console.print(plain_table(None, head, rows))


def _explain(claims: Iterable[Claim | None]) -> None:
    """What the claims that occur mean, a line each."""
    occur = set(claims)
    for claim, meaning in MEANING.items():
        if claim in occur:
            output().print(f"{claim}: {meaning}", markup=False, soft_wrap=True)


def _write(found: Coarsening, out: Path | None, map_file: Path | None) -> None:
    """The coarse instance under a name of its own; the coarse op of each op, by name."""
    from placegap.instances.io.document import Document, save_document, write_json

    fine, coarse = found.merge.fine, found.merge.coarse
    if out is not None:
        place = f"@{fine.cluster.name}"
        name = f"{fine.name.removesuffix(place)}-{found.transform}"
        graph = coarse.graph.model_copy(update={"name": f"{fine.graph.name}-{found.transform}"})
        whole = name + place if fine.name.endswith(place) else name
        document = Document.of(coarse.model_copy(update={"name": whole, "graph": graph}))
        save_document(document, out)
    if map_file is not None:
        names = [op.name for op in coarse.graph.ops]
        ends = zip(fine.graph.ops, found.merge.op.tolist(), strict=True)
        write_json({op.name: names[c] for op, c in ends}, map_file)
