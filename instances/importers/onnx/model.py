"""ONNX models: from an ``.onnx`` file to a graph with FLOPs and bytes, ready for costing.

What becomes what:

- Constant folding. A node all of whose inputs are constant (initializers, Constant nodes, shapes of
  tensors of static shape) is folded: its outputs are parameters of the ops that read them.
- An op is a node that is left; its kind is the ONNX op type. An edge is one value that it hands to
  another op; edges that carry one value share a tensor. The graph's inputs are no ops.
- ``parameter_bytes``: the constants that the op reads. A constant that several ops read counts in
  each of them, as each may sit on another device.
- ``state_bytes``, ``shared_state``: of these constants, those that no other op reads, and the rest
  by their names; stated where there are such.
- ``resident_bytes``: parameters + outputs: everything stays, no buffer is used twice. A view
  (Reshape, Flatten, Identity, ...) adds no output of its own.
- ``flops``, ``bytes_moved``: see `onnx.flops`; bytes moved are inputs + parameters + outputs.
- ``splittable_axes``, ``axis_sizes``: see `onnx.axes`.

Weights are not read: files with external data need no data beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from placegap.instances.files.document import Document
from placegap.instances.importers.onnx.axes import count_axes
from placegap.instances.importers.onnx.flops import (
    READS_WHAT_IT_WRITES,
    VIEWS,
    Node,
    Shape,
    count_flops,
)
from placegap.instances.importers.onnx.model_file import load_onnx
from placegap.instances.problem.instance import Graph
from placegap.instances.reading.errors import InputError, from_validation_error

SMALL = 1024
"""Initializers of more elements are kept out of shape inference: they are weights, not shapes."""

ASSUMED_DIMS = "assumed_dims"
"""Parameter of the provenance that names the sizes nobody stated, as "N=1, M=1"."""

UNNAMED_BATCH = "batch"
"""What an open first dimension without a name is called."""

SUB_BYTE_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}


@dataclass(frozen=True)
class Value:
    """A tensor of the model: its shape, and its size in bytes."""

    shape: Shape
    bytes: int


def read_onnx(path: str | Path, dims: Mapping[str, int] | None = None) -> Document:
    """Read an ONNX model as a document without a cluster.

    Parameters
    ----------
    path : str or Path
    dims : mapping of str to int, optional
        Sizes of symbolic dimensions of the inputs. A first dimension that is not known is the
        batch, and is set to 1 unless given here ("batch" if it has no name); another unknown
        dimension is an error.

    Raises
    ------
    InputError
        If the onnx package is missing, the file is not a model, a shape cannot be inferred, or the
        model has control flow (If, Loop, Scan); one line that names the file and the node.
    """
    path = Path(path)
    model = _inlined(load_onnx(path), path)
    constants = {tensor.name for tensor in model.graph.initializer}
    try:
        changes, assumed = _fix_inputs(model, constants, dims or {})
        values = _infer_values(model)
        nodes, num_folded = _fold(model, constants, values)
        raw = _describe(nodes, constants, values, {value.name for value in model.graph.output})
    except ValueError as error:
        raise InputError(str(error), path) from None
    raw["name"] = path.stem
    raw["provenance"] = {
        "source": f"ONNX model {path.name}",
        "changes": (
            "weights dropped, their sizes kept",
            f"{num_folded} nodes of constant inputs folded into parameters",
            *changes,
        ),
        "parameters": {ASSUMED_DIMS: ", ".join(assumed)} if assumed else {},
    }
    try:
        return Document(name=path.stem, graph=Graph.model_validate(raw))
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None


def _inlined(model: Any, path: Path) -> Any:
    """The model without functions of its own."""
    if model.functions:
        from onnx import inliner

        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # the native code raises what it likes
            raise InputError(f"its local functions cannot be inlined: {error}", path) from None
    return model


def _fix_inputs(
    model: Any, constants: set[str], dims: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Give every input a static shape; the changes that this made, and the sizes nobody stated."""
    data = [value for value in model.graph.input if value.name not in constants]
    for value in data:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"input {value.name!r}: is not a tensor of known rank")
    axes = [
        (value.name, axis, dim)
        for value in data
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    sizes = {dim.dim_param: 1 for _, axis, dim in axes if axis == 0}
    open_dims = [dim.dim_param for _, _, dim in axes if not dim.HasField("dim_value")]
    assumed = {symbol: 1 for symbol in sizes if symbol in open_dims}
    for symbol, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"dims: {symbol!r} must be a positive integer (got {size!r})")
        if symbol == UNNAMED_BATCH and symbol not in open_dims and "" in sizes:
            symbol = ""
        if symbol not in open_dims:
            known = ", ".join(dict.fromkeys(name or UNNAMED_BATCH for name in open_dims)) or "none"
            raise ValueError(f"dims: no input leaves a dimension {symbol!r} open, only: {known}")
        sizes[symbol] = size
        assumed.pop(symbol, None)
    changes = []
    for name, axis, dim in axes:
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise ValueError(f"input {name!r}: dimension {axis} is {dim.dim_value}")
            continue
        symbol = dim.dim_param
        if axis > 0 and (not symbol or symbol not in sizes):
            mend = f"state it (--dim {symbol}=SIZE) or " if symbol else ""
            raise ValueError(
                f"input {name!r}: dimension {axis} ({symbol or 'unnamed'}) is not known;"
                f" {mend}export the model with a fixed size"
            )
        dim.dim_value = sizes[symbol]
        changes.append(f"dimension {axis} of input {name} set to {dim.dim_value}")
    # Shapes that the file states further on may name the symbols; they are inferred afresh.
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return changes, [f"{symbol or UNNAMED_BATCH}={size}" for symbol, size in assumed.items()]


