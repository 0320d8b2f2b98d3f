"""``placegap place --tensor-split``: what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest
from draws.decoders import GB, decoder, machine

from placegap.experiments.cli import main
from placegap.instances.files.document import Document, save_document

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A decode step whose layers fit on two cards of 500 GB/s alone or together."""
    monkeypatch.setenv("COLUMNS", "120")
    instance = machine(decoder(3, 10**9, 10**8, 10**8, 8_000), [(500 * GB, 20 * GB)] * 2)
    save_document(Document.of(instance), tmp_path / "pair.json")
    return str(tmp_path / "pair.json")


def test_a_decode_answer_says_what_whole_layers_leave_out(pair: str, capsys: Capture) -> None:
    note = "optimal with each layer on one card; --tensor-split also shares layers"
    assert main(["place", pair, "--granularity", "layer", "-q"]) == 0
    assert f"note    {note}" in capsys.readouterr().out
    assert main(["place", pair, "--granularity", "layer", "--json"]) == 0
    assert note in json.loads(capsys.readouterr().out)["notes"]
    assert main(["place", pair, "--tensor-split", "-q"]) == 0
    assert "optimal with each layer" not in capsys.readouterr().out


def test_the_answer_has_both_plans_and_says_what_all_reduces_decide(
    pair: str, capsys: Capture
) -> None:
    # layers and head move 6.4e9 bytes at 500 GB/s: 12.8 ms on one card, half of it on two; 14 ops
    # are launched in 5 us each; 6 all-reduces of 8 KB take 20 us and 0.5, that of the head 21
    assert main(["place", pair, "--tensor-split", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shared = found["tensor_split"]
    assert found["value_ns"] == pytest.approx(12_800_000 + 14 * 5_000, rel=1e-3)
    assert shared["value_ns"] == shared["bound_ns"]
    assert shared["all_reduces"] == 7
    assert shared["all_reduces_ns"] == 6 * 20_500 + 21_000
    assert shared["value_ns"] == pytest.approx(6_400_000 + 14 * 5_000 + 144_000, rel=1e-3)
    assert shared["ops_per_device"] == {"d0:2+d1:2": 14}
    assert main(["place", pair, "--tensor-split", "-q"]) == 0
    out = capsys.readouterr().out
    assert "tensors 6.614 ms, 1.95 times as fast as whole layers (12.87 ms)" in out
    assert "reduces 7 all-reduces of 20.57 us take 144.0 us, 2.18 %" in out
    assert "line    llamacpp: --device CUDA0,CUDA1 -sm tensor -ts 2,2" in out


def test_shares_that_are_faster_are_what_tools_get(
    pair: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exports = ["--export", "llamacpp=line.txt", "--export", "vllm=v.txt", "--export", "csv=ops.csv"]
    assert main(["place", pair, "--tensor-split", "--json", *exports]) == 0
    assert Path("line.txt").read_text() == "--device CUDA0,CUDA1 -sm tensor -ts 2,2\n"
    assert Path("v.txt").read_text() == "--tensor-parallel-size 2\n"
    found = json.loads(capsys.readouterr().out)
    said = {each["kind"]: (each["value_ns"], each["gap"]) for each in found["exports"]}
    value_ns = found["tensor_split"]["value_ns"]
    assert said == {"llamacpp": (value_ns, 0), "vllm": (value_ns, 0)}
    assert Path("ops.csv").read_text().startswith("name,")
