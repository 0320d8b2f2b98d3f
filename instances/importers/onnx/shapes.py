"""Shapes of all tensors of an ONNX graph whose inputs have shapes, and what of it is constant.

One pass over the nodes. The package onnx infers the outputs of a node from the shapes of its inputs
and from the values of the small ones (`shape_arithmetic`). A node is constant where all of its
inputs are, or where it writes the shape of a tensor of static shape. An If whose condition is
constant becomes the branch that is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from placegap.instances.io.onnx_flops import Shape
from placegap.instances.io.onnx_shapes import SMALL, evaluate_node, shape_values

SUB_BYTE_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}

LONGEST_REASON = 120
"""Characters of what inference says."""


@dataclass(frozen=True)
class Value:
    """A tensor: its shape, its size in bytes, and its element type as ONNX names it."""

    shape: Shape
    bytes: int
    element_type: str


@dataclass
class Tensors:
    """What is known of the tensors of a graph, by name.

    Attributes
    ----------
    values : dict of str to Value
        Tensors of known shape.
    types : dict of str to TypeProto
        Types of all tensors that have one.
    small : dict of str to ndarray
        Values of constants that may decide a shape.
    constants : set of str
    reasons : dict of str to str
        Why a shape is not known.
    """

    values: dict[str, Value] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)
    small: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)

    def learn(self, name: str, stated: Any) -> None:
        """Note the type of a tensor, and its size where the type tells it."""
        self.types[name] = stated
        shape = static_shape(stated)
        if shape is None:
            return
        try:
            self.values[name] = _value(name, shape, stated.tensor_type.elem_type)
        except ValueError as error:
            self.reasons[name] = str(error)


def infer_tensors(model: Any, sizes: Mapping[str, int]) -> tuple[Tensors, list[Any], int]:
    """Walk the graph: what is known of its tensors, the nodes that are left, how many were folded.

    Parameters
    ----------
    model : ModelProto
        Every input has a static shape, or is an initializer.
    sizes : mapping of str to int
        Of the symbols that shapes which the file states may name.

    Raises
    ------
    ValueError
        One line, where the graph is no graph, or has control flow.
    """
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    stated = {value.name: value.type for value in (*model.graph.value_info, *model.graph.output)}
    tensors = Tensors()
    if model.graph.sparse_initializer:
        raise ValueError("sparse initializers are not supported; store them as dense tensors")
    for value in model.graph.input:
        tensors.learn(value.name, value.type)
    _learn_weights(model.graph.initializer, tensors)
    written = tensors.constants | {value.name for value in model.graph.input}
    left: list[Any] = []
    num_nodes = 0
    for node in _without_branches(model.graph.node, tensors, written):
        num_nodes += 1
        _check(node, written)
        reads = [name for name in node.input if name]
        # the shape of a tensor of static shape is a constant, and so is all that follows from it
        tells_shape = node.op_type in ("Shape", "Size") and all(
            name in tensors.values for name in reads
        )
        constant = tells_shape or all(name in tensors.constants for name in reads)
        _infer(node, tensors, opsets)
        for name in filter(None, node.output):
            if name not in tensors.values and name in stated:
                tensors.learn(name, with_sizes(stated[name], sizes))
        if not constant:
            left.append(node)
            continue
        tensors.constants.update(filter(None, node.output))
        if tells_shape and reads:
            tensors.small[node.output[0]] = shape_values(node, tensors.values[reads[0]].shape)
        elif all(name in tensors.small for name in reads):
            counts = [_num_elements(tensors, name) for name in node.output if name]
            found = evaluate_node(node, tensors.small, counts, opsets)
            _learn_small(found, tensors)
    return tensors, left, num_nodes - len(left)


def node_label(node: Any) -> str:
    """``node 'conv1' (Conv)``; a node without a name goes by its first output.

    Examples
    --------
    >>> from onnx import helper
    >>> node_label(helper.make_node("Relu", ["x"], ["y"]))
    "node 'y' (Relu)"
    """
    name = node.name or next((value for value in node.output if value), "")
    return f"node {name!r} ({node.op_type})"


def static_shape(stated: Any) -> Shape | None:
    """The shape of a type, None where a dimension is open.

    Examples
    --------
    >>> from onnx import helper
    >>> static_shape(helper.make_tensor_type_proto(1, (2, 3)))
    (2, 3)
    """
    tensor = stated.tensor_type
    if not stated.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def with_sizes(stated: Any, sizes: Mapping[str, int]) -> Any:
    """A copy of a type in which the symbols have their sizes.

    Examples
    --------
    >>> from onnx import helper
    >>> static_shape(with_sizes(helper.make_tensor_type_proto(1, ("N", 3)), {"N": 2}))
    (2, 3)
    """
    changed = type(stated)()
    changed.CopyFrom(stated)
    if changed.HasField("tensor_type"):
        for dim in changed.tensor_type.shape.dim:
            if dim.dim_param in sizes and not dim.HasField("dim_value"):
                dim.dim_value = sizes[dim.dim_param]
    return changed


def _learn_weights(initializers: Any, tensors: Tensors) -> None:
    from onnx import helper, numpy_helper

    for tensor in initializers:
        name, dims = tensor.name, tuple(tensor.dims)
        if any(size < 0 for size in dims):
            raise ValueError(f"tensor {name!r}: has a negative dimension")
        tensors.types[name] = helper.make_tensor_type_proto(tensor.data_type, dims)
        tensors.values[name] = _value(name, dims, tensor.data_type)
        tensors.constants.add(name)
        if prod(dims) <= SMALL and not tensor.external_data:
            try:
                tensors.small[name] = numpy_helper.to_array(tensor)
            except (ValueError, TypeError, KeyError):  # its bytes are not those of its shape
                tensors.reasons[name] = "its value is damaged"


def _without_branches(nodes: Any, tensors: Tensors, written: set[str]) -> Iterator[Any]:
    """The nodes in order, each If of known condition replaced by the branch that is taken."""
    from onnx import helper

    pending = deque(nodes)
    while pending:
        node = pending.popleft()
        condition = tensors.small.get(node.input[0]) if node.op_type == "If" else None
        wanted = "then_branch" if condition is not None and condition.any() else "else_branch"
        branch = next((a.g for a in node.attribute if a.name == wanted), None)
        if condition is None or branch is None or len(branch.output) != len(node.output):
            yield node
            continue
        _learn_weights(branch.initializer, tensors)
        written.update(tensor.name for tensor in branch.initializer)
        ends = [
            helper.make_node("Identity", [inner.name], [outer])
            for inner, outer in zip(branch.output, node.output, strict=True)
            if outer
        ]
        pending.extendleft(reversed([*branch.node, *ends]))


def _check(node: Any, written: set[str]) -> None:
    """Refuse control flow, unwritten inputs and outputs written twice; note what is written."""
    import onnx

    graphs = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    if any(attribute.type in graphs for attribute in node.attribute):
        raise ValueError(
            f"{node_label(node)}: control flow has no static graph; export the model without it"
        )
    for name in filter(None, node.input):
        if name not in written:
            raise ValueError(f"{node_label(node)}: no earlier node writes its input {name!r}")
    for name in filter(None, node.output):
        if name in written:
            raise ValueError(f"{node_label(node)}: its output {name!r} is written twice")
        written.add(name)


def _infer(node: Any, tensors: Tensors, opsets: Mapping[str, int]) -> None:
    """Types of the node's outputs, as far as onnx infers them."""
    import onnx
    from onnx import numpy_helper

    reads = list(dict.fromkeys(name for name in node.input if name))
    domain = "" if node.domain == "ai.onnx" else node.domain
    reason = next((tensors.reasons[name] for name in reads if name in tensors.reasons), "")
    found: Mapping[str, Any] = {}
    try:
        version = opsets.get(domain, opsets.get(node.domain, 1))
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        types = {name: tensors.types[name] for name in reads}
        data = {
            name: numpy_helper.from_array(tensors.small[name], name)
            for name in reads
            if name in tensors.small
        }
        imports = [onnx.helper.make_opsetid(key, value) for key, value in opsets.items()]
        if schema.has_type_and_shape_inference_function:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=imports
            )
        else:  # its function's body tells
            found = _infer_alone(node, types, data, imports)
    except onnx.defs.SchemaError:
        reason = reason or f"{node.op_type} is no op of the ONNX standard"
    except KeyError as missing:
        reason = reason or f"the type of {missing} is not known"
    except Exception as error:  # the native code raises what it likes
        reason = reason or _in_one_line(error)
    for name in filter(None, node.output):
        if name in found:
            tensors.learn(name, found[name])
        if name not in tensors.values:
            tensors.reasons.setdefault(name, reason)


