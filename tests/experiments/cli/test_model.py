"""``placegap model`` builds a formulation without a plan, writes it, and explains its size."""

import json
from pathlib import Path

import highspy
import pyomo.environ as pyo
import pytest
from draws import draw

from placegap.experiments.cli import main
from placegap.instances import Op, example
from placegap.instances.files.document import Document, save_document
from placegap.solvers.models.explain import index_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def diamond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    save_document(Document.of(example()), "diamond.json")
    return "diamond.json"


def solved(path: str) -> float:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(path) == highspy.HighsStatus.kOk
    solver.run()
    return solver.getInfo().objective_function_value


@pytest.mark.parametrize("form", ["as_published", "strengthened"])
def test_the_file_holds_the_model_with_names_and_its_optimum(
    form: str, diamond: str, capsys: Capture
) -> None:
    for kind in ("lp", "mps"):
        command = ["model", "moirai", diamond, "--form", form, "--write", f"a.{kind}", "--json"]
        assert main(command) == 0
        content = json.loads(capsys.readouterr().out)
        assert content["form"] == form
        # FD-DPS, figure 3: op2 and op4 on the second device, 5 + 1 + 20 + 8 = 34
        assert solved(f"a.{kind}") * content["unit_ns"] == pytest.approx(34)
        assert "x(op2,gpu1)" in Path(f"a.{kind}").read_text()


def test_an_explanation_has_sizes_per_component_the_relaxation_and_the_gap(
    diamond: str, capsys: Capture
) -> None:
    assert main(["model", "moirai", diamond, "--form", "as_published", "--explain", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    parts = {part["name"]: part for part in found["components"]}
    # op1 .. op4 on 2 devices; a row of (4c) has 2 entries, an op's x is in that row at least
    assert parts["assign_once"]["sets"] == "OPS"
    assert parts["assign_once"]["states"].startswith("Moirai (4c)")
    assert parts["assign_once"]["before"] == {"rows": 4, "columns": 0, "nonzeros": 8}
    assert parts["x"]["before"]["columns"] == 8
    for when in ("before", "after"):
        total = found["total"][when]
        for size in ("rows", "columns"):
            assert sum(part[when][size] for part in parts.values()) == total[size]
        of_rows = (part[when]["nonzeros"] for part in parts.values() if part["before"]["rows"])
        assert sum(of_rows) == total["nonzeros"]
    assert found["total"]["after"]["rows"] < found["total"]["before"]["rows"] == found["rows"]
    # no paper's LP knows more than the longest path without transfers, 5 + 20 + 8 = 33
    assert found["lp_ns"] == pytest.approx(33)
    assert found["value_ns"] == 34
    assert found["integrality_gap"] == pytest.approx(1 / 34)


def test_an_explanation_is_a_table_and_three_lines(diamond: str, capsys: Capture) -> None:
    assert main(["model", "moirai", diamond, "--explain"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("moirai of diamond, makespan port per_edge: ")
    assert any(line.split()[:1] == ["device_work"] for line in lines)
    assert [line.split()[0] for line in lines[-3:]] == ["LP", "value", "gap"]


def test_a_model_without_a_solution_is_written_and_said_to_be_infeasible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    ops = [Op(name="big", time_ns={"gpu": 1}, resident_bytes=2)]  # fits on no device
    full = draw.instance_of("full", ops, (), draw.devices(["gpu"], lambda k: 1))
    save_document(Document.of(full), "full.json")
    assert main(["model", "moirai", "full.json", "--write", "full.lp"]) == 0
    assert "assign_once(big)" in Path("full.lp").read_text()
    capsys.readouterr()
    assert main(["model", "moirai", "full.json", "--explain"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "LP      infeasible"


def test_a_list_reads_as_the_sets_that_hold_all_of_its_members() -> None:
    model = pyo.ConcreteModel()
    model.NONE = pyo.Set(initialize=[])  # has no dimension
    model.OPS = pyo.Set(initialize=["a", "b", "c"])
    model.EDGES = pyo.Set(initialize=[("a", "b"), ("b", "c")])
    model.along = pyo.Var([("a", "b", 0)])
    model.either_way = pyo.Var([("a", "b"), ("b", "a")])
    model.named = pyo.Var(model.EDGES, ["x"])
    model.none = pyo.Var([])
    texts = [index_text(model.component(name)) for name in ("along", "either_way", "named", "none")]
    assert texts == [
        "some of EDGES x numbers",
        "some of OPS x OPS",
        "EDGES x some of other names",
        "none",
    ]
