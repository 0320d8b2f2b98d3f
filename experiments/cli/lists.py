"""``placegap methods`` and ``placegap instances``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from placegap.experiments.cli.options import JsonOption, ModuleOption
from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.method_page import PROVES, details, parameters, plain
from placegap.experiments.show.rendering import output, plain_table, print_json, spinner, warn
from placegap.instances.problem import Objective
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.checkout import has_research, research
from placegap.instances.reading.errors import InputError, look_up

Rows = list[dict[str, Any]]


def methods_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A method, whose page is printed.")
    ] = None,
    objective: Annotated[
        Objective | None, typer.Option(metavar="NAME", help="Only methods for this objective.")
    ] = None,
    module: ModuleOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods, one line each, or print the paper and parameters of one method."""
    rows = [row for row in _methods(name) if objective is None or objective in row["objectives"]]
    if as_json:
        print_json({"methods": rows})
    elif name is not None:
        for row in rows:
            _print_page(row)
    else:
        for claim, proves in PROVES.items():
            texts = [(row["method"], _line(row)) for row in rows if row["claim"] == claim]
            if texts:
                output().print(plain_table(f"{claim}: {proves}", ("method", "what it does"), texts))


def _methods(name: str | None) -> Iterator[dict[str, Any]]:
    """A row for each method, or for one; a line on stderr for one that cannot be loaded."""
    with spinner("loading the methods"):
        from placegap.solvers.core.registry import METHODS, find_method

    for each in METHODS if name is None else (find_method(name).name,):
        try:
            method, origin = METHODS[each], METHODS.origin(each)
        except InputError as error:
            warn(str(error))
            continue
        has = parameters(method.params)
        yield {
            "method": each,
            "claim": method.claim,
            "objectives": list(method.objectives),
            "scope": method.does,
            "paper": method.citation,
            "summary": method.summary.rstrip("."),
            "details": details(method),
            "from": origin,
            "missing": method.missing(),
            "params": {each.name: each.default for each in has},
            "meanings": {each.name: each.meaning for each in has},
        }


def _line(row: dict[str, Any]) -> str:
    more = [f"from {row['from']}"] if row["from"] != "placegap" else []
    more += [f"not installed: {row['missing']}"] if row["missing"] else []
    return "; ".join([row["summary"], *more])


def _print_page(row: dict[str, Any]) -> None:
    console = output()
    console.print(f"{row['method']}: {_line(row)}")
    console.print(f"returns    {PROVES[row['claim']]}")
    console.print(f"for        {row['scope']}")
    console.print(f"paper      {row['paper']}")
    for paragraph in ("", *filter(None, row["details"].split("\n\n"))):
        console.print(" ".join(paragraph.split()))
    texts = [(key, plain(value), row["meanings"][key]) for key, value in row["params"].items()]
    if texts:
        console.print(plain_table(None, ("parameter", "default", "meaning"), texts))


