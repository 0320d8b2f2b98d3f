"""``placegap cite`` and ``record``: what papers cite, and what is entered as best known."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from placegap.experiments.cli import main
from placegap.experiments.cli.publish import RELEASED, SOURCES, entries
from placegap.instances import (
    BestKnown,
    Makespan,
    MaxLoad,
    Plan,
    load_cluster,
    load_corpus,
    save_plan,
)
from placegap.instances.corpus import corpus
from placegap.instances.corpus.corpus import load_best_known

ROOT = Path(__file__).resolve().parents[3]
Capture = pytest.CaptureFixture[str]
RULES = Makespan(channels="port")
STUDY = """
name: s
tables:
  - name: t
    semantics: {objective: max_load, plans: chain}
    instances: [squeezenet]
    clusters: [celeritas-4xV100-pcie]
    methods: [slicing, random, vllm-even]
  - name: u
    semantics: {objective: max_load, plans: chain}
    instances: [bert24_inference]
    methods: [slicing]
"""


def keys(text: str) -> list[str]:
    return re.findall(r"^@\w+\{([^,]+),$", text, re.MULTILINE)


def test_placegap_is_cited_as_citation_cff_says(capsys: Capture) -> None:
    assert main(["cite"]) == 0
    out = capsys.readouterr().out
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert keys(out) == ["placegap"]
    assert f"title = {{{cff['title']}}}" in out
    assert f"author = {{{{{cff['authors'][0]['name']}}}}}" in out
    assert cff["version"] == project["version"]
    assert cff["date-released"].isoformat() == RELEASED
    assert f"## {cff['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert {"cff-version", "message", "abstract", "license", "keywords"} <= cff.keys()


def test_a_study_cites_the_papers_of_its_methods_and_instances(
    tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(STUDY)
    assert main(["cite", str(path)]) == 0
    out = capsys.readouterr().out
    # slicing and bert24_inference are of one paper; random has none, and vLLM no entry
    assert keys(out) == ["placegap", "tarnawski2020", "instance-squeezenet"]
    assert "onnx wheel" in out
    assert "% vllm-even: vLLM" in out
    assert out.count("{") == out.count("}")


def test_the_papers_of_instances_are_in_the_bibliography() -> None:
    assert set(SOURCES.values()) <= entries().keys()


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """All of squeezenet on one device: 423.7 us, which is optimal."""
    instance = load_corpus("squeezenet").instance(load_cluster("celeritas-4xV100-pcie"))
    save_plan(instance, Plan.on([0] * instance.num_ops), RULES, tmp_path / "plan.json", "mine")
    return str(tmp_path / "plan.json")


def recorded(monkeypatch: pytest.MonkeyPatch, **changes: object) -> BestKnown:
    instance = load_corpus("squeezenet").instance(load_cluster("celeritas-4xV100-pcie"))
    (old,) = (e for e in corpus.known_of(instance, RULES))
    new = old.model_copy(update=changes)
    monkeypatch.setattr(corpus, "known_of", lambda *_: (new,))
    return old


def test_a_plan_that_is_no_better_is_refused(plan: str, capsys: Capture) -> None:
    assert main(["record", plan]) == 1
    out, err = capsys.readouterr()
    assert "not better than what is recorded: value 423" in err
    assert out == ""  # no entry, as it goes into a file


def test_the_entry_of_a_better_plan_is_one_of_the_list(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    old = recorded(monkeypatch, value_ns=500_000, bound_ns=400_000)
    assert main(["record", plan, "--by", "Me 2026"]) == 0
    out, err = capsys.readouterr()
    assert "a better value: 423" in err
    assert "recorded is 500" in err
    assert "bound" not in err
    (tmp_path / "best.json").write_text(f"[{out}]")
    (entry,) = load_best_known(tmp_path / "best.json")
    assert (entry.value_ns, entry.value_origin, entry.bound_ns) == (old.value_ns, "Me 2026", None)
    assert list(json.loads(out))[:3] == ["graph", "cluster", "content_hash"]


def test_a_better_bound_needs_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path, rules = tmp_path / "plan.json", MaxLoad(plans="chain")
    words = ["inception_v1", "--cluster", "celeritas-4xV100-pcie", "--objective", "max_load"]
    assert main(["place", *words, "-o", str(path), "--quiet"]) == 0
    known = BestKnown(semantics=rules, value_ns=320_472, bound_ns=300_000)
    monkeypatch.setattr(corpus, "known_of", lambda *_: (known,))
    capsys.readouterr()
    assert main(["record", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "a better bound: 320472 ns, recorded is 300000 ns" in err
    assert "a better value" not in err
    assert (json.loads(out)["bound_ns"], json.loads(out)["rests_on"]) == (320_472, "proof")


def test_a_plan_that_breaks_a_rule_is_not_recorded(plan: str, capsys: Capture) -> None:
    content = json.loads(Path(plan).read_text())
    Path(plan).write_text(json.dumps(content | {"value_ns": 1}))
    assert main(["record", plan]) == 1
    out, err = capsys.readouterr()
    assert "it states a value of 1 ns" in err
    assert out == ""


def test_a_plan_of_another_instance_is_refused(plan: str, tmp_path: Path, capsys: Capture) -> None:
    content = json.loads(Path(plan).read_text())
    Path(plan).write_text(json.dumps(content | {"instance": "mine@here"}))
    assert main(["record", plan]) == 2
    assert "is for 'mine@here', which the corpus does not have" in capsys.readouterr().err
    assert main(["record", str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file" in capsys.readouterr().err
