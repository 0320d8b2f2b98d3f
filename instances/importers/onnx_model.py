"""ONNX models: from an ``.onnx`` file to a graph with FLOPs and bytes, ready for costing.

What becomes what:

- Constant folding (`onnx_shapes`). A node all of whose inputs are constant (initializers, Constant
  nodes, shapes of tensors of static shape) is folded: its outputs are parameters of the ops that
  read them. A node that no output of the graph depends on is dropped.
- An op is a node that is left; its kind is the ONNX op type. An edge is one value that it hands to
  another op; edges that carry one value share a tensor. The graph's inputs are no ops.
- ``module``: the path that torch's exporter notes; see `module_of`. ``dtype``: what the op's
  first tensor of numbers holds, where that is not float32.
- ``parameter_bytes``: the constants that the op reads. A constant that several ops read counts in
  each of them, as each may sit on another device.
- ``state_bytes``, ``shared_state``: of these constants, those that no other op reads, and the rest
  by their names; stated where there are such.
- ``workspace_bytes``: the constants that are computed from shapes alone (a mask of positions): they
  are made anew in each pass, and are no state.
- ``resident_bytes``: parameters + outputs: everything stays, no buffer is used twice. A view
  (Reshape, Flatten, Identity, ...) adds no output of its own.
- ``flops``, ``bytes_moved``: see `onnx_flops`; bytes moved are inputs + parameters + outputs, and
  none of a view.
- ``kernel``: of matrix products and convolutions, where weights are stored in their type.
- ``splittable_axes``, ``axis_sizes``: see `count_axes`.

Weights are not read: files with external data need no data beside them.
"""

from __future__ import annotations

import ast
import mmap
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from placegap.instances.costing.onnx_flops import (
    FACTORS,
    PRODUCT_AT,
    READS_WHAT_IT_WRITES,
    VIEWS,
    Node,
    Shape,
    count_flops,
    has_rule,
    product_sizes,
)
from placegap.instances.costing.weight_formats import Weights
from placegap.instances.files.document import Document
from placegap.instances.importers.onnx_shapes import Tensors, Value, infer_tensors, node_label
from placegap.instances.problem import ASSUMED_DIMS, WITHOUT_RULE, Graph, MatrixProduct
from placegap.instances.reading.errors import InputError, MissingExtra, as_input_error
from placegap.instances.reading.input_files import MAX_ONNX_BYTES, MAX_ONNX_NODES, check_regular

UNNAMED_BATCH = "batch"  # what an open first dimension without a name is called
OPEN_SIZE = -1  # the value of a dimension that some exporters write where it is open

# Number types that devices compute in at a rate of their own, by ONNX' names; others are None.
DTYPES = {
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "DOUBLE": "float64",
    "INT8": "int8",
    "UINT8": "int8",
    "FLOAT8E4M3FN": "float8",
    "FLOAT8E5M2": "float8",
}

INTEGERS = frozenset({"INT8", "UINT8"})  # types of factors that are multiplied as they are stored
NUMBERS = (1, 10, 11, 16)  # ONNX' float, float16, double and bfloat16


