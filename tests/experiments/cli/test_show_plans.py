"""`show` and `compare` say what plans do."""

import json
from pathlib import Path

import pytest

from placegap.experiments.cli import main
from placegap.instances import Plan, example, load_cluster, load_corpus
from placegap.instances.files.plan_file import save_plan
from placegap.instances.problem import Instance, Makespan, MaxLoad

Capture = pytest.CaptureFixture[str]


def saved(tmp_path: Path, name: str, devices: list[int], instance: Instance | None = None) -> str:
    path = tmp_path / name
    save_plan(instance or example(), Plan.on(devices), Makespan(), path, "by hand")
    return str(path)


def test_a_plan_is_explained(model: str, tmp_path: Path, capsys: Capture) -> None:
    plan = saved(tmp_path, "plan.json", [0, 0, 1, 0])
    assert main(["show", plan, "--model", model, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["value_ns"], said["bound_ns"]) == (53, 33)  # test_gantt; quick_bound's example
    assert [device["num_ops"] for device in said["devices"]] == [3, 1]
    path = ["op1", "op1 to op3", "op3", "op3 to op4", "op4"]
    assert [part["name"] for part in said["critical_path"]] == path
    sent = {"op": "op1", "from": "gpu0", "to": ["gpu1"], "bytes": 20, "time_ns": 20}
    assert said["transfers"][0] == sent
    assert said["moves"][0]["value_ns"] == 34
    assert main(["show", plan, "--model", model]) == 0
    out = capsys.readouterr().out
    assert "peak" not in out  # under the rule sum, as `place` says it
    for text in (
        "memory",
        "gpu1 runs op3 (10 ns)",
        "What to change next",
        "gap     unknown; at most 37.7 % (critical",
    ):
        assert text in out


@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("zfnet512", "moirai-inter-server"),
        ("zfnet512", "2xT4, pcie3"),
        ("zfnet512", "RTX3090@pcie4x8+RTX3090@pcie4x4"),
        ("bert-24-layers-train", None),  # a shipped network on its own cluster
        ("bert24_training", None),  # its own devices, which are no shipped cluster
        ("bert-24-layers-train", "8xH200-nvlink"),
    ],
)
def test_a_plan_of_the_corpus_finds_its_model(
    model: str, cluster: str | None, tmp_path: Path, capsys: Capture
) -> None:
    document = load_corpus(model)
    instance = document.instance(None if cluster is None else load_cluster(cluster))
    fast = [int(d) for d in instance.arrays.time_ns[0] >= 0].index(1)
    plan = saved(tmp_path, "plan.json", [fast] * instance.num_ops, instance)
    html = tmp_path / "plan.html"
    assert main(["show", plan, "--json", "--html", str(html)]) in (0, 1)  # 1: it does not fit
    assert json.loads(capsys.readouterr().out)["value_ns"] > 0
    assert instance.name in html.read_text()
    assert main(["compare", plan, plan]) in (0, 1)


def test_a_plan_that_breaks_a_rule_is_shown_with_status_1(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "plan.json"
    save_plan(example(), Plan.on([0, 1, 1, 0]), MaxLoad(plans="convex"), path)
    assert main(["show", str(path), "--model", model]) == 1
    out = capsys.readouterr().out
    assert "infeasible:" in out
    assert "gap     unknown" in out


def test_two_plans_are_compared(model: str, tmp_path: Path, capsys: Capture) -> None:
    a, b = saved(tmp_path, "a.json", [0, 0, 1, 0]), saved(tmp_path, "b.json", [0, 0, 0, 0])
    assert main(["compare", a, b, "--model", model, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [plan["value_ns"] for plan in said["plans"]] == [53, 43]
    assert [plan["transfers_ns"] for plan in said["plans"]] == [30, 0]
    assert (said["moved_ops"], said["moved"][0]["ops"]) == (1, ["op3"])
    assert main(["compare", a, b, "--model", model]) == 0
    out = capsys.readouterr().out
    assert "1 of 4 ops" in out
    assert "-18.9 %" in out  # 53 to 43
    assert main(["compare", a, a, "--model", model]) == 0
    assert "the same devices" in capsys.readouterr().out


def test_a_model_that_fits_on_no_plan_is_shown_with_what_is_missing(
    tmp_path: Path, capsys: Capture
) -> None:
    tiny = tmp_path / "tiny.yaml"
    tiny.write_text(
        "name: tiny\ndevices:\n  - {name: a, kind: V100-32GB-PCIe, count: 2, memory_bytes: 2e6}\n"
        "links:\n  - {all_to_all: all, bandwidth_bytes_per_s: 16e9, latency_ns: 5000}\n"
    )
    assert main(["show", "squeezenet", "--cluster", str(tiny), "--json"]) == 0
    first, *_, last = json.loads(capsys.readouterr().out)["no_plan_fits"]
    # n0 reads 1.9 MB, writes 1.2 MB
    assert first.startswith("op 'n0' needs 3.16 MB; the devices that run it have at most 2 MB")
    assert last.startswith("what would help: a device of 3.16 MB or more")
    assert main(["show", "squeezenet", "--cluster", "2xT4-pcie", "--json"]) == 0
    assert "no_plan_fits" not in json.loads(capsys.readouterr().out)
