"""Small ONNX models, written as text."""

from math import prod
from pathlib import Path
from typing import Any

import pytest

helper = pytest.importorskip("onnx.helper", reason="needs the onnx extra")
FLOAT, INT64 = 1, 7


def tensor(name: str, *dims: int | str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def weight(name: str, *dims: int, values: list[int] | None = None) -> Any:
    """An initializer of zeros, or of the given integers."""
    if values is not None:
        return helper.make_tensor(name, INT64, dims, values)
    return helper.make_tensor(name, FLOAT, dims, bytes(4 * prod(dims)), raw=True)


def nodes(text: str, **attributes: Any) -> list[Any]:
    """Nodes as ``name: Kind input > output; ...``, all with these attributes."""
    made = []
    for each in text.split(";"):
        name, _, rest = each.rpartition(":")
        left, _, writes = rest.partition(">")
        kind, *reads = left.split()
        made.append(helper.make_node(kind, reads, writes.split(), name.strip(), **attributes))
    return made


def save(path: Path, made: list[Any], inputs: list[Any], outputs: str = "y", **more: Any) -> Path:
    """Write a model of these nodes; a folder for its path gets a file "net.onnx"."""
    ends = more.pop("ends", [helper.make_empty_tensor_value_info(x) for x in outputs.split()])
    rest = {name: more.pop(name) for name in ("functions", "ir_version") if name in more}
    graph = helper.make_graph(made, "net", inputs, ends, **more)
    sets = [helper.make_opsetid(*each) for each in (("", 21), ("own", 1), ("com.microsoft", 1))]
    path = path / "net.onnx" if path.is_dir() else path
    path.write_bytes(helper.make_model(graph, opset_imports=sets, **rest).SerializeToString())
    return path
