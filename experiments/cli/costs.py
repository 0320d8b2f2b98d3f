"""``placegap costs``: what each kind of op takes on each card, and how much of that is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placegap.experiments.cli.options import (
    CostsOption,
    JsonOption,
    ModelOptions,
    source_of,
    warn_open,
)
from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import output, plain_table, print_json, spinner
from placegap.instances.costing.catalogue import specs_of
from placegap.instances.costing.costing import (
    CostedKernels,
    check_costs,
    cost_kernels,
    roofline_ns,
    with_costs,
)
from placegap.instances.problem import Cluster
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import TraceOptions


@dataclass(frozen=True, kw_only=True)
class CostsOptions(ModelOptions):
    tracing: TraceOptions
    costs: CostsOption = "measured"
    as_json: JsonOption = False


def costs_command(options: CostsOptions) -> None:
    """Print the time of each kind of op on each card, measured or modelled, beside its roofline."""
    from placegap.experiments.running.sources import check_rates, cluster_of, find_model

    source = source_of(options)
    check_costs(options.costs or "measured")
    if options.costs == "roofline":
        raise InputError("costs are compared with rooflines: choose measured or calibrated")
    with spinner(f"reading {options.model}"):
        cluster = cluster_of(source)
        check_rates(options.model, cluster)
        document = find_model(options.model, options.time_unit, source.dims, options.tracing)
        cluster = cluster or document.cluster
        if cluster is None:
            raise InputError("costs are those of cards: name some (--cluster)", options.model)
        ops = tuple(op.model_copy(update={"time_ns": {}}) for op in document.graph.ops)
        graph = document.graph.model_copy(update={"ops": ops})  # all are to be costed
        graph = with_costs(graph, options.costs or "measured")
        found = cost_kernels(graph, specs_of(cluster))
    warn_open(graph, options.model)
    rows = cost_rows(found, cluster)
    if options.as_json:
        print_json({"model": document.name, "costs": found.shares, "rows": rows})
        return
    for kind in found.measured:
        texts = [
            (
                row["op"],
                str(row["ops"]),
                format_ns(row["time_ns"]),
                f"{row['share']:.1%}",
                "measured" if row["is_measured"] else "modelled",
                "-" if row["times_roofline"] is None else f"{row['times_roofline']:.2f}",
            )
            for row in rows
            if row["kind"] == kind
        ]
        head = ("op", "ops", "time", "share", "costs", "of roofline")
        output().print(plain_table(kind, head, texts))
    if found.tables:
        print(found.shares)


def cost_rows(found: CostedKernels, cluster: Cluster) -> list[dict[str, Any]]:
    """A row for each kind of op on each card, measured ones apart, the longest first."""
    specs = specs_of(cluster)
    rows = []
    for kind, measured in found.measured.items():
        sums: dict[tuple[str, bool], list[int]] = {}
        for i, op in enumerate(found.ops):
            roof_ns = roofline_ns(op.flops or 0, op.bytes_moved or 0, specs[kind], dtype=op.dtype)
            total = sums.setdefault((op.kind, i in measured), [0, 0, 0])
            for at, value in enumerate((1, op.time_ns.get(kind, 0), roof_ns)):
                total[at] += value
        whole_ns = max(1, sum(time_ns for _, time_ns, _ in sums.values()))
        for (name, is_measured), (ops, time_ns, roof_ns) in sorted(
            sums.items(), key=lambda item: (-item[1][1], item[0])
        ):
            if time_ns:
                rows.append(
                    {
                        "kind": kind,
                        "op": name,
                        "ops": ops,
                        "time_ns": time_ns,
                        "share": time_ns / whole_ns,
                        "is_measured": is_measured,
                        "times_roofline": time_ns / roof_ns if roof_ns else None,
                    }
                )
    return rows
