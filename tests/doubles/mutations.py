"""Damaged inputs of every importer: drawn with a seed, read in a child that has limits.

``python -m doubles.mutations FIRST COUNT FOLDER IMPORTER...`` reads the damaged inputs of these
numbers, and says one JSON line for each that ends in anything but an instance or a one-line
`InputError`. Each importer has a child and a folder of its own.
"""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from doubles.bad_files import good_dnn, good_document, good_rows, workbook

from placegap.experiments.bench.process import peak_bytes
from placegap.instances import InputError

CPU_S = 10
WALL_S = 120
MOST_RSS_BYTES = 2_000_000_000
MOST_CHARACTERS = 300
OTHER_CLUSTER = "2x4-gpu-slow-link"
"""For models whose own cluster is lost."""

ODD_VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**53 + 1, 2**62, 2**62 + 1, 2**63, 2**64, 10**30, -(2**63),
    10**4000, 10**9, 0.5, -0.0, 1e-400, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"),
    "", " ", "x", "x" * 3000, "a b " * 900, "\0", "\n", "\r\n\t", "é\u2028", "\ud800", " -> ",
    "gpu", "first", "1", "1e5", "NaN", "../../etc/passwd", "/dev/zero", "all", "placegap", [], {},
    [[]], [1], ["x"], {"x": 1}, {"": None}, {"name": "first"},
]  # fmt: skip
ODD_TEXTS = [
    b"-", b"1" * 5000, b"1e999999", b"1e99999999999999999999", b"NaN", b"-Infinity", b"0x1F",
    b"1:59:59", b"[" * 3000, b"{" * 3000, b"\xff\xfe", b"\x00", b"\xef\xbb\xbf", b"null", b'"',
    b"&a ",
    b"*a", b"<<: *a", b"!!python/object:os.system x", b"!!binary x", b"2001-99-99", b"? ", b"|\n",
    b",,,,", b"\r", b"\n\n", b"9" * 300, b"--- ", b"%YAML 9.9\n", b"\\ud800", b"1_000", b"=", b"'",
]  # fmt: skip


