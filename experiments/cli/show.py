"""``placegap show``: what a model, an instance or a plan is."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    UnitOption,
    parse_dims,
)
from placegap.experiments.cli.reading import warn_open
from placegap.experiments.show.figures import format_bytes, format_ns
from placegap.experiments.show.rendering import output, plain_table, spinner
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.instances.files.document import Document


def show_command(
    file: Annotated[
        str, typer.Argument(metavar="INSTANCE|PLAN", help="A model, a corpus name, or a plan.")
    ],
    cluster: ClusterOption = None,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Summarize a model, an instance or a plan."""
    from placegap.experiments.running.sources import find_cluster, find_model
    from placegap.instances.files.document import Document

    plan = read_plan(file)
    if plan is not None:
        summary = _plan_summary(plan, file)
    else:
        with spinner(f"reading {file}"):
            document = find_model(file, time_unit, parse_dims(dim))
            chosen = document.cluster if cluster is None else find_cluster(cluster)
            if chosen is not None:
                document = Document.of(document.instance(chosen))
        summary = _document_summary(document)
        warn_open(document.graph, file)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False), flush=True)
    else:
        _print_summary(summary)


def read_plan(file: str) -> dict[str, Any] | None:
    """The parsed file if it is a plan, else None: then it is read as a model."""
    from placegap.instances.files.document import read_json
    from placegap.instances.files.plan_file import is_plan

    if not file.endswith(".json") and not file.endswith(".json.gz"):
        return None
    try:
        raw = read_json(file)
    except InputError:
        return None  # reading it as a model gives the better message
    return raw if is_plan(raw) else None


def _document_summary(document: Document) -> dict[str, Any]:
    """What `show` says about a model or an instance."""
    graph, cluster = document.graph, document.cluster
    kinds = Counter(op.kind for op in graph.ops)
    summary: dict[str, Any] = {
        "name": document.name,
        "ops": len(graph.ops),
        "edges": len(graph.edges),
        "tensors": len(graph.index.tensor_producer),
        "backward_ops": sum(op.backward for op in graph.ops),
        "colocation_groups": len({op.colocation for op in graph.ops} - {None}),
        "resident_bytes": sum(op.resident_bytes for op in graph.ops),
        "parameter_bytes": sum(op.parameter_bytes for op in graph.ops),
        "flops": sum(op.flops or 0 for op in graph.ops),
        "op_kinds": dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        "time_ns": {
            kind: sum(op.time_ns.get(kind, 0) for op in graph.ops)
            for kind in sorted({kind for op in graph.ops for kind in op.time_ns})
        },
        "semantics": None if document.semantics is None else document.semantics.label,
        "source": graph.provenance.source,
        "licence": graph.provenance.licence,
        "changes": list(graph.provenance.changes),
    }
    if cluster is not None:
        summary["cluster"] = cluster.name
        summary["devices"] = [
            {"name": d.name, "kind": d.kind, "memory_bytes": d.memory_bytes, "is_host": d.is_host}
            for d in cluster.devices
        ]
        summary["links"] = len(cluster.links)
    return summary


def _plan_summary(raw: dict[str, Any], file: str) -> dict[str, Any]:
    """What `show` says about a plan."""
    from pydantic import ValidationError

    from placegap.instances.files.plan_file import PlanFile
    from placegap.instances.reading.errors import from_validation_error

    try:
        plan = PlanFile.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, file) from None
    places = Counter(
        place for on in plan.placement.values() for place in ((on,) if isinstance(on, str) else on)
    )
    return {
        "plan_of": plan.instance,
        "instance_hash": plan.instance_hash,
        "semantics": plan.semantics.label,
        "method": plan.method,
        "ops": len(plan.placement),
        "ops_per_device": dict(sorted(places.items())),
        "device_order": plan.device_order is not None,
        "channel_order": plan.channel_order is not None,
    }


def _print_summary(summary: dict[str, Any]) -> None:
    console = output()
    devices = summary.pop("devices", None)
    rows = []
    for name, value in summary.items():
        if value in (None, "", 0, [], {}):
            continue
        rows.append((name.replace("_", " ").removesuffix(" bytes").removesuffix(" ns"),
                     _summary_text(name, value)))  # fmt: skip
    console.print(plain_table(None, ("", ""), rows))
    if devices is not None:
        memory = [d["memory_bytes"] for d in devices]
        console.print(
            plain_table(
                None,
                ("device", "kind", "memory", "host"),
                [
                    (d["name"], d["kind"], "no limit" if m is None else format_bytes(m),
                     "host" if d["is_host"] else "")
                    for d, m in zip(devices, memory, strict=True)
                ],
            )
        )  # fmt: skip


def _summary_text(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name == "time_ns":
        return ", ".join(f"{kind} {format_ns(time)}" for kind, time in value.items())
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, list):
        return "; ".join(value)
    return "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