def instances_command(
    section: Annotated[
        str | None, typer.Argument(metavar="SECTION", help="Print this section alone, in full.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List graphs, clusters, kinds of devices and links by name, or print one section in full."""
    wanted = SECTIONS
    if section is not None:
        key = section.replace("-", "_")
        wanted = {key: look_up("section", key, SECTIONS)}
    with spinner("reading the corpus"):
        content = {name: rows() for name, rows in wanted.items()}
    if as_json:
        print_json(content)
    elif section is None:
        texts = [(name, ", ".join(row["name"] for row in rows)) for name, rows in content.items()]
        output().print(plain_table(None, ("section", "names"), texts))
    else:
        for name, rows in content.items():
            shown = [dict(_shown(*item) for item in row.items()) for row in rows]
            if shown:
                grid = [tuple(row.values()) for row in shown]
                output().print(plain_table(name.replace("_", " "), list(shown[0]), grid))


def _shown(key: str, value: Any) -> tuple[str, str]:
    """A column's head and the text of a value."""
    ends: Mapping[str, Callable[[Any], str]] = {
        "_bytes_per_s": lambda rate: f"{rate / 1e9:.4g} GB/s",
        "_flops_per_s": lambda rates: ", ".join(
            f"{dtype} {rate / 1e12:.4g}T" for dtype, rate in rates.items()
        ),
        "_bytes": format_bytes,
        "_ns": format_ns,
        "flops": lambda flops: f"{flops / 1e9:.2f} G",
    }
    for end, text in ends.items():
        if key.endswith(end):
            unit = {"_flops_per_s": " FLOP/s", "flops": "FLOPs"}.get(end, "")
            head = key.removesuffix(end).replace("_", " ") + unit
            return head, "-" if value is None else text(value)
    return key.replace("_", " "), plain(value)


def _corpus() -> Rows:
    from placegap.instances.corpus.corpus import corpus_names, load_corpus
    from placegap.instances.torch_models.presets import presets

    rows, known = Rows(), presets()
    for name in corpus_names():
        graph = load_corpus(name).graph
        has = graph.provenance.parameters
        preset = known.get(name.removesuffix("-train")) if "torch" in has else None
        rows.append(
            {
                "name": name,
                "ops": len(graph.ops),
                "edges": len(graph.edges),
                "parameter_bytes": sum(op.parameter_bytes for op in graph.ops),
                "flops": sum(op.flops or 0 for op in graph.ops),
                "batch": has.get("batch", 1 if preset else None),
                "tokens": has.get("seq", preset.seq if preset else None),
                "dtype": has.get("dtype"),
            }
        )
    return rows


def _workloads() -> Rows:
    found = research("workloads.catalogue", "").workloads() if has_research() else {}
    return [
        {"name": name, "ops_in_paper": one.ops, "sizes": one.sizes, "cluster": one.cluster}
        for name, one in found.items()
    ]


def _layer_chains() -> Rows:
    from placegap.instances.corpus.layer_chains import SHAPES, TRAIN, chain_names

    return [
        {"name": name, "layers": shape.layers, "hidden": shape.hidden, "tokens": shape.tokens}
        for name in chain_names()
        if (shape := SHAPES.get(name.removesuffix(TRAIN))) is not None
    ]


def _measured_chains() -> Rows:
    from placegap.instances.corpus.measured_chains import DEGREES, MEASURED, PREFIX, RowDegrees

    return [
        {"name": PREFIX + name, "layers": model.layers, "hidden": model.hidden}
        | {key: list(DEGREES) for key in RowDegrees._fields}
        for name, model in MEASURED.items()
    ]


def _clusters() -> Rows:
    from placegap.instances.files.cluster_file import cluster_names, load_cluster

    return [
        {
            "name": name,
            "devices": len(cluster.devices),
            "kinds": list(dict.fromkeys(device.kind for device in cluster.devices)),
            "links": len(cluster.links),
        }
        for name, cluster in ((name, load_cluster(name)) for name in cluster_names())
    ]


def _device_kinds() -> Rows:
    from placegap.instances.costing.catalogue import catalogue

    return [
        {
            "name": name,
            "memory_bytes": spec.memory_bytes,
            "peak_flops_per_s": dict(spec.peak_flops_per_s),
            "bandwidth_bytes_per_s": spec.bandwidth_bytes_per_s,
            "nvlink_bytes_per_s": spec.nvlink_bytes_per_s,
            "source": spec.source,
        }
        for name, spec in sorted(catalogue().items())
    ]


def _links() -> Rows:
    from placegap.instances.files.cluster_text import LATENCIES_NS, LINK_KINDS, link_kind

    return [
        {
            "name": link.word,
            "each_way_bytes_per_s": link.bandwidth_bytes_per_s,
            "latency_ns": LATENCIES_NS.get(link.family),
        }
        for link in map(link_kind, LINK_KINDS)
    ]


def _traced_models() -> Rows:
    from placegap.instances.torch_models.presets import presets

    return [
        {
            "name": f"hf:{name}",
            "class": preset.model_class,
            "tokens": preset.seq,
            "configuration": dict(preset.config),
        }
        for name, preset in presets().items()
    ]


def _families() -> Rows:
    from placegap.instances.corpus.generate import FAMILIES

    return [
        {
            "name": name,
            "summary": family.summary,
            "parameters": {
                key: field.get_default(call_default_factory=True)
                for key, field in family.params.model_fields.items()
            },
        }
        for name, family in FAMILIES.items()
    ]


# What ``placegap instances`` lists.
SECTIONS: Mapping[str, Callable[[], Rows]] = {
    "corpus": _corpus,
    "workloads": _workloads,
    "layer_chains": _layer_chains,
    "measured_chains": _measured_chains,
    "clusters": _clusters,
    "device_kinds": _device_kinds,
    "kinds_of_links": _links,
    "traced_models": _traced_models,
    "families_for_generate": _families,
}