@dataclass(frozen=True)
class Importer:
    """A good input, how it is damaged, and how it is read."""

    file: str
    damaged: Callable[[random.Random], bytes]
    read: Callable[[Path], object]
    needs_torch: bool = False
    """Whether torch is loaded first: its import is no part of a read."""


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, lost, doubled or put in."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(7):
            case 0 if changed:
                changed[min(at, len(changed) - 1)] = rng.randrange(256)
            case 1:
                changed[at:at] = rng.choice(ODD_TEXTS)
            case 2:
                del changed[at : at + rng.choice([1, 1, 3, 20, 200])]
            case 3:
                piece = changed[at : at + rng.choice([1, 8, 64])]
                changed[at:at] = piece * rng.choice([1, 2, 300])
            case 4:
                other = rng.randrange(len(changed) + 1)
                changed[at : at + 12], changed[other : other + 12] = (
                    changed[other : other + 12], changed[at : at + 12],
                )  # fmt: skip
            case 5:
                changed = changed[:at] if rng.random() < 0.2 else changed
            case _ if changed:
                changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damage_tree(rng: random.Random, content: Any) -> Any:
    """Parsed JSON with values changed, lost, doubled or put in another's place."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(content))
        if not places:
            return content
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))
            case 3:
                del holder[key]
            case 4:
                other, place = rng.choice(places)
                holder[key] = copy.deepcopy(other[place])
            case _ if isinstance(holder, list):
                holder.extend(copy.deepcopy([holder[key]] * rng.choice([1, 3, 200])))
            case _:
                holder[rng.choice(["x", "", "name", "y" * 500, "\ud800"])] = holder[key]
        if not isinstance(content, dict | list):
            return content
    return content


def _places(content: Any) -> Any:
    for key in content if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def as_json(content: Any) -> bytes:
    """JSON as a careless program writes it."""
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(content).encode()
    finally:
        sys.set_int_max_str_digits(4300)


def json_damage(content: Any) -> Callable[[random.Random], bytes]:
    """Half of the damage is done to values, half to bytes."""

    def damaged(rng: random.Random) -> bytes:
        if rng.random() < 0.6:
            return as_json(damage_tree(rng, content))
        return damage_bytes(rng, as_json(content))

    return damaged


def zipped(damaged: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    """Damage inside a gzip file, or to it."""

    def both(rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return gzip.compress(damaged(rng), mtime=0)
        return damage_bytes(rng, gzip.compress(damaged(random.Random(1)), mtime=0))

    return both


def text_damage(text: str) -> Callable[[random.Random], bytes]:
    """Damage to bytes, and to lines."""

    def damaged(rng: random.Random) -> bytes:
        lines = text.splitlines(keepends=True)
        if rng.random() < 0.4:
            at = rng.randrange(len(lines))
            lines[at : at + 1] = rng.choice(
                [[], lines[at : at + 1] * 2, [lines[at]] * 3000, [lines[rng.randrange(len(lines))]]]
            )
        data = "".join(lines).encode()
        return damage_bytes(rng, data) if rng.random() < 0.8 else data

    return damaged


def damaged_workbook(rng: random.Random) -> bytes:
    """A workbook with other cells, other XML inside, or other bytes."""
    rows = good_rows()
    choice = rng.random()
    if choice < 0.4:
        for _ in range(rng.choice([1, 2, 5])):
            row = rng.choice(rows)
            value = rng.choice(ODD_VALUES)
            plain = isinstance(value, str | int | float | None) and not (
                isinstance(value, str) and any(c in value for c in "\0\ud800\x0b")
            )
            row[rng.randrange(len(row))] = value if plain and abs_ok(value) else "3,4"
        return workbook(rows)
    whole = workbook(rows)
    if choice < 0.6:
        return damage_bytes(rng, whole)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as source, zipfile.ZipFile(out, "w") as target:
        names = source.namelist()
        hit = rng.choice([*names, *(name for name in names if "sheet" in name)])
        for name in names:
            data = source.read(name)
            if name == hit:
                if rng.random() < 0.5:
                    data = damage_bytes(rng, data)
                else:
                    old = rng.choice(
                        [b'r="', b"<v>", b't="', b"A1", b"<row", b"sheetId", b"count="]
                    )
                    new = old + rng.choice(
                        [b"9" * 9, b"XFD", b"-", b"1" * 400, b"n", b"e", b"&lt;"]
                    )
                    data = data.replace(old, new, rng.choice([1, -1]))
            target.writestr(name, data)
    return out.getvalue()


def abs_ok(value: Any) -> bool:
    """Whether openpyxl writes the value."""
    return not isinstance(value, int) or isinstance(value, bool) or abs(value) < 2**63


def good_model() -> Any:
    """A small ONNX model with weights, a view, a constant and a named size."""
    from onnx import helper

    def weight(name: str, *dims: int) -> Any:
        size = 1
        for dim in dims:
            size *= dim
        return helper.make_tensor(name, 1, dims, bytes(4 * size), raw=True)

    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Shape", ["b"], ["s"], name="shape"),
        helper.make_node("ConstantOfShape", ["s"], ["ones"], name="ones"),
        helper.make_node("Add", ["b", "ones"], ["c"], name="add"),
        helper.make_node("Flatten", ["c"], ["d"], name="flatten", axis=1),
        helper.make_node("Gemm", ["d", "matrix"], ["y"], name="gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", 1, ["N", 2, 4, 4])],
        [helper.make_empty_tensor_value_info("y")],
        initializer=[weight("kernel", 3, 2, 3, 3), weight("matrix", 5, 48)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@cache
def open_transformer() -> bytes:
    """An ONNX model of one layer with open sizes, and shapes that chains of ops compute."""
    from doubles.onnx_transformers import write_transformer

    with TemporaryDirectory() as folder:
        return write_transformer(Path(folder) / "net.onnx", "bert", layers=1).read_bytes()


def damaged_transformer(rng: random.Random) -> bytes:
    """What decides shapes changed, or anything else of the model."""
    import onnx

    model = onnx.load_from_string(open_transformer())
    sizes = [0, 1, -1, 3, 2**20, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    chain = ["Shape", "Gather", "Concat", "Reshape", "Expand", "Range", "Slice", "Unsqueeze"]
    for _ in range(rng.choice([1, 1, 2, 4])):
        node, constant = rng.choice(model.graph.node), rng.choice(constants).attribute[0].t
        match rng.randrange(5):
            case 0 | 1:
                value = [rng.choice(sizes) for _ in range(rng.choice([1, 2, 4, 2000]))]
                dims = rng.choice([[], [len(value)], [2, 2], [-1], [2**40]])
                constant.CopyFrom(_int64s(dims, value))
            case 2:
                node.op_type = rng.choice(
                    [*chain, "Tile", "ConstantOfShape", "Pad", "Resize", "OneHot", "NonZero", "Pow",
                     "Split", "Squeeze", "Compress", "EyeLike", "TopK", "Trilu", "Where"]
                )  # fmt: skip
            case 3:
                other = rng.choice(model.graph.node)
                if node.input:
                    node.input[rng.randrange(len(node.input))] = other.output[0]
            case _:
                node.metadata_props[0].value = rng.choice(ODD_SCOPES)
    if rng.random() < 0.3:
        return damage_message(rng, model)
    return bytes(model.SerializeToString())


def _int64s(dims: list[int], values: list[int]) -> Any:
    from onnx import TensorProto

    return TensorProto(dims=dims, data_type=7, int64_data=values)


ODD_SCOPES = ["[" * 3000, "['a'] * 10**9", "9" * 9000, "['a', 1]", "[''", "\0", "(1)", "{}", "[[]]"]


def damaged_model(rng: random.Random) -> bytes:
    """Fields of the message changed, or its bytes."""
    return damage_message(rng, good_model())


def damage_message(rng: random.Random, model: Any) -> bytes:
    """Fields of an ONNX model changed, or its bytes."""
    if rng.random() < 0.35:
        return damage_bytes(rng, model.SerializeToString())
    graph = model.graph
    sizes = [0, 1, -1, 7, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
    for _ in range(rng.choice([1, 1, 2, 4])):
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        dims = graph.input[0].type.tensor_type.shape.dim if graph.input else []
        match rng.randrange(12):
            case 0:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(sizes)
            case 1:
                tensor.data_type = rng.choice([0, 2, 8, 14, 22, 99])
            case 2 if dims:
                rng.choice(dims).dim_value = rng.choice(sizes)
            case 3:
                node.op_type = rng.choice(
                    ["If", "Loop", "Reshape", "Range", "Tile", "Expand", "NoOp", "", "Concat",
                     "Resize", "ConstantOfShape", "Pad", "Slice", "Split", "MatMul", "LSTM", "Conv"]
                )  # fmt: skip
            case 4:
                del node.input[:1]
            case 5:
                node.input.append(rng.choice(["x", "a", "c", "", "y", "nowhere", "n" * 2000]))
            case 6:
                node.output.append(rng.choice(["x", "a", "c", "", "extra"]))
            case 7:
                node.name = rng.choice(["", "conv", "n" * 3000, " -> "])
            case 8 if node.attribute:
                attribute = rng.choice(node.attribute)
                attribute.i = rng.choice(sizes)
                attribute.ints[:] = [rng.choice(sizes) for _ in attribute.ints]
                attribute.type = rng.choice([1, 2, 4, 5, 7, 10])
            case 9:
                graph.node.append(rng.choice(graph.node))
            case 10:
                model.opset_import[0].version = rng.choice([0, 1, 6, 13, 99, -1, 2**60])
            case _:
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = rng.choice(["s", "x", "", "new"])
    return model.SerializeToString()


CLUSTER_YAML = """\
name: two-hosts
devices:
  - {name: cpu, kind: Xeon-5220, is_host: true}
  - {name: gpu, count: 2, kind: T4, server: left}
  - &own {names: [x, y], kind: mine, memory_bytes: null}
