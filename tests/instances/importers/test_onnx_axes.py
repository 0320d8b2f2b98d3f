"""Axes that imported ops can be split along."""

from __future__ import annotations

import pytest

from placegap.experiments.research.workloads.build import onnx_light_folder
from placegap.instances import load_corpus
from placegap.instances.costing.onnx_flops import Node
from placegap.instances.importers.onnx_model import count_axes, load_onnx


@pytest.mark.parametrize(
    ("node", "has_weights", "axes"),
    [
        # a grouped convolution (4 groups of 2 channels): no channel axis
        (
            Node("Conv", [(8, 8, 9, 9), (8, 2, 3, 3)], [(8, 8, 7, 7)], {"group": 4}),
            True,
            {"batch": 8},
        ),
        # a filter that is computed, not stored
        (Node("Conv", [(8, 8, 9, 9), (8, 8, 3, 3)], [(8, 8, 7, 7)], {}), False, {}),
        (
            Node("Gemm", [(5, 8), (7, 5)], [(8, 7)], {"transA": 1, "transB": 1}),
            True,
            {"batch": 8, "out_channel": 7, "in_channel": 5},
        ),
        # attention: both inputs have the batch of 2
        (
            Node("MatMul", [(2, 4, 6, 5), (2, 4, 5, 6)], [(2, 4, 6, 6)], {}),
            False,
            {"batch": 2, "out_channel": 6, "in_channel": 5},
        ),
        # the second input is the same for all rows of the first, and no weight
        (
            Node("MatMul", [(6, 5), (5, 3)], [(6, 3)], {}),
            False,
            {"out_channel": 3, "in_channel": 5},
        ),
        # a vector, and a batch of one
        (Node("MatMul", [(6, 5), (5,)], [(6,)], {}), True, {}),
        (
            Node("Conv", [(1, 3, 9, 9), (8, 3, 3, 3)], [(1, 8, 7, 7)], {}),
            True,
            {"out_channel": 8, "in_channel": 3},
        ),
    ],
)
def test_axes_follow_from_the_shapes(node: Node, has_weights: bool, axes: dict[str, int]) -> None:
    assert count_axes(node, has_weights) == axes


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
