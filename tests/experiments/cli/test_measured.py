"""Measured times at the command line: ``--times`` of place and convert, and ``profile``."""

import json
from pathlib import Path

import pytest

from placegap.experiments.cli import main
from placegap.instances import load_document
from placegap.instances.problem.example import example

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def times(tmp_path: Path) -> Path:
    path = tmp_path / "times.csv"
    path.write_text("name,device_kind,time_us\nop1,gpu,1\nop2,gpu,2\nloss,gpu,3\n")
    return path


def test_place_takes_measured_times_and_says_which_names_match_no_op(
    model: str, times: Path, capsys: Capture
) -> None:
    command = ["place", model, "--times", str(times), "--method", "single-device", "--json"]
    assert main(command) == 0
    shown = capsys.readouterr()
    # 1 us + 2 us, and op3 and op4 as the file states them
    rest = sum(op.time_ns["gpu"] for op in example().graph.ops if op.name in ("op3", "op4"))
    assert json.loads(shown.out)["value_ns"] == 3000 + rest
    assert f"{times}: measured times for 2 of 4 ops; 1 name matches no op: loss" in shown.err


def test_the_catalogue_need_not_know_a_kind_that_was_measured(tmp_path: Path) -> None:
    graph = tmp_path / "net.json"
    content = {"format": "placegap", "version": 1, "name": "net"}
    graph.write_text(json.dumps({**content, "graph": {"name": "net", "ops": [{"name": "a"}]}}))
    cluster = tmp_path / "own.yaml"
    cluster.write_text("name: own\ndevices: [{name: x, kind: mine, memory_bytes: null}]\n")
    times = tmp_path / "times.csv"
    times.write_text("name,device_kind,time_ns\na,mine,7\n")
    out = tmp_path / "out.json"
    command = ["convert", str(graph), str(out), "--cluster", str(cluster), "--times", str(times)]
    assert main(command) == 0
    assert load_document(out).graph.ops[0].time_ns == {"mine": 7}


@pytest.mark.torch
def test_profile_measures_every_op_and_writes_what_place_reads(
    tmp_path: Path, capsys: Capture
) -> None:
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 11}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    name, out = f"hf:{tmp_path}/tiny.json", tmp_path / "times.csv"
    assert main(["profile", name, "--seq", "8", "--kind", "T4", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "measured / roofline" in shown
    assert "T4 product brief" in shown  # whose rates the roofline is made of
    instance = tmp_path / "tiny.json.gz"
    cluster = tmp_path / "one.yaml"
    cluster.write_text("name: one\ndevices: [{name: x, kind: T4}]\n")
    command = ["convert", name, str(instance), "--seq", "8", "--cluster", str(cluster)]
    assert main([*command, "--times", str(out)]) == 0
    ops = load_document(instance).graph.ops
    assert f"measured times for {len(ops)} of {len(ops)} ops" in capsys.readouterr().err
    assert main(["profile", name, "--seq", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_calibrated"]
    assert found["measured_ns"] == sum(op["measured_ns"] for op in found["ops"])


@pytest.mark.torch
def test_a_training_step_is_placed_with_its_optimizer(tmp_path: Path, capsys: Capture) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 11}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    command = ["place", f"hf:{tmp_path}/tiny.json", "--cluster", "8xH100", "--seq", "8", "--train"]
    assert main([*command, "--optimizer", "sgd", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["value_ns"]) == ("optimal", found["bound_ns"])