links:
  - {all_to_all: [cpu, gpu0, gpu1], bandwidth_bytes_per_s: 15_750_000_000, latency_ns: 10_000}
  - {between: [x, y], bandwidth_bytes_per_s: 7}
  - {source: x, target: cpu, bandwidth_bytes_per_s: 9}
  - matrix_bytes_per_s: {cpu: {x: 5}}
"""

STUDY_YAML = """\
name: small
tables:
  - name: one
    semantics: {objective: makespan, channels: port}
    instances: [squeezenet, {generate: layered, params: {ops: 9, width: 3}, seeds: [0, 1]}]
    clusters: [2x4-gpu-slow-link]
    methods: [heft, {name: etf}, {name: cp-sat, params: {workers: 1}}]
    seeds: [0]
    limits: {time_limit_s: 1, gap: 0.01}
"""


def ops_csv() -> str:
    """Measurements of the good document's ops."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["op", "device", "batch", "time_us", "memory_bytes"])
    for op in ("first", "second", "third"):
        for batch in (1, 2, 4):
            writer.writerow([op, "gpu", batch, 2.5 * batch, 100 * batch])
    return out.getvalue()


def _instance() -> Any:
    from placegap.instances.files.document import parse_document

    return parse_document(good_document(), "good").instance()


def _dnn_instance(folder: Path) -> Any:
    from placegap.instances.importers.reader import read_model

    path = folder / "good-dnn.json"
    path.write_bytes(as_json(good_dnn()))
    return read_model(path).instance()