def load_onnx(
    path: str | Path, dims: Mapping[str, int] | None = None, weights: Weights | None = None
) -> Document:
    """An ONNX model as a document without a cluster."""
    # `dims` has sizes of open dimensions of the inputs, by name, or as "INPUT.AXIS" ("x.0"). A
    # first dimension that is not known is the batch, and is set to 1 unless given here; "batch"
    # means all of them where none is called so. Another unknown dimension is an error. `weights`
    # says how initializers of numbers are stored; None: in their type.
    path = Path(path)
    model = inlined_model(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    try:
        changes, assumed, sizes = _fix_inputs(model, constants, dims or {})
        tensors, nodes, num_folded = infer_tensors(model, sizes, _stored(model, weights))
        alive = _alive(nodes, {value.name for value in model.graph.output})
        raw = _describe(alive, tensors, {value.name for value in model.graph.output})
    except ValueError as error:
        raise InputError(str(error), path) from None
    raw["name"] = path.stem
    raw["provenance"] = {
        "source": f"ONNX model {path.name}",
        "changes": (
            "weights dropped, their sizes kept",
            f"{num_folded} nodes of constant inputs folded into parameters",
            *_dropped(len(nodes) - len(alive)),
            *changes,
        ),
        "parameters": _open_questions(assumed, alive),
    }
    with as_input_error(raw, path):
        return Document(name=path.stem, graph=Graph.model_validate(raw))


def _stored(model: Any, weights: Weights | None) -> dict[str, Fraction]:
    """Bits per weight of the initializers of numbers; what Gather reads is an embedding."""
    if weights is None:
        return {}
    tables = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    found = {
        tensor.name: weights.bits_of(
            tensor.name, len(tensor.dims), "embedding" if tensor.name in tables else "matrix"
        )
        for tensor in model.graph.initializer
        if tensor.data_type in NUMBERS
    }
    return {name: bits for name, bits in found.items() if bits is not None}


def inlined_model(path: Path) -> Any:
    """The model message of a file, with the nodes of its own functions where those are called."""
    model = _model_message(path)
    if model.functions:
        from onnx import inliner

        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # the native code raises what it likes
            raise InputError(f"its local functions cannot be inlined: {error}", path) from None
    return model


def _fix_inputs(
    model: Any, constants: set[str], dims: Mapping[str, int]
) -> tuple[list[str], list[str], dict[str, int]]:
    """Give every input a static shape."""
    # What this changed, the sizes that are not stated, and the sizes of all symbols.
    data = [value for value in model.graph.input if value.name not in constants]
    for value in data:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"input {value.name!r}: is not a tensor of known rank")
    axes = [
        (value.name, axis, dim)
        for value in data
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    for name, axis, dim in axes:
        if dim.HasField("dim_value") and dim.dim_value < 0:
            if dim.dim_value != OPEN_SIZE:
                raise ValueError(f"input {name!r}: dimension {axis} is {dim.dim_value}")
            dim.ClearField("dim_value")
    left = [entry for entry in axes if not entry[2].HasField("dim_value")]
    names = {(name, axis): dim.dim_param or f"{name}.{axis}" for name, axis, dim in left}
    batch = dict.fromkeys([key for (_, axis), key in names.items() if axis == 0], 1)
    stated = _stated_sizes(names, batch, dims)
    missing = dict.fromkeys(key for key in names.values() if key not in stated | batch)
    if missing:
        raise ValueError(_ask_for(list(missing), names))
    assumed, changes = dict[str, int](), []
    for name, axis, dim in left:
        key, is_named = names[name, axis], bool(dim.dim_param)
        dim.dim_value = stated.get(key, 1)  # which takes the place of the name
        changes.append(f"dimension {axis} of input {name} set to {dim.dim_value}")
        if key not in stated:
            is_batch = not is_named and UNNAMED_BATCH not in names.values()
            assumed[UNNAMED_BATCH if is_batch else key] = 1
    return changes, [f"{key}={size}" for key, size in assumed.items()], {**batch, **stated}


def _stated_sizes(
    names: Mapping[tuple[str, int], str], batch: Mapping[str, int], dims: Mapping[str, int]
) -> dict[str, int]:
    """The sizes that are stated, by the names of the dimensions."""
    # A dimension goes by its name, or by its input and axis; "batch" gives way to both.
    keys = {f"{name}.{axis}": key for (name, axis), key in names.items()}
    keys |= {key: key for key in names.values()}
    sizes: dict[str, int] = {}
    for stated, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"dims: {stated!r} must be a positive integer (got {size!r})")
        if stated in keys:
            if sizes.setdefault(keys[stated], size) != size:
                raise ValueError(f"dims: {stated!r} is {size} and {sizes[keys[stated]]}; state one")
        elif stated != UNNAMED_BATCH or not batch:
            known = ", ".join(dict.fromkeys(names.values())) or "none"
            raise ValueError(f"dims: no input leaves a dimension {stated!r} open, only: {known}")
    if UNNAMED_BATCH in dims and UNNAMED_BATCH not in keys:
        return {**dict.fromkeys(batch, dims[UNNAMED_BATCH]), **sizes}
    return sizes


def _ask_for(missing: Sequence[str], names: Mapping[tuple[str, int], str]) -> str:
    """One sentence that asks for the sizes of all open dimensions."""
    first = {key: at for at, key in reversed(list(names.items()))}
    options = " ".join(f"--dim {key}=SIZE" for key in missing)
    if len(missing) == 1:
        name, axis = first[missing[0]]
        return (
            f"input {name!r}: dimension {axis} ({missing[0]}) is not known; state it ({options}) or"
            " export the model with a fixed size"
        )
    places = ", ".join(f"{key} (axis {first[key][1]} of {first[key][0]!r})" for key in missing)
    return (
        f"{len(missing)} dimensions are not known; state them ({options}) or export the model with"
        f" fixed sizes: {places}"
    )


def _alive(nodes: list[Any], results: set[str]) -> list[Any]:
    """The nodes that an output of the graph depends on."""
    wanted, alive = set(results), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            alive.append(node)
    return alive[::-1]


def _dropped(number: int) -> tuple[str, ...]:
    return (f"{number} nodes dropped that no output depends on",) if number else ()


