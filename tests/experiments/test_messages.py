"""What callers of this room are told where input is refused: each sentence stands here, once.

`cli/test_bad_usage` has those of commands.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles.gap_runs import CHAIN, cells_of, plan
from doubles.refusals import Refusals, each_refusal, is_refused

import placegap
from placegap.experiments import load_runs
from placegap.experiments.running.placing import choose_semantics
from placegap.experiments.running.rules import Rules
from placegap.experiments.studies.analysis import regressions
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import run_study
from placegap.experiments.studies.runs import frame_of, write_rows
from placegap.instances import Makespan, Plan, example
from placegap.testing import KnownOptimum, assert_gap, prove_optimum


def file(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ------------------------------------------------------------------------------------------ calls

RUN = {("t", "net", "dp"): plan(2_000_000), ("t", "small", "dp"): plan(2_500_000)}
ROWS = cells_of(RUN, {"t": CHAIN})


def within(at_most: float) -> None:
    assert_gap(KnownOptimum(example(), Makespan(), 34), [0] * 4, at_most)


def called(_: Path, call: Callable[..., object], *given: Any) -> object:
    return call(*given)


CALLS = [
    Refusals(
        "",
        lambda _, arguments: placegap.solve(example(), **arguments),
        [
            ({"method": "heff"}, "did you mean 'heft'"),
            ({"method": 1.5}, "there is no method 1.5"),
            ({"objective": Makespan(), "plans": "chain"}, "not both"),
            ({"start": Plan.on([0])}, "the start is not a feasible plan for diamond"),
        ],
    ),
    Refusals(
        "",
        lambda _, rules, method: choose_semantics(Rules(**rules), example(), method),
        [
            # what a user asks for stands, and the message names the option
            ({"objective": "max_load"}, "etf", "max_load; it applies with --objective makespan"),
            ({"plans": "chain"}, "noncontiguous", "not chain; it applies with --plans any"),
            ({"transfers": "per_tensor"}, "moirai", "it applies with --transfers per_edge"),
            (
                {"schedule": "interleaved", "stages_per_device": 2},
                "heaviest-stage",
                "it applies with --schedule 1f1b --stages-per-device 1",
            ),
        ],
    ),
    Refusals(
        "",
        called,
        [
            (within, math.nan, "at_most"),
            (within, -0.1, "at_most"),
            (prove_optimum, example(), Makespan(), "heft", "heft proves no optimum…bound None ns"),
            (regressions, frame_of(ROWS), frame_of(ROWS), math.nan, "tolerance …(got nan)"),
        ],
    ),
]

# ---------------------------------------------------------------------------------------- studies

GOOD = """
name: small
tables:
  - name: one
    semantics: {objective: makespan, channels: link}
    instances:
      - zfnet512
      - generate: layered
        params: {ops: 6, width: 2}
        seeds: [1, 2]
    clusters: [8xH100-nvlink, celeritas-4xV100-pcie]
    methods:
      - heft
      - {name: cp-sat, params: [{workers: 1}, {workers: 2, start: false}]}
    seeds: [0, 5]
    limits: {time_limit_s: 2, gap: 0.01}
"""

BASE = """
name: base
tables:
  - name: ports
    semantics: {objective: makespan, channels: port}
    instances: [zfnet512, {model: own.json, optional: true}, {generate: layered, params: {ops: 6}}]
    clusters: [8xH100-nvlink, own.yaml]
    methods: [heft, {name: expert, params: {path: plans/own.json}}, {name: cp-sat}]
    limits: {time_limit_s: 2, gap: 0.01}
  - {extends: ports, name: free, semantics: {objective: makespan, channels: free}}
