"""Predicted against measured: pipelines of two small models with other cuts, run on this machine.

``python -m placegap.experiments.research.bench.pipelines`` prints the table of docs/measured.md.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placegap.experiments.research.pipeline_run import (
    PipelineComparison,
    error_text,
    pipeline_job,
    run_and_compare,
)
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.problem import Instance, PipelineIteration, Plan
from placegap.instances.problem.modules import layer_of, with_granularity
from placegap.instances.torch_models.options import TraceOptions

PASSES = 50
ITERATIONS = 20
"""Runs of which the shortest counts, as other programs run on the machine."""

LIMIT_S = 600.0
RULES = PipelineIteration(schedule="1f1b", microbatches=8)


@dataclass(frozen=True)
class MeasuredModel:
    """A model, how it is traced, and its cuts: the layers before which stages begin."""

    name: str
    config: dict[str, Any]
    tracing: TraceOptions
    cuts: Sequence[tuple[str, ...]]


def _blocks(*numbers: int) -> tuple[str, ...]:
    return tuple(f"transformer.h.{number}" for number in numbers)


def _layers(*places: tuple[int, int]) -> tuple[str, ...]:
    return tuple(f"resnet.encoder.stages.{stage}.layers.{layer}" for stage, layer in places)


TRAINED = TraceOptions(train=True, optimizer="none", seq=128)
MODELS = (
    MeasuredModel(
        "gpt2-small",
        {
            "model_type": "gpt2",
            "n_layer": 6,
            "n_embd": 256,
            "n_head": 4,
            "n_positions": 128,
            "vocab_size": 4096,
            "architectures": ["GPT2LMHeadModel"],
        },
        TRAINED,
        (_blocks(1), _blocks(3), _blocks(5), _blocks(1, 2), _blocks(2, 4), _blocks(4, 5)),
    ),
    MeasuredModel(
        "resnet-small",
        {
            "model_type": "resnet",
            "embedding_size": 32,
            "hidden_sizes": [32, 64, 128, 256],
            "depths": [2, 2, 2, 2],
            "layer_type": "basic",
            "image_size": 64,
            "architectures": ["ResNetForImageClassification"],
        },
        TraceOptions(train=True, optimizer="none", batch=4),
        (
            _layers((0, 1)),
            _layers((1, 1)),
            _layers((3, 0)),
            _layers((0, 0), (0, 1)),
            _layers((1, 0), (2, 1)),
            _layers((2, 1), (3, 1)),
        ),
    ),
)


def plan_with_cuts(instance: Instance, begins: Sequence[str]) -> Plan:
    """The plan whose stages begin at some layers, on the first devices.

    Every op is with its layer; what is outside of all layers, with what feeds it, and in the first
    stage if nothing does.
    """
    whole = with_granularity(instance, "layer")
    backward = instance.arrays.backward.tolist()
    stage_of: dict[str, int] = {}
    current = 0
    for layer, is_backward in zip(layer_of(instance.graph), backward, strict=True):
        if layer is None or is_backward:
            continue
        if layer not in stage_of:
            current += layer in begins
            stage_of[layer] = current
    layers = layer_of(instance.graph)
    stages = [
        stage_of.get(op.colocation if op.colocation in stage_of else str(layer), 0)
        for op, layer in zip(whole.graph.ops, layers, strict=True)
    ]
    return Plan.on(stages)


def comparisons(
    model: MeasuredModel, folder: Path, iterations: int = ITERATIONS
) -> Iterator[PipelineComparison]:
    """Measure the ops of a model once, and run it with each of its cuts."""
    from placegap.experiments.running.machine_link import machine_cluster
    from placegap.instances.torch_models.profile import device_entry, profile_model, times_csv

    config, times, cluster = (
        folder / f"{model.name}{ending}" for ending in (".json", ".csv", ".yaml")
    )
    config.write_text(json.dumps(model.config))
    name = f"hf:{config}"
    profile = profile_model(name, model.tracing, runs=PASSES, threads=1, best=True)
    times.write_text(times_csv(profile))
    most = max(len(cut) for cut in model.cuts) + 1
    cluster.write_text(machine_cluster(device_entry(profile, most)))
    instance = load_source(Source(name, str(cluster), tracing=model.tracing, times=times))
    for cut in model.cuts:
        plan = plan_with_cuts(instance, cut)
        job, predicted = pipeline_job(
            instance, plan, RULES, name, model.tracing, iterations=iterations
        )
        yield run_and_compare(instance, job, predicted, LIMIT_S)


def row(model: str, found: PipelineComparison) -> str:
    """One line of the table, in Markdown."""
    cut = ", ".join(stage.begins.removeprefix("resnet.encoder.") for stage in found.stages[1:])
    work = [sum(pair) for each in found.stages for pair in (each.predicted_ns, each.best_ns)]
    errors = ", ".join(error_text(*pair) for pair in zip(work[::2], work[1::2], strict=True))
    return (
        f"| {model} | {len(found.stages)} | {cut} | {errors} | {found.predicted_ns / 1e6:.1f} |"
        f" {found.best_ns / 1e6:.1f} | {error_text(found.predicted_ns, found.best_ns)} |"
        f" {found.measured_ns / 1e6:.1f} |"
    )


def main() -> None:
    """Print the table."""
    chosen = sys.argv[1:] or [model.name for model in MODELS]
    print(f"{RULES.label}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    print(
        "| model | stages | cuts before | error of each stage's work | predicted ms | best ms"
        " | error | median ms |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="placegap-") as folder:
        for model in MODELS:
            if model.name in chosen:
                for found in comparisons(model, Path(folder)):
                    print(row(model.name, found), flush=True)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
