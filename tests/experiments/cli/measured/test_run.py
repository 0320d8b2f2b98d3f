"""``placegap run`` at the command line: pipelines of tiny models, on processes of this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from doubles.hidden_extras import without_extras

from placegap.experiments.cli import main

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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["vgg19", "plan.json"], "vgg19: only models that are traced can be run (hf:, py:)"),
        (["hf:gpt2", "plan.json", "--time-limit", "0"], "--time-limit positive"),
    ],
)
def test_wrong_use_is_one_line_and_exit_status_2(
    args: list[str], message: str, capsys: Capture
) -> None:
    assert main(["run", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "from placegap.experiments.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["run", "hf:gpt2", "plan.json", "--cluster", "8xH100"]
    done = without_extras(code, *command, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "placegap: hf:gpt2: needs torch: pip install 'placegap[torch]'\n"


def place(model: str, folder: Path, devices: int, *options: str) -> list[str]:
    """Place the layers of a model on cores; the arguments that run the plan."""
    cluster = folder / f"{devices}.yaml"
    cluster.write_text(CLUSTER.format(devices))
    plan = str(folder / "plan.json")
    common = ["--cluster", str(cluster), *options]
    rules = ["--granularity", "layer", "--time-limit", "2", "--quiet", "-o", plan]
    times = folder / "times.csv"
    assert main(["place", model, *common, "--times", str(times), *rules]) == 0
    own = [
        o for at, o in enumerate(options)
        if not {o, options[at - 1]} & {"--objective", "--schedule", "--microbatches",
                                       "--stages-per-device"}
    ]  # fmt: skip
    return ["run", model, plan, "--cluster", str(cluster), "--times", str(times), *own]


def write_times(model: str, folder: Path, *options: str) -> None:
    """A microsecond for every op: the plan's even split does not depend on this machine."""
    from placegap.experiments.running.sources import find_model
    from placegap.instances.importers.torch_export.options import TraceOptions

    given: dict[str, Any] = {"train": True, "optimizer": "none"} if "--train" in options else {}
    if "--seq" in options:
        given["seq"] = 8
    graph = find_model(model, tracing=TraceOptions(**given)).graph
    rows = "".join(f"{op.name},cpu,1000\n" for op in graph.ops)
    (folder / "times.csv").write_text(f"name,device_kind,time_ns\n{rows}")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (2, ["--schedule", "gpipe", "--microbatches", "3"]),
        (3, ["--schedule", "1f1b", "--microbatches", "4", "--train", "--optimizer", "none"]),
        (
            2,
            ["--schedule", "interleaved", "--stages-per-device", "2", "--microbatches", "4",
             "--train", "--optimizer", "none"],
        ),
    ],
)  # fmt: skip
def test_outputs_are_those_of_the_unsplit_module(
    devices: int, options: list[str], tmp_path: Path, capsys: Capture
) -> None:
    config = {"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2, "vocab_size": 11}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    model = f"hf:{tmp_path}/tiny.json"
    options = ["--objective", "pipeline_iteration", "--seq", "8", *options]
    write_times(model, tmp_path, *options)
    command = place(model, tmp_path, devices, *options)
    capsys.readouterr()
    assert main([*command, "--iterations", "2", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["largest_difference"] == 0.0
    assert found["processes"] == devices
    assert len(found["stages"]) == devices * (2 if "interleaved" in options else 1)
    has_backward = "--train" in options
    for stage in found["stages"]:
        assert stage["measured_forward_ns"] > 0
        assert (stage["predicted_backward_ns"] > 0) == has_backward
    assert len(found["iterations_ns"]) == 2
    cores = len(os.sched_getaffinity(0))
    assert (f"{devices} stages at a time share {cores} cores" in shown.err) == (devices > cores)


@pytest.mark.torch
def test_the_heaviest_stage_of_an_even_cut_is_measured_lighter_than_that_of_an_uneven_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placegap.experiments.bench.tracing.measured import plan_with_cuts
    from placegap.experiments.running.pipeline_run.comparison import pipeline_job, run_and_compare
    from placegap.experiments.running.sources import Source, load_source
    from placegap.instances import PipelineIteration
    from placegap.instances.importers.torch_export.options import TraceOptions

    (tmp_path / "eight_layers.py").write_text(LAYERS)
    (tmp_path / "two.yaml").write_text(CLUSTER.format(2))
    monkeypatch.chdir(tmp_path)
    model, tracing = "py:eight_layers:build", TraceOptions()
    write_times(model, tmp_path)
    instance = load_source(Source(model, "two.yaml", tracing=tracing, times=tmp_path / "times.csv"))
    rules = PipelineIteration(schedule="gpipe", microbatches=4)
    predicted, measured = [], []
    for cut in ("layers.4", "layers.7"):  # four layers of eight, and seven
        job, iteration = pipeline_job(
            instance, plan_with_cuts(instance, [cut]), rules, model, tracing
        )
        found = run_and_compare(instance, job, iteration, 240.0)
        assert found.difference == 0.0
        predicted.append(found.predicted_ns)
        measured.append(max(stage.measured_ns[0] for stage in found.stages))
    assert predicted[0] < predicted[1]
    assert measured[0] < measured[1]  # of processor time, which other programs do not change


@pytest.mark.torch
def test_a_model_that_fails_in_its_process_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    source = LAYERS.replace("torch.zeros(64, 256)", "torch.tensor(1.0), torch.zeros(64, 256)")
    (tmp_path / "scalar_input.py").write_text(
        source.replace("forward(self, x)", "forward(self, scale, x)").replace(
            "return x\n", "return scale * x\n"
        )
    )
    monkeypatch.chdir(tmp_path)
    model = "py:scalar_input:build"
    write_times(model, tmp_path)
    command = place(model, tmp_path, 2, "--objective", "pipeline_iteration")
    capsys.readouterr()
    assert main(command) == 1
    (*_, line) = capsys.readouterr().err.splitlines()
    assert "the pipeline failed: process" in line
    assert "an input is no tensor with a first dimension of examples" in line
