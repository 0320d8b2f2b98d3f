"""Shapes that an ONNX model computes: all known once its inputs have sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placegap.instances import Graph, InputError
from placegap.instances.importers.onnx_model import read_onnx

onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
helper = pytest.importorskip("onnx.helper")
doubles = pytest.importorskip("doubles.onnx_transformers")
FLOAT, INT64 = 1, 7


def product_flops(batch: int, length: int, layers: int) -> int:
    """Of all matrix products: four of width 16 and two of 16 x 64 per token, scores and values."""
    per_token = 4 * 16 * 16 + 2 * 16 * 64
    attention = 2 * length * length * 16  # both products, over all heads
    return 2 * layers * batch * (length * per_token + attention)


def flops(graph: Graph, kind: str) -> int:
    return sum(op.flops or 0 for op in graph.ops if op.kind == kind)


@pytest.mark.parametrize(
    ("style", "batch", "length", "layers"),
    [("gpt", 3, 20, 2), ("bert", 3, 20, 2), ("gpt", 2, 16, 12)],
)
def test_a_transformer_with_open_sizes_is_read_at_any_size(
    tmp_path: Path, style: str, batch: int, length: int, layers: int
) -> None:
    path = doubles.write_transformer(tmp_path / "net.onnx", style, layers=layers)
    graph = read_onnx(path, dims={"batch": batch, "seq": length}).graph
    assert flops(graph, "MatMul") == product_flops(batch, length, layers)
    # chains of shapes are folded away: what is left works on data
    chains = {"Shape", "Range", "Concat", "ConstantOfShape", "Constant", "Equal", "Slice"}
    assert chains.isdisjoint(op.kind for op in graph.ops)
    softmax = next(op for op in graph.ops if op.kind == "Softmax")
    assert softmax.flops == 5 * batch * 2 * length * length


def test_batch_means_every_open_first_dimension_where_none_is_called_so(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, FLOAT, [f"s{name}", 5]) for name in "ab"]
    path = save(tmp_path, nodes, inputs)
    graph = read_onnx(path, dims={"batch": 4}).graph
    assert (graph.ops[0].flops, graph.provenance.parameters) == (20, {})
    assert read_onnx(path, dims={"batch": 4, "sa": 1}).graph.ops[0].flops == 20
    assert read_onnx(path).graph.provenance.parameters["assumed_dims"] == "sa=1, sb=1"


def save(folder: Path, nodes: list[Any], inputs: list[Any], **rest: Any) -> Path:
    ends = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "net", inputs, ends, **rest)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = folder / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=imports).SerializeToString())
    return path


def test_the_module_of_an_op_is_the_innermost_of_its_scopes(tmp_path: Path) -> None:
    path = doubles.write_transformer(tmp_path / "net.onnx", "gpt", layers=1)
    graph = read_onnx(path, dims={"seq": 4}).graph
    modules = list(dict.fromkeys(op.module for op in graph.ops))
    assert modules == ["embed", "layer.0.attention", "layer.0.feed_forward", None]


@pytest.mark.parametrize("text", ["", "[", "['a', 3]", "__import__('os')", "(" * 5000])
def test_scopes_that_are_no_list_of_texts_are_no_module(tmp_path: Path, text: str) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    entry = node.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", text
    path = save(tmp_path, [node], [helper.make_tensor_value_info("x", FLOAT, [2])])
    assert read_onnx(path).graph.ops[0].module is None


def test_nodes_that_no_output_depends_on_are_dropped(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], "kept"),
        helper.make_node("Relu", ["x"], ["a"], "dead"),
        helper.make_node("NonZero", ["a"], ["b"], "dead, and of unknown size"),
    ]
    graph = read_onnx(save(tmp_path, nodes, [helper.make_tensor_value_info("x", FLOAT, [2])])).graph
    assert [op.name for op in graph.ops] == ["kept"]
    assert "2 nodes dropped that no output depends on" in graph.provenance.changes


def test_an_if_of_known_condition_is_the_branch_that_is_taken(tmp_path: Path) -> None:
    # squeeze(x, 1) as torch's older exporter writes it: only where that axis has one element
    branches = {}
    for name, kind in (("then", "Relu"), ("else", "Exp")):
        end, body = f"{name}_end", [helper.make_node(kind, ["x"], [f"{name}_end"], name)]
        ends = [helper.make_empty_tensor_value_info(end)]
        branches[f"{name}_branch"] = helper.make_graph(body, name, [], ends)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["y"], "choose", **branches),
    ]
    one = helper.make_tensor("one", INT64, [], [1])
    for size, kind in ((1, "Relu"), (3, "Exp")):
        inputs = [helper.make_tensor_value_info("x", FLOAT, [2, size])]
        graph = read_onnx(save(tmp_path, nodes, inputs, initializer=[one])).graph
        assert [op.kind for op in graph.ops] == [kind, "Identity"]


def test_a_shape_that_the_file_states_serves_where_none_can_be_inferred(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Magic", ["x"], ["m"], "wand", domain="com.example"),
        helper.make_node("Relu", ["m"], ["y"], "relu"),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["N", 2])]
    stated = [helper.make_tensor_value_info("m", FLOAT, ["N", 6])]
    path = save(tmp_path, nodes, inputs, value_info=stated)
    graph = read_onnx(path, dims={"N": 5}).graph
    # no rule: 1 FLOP per element that it writes
    assert [(op.name, op.flops) for op in graph.ops] == [("wand", 30), ("relu", 30)]
    assert graph.provenance.parameters["ops_without_flop_rule"] == "Magic 1"


def test_a_range_that_would_fill_the_memory_is_not_computed(tmp_path: Path) -> None:
    values = {"start": 0, "limit": 2**62, "delta": 1}
    ends = [helper.make_tensor(name, INT64, [], [value]) for name, value in values.items()]
    nodes = [
        helper.make_node("Range", ["start", "limit", "delta"], ["r"]),
        helper.make_node("Expand", ["x", "r"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [1])]
    with pytest.raises(InputError, match="the shape of 'y' cannot be inferred"):
        read_onnx(save(tmp_path, nodes, inputs, initializer=ends))


def test_half_precision_and_bytes_are_number_types_of_ops(tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info("x", FLOAT, [2, 4])]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "single"),
        helper.make_node("Cast", ["a"], ["b"], "cast", to=10),
        helper.make_node("Relu", ["b"], ["y"], "half"),
    ]
    graph = read_onnx(save(tmp_path, nodes, inputs)).graph
    assert [op.dtype for op in graph.ops] == [None, None, "float16"]