def _infer_values(model: Any) -> dict[str, Value]:
    """Every tensor whose shape is known, by name."""
    import onnx

    values = {}
    stated = {value.name for value in model.graph.input}
    small = []
    for tensor in model.graph.initializer:
        values[tensor.name] = _value(tensor.name, tuple(tensor.dims), tensor.data_type)
        if prod(tensor.dims) <= SMALL:
            small.append(tensor)
        elif tensor.name not in stated:
            model.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    del model.graph.initializer[:]
    model.graph.initializer.extend(small)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # the native code raises what it likes
        raise ValueError(f"shapes cannot be inferred: {error}") from None
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        shape = _static_shape(value)
        if shape is not None and value.name not in values:
            values[value.name] = _value(value.name, shape, value.type.tensor_type.elem_type)
    return values


def _static_shape(value: Any) -> Shape | None:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def _value(name: str, shape: Shape, data_type: int) -> Value:
    import onnx

    if any(size < 0 for size in shape):
        raise ValueError(f"tensor {name!r}: has a negative dimension")
    try:
        label = onnx.TensorProto.DataType.Name(data_type)
        if label in ("UNDEFINED", "STRING"):
            raise ValueError
        bits = SUB_BYTE_BITS.get(label)
        if bits is None:
            bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"tensor {name!r}: has no element type of fixed size") from None
    return Value(shape, -(-prod(shape) * bits // 8))


def _fold(model: Any, constants: set[str], values: Mapping[str, Value]) -> tuple[list[Any], int]:
    """The nodes that are left, and how many were folded; adds what these write to `constants`."""
    import onnx

    if model.graph.sparse_initializer:
        raise ValueError("sparse initializers are not supported; store them as dense tensors")
    written = constants | {value.name for value in model.graph.input}
    left = []
    for node in model.graph.node:
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
               for a in node.attribute):  # fmt: skip
            raise ValueError(
                f"{_label(node)}: control flow has no static graph; export the model without it"
            )
        reads = [name for name in node.input if name]
        for name in reads:
            if name not in written:
                raise ValueError(f"{_label(node)}: no earlier node writes its input {name!r}")
        writes = [name for name in node.output if name]
        for name in writes:
            if name in written:
                raise ValueError(f"{_label(node)}: its output {name!r} is written twice")
        written.update(writes)
        # the shape of a tensor of static shape is a constant, and so is all that follows from it
        known_shape = node.op_type in ("Shape", "Size") and all(name in values for name in reads)
        if known_shape or all(name in constants for name in reads):
            constants.update(writes)
        else:
            left.append(node)
    return left, len(model.graph.node) - len(left)


def _describe(
    nodes: list[Any], constants: set[str], values: Mapping[str, Value], results: set[str]
) -> dict[str, Any]:
    """Ops and edges as the fields of a `Graph`."""
    if not nodes:
        raise ValueError("no node is left after folding constants; the model computes nothing")
    used = results.union(*(node.input for node in nodes))
    readers = Counter(name for node in nodes for name in dict.fromkeys(node.input))
    tied = {name for name in constants if readers[name] > 1}
    producer: dict[str, str] = {}
    names: set[str] = set()
    ops, edges = [], []
    for node in nodes:
        name = _unique(node.name or node.output[0] or node.op_type, names)
        writes = [value for value in node.output if value in used] or [node.output[0]]
        ops.append(
            {"name": name, "kind": node.op_type, **_sizes(node, writes, constants, values, tied)}
        )
        for value in dict.fromkeys(node.input):
            if value in producer:
                edges.append(
                    {
                        "producer": producer[value],
                        "consumer": name,
                        "bytes": values[value].bytes,
                        "tensor": value,
                    }
                )
        producer.update(dict.fromkeys((value for value in node.output if value), name))
    return {"ops": ops, "edges": edges}


def _sizes(
    node: Any, writes: list[str], constants: set[str], values: Mapping[str, Value], tied: set[str]
) -> dict[str, Any]:
    """FLOPs, bytes and axes of one op; `tied` are the constants that several ops read."""
    import onnx

    reads = {name: _known(node, name, values).bytes for name in node.input if name}
    parameter_bytes = sum(size for name, size in reads.items() if name in constants)
    shared = {name: size for name, size in reads.items() if name in tied and size}
    output_bytes = sum(_known(node, name, values).bytes for name in writes)
    if node.op_type in READS_WHAT_IT_WRITES:
        reads[node.input[0]] = min(reads[node.input[0]], output_bytes)
    view = node.op_type in VIEWS
    shapes = {name: values[name].shape for name in (*reads, *node.output) if name in values}
    try:
        shaped = Node(
            node.op_type,
            [shapes.get(name) for name in node.input],
            [shapes.get(name) for name in node.output],
            {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        )
        flops = count_flops(shaped)
        axes = count_axes(shaped, len(node.input) > 1 and node.input[1] in constants)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{_label(node)}: {error}") from None
    return {
        "flops": flops,
        "bytes_moved": 0 if view else sum(reads.values()) + output_bytes,
        "parameter_bytes": parameter_bytes,
        **({"state_bytes": parameter_bytes - sum(shared.values())} if shared else {}),
        "shared_state": shared,
        "resident_bytes": parameter_bytes + (0 if view else output_bytes),
        "splittable_axes": tuple(axes),
        "axis_sizes": axes,
    }


def _known(node: Any, name: str, values: Mapping[str, Value]) -> Value:
    if name not in values:
        raise ValueError(
            f"{_label(node)}: the shape of {name!r} cannot be inferred; export the model with"
            " fixed input sizes and standard ops"
        )
    return values[name]


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}#{number}"
    taken.add(candidate)
    return candidate


def _label(node: Any) -> str:
    """``node 'conv1' (Conv)``; a node without a name goes by its first output."""
    name = node.name or next((value for value in node.output if value), "")
    return f"node {name!r} ({node.op_type})"
