"""Axes that imported ops can be split along."""

from __future__ import annotations

import pytest

from placegap.experiments.research.workloads.build import onnx_light_folder
from placegap.instances import load_corpus
from placegap.instances.costing.onnx_flops import Node
from placegap.instances.importers.onnx_model import count_axes, read_onnx

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
    imported = read_onnx(onnx_light_folder() / "light_zfnet512.onnx").graph
    shipped = load_corpus("zfnet512").graph
    first = next(op for op in imported.ops if op.kind == "Conv")
    # ZFNet-512: 96 filters of 7 x 7 over 3 channels, batch 1
    assert first.axis_sizes == {"out_channel": 96, "in_channel": 3}
    assert first.splittable_axes == ("out_channel", "in_channel")
    assert {op.kind for op in imported.ops if op.splittable_axes} == {"Conv", "Gemm"}
    # its best-known values go by the content of graphs without axes
    assert not any(op.splittable_axes or op.axis_sizes for op in shipped.ops)
