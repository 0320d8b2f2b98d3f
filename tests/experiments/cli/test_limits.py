"""What the command line assumes and says of its input, and how it prints in little room."""

import json
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.cli import main

Capture = pytest.CaptureFixture[str]


def named_sizes(folder: Path, *dims: Any) -> str:
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    make = onnx.helper
    node = make.make_node("Relu", ["x"], ["y"], name="relu")
    ends = (
        [make.make_tensor_value_info("x", 1, list(dims))],
        [make.make_empty_tensor_value_info("y")],
    )
    model = make.make_model(make.make_graph([node], "net", *ends))
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return str(folder / "net.onnx")


def test_a_cluster_is_stated_in_one_line_with_kinds_of_a_file(
    tmp_path: Path, capsys: Capture
) -> None:
    rates = "{peak_flops_per_s: 2e13, bandwidth_bytes_per_s: 9e11, memory_bytes: 24e9}"
    (tmp_path / "kinds.yaml").write_text(f"mine: {rates}\n")
    kinds = ["--devices", str(tmp_path / "kinds.yaml")]
    on = ["--cluster", "2xMINE + t4, pcie3"]
    assert main(["place", "squeezenet", *on, *kinds, "--method", "heft", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["instance"] == "squeezenet@2xmine+T4, pcie3"


def test_devices_that_no_op_can_run_on_are_named(tmp_path: Path, capsys: Capture) -> None:
    # squeezenet is costed on the T4 alone; a host may hold nothing
    path = tmp_path / "c.yaml"
    path.write_text(
        "name: c\ndevices: [{name: t, kind: T4}, {name: own, count: 2, kind: mine, memory_bytes:"
        " null}, {name: cpu, kind: theirs, memory_bytes: null, is_host: true}]\n"
        "links: [{all_to_all: all, bandwidth_bytes_per_s: 1000000000}]\n"
    )
    args = ["place", "squeezenet", "--cluster", str(path), "--method", "heft", "--json"]
    assert main(args) == 0
    out, err = capsys.readouterr()
    assert "own0, own1: no op has a time on the kind 'mine'" in err
    assert "cpu" not in err
    assert any("no op of this model can run" in note for note in json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("dims", "options", "taken"),
    [
        (("N", 4), [], "batch: N taken as 1, which net.onnx does not fix; --dim N=8 sets"),
        ((None, 4), [], "batch: taken as 1, which net.onnx does not fix; --dim batch=8 sets"),
        (("N", 4), ["--dim", "N=8"], None),
        ((-1, 4), ["--dim", "x.0=8"], None),
        ((2, 4), [], None),
    ],
)
def test_the_batch_that_was_assumed_is_printed(
    tmp_path: Path, capsys: Capture, dims: tuple[Any, ...], options: list[str], taken: str | None
) -> None:
    model, on = named_sizes(tmp_path, *dims), ["--cluster", "8xH100-nvlink"]
    out = str(tmp_path / "out.json")
    place = ["place", model, *on, "--method", "single-device"]
    for args in (["show", model], ["convert", model, out], place):
        assert main([*args, *options]) == 0
        err = capsys.readouterr().err
        assert (taken or "batch:") in err if taken else "batch:" not in err
        assert err.count("batch: ") == (taken is not None)
    # what was asked for counts: 4 values of 4 bytes, one for each of the batch
    size = 8 if options else 2 if dims[0] == 2 else 1
    written = json.loads(Path(out).read_text())["graph"]["ops"][0]
    assert written["resident_bytes"] == 4 * 4 * size


def test_everything_fits_forty_columns_with_names_and_figures_whole(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    plan, on = str(tmp_path / "plan.json"), ["--cluster", "2x4-gpu-slow-link"]
    for args, whole in (
        (["place", "squeezenet", *on, "--method", "heft", "-o", plan], "kind: V100-32GB-PCIe"),
        (["verify", "squeezenet", plan, *on], "memory: 32.79 MB of 32 GB"),
        (["show", "squeezenet", *on], "V100-32GB-PCIe"),
        (["methods"], "archer-combinatorial"),
        (["methods", "d-dps"], "Zeng et al. 2022 (FD-DPS)"),
    ):
        assert main(args) == 0
        out = capsys.readouterr().out
        assert whole in out
        assert max(map(len, out.splitlines())) <= 40


def test_a_plan_may_go_to_a_device_and_leaves_it_there(tmp_path: Path) -> None:
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    args = ["place", "squeezenet", "--cluster", "8xH100-nvlink", "--method", "single-device"]
    assert main([*args, "-o", str(null)]) == 0
    assert null.is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == ["null"]
