"""Every command quotes the best of own and recorded bounds, and shows what files claim."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import placegap
from placegap.experiments.cli import main
from placegap.experiments.running.placing import Attempt, run_attempt
from placegap.instances import (
    BestKnown,
    Edge,
    Graph,
    Instance,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    example,
)
from placegap.instances.files.document import Document, read_json, save_document, write_json
from placegap.instances.files.plan_file import StoredBound, load_stated_plan, save_plan
from placegap.instances.problem import LatencySubgraphs, PipelineIteration, Semantics, includes
from placegap.solvers import Result, run_method
from placegap.solvers.solving import known_bounds

Capture = pytest.CaptureFixture[str]

CHAIN = MaxLoad(plans="chain")
BEST = Plan.on([0, 1, 0, 0])
"""35 ns; the optimum of the diamond is 34 (brute force), and paths prove 33."""


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


def recorded(monkeypatch: pytest.MonkeyPatch, instance: Instance, *known: BestKnown) -> None:
    """The corpus records this of the content of an instance."""

    def of(asked: Instance, semantics: Semantics) -> tuple[BestKnown, ...]:
        is_known = asked.content_hash == instance.content_hash
        return tuple(each for each in known if is_known and each.semantics == semantics)

    monkeypatch.setattr(known_bounds, "known_of", of)


def with_claim(instance: Instance, **said: Any) -> Instance:
    """An instance whose file claims something."""
    best = BestKnown(**{"semantics": Makespan(), **said})
    return instance.model_copy(update={"best_known": (best,)})


def placed_chain(model: str, plan: str, capsys: Capture) -> dict[str, Any]:
    """Write the best chain of the diamond: 39 ns (brute force agrees below); work proves 22."""
    command = ["place", model, "--objective", "max_load", "--plans", "chain"]
    assert main([*command, "--method", "ideal-dp", "--json", "-o", plan]) == 0
    placed = answer(capsys)
    assert (placed["status"], placed["value_ns"], placed["bound_ns"]) == ("optimal", 39, 39)
    return placed


def edit(file: str, *path: str, to: object) -> None:
    """Another value at a place of a JSON file; None takes it out."""
    content = inner = read_json(file)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    if to is None:
        del inner[path[-1]]
    write_json(content, file)


CERTIFICATE = ("bound", "certificate")


def test_a_plan_file_carries_its_proof(model: str, tmp_path: Path, capsys: Capture) -> None:
    plan, moved = str(tmp_path / "plan.json"), tmp_path / "elsewhere" / "p.json.gz"
    placed_chain(model, plan, capsys)
    moved.parent.mkdir()
    write_json(read_json(plan), moved)
    found = placegap.solve(example(), objective=CHAIN, method="ideal-dp")
    found.save(tmp_path / "saved.json")
    for file in (plan, str(moved), str(tmp_path / "saved.json")):
        for command in (["show", file, "--model", model], ["verify", model, file]):
            assert main([*command, "--json"]) == 0
            said = answer(capsys)
            assert (said["bound_ns"], said["gap"]) == (39, 0), command
            assert (said["bound_origin"], said["rests_on"]) == ("certificate", "proof")
    assert main(["compare", plan, plan, "--model", model, "--json"]) == 0
    assert [each["gap"] for each in answer(capsys)["plans"]] == [0, 0]
    # under other rules it proves nothing, and is no fault of the file
    assert main(["verify", model, plan, "--plans", "any", "--json"]) == 0
    assert answer(capsys)["bound_origin"] == "work"


@pytest.mark.parametrize(
    ("path", "to", "reason"),
    [
        ((*CERTIFICATE, "bound_ns"), 40, "it claims 40 ns, and some chain takes less"),
        # what else a checker refuses: tests/instances/certificates
        ((*CERTIFICATE, "proof"), None, "it is malformed: KeyError"),
        (("semantics", "load"), "overlap", "it is for max_load chain add"),
    ],
)
def test_an_edited_certificate_proves_nothing(
    path: tuple[str, ...], to: object, reason: str, model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan = str(tmp_path / "plan.json")
    placed_chain(model, plan, capsys)
    edit(plan, *path, to=to)
    for command in (["show", plan, "--model", model], ["verify", model, plan]):
        assert main([*command, "--json"]) == (command[0] == "verify")
        printed = capsys.readouterr()
        assert json.loads(printed.out)["bound_origin"] != "certificate"
        assert f"plan.json: its certificate proves nothing here: {reason}" in printed.err


def test_an_edited_value_is_found_beside_an_untouched_certificate(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan = str(tmp_path / "plan.json")
    placed_chain(model, plan, capsys)
    edit(plan, "value_ns", to=38)
    edit(plan, "bound", "bound_ns", to=38)
    assert main(["show", plan, "--model", model, "--json"]) == 0
    printed = capsys.readouterr()
    assert "38 ns, but the referee finds 39 ns" in printed.err
    assert json.loads(printed.out)["bound_ns"] == 39


def test_the_certificate_of_a_makespan_is_carried_where_it_is_written(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan, file = str(tmp_path / "plan.json"), str(tmp_path / "c.json")
    assert main(["place", model, "-o", plan, "--certificate", file, "--json"]) == 0
    assert answer(capsys)["bound_ns"] == 34
    assert read_json(plan)["bound"]["certificate"] == read_json(file)
    assert main(["show", plan, "--model", model, "--json"]) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["gap"], said["bound_origin"]) == (34, 0, "certificate")
    # a heuristic proves nothing, so there is nothing to carry
    assert main(["place", model, "-o", plan, "--method", "heft", "--json"]) == 0
    assert "certificate" not in read_json(plan).get("bound", {})


def test_a_certificate_that_takes_long_to_check_leaves_a_claim(
    model: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = str(tmp_path / "plan.json")
    placed_chain(model, plan, capsys)
    monkeypatch.setattr("placegap.experiments.cli.show.CHECK_S", 0.0)
    assert main(["show", plan, "--model", model]) == 0
    printed = capsys.readouterr()
    assert "too long" in printed.err
    assert "claimed 39 ns by plan.json (ideal-dp): a gap of 0 %, once" in printed.out


def test_the_bound_of_a_plan_file_without_a_certificate_is_shown_as_its_claim(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan, html = str(tmp_path / "plan.json"), tmp_path / "plan.html"
    placed = placed_chain(model, plan, capsys)
    edit(plan, *CERTIFICATE, to=None)
    claim = {"file": "plan.json", "bound_ns": 39, "origin": placed["bound_origin"], "plans": ""}
    for command in (["show", plan, "--model", model], ["verify", model, plan]):
        assert main([*command, "--json"]) == 0
        said = answer(capsys)
        # work costs nothing to find, so there is no gap to it
        assert (said["bound_ns"], said["gap"], said["claims"]) == (22, None, [claim]), command
    assert main(["compare", plan, plan, "--model", model, "--json"]) == 0
    plans = answer(capsys)["plans"]
    assert [(each["gap"], each["claims"]) for each in plans] == [(None, [claim])] * 2
    assert main(["show", plan, "--model", model, "--html", str(html)]) == 0
    line = "39 ns by plan.json (ideal-dp): a gap of 0 %, once --method ideal-dp proves it"
    assert f"claimed {line}" in capsys.readouterr().out
    assert f"Claimed: {line}." in html.read_text()
    # (39 - 22) / 39
    assert "Gap: unknown; at most 43.6 % (work only)." in html.read_text()
    assert "<li><span>gap</span><b>at most 43.6 %</b></li>" in html.read_text()
    # a proof of this run makes it a bound
    assert main(["verify", model, plan, "--method", "brute-force", "--json"]) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["gap"], said["bound_origin"]) == (39, 0, "brute-force")


def test_what_place_proved_on_this_machine_needs_no_second_proof(
    model: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACEGAP_PROOFS", str(tmp_path / "proofs"))
    plan = str(tmp_path / "plan.json")
    placed_chain(model, plan, capsys)
    edit(plan, *CERTIFICATE, to=None)
    # a heuristic proves nothing, and does not replace what is kept
    assert main(["place", model, "--objective", "max_load", "--method", "m-topo", "--json"]) == 0
    answer(capsys)
    edit(plan, "bound", "bound_ns", to=38)  # what the file claims does not count
    assert main(["show", plan, "--model", model, "--json"]) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["gap"], said["rests_on"]) == (39, 0, "proof")
    assert said["bound_origin"] == "ideal-dp of an earlier run"
    # a file that is about something else, or is none, is not used
    (kept,) = (tmp_path / "proofs").iterdir()
    for text in (kept.read_text().replace('"content_hash": "', '"content_hash": "x'), "{"):
        kept.write_text(text)
        assert main(["show", plan, "--model", model, "--json"]) == 0
        assert answer(capsys)["bound_ns"] == 22
    (tmp_path / "proofs").joinpath(kept.name).unlink()
    (tmp_path / "proofs").rmdir()
    (tmp_path / "proofs").write_text("a file in the place of the folder")
    placed_chain(model, plan, capsys)


def test_the_facade_shows_claims_and_believes_none(tmp_path: Path) -> None:
    found = placegap.solve(example(), objective=CHAIN, method="ideal-dp")
    found.save(tmp_path / "plan.json")
    # m-topo proves nothing, and work only 22
    start = tmp_path / "plan.json"
    again = placegap.solve(example(), objective=CHAIN, method="m-topo", start=start)
    assert (again.value_ns, again.bound_ns, again.status) == (39, 22, "feasible")
    assert "claimed 39 ns by plan.json (ideal-dp)" in str(again)
    # 36 is above the optimum, 34, and below the 43 ns of one device; a plan of 35 refutes it
    false = with_claim(example(), bound_ns=36, bound_origin="ideal-dp")
    alone = placegap.solve(false, objective="makespan", method="single-device")
    assert (alone.bound_ns, alone.warnings) == (33, ())
    known = placegap.solve(false, objective="makespan", method="single-device", start=BEST)
    assert (known.bound_ns, known.gap) == (33, None)
    (sentence,) = known.warnings
    assert "claims that no plan is better than 36 ns (ideal-dp), but" in sentence


def test_a_second_opinion_is_the_second_method_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(
        monkeypatch, example(), BestKnown(semantics=Makespan(), bound_ns=34, bound_origin="cp-sat")
    )
    asked = Attempt(example(), Makespan(), "heft")
    for attempt, bound_ns in ((asked, 34), (replace(asked, alone=True), None)):
        found = run_attempt(attempt)
        assert isinstance(found, Result)
        assert found.bound_ns == bound_ns


@pytest.mark.parametrize("rests_on", ["proof", "CP-SAT 9", ""])
def test_no_file_makes_a_plan_optimal(
    rests_on: str, model: str, tmp_path: Path, capsys: Capture
) -> None:
    # one device takes 43 ns; both files claim that this is optimal, and 34 is
    said = {"bound_ns": 43, "bound_origin": "ideal-dp", "rests_on": rests_on}
    save_document(Document.of(with_claim(example(), value_ns=43, **said)), model)
    start = saved(tmp_path, "start.json", stored(**said), Plan.on([0, 0, 0, 0]))
    out, log = str(tmp_path / "out.json"), tmp_path / "log.jsonl"
    place = ["place", model, "--method", "single-device", "--start", start, "--json", "-o", out]
    certificate = tmp_path / "certificate.json"
    assert main([*place, "--log", str(log), "--certificate", str(certificate)]) == 0
    placed = answer(capsys)
    assert (placed["status"], placed["proved"], placed["bound_ns"]) == ("feasible", False, 33)
    assert placed["gap"] is None  # only the critical path is known
    assert {claim["file"] for claim in placed["claims"]} == {"model.json", "start.json"}
    assert [json.loads(line)["bound_ns"] for line in log.read_text().splitlines()][-1] == 33
    bound = load_stated_plan(example(), out).bound
    assert bound is not None
    assert (bound.bound_ns, bound.bound_origin) == (33, "critical path")
    assert json.loads(certificate.read_text())["bound_ns"] <= 34
    assert "43" not in json.dumps(json.loads(certificate.read_text()))
    assert main(["verify", model, start, "--json"]) == 0  # feasible, and its value is true
    verified = answer(capsys)
    assert (verified["bound_ns"], verified["gap"]) == (33, None)
    assert verified["best_known_value_ns"] is None


def test_a_search_does_not_end_at_a_claim(model: str, tmp_path: Path, capsys: Capture) -> None:
    save_document(Document.of(with_claim(example(), value_ns=35, bound_ns=35)), model)
    start = saved(tmp_path, "start.json", stored(35))
    command = ["place", model, "--method", "brute-force", "--start", start, "--json"]
    assert main(command) == 0
    placed, err = capsys.readouterr()
    assert (json.loads(placed)["status"], json.loads(placed)["value_ns"]) == ("optimal", 34)
    # and then the proof refutes what both files say
    for file in ("model.json", "start.json"):
        assert f"{file} claims that no plan is better than 35 ns" in err
    assert "a solver was wrong" not in err


def test_a_claimed_value_refutes_a_claimed_bound_and_no_proof(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    save_document(Document.of(with_claim(example(), value_ns=20, value_origin="magic")), model)
    plan = saved(tmp_path, "plan.json", stored(34))
    assert main(["verify", model, plan, "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["bound_ns"] == 33  # the critical path
    assert (
        "plan.json claims that no plan is better than 34 ns (cp-sat), but model.json claims" in err
    )
    assert (
        "model.json claims a plan of 20 ns (magic), but no plan is better than 33 ns (critical"
        " path; proved by placegap)"
    ) in err


@pytest.mark.parametrize(
    ("bound", "claim"),
    [
        (stored(36), "36 ns by plan.json (cp-sat)"),
        (stored(content_hash="0" * 64), "34 ns by plan.json (cp-sat, of other content)"),
        (
            stored(semantics=Makespan(channels="free")),
            "34 ns by plan.json (cp-sat, under makespan free per_edge)",
        ),
    ],
    ids=["refuted", "content", "rules"],
)
def test_a_claim_says_what_it_is_about(
    bound: StoredBound, claim: str, model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan = saved(tmp_path, "plan.json", bound)
    is_refuted = bound.bound_ns == 36  # by the plan itself, of 35 ns
    for command, status in (
        (["verify", model, plan], int(is_refuted)),
        (["show", plan, "--model", model], 0),
        (["compare", plan, plan, "--model", model], 0),
        (["place", model, "--method", "heft", "--start", plan], 0),
    ):
        assert main(command) == status, command
        out, err = capsys.readouterr()
        assert "bound    33 ns" in out.replace("bound   33", "bound    33")
        assert out.count(f"claimed {claim}") + out.count(f"claimed  {claim}") == 1, command
        refuted = "plan.json claims that no plan is better than 36 ns (cp-sat), but"
        assert err.count(refuted) == is_refuted, command
        assert "Traceback" not in err


def test_a_wider_class_of_plans_counts_for_a_narrower_one() -> None:
    wide, narrow = MaxLoad(plans="any"), MaxLoad(plans="convex")
    assert includes(wide, narrow)
    assert includes(narrow, narrow)
    assert not includes(narrow, wide)
    assert not includes(MaxLoad(plans="any", load="overlap"), narrow)
    assert not includes(LatencySubgraphs(subgraphs=1), LatencySubgraphs(subgraphs=2))
    assert includes(PipelineIteration(), PipelineIteration())


def test_a_claim_about_any_plan_is_one_about_chains(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    found = run_method(example(), CHAIN, "brute-force")  # 39 ns; work proves 22
    assert found.value_ns == 39
    assert found.plan is not None
    for plans in ("any", "chain", "convex"):
        said = stored(40, semantics=MaxLoad(plans=plans))  # type: ignore[arg-type]
        save_plan(example(), found.plan, CHAIN, tmp_path / "plan.json", bound=said)
        assert main(["verify", model, str(tmp_path / "plan.json"), "--json"]) == 1
        out, err = capsys.readouterr()
        assert json.loads(out)["bound_ns"] == 22
        assert "no plan is better than 40 ns (cp-sat), but plan.json has one of 39 ns" in err
    # asked about plans of any kind, what is claimed of convex ones says nothing
    assert main(["verify", model, str(tmp_path / "plan.json"), "--plans", "any", "--json"]) == 0
    said = answer(capsys)["claims"]
    assert [claim["plans"] for claim in said] == ["under max_load convex add"]


def test_a_model_s_claims_are_shown_under_their_rules(model: str, capsys: Capture) -> None:
    claims = with_claim(example(), value_ns=35, bound_ns=34)
    save_document(Document.of(claims), model)
    assert main(["show", model, "--json"]) == 0
    assert answer(capsys)["claimed"] == ["makespan port per_edge: value 35 ns, bound 34 ns"]


# ----------------------------------------------------------------------------------- whole layers


def layered(*times_ns: int) -> Instance:
    """A row of ops, each two a layer."""
    ops = [
        Op(name=f"op{i}", module=f"net.{i // 2}.{'ab'[i % 2]}", time_ns={"gpu": time})
        for i, time in enumerate(times_ns)
    ]
    edges = [Edge(producer=a.name, consumer=b.name, bytes=0) for a, b in pairwise(ops)]
    graph = Graph(name="layered", ops=tuple(ops), edges=tuple(edges))
    return example().model_copy(update={"graph": graph})


def test_a_claim_about_whole_layers_is_one_about_no_other_plan(
    tmp_path: Path, capsys: Capture
) -> None:
    model, plan = str(tmp_path / "model.json"), str(tmp_path / "plan.json")
    save_document(Document.of(layered(10, 1, 1, 1)), model)
    chains = ["--objective", "max_load", "--method", "ideal-dp"]
    layers = [*chains, "--granularity", "layer", "--price-layers", "--json"]
    assert main(["place", model, *layers, "-o", plan]) == 0
    placed = answer(capsys)
    # layers: 11 and 2 ns; op by op: 10 and 3
    assert (placed["value_ns"], placed["bound_ns"], placed["gap"]) == (11, 11, 0)
    assert placed["granularity"]["op_value_ns"] == 10
    # the longest layer proves 11 of the plan's own kind, and op by op the longest op 10; moves of
    # whole layers gain nothing
    judges = ((["show", plan, "--model", model], 11, 0), (["verify", model, plan], 10, None))
    for command, bound_ns, gap in judges:
        assert main([*command, "--json"]) == 0
        said = answer(capsys)
        assert (said["bound_ns"], said["gap"], said.get("moves", [])) == (bound_ns, gap, [])
        (claim,) = said["claims"]
        assert (claim["bound_ns"], claim["plans"]) == (11, "among plans of whole layers")
    # a plan that splits a layer may be below what is claimed of whole ones
    assert main(["place", model, *chains, "--start", plan, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["value_ns"], json.loads(out)["bound_ns"]) == (10, 10)
    assert "claims" not in err
    # the plan at hand keeps the layers, and refutes 12
    content = json.loads(Path(plan).read_text())
    content["bound"]["bound_ns"] = 12
    Path(plan).write_text(json.dumps(content))
    assert main(["verify", model, plan, "--json"]) == 1
    assert "no plan is better than 12 ns" in capsys.readouterr().err


def test_what_is_recorded_op_by_op_holds_for_whole_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    known = BestKnown(semantics=MaxLoad(plans="any"), bound_ns=12, bound_origin="by hand")
    save_document(Document.of(layered(10, 1, 1, 1)), tmp_path / "m.json")
    command = ["place", str(tmp_path / "m.json"), "--objective", "max_load", "--method", "m-topo"]
    command += ["--granularity", "layer", "--json"]
    # m-topo makes halves of no bytes: one device, 13 ns, which does not refute 12; the longest
    # layer proves 11
    assert main(command) == 0
    assert answer(capsys)["bound_ns"] == 11
    recorded(monkeypatch, layered(10, 1, 1, 1), known)
    assert main(command) == 0
    said = answer(capsys)
    assert (said["bound_ns"], said["bound_origin"]) == (12, "recorded: by hand")


def test_show_proves_a_plan_of_whole_layers_among_such_plans(
    tmp_path: Path, capsys: Capture
) -> None:
    model, plan = str(tmp_path / "model.json"), str(tmp_path / "plan.json")
    # layers of 4, 4, 2 and 2 ns on two devices: 8; half of the work is 6, the best of single ops
    save_document(Document.of(layered(2, 2, 2, 2, 1, 1, 1, 1)), model)
    chains = ["--objective", "max_load", "--plans", "chain"]
    command = ["place", model, *chains, "--method", "ideal-dp"]
    assert main([*command, "--granularity", "layer", "--json", "-o", plan]) == 0
    assert answer(capsys)["gap"] == 0
    assert main(["show", plan, "--model", model]) == 0
    said = capsys.readouterr().out
    assert "bound   8 ns (certificate; proved by placegap; among plans of whole layers)" in said
    edit(plan, *CERTIFICATE, to=None)
    assert main(["show", plan, "--model", model]) == 0
    said = capsys.readouterr().out
    assert "gap     unknown; at most 25.0 % (work only)" in said
    assert "layers): a gap of 0 %, once --method ideal-dp proves it" in said
    assert main(["show", plan, "--model", model, "--method", "ideal-dp"]) == 0
    said = capsys.readouterr().out
    assert "bound   8 ns (ideal-dp; proved by placegap; among plans of whole layers)" in said
    assert "gap     0 %" in said
