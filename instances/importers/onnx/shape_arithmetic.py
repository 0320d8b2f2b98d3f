"""Values of the small tensors that an ONNX graph computes shapes with.

Exporters write `x.reshape(x.shape[0], -1, 12, 64)` as a chain of Shape, Gather, Unsqueeze, Concat
and Reshape. Once the inputs have sizes the chain is constant, and the package onnx' own reference
evaluator computes it. Nothing of more than `SMALL` elements is computed: it is a weight, or a mask.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

SMALL = 1024
"""Elements of a tensor whose value may matter for a shape."""

ARITHMETIC = frozenset(
    {
        "Abs",
        "Add",
        "And",
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "CumSum",
        "Div",
        "Equal",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Reshape",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Sign",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    }
)
"""Ops that chains of shapes consist of; each writes no more than its inferred shape says."""

SHRINKING = frozenset({"Compress", "NonZero", "Unique"})
"""Likewise; their outputs have shapes that only their inputs' values tell, and a bounded size."""

NUMBERS = "biuf"
"""Kinds of NumPy's types that are computed with."""


def evaluate_node(
    node: Any,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    num_elements: Sequence[int | None],
    opsets: Mapping[str, int],
) -> dict[str, np.ndarray[Any, Any]]:
    """What a node of shape arithmetic writes, by name; empty where that is not to be computed.

    Parameters
    ----------
    node : NodeProto
    inputs : mapping of str to ndarray
        Values of all its inputs.
    num_elements : sequence of int or None
        Elements of its outputs, None where they are not known.
    opsets : mapping of str to int
        Versions of the sets of ops, by domain.

    Examples
    --------
    >>> from onnx import helper
    >>> node = helper.make_node("Mul", ["a", "b"], ["c"])
    >>> evaluate_node(node, {"a": np.array([2, 3]), "b": np.array(4)}, [2], {"": 17})
    {'c': array([ 8, 12])}
    """
    if node.domain not in ("", "ai.onnx"):
        return {}
    known = all(count is not None and count <= SMALL for count in num_elements)
    if node.op_type not in SHRINKING and not (known and node.op_type in ARITHMETIC):
        return {}
    if node.op_type == "Range" and not _is_short(*(inputs[name] for name in node.input)):
        return {}
    try:
        found = _run(node, inputs, opsets)
    except Exception:  # wrong inputs: the op stays, and what follows says which shape is missing
        return {}
    return {
        name: np.asarray(value)
        for name, value in zip(filter(None, node.output), found, strict=True)
        if isinstance(value, np.ndarray | np.generic)
        and value.size <= SMALL
        and value.dtype.kind in NUMBERS
    }


def shape_values(node: Any, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """What Shape or Size writes for an input of the given shape.

    Examples
    --------
    >>> from onnx import helper
    >>> shape_values(helper.make_node("Shape", ["x"], ["y"], start=-2), (4, 6, 8)).tolist()
    [6, 8]
    """
    if node.op_type == "Size":
        return np.array(prod(shape), np.int64)
    limits = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], np.int64)


def _is_short(start: Any, limit: Any, delta: Any) -> bool:
    """Whether a Range has at most `SMALL` elements; inference may overflow."""
    if not start.size == limit.size == delta.size == 1 or not delta.item():
        return False
    steps = (float(limit.item()) - float(start.item())) / float(delta.item())
    return isfinite(steps) and steps <= SMALL


def _run(
    node: Any, inputs: Mapping[str, np.ndarray[Any, Any]], opsets: Mapping[str, int]
) -> list[Any]:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    reads = list(dict.fromkeys(name for name in node.input if name))
    empty = helper.make_empty_tensor_value_info
    writes = [name for name in node.output if name]
    graph = helper.make_graph(
        [node], "one", [empty(name) for name in reads], [empty(name) for name in writes]
    )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        evaluator = ReferenceEvaluator(graph, opsets=dict(opsets))
        return list(evaluator.run(None, {name: inputs[name] for name in reads}))
