"""``placegap profile`` and ``standard-evaluation``: what was measured, and what is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placegap.experiments.cli.models import check_json_name
from placegap.experiments.cli.options import (
    JsonOption,
    ModelOptions,
    inputs_of,
    parse_dims,
    source_of,
    warn_open,
)
from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.rendering import (
    output,
    plain_table,
    print_json,
    print_line,
    spinner,
    warn,
)
from placegap.instances.files.output_files import attempt, reserve_outputs, write_bytes, write_text
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import DeviceType, TraceOptions, is_traced

if TYPE_CHECKING:
    from placegap.instances.importers.standard_evaluation import Estimate
    from placegap.instances.problem import Instance
    from placegap.instances.torch_models.profile import Profile


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="hf:NAME, hf:CONFIG.json or py:MODULE:FUNCTION.")
    ]
    tracing: TraceOptions
    device: Annotated[DeviceType, typer.Option(help="Where to measure.")] = "cpu"
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="Device kind to write beside the times (default: cpu or cuda). If the catalogue"
            " has it, its rates give the roofline.",
        ),
    ] = None
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the times to this CSV file.")
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, max=1024, help="Threads per op on a CPU (default: torch's)."
        ),
    ] = None
    runs: Annotated[int, typer.Option("--runs", min=1, max=10_000, help="Measured passes.")] = 7
    as_json: JsonOption = False


def profile_command(options: ProfileOptions) -> None:
    """Measure a pass op by op, and compare it with the roofline.

    A pass is forward, or with --train --optimizer none forward and backward. It takes the median of
    7 passes (--runs) after 2 for warm-up. Weights and inputs are random. 'place --times' reads the
    file of --out, in which calls that are not ops count with the op that reads them.
    """
    if not is_traced(options.model):
        raise InputError("only models that are traced can be measured (hf:, py:)", options.model)
    reserve_outputs(options.out, inputs=inputs_of(options))
    from placegap.instances.torch_models.profile import profile_model, times_csv

    with spinner(f"measuring {options.model}"):
        profile = profile_model(
            options.model,
            options.tracing,
            options.device,
            options.kind,
            runs=options.runs,
            threads=options.threads,
        )
    if options.out is not None:
        with attempt(options.out):
            write_text(times_csv(profile), options.out)
    if options.as_json:
        print_json(profile_object(profile))
    else:
        print_profile(profile)


RATES = ("peak_flops_per_s", "bandwidth_bytes_per_s", "launch_overhead_ns", "source")


def profile_object(profile: Profile) -> dict[str, object]:
    """What ``--json`` prints."""
    return {
        "model": profile.model,
        "device_kind": profile.device_kind,
        "measured_ns": sum(op.measured_ns for op in profile.ops),
        "roofline_ns": sum(op.roofline_ns for op in profile.ops),
        "rest_ns": profile.rest_ns,
        "module_ns": profile.module_ns,
        "is_calibrated": profile.is_calibrated,
        "rates": profile.spec.model_dump(mode="json", include=set(RATES)),
        "ops": [vars(op) for op in profile.ops],
    }


def print_profile(profile: Profile) -> None:
    """A table of the kinds of ops, the totals, and where the roofline's rates come from."""
    from placegap.instances.torch_models.profile import by_kind

    rows = [
        (kind, str(count), format_ns(taken), format_ns(modelled), _ratio(taken, modelled))
        for kind, (count, taken, modelled) in by_kind(profile.ops).items()
    ]
    head = ("kind of op", "ops", "measured", "roofline", "measured / roofline")
    output().print(plain_table(f"{profile.model} on {profile.device_kind}", head, rows))
    measured_ns = sum(op.measured_ns for op in profile.ops)
    modelled_ns = sum(op.roofline_ns for op in profile.ops)
    print_line(
        f"all ops  {format_ns(measured_ns)} measured, {format_ns(modelled_ns)} by the roofline"
        f" ({_ratio(measured_ns, modelled_ns)}); other calls {format_ns(profile.rest_ns)}"
    )
    if profile.module_ns is not None:
        sum_ns = measured_ns + profile.rest_ns
        print_line(
            f"module   {format_ns(profile.module_ns)} for a call of all of it,"
            f" {100 * (profile.module_ns / max(1, sum_ns) - 1):+.1f} % compared with the sum"
        )
    spec = profile.spec
    bandwidth = f"{format_bytes(spec.bandwidth_bytes_per_s)}/s"
    print_line(
        f"rates    {max(spec.peak_flops_per_s.values()) / 1e9:.4g} GFLOP/s, {bandwidth},"
        f" {format_ns(spec.launch_overhead_ns)} an op; {spec.source}"
    )