def good_plan() -> dict[str, Any]:
    """A plan of the good document, with all that a file may state."""
    from placegap.instances import Makespan, simulate
    from placegap.instances.files.plan_file import describe_plan
    from placegap.instances.referee.plan import Plan

    instance, semantics = _instance(), Makespan(channels="link")
    plan = Plan.on([0, 1, 1])
    simulate(instance, plan, semantics)
    content = describe_plan(instance, plan, semantics, "heft", value_ns=26)
    raw: dict[str, Any] = content.model_dump(mode="json", exclude_none=True)
    raw["device_order"] = {"g0": ["first"], "g1": ["second", "third"]}
    raw["channel_order"] = {
        "g0 -> g1": [{"producer": "first", "consumer": "second", "to": "g1"}]
    }  # fmt: skip
    raw["times"] = {
        "ops": {name: {"start_ns": 0, "end_ns": 5} for name in ("first", "second", "third")},
        "transfers": [
            {"producer": "first", "consumer": "second", "to": "g1", "start_ns": 5, "end_ns": 6}
        ],
    }
    return raw


def read_instance(path: Path) -> object:
    """Read a model, and what every command asks of it."""
    from placegap.instances.files.cluster_file import load_cluster
    from placegap.instances.importers.reader import read_model

    document = read_model(path)
    instance = document.instance(load_cluster(OTHER_CLUSTER) if document.cluster is None else None)
    return instance.content_hash


def read_sized(path: Path) -> object:
    """Read an ONNX model of which two sizes are stated."""
    from placegap.instances.files.cluster_file import load_cluster
    from placegap.instances.importers.reader import read_model

    document = read_model(path, dims={"batch": 2, "seq": 4})
    return document.instance(load_cluster(OTHER_CLUSTER)).content_hash


def read_cluster(path: Path) -> object:
    """Read a cluster, and place a graph's arrays on it."""
    from placegap.instances import load_corpus
    from placegap.instances.files.cluster_file import load_cluster

    return load_corpus("squeezenet").instance(load_cluster(path)).content_hash


def read_plan(path: Path) -> object:
    """Read a plan and let both referees judge it."""
    from placegap.instances.files.plan_file import load_stated_plan
    from placegap.instances.files.verification import verify

    instance = _instance()
    return verify(instance, load_stated_plan(instance, path), any_content=True)


def read_measurements(path: Path) -> object:
    """Read measurements and estimate a batch from them."""
    from placegap.instances.files.document import parse_document
    from placegap.instances.standard_evaluation.measurements import read_ops
    from placegap.instances.standard_evaluation.standard_evaluation import standard_evaluation

    document = parse_document(good_document(), "good")
    assert document.cluster is not None
    return standard_evaluation(document, document.cluster, read_ops([path]), 8)


def times_csv() -> str:
    """Measured times of the good document's ops."""
    rows = [f"{op},gpu,{1.5 * time}" for time in (1, 2, 3) for op in ("first", "second", "x")]
    return "\n".join(["name,device_kind,time_us", *rows, ""])


