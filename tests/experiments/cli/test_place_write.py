"""``placegap place --write`` writes a model; endings of solvers are told on the command line."""

import json
from pathlib import Path

import highspy
import pytest
from doubles import tiny_mip
from doubles.tiny_mip import registered  # noqa: F401

from placegap.experiments.cli import main
from placegap.instances.files.document import Document, save_document

pytestmark = pytest.mark.usefixtures("registered")

Capture = pytest.CaptureFixture[str]
TINY = ["--objective", "max_load", "--method", tiny_mip.NAME]


@pytest.fixture
def model(tmp_path: Path) -> str:
    save_document(Document.of(tiny_mip.ops_on(9, 7, 6, 5, 4)), tmp_path / "ops.json")
    return str(tmp_path / "ops.json")


@pytest.mark.parametrize("suffix", ["mps", "lp"])
def test_the_written_model_has_the_value_that_place_finds(
    model: str, tmp_path: Path, capsys: Capture, suffix: str
) -> None:
    path = tmp_path / f"model.{suffix}"
    assert main(["place", model, *TINY, "--write", str(path)]) == 0
    out, err = capsys.readouterr()
    # 5 ops on one device each, 2 loads; x[i, k] and the largest load
    assert out == (
        f"{path}: {tiny_mip.NAME}, 7 rows, 11 columns; 1 unit of the objective is 1 ns\n"
    )
    assert "warning" not in err  # on a slow machine a line of progress is there
    assert main(["place", model, *TINY, "--write", str(path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content.pop("semantics")["objective"] == "max_load"
    sizes = {"rows": 7, "columns": 11, "unit_ns": 1.0, "start_ns": 16}  # 16: the placers' plan
    assert content == {"instance": "ops", "method": tiny_mip.NAME, "path": str(path), **sizes}
    assert main(["place", model, *TINY, "--json"]) == 0
    value_ns = json.loads(capsys.readouterr().out)["value_ns"]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(path))
    solver.run()
    assert value_ns == 16  # 9 + 7 against 6 + 5 + 4
    assert solver.getInfo().objective_function_value == pytest.approx(value_ns)


def test_an_infeasible_model_is_explained(tmp_path: Path, capsys: Capture) -> None:
    # op 0, ... take 2 bytes each, no device has more than 1
    save_document(Document.of(tiny_mip.ops_on(1, 2, memory=1, size=2)), tmp_path / "tight.json")
    assert main(["place", str(tmp_path / "tight.json"), *TINY]) == 1
    out, err = capsys.readouterr()
    assert "infeasible" in out
    assert "op 0" in out
    assert err.endswith(": no feasible plan\n")