def _open_questions(assumed: list[str], nodes: list[Any]) -> dict[str, str]:
    """What the file does not say, as parameters of the provenance."""
    kinds = Counter(
        node.op_type for node in nodes if not has_rule(Node(node.op_type, [], [], {}, node.domain))
    )
    counts = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    found = {ASSUMED_DIMS: ", ".join(assumed), WITHOUT_RULE: counts}
    return {name: text for name, text in found.items() if text}


def _describe(nodes: list[Any], tensors: Tensors, results: set[str]) -> dict[str, Any]:
    """Ops and edges as the fields of a `Graph`."""
    if not nodes:
        raise ValueError("no node is left after folding constants; the model computes nothing")
    used = results.union(*(node.input for node in nodes))
    readers = Counter(name for node in nodes for name in dict.fromkeys(node.input))
    tied = {name for name in tensors.constants - tensors.temporary if readers[name] > 1}
    producer: dict[str, str] = {}
    names: set[str] = set()
    ops, edges = [], []
    for node in nodes:
        name = _unique(node.name or node.output[0] or node.op_type, names)
        writes = [value for value in node.output if value in used] or [node.output[0]]
        sizes = _sizes(node, writes, tensors, tied)
        ops.append({"name": name, "kind": node.op_type, **sizes})
        for value in dict.fromkeys(node.input):
            if value in producer:
                edges.append(
                    {
                        "producer": producer[value],
                        "consumer": name,
                        "bytes": tensors.values[value].bytes,
                        "tensor": value,
                    }
                )
        producer.update(dict.fromkeys((value for value in node.output if value), name))
    return {"ops": ops, "edges": edges}


def _sizes(node: Any, writes: list[str], tensors: Tensors, tied: set[str]) -> dict[str, Any]:
    """FLOPs, bytes, axes, module and number type of one op; `tied`: constants that several read."""
    import onnx

    reads = {name: _known(node, name, tensors).bytes for name in node.input if name}
    workspace_bytes = sum(size for name, size in reads.items() if name in tensors.temporary)
    held_bytes = sum(size for name, size in reads.items() if name in tensors.constants)
    parameter_bytes = held_bytes - workspace_bytes
    shared = {name: size for name, size in reads.items() if name in tied and size}
    output_bytes = sum(_known(node, name, tensors).bytes for name in writes)
    if node.op_type in READS_WHAT_IT_WRITES:
        reads[node.input[0]] = min(reads[node.input[0]], output_bytes)
    view = node.op_type in VIEWS
    try:
        shaped = Node(
            node.op_type,
            [_shape(tensors, name) for name in node.input],
            [_shape(tensors, name) for name in node.output],
            {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
            node.domain,
        )
        flops = count_flops(shaped)
        kernel = _kernel(node, shaped, tensors)
        axes = count_axes(shaped, len(node.input) > 1 and node.input[1] in tensors.constants)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{node_label(node)}: {error}") from None
    return {
        "flops": flops,
        "bytes_moved": 0 if view else sum(reads.values()) + output_bytes,
        "parameter_bytes": parameter_bytes,
        **({"state_bytes": parameter_bytes - sum(shared.values())} if shared else {}),
        "shared_state": shared,
        "workspace_bytes": workspace_bytes,
        "resident_bytes": parameter_bytes + (0 if view else output_bytes),
        "splittable_axes": tuple(axes),
        "axis_sizes": axes,
        "module": module_of(node),
        "dtype": _dtype(node, tensors),
        "kernel": kernel,
    }


def _kernel(node: Any, shaped: Node, tensors: Tensors) -> MatrixProduct | None:
    """The product that a node is computed as; that of a weight and activations is turned."""
    if node.op_type not in FACTORS or not has_rule(shaped):
        return None
    names = [node.input[at] for at in FACTORS[node.op_type]]
    kinds = {tensors.values[name].element_type for name in names}
    is_packed = not (kinds <= INTEGERS or tensors.quantized.isdisjoint(names))
    types = {"float32" if kind == "FLOAT" else DTYPES.get(kind) for kind in kinds}
    batch, m, n, k = product_sizes(shaped)
    if node.op_type in PRODUCT_AT and [name in tensors.constants for name in names] == [
        True,
        False,
    ]:
        m, n = n, m
    (dtype,) = types if len(types) == 1 else (None,)
    if is_packed or dtype is None or not batch * m * n * k:
        return None
    return MatrixProduct(m=m, n=n, k=k, batch=batch, dtype=dtype)


def _shape(tensors: Tensors, name: str) -> Shape | None:
    return tensors.values[name].shape if name in tensors.values else None


def _dtype(node: Any, tensors: Tensors) -> str | None:
    """The number type of the first input or output that holds floating-point numbers or bytes."""
    for name in (*node.input, *node.output):
        kind = tensors.values[name].element_type if name in tensors.values else ""
        if kind == "FLOAT" or kind in DTYPES:
            return DTYPES.get(kind)
    return None


def _known(node: Any, name: str, tensors: Tensors) -> Value:
    if name not in tensors.values:
        reason = tensors.reasons.get(name)
        raise ValueError(
            f"{node_label(node)}: the shape of {name!r} cannot be inferred"
            f"{f' ({reason})' if reason else ''}; export the model with fixed input sizes and"
            " standard ops"
        )
    return tensors.values[name]


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}#{number}"
    taken.add(candidate)
    return candidate