def good_trace() -> dict[str, Any]:
    """A trace of the good document's ops."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1}]
    for start in (0, 100):
        for at, name in enumerate(("op:first", "op:second", "loss")):
            for category in ("user_annotation", "gpu_user_annotation", "cpu_op"):
                times = {"ts": start + 10 * at, "dur": 9.5}
                events.append({"ph": "X", "cat": category, "name": name, "pid": 1, **times})
    return {"schemaVersion": 1, "traceEvents": events}


def read_measured_times(path: Path) -> object:
    """Read measured times and put them into the good document."""
    from placegap.instances.files.document import parse_document
    from placegap.instances.importers.measured_times import MEASURED, read_times, with_times

    document = parse_document(good_document(), "good")
    assert document.cluster is not None
    measured = with_times(document.graph, read_times(path), document.cluster)
    assert "\n" not in str(measured.graph.provenance.parameters[MEASURED])
    return document.model_copy(update={"graph": measured.graph}).instance().content_hash


def read_study(path: Path) -> object:
    """Read a study and plan its runs."""
    from placegap.experiments.studies.config import load_study
    from placegap.experiments.studies.plan import plan_study

    return list(plan_study(load_study(path), path))


def read_split_file(path: Path) -> object:
    """Read a split of the good dnn-partitioning input."""
    from placegap.instances.importers.dnn_partitioning_split import read_split

    return read_split(_dnn_instance(path.parent), path)


def read_catalogue_file(path: Path) -> object:
    """Read a device catalogue."""
    from placegap.instances.costing.catalogue import read_catalogue

    return read_catalogue(path)


def read_best(path: Path) -> object:
    """Read best-known values."""
    from placegap.instances.corpus.corpus import read_best_known

    return read_best_known(path)


CONFIGS: list[Any] = [
    {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 8,
     "n_head": 2, "n_positions": 16, "vocab_size": 11, "activation_function": "gelu_new"},
    {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4,
     "num_key_value_heads": 2, "intermediate_size": 8, "vocab_size": 11, "hidden_act": "silu",
     "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    {"model_type": "swin", "image_size": 8, "patch_size": 2, "depths": [1, 1], "window_size": 2,
     "num_heads": [1, 2], "embed_dim": 4, "num_labels": 3, "architectures": ["SwinModel"]},
]  # fmt: skip


def damaged_config(rng: random.Random) -> bytes:
    """A damaged configuration of one of three small models.

    The number of layers stays: without it these are sound models of 12 or 32 layers, which take
    longer to trace than an input may.
    """
    config = rng.choice(CONFIGS)
    data = json_damage(config)(rng)
    layers = {name: config[name] for name in ("n_layer", "num_hidden_layers") if name in config}
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return data
    lost = isinstance(content, dict) and not layers.keys() & content.keys()
    return as_json({**layers, **content}) if lost else data


def read_config(path: Path) -> object:
    """Trace the model of a configuration."""
    from placegap.instances.importers.torch_export.model import read_traced_model
    from placegap.instances.importers.torch_export.options import TraceOptions

    return read_traced_model(f"hf:{path}", TraceOptions(seq=4))


def load_torch(folder: Path) -> None:
    """Load torch and the classes of the small models."""
    for number, config in enumerate(CONFIGS):
        path = folder / f"good-{number}.json"
        path.write_bytes(as_json(config))
        read_config(path)


def read_log(path: Path) -> object:
    """Open a log of runs."""
    from placegap.experiments.studies.log import RunLog

    with RunLog(path) as log:
        return log.records


CATALOGUE_YAML = """\
T4: {peak_flops_per_s: 8_100_000_000_000, bandwidth_bytes_per_s: 320_000_000_000,
     memory_bytes: 16_000_000_000, launch_overhead_ns: 5_000, source: a datasheet}
