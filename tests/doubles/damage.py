"""Damage, drawn with a seed: to values of JSON, to lines and bytes, workbooks and ONNX models."""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from doubles.bad_files import good_rows, workbook

ODD_NUMBERS, ODD_NAMES, ODD_TREES, ODD_OPS = yaml.safe_load(r"""
- [-1, 0, 1, 2147483648, 9007199254740993, 4611686018427387904, 4611686018427387905,
   9223372036854775808, 18446744073709551616, 1000000000000000000000000000000,
   -9223372036854775808, 1000000000, 0.5, -0.0, 1.0e-400, 1.0e+308, 5.0e-324, .nan, .inf, -.inf]
- ["", " ", x, "\0", "\n", "\r\n\t", "é\u2028", " -> ", gpu, first, "1", "1e5", "NaN",
   ../../etc/passwd, /dev/zero, all, placegap]
- [null, true, false, [], {}, [[]], [1], [x], {x: 1}, {"": null}, {name: first}]
- [Shape, Gather, Concat, Reshape, Expand, Range, Slice, Unsqueeze, Tile, ConstantOfShape, Pad,
   Resize, OneHot, NonZero, Pow, Split, Squeeze, Compress, EyeLike, TopK, Trilu, Where, If, Loop,
   NoOp, MatMul, LSTM, Conv, ""]
""")
ODD_NAMES += ["x" * 3000, "a b " * 900, "\ud800"]
ODD_VALUES = [*ODD_NUMBERS, 10**4000, *ODD_NAMES, *ODD_TREES]
ODD_SIZES = [0, 1, -1, 3, 2**20, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
ODD_SCOPES = ["[" * 3000, "['a'] * 10**9", "9" * 9000, "['a', 1]", "[''", "\0", "(1)", "{}", "[[]]"]
ODD_TEXTS = [
    *(b"1" * 5000, b"[" * 3000, b"{" * 3000, b"\xff\xfe", b"\x00", b"\xef\xbb\xbf", b"\r", b"\n\n"),
    *(b"-", b"1e999999", b"1e99999999999999999999", b"NaN", b"-Infinity", b"0x1F", b"1:59:59"),
    *(b"null", b'"', b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system x", b"!!binary x"),
    *(b"2001-99-99", b"? ", b"|\n", b",,,,", b"9" * 300, b"--- ", b"%YAML 9.9\n", b"\\ud800"),
    *(b"1_000", b"=", b"'"),
]


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
                    changed[other : other + 12],
                    changed[at : at + 12],
                )
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
            value, row = rng.choice(ODD_VALUES), rng.choice(rows)
            row[rng.randrange(len(row))] = value if can_be_written(value) else "3,4"
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
            if name == hit and rng.random() < 0.5:
                data = damage_bytes(rng, data)
            elif name == hit:
                old = rng.choice([b'r="', b"<v>", b't="', b"A1", b"<row", b"sheetId", b"count="])
                new = rng.choice([b"9" * 9, b"XFD", b"-", b"1" * 400, b"n", b"e", b"&lt;"])
                data = data.replace(old, old + new, rng.choice([1, -1]))
            target.writestr(name, data)
    return out.getvalue()


def can_be_written(value: Any) -> bool:
    """Whether openpyxl writes the value."""
    if isinstance(value, str):
        return not any(c in value for c in "\0\ud800\x0b")
    is_number = isinstance(value, int | float) and (isinstance(value, float) or abs(value) < 2**63)
    return value is None or is_number


def good_model() -> Any:
    """A small ONNX model with weights, a view, a constant and a named size."""
    from onnx import helper

    def weight(name: str, *dims: int) -> Any:
        return helper.make_tensor(name, 1, dims, bytes(4 * prod(dims)), raw=True)

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
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    for _ in range(rng.choice([1, 1, 2, 4])):
        node, constant = rng.choice(model.graph.node), rng.choice(constants).attribute[0].t
        match rng.randrange(5):
            case 0 | 1:
                value = rng.choices(ODD_SIZES, k=rng.choice([1, 2, 4, 2000]))
                dims = rng.choice([[], [len(value)], [2, 2], [-1], [2**40]])
                constant.CopyFrom(onnx.TensorProto(dims=dims, data_type=7, int64_data=value))
            case 2:
                node.op_type = rng.choice(ODD_OPS)
            case 3:
                other = rng.choice(model.graph.node)
                if node.input:
                    node.input[rng.randrange(len(node.input))] = other.output[0]
            case _:
                node.metadata_props[0].value = rng.choice(ODD_SCOPES)
    if rng.random() < 0.3:
        return damage_message(rng, model)
    return bytes(model.SerializeToString())


def damaged_model(rng: random.Random) -> bytes:
    """Fields of the message changed, or its bytes."""
    return damage_message(rng, good_model())


def damage_message(rng: random.Random, model: Any) -> bytes:
    """Fields of an ONNX model changed, or its bytes."""
    if rng.random() < 0.35:
        return damage_bytes(rng, model.SerializeToString())
    graph = model.graph
    for _ in range(rng.choice([1, 1, 2, 4])):
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        dims = graph.input[0].type.tensor_type.shape.dim if graph.input else []
        match rng.randrange(12):
            case 0:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(ODD_SIZES)
            case 1:
                tensor.data_type = rng.choice([0, 2, 8, 14, 22, 99])
            case 2 if dims:
                rng.choice(dims).dim_value = rng.choice(ODD_SIZES)
            case 3:
                node.op_type = rng.choice(ODD_OPS)
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
                attribute.i = rng.choice(ODD_SIZES)
                attribute.ints[:] = [rng.choice(ODD_SIZES) for _ in attribute.ints]
                attribute.type = rng.choice([1, 2, 4, 5, 7, 10])
            case 9:
                graph.node.append(rng.choice(graph.node))
            case 10:
                model.opset_import[0].version = rng.choice([0, 1, 6, 13, 99, -1, 2**60])
            case _:
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = rng.choice(["s", "x", "", "new"])
    return model.SerializeToString()
