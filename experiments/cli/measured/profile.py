"""``placegap profile``: the ops of a traced model measured on the device at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.options import JsonOption, with_tracing
from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import (
    check_outputs,
    output,
    plain_table,
    print_line,
    spinner,
)
from placegap.instances.io.document import write_text
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import DeviceType, TraceOptions, is_traced

if TYPE_CHECKING:
    from placegap.instances.torch_models.profile import Profile


@with_tracing
def profile_command(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="hf:NAME, hf:CONFIG.json or py:MODULE:FUNCTION."),
    ],
    *,
    tracing: TraceOptions,
    device: Annotated[DeviceType, typer.Option(help="Where to measure.")] = "cpu",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="Device kind that the times are filed under, by which a cluster asks for them"
            " (cpu or cuda); the roofline is the catalogue's, where it knows the kind.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the times to this CSV file.")
    ] = None,
    cluster_out: Annotated[
        Path | None,
        typer.Option(
            "--cluster-out",
            metavar="FILE",
            help="Write a cluster of processes of this machine, the link between two measured.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=2, max=1024, help="Devices of --cluster-out.")
    ] = 2,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=1024,
            help="Threads of an op on a CPU (default: torch's own). 'placegap run' has one.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, max=10_000, help="Passes that count.")] = 7,
    best: Annotated[
        bool,
        typer.Option("--best", help="The shortest pass counts alone, on a machine that is busy."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a pass op by op, and say how far the roofline was off.

    A pass is forward, or with --train --optimizer none forward and backward. Passes are repeated: 2
    warm up, and of 7 (--runs) the median counts. Weights and inputs are random. What --out writes,
    'place --times' reads; there, calls that are no ops count with the op that reads them.
    """
    if not is_traced(model):
        raise InputError("only models that are traced can be measured (hf:, py:)", model)
    check_outputs(out, cluster_out)
    from placegap.instances.torch_models.profile import profile_model, times_csv

    with spinner(f"measuring {model}"):
        profile = profile_model(model, tracing, device, kind, runs=runs, threads=threads, best=best)
    if out is not None:
        write_text(times_csv(profile), out)
    if as_json:
        print(json.dumps(profile_object(profile), ensure_ascii=False), flush=True)
    else:
        print_profile(profile)
    if cluster_out is not None:  # last: it may fail, and the profile took longer
        _write_cluster(cluster_out, processes, device)


def _write_cluster(path: Path, count: int, device: DeviceType) -> None:
    """Measure the link between two processes, and write the cluster."""
    from placegap.experiments.running.pipeline_run import ProcessesFailed
    from placegap.experiments.running.pipeline_stage import machine_cluster

    try:
        with spinner("measuring the link between two processes"):
            text = machine_cluster(count, device)
    except ProcessesFailed as error:
        raise InputError(f"--cluster-out: {error}") from None
    write_text(text, path)


def profile_object(profile: Profile) -> dict[str, object]:
    """What ``--json`` prints."""
    return {
        "model": profile.model,
        "device_kind": profile.device_kind,
        "measured_ns": sum(op.measured_ns for op in profile.ops),
        "roofline_ns": sum(op.roofline_ns for op in profile.ops),
        "rest_ns": profile.rest_ns,
        "is_calibrated": profile.is_calibrated,
        "rates": profile.spec.model_dump(mode="json", exclude={"memory_bytes", "is_cpu"}),
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
        f" ({_ratio(measured_ns, modelled_ns)}); calls that are no ops {format_ns(profile.rest_ns)}"
    )
    spec = profile.spec
    bandwidth = f"{format_bytes(spec.bandwidth_bytes_per_s)}/s"
    print_line(
        f"rates    {spec.peak_flops_per_s / 1e9:.4g} GFLOP/s, {bandwidth},"
        f" {format_ns(spec.launch_overhead_ns)} an op; {spec.source}"
    )


def _ratio(measured_ns: int, modelled_ns: int) -> str:
    return f"{measured_ns / modelled_ns:.2f}" if modelled_ns else "-"
