"""``placegap place --export`` and ``--granularity``: what is written, and what is not."""

import csv
import json
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from draws.hybrid import layer_row

from placegap import __version__
from placegap.experiments.cli import main
from placegap.experiments.running import placing
from placegap.instances.exporters.onnx import device_faults
from placegap.instances.files.document import Document, save_document
from placegap.instances.problem import WITHOUT_OPS, Cluster, Device, Edge, Graph, Link, Op
from placegap.instances.torch_models.options import LEFT_OUT

Capture = pytest.CaptureFixture[str]
CHAIN = ["--objective", "max_load", "--plans", "chain", "--method", "ideal-dp", "--quiet"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three layers in a row, of two ops of 4 ns each, on two equal devices; transfers are free."""
    names = [f"{layer}.{part}" for layer in range(3) for part in ("a", "b")]
    ops = tuple(Op(name=at, module=f"h.{at}", time_ns={"gpu": 4}) for at in names)
    edges = tuple(Edge(producer=a, consumer=b, bytes=0) for a, b in pairwise(names))
    devices = tuple(Device(name=f"gpu{k}", kind="gpu") for k in range(2))
    links = tuple(
        Link(source=f"gpu{k}", target=f"gpu{1 - k}", bandwidth_bytes_per_s=1) for k in range(2)
    )
    noted = {"parameters": {WITHOUT_OPS: "embed"}}
    graph = Graph.model_validate({"name": "net", "ops": ops, "edges": edges, "provenance": noted})
    cluster = Cluster(name="two", devices=devices, links=links)
    path = tmp_path / "net.json"
    save_document(Document(name="net", graph=graph, cluster=cluster), path)
    return path


def test_a_device_map_is_made_of_whole_layers_and_says_what_they_cost(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "map.json"
    command = ["place", str(model), *CHAIN, "--export", f"device_map={out}", "--json"]
    assert main([*command, "--price-layers"]) == 0
    shown = capsys.readouterr()
    found = json.loads(out.read_text())
    assert sorted(found) == ["embed", "h.0", "h.1", "h.2"]
    assert found["embed"] == found["h.0"]
    assert found["h.0"] != found["h.2"]
    # two layers of 8 ns on one device, or three ops of 4 ns on each
    content = json.loads(shown.out)
    assert (content["value_ns"], content["status"]) == (16, "optimal")
    assert content["granularity"] == {
        "granularity": "layer",
        "op_value_ns": 12,
        "op_bound_ns": 12,
        "price_at_most": 0.25,
    }
    assert shown.err == ""


def test_of_decode_steps_whose_loads_nearly_tie_the_one_with_most_room_is_written(
    tmp_path: Path, capsys: Capture
) -> None:
    # four layers of 1 ms and a head of 3.01 ms: 4 | head has a load of 4 ms and 4 GB on a card,
    # 3 | 1 + head one of 4.01 ms, 0.25 % more, and 3 GB
    names = [*(f"layers.{n}" for n in range(4)), "head"]
    times = [1_000_000] * 4 + [3_010_000]
    ops = tuple(
        Op(name=x, module=x, time_ns={"gpu": time}, resident_bytes=10**9 * ("layers" in x))
        for x, time in zip(names, times, strict=True)
    )
    edges = tuple(Edge(producer=a, consumer=b) for a, b in pairwise(names))
    noted = {"parameters": {"decode": True}}
    graph = Graph.model_validate({"name": "net", "ops": ops, "edges": edges, "provenance": noted})
    devices = tuple(Device(name=f"g{k}", kind="gpu", memory_bytes=5 * 10**9) for k in range(2))
    links = tuple(
        Link(source=f"g{k}", target=f"g{1 - k}", bandwidth_bytes_per_s=10**9) for k in range(2)
    )
    path = tmp_path / "net.json"
    cluster = Cluster(name="two", devices=devices, links=links)
    save_document(Document(name="net", graph=graph, cluster=cluster), path)
    loads = ["place", str(path), "--objective", "max_load", "--granularity", "layer", "--json"]
    for export in ([], ["--export", f"vllm={tmp_path / 'v.txt'}"]):
        assert main([*loads, *export]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["value_ns"], found["bound_ns"]) == (4_010_000, 4_000_000)
        assert "2 GB on the fullest card instead of 1 GB" in found["message"]
    assert (tmp_path / "v.txt").read_text().strip().endswith("VLLM_PP_LAYER_PARTITION=3,1")


def test_a_layout_for_megatron_says_where_layers_belong_that_the_graph_lacks(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    document = json.loads(model.read_text())
    noted = {LEFT_OUT: "num_nextn_predict_layers=2"}
    document["graph"]["provenance"]["parameters"].update(noted)
    model.write_text(json.dumps(document))
    out = tmp_path / "layout.txt"
    assert main(["place", str(model), *CHAIN, "--export", f"megatron={out}"]) == 0
    layout = out.read_text().strip()
    assert "m" not in layout
    line = f"with --mtp-num-layers 2 write {layout.replace('L', 'mmL')}, and leave room"
    assert line in capsys.readouterr().err


def test_several_formats_are_written_of_one_plan(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    files = {kind: tmp_path / kind for kind in ("vllm", "pipelining", "csv")}
    options = [text for kind, path in files.items() for text in ("--export", f"{kind}={path}")]
    assert main(["place", str(model), *CHAIN, *options, "--price-layers"]) == 0
    shown = capsys.readouterr()
    assert "layer   kept whole; the best split gives 12 ns, 25.0 % less" in shown.out
    counts = files["vllm"].read_text().strip().partition("=")[2].split(",")
    assert sorted(map(int, counts)) == [1, 2]
    assert json.loads(files["pipelining"].read_text()) == {
        "split_spec": {f"h.{counts[0]}": "BEGINNING"}
    }
    rows = list(csv.DictReader(files["csv"].open()))
    assert [row["device"] for row in rows] == [
        rows[0]["device"] if int(row["name"][0]) < int(counts[0]) else rows[-1]["device"]
        for row in rows
    ]


def test_an_export_that_cannot_be_costs_no_other_one(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    exports = ["--export", f"onnx={tmp_path}/a", "--export", f"sglang={tmp_path}/b"]
    assert main(["place", str(model), *CHAIN, *exports, "--json"]) == 2
    out, err = capsys.readouterr()
    assert "--export onnx" in err
    assert (tmp_path / "b").read_text().startswith("SGLANG_PP_LAYER_PARTITION=")
    assert not (tmp_path / "a").exists()
    assert json.loads(out)["exports"][0]["gap"] == 0


def test_ops_are_placed_one_by_one_where_the_format_can_say_it(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "plan.csv"
    assert main(["place", str(model), *CHAIN, "--export", f"csv={out}", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["value_ns"] == 12
    assert "granularity" not in content
    command = ["place", str(model), *CHAIN, "--granularity", "module", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["granularity"]["granularity"] == "module"


def test_whole_layers_are_named_and_priced_only_where_that_is_wanted(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    asked = list[str]()
    place = placing.place
    monkeypatch.setattr(
        placing, "place", lambda first, **more: asked.append(first.method) or place(first, **more)
    )
    command = ["place", str(model), *CHAIN, "--granularity", "layer"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert asked == ["ideal-dp"]
    assert "--price-layers" in out
    assert {"0-1", "2"} <= set(out.split()) or {"0", "1-2"} <= set(out.split())
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["granularity"] == {"granularity": "layer"}
    assert sorted(each["ops"] for each in content["devices"]) == [2, 4]
    assert {each["compute_ns"] for each in content["devices"]} == {8, 16}
    assert sorted(name for each in content["devices"] for name in each["layers"]) == [
        "h.0",
        "h.1",
        "h.2",
    ]
    assert content["version"] == __version__


def test_a_plan_that_a_format_cannot_say_is_shown_and_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    exports = ["--export", "dnn-partitioning=a", "--export", "csv=b"]
    assert main(["place", "net.json", *CHAIN, *exports, "-o", "plan.json"]) == 2
    out, err = capsys.readouterr()
    assert "value   12 ns" in out
    assert "op '0.a'" in err
    assert err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b", "net.json", "plan.json"]


def test_an_onnx_file_is_copied_with_the_plan_in_it(tmp_path: Path, capsys: Capture) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    make = pytest.importorskip("onnx.helper")
    shape = [make.make_tensor_value_info(name, 1, (2, 3)) for name in "xy"]
    nodes = [
        make.make_node("Relu", ["x"], ["a"], name="r"),
        make.make_node("Exp", ["a"], ["y"], name="e"),
    ]
    made = make.make_model(make.make_graph(nodes, "net", shape[:1], shape[1:]), ir_version=8)
    onnx.save(made, tmp_path / "net.onnx")
    copy = tmp_path / "placed.onnx"
    command = ["place", str(tmp_path / "net.onnx"), "--cluster", "celeritas-4xV100-pcie"]
    options = ["--method", "single-device", "--quiet", "--export", f"onnx={copy}"]
    assert main([*command, *options]) == 0
    model = onnx.load(copy)
    assert device_faults(model) == ()
    assert [len(node.device_configurations) for node in model.graph.node] == [1, 1]
    assert capsys.readouterr().err == ""


def changed(model: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(model.read_text())
    change(document)
    model.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("kind", "cpu"),
    [
        ("vllm", {"is_host": True}),
        ("megatron", {"kind": "cpu"}),
        ("torchtitan", {"kind": "Xeon-5220"}),
    ],
)
def test_tools_whose_ranks_are_gpus_get_the_best_row_on_these(
    model: Path, capsys: Capture, kind: str, cpu: dict[str, Any]
) -> None:
    def change(document: dict[str, Any]) -> None:
        document["cluster"]["devices"][1] |= cpu
        for op in document["graph"]["ops"]:
            op["time_ns"] = {"gpu": 4, **({cpu["kind"]: 4} if "kind" in cpu else {})}

    changed(model, change)
    out, plan = model.parent / "a", model.parent / "plan.json"
    command = ["place", str(model), *CHAIN, "-o", str(plan), "--export", f"{kind}={out}"]
    assert main(command) == 0
    # all six ops of 4 ns on the GPU, where the plan has two layers on one device
    said = capsys.readouterr().out
    assert f"export  {kind} " in said
    assert ": 24 ns, optimal for this format\n        +50.0 % compared with the plan above" in said
    assert plan.exists()
    assert out.exists()
    single = ["--method", "single-device"]
    changed(model, lambda found: [op.update(time_ns={"gpu": 4}) for op in found["graph"]["ops"]])
    if "kind" in cpu:
        assert main(["place", str(model), *single, "--export", f"{kind}={out}"]) == 0


def test_a_hybrid_plan_goes_to_trainers_as_they_can_run_it(tmp_path: Path, capsys: Capture) -> None:
    model, options, part = tmp_path / "row.json", tmp_path / "options.txt", tmp_path / "part.toml"
    save_document(Document.of(layer_row(memory=33)), model)
    asked = ["place", str(model), "--objective", "hybrid_pipeline", "--microbatches", "4", "-q"]
    asked += ["--method", "hybrid-cuts"]
    exports = ["--export", f"megatron={options}", "--export", f"torchtitan={part}"]
    rules = ["--degrees", "one", "--recompute", "all_or_none"]
    assert main([*asked, *rules, *exports]) == 0
    assert options.read_text().startswith("--tensor-model-parallel-size ")
    assert tomllib.loads(part.read_text())["parallelism"]["data_parallel_shard_degree"] >= 1
    capsys.readouterr()
    assert main([*asked, *exports, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # 120 ns, and 136 ns with one mode for all layers, or 130 with the plan's cuts and block
    values = {each["kind"]: each["value_ns"] for each in found["exports"]}
    assert (found["value_ns"], values) == (120, {"megatron": 130, "torchtitan": 136})
