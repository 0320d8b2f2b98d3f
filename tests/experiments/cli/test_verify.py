"""``placegap verify``: two referees, the bound that is known, and what ends with which status."""

import json
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.cli import main
from placegap.instances import (
    BestKnown,
    Evaluation,
    Instance,
    Makespan,
    Plan,
    example,
    load_cluster,
    load_corpus,
)
from placegap.instances.certificates import verification
from placegap.instances.certificates.certificate_file import save_certificate
from placegap.instances.corpus import corpus
from placegap.instances.corpus.corpus import known_of, load_best_known
from placegap.instances.files.document import Document, save_document
from placegap.instances.files.plan_file import save_plan
from placegap.solvers.bounds.certificates.write import certify

MAKESPAN = Makespan()
BEST = Plan.on([0, 1, 0, 0])  # 35 (FD-DPS, figure 3)
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The diamond, and a plan of 35 ns for it."""
    return written(tmp_path)


def written(folder: Path, instance: Instance | None = None, **claims: Any) -> list[str]:
    save_document(Document.of(instance or example()), folder / "model.json")
    save_plan(instance or example(), BEST, MAKESPAN, folder / "plan.json", **claims)
    return [str(folder / "model.json"), str(folder / "plan.json")]


def answer(capsys: Capture) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_both_referees_and_a_bound_are_named(files: list[str], capsys: Capture) -> None:
    assert main(["verify", *files]) == 0
    out = capsys.readouterr().out
    assert "35 ns (both referees)" in out
    assert "33 ns (critical path; proved by placegap)" in out  # 5 + 20 + 8
    assert "5.71 %" in out  # 2 of 35
    assert main(["verify", *files, "--json"]) == 0
    content = answer(capsys)
    assert content["referees_agree"] is True
    assert content["second_referee"] == {"value_ns": 35, "violations": []}
    assert (content["bound_ns"], content["rests_on"]) == (33, "proof")


def test_what_the_corpus_records_is_used(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    best = BestKnown(
        semantics=MAKESPAN, value_ns=34, bound_ns=34, bound_origin="cp-sat", rests_on="CP-SAT 9"
    )
    known = {example().content_hash: [best]}
    monkeypatch.setattr(corpus, "_recorded", lambda: known)
    assert main(["verify", *files]) == 0
    out = capsys.readouterr().out
    assert "34 ns (recorded: cp-sat; proved by CP-SAT 9, not checked by placegap)" in out
    assert "34 ns is recorded" in out
    monkeypatch.undo()
    entry = next(found for found in load_best_known() if found.graph == "zfnet512")
    instance = load_corpus(entry.graph).instance(load_cluster(entry.cluster))
    assert entry in known_of(instance, entry.semantics)


def test_a_recorded_bound_above_a_feasible_plan_is_told(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    wrong = BestKnown(semantics=MAKESPAN, bound_ns=36, bound_origin="nobody")
    known = {example().content_hash: [wrong]}
    monkeypatch.setattr(corpus, "_recorded", lambda: known)
    assert main(["verify", *files]) == 1
    out, err = capsys.readouterr()
    assert "33 ns (critical path; proved by placegap)" in out  # 36 is not believed
    assert (
        "recorded: nobody: claims that no plan is better than 36 ns, but there is one of 35 ns"
        in err
    )
    assert "bound is wrong" in err


def test_referees_that_disagree_are_told_with_both_values(
    files: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "recheck", lambda *_: Evaluation(36))
    assert main(["verify", *files]) == 1
    out, err = capsys.readouterr()
    assert "35 ns and 36 ns (35 and 36): the referees DISAGREE" in out
    assert "DISAGREE" in out
    assert "referees disagree" in err
    assert main(["verify", *files, "--json"]) == 1
    content = answer(capsys)
    assert (content["referees_agree"], content["feasible"]) == (False, False)
    assert (content["value_ns"], content["second_referee"]["value_ns"]) == (35, 36)


def test_a_false_claim_is_rejected(tmp_path: Path, capsys: Capture) -> None:
    files = written(tmp_path, value=34)
    assert main(["verify", *files, "--json"]) == 1
    assert [broken["rule"] for broken in answer(capsys)["violations"]] == ["claim"]
    # under another semantics the claim is none
    assert main(["verify", *files, "--channels", "free", "--json"]) == 0


def test_a_plan_of_another_content_is_rejected_unless_asked_for(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    base = example()
    slower = tuple(op.model_copy(update={"time_ns": {"gpu": 100}}) for op in base.graph.ops)
    changed = base.model_copy(update={"graph": base.graph.model_copy(update={"ops": slower})})
    save_document(Document.of(changed), tmp_path / "model.json")
    assert main(["verify", *files, "--json"]) == 1
    assert [broken["rule"] for broken in answer(capsys)["violations"]] == ["instance"]
    assert main(["verify", *files, "--json", "--any-content"]) == 0
    assert answer(capsys)["value_ns"] == 302  # 100 + 1 + 100 + 1 + 100


def test_a_plan_is_judged_under_another_objective_without_its_orders(
    tmp_path: Path, capsys: Capture
) -> None:
    save_document(Document.of(example()), tmp_path / "model.json")
    plan = Plan.on([0, 1, 0, 0], [[0, 2, 3], [1]])
    save_plan(example(), plan, Makespan(), tmp_path / "plan.json")
    files = [str(tmp_path / "model.json"), str(tmp_path / "plan.json")]
    any_plan = ["--objective", "max_load", "--plans", "any"]
    assert main(["verify", *files, *any_plan, "--json"]) == 0
    out, err = capsys.readouterr()
    # gpu0: 5 + 10 + 8 and one tensor out (1 ns) and one in (1 ns); gpu1: 20 + 1 + 1
    assert json.loads(out)["value_ns"] == 25
    assert "only its placement" in err


# ------------------------------------------------------------------------------------ certificates


@pytest.fixture
def certified(tmp_path: Path) -> list[str]:
    """The diamond, and a certificate of 34 ns for it."""
    found = certify(example(), MAKESPAN)
    assert found is not None
    save_certificate(found, tmp_path / "bound.json")
    return [*written(tmp_path), "--certificate", str(tmp_path / "bound.json")]


def test_a_certificate_is_checked_and_its_bound_counts_for_a_plan(
    certified: list[str], capsys: Capture
) -> None:
    model, _, *certificate = certified
    assert main(["verify", model, *certificate]) == 0
    assert "the certificate holds: no plan is below 34 ns (34 ns)" in capsys.readouterr().out
    assert main(["verify", model, *certificate, "--json"]) == 0
    verdict = answer(capsys)["certificate"]
    assert (verdict["holds"], verdict["bound_ns"]) == (True, 34)
    assert main(["verify", *certified, "--json"]) == 0  # paths prove 33 of 35 ns
    content = answer(capsys)
    assert (content["bound_ns"], content["bound_origin"]) == (34, "certificate")
    assert content["rests_on"] == "proof"


def test_a_certificate_of_too_much_does_not_hold(certified: list[str], capsys: Capture) -> None:
    file = Path(certified[-1])
    file.write_text(file.read_text().replace('"bound_ns": 34', '"bound_ns": 35'))
    assert main(["verify", *certified]) == 1
    assert "does NOT hold: it claims 35 ns, and proves 34 ns" in capsys.readouterr().out
    assert main(["verify", certified[0], *certified[2:], "--json"]) == 1
    assert answer(capsys)["certificate"]["holds"] is False
