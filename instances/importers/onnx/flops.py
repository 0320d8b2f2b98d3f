"""What an ONNX node computes and moves: FLOPs and bytes from the shapes of its tensors.

FLOPs count a multiply-add as two and are exact for convolutions and matrix products (2 x MAC,
biases left out). Everything else is counted per element of the output, by the table below; an op
that only moves data computes nothing. A view moves nothing either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

Shape = tuple[int, ...]

VIEWS = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Ops whose output is their input under another shape (Dropout: at inference)."""

MOVES = frozenset({
    "Cast", "Compress", "Concat", "ConstantOfShape", "DepthToSpace", "Expand", "EyeLike", "Gather",
    "GatherElements", "GatherND", "OneHot", "Pad", "ReverseSequence", "ScatterElements",
    "ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose", "Where",
})  # fmt: skip
"""Ops that move data and compute nothing."""

READS_WHAT_IT_WRITES = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Ops that read of their first input only as much as they write (an embedding, not its table)."""

PER_OUTPUT = {
    "BatchNormalization": 2,  # at inference: scale and shift
    "GroupNormalization": 8,  # mean 1, variance 3, normalise 2, scale and shift 2
    "InstanceNormalization": 8,
    "LayerNormalization": 8,
    "RMSNormalization": 4,  # square and add, normalise, scale
    "Softmax": 5,  # maximum, subtract, exp, sum, divide
    "LogSoftmax": 5,
}
"""FLOPs per output element; an op in no table takes 1."""

WEIGHT_AT = {
    "Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "DeformConv": 1, "ConvTranspose": 1,
}  # fmt: skip
WINDOWS = frozenset({"AveragePool", "LpPool", "MaxPool"})
WHOLE_INPUT = frozenset({"ArgMax", "ArgMin", "CumSum", "TopK"})
"""Ops that touch every element of their input once, like reductions and global pools."""
VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
UNCOUNTED = frozenset({"Attention"})


@dataclass(frozen=True)
class Node:
    """An ONNX node with the shapes of what it reads and writes; None where an input is left out."""

    op_type: str
    inputs: Sequence[Shape | None]
    outputs: Sequence[Shape | None]
    attributes: Mapping[str, Any]


def count_flops(node: Node) -> int:
    """FLOPs of a node; one that cannot be counted is a ValueError.

    Examples
    --------
    A 3 x 3 convolution from 8 to 16 channels on 10 x 10 outputs: 2 x 1600 x 8 x 9.

    >>> count_flops(Node("Conv", [(1, 8, 12, 12), (16, 8, 3, 3)], [(1, 16, 10, 10)], {}))
    230400
    """
    kind, out = node.op_type, _elements(node.outputs[0])
    if kind in UNCOUNTED:
        raise ValueError(f"the FLOPs of {kind} are not known; export it as its single ops")
    if kind in VIEWS or kind in MOVES:
        return 0
    if kind in WEIGHT_AT:
        weight = _shape(node, WEIGHT_AT[kind])
        sites = _elements(_shape(node, 0)) if kind == "ConvTranspose" else out
        return 2 * sites * prod(weight[1:])
    if kind in ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"):
        left = _shape(node, 0)
        summed = left[0] if kind == "Gemm" and node.attributes.get("transA") else left[-1]
        return 2 * out * summed
    if kind == "Einsum":
        return _einsum_flops(node)
    if kind in RECURRENT:  # X is (steps, batch, size), or (batch, steps, size)
        steps_and_batch = prod(_shape(node, 0)[:2])
        return 2 * steps_and_batch * (_elements(_shape(node, 1)) + _elements(_shape(node, 2)))
    if kind in WINDOWS:
        return out * int(prod(node.attributes["kernel_shape"]))
    if kind in WHOLE_INPUT or kind.startswith(("Global", "Reduce")):
        return _elements(_shape(node, 0))
    if kind == "LRN":  # squares and their sum over `size` channels; scale, power, divide
        return out * (2 * int(node.attributes["size"]) + 3)
    if kind in VARIADIC:
        return out * max(1, len(node.inputs) - 1)
    return out * PER_OUTPUT.get(kind, 1)


def _einsum_flops(node: Node) -> int:
    """2 x the product of all index sizes: what one pass over the whole index space takes."""
    equation = node.attributes["equation"].decode().replace(" ", "")
    size: dict[str, int] = {}
    for term, shape in zip(equation.split("->")[0].split(","), node.inputs, strict=True):
        if "." in term or shape is None or len(term) != len(shape):
            raise ValueError(f"the FLOPs of Einsum {equation!r} are not known")
        size.update(zip(term, shape, strict=True))
    return 2 * prod(size.values())


def _shape(node: Node, at: int) -> Shape:
    shape = node.inputs[at] if at < len(node.inputs) else None
    if not shape:
        raise ValueError(f"input {at} has no shape to count FLOPs from")
    return shape


def _elements(shape: Shape | None) -> int:
    return 0 if shape is None else prod(shape)
