"""Shapes of all tensors of an ONNX graph whose inputs have shapes, and what of it is constant.

One pass over the nodes. The package onnx infers the outputs of a node from the shapes of its inputs
and from the values of the small ones (`shape_values`). A node is constant where all of its
inputs are, or where it writes the shape of a tensor of static shape. An If whose condition is
constant becomes the branch that is taken.

Exporters write `x.reshape(x.shape[0], -1, 12, 64)` as a chain of Shape, Gather, Unsqueeze, Concat
and Reshape. Once the inputs have sizes the chain is constant, and the package onnx' own reference
evaluator computes it. Nothing of more than `SMALL` elements is computed: it is a weight, or a mask.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isfinite, prod
from typing import Any

import numpy as np

from placegap.instances.costing.onnx_flops import BLOCK_PRODUCT, Shape
from placegap.instances.costing.weight_formats import stored_bytes

SUB_BYTE_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}

# Types of weights that are no numbers to compute with; those of positions are wider.
QUANTIZED = frozenset({*SUB_BYTE_BITS, "INT8", "UINT8", "FLOAT8E4M3FN", "FLOAT8E5M2"})

SHAPE_OPS = frozenset({"Shape", "Size"})

POSITIONS = SHAPE_OPS | {"Range"}  # ops that write positions and sizes, which are in no file
LONGEST_SHAPE = 8  # numbers of a shape, as Reshape and Expand read it
LONGEST_REASON = 120  # characters of what inference says


@dataclass(frozen=True)
class Value:
    """A tensor: its shape, its size in bytes, and its element type as ONNX names it."""

    shape: Shape
    bytes: int
    element_type: str


@dataclass
class Tensors:
    """What is known of the tensors of a graph, by name."""

    values: dict[str, Value] = field(default_factory=dict)  # tensors of known shape
    types: dict[str, Any] = field(default_factory=dict)  # types of all tensors that have one
    #: Values of constants that may decide a shape.
    small: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    #: Constants that no stored data is in, made anew in each pass: shapes, masks of positions.
    temporary: set[str] = field(default_factory=set)
    #: What a constant was computed from, and its bytes.
    made_from: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Constants of few bits, and those computed from such: weights are unpacked where they are
    #: read, and count as large as what they were computed from.
    quantized: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)  # why a shape is not known

    def learn(self, name: str, stated: Any) -> None:
        """Note the type of a tensor, and its size where it follows from the type."""
        self.types[name] = stated
        shape = static_shape(stated)
        if shape is None:
            return
        try:
            self.values[name] = _value(name, shape, stated.tensor_type.elem_type)
        except ValueError as error:
            self.reasons[name] = str(error)

    def _is_plain(self, name: str) -> bool:
        """Whether a constant is one number, or as short as a shape is."""
        value = self.values.get(name)
        most = 1 if value is None or value.element_type != "INT64" else LONGEST_SHAPE
        return value is not None and prod(value.shape) <= most

    def fold(self, node: Any) -> None:
        """Note that what a node writes is constant."""
        reads, writes = (list(filter(None, names)) for names in (node.input, node.output))
        self.constants.update(writes)
        if node.op_type in POSITIONS or not self.temporary.isdisjoint(reads):
            others = [name for name in reads if name not in self.temporary]
            if node.op_type in SHAPE_OPS or all(map(self._is_plain, others)):
                self.temporary.update(writes)
        sources = [
            self.made_from.get(name) or {name: self.values[name].bytes}
            for name in reads
            if name in self.values
        ]
        made_from = {name: size for source in sources for name, size in source.items()}
        self.made_from.update(dict.fromkeys(writes, made_from))
        if not self.quantized.isdisjoint(reads):
            self.quantized.update(writes)
            for name in self.values.keys() & set(writes):
                size = min(self.values[name].bytes, sum(made_from.values()))
                self.values[name] = replace(self.values[name], bytes=size)


def infer_tensors(
    model: Any, sizes: Mapping[str, int], stored: Mapping[str, Fraction] | None = None
) -> tuple[Tensors, list[Any], int]:
    """Walk the graph: what is known of its tensors, the nodes that are left, the number folded."""
    # Every input has a static shape, or is an initializer. `sizes` are those of the symbols that
    # stated shapes name; `stored` has the bits per weight of initializers stored in another type.
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    stated = {value.name: value.type for value in (*model.graph.value_info, *model.graph.output)}
    tensors = Tensors()
    if model.graph.sparse_initializer:
        raise ValueError("sparse initializers are not supported; store them as dense tensors")
    for value in model.graph.input:
        tensors.learn(value.name, value.type)
    _learn_weights(model.graph.initializer, tensors)
    for name, bits in (stored or {}).items():
        value = tensors.values[name]
        tensors.values[name] = replace(value, bytes=stored_bytes(prod(value.shape), bits))
        tensors.quantized.add(name)
    written = tensors.constants | {value.name for value in model.graph.input}
    left: list[Any] = []
    num_nodes = 0
    for node in _without_branches(model.graph.node, tensors, written):
        num_nodes += 1
        _check(node, written)
        reads = [name for name in node.input if name]
        # the shape of a tensor of static shape is a constant, and so is all that follows from it
        is_shape = node.op_type in SHAPE_OPS and all(name in tensors.values for name in reads)
        constant = is_shape or all(name in tensors.constants for name in reads)
        _infer(node, tensors, opsets)
        for name in filter(None, node.output):
            if name not in tensors.values and name in stated:
                tensors.learn(name, with_sizes(stated[name], sizes))
        if not constant:
            left.append(node)
            continue
        tensors.fold(node)
        if is_shape and reads:
            tensors.small[node.output[0]] = shape_values(node, tensors.values[reads[0]].shape)
        elif all(name in tensors.small for name in reads):
            counts = [_num_elements(tensors, name) for name in node.output if name]
            found = evaluate_node(node, tensors.small, counts, opsets)
            _learn_small(found, tensors)
    return tensors, left, num_nodes - len(left)


def node_label(node: Any) -> str:
    """``node 'conv1' (Conv)``; a node without a name goes by its first output."""
    name = node.name or next((value for value in node.output if value), "")
    return f"node {name!r} ({node.op_type})"


def static_shape(stated: Any) -> Shape | None:
    """The shape of a type, None where a dimension is open."""
    tensor = stated.tensor_type
    if not stated.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def with_sizes(stated: Any, sizes: Mapping[str, int]) -> Any:
    """A copy of a type in which the symbols have their sizes."""
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
        if len(dims) > 1 and tensors.values[name].element_type in QUANTIZED:
            tensors.quantized.add(name)
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
    if (node.domain, node.op_type) == BLOCK_PRODUCT and node.input[0] in tensors.values:
        stated = type(tensors.types[node.input[0]])()
        stated.CopyFrom(tensors.types[node.input[0]])
        columns = next((each.i for each in node.attribute if each.name == "N"), 1)
        stated.tensor_type.shape.dim[-1].dim_value = columns
        tensors.learn(node.output[0], stated)
        return
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
        else:  # its function's body defines it
            found = _infer_alone(node, types, data, imports)
    except onnx.defs.SchemaError:
        reason = reason or f"{node.op_type} is not an op of the ONNX standard"
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
        if name not in tensors.values:  # its shape depends on values
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


SMALL = 1024  # elements of a tensor whose value may matter for a shape

# Ops that chains of shapes consist of; each writes no more than its inferred shape says.
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

# Likewise; their outputs have shapes that depend on the inputs' values, and a bounded size.
SHRINKING = frozenset({"Compress", "NonZero", "Unique"})
NUMBERS = "biuf"  # kinds of NumPy's types that are computed with


def evaluate_node(
    node: Any,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    num_elements: Sequence[int | None],
    opsets: Mapping[str, int],
) -> dict[str, np.ndarray[Any, Any]]:
    """What a node of shape arithmetic writes, by name; empty where that is not to be computed."""
    # `num_elements` are those of its outputs, None where unknown; `opsets` has versions by domain.
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
    """What Shape or Size writes for an input of the given shape."""
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
