"""A bound, once told, is kept: every command quotes the best of own, stored and recorded ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles.pool_jobs import run_here

import placegap
from placegap.experiments.cli import main
from placegap.experiments.running import exporting, placing
from placegap.experiments.running.exporting import price_of_modules
from placegap.experiments.running.placing import Attempt, run_attempt
from placegap.instances import BestKnown, Graph, Instance, Makespan, MaxLoad, Op, Plan, example
from placegap.instances.io.document import Document, save_document
from placegap.instances.io.plan_file import StoredBound, load_stated_plan, save_plan
from placegap.instances.problem.modules import with_content, with_granularity
from placegap.instances.problem.semantics import LatencySubgraphs, PipelineIteration, includes
from placegap.solvers import Result, solve

Capture = pytest.CaptureFixture[str]

CHAIN = MaxLoad(plans="chain")
BEST = Plan.on([0, 1, 0, 0])
"""35 ns; the optimum of the diamond is 34 (brute force), and paths prove 33."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(placing, "run_pool", run_here)
    save_document(Document.of(example()), tmp_path / "model.json")
    return str(tmp_path / "model.json")


def stored(bound_ns: int = 34, **changes: Any) -> StoredBound:
    content: dict[str, Any] = {
        "bound_ns": bound_ns,
        "bound_origin": "cp-sat",
        "rests_on": "CP-SAT 9",
        "semantics": Makespan(),
        "content_hash": example().content_hash,
        **changes,
    }
    return StoredBound(**content)


def saved(folder: Path, name: str, bound: StoredBound | None, plan: Plan = BEST) -> str:
    save_plan(example(), plan, Makespan(), folder / name, "by hand", bound=bound)
    return str(folder / name)


def answer(capsys: Capture) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_a_plan_proven_by_place_is_shown_without_a_gap(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan, html = str(tmp_path / "plan.json"), tmp_path / "plan.html"
    # the best chain of the diamond is 39 ns (brute force agrees below), and work proves 22
    command = ["place", model, "--objective", "max_load", "--method", "ideal-dp", "--json"]
    assert main([*command, "-o", plan]) == 0
    placed = answer(capsys)
    assert (placed["status"], placed["value_ns"], placed["bound_ns"]) == ("optimal", 39, 39)
    for command in (["show", plan, "--model", model], ["verify", model, plan]):
        assert main([*command, "--json"]) == 0
        said = answer(capsys)
        assert (said["bound_ns"], said["gap"], said["rests_on"]) == (39, 0, "proof"), command
        assert said["bound_origin"] == f"stored in plan.json: {placed['bound_origin']}"
    assert main(["compare", plan, plan, "--model", model, "--json"]) == 0
    assert [each["gap"] for each in answer(capsys)["plans"]] == [0, 0]
    assert main(["show", plan, "--model", model, "--html", str(html)]) == 0
    assert "gap     0 %" in capsys.readouterr().out
    assert "<li><span>gap</span><b>0 %</b></li>" in html.read_text()
    assert f"stored in plan.json: {placed['bound_origin']}, proof of ours" in html.read_text()


def test_the_facade_keeps_a_bound_too(tmp_path: Path) -> None:
    found = placegap.solve(example(), objective=CHAIN, method="ideal-dp")
    found.save(tmp_path / "plan.json")
    bound = load_stated_plan(example(), tmp_path / "plan.json").bound
    assert bound == StoredBound(
        bound_ns=39,
        bound_origin="ideal-dp",
        rests_on="proof",
        semantics=CHAIN,
        content_hash=example().content_hash,
    )
    # m-topo proves nothing, and work only 22
    again = placegap.solve(
        example(), objective=CHAIN, method="m-topo", start=tmp_path / "plan.json"
    )
    assert (again.bound_ns, again.warnings) == (39, ())
    assert again.result.bound_origin == "stored in plan.json: ideal-dp"


def test_place_quotes_what_is_recorded(tmp_path: Path, capsys: Capture, model: str) -> None:
    # --method heft printed 44.1 % of inception_v1, whose optimum is recorded, where show had 13.9
    command = ["place", "inception_v1", "--cluster", "celeritas-4xV100-pcie", "--method", "heft"]
    plan = str(tmp_path / "heft.json")
    assert main([*command, "-o", plan, "--json"]) == 0
    placed = answer(capsys)
    assert main(["show", plan, "--json"]) == 0
    shown = answer(capsys)
    assert placed["bound_ns"] == shown["bound_ns"] == 786_996  # docs/optima.md: 0.786996 ms
    assert placed["gap"] == shown["gap"] == pytest.approx(1 - 786_996 / placed["value_ns"])
    assert placed["bound_origin"].startswith("recorded: ")


def test_what_a_method_proves_itself_stays_among_the_details(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    known = BestKnown(semantics=Makespan(), bound_ns=34, bound_origin="cp-sat")
    instance = example().model_copy(update={"best_known": (known,)})
    save_document(Document.of(instance), model)
    no_time = ["--method", "cp-sat", "--param", "start=no", "--time-limit", "1e-9", "--json"]
    plan = saved(tmp_path, "plan.json", None)
    assert main(["place", model, "--start", plan, *no_time]) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["bound_origin"]) == (34, "recorded: cp-sat")
    assert said["details"]["own_bound_ns"] < 34


def test_a_second_opinion_is_the_second_method_s_own() -> None:
    known = BestKnown(semantics=Makespan(), bound_ns=34, bound_origin="cp-sat")
    instance = example().model_copy(update={"best_known": (known,)})
    asked = Attempt(instance, Makespan(), "heft")
    for attempt, bound_ns in ((asked, 34), (replace(asked, alone=True), None)):
        found = run_attempt(attempt)
        assert isinstance(found, Result)
        assert found.bound_ns == bound_ns


def test_the_bound_of_a_start_is_kept(model: str, tmp_path: Path, capsys: Capture) -> None:
    start, out = saved(tmp_path, "start.json", stored()), str(tmp_path / "out.json")
    assert main(["place", model, "--method", "heft", "--start", start, "-o", out, "--json"]) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["rests_on"]) == (34, "CP-SAT 9")
    assert said["bound_origin"] == "stored in start.json: cp-sat"
    bound = load_stated_plan(example(), out).bound
    assert bound is not None
    assert (bound.bound_ns, bound.bound_origin) == (34, "stored in start.json: cp-sat")