"""
BEST = [
    {"graph": "g", "cluster": "c", "content_hash": "0" * 64, "value_ns": 5, "bound_ns": 4,
     "semantics": {"objective": "makespan"}, "value_origin": "heft"},
]  # fmt: skip
SPLIT = {
    "fpgas": [{"load": 1.5, "nodes": [1, 4]}, {"nodes": [2, 3]}], "cpus": [], "maxLoad": 2.5,
}  # fmt: skip
LOG = '{"key":"a","value":1}\n{"key":"b","status":"ok"}\n'

IMPORTERS: dict[str, Importer] = {
    "json": Importer("own.json", json_damage(good_document()), read_instance),
    "json-gz": Importer("own.json.gz", zipped(json_damage(good_document())), read_instance),
    "dnn": Importer("dnn.json", json_damage(good_dnn()), read_instance),
    "dnn-split": Importer("split.json", json_damage(SPLIT), read_split_file),
    "moirai": Importer("moirai.xlsx", damaged_workbook, read_instance),
    "onnx": Importer("net.onnx", damaged_model, read_instance),
    "onnx-dim": Importer("net.onnx", damaged_transformer, read_sized),
    "cluster-yaml": Importer("c.yaml", text_damage(CLUSTER_YAML), read_cluster),
    "cluster-json": Importer(
        "c.json",
        json_damage(
            {"name": "c", "devices": [{"name": "g", "count": 2, "kind": "T4"}],
             "links": [{"all_to_all": "all", "bandwidth_bytes_per_s": 9, "latency_ns": 1}]}
        ),
        read_cluster,
    ),
    "plan": Importer("plan.json", json_damage(good_plan()), read_plan),
    "measurements": Importer("ops.csv", text_damage(ops_csv()), read_measurements),
    "times-csv": Importer("times.csv", text_damage(times_csv()), read_measured_times),
    "times-trace": Importer("trace.json", json_damage(good_trace()), read_measured_times),
    "study": Importer("study.yaml", text_damage(STUDY_YAML), read_study),
    "catalogue": Importer("devices.yaml", text_damage(CATALOGUE_YAML), read_catalogue_file),
    "best-known": Importer("best.json", json_damage(BEST), read_best),
    "run-log": Importer("runs.jsonl", text_damage(LOG), read_log),
    "hf-config": Importer("config.json", damaged_config, read_config, needs_torch=True),
}  # fmt: skip
"""Every kind of file that is read."""


def read_damaged(name: str, first: int, count: int, folder: Path) -> None:
    """Read inputs one by one; each has `CPU_S` seconds, all together `MOST_RSS_BYTES`."""
    importer = IMPORTERS[name]
    path = folder / importer.file
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    path.write_bytes(importer.damaged(random.Random(0)))
    if importer.needs_torch:
        load_torch(folder)
    for number in range(first, first + count):
        data = importer.damaged(random.Random(f"{name} {number}"))
        path.write_bytes(data)
        (folder / "progress").write_text(str(number))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # kills, whatever code runs
        signal.alarm(WALL_S)
        started = time.process_time()
        try:
            importer.read(path)
        except InputError as error:
            line = str(error)
            if "\n" in line or len(line) > MOST_CHARACTERS or path.name not in line:
                print(json.dumps([number, f"no short line with the file: {line}"]), flush=True)
        except BaseException:
            print(json.dumps([number, traceback.format_exc()[-1500:]]), flush=True)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if time.process_time() - started > CPU_S / 2:
            print(json.dumps([number, "takes half of the time limit"]), flush=True)
    signal.alarm(0)
    peak = peak_bytes()
    if peak > MOST_RSS_BYTES:
        print(json.dumps([first, f"some input took {peak} bytes"]), flush=True)


SAID, ENDED = "said", "ended"
"""Files of an importer's folder: what its child said, and its exit code."""


def read_each(names: list[str], first: int, count: int, folder: Path) -> None:
    """Read the inputs of importers, each in a fork of this process: modules are loaded once."""
    fork = multiprocessing.get_context("fork")
    for name in names:
        (folder / name).mkdir()
        child = fork.Process(target=_read_aside, args=(name, first, count, folder / name))
        child.start()
        child.join()
        (folder / name / ENDED).write_text(str(child.exitcode))


def _read_aside(name: str, first: int, count: int, folder: Path) -> None:
    with (folder / SAID).open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    read_damaged(name, first, count, folder)


if __name__ == "__main__":
    read_each(sys.argv[4:], int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