"""
MANY = list(range(1, 301))


def changed_study(folder: Path, old: str, new: str) -> object:
    assert old in GOOD
    path = file(folder, "study.yaml", GOOD.replace(old, new, 1))
    return list(plan_study(load_study(path), path))


def extended_study(folder: Path, line: str) -> object:
    file(folder, "base.yaml", BASE)
    file(folder, "wrong.yaml", "name: wrong\n")
    file(folder, "circle.yaml", "extends: study.yaml\nname: circle\n")
    base = [] if line.startswith("extends") else ["extends: base.yaml"]
    return load_study(file(folder, "study.yaml", "\n".join([*base, "name: s", line])))


def of_table(changes: str) -> str:
    return f"tables: [{{extends: free, {changes}}}]"


def without_folder(folder: Path) -> object:
    out = file(folder, "file", "")
    return run_study(file(folder, "study.yaml", GOOD), out, workers=1)


STUDIES = [
    Refusals(
        "study.yaml: ",
        changed_study,
        [
            ("name: small", "nam: small", "name: field is missing; nam: …; did you mean 'name'?"),
            ("name: small\n", "", "name: field is missing"),
            ("limits: {", "limit: {", "tables[0] 'one'.limit: unknown field; …mean 'limits'?"),
            ("clusters: [", "xyz: [", "tables[0] 'one'.xyz: unknown field"),
            ("gap: 0.01", "gap: 1.5", "tables[0] 'one'.limits.gap"),
            ("channels: link", "plans: chain", "plans belongs to max_load"),
            ("seeds: [0, 5]", "seeds: []", "tables[0] 'one'.seeds"),
            ("      - zfnet512", "      - {model: zfnet512, params: {}}", "params does not go"),
            ("name: one", "name: one\n    name: two", "'name' appears twice"),
            ("tables:", "tables: [", "line"),
            ("zfnet512", "zfnet5120", "table 'one'…there is no file"),
            ("      - heft\n", "      - hefts\n", "table 'one': there is no method 'hefts'"),
            ("{workers: 1}", "{worker: 1}", "table 'one': parameters of cp-sat: worker: unknown"),
            ("seeds: [0, 5]", f"seeds: [{2**63}]", "seeds[0]: must be less than"),
            ("seeds: [0, 5]", f"seeds: {list(range(3000))}", "the study has 54000 runs, above"),
            ("      - zfnet512", r'      - "a\0b"', "table 'one'"),
            ("- zfnet512", "- {model: zfnet512, slower_links: 1e-30}", "zfnet512: bandwidth_bytes"),
            ("limits: {", "coarsen: moirai-fusoin\n    limits: {", "table 'one': …'moirai-fusoin'"),
            (GOOD, "[1, 2]", ""),
            (GOOD, "a: !!python/object:os.system {}", ""),
        ],
    ),
    Refusals(
        "study.yaml: ",
        extended_study,
        [
            ("extends: bass.yaml", "extends: there is no file 'bass.yaml'"),
            ("extends: [base.yaml]", "extends: there is no file \"['base"),
            ("extends: ../base.yaml", "extends: there is no file '../base.yaml' beside it"),
            ("extends: study.yaml", "extends: study.yaml extends this file itself"),
            (f"extends: {'x' * 300}", "extends: there is no file"),
            ("tables: [{extends: prots}]", "tables[0].extends: no table 'prots'; did you"),
            (of_table("limit: 1"), "tables[0] 'free'.limit: unknown field"),
            (of_table("sweep: {}"), "tables[0] 'free': sweep: state parameters and"),
            (of_table("sweep: {seeds: []}"), "'free': sweep: state parameters and"),
            (
                "tables: [{extends: ports}, {extends: free, sweep: {instances.slower_link: [2]}}]",
                "tables[1] 'free'.sweep: instances[0].slower_link: unknown field",
            ),
            (of_table("sweep: {limits.gap.most: [2]}"), "sweep: limits.gap.most: 'most' is no key"),
            (of_table("sweep: {limits.gap: [0, 1]}"), "'free'.sweep: limits.gap: must"),
            (of_table("sweep: {seeds: [1, 1]}"), "'free, seeds=1' appears twice"),
            (of_table("sweep: {name: [1, 2]}"), "'free'.sweep: name: must be a valid"),
            (
                of_table(f"sweep: {{seeds: {MANY}, limits.gap: {MANY}, a: {MANY}}}"),
                "makes at least 27,000,000 tables, of one run or more each, above the limit",
            ),
            (
                # 3 instances, 2 clusters, 300 seeds and 3 methods are 5400 runs: ten tables are
                # too many
                of_table(f"seeds: {MANY}, sweep: {{limits.time_limit_s: {MANY}}}"),
                "it has 54000 runs, above the limit of 50000; PLACEGAP_MAX_RUNS=... raises",
            ),
            (of_table("sweep: {limits: [{2001-01-01: 1}]}"), "Keys should be strings"),
        ],
    ),
    Refusals(
        "",
        extended_study,
        [
            ("extends: wrong.yaml", "wrong.yaml: tables: field is missing"),
            ("extends: circle.yaml", "circle.yaml: extends: study.yaml extends this file itself"),
        ],
    ),
    Refusals("", without_folder, [("cannot be opened",)]),
]

# ------------------------------------------------------------------------------------ files of runs

LINE = {
    **{"key": "k", "instance_hash": "0", "label": "heft", "rules": '{"objective":"makespan"}'},
    **{"status": "feasible", "value_ns": 5, "seed": 0, "details": {"nodes": 3, "gap": "x"}},
}
ODD = [
    *({"value_ns": odd} for odd in (1e999, float("nan"), 10**30, 5.7, True, "x", [1], {})),
    *({"rules": odd} for odd in ("x", "[]", '{"objective":"x"}', 5, "{" * 5000, "")),
    *({"details": odd} for odd in ([1], "x", {"nodes": "many"})),
    *({"bound_class": "x"}, {"seed": 2**70}, {"solve_s": 1e999}, {"label": 5}),
]


def log_file(folder: Path, odd: dict[str, Any]) -> object:
    text = "".join(f"{json.dumps(line)}\n" for line in (LINE, {**LINE, **odd}))
    return load_runs(file(folder, "runs.jsonl", text))


def changed_table(folder: Path, old: str, new: str) -> object:
    path = folder / "runs.csv"
    write_rows(ROWS, path)
    text = path.read_text()
    assert old in text
    return load_runs(file(folder, "runs.csv", text.replace(old, new, 1)))


RUNS = [
    Refusals("runs.jsonl: line 2", log_file, [(odd, "; mend or remove it") for odd in ODD]),
    Refusals(
        "runs.csv: row ",
        changed_table,
        [("2500000", "2500000.5", ""), ("2500000", "inf", ""), ("\nsmall", "\nsmall,x", "")],
    ),
    Refusals(
        "{0}: ",
        lambda folder, name, data: load_runs(file(folder, name, data)),
        [
            ("other.csv", "a,b\n1,2\n", ""),
            *(
                (name, data, "")
                for name in ("runs.jsonl", "runs.csv")
                for data in (b"", b"\xff\xfe}", b"\xff\xfe}\n", b'{"a":1', b"rules\n")
            ),
        ],
    ),
    Refusals(
        "",
        lambda folder, name: load_runs(folder / name),
        [("missing.csv", "missing.csv: "), ("", "no results")],
    ),
]


@pytest.mark.parametrize(("table", "given", "sentence"), each_refusal(CALLS + STUDIES + RUNS))
def test_a_refusal_is_one_line_that_names_the_place_and_the_remedy(
    table: Refusals, given: list[Any], sentence: str, tmp_path: Path
) -> None:
    is_refused(table, given, sentence, tmp_path)
