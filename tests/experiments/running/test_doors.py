"""One word is one problem: an objective has the same default rules at every door."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import placegap
from placegap.experiments.cli import main
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.runs import stated
from placegap.instances import Cache, Document, Edge, Instance, Plan, Semantics, example, load_model
from placegap.instances.files.plan_file import describe_plan, load_plan, plan_object
from placegap.instances.problem import (
    BY_OBJECTIVE,
    DEFAULTS,
    FIELDS,
    OBJECTIVES,
    Objective,
    stored_semantics,
)

OF_PLANS: tuple[Objective, ...] = ("max_load", "max_load_fwd_bwd", "max_context")
METHOD = "single-device"  # it does every objective, but makes no stages

STUDY = """
name: doors
tables:
  - name: words
    semantics: {{objective: {objective}}}
    instances: [squeezenet]
    clusters: [moirai-intra-server]
    methods: [heft]
"""


def cached() -> Instance:
    """Four ops in a row with caches, and room for 20 tokens: what every objective needs."""
    ops = tuple(
        op.model_copy(update={"caches": (Cache(token_bytes=1),)}) for op in example().graph.ops
    )
    edges = (*example().graph.edges, Edge(producer="op2", consumer="op3", bytes=1))
    devices = tuple(
        device.model_copy(update={"memory_bytes": 80}) for device in example().cluster.devices
    )
    return example().model_copy(
        update={
            "graph": example().graph.model_copy(update={"ops": ops, "edges": edges}),
            "cluster": example().cluster.model_copy(update={"devices": devices}),
        }
    )


def written(folder: Path, objective: str, version: int | None) -> tuple[Path, Path, Path]:
    """An instance file, a plan file and a study, which state no rule but the objective."""
    rules = {"semantics": {"objective": objective}}
    head = {} if version is None else {"version": version}
    document = Document.of(cached()).model_dump(mode="json", exclude_defaults=True)
    plan = plan_object(describe_plan(cached(), Plan.on([0] * 4), BY_OBJECTIVE["makespan"]()))
    del plan["version"]
    files = folder / "net.json", folder / "plan.json", folder / "study.yaml"
    files[0].write_text(json.dumps({**document, **rules, **head}))
    files[1].write_text(json.dumps({**plan, **rules, **head}))
    study = STUDY.format(objective=objective)
    files[2].write_text(study if version is None else f"version: {version}\n{study}")
    return files


def at_files(folder: Path, objective: str, version: int | None) -> list[Semantics | None]:
    net, plan, study = written(folder, objective, version)
    return [
        load_model(net).semantics,
        load_plan(cached(), plan)[1],
        load_study(study).tables[0].semantics,
    ]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_objective_has_its_default_rules_at_every_door(
    objective: Objective, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = BY_OBJECTIVE[objective]()
    assert all(getattr(rules, name) == DEFAULTS[name] for name in FIELDS[objective])
    assert at_files(tmp_path, objective, 2) == [rules] * 3
    found = [
        placegap.solve(cached(), None, asked, method=METHOD).result.semantics
        for asked in (objective, rules)
    ]
    found.append(placegap.solve(tmp_path / "net.json", method=METHOD).result.semantics)
    assert found == [rules] * 3
    plain = tmp_path / "plain.json"
    plain.write_text(Document.of(cached()).model_dump_json())
    asked = [str(plain), "--objective", objective, "--json"]
    for command in (
        ["place", *asked, "--method", METHOD, "--quiet"],
        ["verify", *asked[:1], str(tmp_path / "plan.json"), *asked[1:], "--any-content"],
    ):
        main(command)  # a plan on one device has no stages, and is refused where it needs them
        assert json.loads(capsys.readouterr().out)["semantics"] == rules.model_dump(mode="json")


@pytest.mark.parametrize("method", ["ideal-dp", "throughput-ip", "noncontiguous", None])
def test_no_method_has_a_default_of_its_own(method: str | None) -> None:
    found = placegap.solve(example(), None, "max_load", method=method)
    # a method that cannot do the default says that it runs under other rules
    assert (found.result.semantics == BY_OBJECTIVE["max_load"]()) == (not found.warnings)
    assert bool(found.warnings) == (method == "noncontiguous")


def test_the_help_says_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    main(["place", "--help"])
    said = re.sub(r"[^\w:-]+", " ", capsys.readouterr().out)
    for name, default in DEFAULTS.items():
        of_option = said.partition(f"--{name.replace('_', '-')} ")[2].partition(" --")[0]
        if default not in (None, False):
            assert f"default: {default}" in of_option, name


@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.parametrize("objective", OF_PLANS)
def test_an_old_file_that_states_no_plans_means_any_and_a_line_says_so(
    objective: Objective, version: int | None, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="states no plans") as caught:
        found: Any = at_files(tmp_path, objective, version)
    assert [rules.plans for rules in found] == ["any"] * 3
    assert [str(line.message) for line in caught] == [
        f"{tmp_path / name}: its semantics states no plans, which means any plans before version 2"
        " and chains from then on; state plans: any or plans: chain, or version: 2"
        for name in ("net.json", "plan.json", "study.yaml")
    ]
    short = {"objective": objective}  # of a run or a record, which people do not write
    assert stored_semantics(short) == stated(json.dumps(short)) == found[0]


def test_a_command_says_once_that_a_file_is_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net, _, _ = written(tmp_path, "max_load", 1)
    assert main(["place", str(net), "--method", METHOD, "--quiet"]) == 0
    out, line = capsys.readouterr()
    assert out.startswith("diamond: max_load any add, single-device")
    assert line.startswith(f"placegap: {net}: its semantics states no plans")
    assert line.count("\n") == 1


TWO_FILES = """
{head}
name: derived
extends: study.yaml
tables:
  - extends: words
  - {{extends: words, name: loads, sweep: {{semantics.load: [add, overlap]}}}}
  - {{extends: words, name: classes, sweep: {{semantics.plans: [chain, convex]}}}}
  - {{extends: words, name: own, semantics: {{objective: max_load}}}}
  - {{extends: own, name: wider, semantics: {{objective: makespan}},
     sweep: {{semantics.objective: [makespan, max_context]}}}}
"""


@pytest.mark.parametrize(
    ("inherited", "own", "lines"), [("any", "any", 2), ("any", "chain", 1), ("chain", "any", 1)]
)
def test_a_study_and_the_one_that_it_extends_each_mean_what_their_version_does(
    inherited: str, own: str, lines: int, tmp_path: Path
) -> None:
    written(tmp_path, "max_load", 2 if inherited == "chain" else None)
    head = "version: 2" if own == "chain" else ""
    derived = tmp_path / "derived.yaml"
    derived.write_text(TWO_FILES.format(head=head))
    with pytest.warns(UserWarning, match="states no plans") as caught:
        tables = load_study(derived).tables
    found = [getattr(table.semantics, "plans", "") for table in tables]
    assert found == [inherited] * 3 + ["chain", "convex"] + [own, "", own]
    assert len(caught) == lines


def test_new_files_state_the_class_of_plans(tmp_path: Path) -> None:
    for objective in OF_PLANS:
        rules: Any = BY_OBJECTIVE[objective]
        for semantics in (rules(), rules(plans="any")):
            short = semantics.model_dump(mode="json", exclude_defaults=True)
            assert short == {"objective": objective, "plans": semantics.plans}
            assert semantics.model_dump(exclude_unset=True) == short
            assert stored_semantics(short) == semantics
