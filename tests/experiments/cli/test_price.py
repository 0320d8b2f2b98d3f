"""``placegap price``: what a line takes, and what the tool could say at best."""

import json
from pathlib import Path

import pytest
from draws.lines import home_model

from placegap.experiments.cli import main
from placegap.instances import save_document
from placegap.instances.files.document import Document

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """An embedding, four layers with experts and a head: 10 GiB for a GPU of 6 and a host."""
    save_document(Document.of(home_model(experts=True, closed=True)), tmp_path / "m.json")
    return str(tmp_path / "m.json")


def price(model: str, line: str, *more: str) -> int:
    rules = ["--objective", "makespan", "--memory", "sum"]
    return main(["price", model, "--line", line, *rules, *more])


def test_a_line_has_its_time_its_gap_and_what_to_change(model: str, capsys: Capture) -> None:
    assert price(model, "-ngl 5 --cpu-moe", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    # embedding and four times experts at 3 us, four layers and head at 1; the GPU has one GiB free
    assert found["value_ns"] == 5 * 3000 + 5 * 1000
    assert [each["memory_bytes"] >> 30 for each in found["devices"]] == [5, 5]
    # with the experts of one layer on the GPU 2 us less, also if layer 0 is on the host for that
    best = {"line": "-ngl 4 --n-cpu-moe 2", "value_ns": 18000, "bound_ns": 18000}
    assert found["best"] == best
    assert (found["tool"], found["gap_of_tool"]) == ("llamacpp", 0.1)
    assert found["moves"][0]["gain_ns"] == 2000


def test_the_best_line_stands_below_the_one_that_is_run(model: str, capsys: Capture) -> None:
    assert price(model, "-ngl 5 --n-cpu-moe 3") == 0
    shown = capsys.readouterr().out
    assert "value   18.00 us" in shown
    assert "best    llamacpp -ngl 4 --n-cpu-moe 2: 18.00 us, optimal for this format" in shown
    assert shown.rstrip().endswith("the options above are as good")


def test_a_line_that_does_not_fit_is_judged_and_ends_with_status_1(
    model: str, capsys: Capture
) -> None:
    assert price(model, "-ngl 5") == 1
    assert "device 'g0' holds" in capsys.readouterr().out
