"""What an ONNX node computes: FLOPs from the shapes of its tensors.

FLOPs count a multiply-add as two and are exact for convolutions, matrix products and attention
(2 x MAC, biases left out; the products of integers count alike). Everything else is counted per
element, by the tables below; an op that only moves data computes nothing.

Together with the kinds that `COUNTED` names, the tables cover the standard's ops on tensors
of numbers. A kind in none of them has no FLOP rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

# Ops whose output is their input under another shape (Dropout: at inference).
VIEWS = frozenset({"BitCast", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})

# Ops that move data and compute nothing.
MOVES = frozenset(
    {
        *("Cast", "CastLike", "CenterCropPad", "Compress", "Concat", "Constant", "ConstantOfShape"),
        *("DepthToSpace", "Expand", "EyeLike", "Gather", "GatherElements", "GatherND", "MaxUnpool"),
        *("NonZero", "OneHot", "Pad", "Range", "ReverseSequence", "Scatter", "ScatterElements"),
        *("ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "TensorScatter", "Tile"),
        *("Transpose", "Trilu", "Where"),
    }
)

# Ops that read of their first input only as much as they write (an embedding, not its table).
READS_WHAT_IT_WRITES = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})

# Ops that compute one function of each output element: 1 FLOP.
ELEMENTWISE = frozenset(
    {
        *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "Bernoulli"),
        *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "BlackmanWindow"),
        *("Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor"),
        *("Greater", "GreaterOrEqual", "HammingWindow", "HannWindow", "HardSigmoid", "IsInf"),
        *("IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Mod", "Mul", "Neg", "Not", "Or"),
        *("PRelu", "Pow", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh"),
        *("Softplus", "Softsign", "Sqrt", "Sub", "Tan", "Tanh", "ThresholdedRelu", "Xor"),
    }
)

# FLOPs per output element.
PER_OUTPUT = {
    "BatchNormalization": 2,  # at inference: scale and shift
    "GroupNormalization": 8,  # mean 1, variance 3, normalise 2, scale and shift 2
    "InstanceNormalization": 8,
    "LayerNormalization": 8,
    "MeanVarianceNormalization": 6,  # as above, without scale and shift
    "RMSNormalization": 4,  # square and add, normalise, scale
    "LpNormalization": 3,  # power and add, divide
    "Softmax": 5,  # maximum, subtract, exp, sum, divide
    "LogSoftmax": 5,
    "Hardmax": 2,  # maximum, compare
    "Gelu": 5,  # divide, erf, add, two products
    "HardSwish": 4,  # hard sigmoid's product, sum and clip, product
    "Mish": 3,  # softplus, tanh, product
    "Swish": 2,  # sigmoid, product
    "SwiGLU": 3,  # swish, product
    "RotaryEmbedding": 3,  # two products and a sum
    "DequantizeLinear": 2,  # subtract, scale
    "QuantizeLinear": 3,  # divide, round, add
    "DynamicQuantizeLinear": 5,  # minimum, maximum, and as QuantizeLinear
}

# Convolutions, and which of their inputs holds the filters.
WEIGHT_AT = {
    "Conv": 1,
    "ConvInteger": 1,
    "QLinearConv": 3,
    "DeformConv": 1,
    "ConvTranspose": 1,
    "CausalConvWithState": 1,
}

# Matrix products, and which of their inputs are the matrices.
PRODUCT_AT = {"Gemm": (0, 1), "MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}
# Ops that are computed as a matrix product, and which of their inputs are multiplied.
FACTORS = {kind: (0, at) for kind, at in WEIGHT_AT.items()} | PRODUCT_AT

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
WINDOWS = frozenset({"AveragePool", "LpPool", "MaxPool"})
VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
# Ops that touch every element of their input once.
WHOLE_INPUT = frozenset(
    {
        *("ArgMax", "ArgMin", "Col2Im", "CumProd", "CumSum", "GlobalAveragePool", "GlobalLpPool"),
        *("GlobalMaxPool", "MaxRoiPool", "NegativeLogLikelihoodLoss", "ReduceL1", "ReduceL2"),
        *("ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare", "TopK", "Unique"),
    }
)

Shape = tuple[int, ...]

# Domain and kind of onnxruntime's product with weights of 2 to 8 bits, in blocks with scales.
BLOCK_PRODUCT = ("com.microsoft", "MatMulNBits")

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.preview"})


@dataclass(frozen=True)
class Node:
    """An ONNX node with the shapes of what it reads and writes; None where an input is left out."""

    op_type: str
    inputs: Sequence[Shape | None]
    outputs: Sequence[Shape | None]
    attributes: Mapping[str, Any]
    domain: str = ""


def has_rule(node: Node) -> bool:
    """Whether the tables know the op; of another one each output element counts 1 FLOP."""
    standard = node.domain in STANDARD_DOMAINS and node.op_type in KINDS
    return standard or (node.domain, node.op_type) == BLOCK_PRODUCT


def count_flops(node: Node) -> int:
    """FLOPs of a node; one whose shapes do not suffice is a ValueError."""
    kind, out = node.op_type, _elements(node.outputs[0])
    if not has_rule(node):
        return out
    if (node.domain, kind) == BLOCK_PRODUCT:
        return 2 * out * _shape(node, 0)[-1]
    if kind in COUNTED:
        return COUNTED[kind](node)
    if kind in VIEWS or kind in MOVES:
        return 0
    if kind in FACTORS and node.outputs[0] is not None:
        return 2 * prod(product_sizes(node))
    if kind in RECURRENT:  # X is (steps, batch, size), or (batch, steps, size)
        steps_and_batch = prod(_shape(node, 0)[:2])
        return 2 * steps_and_batch * (_elements(_shape(node, 1)) + _elements(_shape(node, 2)))
    if kind in WINDOWS:
        return out * int(prod(node.attributes["kernel_shape"]))
    if kind in WHOLE_INPUT:
        return _elements(_shape(node, 0))
    if kind in VARIADIC:
        return out * max(1, len(node.inputs) - 1)
    return out * PER_OUTPUT.get(kind, 1)


def product_sizes(node: Node) -> tuple[int, int, int, int]:
    """Batch, m, n and k of the product (m, k) by (k, n) that a node of `FACTORS` is computed as."""
    # A convolution has a product for each group, of all pixels of the batch.
    left, right = (_shape(node, at) for at in FACTORS[node.op_type])
    out = _shape_of_output(node)
    if node.op_type in WEIGHT_AT:
        is_transposed = node.op_type == "ConvTranspose"
        sites, channels = (left, out[1]) if is_transposed else (out, left[1])
        groups = channels // max(1, right[1])
        m, n, k = sites[0] * prod(sites[2:]), right[0] // max(1, groups), prod(right[1:])
        return (groups, m, k, n) if is_transposed else (groups, m, n, k)
    if node.op_type == "Gemm":
        k = left[0] if node.attributes.get("transA") else left[-1]
        return 1, prod(out[:-1]), out[-1], k
    n = right[-1] if len(right) > 1 else 1
    rows = prod(out) // max(1, n)
    m = rows if prod(right[:-2]) == 1 else prod(left[-2:-1])
    return rows // max(1, m), m, n, left[-1]


def _attention_flops(node: Node) -> int:
    """Both products over all keys, past ones included, and the softmax between them."""
    # A causal mask saves nothing: rules of other libraries do not count it either.
    query, key, value = (_shape(node, at) for at in (0, 1, 2))
    num_keys = key[-2]
    past = node.inputs[4] if len(node.inputs) > 4 else None
    if past:
        num_keys += past[-2]
    if len(query) == 4:
        heads, size, value_size = query[1], query[3], value[3]
    else:
        heads = int(node.attributes["q_num_heads"])
        size = query[-1] // heads
        value_size = value[-1] // int(node.attributes["kv_num_heads"])
    pairs: int = query[0] * heads * query[-2] * num_keys
    return pairs * (2 * size + 2 * value_size + PER_OUTPUT["Softmax"])


def _linear_attention_flops(node: Node) -> int:
    """Outer product and query of the state per token; decay and delta rule if there are any."""
    query, key, value = (_shape(node, at) for at in (0, 1, 2))
    heads = int(node.attributes["kv_num_heads"])
    tokens, state = query[0] * query[1], (key[-1] // heads) * (value[-1] // heads)
    rule: str = node.attributes.get("update_rule", b"gated_delta").decode()
    update = 2 + rule.startswith("gated") + 2 * rule.endswith("delta")
    return tokens * state * (heads * update + 2 * int(node.attributes["q_num_heads"]))


def _einsum_flops(node: Node) -> int:
    """2 x the product of all index sizes: what one pass over the whole index space takes."""
    equation = node.attributes["equation"].decode().replace(" ", "")
    size: dict[str, int] = {}
    batch: Shape = ()
    for term, shape in zip(equation.split("->")[0].split(","), node.inputs, strict=True):
        before, dots, after = term.partition("...")
        names = before + after
        if shape is None or len(shape) < len(names) or (not dots and len(shape) > len(names)):
            raise ValueError(f"the FLOPs of Einsum {equation!r} are not known")
        end = len(shape) - len(after)
        size.update(zip(names, shape[: len(before)] + shape[end:], strict=True))
        batch = _broadcast(batch, shape[len(before) : end])
    return 2 * prod(size.values()) * prod(batch)


def _broadcast(one: Shape, other: Shape) -> Shape:
    longer, shorter = sorted((one, other), key=len, reverse=True)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    return tuple(max(a, b) for a, b in zip(longer, padded, strict=True))


def _resize_flops(node: Node) -> int:
    """A multiply-add for each neighbour that an output element is interpolated from."""
    before, after = _shape(node, 0), _shape_of_output(node)
    neighbours = {b"linear": 2, b"cubic": 4}.get(node.attributes.get("mode", b"nearest"), 0)
    resized = sum(a != b for a, b in zip(before, after, strict=True))
    return 2 * prod(after) * neighbours**resized if neighbours else 0


def _sample_flops(node: Node) -> int:
    """GridSample: like Resize, along all axes of space."""
    after = _shape_of_output(node)
    mode = node.attributes.get("mode", b"linear")
    neighbours = {b"nearest": 0, b"cubic": 4, b"bicubic": 4}.get(mode, 2)
    return 2 * prod(after) * neighbours ** (len(after) - 2) if neighbours else 0


def _roi_align_flops(node: Node) -> int:
    """Bilinear samples of each bin, and their mean; two by two where the file leaves it open."""
    ratio = int(node.attributes.get("sampling_ratio", 0)) or 2
    return prod(_shape_of_output(node)) * ratio * ratio * (2 * 4 + 1)


def _fourier_flops(node: Node) -> int:
    """5 n log2 n for each transform of n complex numbers; the last axis holds their two parts."""
    signal = _shape(node, 0)
    length = signal[int(node.attributes.get("axis", -2))]
    return _transforms(prod(signal[:-1]) // max(1, length), length)


def _short_fourier_flops(node: Node) -> int:
    batch, frames, bins = _shape_of_output(node)[:3]
    length = 2 * (bins - 1) if node.attributes.get("onesided", 1) else bins
    return _transforms(batch * frames, length)


def _transforms(number: int, length: int) -> int:
    return round(number * 5 * length * log2(length)) if length > 1 else 0


def _determinant_flops(node: Node) -> int:
    shape = _shape(node, 0)
    return prod(shape[:-2]) * 2 * shape[-1] ** 3 // 3


# Kinds with a rule of their own.
COUNTED: dict[str, Callable[[Node], int]] = {
    "Attention": _attention_flops,
    "DFT": _fourier_flops,
    "Det": _determinant_flops,
    "Einsum": _einsum_flops,
    "FlexAttention": _attention_flops,
    "GridSample": _sample_flops,
    # squares and their sum over `size` channels; scale, power, divide
    "LRN": lambda node: _elements(node.outputs[0]) * (2 * int(node.attributes["size"]) + 3),
    "LinearAttention": _linear_attention_flops,
    "Resize": _resize_flops,
    "RoiAlign": _roi_align_flops,
    "STFT": _short_fourier_flops,
    "SoftmaxCrossEntropyLoss": lambda node: PER_OUTPUT["Softmax"] * _elements(_shape(node, 0)),
    "Upsample": _resize_flops,
    # a product of a size x (size + 1) matrix for each point of the grid
    "AffineGrid": lambda node: 2 * _elements(node.outputs[0]) * _shape(node, 0)[-1],
}

# Kinds that have a rule.
KINDS = frozenset().union(
    VIEWS,
    MOVES,
    ELEMENTWISE,
    PER_OUTPUT,
    WEIGHT_AT,
    PRODUCT_AT,
    RECURRENT,
    WINDOWS,
    VARIADIC,
    WHOLE_INPUT,
    COUNTED,
)


def _shape(node: Node, at: int) -> Shape:
    shape = node.inputs[at] if at < len(node.inputs) else None
    if not shape:
        raise ValueError(f"input {at} has no shape to count FLOPs from")
    return shape


def _shape_of_output(node: Node) -> Shape:
    if node.outputs[0] is None:
        raise ValueError("its output has no shape to count FLOPs from")
    return node.outputs[0]


def _elements(shape: Shape | None) -> int:
    return 0 if shape is None else prod(shape)
