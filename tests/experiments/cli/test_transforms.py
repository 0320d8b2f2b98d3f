"""``placegap coarsen``, ``split`` and ``place --coarsen``: what they print and write."""

import json
from pathlib import Path

import pytest
from draws.splittable import splittable_diamond

from placegap.experiments.cli import main
from placegap.experiments.show.transform_table import HEAD
from placegap.instances import Makespan, load_document, load_model, load_plan
from placegap.instances.files.document import Document, save_document
from placegap.instances.transforms.op_splitting import Cut, split_ops
from placegap.instances.transforms.table import TRANSFORMS

Capture = pytest.CaptureFixture[str]
THREE = ["--with", "pesto-merge", "--param", "ops=3"]


def test_sizes_and_the_claim_are_printed_and_the_coarse_instance_and_its_map_written(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["coarsen", model, *THREE]) == 0
    out = capsys.readouterr().out
    # CCR 32 / 43, and without the 20 ns of op1 -> op3 12 / 43
    for text in (
        "pesto-merge",
        "before",
        "0.744",
        "after",
        "0.279",
        "restriction: may lose the best plan",
    ):
        assert text in out
    out, where = tmp_path / "coarse.json.gz", tmp_path / "map.json"
    assert main(["coarsen", model, *THREE, "--json", "-o", str(out), "--map", str(where)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["before"] == {"ops": 4, "edges": 4, "ccr": 0.744}
    assert content["after"] == {"ops": 3, "edges": 3, "ccr": 0.279}
    assert content["claim"] == "restriction"
    instance = load_document(out).instance()
    assert (instance.num_ops, instance.name) == (3, "diamond-pesto-merge")
    merged = {"op1": "op1", "op2": "op2", "op3": "op1", "op4": "op4"}
    assert json.loads(where.read_text()) == merged


def test_without_a_transform_there_is_a_line_for_each(model: str, capsys: Capture) -> None:
    assert main(["coarsen", model, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["transform"] for row in rows] == ["none", *TRANSFORMS]
    none = {"transform": "none", "ops": 4, "edges": 4, "ccr": 0.744, "claim": None}
    assert rows[0] == none
    assert main(["coarsen", model, "--objective", "latency_subgraphs"]) == 0
    text = capsys.readouterr().out
    assert "n/a" in text  # zero-time
    for name in HEAD:
        assert name in text
    # celeritas-fusion makes one op of four, co-placement too; the others change nothing
    assert "4.00-fold" in text
    assert "restriction: may lose the best plan" in text
    assert "exact: keeps the optimum" in text
    assert "neither:" not in text


def test_a_plan_of_the_coarse_graph_comes_back_as_one_of_the_ops(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "plan.json"
    command = ["place", model, "--method", "brute-force", "--channels", "free"]
    coarse = ["--coarsen", "pesto-merge", "--coarsen-param", "ops=3"]
    assert main([*command, *coarse, "-o", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    # no proof comes back from a coarse graph; 33 is the critical path of the ops themselves
    assert (content["value_ns"], content["bound_ns"], content["status"]) == (43, 33, "feasible")
    assert len(content["placement"]) == 4
    plan, semantics = load_plan(load_model(model).instance(), out)
    assert len(plan.placement) == 4
    assert semantics == Makespan(channels="free")
    # an exact transform keeps the proof; nothing takes no time here
    assert main([*command, "--coarsen", "zero-time", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["value_ns"], content["bound_ns"], content["status"]) == (34, 34, "optimal")


def test_the_model_of_the_coarse_graph_is_written(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "coarse.lp"
    command = ["place", model, "--method", "moirai", "--write", str(out), "--json"]
    command += ["--time-limit", "0.5"]  # the rows count, not the plan
    sizes = []
    for more in ([], ["--coarsen", "pesto-merge", "--coarsen-param", "ops=2"]):
        assert main([*command, *more]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["rows"])
    assert sizes[1] < sizes[0]


HALVES = ["--param", "min_share=0.4"]


@pytest.fixture
def splittable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The diamond, whose op 2 takes 20 of 43 ns, in a file."""
    monkeypatch.chdir(tmp_path)
    save_document(Document.of(splittable_diamond()), "splittable.json")
    return "splittable.json"


def test_the_finer_instance_and_the_map_are_written(splittable: str, capsys: Capture) -> None:
    words = ["split", splittable, *HALVES, "-o", "finer.json.gz", "--map", "map.json"]
    assert main(words) == 0
    expected = split_ops(splittable_diamond(), {1: Cut("batch", 2)}).fine
    assert load_document("finer.json.gz").instance().content_hash == expected.content_hash
    whole = {name: name for name in ("op1", "op3", "op4")}
    parts = dict.fromkeys(("op2/1of2", "op2/2of2", "op2/gather"), "op2")
    assert json.loads(Path("map.json").read_text()) == {**whole, **parts}
    out = capsys.readouterr().out
    assert "1 op split into 2 parts" in out
    assert "a different instance" in out
    assert main([*words[:4], "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["split_ops"], content["parts"]) == (1, 2)
    # two edges at op 2 become two into the parts, two into the gather and one out of it
    assert (content["before"]["ops"], content["after"]["ops"]) == (4, 6)
    assert (content["before"]["edges"], content["after"]["edges"]) == (4, 7)