GRAPH_FIELD = 7  # of the model message
BYTES = 2  # wire type of texts, messages and packed numbers: a length, then as many bytes
FIXED = {1: 8, 5: 4}  # sizes of the wire types of fixed size


def _model_message(path: Path) -> Any:
    """The model message of a file, its weights unread where they lie beside it."""
    try:
        import onnx
    except ImportError:
        why = "ONNX files need an extra: pip install 'placegap[onnx]'"
        raise MissingExtra(why, path) from None
    check_regular(path, MAX_ONNX_BYTES)
    try:
        if path.stat().st_size > MAX_ONNX_NODES.most():  # a node takes a byte and more
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                MAX_ONNX_NODES.check(count_listed(data, MAX_ONNX_NODES.most()), "the graph", path)
        model = onnx.load_model(str(path), format="protobuf", load_external_data=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None
    except Exception as error:  # protobuf's DecodeError, whose module has no types
        raise InputError(f"is not an ONNX model: {error}", path) from None
    if not model.graph.node:
        raise InputError("is not an ONNX model, or a model without nodes", path)
    return model


def count_listed(data: mmap.mmap | bytes, most: int) -> int:
    r"""How many messages the graph of a model message holds; counting ends above `most`."""
    found = 0
    for field, start, end in _fields(data, 0, len(data)):
        if field == GRAPH_FIELD:
            for _ in _fields(data, start, end):
                found += 1
                if found > most:
                    return found
    return found


def _fields(data: mmap.mmap | bytes, at: int, end: int) -> Any:
    """Number, start and end of the fields with a length; stops where the bytes make no sense."""
    while at < end:
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == BYTES:
            size, at = _varint(data, at, end)
            yield key >> 3, at, min(at + size, end)
            at += size
        elif kind == 0:
            _, at = _varint(data, at, end)
        elif kind in FIXED:
            at += FIXED[kind]
        else:
            return


def _varint(data: mmap.mmap | bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, at


CONVOLUTIONS = frozenset({"Conv", "ConvInteger"})

PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger"})


def count_axes(node: Node, has_weights: bool) -> dict[str, int]:
    """Sizes of the batch and of the channels of a convolution or a matrix product."""
    # Axes of one element, and nodes of other types, are left out; so are the channels of grouped
    # convolutions. A batch is what all inputs that are no weights share.
    if len(node.inputs) < 2 or not node.inputs[0] or not node.inputs[1] or not node.outputs[0]:
        return {}
    left, right, out = node.inputs[0], node.inputs[1], node.outputs[0]
    sizes: dict[str, int] = {}
    if node.op_type in CONVOLUTIONS and has_weights:
        sizes["batch"] = out[0]
        if node.attributes.get("group", 1) == 1:
            sizes |= {"out_channel": right[0], "in_channel": right[1]}
    elif node.op_type in PRODUCTS and min(len(left), len(right)) >= 2:
        if has_weights or (len(right) == len(out) > 2 and right[0] == out[0]):
            sizes["batch"] = out[0]
        summed = left[0] if node.op_type == "Gemm" and node.attributes.get("transA") else left[-1]
        sizes |= {"out_channel": out[-1], "in_channel": summed}
    return {axis: size for axis, size in sizes.items() if size > 1}


# Metadata of torch's exporter: a list as text, of module paths and, last, of the node's name.
NAME_SCOPES = "pkg.torch.onnx.name_scopes"
LONGEST = 10_000  # characters of it; a path has some hundred


def module_of(node: Any) -> str | None:
    """Path of the innermost module ("encoder.layer.0.attention"), None where none is noted."""
    # The text is parsed as a literal and never run; another text counts as none.
    text = next((entry.value for entry in node.metadata_props if entry.key == NAME_SCOPES), "")
    if not text or len(text) > LONGEST:
        return None
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        return None
    return next(filter(None, reversed(scopes[:-1])), None)
