"""Cases that users reported (../shared/cases): lines that tools can say, under eager rooflines."""

import json
from pathlib import Path

import pytest

from placegap.experiments.cli import main

Capture = pytest.CaptureFixture[str]

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases" / "cfg"
FIELD = CASES.parent / "field"
HOME = "2xRTX3090+DDR5-2ch:96GB, pcie4x8"

pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="no ../shared/cases beside this checkout"
)


def placed(
    case: str, options: str, cluster: str, export: str, capsys: Capture, costs: str = "roofline"
) -> dict:
    """What `place` says of a configuration of the cases, traced, with the one export."""
    model = f"{case}.json.gz"
    trace = ["convert", f"hf:{CASES}/{case}.json", model, "--dtype", "float16", "--decode"]
    assert main([*trace, *options.split()]) == 0
    rules = ["--objective", "makespan", "--costs", costs, "--time-limit", "5", "--json"]
    asked = ["place", model, "--cluster", cluster, "--export", f"{export}=out.json", *rules]
    capsys.readouterr()
    assert main(asked) == 0
    said: dict = json.loads(capsys.readouterr().out)["exports"][0]
    priced = ["price", model, "--cluster", cluster, *rules[:4], "--json", "--line"]
    assert main([*priced, "out.json" if export == "device_map" else said["text"]]) == 0
    assert json.loads(capsys.readouterr().out)["value_ns"] == said["value_ns"]
    return said


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.torch
def test_03_two_cards_and_experts_have_a_line_that_fits_and_is_proven(capsys: Capture) -> None:
    said = placed("moe46", "--weights 4.0 --context 8192", HOME, "llamacpp", capsys)
    assert said["gap"] == 0
    assert said["value_ns"] <= 33_270_000  # that of -ngl 47 -ts 28,19 --n-cpu-moe 10


@pytest.mark.torch
def test_05_a_model_that_fits_the_card_is_there_as_a_whole(capsys: Capture) -> None:
    cluster = "RTX4090+host:64GB, pcie4"
    said = placed("moe47", "--weights 5.5 --context 2048", cluster, "llamacpp", capsys)
    assert said["text"] == "-ngl 48"
    assert said["value_ns"] <= 26_170_000


@pytest.mark.torch
def test_06_the_head_is_on_the_fast_card_and_so_the_slow_one_is_first(capsys: Capture) -> None:
    cluster = "RTX3090:24GB+2xRTX3060:12GB, pcie4"
    said = placed("dense64", "--weights q8_0 --context 1024", cluster, "llamacpp", capsys)
    assert said["text"] == "--device CUDA1,CUDA0 -ngl 65 -ts 20,45"
    assert (said["gap"], round(said["value_ns"] / 1e6, 2)) == (0, 72.6)


@pytest.mark.torch
def test_12_what_accelerate_has_on_the_cpu_is_copied_to_a_card_in_each_pass(
    capsys: Capture,
) -> None:
    said = placed("moe46", "--weights 4.0 --context 8192", HOME, "device_map", capsys)
    # 5.86 GB of weights of five layers over 15.75 GB/s take 372 ms
    assert 372_000_000 < said["value_ns"] < 410_000_000


def test_19_the_head_of_torchtitan_has_its_name_of_2026() -> None:
    rules = ["--objective", "pipeline_iteration", "--microbatches", "8", "--time-limit", "2"]
    asked = ["place", "llama-7b-train", "--cluster", "4xA100-nvlink", "--quiet"]
    assert main([*asked, *rules, "--export", "torchtitan=parts.json"]) == 0
    parts = json.loads(Path("parts.json").read_text())
    assert parts[-1][-3:] == ["norm", "lm_head", "output"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("case", "options", "cluster"),
    [
        ("moe46", "--weights 4.0 --context 8192", HOME),
        ("moe47", "--weights 5.5 --context 2048", "RTX4090+host:64GB, pcie4"),
        ("dense64", "--weights q8_0 --context 1024", "RTX3090+2xRTX3060, pcie4"),
    ],
)
def test_under_the_default_costs_no_line_of_the_tool_is_better(
    case: str, options: str, cluster: str, capsys: Capture
) -> None:
    assert placed(case, options, cluster, "llamacpp", capsys, "calibrated")["gap"] == 0


def said_of(case: str, options: str, cluster: str, export: str, capsys: Capture) -> dict:
    """What `place` says of a configuration of ../shared/cases/field under the default costs."""
    asked = ["place", f"hf:{FIELD}/{case}.json", "--decode", "--cluster", cluster, "--json"]
    assert main([*asked, "--export", f"{export}=out.txt", *options.split()]) == 0
    said: dict = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.torch
@pytest.mark.parametrize(
    ("case", "options", "cluster"),
    [
        ("tiny-hybrid", "--context 1024", "2xRTX-A5000, nvlink"),
        # too large for one card
        ("qwen35-35b-a3b", "--context 4096 --weights q8_0", "2xRTX-A5000, nvlink"),
    ],
)
def test_no_plan_of_a_hybrid_model_runs_writes_of_states_beside_later_layers(
    case: str, options: str, cluster: str, capsys: Capture
) -> None:
    said = said_of(case, f"{options} --granularity layer", cluster, "llamacpp", capsys)
    assert said["gap"] == said["exports"][0]["gap"] == 0
    assert said["value_ns"] == said["exports"][0]["value_ns"]


@pytest.mark.torch
def test_a_card_that_states_what_is_free_keeps_room_for_buffers(capsys: Capture) -> None:
    cluster = "RTX4090+RTX5070Ti:12.5GB+DDR4-2ch:64GB, pcie4"
    options = "--context 10240 --kv-dtype q8_0 --time-limit 5"
    said = said_of("gpt-oss-120b", options, cluster, "llamacpp", capsys)
    used = {use["device"]: use["memory_bytes"] for use in said["devices"]}
    # 512 tokens of 201,088 words in float32
    assert used["RTX5070Ti"] <= 12_500_000_000 - 512 * 201_088 * 4
