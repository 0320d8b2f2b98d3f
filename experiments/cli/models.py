"""``placegap convert``, ``generate``, ``coarsen`` and ``split``: commands that write models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.options import (
    JsonOption,
    ModelOptions,
    ParamOption,
    TimedOptions,
    inputs_of,
    load_instance,
    parse_dims,
    parse_pairs,
    source_of,
    warn_measured,
    warn_open,
)
from placegap.experiments.running.rules import Rules
from placegap.experiments.show.rendering import output, plain_table, print_json, spinner, warn
from placegap.instances.files.output_files import attempt, reserve_outputs
from placegap.instances.reading.checkout import is_workload, research
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.experiments.show.transform_table import TransformRow
    from placegap.instances.files.document import Document
    from placegap.instances.problem import Cluster, Instance, Semantics
    from placegap.instances.transforms.op_splitting import OpSplit
    from placegap.instances.transforms.table import Claim, Coarsening


SPLIT_RULE = "fd-dps"  # the method whose parameters say what is split

SIZE = ("ops", "edges", "ccr")
MEANING: dict[Claim, str] = {
    "exact": "keeps the optimum: plans and bounds also hold for the original model",
    "restriction": "may lose the best plan: plans also hold for the original model, bounds do not",
    "neither": "bounds do not hold for the original model, and a plan may violate its constraints",
}


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ModelOptions, TimedOptions):
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .json or .json.gz file.")]
    weight_gradients: Annotated[
        bool,
        typer.Option(
            "--weight-gradients",
            help="Training steps: mark backward ops that only weight updates need (zero_bubble).",
        ),
    ] = False
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            metavar="DxT:MODE",
            help="Layers with modes: one of D pipelines with stages of T devices, as a model for"
            " pipeline_iteration.",
        ),
    ] = None


def convert_command(options: ConvertOptions) -> None:
    """Write a model in placegap's own format; with a cluster, as an instance on it."""
    from placegap.experiments.running.sources import (
        check_rates,
        cluster_of,
        costed_by,
        find_model,
        load_source,
        on_cluster,
    )
    from placegap.instances.files.document import Document, save_document
    from placegap.instances.problem.gradients import mark_weight_gradients

    check_json_name(options.out)
    reserve_outputs(options.out, inputs=inputs_of(options))
    with spinner(f"reading {options.model}"):
        source = source_of(options)
        chosen = cluster_of(source)
        check_rates(options.model, chosen, options.times)
        document = find_model(
            options.model, options.time_unit, parse_dims(options.dim), options.tracing
        )
        if options.costs is not None:
            document = costed_by(document, options.costs)
        if source.engine is not None:
            graph = source.engine.noted_in(document.graph)
            document = document.model_copy(update={"graph": graph})
        if options.cluster is not None or options.times is not None:
            document = Document.of(on_cluster(document, chosen, options.times))
        if source.measured:
            document = Document.of(load_source(source))
        if options.weight_gradients:
            graph = mark_weight_gradients(document.graph)
            if graph != document.graph:
                document = document.model_copy(update={"graph": graph, "best_known": ()})
        if options.pipeline is not None:
            document = _one_pipeline(options.pipeline, document, chosen, options.model)
        save_document(document, options.out)
    warn_open(document.graph, options.model)
    if options.weight_gradients and not any(op.weight_gradient for op in document.graph.ops):
        warn(f"{options.model}: has no backward ops to mark; --train makes a training step")
    if options.times is not None:
        warn_measured(document.graph)


