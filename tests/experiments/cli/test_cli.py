"""The command line: exit status, one-line errors, clean streams."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.bad_files import good_document

from placegap.experiments.cli import main
from placegap.experiments.show import rendering
from placegap.experiments.show.rendering import Quiet
from placegap.instances.corpus import corpus
from placegap.instances.costing.catalogue import catalogue

Capture = pytest.CaptureFixture[str]


def test_h_is_help(capsys: Capture) -> None:
    assert main(["place", "-h"]) == 0
    short = capsys.readouterr()
    assert main(["place", "--help"]) == 0
    assert capsys.readouterr() == short
    assert short.out.strip().startswith("Usage: placegap place")
    assert short.out.partition("Examples:")[2].count("placegap place ") == 3


def test_every_command_on_a_model_can_be_quiet(capsys: Capture) -> None:
    assert main(["show", "zfnet512"]) == 0
    shown = capsys.readouterr()
    assert main(["show", "zfnet512", "--quiet"]) == 0
    assert capsys.readouterr() == shown
    assert not rendering.shows_live()
    Quiet.is_set = False


@pytest.mark.parametrize(
    ("line", "found"), [("placegap sh", "show\n"), ("placegap show --qu", "--quiet\n")]
)
def test_a_shell_completes_commands_and_their_options(
    line: str, found: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = str(len(line.split()) - 1)
    asked = {"_PLACEGAP_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": last}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out == found


def test_a_figure_in_a_larger_unit_is_questioned(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    devices = "[{name: a, kind: V100-16GB}, {name: b, kind: V100-16GB}]"
    for rate, said in (
        ("16", "16.yaml: bandwidth_bytes_per_s is 16; 16 GB/s are 16e9, and 30 TFLOP/s 30e12"),
        ("900_000", "bandwidth_bytes_per_s is 900000;"),  # NVLink in MB/s
        ("1.25e6", ""),  # 10 Mbit/s
    ):
        links = f"[{{all_to_all: all, bandwidth_bytes_per_s: {rate}}}]"
        Path(f"{rate}.yaml").write_text(f"name: c\ndevices: {devices}\nlinks: {links}\n")
        command = ["place", "zfnet512", "--cluster", f"{rate}.yaml", "--method", "heft", "-q"]
        assert main(command) == 0
        err = capsys.readouterr().err
        assert said in err
        assert bool(said) == bool(err)


def test_show_names_sizes_and_provenance(model: str, capsys: Capture) -> None:
    assert main(["show", model, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["ops"], summary["edges"], summary["cluster"]) == (4, 4, "two-gpus")
    assert summary["time_ns"] == {"gpu": 43}  # 5 + 20 + 10 + 8
    assert main(["show", model]) == 0
    out = capsys.readouterr().out
    assert "FD-DPS" in out
    assert "43 ns" in out


def test_convert_marks_weight_gradients_and_zero_bubble_asks_for_that(
    tmp_path: Path, capsys: Capture
) -> None:
    out, rules = str(tmp_path / "marked.json"), ["--schedule", "zero_bubble"]
    ask = ["--objective", "pipeline_iteration", *rules]
    assert main(["place", "bert-24-layers-train", *ask, "--method", "even-split"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--weight-gradients" in line
    assert main(["convert", "bert-24-layers-train", out, "--weight-gradients"]) == 0
    assert main(["place", out, *ask, "--method", "even-split"]) == 0
    capsys.readouterr()
    assert main(["convert", "zfnet512", out, "--weight-gradients"]) == 0
    assert "zfnet512: has no backward ops" in capsys.readouterr().err


def test_a_workload_is_generated_and_placed_by_its_name(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "w.json"
    assert main(["generate", "tarnawski:gnmt-layers", str(path), "--param", "batch=2"]) == 0
    command = ["--cluster", "tarnawski-6x16GB", "--method", "heft", "--json"]
    values = []
    for model, *sizes in ((str(path),), ("tarnawski:gnmt-layers", "--dim", "batch=2")):
        assert main(["place", model, *sizes, *command]) == 0
        values.append(json.loads(capsys.readouterr().out)["value_ns"])
    assert values[0] == values[1] > 0


def test_methods_states_names_claims_papers_and_parameters(capsys: Capture) -> None:
    assert main(["methods", "--json"]) == 0
    methods = {row["method"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert methods["ideal-dp"]["claim"] == "exact"
    assert methods["ideal-dp"]["objectives"] == ["max_load"]
    assert "symmetry" in methods["throughput-ip"]["params"]
    assert main(["methods"]) == 0
    plans, bounds = capsys.readouterr().out.split("a bound, without a plan")
    assert "heft" in plans
    listed = {name for name, row in methods.items() if row["claim"] == "bound"}
    assert listed
    assert all(name in bounds and name not in plans for name in listed)


def test_a_method_has_a_page_which_explains_every_parameter(capsys: Capture) -> None:
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["methods"]
    unexplained = [
        f"{row['method']}: {name}"
        for row in rows
        if row["from"] == "placegap"
        for name, meaning in row["meanings"].items()
        if not meaning
    ]
    assert unexplained == []
    assert main(["methods", "d-dps"]) == 0
    page = capsys.readouterr().out
    for text in (
        "Zeng et al. 2022 (FD-DPS)",
        "a bound only where",
        "The most rounds of Algorithm 3",
    ):
        assert text in page
    assert main(["methods", "--objective", "max_context"]) == 0
    out = capsys.readouterr().out
    assert "most-tokens" in out
    assert "heft" not in out


def test_instances_lists_corpus_clusters_and_families(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "corpus_names", lambda: ["zfnet512"])  # each file is read
    assert main(["instances", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {"name": "zfnet512", "ops": 22, "edges": 21}.items() <= content["corpus"][-1].items()
    assert {row["name"] for row in content["clusters"]} >= {"8xH100-nvlink", "fd-dps-8xP100"}
    kinds = {row["name"]: row for row in content["device_kinds"]}
    assert kinds["T4"]["memory_bytes"] == 16 * 10**9  # of the product brief
    numbers = ("parameter_bytes", "flops")
    assert all(isinstance(content["corpus"][-1][name], int) for name in numbers)
    assert set(kinds) == set(catalogue())
    assert {row["name"] for row in content["families_for_generate"]} >= {"layered", "training"}


def test_the_page_of_the_command_line_names_every_key_of_a_placement(capsys: Capture) -> None:
    command = ["place", "zfnet512", "--cluster", "2xT4-pcie", "--method", "single-device"]
    assert main([*command, "--json"]) == 0
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    content = json.loads(capsys.readouterr().out)
    keys = {*content, *content["devices"][0]}
    assert sorted(key for key in keys if f"`{key}`" not in page) == []


def test_a_section_of_the_instances_is_a_table(capsys: Capture) -> None:
    assert main(["instances", "device-kinds"]) == 0
    out = capsys.readouterr().out
    assert "16 GB" in out
    assert "corpus" not in out


def command_line(*args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "placegap.experiments.cli", *args],
        check=False,
        **{
            "env": {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            "capture_output": True,
            **options,
        },
    )


def test_letters_that_a_terminal_has_not_got_are_escapes(tmp_path: Path) -> None:
    content = good_document()
    content["cluster"]["name"] = "deux-gpés"
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = command_line("show", str(path), env={**environment, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"deux-gp\\xe9s" in done.stdout
