"""Run a pipeline plan of a PyTorch module: ``python -m placegap.experiments.research.run``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DevicesOption,
    JsonOption,
    TimesOption,
    command,
    load_instance,
    source_of,
)
from placegap.experiments.research.pipeline_run import (
    PipelineComparison,
    error_text,
    pipeline_job,
    run_and_compare,
)
from placegap.experiments.running.process_group import ProcessesFailed
from placegap.experiments.running.rules import Rules
from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import (
    output,
    plain_table,
    print_json,
    print_line,
    spinner,
    warn,
)
from placegap.instances.files.plan_file import load_stated_plan
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import DeviceType, TraceOptions, is_traced

FAILED, BAD_INPUT = 1, 2


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the command."""

    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="hf:NAME, hf:CONFIG.json or py:MODULE:FUNCTION.")
    ]
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan's JSON file.")]
    cluster: ClusterOption = None
    devices: DevicesOption = None
    rules: Rules
    tracing: TraceOptions
    times: TimesOption = None
    device: Annotated[
        DeviceType, typer.Option(help="Where stages run: a core, or a GPU, each.")
    ] = "cpu"
    iterations: Annotated[
        int, typer.Option("--iterations", min=1, help="Iterations that count, after 2 others.")
    ] = 5
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="S", min=1, help="Seconds for all processes.")
    ] = 600.0
    as_json: JsonOption = False


def run_command(asked: RunOptions) -> None:
    """Run a pipeline plan of a PyTorch module, and compare its time with the prediction.

    Each device of the plan is a process of this machine with one thread, or a GPU. Weights and
    inputs are random. torch.distributed.pipelining cuts the model and runs the schedule; --batch
    and --seq are those of one microbatch, and with --train there is a backward pass, but no update.
    """
    if not is_traced(asked.model):
        raise InputError("only models that are traced can be run (hf:, py:)", asked.model)
    instance = load_instance(source_of(asked))
    stated = load_stated_plan(instance, asked.plan_file)
    semantics = asked.rules.override(stated.semantics)
    job, predicted = pipeline_job(
        instance, stated.plan, semantics, asked.model, asked.tracing, asked.device, asked.iterations
    )
    check_devices(asked.device, job.num_processes)
    if asked.times is None:
        warn("no --times: predicted by the roofline; 'placegap profile --out' measures the ops")
    with spinner(f"running {asked.model} in {job.num_processes} processes"):
        found = run_and_compare(instance, job, predicted, asked.time_limit)
    if asked.as_json:
        semantics_object = found.semantics.model_dump(mode="json")
        more = {"measured_ns": found.measured_ns, "best_ns": found.best_ns}
        print_json({"model": asked.model, **asdict(found), "semantics": semantics_object, **more})
    else:
        print_comparison(asked.model, found)


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


def print_comparison(model: str, found: PipelineComparison) -> None:
    """A table of the stages, the whole iteration, and whether outputs are those of the model."""
    rows = [
        (
            str(stage.stage),
            stage.device,
            stage.begins or "the first op",
            name,
            format_ns(predicted_ns),
            format_ns(measured_ns),
            error_text(predicted_ns, measured_ns),
        )
        for stage in found.stages
        for name, predicted_ns, measured_ns in zip(
            ("forward", "backward"), stage.predicted_ns, stage.measured_ns, strict=True
        )
        if predicted_ns or measured_ns
    ]
    head = ("stage", "device", "begins at", "pass", "predicted", "measured", "error")
    title = f"{model}: {found.semantics.label}, work of all microbatches"
    output().print(plain_table(title, head, rows))
    print_line(
        f"iteration {format_ns(found.predicted_ns)} predicted, {format_ns(found.measured_ns)}"
        f" measured ({error_text(found.predicted_ns, found.measured_ns)}; median of"
        f" {len(found.iterations_ns)}, best {format_ns(found.best_ns)},"
        f" {error_text(found.predicted_ns, found.best_ns)})"
    )
    same = "the same as" if not found.difference else f"within {found.difference:.2g} of"
    print_line(f"outputs   {same} the unsplit module's")


def main(args: Sequence[str] | None = None) -> None:
    """Run what the command line states, and end with its exit status."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command(run_command))
    try:
        app(args)
    except InputError as error:
        warn(str(error))
        sys.exit(BAD_INPUT)
    except ProcessesFailed as error:
        warn(f"the pipeline failed: {error}")
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
