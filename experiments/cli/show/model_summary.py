"""What `show` says about a model, an instance, or a plan whose model is not at hand."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import output, plain_table
from placegap.instances.problem.integers import format_bytes

if TYPE_CHECKING:
    from placegap.instances.io.document import Document
    from placegap.instances.io.plan_file import PlanFile


def document_summary(document: Document) -> dict[str, Any]:
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


def plan_summary(plan: PlanFile) -> dict[str, Any]:
    """What `show` says about a plan without its model."""
    places = Counter(
        place for on in plan.placement.values() for place in ((on,) if isinstance(on, str) else on)
    )
    bound = plan.bound
    return {
        "plan_of": plan.instance,
        "instance_hash": plan.instance_hash,
        "semantics": plan.semantics.label,
        "method": plan.method,
        "value_ns": plan.value_ns,
        "bound_ns": None if bound is None else bound.bound_ns,
        "bound_origin": "" if bound is None else f"stored: {bound.bound_origin}",
        "rests_on": "" if bound is None else bound.rests_on,
        "ops": len(plan.placement),
        "ops_per_device": dict(sorted(places.items())),
        "device_order": plan.device_order is not None,
        "channel_order": plan.channel_order is not None,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """The summary as a table, and its devices as another."""
    console = output()
    devices = summary.pop("devices", None)
    rows = []
    for name, value in summary.items():
        if value in (None, "", 0, [], {}):
            continue
        rows.append(
            (
                name.replace("_", " ").removesuffix(" bytes").removesuffix(" ns"),
                _summary_text(name, value),
            )
        )
    console.print(plain_table(None, ("", ""), rows))
    if devices is not None:
        memory = [d["memory_bytes"] for d in devices]
        console.print(
            plain_table(
                None,
                ("device", "kind", "memory", "host"),
                [
                    (
                        d["name"],
                        d["kind"],
                        "no limit" if m is None else format_bytes(m),
                        "host" if d["is_host"] else "",
                    )
                    for d, m in zip(devices, memory, strict=True)
                ],
            )
        )


def _summary_text(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name in ("value_ns", "bound_ns"):
        return format_ns(value)
    if name == "time_ns":
        return ", ".join(f"{kind} {format_ns(time)}" for kind, time in value.items())
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, list):
        return "; ".join(value)
    return "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
