"""``placegap standard-evaluation``: from measurements at small batches to an instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placegap.experiments.cli.models import check_json_name
from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    Model,
    UnitOption,
    parse_dims,
    warn_open,
)
from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.rendering import (
    check_outputs,
    output,
    plain_table,
    print_line,
    spinner,
    warn,
)
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.instances.io.standard_evaluation import Estimate
    from placegap.instances.problem.instance import Instance

NO_PLAN = 1
FILL = {"order": "dfs", "reach": 1}
"""Parameters of order-place that make it the paper's sequential placement."""


def standard_evaluation_command(
    model: Model,
    measurements: Annotated[
        list[Path],
        typer.Argument(metavar="CSV...", help="op,device,batch,time_ns,memory_bytes"),
    ],
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Batch asked for; its rows are held out.")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--output", help="The instance: a .json or .json.gz file.")
    ],
    cluster: ClusterOption = None,
    links: Annotated[
        Path | None, typer.Option("--links", metavar="CSV", help="source,target,bytes,time_ns")
    ] = None,
    tensors: Annotated[
        Path | None, typer.Option("--tensors", metavar="CSV", help="producer,consumer,batch,bytes")
    ] = None,
    measured: Annotated[
        bool,
        typer.Option("--measured", help="Take what was measured at the batch (second step)."),
    ] = False,
    min_r2: Annotated[
        float, typer.Option("--min-r2", min=0, max=1, help="Warn about worse fits.")
    ] = 0.9,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Write the sequential placement, too."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PNG", help="Draw the distribution of the deviations."),
    ] = None,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate a model at a large batch from measurements at small ones (Celeritas, 4.2).

    A line per op through its batches gives time and memory, a line per link its bandwidth and
    latency. Rows of the batch itself are compared with the estimates: the deviation report.
    """
    from placegap.experiments.running.sources import find_cluster, find_model
    from placegap.instances.io.document import save_document
    from placegap.instances.io.measurements import (
        read_links,
        read_ops,
        read_tensors,
    )
    from placegap.instances.io.standard_evaluation import standard_evaluation

    check_json_name(out)
    check_outputs(out, plan, plot)
    if plot is not None and plot.suffix != ".png":
        raise InputError("the name must end in .png", plot)
    with spinner(f"reading {model} and its measurements"):
        document = find_model(model, time_unit, parse_dims(dim))
        chosen = document.cluster if cluster is None else find_cluster(cluster)
        if chosen is None:
            raise InputError(f"{model} brings no devices; choose a cluster (--cluster)")
        found = standard_evaluation(
            document,
            chosen,
            read_ops(measurements),
            batch,
            links=None if links is None else read_links(links),
            tensors=None if tensors is None else read_tensors(tensors),
            use_measured=measured,
            min_r2=min_r2,
        )
    if plot is not None and not found.deviations:
        raise InputError(f"no row is of batch {batch}: there is nothing to draw; leave out --plot")
    warn_open(document.graph, model)
    save_document(found.document, out)
    if plot is not None:
        from placegap.experiments.show.drawing import plot_deviations

        plot.write_bytes(plot_deviations(found.deviations, f"{found.document.name}: deviations"))
    why = None if plan is None else _write_plan(found.document.instance(), plan)
    if as_json:
        print(json.dumps(report(found), ensure_ascii=False), flush=True)
    else:
        print_report(found)
    if why is not None:
        warn(f"no plan: {why}")
        raise typer.Exit(NO_PLAN)


def report(found: Estimate) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "instance": found.document.name,
        "batch": found.batch,
        "measured_batches": list(found.measured_batches),
        "deviations": {name: one.summary() for name, one in found.deviations.items()},
        "links": [vars(fit) for fit in found.links],
        "warnings": [vars(caution) for caution in found.warnings],
    }


def print_report(found: Estimate) -> None:
    """The deviation report as a table, the links, and all that speaks against the estimates."""
    console = output()
    batches = ", ".join(map(str, found.measured_batches)) or "none"
    console.print(
        f"{found.document.name}: batch {found.batch} from batches {batches}{_reach(found)}",
        markup=False,
    )
    if found.deviations:
        console.print(plain_table("deviations of the estimates", *_deviation_rows(found)))
    else:
        console.print(f"no row is of batch {found.batch}: the estimates are not checked")
    if found.links:
        rows = [
            (
                f"{fit.source} -> {fit.target}",
                f"{format_bytes(fit.bandwidth_bytes_per_s)}/s",
                format_ns(fit.latency_ns),
                f"{fit.r2:.4f}",
                str(fit.points),
            )
            for fit in found.links
        ]
        console.print(plain_table("links", ("link", "bandwidth", "latency", "R2", "rows"), rows))
    for caution in found.warnings:
        print_line(f"warning  {caution}")


def _deviation_rows(found: Estimate) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    from placegap.instances.io.measurements import EXACT, LEVELS

    levels = tuple(f"<= {100 * level:g} %" for level in LEVELS)
    head = ("", "compared", "mean", "median", "90 % below", "exact", *levels, "undefined")
    rows = []
    for name, one in found.deviations.items():
        figures = (one.mean, one.quantile(0.5), one.quantile(0.9), one.share_within(EXACT))
        within = tuple(one.share_within(level) for level in LEVELS)
        texts = ("-" if x is None else format_gap(x) for x in (*figures, *within))
        rows.append((name, str(len(one.relative)), *texts, str(one.undefined)))
    return head, rows


def _reach(found: Estimate) -> str:
    """How far the batch lies outside of those measured, in words."""
    if not found.measured_batches:
        return ""
    smallest, largest = found.measured_batches[0], found.measured_batches[-1]
    if found.batch > largest:
        return f", extrapolated {found.batch / largest:.3g}-fold beyond the largest"
    return ", extrapolated below the smallest" if found.batch < smallest else ""


def _write_plan(instance: Instance, path: Path) -> str | None:
    """The paper's sequential placement: DFS-TOPO order, one device filled after the other.

    Why there is none, if so.
    """
    from placegap.instances.io.plan_file import save_plan
    from placegap.instances.problem.semantics import Makespan
    from placegap.solvers import solve
    from placegap.solvers.core.result import with_reason

    own = instance.semantics
    semantics = own if own is not None and own.objective == "makespan" else None
    result = solve(instance, semantics or Makespan(), "order-place", FILL)
    if result.plan is None:
        return with_reason(result, instance).message
    save_plan(instance, result.plan, result.semantics, path, result.method)
    return None
