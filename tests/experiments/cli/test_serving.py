"""serving_flow from the command line: a file, a plan, its picture, its exports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placegap.experiments.cli import main
from placegap.instances import InputError, ServingFlow, load_model
from placegap.instances.exporters.table import export_plan
from placegap.instances.objectives.flow.referee import plan_of
from placegap.instances.problem.flow_problem import Range

TWO_ROWS = """
layers: 6
kinds: {A: [100, 60, 45.5], B: [50.25, 20, 15]}
machines: {A: 2, B: 2}
links:
  - {between: all, tokens_per_s: 70}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "serving.yaml"
    path.write_text(TWO_ROWS)
    return path


def test_a_file_is_placed_with_a_proof_and_its_plan_is_shown_and_verified(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    assert main(["place", str(model), "--json", "-q", "-o", str(plan), "--time-limit", "5"]) == 0
    found = json.loads(capsys.readouterr().out)
    # two machines of a kind hold three layers each: 45.5 + 15
    assert (found["status"], found["value_microtokens_per_s"]) == ("optimal", 60_500_000)
    assert (found["tokens_per_s"], found["tokens_per_s_bound"]) == (60.5, 60.5)
    assert found["faults"] == []
    stated = json.loads(plan.read_text())
    assert stated["value_microtokens_per_s"] == stated["bound"]["bound_microtokens_per_s"]
    assert main(["verify", str(model), str(plan)]) == 0
    assert "60.500 tokens/s (both referees)" in capsys.readouterr().out
    picture = tmp_path / "plan.html"
    assert main(["show", str(plan), "--model", str(model), "--html", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "Full machines: " in said
    assert "together 60.500 tokens/s" in said
    assert '"unit":"layers"' in picture.read_text()


def test_rows_are_lines_of_vllm_and_what_is_none_is_refused(model: Path) -> None:
    instance = load_model(model).instance()
    plan = plan_of(instance, (Range(0, 3), Range(3, 3), Range(0, 3), Range(3, 3)))
    assert plan is not None
    assert export_plan("sglang", instance, plan, ServingFlow()) == (
        "# A-0, A-1: 45.5 tokens/s\nSGLANG_PP_LAYER_PARTITION=3,3\n"
        "# B-0, B-1: 15.0 tokens/s\nSGLANG_PP_LAYER_PARTITION=3,3\n"
    )


def test_what_is_no_set_of_rows_is_written_as_ranges(model: Path) -> None:
    model.write_text(TWO_ROWS.replace("layers: 6", "layers: 4"))
    instance = load_model(model).instance()
    # the 60 of A-0 part over both B, each with layer 2 and 50.25, and meet again
    ranges = (Range(0, 2), Range(3, 1), Range(2, 1), Range(2, 1))
    plan = plan_of(instance, ranges)
    assert plan is not None
    with pytest.raises(InputError, match=r"export vllm: .* export ranges"):
        export_plan("vllm", instance, plan, ServingFlow())
    written = json.loads(export_plan("ranges", instance, plan, ServingFlow()))
    assert written["tokens_per_s"] == 60
    assert written["machines"][1] == {"name": "A-1", "start": 3, "layers": 1}
    assert sum(link["tokens_per_s"] for link in written["links"] if link["to"] == "A-1") == 60


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--export", "megatron=x"], "written as vllm, sglang, ranges"),
        (["--objective", "makespan", "--export", "ranges=x"], "no other plan as ranges"),
        (["--time-unit", "ms"], "states tokens per second"),
    ],
)
def test_what_does_not_apply_is_one_line(
    model: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", str(model), *options, "-q", "--time-limit", "1"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_full_pass_counts_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    command = "place gpt2-xl --cluster 2xT4-pcie --objective serving_flow -q"
    assert main(command.split()) == 2
    assert "trace one: --decode --context 2048 --batch 16" in capsys.readouterr().err
