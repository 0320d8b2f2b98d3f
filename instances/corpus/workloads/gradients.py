"""Which ops take the gradient of an op, by framework: the rules of automatic differentiation.

TensorFlow's rules are those of its gradient registry (tensorflow/python/ops/*_grad.py, version
1.14), ONNX Runtime's are read off dnn-partitioning's operator graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from placegap.instances.corpus.tape import Dialect


class GradientRule(NamedTuple):
    """How the gradients of an op's inputs come about.

    Attributes
    ----------
    data, weight : tuple of str
        Chain of ops for each input, and for each weight; ``{kind}`` stands for the forward op's.
    helpers : tuple of str
        Ops on shapes, before the chains; they take no time.
    one_op : bool
        One op makes all gradients: the first of `data`.
    reads : {"inputs", "output", "nothing"}
        What of the forward pass the first op of each chain reads beside the gradient.
    """

    data: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    one_op: bool = False
    reads: str = "inputs"


BROADCAST = ("Shape", "Shape", "BroadcastGradientArgs")
REDUCTION = (
    "Shape",
    "Size",
    "add",
    "mod",
    "Shape",
    "range/start",
    "range/delta",
    "range",
    "Fill/value",
    "Fill",
    "DynamicStitch",
    "Maximum/y",
    "Maximum",
    "floordiv",
)
"""How a reduction's gradient finds the shape to repeat to."""
AVERAGE = (
    "Shape",
    "Shape",
    "Const",
    "Prod",
    "Const",
    "Prod",
    "Maximum/y",
    "Maximum",
    "floordiv",
    "Cast",
)
"""How the gradient of a mean finds what to divide by."""

TENSORFLOW: Mapping[str, GradientRule] = {
    "unary": GradientRule(("{kind}Grad",), reads="output"),
    "view": GradientRule(("Reshape",), helpers=("Shape",), reads="nothing"),
    "transpose": GradientRule(("Transpose",), helpers=("InvertPermutation",), reads="nothing"),
    "conv": GradientRule(("{kind}BackpropInput",), ("{kind}BackpropFilter",), helpers=("ShapeN",)),
    "product": GradientRule(("MatMul",), ("MatMul",)),
    "bias": GradientRule((), ("BiasAddGrad",), reads="nothing"),
    "norm": GradientRule(("{kind}Grad",), helpers=("zeros_like",) * 2, one_op=True),
    "add": GradientRule((), (), reads="nothing"),
    "broadcast": GradientRule(
        ("Sum", "Reshape"), ("Sum", "Reshape"), helpers=BROADCAST, reads="nothing"
    ),
    "scale": GradientRule(("Mul", "Reshape"), helpers=BROADCAST, reads="nothing"),
    "multiply": GradientRule(("Mul",), ("Mul",)),
    "multiply_broadcast": GradientRule(
        ("Mul", "Sum", "Reshape"), ("Mul", "Sum", "Reshape"), helpers=BROADCAST
    ),
    "squared_difference": GradientRule(
        ("Mul", "Sub", "Mul", "Sum", "Reshape"), helpers=("scalar", *BROADCAST)
    ),
    "mean": GradientRule(
        ("Reshape", "Tile", "truediv"), helpers=REDUCTION + AVERAGE, reads="nothing"
    ),
    "concat": GradientRule(
        ("Slice",), helpers=("Rank", "mod", "ShapeN", "ConcatOffset"), reads="nothing"
    ),
    "split": GradientRule(("ConcatV2",), helpers=("split_dim",), reads="nothing"),
    "max_pool": GradientRule(("MaxPoolGrad",), reads="inputs"),
    "mean_pool": GradientRule(("AvgPoolGrad",), helpers=("Shape",), reads="nothing"),
    "softmax": GradientRule(
        ("Mul", "Sum", "Reshape", "Sub", "Mul"), helpers=("Sum/indices",), reads="output"
    ),
    "loss": GradientRule(
        ("PreventGradient", "ExpandDims", "Mul"), helpers=("ExpandDims/dim",), reads="output"
    ),
    "gather": GradientRule(
        weight=("Reshape",),
        helpers=(
            "Shape",
            "Cast",
            "Size",
            "ExpandDims/dim",
            "ExpandDims",
            "strided_slice",
            "concat/axis",
            "concat",
            "Reshape",
        ),
        reads="nothing",
    ),
    "pad": GradientRule(
        ("Slice",),
        helpers=("Rank", "stack", "Slice/begin", "Slice", "Reshape", "Shape"),
        reads="nothing",
    ),
}

ONNX: Mapping[str, GradientRule] = {
    "unary": GradientRule(("{kind}Grad",), reads="output"),
    "view": GradientRule(("ReshapeGradient",), reads="nothing"),
    "transpose": GradientRule(("Transpose",), reads="nothing"),
    "conv": GradientRule(("ConvGrad",), one_op=True),
    "product": GradientRule(("Transpose", "MatMul"), ("Reshape", "Reshape", "Gemm")),
    "gemm": GradientRule(("Gemm",), ("Gemm",)),
    "bias": GradientRule(("Identity",), ("ReduceSum",), reads="nothing"),
    "norm": GradientRule(("{kind}Grad",), one_op=True),
    "add": GradientRule(("Identity",), ("Identity",), reads="nothing"),
    "broadcast": GradientRule(("Identity",), ("ReduceSum",), reads="nothing"),
    "scale": GradientRule(("Div", "Identity"), reads="nothing"),
    "gather": GradientRule(weight=("GatherGrad",), helpers=("Shape",), reads="nothing"),
    "max_pool": GradientRule(("{kind}Grad",)),
    "mean_pool": GradientRule(("{kind}Grad",)),
    "softmax": GradientRule(("SoftmaxGrad",), reads="output"),
    "loss": GradientRule(("{kind}Grad",), reads="output"),
}

FIXED = frozenset(
    {
        "Size",
        "range/start",
        "range/delta",
        "Fill/value",
        "Maximum/y",
        "Const",
        "scalar",
        "split_dim",
        "Rank",
        "ExpandDims/dim",
        "Sum/indices",
        "concat/axis",
        "stack",
        "Slice/begin",
    }
)
"""Helpers that read nothing: constants."""

OF_FORWARD = frozenset({"Shape", "ShapeN", "zeros_like"})
"""Helpers that look at the forward op's output; the others read the two helpers before them."""

SHAPED = frozenset({"Reshape", "Tile", "Sum", "truediv", "Slice"})
"""Kinds of gradient ops that are told a shape by the last helper."""

NO_TIME = frozenset({"Reshape", "Identity", "ReshapeGradient", "ExpandDims", "PreventGradient"})
"""Kinds of gradient ops that only look at their input in another way."""


def rule_of(dialect: Dialect, rule: str) -> GradientRule | None:
    """The rule of an op, or None where no gradient passes.

    Examples
    --------
    >>> rule_of(Dialect("tensorflow"), "conv").weight
    ('{kind}BackpropFilter',)
    """
    if rule == "none":
        return None
    return (TENSORFLOW if dialect.framework == "tensorflow" else ONNX)[rule]
