"""``placegap price`` reads what ``placegap place --export`` writes, with the same value."""

import json
from pathlib import Path
from typing import Any

import pytest
from draws.decoders import GB, decoder, machine
from draws.hybrid import layer_row
from draws.line_models import line_model
from draws.lines import home_model

from placegap.experiments.cli import main
from placegap.instances import Instance
from placegap.instances.exporters.hybrid import SETTINGS
from placegap.instances.exporters.table import EXPORTERS
from placegap.instances.files.document import Document, save_document

Capture = pytest.CaptureFixture[str]
SUFFIX = {"torchtitan": ".json", "device_map": ".json", "pipelining": ".json", "csv": ".csv"}
LOADS = ["--objective", "max_load"]
# copies of a model's file, files of another format, and plans of serving_flow, no lines of a tool
UNREAD = {"onnx", "dnn-partitioning", "ranges"}


def saved(instance: Instance, folder: Path) -> str:
    path = folder / "model.json"
    save_document(Document.of(instance), path)
    return str(path)


def run(command: list[str], capsys: Capture) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def read_back(command: list[str], kind: str, out: Path, capsys: Capture) -> tuple[int, int]:
    """The value that is written for an export, and that of the line when it is read."""
    written = run(["place", *command, "--export", f"{kind}={out}"], capsys)
    said = {each["kind"]: each["value_ns"] for each in written["exports"]}
    options = [word for word in command[1:] if word != "--tensor-split"]
    line = str(out) if out.suffix in (".json", ".csv", ".toml") else out.read_text()
    read = run(["price", command[0], *options, "--line", line], capsys)
    assert read["tool"] == kind
    return said.get(kind, written["value_ns"]), read["value_ns"]


@pytest.mark.parametrize("kind", sorted(EXPORTERS.keys() - UNREAD))
@pytest.mark.parametrize("objective", [[], LOADS], ids=["makespan", "max_load"])
def test_every_export_is_read_back(
    kind: str, objective: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / f"out{SUFFIX.get(kind, '.txt')}"
    if kind == "ktransformers":
        model = next(m for n in range(99) if (m := sparse(n)) is not None)
    else:
        model = home_model(gpus=2, experts=True)
    value_ns, read_ns = read_back([saved(model, tmp_path), *objective], kind, out, capsys)
    assert value_ns == read_ns > 0


def sparse(seed: int) -> Instance | None:
    """A model whose layers have a number of experts, on a card and a host."""
    instance, _ = line_model(seed, has_experts=True)
    is_host = [device.is_host for device in instance.cluster.devices]
    return instance if any(is_host) and not all(is_host) else None


@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "sglang"])
def test_shares_of_tensors_are_read_back(kind: str, tmp_path: Path, capsys: Capture) -> None:
    equal = machine(decoder(3, 10**9, 10**8, 10**8, 8_000), [(500 * GB, 20 * GB)] * 2)
    command = [saved(equal, tmp_path), "--tensor-split"]
    value_ns, read_ns = read_back(command, kind, tmp_path / "out.txt", capsys)
    assert value_ns == read_ns > 0


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_hybrid_plans_are_read_back(kind: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / ("out.toml" if kind == "torchtitan" else "out.txt")
    rules = ["--objective", "hybrid_pipeline", "--microbatches", "4"]
    for memory in (200,) if kind == "vllm" else (33, 200):  # which recomputes nothing
        for more in ([], ["--sharding", "optimizer"]):
            command = [saved(layer_row(memory), tmp_path), *rules, *more]
            value_ns, read_ns = read_back(command, kind, out, capsys)
            assert value_ns == read_ns > 0
