"""``python -m placegap.experiments.research.run``: what it compares, and pipelines that it runs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import placegap.experiments.research.run as run_module
from placegap.experiments.research.pipeline_run import (
    ProcessReport,
    StageWork,
    compared,
    pipeline_job,
)
from placegap.experiments.running.sources import Source, find_model, load_source
from placegap.instances import InputError, Instance, MaxLoad, PipelineIteration, Plan, example
from placegap.instances.files.plan_file import save_plan
from placegap.instances.torch_models.options import TraceOptions

Capture = pytest.CaptureFixture[str]

CLUSTER = """
name: here
devices: [{{name: core, count: {}, kind: cpu, memory_bytes: null}}]
links: [{{all_to_all: all, bandwidth_bytes_per_s: 1_000_000_000, latency_ns: 50_000}}]
"""

LAYERS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(8))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
def build():
    return Net(), (torch.zeros(64, 256),)
"""


def status_of(args: list[str]) -> int | str | None:
    """With which exit status the command ends."""
    with pytest.raises(SystemExit) as ended:
        run_module.main(args)
    return ended.value.code


def test_wrong_use_is_one_line_and_exit_status_2(capsys: Capture) -> None:
    assert status_of(["vgg19", "plan.json"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "vgg19: only models that are traced can be run (hf:, py:)" in line


def written(
    model: str, tracing: TraceOptions, begins: list[str], rules: PipelineIteration, folder: Path
) -> list[str]:
    """Write a plan with these cuts, a cluster and times of 1 ms for every op; what runs it."""
    from placegap.experiments.research.bench.pipelines import plan_with_cuts

    graph = find_model(model, tracing=tracing).graph
    count = (len(begins) + 1) // rules.stages_per_device
    (folder / "here.yaml").write_text(CLUSTER.format(count))
    rows = "".join(f"{op.name},cpu,1000000\n" for op in graph.ops)
    (folder / "times.csv").write_text(f"name,device_kind,time_ns\n{rows}")
    here = {"cluster": str(folder / "here.yaml"), "times": folder / "times.csv"}
    instance = load_source(Source(model, tracing=tracing, **here))
    stages = plan_with_cuts(instance, begins).devices.tolist()
    plan = replace(Plan.on([s % count for s in stages]), stage=tuple(stages))
    save_plan(instance, plan, rules, folder / "plan.json")
    options = [f"--{name}={path}" for name, path in here.items()]
    return [model, str(folder / "plan.json"), "--iterations", "2", *options]


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of eight equal layers, by its name."""
    (tmp_path / "eight_layers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)
    return "py:eight_layers:build"


TRAINED = TraceOptions(train=True, optimizer="none")
TRAINING = ["--train", "--optimizer", "none"]


def run(command: list[str], capsys: Capture) -> tuple[dict[str, Any], str]:
    """What ``--json`` prints, and what stands on stderr."""
    capsys.readouterr()
    assert status_of([*command, "--json"]) == 0
    shown = capsys.readouterr()
    return json.loads(shown.out), shown.err


@pytest.mark.torch
def test_a_forward_pass_in_two_stages_has_the_outputs_of_the_unsplit_module(
    layers: str, tmp_path: Path, capsys: Capture
) -> None:
    rules = PipelineIteration(schedule="gpipe", microbatches=3)
    command = written(layers, TraceOptions(), ["layers.4"], rules, tmp_path)
    found, _ = run(command, capsys)
    assert found["difference"] == 0.0
    # 4 products and 4 rectifiers in each stage, 1 ms each, 3 microbatches
    assert [stage["predicted_ns"] for stage in found["stages"]] == [[24_000_000, 0]] * 2
    assert min(stage["measured_ns"][0] for stage in found["stages"]) > 0
    assert len(found["iterations_ns"]) == 2


@pytest.mark.torch
def test_training_gpt2_in_three_stages_has_the_loss_of_the_unsplit_module(
    tmp_path: Path, capsys: Capture
) -> None:
    config = {"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2, "vocab_size": 11}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    model = f"hf:{tmp_path}/tiny.json"
    rules = PipelineIteration(schedule="1f1b", microbatches=4)
    begins = ["transformer.h.1", "transformer.h.3"]
    command = written(model, replace(TRAINED, seq=8), begins, rules, tmp_path)
    found, warned = run([*command, *TRAINING, "--seq", "8"], capsys)
    assert found["difference"] == 0.0
    assert [stage["begins"] for stage in found["stages"]] == ["", *begins]
    assert min(stage["measured_ns"][1] for stage in found["stages"]) > 0
    cores = len(os.sched_getaffinity(0))
    assert (f"3 stages at a time share {cores} cores" in warned) == (cores < 3)


TWO = PipelineIteration(schedule="gpipe", microbatches=2)


def in_layers() -> Instance:
    """The diamond of four ops, as two layers of two ops each."""
    instance = example()
    ops = [
        op.model_copy(update={"module": f"h.{number // 2}"})
        for number, op in enumerate(instance.graph.ops)
    ]
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    return instance.model_copy(update={"graph": graph})


def test_work_is_that_of_all_microbatches_and_an_iteration_spans_all_processes() -> None:
    instance = in_layers()
    plan = Plan.on([0, 0, 1, 1])
    job, predicted = pipeline_job(instance, plan, TWO, "hf:net", TraceOptions())
    assert (job.begins, job.num_processes) == (("h.1",), 2)
    reports = [
        ProcessReport(((0, 50), (100, 190)), (StageWork(0, (40, 60), (0, 0)),), None),
        ProcessReport(((5, 80), (95, 210)), (StageWork(1, (30, 34), (0, 0)),), 0.0),
    ]
    found = compared(instance, job, predicted, reports)
    # ops take 25 and 18 ns in the two stages; the docstring of simulate_iteration derives 89
    assert found.predicted_ns == 89
    assert [stage.predicted_ns for stage in found.stages] == [(50, 0), (36, 0)]
    assert [stage.measured_ns for stage in found.stages] == [(50, 0), (32, 0)]  # medians
    assert [stage.best_ns for stage in found.stages] == [(40, 0), (30, 0)]
    assert found.iterations_ns == (80, 115)  # 80 - 0, 210 - 95
    assert (found.measured_ns, found.best_ns, found.difference) == (98, 80, 0.0)


def test_a_plan_that_is_no_pipeline_is_refused_in_one_line() -> None:
    instance = in_layers()
    plan = Plan.on([0, 0, 1, 1])
    with pytest.raises(InputError, match="place with --objective pipeline_iteration"):
        pipeline_job(instance, plan, MaxLoad(), "hf:net", TraceOptions())
    with pytest.raises(InputError, match=r"is on two stages .* --granularity layer"):
        pipeline_job(instance, Plan.on([0, 1, 1, 1]), TWO, "hf:net", TraceOptions())
    apart = PipelineIteration(schedule="zero_bubble")
    with pytest.raises(InputError, match="zero_bubble: torch has no such schedule"):
        pipeline_job(instance, plan, apart, "hf:net", TraceOptions())
    rules = PipelineIteration(schedule="interleaved", stages_per_device=2)
    with pytest.raises(InputError, match="interleaved: torch runs it for training only"):
        pipeline_job(instance, plan, rules, "hf:net", TraceOptions())
