"""``placegap methods`` and ``placegap instances``: what there is to choose from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from placegap.experiments.cli.options import JsonOption, ModuleOption
from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import output, plain_table, spinner, warn
from placegap.instances.reading.checkout import has_research, research
from placegap.instances.reading.errors import InputError

METHOD_HEAD = ("method", "claim", "objectives", "paper", "what it does", "parameters")
TABLES = {
    "methods that return plans": ("exact", "heuristic"),
    "bounds: a value that no plan is below, without a plan": ("bound",),
}


def methods_command(module: ModuleOption = None, as_json: JsonOption = False) -> None:
    """List the methods: what each claims, for which objectives, its paper and its parameters."""
    rows = list(_methods())
    if as_json:
        print(json.dumps({"methods": rows}, default=str), flush=True)
        return
    console = output()
    for title, claims in TABLES.items():
        texts = [_method_texts(row) for row in rows if row["claim"] in claims]
        if texts:
            console.print(plain_table(title, METHOD_HEAD, texts, has_lines=True))


def _methods() -> Iterator[dict[str, Any]]:
    """A row for each method; a line on stderr for one that cannot be loaded."""
    with spinner("loading the methods"):
        from placegap.solvers.core.registry import METHODS

    for name in METHODS:
        try:
            method, origin = METHODS[name], METHODS.origin(name)
        except InputError as error:
            warn(str(error))
            continue
        yield {
            "method": name,
            "claim": method.claim,
            "objectives": list(method.objectives),
            "paper": method.citation,
            "summary": method.summary,
            "from": origin,
            "missing": method.missing(),
            "params": {
                key: field.get_default(call_default_factory=True)
                for key, field in method.params.model_fields.items()
            },
        }


def _method_texts(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["method"] + (f"\nfrom {row['from']}" if row["from"] != "placegap" else ""),
        row["claim"],
        "\n".join(row["objectives"]),
        row["paper"],
        row["summary"] + (f"; not installed: {row['missing']}" if row["missing"] else ""),
        "\n".join(f"{name}={_plain(value)}" for name, value in row["params"].items()),
    )


def instances_command(as_json: JsonOption = False) -> None:
    """List graphs and where they come from, clusters, and the catalogue of devices."""
    with spinner("reading the corpus"):
        content = _instances()
    if as_json:
        print(json.dumps(content), flush=True)
        return
    console = output()
    for title, rows in content.items():
        texts = [tuple(_plain(value) for value in row.values()) for row in rows]
        if rows:
            console.print(plain_table(title.replace("_", " "), list(rows[0]), texts))


def _instances() -> dict[str, list[dict[str, Any]]]:
    from placegap.instances.corpus.corpus import corpus_names, load_corpus
    from placegap.instances.corpus.generate import FAMILIES
    from placegap.instances.corpus.layer_chains import SHAPES, TRAIN, chain_names
    from placegap.instances.corpus.measured_chains import DEGREES, MEASURED, PREFIX, RowDegrees
    from placegap.instances.costing.costing import catalogue
    from placegap.instances.files.cluster_file import cluster_names, load_cluster
    from placegap.instances.files.cluster_text import LATENCIES_NS, LINK_KINDS, link_kind
    from placegap.instances.problem.integers import format_bytes
    from placegap.instances.torch_models.presets import presets

    documents = {name: load_corpus(name) for name in corpus_names()}
    clusters = {name: load_cluster(name) for name in cluster_names()}
    workloads = research("workloads.catalogue", "").workloads() if has_research() else {}
    return {
        "corpus": [
            {
                "name": name,
                "ops": len(document.graph.ops),
                "edges": len(document.graph.edges),
                "parameters": format_bytes(sum(op.parameter_bytes for op in document.graph.ops)),
                "GFLOP": f"{sum(op.flops or 0 for op in document.graph.ops) / 1e9:.2f}",
            }
            for name, document in documents.items()
        ],
        "workloads": [
            {
                "name": name,
                "ops in the paper": workload.ops,
                "sizes": " ".join(f"{key}={size}" for key, size in workload.sizes.items()),
                "cluster": workload.cluster,
            }
            for name, workload in workloads.items()
        ],
        "layer_chains": [
            {"name": name, "layers": shape.layers, "hidden": shape.hidden, "tokens": shape.tokens}
            for name in chain_names()
            if (shape := SHAPES.get(name.removesuffix(TRAIN))) is not None
        ],
        "measured_chains": [
            {"name": PREFIX + name, "layers": model.layers, "hidden": model.hidden}
            | dict.fromkeys(RowDegrees._fields, " ".join(map(str, DEGREES)))
            for name, model in MEASURED.items()
        ],
        "clusters": [
            {
                "name": name,
                "devices": len(cluster.devices),
                "kinds": ", ".join(dict.fromkeys(device.kind for device in cluster.devices)),
                "links": len(cluster.links),
            }
            for name, cluster in clusters.items()
        ],
        "device_kinds": [
            {
                "name": name,
                "memory": format_bytes(spec.memory_bytes or 0),
                "TFLOP/s": ", ".join(
                    f"{dtype} {rate / 1e12:.4g}" for dtype, rate in spec.peak_flops_per_s.items()
                ),
                "memory GB/s": f"{spec.bandwidth_bytes_per_s / 1e9:.4g}",
                "NVLink GB/s": f"{spec.nvlink_bytes_per_s / 1e9:g}"
                if spec.nvlink_bytes_per_s
                else "-",
                "source": spec.source,
            }
            for name, spec in sorted(catalogue().items())
        ],
        "kinds_of_links": [
            {
                "name": link.word,
                "GB/s each way": "the cards'"
                if link.bandwidth_bytes_per_s is None
                else f"{link.bandwidth_bytes_per_s / 1e9:g}",
                "latency": format_ns(LATENCIES_NS[link.family])
                if link.family in LATENCIES_NS
                else "the cards'",
            }
            for link in map(link_kind, LINK_KINDS)
        ],
        "traced_models": [
            {
                "name": f"hf:{name}",
                "class": preset.model_class,
                "tokens": preset.seq or "-",
                "configuration": " ".join(f"{key}={value}" for key, value in preset.config.items()),
            }
            for name, preset in presets().items()
        ],
        "families_for_generate": [
            {
                "name": name,
                "summary": family.summary,
                "parameters": " ".join(
                    f"{key}={_plain(field.get_default(call_default_factory=True))}"
                    for key, field in family.params.model_fields.items()
                ),
            }
            for name, family in FAMILIES.items()
        ],
    }


def _plain(value: Any) -> str:
    """A value as ``--param`` takes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ",".join(f"{key}:{_plain(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