@pytest.mark.parametrize(
    ("bound", "sentence"),
    [
        # a plan of 35 ns refutes 36
        (
            stored(36),
            "stored in plan.json: cp-sat, the word of CP-SAT 9: says that no plan is better than"
            " 36 ns, and one has 35 ns: the bound is wrong",
        ),
        (stored(content_hash="0" * 64), "its bound is about another content"),
        (stored(semantics=Makespan(channels="free")), "its bound is one under makespan free"),
    ],
    ids=["refuted", "content", "rules"],
)
def test_a_stored_bound_that_cannot_hold_is_one_sentence(
    bound: StoredBound, sentence: str, model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan = saved(tmp_path, "plan.json", bound)
    for command, status in (
        (["verify", model, plan], int("wrong" in sentence)),
        (["show", plan, "--model", model], 0),
        (["compare", plan, plan, "--model", model], 0),
        (["place", model, "--method", "heft", "--start", plan], 0),
    ):
        assert main([*command, "--json"]) == status, command
        out, err = capsys.readouterr()
        said = json.loads(out)
        assert said.get("bound_ns", 33) == 33  # the critical path
        assert err.count(sentence) == 1, command
        assert "Traceback" not in err


def test_one_plan_refutes_what_the_file_of_another_says(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    # all on one device: 43 ns, which alone does not refute 40; BEST has 35
    a = saved(tmp_path, "a.json", stored(40), Plan.on([0, 0, 0, 0]))
    b = saved(tmp_path, "b.json", stored(34))
    assert main(["compare", a, b, "--model", model, "--json"]) == 0
    out, err = capsys.readouterr()
    assert [plan["bound_ns"] for plan in json.loads(out)["plans"]] == [34, 34]
    assert "stored in a.json" in err
    assert "one has 35" in err


def test_a_wider_class_of_plans_counts_for_a_narrower_one() -> None:
    wide, narrow = MaxLoad(plans="any"), MaxLoad(plans="convex")
    assert includes(wide, narrow)
    assert includes(narrow, narrow)
    assert not includes(narrow, wide)
    assert not includes(MaxLoad(plans="any", load="overlap"), narrow)
    assert not includes(LatencySubgraphs(subgraphs=1), LatencySubgraphs(subgraphs=2))
    assert includes(PipelineIteration(), PipelineIteration())


def test_a_bound_for_any_plan_counts_for_a_chain_in_a_file(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    found = solve(example(), CHAIN, "brute-force")  # 39 ns; work proves 22
    assert found.value_ns == 39
    assert found.plan is not None
    for plans, bound_ns in (("any", 24), ("chain", 24), ("convex", 24)):
        said = stored(24, semantics=MaxLoad(plans=plans))  # type: ignore[arg-type]
        save_plan(example(), found.plan, CHAIN, tmp_path / "plan.json", bound=said)
        assert main(["verify", model, str(tmp_path / "plan.json"), "--json"]) == 0
        assert answer(capsys)["bound_ns"] == bound_ns
    # asked about plans of any kind, what was proven of convex ones says nothing
    assert main(["verify", model, str(tmp_path / "plan.json"), "--plans", "any", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["bound_ns"] == 22
    assert "its bound is one under max_load convex" in err


def test_a_plan_without_its_model_still_says_its_bound(tmp_path: Path, capsys: Capture) -> None:
    assert main(["show", saved(tmp_path, "plan.json", stored()), "--json"]) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["bound_origin"], said["rests_on"]) == (
        34,
        "stored: cp-sat",
        "CP-SAT 9",
    )


def test_an_old_plan_file_has_no_bound_and_loads(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan = saved(tmp_path, "plan.json", None)
    assert "bound" not in json.loads(Path(plan).read_text())
    assert main(["show", plan, "--model", model, "--json"]) == 0
    assert answer(capsys)["bound_ns"] == 33


# ----------------------------------------------------------------------------------- whole layers


def layered() -> Instance:
    """Two layers of two ops each in a row, 10 + 1 and 1 + 1 ns; transfers are free of charge."""
    times, modules = (10, 1, 1, 1), ("net.0.a", "net.0.b", "net.1.a", "net.1.b")
    ops = tuple(
        Op(name=f"op{i}", module=path, time_ns={"gpu": time})
        for i, (path, time) in enumerate(zip(modules, times, strict=True))
    )
    base = example()
    edges = tuple(
        edge.model_copy(
            update={"producer": f"op{i}", "consumer": f"op{i + 1}", "tensor": None, "bytes": 0}
        )
        for i, edge in enumerate(base.graph.edges[:3])
    )
    return base.model_copy(update={"graph": Graph(name="layered", ops=ops, edges=edges)})


def test_the_bound_of_whole_layers_is_kept_and_holds_for_no_other_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(placing, "run_pool", run_here)
    model, plan = str(tmp_path / "model.json"), str(tmp_path / "plan.json")
    save_document(Document.of(layered()), model)
    chains = ["--objective", "max_load", "--method", "ideal-dp"]
    layers = [*chains, "--granularity", "layer", "--json"]
    assert main(["place", model, *layers, "-o", plan]) == 0
    placed = answer(capsys)
    # layers: 11 and 2 ns; op by op: 10 and 3
    assert (placed["value_ns"], placed["bound_ns"], placed["gap"]) == (11, 11, 0)
    assert placed["granularity"]["op_value_ns"] == 10
    assert main(["show", plan, "--model", model, "--json"]) == 0
    shown = answer(capsys)
    assert (shown["bound_ns"], shown["gap"], shown["moves"]) == (11, 0, [])
    by = placed["bound_origin"]
    assert shown["bound_origin"] == f"stored in plan.json: {by}, among plans of whole layers"
    assert main(["verify", model, plan, "--json"]) == 0
    assert answer(capsys)["gap"] == 0
    # a start of whole layers: its bound says nothing of single ops
    assert main(["place", model, *chains, "--start", plan, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["value_ns"], json.loads(out)["bound_ns"]) == (10, 10)
    assert "its bound is one among plans of other wholes" in err
    # nor of a plan that splits a layer
    content = json.loads(Path(plan).read_text())
    content["placement"]["op1"] = content["placement"]["op3"]
    del content["value_ns"]
    Path(plan).write_text(json.dumps(content))
    assert main(["show", plan, "--model", model, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["bound_ns"] < 11
    assert "which this plan splits" in err


def test_what_is_recorded_op_by_op_holds_for_whole_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(placing, "run_pool", run_here)
    known = BestKnown(semantics=MaxLoad(plans="any"), bound_ns=10, bound_origin="by hand")
    save_document(
        Document.of(layered().model_copy(update={"best_known": (known,)})), tmp_path / "m.json"
    )
    command = ["place", str(tmp_path / "m.json"), "--objective", "max_load", "--method", "m-topo"]
    assert main([*command, "--granularity", "layer", "--json"]) == 0
    said = answer(capsys)
    # m-topo makes halves of no bytes: one device, 13 ns; the longest layer proves 11
    assert said["bound_ns"] == 11


def test_the_content_tells_the_granularity() -> None:
    instance = layered()
    for granularity in ("op", "layer"):
        whole = with_granularity(instance, granularity)  # type: ignore[arg-type]
        found = with_content(instance, whole.content_hash)
        assert found is not None
        assert (found[0].content_hash, found[1]) == (whole.content_hash, granularity)


def test_op_by_op_is_never_worse_than_whole_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "run_pool", run_here)
    instance = layered()
    rules = MaxLoad(plans="any")
    best = solve(with_granularity(instance, "layer"), rules, "brute-force")
    assert best.value_ns == 11
    # all ops on one device: 13 ns, whatever it starts from
    attempt = Attempt(instance, rules, "single-device")
    price = price_of_modules(instance, attempt, best, "layer")
    assert price is not None
    assert price.fine_value_ns == 11
    assert exporting.ModulePrice("layer", 11, 11, 11).at_most == 0
