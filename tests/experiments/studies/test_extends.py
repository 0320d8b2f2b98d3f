"""A study states what differs from another one: it is the study that is written out."""

from pathlib import Path

import pytest

from placegap.experiments.studies.config import load_study
from placegap.instances import InputError

BASE = """
name: base
smoke: {instances: [zfnet512]}
recorded_bounds: false
tables:
  - name: ports
    semantics: {objective: makespan, channels: port}
    instances: [zfnet512, {model: own.json, optional: true}, {generate: layered, params: {ops: 6}}]
    clusters: [8xH100-nvlink, own.yaml]
    methods: [heft, {name: expert, params: {path: plans/own.json}}, {name: cp-sat}]
    limits: {time_limit_s: 2, gap: 0.01}
  - {extends: ports, name: free, semantics: {objective: makespan, channels: free}}
"""


def study(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return study(tmp_path / "base.yaml", BASE)


def tables(path: Path) -> dict[str, dict[str, object]]:
    return {table.name: table.model_dump() for table in load_study(path).tables}


def test_a_study_that_extends_another_is_the_one_that_is_written_out(base: Path) -> None:
    less = """
extends: base.yaml
name: less
tables:
  - extends: free
  - {extends: ports, name: quick, methods: [heft], limits: {time_limit_s: 1}}
  - {extends: quick, name: on one, instances: [zfnet512], clusters: [8xH100-nvlink]}
"""
    # a key that is stated takes the other's place as a whole: the gap of `quick` is the default
    whole = """
name: less
recorded_bounds: false
tables:
  - name: free
    semantics: {objective: makespan, channels: free}
    instances: [zfnet512, {model: own.json, optional: true}, {generate: layered, params: {ops: 6}}]
    clusters: [8xH100-nvlink, own.yaml]
    methods: [heft, {name: expert, params: {path: plans/own.json}}, {name: cp-sat}]
    limits: {time_limit_s: 2, gap: 0.01}
  - name: quick
    semantics: {objective: makespan, channels: port}
    instances: [zfnet512, {model: own.json, optional: true}, {generate: layered, params: {ops: 6}}]
    clusters: [8xH100-nvlink, own.yaml]
    methods: [heft]
    limits: {time_limit_s: 1}
  - name: on one
    semantics: {objective: makespan, channels: port}
    instances: [zfnet512]
    clusters: [8xH100-nvlink]
    methods: [heft]
    limits: {time_limit_s: 1}
"""
    written = load_study(study(base.with_name("whole.yaml"), whole))
    extended = load_study(study(base.with_name("less.yaml"), less))
    assert extended.model_dump() == written.model_dump()
    all_of_it = study(base.with_name("again.yaml"), "extends: base.yaml\nname: again\n")
    assert load_study(all_of_it).tables == load_study(base).tables


def test_a_sweep_makes_a_table_of_each_combination_of_its_values(base: Path) -> None:
    text = """
extends: base.yaml
name: swept
tables:
  - extends: ports
    instances: [zfnet512, {generate: layered, params: {ops: 6}}]
    sweep:
      instances.slower_links: [1, 2.5]
      methods.cp-sat.params.workers: [1, 2]
      instances.layered.params.ops: 8
      instances.device_memory: 0.5
      limits.gap: 0
"""
    swept = load_study(study(base.with_name("swept.yaml"), text)).tables
    # 2 x 2 tables of 2 entries each; a single value is in all of them, and in no name
    assert [table.name for table in swept] == [
        "ports, slower_links=1, workers=1",
        "ports, slower_links=1, workers=2",
        "ports, slower_links=2.5, workers=1",
        "ports, slower_links=2.5, workers=2",
    ]
    last = swept[-1]
    assert [entry.slower_links for entry in last.instances] == [2.5, 2.5]
    assert [entry.params for entry in last.instances] == [{}, {"ops": 8}]
    assert [entry.device_memory for entry in last.instances] == [(0.5,), (0.5,)]
    assert [entry.params for entry in last.methods] == [
        ({},),
        ({"path": "plans/own.json"},),
        ({"workers": 2},),
    ]
    assert (last.limits.time_limit_s, last.limits.gap) == (2, 0)
    assert swept[0].clusters == ("8xH100-nvlink", "own.yaml")


MANY = list(range(1, 301))

BAD = [
    ("extends: bass.yaml", r"study\.yaml: extends: there is no file 'bass\.yaml'"),
    ("extends: [base.yaml]", r"study\.yaml: extends: there is no file \"\['base"),
    (
        "extends: ../base.yaml",
        r"study\.yaml: extends: there is no file '\.\./base\.yaml' beside it",
    ),
    ("extends: study.yaml", r"study\.yaml: extends: study\.yaml extends this file itself"),
    ("extends: wrong.yaml", r"wrong\.yaml: tables: field is missing"),
    ("tables: [{extends: prots}]", r"study\.yaml: tables\[0\]\.extends: no table 'prots'; did you"),
    ("tables: [{extends: free, limit: 1}]", r"tables\[0\] 'free'\.limit: unknown field"),
    ("tables: [{extends: free, sweep: {}}]", r"tables\[0\] 'free': sweep: state parameters and"),
    ("tables: [{extends: free, sweep: {seeds: []}}]", r"'free': sweep: state parameters and"),
    (
        "tables: [{extends: ports}, {extends: free, sweep: {instances.slower_link: [2]}}]",
        r"study\.yaml: tables\[1\] 'free'\.sweep: instances\[0\]\.slower_link: unknown field",
    ),
    (
        "tables: [{extends: free, sweep: {limits.gap.most: [2]}}]",
        r"study\.yaml: tables\[0\] 'free'\.sweep: limits\.gap\.most: 'most' is no key there",
    ),
    ("tables: [{extends: free, sweep: {limits.gap: [0, 1]}}]", r"'free'\.sweep: limits\.gap: must"),
    ("tables: [{extends: free, sweep: {seeds: [1, 1]}}]", "'free, seeds=1' appears twice"),
    ("tables: [{extends: free, sweep: {name: [1, 2]}}]", "'free'.sweep: name: must be a valid"),
    (
        f"tables: [{{extends: free, sweep: {{seeds: {MANY}, limits.gap: {MANY}, a: {MANY}}}}}]",
        "'free'.sweep: makes at least 27,000,000 tables, of one run or more each, above the limit",
    ),
    (
        f"tables: [{{extends: free, seeds: {MANY}, sweep: {{limits.time_limit_s: {MANY}}}}}]",
        # 3 instances, 2 clusters, 300 seeds and 3 methods are 5400 runs: ten tables are too many
        "'free'.sweep: it has 54000 runs, above the limit of 50000; PLACEGAP_MAX_RUNS=... raises",
    ),
    (f"extends: {'x' * 300}", "extends: there is no file"),
    ("tables: [{extends: free, sweep: {limits: [{2001-01-01: 1}]}}]", "Keys should be strings"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line[:80] for line, _ in BAD])
def test_what_cannot_be_extended_is_one_line_with_file_and_place(
    base: Path, line: str, message: str
) -> None:
    study(base.with_name("wrong.yaml"), "name: wrong\n")
    lines = (
        ["name: s", line] if line.startswith("extends") else ["extends: base.yaml", "name: s", line]
    )
    with pytest.raises(InputError, match=message) as error:
        load_study(study(base.with_name("study.yaml"), "\n".join(lines)))
    assert "\n" not in str(error.value)


def test_files_that_extend_each_other_are_refused(base: Path) -> None:
    study(base.with_name("a.yaml"), "extends: b.yaml\nname: a\n")
    there = study(base.with_name("b.yaml"), "extends: a.yaml\nname: b\n")
    with pytest.raises(InputError, match=r"a\.yaml: extends: b\.yaml extends this file itself"):
        load_study(there)
