"""Profile, place, run: the example of the docs, on two processes of this machine."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from placegap.experiments.cli import main

pytestmark = pytest.mark.torch

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "run_pipeline.py"
MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def build():
    return Net(), (torch.rand(64, 256, generator=torch.Generator().manual_seed(1)),)
"""
CLUSTER = """
name: two
devices: [{name: core, count: 2, kind: cpu, memory_bytes: null}]
links: [{all_to_all: all, bandwidth_bytes_per_s: 5e9, latency_ns: 50_000}]
"""


def test_the_example_runs_the_plan_and_prints_each_stage_beside_its_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("net6.py").write_text(MODEL)
    Path("two.yaml").write_text(CLUSTER)
    profile = ["profile", "py:net6:build", "--threads", "1", "-o", "times.csv"]
    assert main(profile) == 0
    assert re.search(r"module +[\d.]+ [mu]s for a call of all of it, ", capsys.readouterr().out)
    command = ["place", "py:net6:build", "--times", "times.csv", "--cluster", "two.yaml"]
    command += ["--objective", "max_load", "--plans", "chain", "--export", "pipelining=split.json"]
    assert main([*command, "--json"]) == 0
    Path("answer.json").write_text(capsys.readouterr().out)
    assert len(json.loads(Path("split.json").read_text())["split_spec"]) == 1
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    files = ["net6:build", "split.json", "answer.json"]
    done = subprocess.run(
        [*run, str(EXAMPLE), *files],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "outputs are equal to the module's" in done.stdout
    for rank in range(2):
        assert re.search(
            rf"stage {rank} on core\d: [\d.]+ ms predicted, [\d.]+ ms measured", done.stdout
        )
