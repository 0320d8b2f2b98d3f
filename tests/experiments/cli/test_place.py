"""``placegap place``: which semantics and method, what it prints, how it ends."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.cli import main
from placegap.instances import Edge, Graph, Makespan, Op, Plan, Semantics, example
from placegap.instances.files.document import Document, load_document, save_document
from placegap.instances.files.plan_file import load_plan, load_stated_plan, save_plan
from placegap.solvers import Result, SolverDisagreement
from placegap.solvers.core.result import internal_error
from placegap.solvers.solving import incumbent

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, fakes: list[str]) -> Path:
    """The diamond, its graph named so that the fake takes it for real."""
    graph = example().graph.model_copy(update={"name": "real"})
    document = Document.of(example()).model_copy(update={"graph": graph})
    save_document(document, tmp_path / "model.json")
    return tmp_path / "model.json"


def test_convert_keeps_what_a_file_states_and_place_goes_by_it(
    tmp_path: Path, capsys: Capture
) -> None:
    # a (5 ns), b (10 ns), c (5 ns) in a row on two devices, tensors of 0 bytes: a and c beside b
    # take 10 ns each, and a chain has a or c with b, 15 ns
    stated = {"objective": "max_load", "plans": "any", "load": "overlap"}
    ops = tuple(
        Op(name=name, time_ns={"gpu": t}) for name, t in zip("abc", (5, 10, 5), strict=True)
    )
    edges = (Edge(producer="a", consumer="b"), Edge(producer="b", consumer="c"))
    raw = Document.of(example()).model_dump(mode="json", exclude_defaults=True) | {
        "format": "placegap",
        "version": 1,
        "graph": Graph(name="row", ops=ops, edges=edges).model_dump(mode="json"),
        "semantics": stated,
        "best_known": [{"semantics": stated, "value_ns": 10, "value_origin": "by hand"}],
    }
    model, out = tmp_path / "row.json", tmp_path / "out.json"
    model.write_text(json.dumps(raw))
    assert main(["convert", str(model), str(out)]) == 0
    assert load_document(out) == load_document(model)
    assert json.loads(out.read_text())["semantics"] == stated
    capsys.readouterr()
    for path in (model, out):
        assert main(["place", str(path), "--method", "brute-force", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["semantics"]["plans"], found["value_ns"]) == ("any", 10)
    assert main(["place", str(model), "--plans", "chain", "--method", "ideal-dp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value_ns"] == 15


def test_json_is_one_object_with_the_promised_fields(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    plan_file = tmp_path / "plan.json"
    command = ["place", str(model), "--method", "fake", "--param", "device=1", "--json"]
    assert main([*command, "--param", "bound=40", "-o", str(plan_file)]) == 0
    out, err = capsys.readouterr()
    content = json.loads(out)
    # all on one device: 5 + 20 + 10 + 8 = 43 ns
    assert {name: content[name] for name in ("instance", "method", "status", "value_ns")} == {
        "instance": "diamond",
        "method": "fake",
        "status": "feasible",
        "value_ns": 43,
    }
    assert content["bound_ns"] == 40
    assert (content["bound_origin"], content["bound_class"]) == ("fake", "any")
    assert (content["proved"], content["rests_on"], content["message"]) == (False, "proof", "")
    assert (content["faults"], content["details"]) == ([], {"tries": 1})
    assert content["gap"] == pytest.approx(3 / 43)
    assert content["build_s"] == 0
    assert content["solve_s"] >= 0
    assert content["placement"] == dict.fromkeys(("op1", "op2", "op3", "op4"), "gpu1")
    (sentence,) = content["notes"]
    assert sentence.startswith("the plan uses gpu1 alone")
    assert sentence.endswith("For throughput: --objective max_load")
    assert err == ""
    plan, semantics = load_plan(example(), plan_file)
    assert plan.devices.tolist() == [1, 1, 1, 1]
    assert semantics == Makespan()
    assert load_stated_plan(example(), plan_file).value == 43


def test_progress_goes_to_stderr_unless_it_is_not_wanted(model: Path, capsys: Capture) -> None:
    command = ["place", str(model), "--method", "fake"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    # the bound is the critical path: the doctest of `quick_bound`
    line = r"placegap: after [^:]+: best 43 ns, gap 23.3 %, bound 33 ns, by fake\n"
    assert re.fullmatch(line, err)
    assert "after" not in out
    assert re.search(r"^note +the plan uses gpu0 alone", out, re.MULTILINE)
    for silent in ("--quiet", "--json"):
        assert main([*command, silent]) == 0
        assert capsys.readouterr().err == ""


def save_start(folder: Path, placement: list[int], semantics: Semantics) -> Path:
    save_plan(example(), Plan.on(placement), semantics, folder / "start.json")
    return folder / "start.json"


def test_a_start_stands_where_the_method_finds_no_better_plan(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    start = save_start(tmp_path, [0, 1, 0, 0], Makespan())  # 35 ns
    command = ["place", str(model), "--method", "fake", "--start", str(start)]
    assert main([*command, "--param", "bound=30", "-o", str(tmp_path / "plan.json")]) == 0
    out, err = capsys.readouterr()
    assert "best 35 ns, by start" in err
    # the fake's own bound is below the critical path
    for text in ("value   35 ns", "bound   33 ns", "fake found no better plan"):
        assert text in out
    assert load_plan(example(), tmp_path / "plan.json")[0] == Plan.on([0, 1, 0, 0])


def test_an_exact_method_begins_at_the_start(model: Path, tmp_path: Path, capsys: Capture) -> None:
    start = save_start(tmp_path, [0, 1, 0, 0], Makespan())
    assert main(["place", str(model), "--start", str(start), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    # brute force finds 34 as well: the doctest of `run_method`
    assert (content["value_ns"], content["status"]) == (34, "optimal")
    no_time = ["--method", "cp-sat", "--param", "start=no", "--time-limit", "1e-9"]
    assert main(["place", str(model), "--start", str(start), "--json", *no_time]) == 0
    assert json.loads(capsys.readouterr().out)["value_ns"] <= 35


@pytest.mark.parametrize(
    ("objective", "error"),
    [("makespan", SolverDisagreement("two are not right")), ("max_load", ZeroDivisionError())],
)
def test_if_the_exact_methods_fail_the_plan_of_a_placer_stands(
    objective: str, error: Exception, model: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Result:
        raise error

    monkeypatch.setattr(incumbent, "run_task", fail)
    command = ["place", str(model), "--objective", objective, "--json", "--time-limit", "1"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["method"] == "auto"
    assert content["value_ns"] > 0
    assert str(error) in out
    assert "Traceback" not in err


def test_a_fault_of_a_solver_is_a_warning_and_an_internal_error_is_not_said_to_be_one(
    model: Path, capsys: Capture
) -> None:
    command = ["place", str(model), "--method", "fake", "--param"]
    assert main([*command, "fault=Solver 1 said no"]) == 0
    assert "placegap: a solver was wrong: Solver 1 said no\n" in capsys.readouterr().err
    assert main([*command, f"fault={internal_error('fake', OverflowError('too large'))}"]) == 0
    err = capsys.readouterr().err
    assert "placegap: an internal error in fake: OverflowError: too large\n" in err
    assert "a solver was wrong" not in err


def test_a_second_opinion_agrees_or_contradicts(model: Path, capsys: Capture) -> None:
    """The best plan of the diamond takes 34 ns; on one device it takes 43."""
    command = ["place", str(model), "--method", "fake", "--second-opinion", "--json"]
    assert main([*command, "--param", "bound=20"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["second_opinion"]["verdict"] == "agrees"
    assert content["second_opinion"]["method"] == "brute-force"
    # the better plan and the better bound are reported
    assert (content["value_ns"], content["bound_ns"], content["proved"]) == (34, 34, True)
    assert main([*command, "--param", "bound=40"]) == 1
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["second_opinion"]["verdict"] == "CONTRADICTS"
    assert (
        "fake; proved by placegap: claims that no plan is better than 40 ns"
        in (content["second_opinion"]["sentence"])
    )
    assert "is wrong" in err


def test_no_feasible_plan_is_exit_status_1(model: Path, capsys: Capture) -> None:
    assert main(["place", str(model), "--method", "fake", "--param", "kind=none", "--json"]) == 1
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert (content["status"], content["placement"], content["value_ns"]) == ("no_plan", None, None)
    assert content["message"] == "found nothing"
    assert err.endswith(": no feasible plan\n")


def test_a_method_that_raises_is_one_line(model: Path, capsys: Capture) -> None:
    assert main(["place", str(model), "--method", "fake", "--param", "kind=error"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"placegap: no plan: fake: fake_methods.py:\d+: RuntimeError: two lines\n", err
    )


def test_a_certificate_says_how_much_of_the_bound_it_proves(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "bound.json"
    command = ["place", str(model), "--method", "brute-force", "--certificate", str(file)]
    assert main([*command, "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)["certificate"]
    # FD-DPS, figure 3: the optimum under ports
    assert (stated["bound_ns"], stated["printed_bound_ns"]) == (34, 34)
    assert json.loads(file.read_text())["bound_ns"] == 34
    assert main(["verify", str(model), "--certificate", str(file)]) == 0
