"""A study states what differs from another one: it is the study that is written out."""

from pathlib import Path

import pytest

from placegap.experiments.studies.config import load_study

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
