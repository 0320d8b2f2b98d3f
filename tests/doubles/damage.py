"""Damage, drawn with a seed: to values of JSON, to lines and bytes, workbooks and ONNX models."""

import copy
import io
import json
import random
import sys
import zipfile
from collections.abc import Callable
from functools import cache
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


@cache
def open_transformer() -> bytes:
    """An ONNX model of one layer with open sizes, and shapes that chains of ops compute."""
    from doubles.onnx_transformers import write_transformer

    with TemporaryDirectory() as folder:
        return write_transformer(Path(folder) / "net.onnx", "bert", layers=1).read_bytes()


def damaged_model(rng: random.Random) -> bytes:
    """What decides shapes changed, or any other field of the message, or its bytes."""
    import onnx

    model = onnx.load_from_string(open_transformer())
    graph, sizes, names = model.graph, ODD_SIZES, ["ids", "v1", "", "y", "nowhere", "n" * 2000]
    constants = [node for node in graph.node if node.op_type == "Constant"]
    if rng.random() < 0.2:
        return damage_bytes(rng, model.SerializeToString())
    for _ in range(rng.choice([1, 1, 2, 4])):
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        match rng.randrange(14):
            case 0 | 1 | 2:
                value = rng.choices(sizes, k=rng.choice([1, 2, 4, 2000]))
                dims = rng.choice([[], [len(value)], [2, 2], [-1], [2**40]])
                made = onnx.TensorProto(dims=dims, data_type=7, int64_data=value)
                rng.choice(constants).attribute[0].t.CopyFrom(made)
            case 3 | 4:
                node.op_type = rng.choice(ODD_OPS)
            case 5 if node.input:
                node.input[rng.randrange(len(node.input))] = rng.choice(graph.node).output[0]
            case 6:
                node.metadata_props[0].value = rng.choice(ODD_SCOPES)
            case 7:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(sizes)
                tensor.data_type = rng.choice([1, 0, 2, 8, 14, 22, 99])
            case 8:
                rng.choice(graph.input[0].type.tensor_type.shape.dim).dim_value = rng.choice(sizes)
            case 9:
                del node.input[:1]
                node.input.extend(rng.choices(names, k=rng.randrange(2)))
                node.output.extend(rng.choices(names, k=rng.randrange(2)))
                node.name = rng.choice(names)
            case 10 if node.attribute:
                attribute = rng.choice(node.attribute)
                attribute.i = rng.choice(sizes)
                attribute.ints[:] = [rng.choice(sizes) for _ in attribute.ints]
                attribute.type = rng.choice([1, 2, 4, 5, 7, 10])
            case 11:
                graph.node.append(rng.choice(graph.node))
            case 12:
                model.opset_import[0].version = rng.choice([0, 1, 6, 13, 99, -1, 2**60])
            case _:
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = rng.choice(names)
    return bytes(model.SerializeToString())
