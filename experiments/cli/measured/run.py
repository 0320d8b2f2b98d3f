"""``placegap run``: a pipeline plan executed on this machine, predicted against measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    JsonOption,
    TimesOption,
    read_instance,
    with_rules,
    with_tracing,
)
from placegap.experiments.running.placing import Rules
from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import output, plain_table, print_line, spinner, warn
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import DeviceType, TraceOptions, is_traced

if TYPE_CHECKING:
    from placegap.experiments.running.pipeline_run import PipelineComparison

FAILED = 1
MOST_ITERATIONS = 10_000


@with_rules
@with_tracing
def run_command(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="hf:NAME, hf:CONFIG.json or py:MODULE:FUNCTION."),
    ],
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan's JSON file.")],
    *,
    cluster: ClusterOption = None,
    rules: Rules,
    tracing: TraceOptions,
    times: TimesOption = None,
    device: Annotated[
        DeviceType, typer.Option(help="Where stages run: a core, or a GPU, each.")
    ] = "cpu",
    iterations: Annotated[
        int, typer.Option("--iterations", min=1, help="Iterations that count, after 2 others.")
    ] = 5,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="S", help="Seconds for all processes.")
    ] = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline plan of a PyTorch module, and compare its time with the prediction.

    Each device of the plan is a process of this machine with one thread, or a GPU. Weights and
    inputs are random. torch.distributed.pipelining cuts the model and runs the schedule; --batch
    and --seq are those of one microbatch, and with --train there is a backward pass, but no update.
    """
    if not is_traced(model):
        raise InputError("only models that are traced can be run (hf:, py:)", model)
    if iterations > MOST_ITERATIONS or not 0 < time_limit < float("inf"):
        raise InputError(f"--iterations is at most {MOST_ITERATIONS}, --time-limit positive")
    from placegap.experiments.running.sources import Source
    from placegap.instances.io.plan_file import load_stated_plan

    instance = read_instance(Source(model, cluster, tracing=tracing, times=times))
    stated = load_stated_plan(instance, plan_file)
    semantics = rules.override(stated.semantics)
    from placegap.experiments.running.pipeline_run import (
        ProcessesFailed,
        pipeline_job,
        run_and_compare,
    )

    job, predicted = pipeline_job(
        instance, stated.plan, semantics, model, tracing, device, iterations
    )
    check_devices(device, job.num_processes)
    if times is None:
        warn("no --times: predicted by the roofline; 'placegap profile --out' measures the ops")
    try:
        with spinner(f"running {model} in {job.num_processes} processes"):
            found = run_and_compare(instance, job, predicted, time_limit)
    except ProcessesFailed as error:
        warn(f"the pipeline failed: {error}")
        raise typer.Exit(FAILED) from None
    if as_json:
        print(json.dumps(comparison_object(model, found), ensure_ascii=False), flush=True)
    else:
        print_comparison(model, found)


def check_devices(device: DeviceType, count: int) -> None:
    """Refuse more processes than GPUs, and say so where they are more than cores."""
    if device == "cuda":
        import torch

        found = torch.cuda.device_count()
        if found < count:
            raise InputError(
                f"--device cuda: {count} processes need a GPU each, and torch finds"
                f" {found}; run on cpu"
            )
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores is not None and count > cores:
        warn(
            f"{count} stages at a time share {cores} cores, which the prediction does not know:"
            " expect more than it says"
        )


def comparison_object(model: str, found: PipelineComparison) -> dict[str, object]:
    """What ``--json`` prints."""
    return {
        "model": model,
        "semantics": found.semantics.model_dump(mode="json"),
        "processes": found.num_processes,
        "predicted_ns": found.predicted_ns,
        "measured_ns": found.measured_ns,
        "best_ns": found.best_ns,
        "iterations_ns": list(found.iterations_ns),
        "largest_difference": found.difference,
        "stages": [
            {
                "stage": stage.stage,
                "device": stage.device,
                "begins": stage.begins,
                **{
                    f"{what}_{name}_ns": each
                    for what, pair in (
                        ("predicted", stage.predicted_ns),
                        ("measured", stage.measured_ns),
                        ("best", stage.best_ns),
                    )
                    for name, each in zip(("forward", "backward"), pair, strict=True)
                },
            }
            for stage in found.stages
        ],
    }


def print_comparison(model: str, found: PipelineComparison) -> None:
    """A table of the stages, the whole iteration, and whether outputs are those of the model."""
    rows = []
    for stage in found.stages:
        for name, predicted_ns, measured_ns in zip(
            ("forward", "backward"), stage.predicted_ns, stage.measured_ns, strict=True
        ):
            if predicted_ns or measured_ns:
                rows.append(
                    (
                        str(stage.stage),
                        stage.device,
                        stage.begins or "the first op",
                        name,
                        format_ns(predicted_ns),
                        format_ns(measured_ns),
                        error_text(predicted_ns, measured_ns),
                    )
                )
    head = ("stage", "device", "begins at", "pass", "predicted", "measured", "error")
    title = f"{model}: {found.semantics.label}, work of all microbatches"
    output().print(plain_table(title, head, rows))
    count = len(found.iterations_ns)
    print_line(
        f"iteration {format_ns(found.predicted_ns)} predicted, {format_ns(found.measured_ns)}"
        f" measured ({error_text(found.predicted_ns, found.measured_ns)}; median of {count}, best"
        f" {format_ns(found.best_ns)}, {error_text(found.predicted_ns, found.best_ns)})"
    )
    same = "the same as" if not found.difference else f"within {found.difference:.2g} of"
    print_line(f"outputs   {same} the unsplit module's")


def error_text(predicted_ns: int, measured_ns: int) -> str:
    """By how much a measured time is above the predicted one.

    Examples
    --------
    >>> error_text(200, 230), error_text(200, 190), error_text(0, 5)
    ('+15.0 %', '-5.0 %', '-')
    """
    from placegap.experiments.running.pipeline_run import relative_error

    error = relative_error(predicted_ns, measured_ns)
    return "-" if error is None else f"{100 * error:+.1f} %"