def _one_pipeline(stated: str, document: Document, chosen: Cluster | None, model: str) -> Document:
    """What ``--pipeline`` makes of a model with its own devices, or others."""
    from placegap.instances.files.document import Document
    from placegap.instances.problem import HybridPipeline
    from placegap.instances.transforms.one_pipeline import one_pipeline

    read = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5}):(.+)", stated)
    if read is None:
        raise InputError(f"--pipeline {stated!r} is not DxT:MODE, such as 8x1:keep", model)
    cluster = chosen or document.cluster
    if cluster is None:
        raise InputError("--pipeline needs devices: name a cluster (--cluster)", model)
    rules = document.semantics
    if not isinstance(rules, HybridPipeline):
        rules = HybridPipeline()
    degrees = int(read[1]), int(read[2])
    folded, semantics = one_pipeline(document.instance(cluster), rules, degrees, read[3])
    return Document.of(folded).model_copy(update={"semantics": semantics})


def generate_command(
    family: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY", help="A family of graphs (see 'instances'), or a workload."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .json or .json.gz file.")],
    param: ParamOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Write a random graph of a family, or a workload; the same seed gives the same file."""
    from placegap.instances.corpus.generate import generate
    from placegap.instances.files.document import Document, save_document

    check_json_name(out)
    reserve_outputs(out)
    params = parse_pairs(param or ())
    with spinner(f"generating {family}"):
        if is_workload(family):
            document = research("workloads.catalogue", family).build_workload(family, params)
        else:
            graph = generate(family, params, seed)
            document = Document(name=graph.name, graph=graph)
        save_document(document, out)


def check_json_name(path: Path) -> None:
    """Refuse names of other files than .json and .json.gz."""
    if not path.name.endswith((".json", ".json.gz")):
        raise InputError("the name must end in .json or .json.gz", path)


@dataclass(frozen=True, kw_only=True)
class CoarsenOptions(ModelOptions):
    transform: Annotated[
        str | None,
        typer.Option("--with", metavar="TRANSFORM", help="Default: a line for each of them."),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="The transform's parameter; repeatable."),
    ] = None
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the coarse instance (.json[.gz]).")
    ] = None
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Write the map from ops to merged ops (.json)."),
    ] = None
    rules: Rules
    as_json: JsonOption = False


def coarsen_command(options: CoarsenOptions) -> None:
    """Merge ops of a model: sizes before and after, and whether the best plan can be lost.

    Whether it can be lost depends on the objective. `place --coarsen` uses the same transforms
    and maps the plan back.
    """
    from placegap.experiments.show.transform_table import table_rows
    from placegap.instances.transforms.table import coarsen, find_transform

    for path in filter(None, (options.out, options.map_file)):
        check_json_name(path)
    reserve_outputs(options.out, options.map_file, inputs=inputs_of(options))
    params = parse_pairs(options.param or ())
    if options.transform is None and (params or options.out or options.map_file):
        raise InputError("--param, -o and --map need a transform (--with)")
    if options.transform is not None:
        find_transform(options.transform, params)
    instance = load_instance(source_of(options))
    semantics = options.rules.override(instance.semantics)
    with spinner(f"coarsening {instance.name}"):
        if options.transform is None:
            rows = table_rows(instance, semantics)
        else:
            found = coarsen(instance, options.transform, params, semantics)
    if options.transform is None:
        _print_all(instance, semantics, rows, options.as_json)
        return
    _write_coarse(found, options.out, options.map_file)
    content = {"transform": options.transform, "claim": found.claim, "semantics": semantics.label}
    print_sizes(
        instance,
        found.merge.coarse,
        f"{options.transform}, {semantics.label}",
        content,
        options.as_json,
    )
    if not options.as_json:
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
    _print_table(f"{instance.name}: {semantics.label}", HEAD, texts)
    _explain(row.claim for row in rows)


def print_sizes(
    before: Instance, after: Instance, what: str, content: Mapping[str, object], as_json: bool
) -> None:
    """Sizes of an instance and of what was made of it; as JSON with further `content`."""
    from placegap.experiments.show.transform_table import HEAD, size_of

    sizes = {"before": size_of(before), "after": size_of(after)}
    if as_json:
        named = {when: dict(zip(SIZE, size, strict=True)) for when, size in sizes.items()}
        print_json({"instance": before.name, **content, **named})
        return
    rows = [(when, *map(str, size)) for when, size in sizes.items()]
    _print_table(f"{before.name}: {what}", ("", *HEAD[1:4]), rows)


def _print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = output()
    console.print(title, soft_wrap=True)
    console.print(plain_table(None, head, rows))


def _explain(claims: Iterable[Claim | None]) -> None:
    """What the claims that occur mean, a line each."""
    occur = set(claims)
    for claim, meaning in MEANING.items():
        if claim in occur:
            output().print(f"{claim}: {meaning}", soft_wrap=True)


def _write_coarse(found: Coarsening, out: Path | None, map_file: Path | None) -> None:
    """The coarse instance under a name of its own; the coarse op of each op, by name."""
    from placegap.instances.files.document import Document, save_document, write_json

    fine, coarse = found.merge.fine, found.merge.coarse
    if out is not None:
        place = f"@{fine.cluster.name}"
        name = f"{fine.name.removesuffix(place)}-{found.transform}"
        graph = coarse.graph.model_copy(update={"name": f"{fine.graph.name}-{found.transform}"})
        whole = name + place if fine.name.endswith(place) else name
        document = Document.of(coarse.model_copy(update={"name": whole, "graph": graph}))
        with attempt(out):
            save_document(document, out)
    if map_file is not None:
        names = [op.name for op in coarse.graph.ops]
        ends = zip(fine.graph.ops, found.merge.op.tolist(), strict=True)
        with attempt(map_file):
            write_json({op.name: names[c] for op, c in ends}, map_file)


@dataclass(frozen=True, kw_only=True)
class SplitOptions(ModelOptions):
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="KEY=VALUE",
            help=f"Which ops are split, and how: a parameter of {SPLIT_RULE} ('placegap"
            " methods'); repeatable.",
        ),
    ] = None
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the finer instance (.json[.gz]).")
    ] = None
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Write the map from parts to ops (.json)."),
    ] = None
    as_json: JsonOption = False


def split_command(options: SplitOptions) -> None:
    """Split heavy ops of a model into parts and gathers, by the rule of FD-DPS.

    Plans and bounds of the split instance do not hold for the model.
    """
    from placegap.instances.transforms.split_rule import SplitRule, split_heavy_ops
    from placegap.solvers.core.registry import find_method, parse_params

    for path in filter(None, (options.out, options.map_file)):
        check_json_name(path)
    reserve_outputs(options.out, options.map_file, inputs=inputs_of(options))
    given = parse_pairs(options.param or ())
    params = dict(parse_params(find_method(SPLIT_RULE), given))
    foreign = sorted(given.keys() - SplitRule.__annotations__.keys())
    if foreign:
        raise InputError(f"{foreign[0]} is about placing ops, not splitting them; leave it out")
    rule = SplitRule(**{name: params[name] for name in SplitRule.__annotations__})
    instance = load_instance(source_of(options))
    with spinner(f"splitting {instance.name}"):
        split = split_heavy_ops(instance, rule)
    _write_finer(split, options.out, options.map_file)
    content = {"split_ops": split.num_split, "parts": split.num_parts}
    print_sizes(instance, split.fine, split.summary, content, options.as_json)
    if not options.as_json and split.num_split:
        output().print("a different instance: its plans and bounds do not hold for the model")


def _write_finer(split: OpSplit, out: Path | None, map_file: Path | None) -> None:
    """The finer instance; the op that each of its ops is, is a part of, or gathers, by name."""
    from placegap.instances.files.document import Document, save_document, write_json

    if out is not None:
        with attempt(out):
            save_document(Document.of(split.fine), out)
    if map_file is not None:
        names = [op.name for op in split.coarse.graph.ops]
        ends = zip(split.fine.graph.ops, split.op.tolist(), strict=True)
        with attempt(map_file):
            write_json({op.name: names[i] for op, i in ends}, map_file)
