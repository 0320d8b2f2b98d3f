"""Small transformers as exporters write them: open sizes, and chains of ops that compute shapes."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

WIDTH, HEADS, HIDDEN, VOCABULARY, LONGEST = 16, 2, 64, 50, 32


class Writer:
    """Nodes and weights of a graph, values named as they come."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.scopes: list[str] = [""]

    def add(self, kind: str, *reads: str, **attributes: Any) -> str:
        """One node of one output; its scopes are noted as torch's exporter does."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        node = helper.make_node(kind, list(reads), [f"v{len(self.nodes)}"], name, **attributes)
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.name_scopes", repr([*self.scopes, name])
        self.nodes.append(node)
        return str(node.output[0])

    def constant(self, *values: int | float, scalar: bool = False) -> str:
        """A small constant, written as a node."""
        kind = np.int64 if all(isinstance(value, int) for value in values) else np.float32
        array = np.array(values[0] if scalar else values, kind)
        return self.add("Constant", value=numpy_helper.from_array(array))

    def weight(self, *dims: int) -> str:
        """A weight of zeros."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.zeros(dims, np.float32), name))
        return name

    def size(self, value: str, axis: int) -> str:
        """``x.shape[axis]`` as a tensor of one element: Shape, Gather, Unsqueeze."""
        found = self.add("Gather", self.add("Shape", value), self.constant(axis, scalar=True))
        if self.opset < 13:
            return self.add("Unsqueeze", found, axes=[0])
        return self.add("Unsqueeze", found, self.constant(0))

    def linear(self, value: str, size: int, out: int) -> str:
        """A matrix product and a bias."""
        return self.add("Add", self.add("MatMul", value, self.weight(size, out)), self.weight(out))

    def norm(self, value: str) -> str:
        """A layer normalization."""
        return self.add("LayerNormalization", value, self.weight(WIDTH), self.weight(WIDTH))


def attention(out: Writer, value: str, mask: str) -> str:
    """Self-attention; heads are split by shapes that are computed."""
    batch, length = out.size(value, 0), out.size(value, 1)
    heads = out.constant(HEADS)
    split = out.add("Concat", batch, length, heads, out.constant(WIDTH // HEADS), axis=0)
    parts = [
        out.add("Transpose", out.add("Reshape", out.linear(value, WIDTH, WIDTH), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    ]
    scores = out.add("Div", out.add("MatMul", parts[0], parts[1]), out.constant(2.0, scalar=True))
    weights = out.add("Softmax", out.add("Add", scores, mask), axis=-1)
    together = out.add("Transpose", out.add("MatMul", weights, parts[2]), perm=[0, 2, 1, 3])
    joined = out.add("Concat", batch, length, out.constant(WIDTH), axis=0)
    return out.linear(out.add("Reshape", together, joined), WIDTH, WIDTH)


def causal_mask(out: Writer, ids: str) -> str:
    """GPT's: a Range of the length, compared with itself, and expanded to the batch."""
    length = out.add("Gather", out.add("Shape", ids), out.constant(1, scalar=True))
    zero, one = out.constant(0, scalar=True), out.constant(1, scalar=True)
    row = out.add("Range", zero, length, one)
    column = out.add("Unsqueeze", row, out.constant(1))
    later = out.add("Greater", out.add("Unsqueeze", row, out.constant(0)), column)
    masked = out.add(
        "Where", later, out.constant(-1e9, scalar=True), out.constant(0.0, scalar=True)
    )
    shape = out.add(
        "Concat", out.size(ids, 0), out.constant(1), out.size(ids, 1), out.size(ids, 1), axis=0
    )
    return out.add("Expand", masked, shape)


def given_mask(out: Writer, ids: str) -> str:
    """BERT's: an input, cut to the length, with axes for heads and queries, expanded."""
    flat = out.add("Cast", "mask", to=1)
    wide = out.add("Unsqueeze", flat, out.constant(1, 2))
    shape = out.add(
        "Concat", out.size(ids, 0), out.constant(1), out.size(ids, 1), out.size(ids, 1), axis=0
    )
    ones = out.add(
        "ConstantOfShape", out.add("Shape", shape), value=helper.make_tensor("v", 7, [1], [1])
    )
    asked = out.add("Where", out.add("Equal", shape, out.constant(-1)), ones, shape)
    return out.add("Expand", wide, asked)


def write_transformer(
    path: Path,
    style: str,
    layers: int = 2,
    opset: int = 17,
    names: tuple[str, str] = ("batch", "seq"),
) -> Path:
    """A GPT (``gpt``) or BERT (``bert``) with open batch and length."""
    out = Writer(opset)
    out.scopes = ["", "embed"]
    table = out.weight(VOCABULARY, WIDTH)
    # positions: the first rows of a table, as many as the input is long
    rows = out.add(
        "Slice", out.weight(LONGEST, WIDTH), out.constant(0), out.size("ids", 1), out.constant(0)
    )
    value = out.add("Add", out.add("Gather", table, "ids"), rows)
    mask = causal_mask(out, "ids") if style == "gpt" else given_mask(out, "ids")
    for number in range(layers):
        out.scopes = ["", f"layer.{number}", f"layer.{number}.attention"]
        value = out.add("Add", value, attention(out, out.norm(value), mask))
        out.scopes = ["", f"layer.{number}", f"layer.{number}.feed_forward"]
        hidden = out.linear(out.norm(value), WIDTH, HIDDEN)
        active = out.add("Relu", hidden)
        value = out.add("Add", value, out.linear(active, HIDDEN, WIDTH))
    out.scopes = [""]
    out.add("Identity", value)
    out.nodes[-1].output[0] = "y"
    inputs = [helper.make_tensor_value_info("ids", 7, list(names))]
    if style == "bert":
        inputs.append(helper.make_tensor_value_info("mask", 7, list(names)))
    ends = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(out.nodes, style, inputs, ends, initializer=out.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path.write_bytes(model.SerializeToString())
    return path
