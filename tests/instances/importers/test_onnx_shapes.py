"""Shapes that an ONNX model computes: all known once its inputs have sizes."""

from pathlib import Path

import pytest
from doubles.onnx_nets import helper, nodes, save, tensor, weight

from placegap.experiments.research.workloads.build import onnx_light_folder
from placegap.instances import Graph, load_corpus
from placegap.instances.costing.onnx_flops import Node
from placegap.instances.importers.onnx_model import count_axes, load_onnx

doubles = pytest.importorskip("doubles.onnx_transformers")


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
    graph = load_onnx(path, dims={"batch": batch, "seq": length}).graph
    assert flops(graph, "MatMul") == product_flops(batch, length, layers)
    # chains of shapes are folded away: what is left works on data
    chains = {"Shape", "Range", "Concat", "ConstantOfShape", "Constant", "Equal", "Slice"}
    assert chains.isdisjoint(op.kind for op in graph.ops)
    softmax = next(op for op in graph.ops if op.kind == "Softmax")
    assert softmax.flops == 5 * batch * 2 * length * length
    # the module of an op is the innermost of its scopes
    parts = [f"layer.{n}.{part}" for n in range(layers) for part in ("attention", "feed_forward")]
    assert [*dict.fromkeys(op.module for op in graph.ops)] == ["embed", *parts, None]


def test_batch_means_every_open_first_dimension_where_none_is_called_so(tmp_path: Path) -> None:
    path = save(tmp_path, nodes("Add a b > y"), [tensor(name, f"s{name}", 5) for name in "ab"])
    graph = load_onnx(path, dims={"batch": 4}).graph
    assert (graph.ops[0].flops, graph.provenance.parameters) == (20, {})
    assert load_onnx(path, dims={"batch": 4, "sa": 1}).graph.ops[0].flops == 20
    assert load_onnx(path).graph.provenance.parameters["assumed_dims"] == "sa=1, sb=1"


def test_nodes_that_no_output_depends_on_are_dropped(tmp_path: Path) -> None:
    net = nodes("kept: Relu x > y; dead: Relu x > a; of unknown size: NonZero a > b")
    graph = load_onnx(save(tmp_path, net, [tensor("x", 2)])).graph
    assert [op.name for op in graph.ops] == ["kept"]
    assert "2 nodes dropped that no output depends on" in graph.provenance.changes


def test_an_if_of_known_condition_is_the_branch_that_is_taken(tmp_path: Path) -> None:
    # squeeze(x, 1) as torch's older exporter writes it: only where that axis has one element
    ends = [helper.make_empty_tensor_value_info("end")]
    then, other = (helper.make_graph(nodes(f"{x} x > end"), x, [], ends) for x in ("Relu", "Exp"))
    net = nodes("Shape x > shape; Gather shape one > size; Equal size one > is_one")
    net += nodes("If is_one > y", then_branch=then, else_branch=other)
    for size, kind in ((1, "Relu"), (3, "Exp")):
        path = save(tmp_path, net, [tensor("x", 2, size)], initializer=[weight("one", values=[1])])
        assert [op.kind for op in load_onnx(path).graph.ops] == [kind, "Identity"]


def test_a_shape_that_the_file_states_serves_where_none_can_be_inferred(tmp_path: Path) -> None:
    net = nodes("wand: Magic x > m", domain="own") + nodes("relu: Relu m > y")
    path = save(tmp_path, net, [tensor("x", "N", 2)], value_info=[tensor("m", "N", 6)])
    graph = load_onnx(path, dims={"N": 5}).graph
    # no rule: 1 FLOP per element that it writes
    assert [(op.name, op.flops) for op in graph.ops] == [("wand", 30), ("relu", 30)]
    assert graph.provenance.parameters["ops_without_flop_rule"] == "Magic 1"


def test_half_precision_and_bytes_are_number_types_of_ops(tmp_path: Path) -> None:
    net = nodes("Relu x > a") + nodes("Cast a > b", to=10) + nodes("Relu b > y")
    ops = load_onnx(save(tmp_path, net, [tensor("x", 2, 4)])).graph.ops
    assert [op.dtype for op in ops] == [None, None, "float16"]
    assert [op.resident_bytes for op in ops] == [32, 16, 16]


ENDS = {"out_channel": 7, "in_channel": 5}


@pytest.mark.parametrize(
    ("kind", "reads", "writes", "attributes", "has_weights", "axes"),
    [
        # a grouped convolution (4 groups of 2 channels): no channel axis
        ("Conv", [(8, 8, 9, 9), (8, 2, 3, 3)], (8, 8, 7, 7), {"group": 4}, True, {"batch": 8}),
        # a filter that is computed, not stored
        ("Conv", [(8, 8, 9, 9), (8, 8, 3, 3)], (8, 8, 7, 7), {}, False, {}),
        ("Gemm", [(5, 8), (7, 5)], (8, 7), {"transA": 1, "transB": 1}, True, {"batch": 8, **ENDS}),
        # attention: both inputs have the batch of 2
        ("MatMul", [(2, 4, 6, 5), (2, 4, 5, 7)], (2, 4, 6, 7), {}, False, {"batch": 2, **ENDS}),
        # the second input is the same for all rows of the first, and no weight
        ("MatMul", [(6, 5), (5, 7)], (6, 7), {}, False, ENDS),
        # a vector, and a batch of one
        ("MatMul", [(6, 5), (5,)], (6,), {}, True, {}),
    ],
)
def test_axes_follow_from_the_shapes(
    kind: str, reads: list, writes: tuple, attributes: dict, has_weights: bool, axes: dict
) -> None:
    assert count_axes(Node(kind, reads, [writes], attributes), has_weights) == axes


def test_an_imported_convolution_states_its_axes_and_the_corpus_does_not() -> None:
    imported = load_onnx(onnx_light_folder() / "light_zfnet512.onnx").graph
    shipped = load_corpus("zfnet512").graph
    first = next(op for op in imported.ops if op.kind == "Conv")
    # ZFNet-512: 96 filters of 7 x 7 over 3 channels, batch 1
    assert first.axis_sizes == {"out_channel": 96, "in_channel": 3}
    assert first.splittable_axes == ("out_channel", "in_channel")
    assert {op.kind for op in imported.ops if op.splittable_axes} == {"Conv", "Gemm"}
    # its best-known values go by the content of graphs without axes
    assert not any(op.splittable_axes or op.axis_sizes for op in shipped.ops)