def _ratio(measured_ns: int, modelled_ns: int) -> str:
    return f"{measured_ns / modelled_ns:.2f}" if modelled_ns else "-"


NO_PLAN = 1
FILL = {"order": "dfs", "reach": 1}  # parameters that make order-place sequential placement


@dataclass(frozen=True, kw_only=True)
class StandardEvaluationOptions(ModelOptions):
    measurements: Annotated[
        list[Path], typer.Argument(metavar="CSV...", help="op,device,batch,time_ns,memory_bytes")
    ]
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Batch to estimate; its rows are not used.")
    ]
    out: Annotated[
        Path, typer.Option("-o", "--output", help="The instance: a .json or .json.gz file.")
    ]
    links: Annotated[
        Path | None, typer.Option("--links", metavar="CSV", help="source,target,bytes,time_ns")
    ] = None
    tensors: Annotated[
        Path | None, typer.Option("--tensors", metavar="CSV", help="producer,consumer,batch,bytes")
    ] = None
    measured: Annotated[
        bool, typer.Option("--measured", help="Use values measured at this batch (second step).")
    ] = False
    min_r2: Annotated[
        float, typer.Option("--min-r2", min=0, max=1, help="Warn about fits below this R2.")
    ] = 0.9
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Write the sequential placement, too."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PNG", help="Draw the distribution of the deviations."),
    ] = None
    as_json: JsonOption = False


def standard_evaluation_command(options: StandardEvaluationOptions) -> None:
    """Estimate a model at a large batch from measurements at small ones (Celeritas, 4.2).

    Lines fitted over the batches give the time and memory of each op, and the bandwidth and
    latency of each link. The deviation report compares the estimates with rows measured at the
    batch.
    """
    from placegap.experiments.running.sources import cluster_of, find_model
    from placegap.instances.files.document import save_document
    from placegap.instances.importers.measurements import load_links, load_ops, load_tensors
    from placegap.instances.importers.standard_evaluation import standard_evaluation

    check_json_name(options.out)
    reserve_outputs(options.out, options.plan, options.plot, inputs=inputs_of(options))
    if options.plot is not None and options.plot.suffix != ".png":
        raise InputError("the name must end in .png", options.plot)
    with spinner(f"reading {options.model} and its measurements"):
        document = find_model(options.model, options.time_unit, parse_dims(options.dim))
        chosen = cluster_of(source_of(options)) or document.cluster
        if chosen is None:
            raise InputError(f"{options.model} has no default cluster; pass one (--cluster)")
        found = standard_evaluation(
            document,
            chosen,
            load_ops(options.measurements),
            options.batch,
            links=None if options.links is None else load_links(options.links),
            tensors=None if options.tensors is None else load_tensors(options.tensors),
            use_measured=options.measured,
            min_r2=options.min_r2,
        )
    if options.plot is not None and not found.deviations:
        raise InputError(
            f"no row has batch {options.batch}, so there is nothing to draw; leave out --plot"
        )
    warn_open(document.graph, options.model)
    with attempt(options.out):
        save_document(found.document, options.out)
    if options.plot is not None:
        from placegap.experiments.show.drawing import plot_deviations

        title = f"{found.document.name}: deviations"
        with attempt(options.plot):
            write_bytes(plot_deviations(found.deviations, title), options.plot)
    why = None if options.plan is None else _write_plan(found.document.instance(), options.plan)
    if options.as_json:
        print_json(report(found))
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
    """The deviation report as a table, the links, and all doubts about the estimates."""
    console = output()
    batches = ", ".join(map(str, found.measured_batches)) or "none"
    console.print(
        f"{found.document.name}: batch {found.batch} from batches {batches}{_reach(found)}"
    )
    if found.deviations:
        console.print(plain_table("deviations of the estimates", *_deviation_rows(found)))
    else:
        console.print(f"no row has batch {found.batch}: the estimates are not checked")
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
    from placegap.instances.importers.measurements import EXACT, LEVELS

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
    """The paper's sequential placement: DFS-TOPO order, one device filled after the other."""
    # Why there is none, if so.
    from placegap.instances.files.plan_file import save_plan
    from placegap.instances.problem import Makespan
    from placegap.solvers import run_method
    from placegap.solvers.core.result import with_reason

    own = instance.semantics
    semantics = own if isinstance(own, Makespan) else Makespan()
    result = run_method(instance, semantics, "order-place", FILL)
    if result.plan is None:
        return with_reason(result, instance).message
    with attempt(path):
        save_plan(instance, result.plan, result.semantics, path, result.method)
    return None
