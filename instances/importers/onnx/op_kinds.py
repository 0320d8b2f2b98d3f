"""Kinds of ONNX ops by what they compute: tables that `flops` counts by.

Together with the kinds that `flops.COUNTED` names, the tables cover the standard's ops on tensors
of numbers. A kind in none of them has no FLOP rule.
"""

from __future__ import annotations

VIEWS = frozenset(
    {
        "BitCast",
        "Dropout",
        "Flatten",
        "Identity",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
    }
)
"""Ops whose output is their input under another shape (Dropout: at inference)."""

MOVES = frozenset(
    {
        "Cast",
        "CastLike",
        "CenterCropPad",
        "Compress",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "Expand",
        "EyeLike",
        "Gather",
        "GatherElements",
        "GatherND",
        "MaxUnpool",
        "NonZero",
        "OneHot",
        "Pad",
        "Range",
        "ReverseSequence",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "TensorScatter",
        "Tile",
        "Transpose",
        "Trilu",
        "Where",
    }
)
"""Ops that move data and compute nothing."""

READS_WHAT_IT_WRITES = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Ops that read of their first input only as much as they write (an embedding, not its table)."""

ELEMENTWISE = frozenset(
    {
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Bernoulli",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "BlackmanWindow",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "HammingWindow",
        "HannWindow",
        "HardSigmoid",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Xor",
    }
)
"""Ops that compute one function of each output element: 1 FLOP."""

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
"""FLOPs per output element."""

WEIGHT_AT = {
    "Conv": 1,
    "ConvInteger": 1,
    "QLinearConv": 3,
    "DeformConv": 1,
    "ConvTranspose": 1,
    "CausalConvWithState": 1,
}
"""Convolutions, and which of their inputs holds the filters."""

PRODUCT_AT = {"Gemm": (0, 1), "MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}
"""Matrix products, and which of their inputs are the matrices."""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
WINDOWS = frozenset({"AveragePool", "LpPool", "MaxPool"})
VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
WHOLE_INPUT = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "Col2Im",
        "CumProd",
        "CumSum",
        "GlobalAveragePool",
        "GlobalLpPool",
        "GlobalMaxPool",
        "MaxRoiPool",
        "NegativeLogLikelihoodLoss",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "TopK",
        "Unique",
    }
)
"""Ops that touch every element of their input once."""