def _infer_alone(node: Any, types: Any, data: Mapping[str, Any], imports: list[Any]) -> Any:
    from onnx import helper, shape_inference

    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_value_info(name, stated) for name, stated in types.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        initializer=list(data.values()),
    )
    inferred = shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=imports), data_prop=True
    )
    return {value.name: value.type for value in inferred.graph.output}


def _learn_small(found: Mapping[str, np.ndarray[Any, Any]], tensors: Tensors) -> None:
    from onnx import helper

    for name, value in found.items():
        tensors.small[name] = value
        if name not in tensors.values:  # its shape is one that only the values tell
            kind = helper.np_dtype_to_tensor_dtype(tensors.small[name].dtype)
            tensors.learn(name, helper.make_tensor_type_proto(kind, tensors.small[name].shape))


def _num_elements(tensors: Tensors, name: str) -> int | None:
    return prod(tensors.values[name].shape) if name in tensors.values else None


def _value(name: str, shape: Shape, data_type: int) -> Value:
    import onnx

    try:
        label: str = onnx.TensorProto.DataType.Name(data_type)
        if label in ("UNDEFINED", "STRING"):
            raise ValueError
        bits = SUB_BYTE_BITS.get(label)
        if bits is None:
            bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"tensor {name!r}: has no element type of fixed size") from None
    return Value(shape, -(-prod(shape) * bits // 8), label)


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).removesuffix(".")
    text = text.removeprefix("[ShapeInferenceError] ").removeprefix("[TypeInferenceError] ")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
