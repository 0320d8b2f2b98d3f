"""What a node of an FX graph is: a view, a copy that changes nothing, a tensor of some bytes.

Nodes are those of ATen programs (`torch.export`, AOT): targets are `OpOverload`s, and `meta["val"]`
holds a tensor without data. Torch is imported when a graph is read, never before.

FLOPs come from torch's own registry, and from rules for what it leaves out. A multiply-add counts
as two. Matrix products, convolutions and attention are counted; elementwise ops, reductions and
moves count nothing, for their bytes decide how long they take.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

from placegap.instances.problem import MatrixProduct

UNSTATED_VIEWS = frozenset({"aten::_unsafe_view"})  # views whose schema does not say so
# Copies, which are none where strides and number type stay as they are.
COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::lift_fresh_copy"})

# Ops that write one number everywhere, or none; of a tensor they read the shape alone.
FILLS = frozenset(
    {"empty", "empty_permuted", "empty_strided", "fill", "full", "ones", "scalar_tensor"}
    | {"zero", "zeros"}
)

# Ops that only check something.
CHECKS = frozenset(
    {
        "aten::_assert_tensor_metadata",
        "aten::_assert_async",
        "aten::_assert_scalar",
        "aten::sym_constrain_range",
        "aten::sym_constrain_range_for_size",
    }
)


def kind_of_node(node: Any) -> str:
    """Schema name of what a node calls, without its namespace where that is ATen: "addmm"."""
    name = schema_name(node)
    return name.removeprefix("aten::")


def schema_name(node: Any) -> str:
    """Schema name of what a node calls ("aten::addmm"), or the name of the Python function."""
    schema = getattr(node.target, "_schema", None)
    return str(schema.name) if schema is not None else str(getattr(node.target, "__name__", ""))


def is_getitem(node: Any) -> bool:
    """Whether a node takes one part of what another returns."""
    return node.target is operator.getitem


def is_check(node: Any) -> bool:
    """Whether a node only checks something, and computes nothing."""
    return schema_name(node) in CHECKS


def is_view(node: Any) -> bool:
    """Whether the result shares the memory of the first input, or is an unchanged copy."""
    # The schema says which results alias an input and are not written to.
    name = schema_name(node)
    if name in UNSTATED_VIEWS:
        return True
    if name in COPIES:
        source, result = tensors_in(node.args[0]), tensors_in(node)
        return len(source) == len(result) == 1 and _layout(source[0]) == _layout(result[0])
    schema = getattr(node.target, "_schema", None)
    returns = () if schema is None else schema.returns
    aliases = [entry.alias_info for entry in returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def is_fill(node: Any) -> bool:
    """Whether a node makes a tensor of one number, or of none: zeros, empty_like, new_full."""
    kind = kind_of_node(node).removeprefix("new_").removesuffix("_like")
    return kind in FILLS and len(node.all_input_nodes) < 2  # another tensor is the number


def is_drawn(node: Any) -> bool:
    """Whether a node draws random numbers, so that what it returns is no constant."""
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def tensors_in(node: Any) -> list[Any]:
    """The tensors that a node returns, in order; none for numbers."""
    import torch

    value = node.meta.get("val") if hasattr(node, "meta") else None
    parts = value if isinstance(value, tuple | list) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def num_tensors_before(node: Any, at: int) -> int:
    """How many of the first elements of a tuple are tensors; an unused gradient is None."""
    import torch

    return sum(isinstance(part, torch.Tensor) for part in node.meta["val"][:at])


def bytes_of(tensor: Any) -> int:
    """Size of a tensor without gaps, in bytes."""
    elements = 1
    for size in sizes_of(tensor):
        elements *= size
    return elements * int(tensor.dtype.itemsize)


def sizes_of(tensor: Any) -> tuple[int, ...]:
    """The sizes of a tensor as plain integers; ValueError if one depends on data."""
    sizes = []
    for size in tensor.shape:
        if not isinstance(size, int):
            size = getattr(size.node, "maybe_as_int", lambda: None)()
        if size is None:
            raise ValueError("has a size that depends on data; placegap needs fixed sizes")
        sizes.append(int(size))
    return tuple(sizes)


def bytes_without_repeats(tensor: Any) -> int:
    """Size of a tensor in bytes, of what an expanded axis repeats once."""
    axes = zip(sizes_of(tensor), tensor.stride(), strict=True)
    return prod(size for size, stride in axes if stride) * int(tensor.dtype.itemsize)


def dtype_name(tensors: Sequence[Any]) -> str | None:
    """Number type of the first floating tensor, as "float16"; None for float32 or no tensor."""
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            name = number_type(tensor)
            return None if name == "float32" else name
    return None


def number_type(tensor: Any) -> str:
    """The number type of a tensor as torch names it: "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")


def _layout(tensor: Any) -> tuple[Any, ...]:
    # strides of axes of size 1 mean nothing
    strides = [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    return tensor.dtype, tuple(tensor.shape), tuple(strides)


ATTENTION = frozenset(
    {
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_attention_math",
    }
)
ATTENTION_BACKWARD = frozenset(
    {
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_fused_attention_overrideable_backward",
    }
)
GROUPED = frozenset({"_grouped_mm", "transformers::grouped_mm_fallback"})
GROUPED_BACKWARD = frozenset({"transformers::grouped_mm_fallback_backward"})

# Matrix products and convolutions, and which of their inputs are multiplied.
FACTORS = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm", "convolution"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm"), (1, 2)),
}

# Ops that read of their table only as much as they write.
READS_WHAT_IT_WRITES = frozenset({"embedding", "index", "index_select", "gather"})
# Ops that may read a matrix of weights, and compute nothing.
MOVES = READS_WHAT_IT_WRITES | {"cat", "stack", "constant_pad_nd", "clone", "_to_copy"}


def count_node_flops(node: Any) -> int | None:
    """FLOPs of a node; None where there is no rule for it."""
    kind = kind_of_node(node)
    if kind in ATTENTION:
        return attention_flops(*(sizes_of(_tensor(node.args[at])) for at in range(3)))
    if kind in ATTENTION_BACKWARD:
        # the products of the forward pass once more for the scores, and two for each of them
        return 5 * attention_flops(*(sizes_of(_tensor(node.args[at])) for at in (1, 2, 3))) // 2
    if kind in GROUPED:
        return _grouped_flops(sizes_of(_tensor(node.args[0])), sizes_of(_tensor(node.args[1])))
    if kind in GROUPED_BACKWARD:  # the gradients of the tokens and of the matrices
        return 2 * _grouped_flops(sizes_of(_tensor(node.args[0])), sizes_of(_tensor(node.args[1])))
    if kind == "linalg_solve_triangular":
        return prod(sizes_of(tensors_in(node)[0])) * sizes_of(_tensor(node.args[0]))[-1]
    rule = _registry().get(getattr(node.target, "overloadpacket", None))
    if rule is None:
        return None
    from torch.utils._pytree import tree_map

    args, kwargs = tree_map(
        lambda leaf: leaf.meta["val"] if hasattr(leaf, "meta") else leaf, (node.args, node.kwargs)
    )
    return int(rule(*args, **kwargs, out_val=node.meta["val"]))


def kernel_of_node(node: Any, is_weight: Callable[[Any], bool]) -> MatrixProduct | None:
    """The matrix product that a node computes; that of a weight and activations is turned."""
    kind = kind_of_node(node)
    if kind not in FACTORS:
        return None
    factors = [node.args[at] for at in FACTORS[kind]]
    tensors = [_tensor(factor) for factor in factors]
    left, right = map(sizes_of, tensors)
    types = {number_type(tensor) for tensor in tensors}
    if kind == "convolution":  # the filters are (outputs, inputs of a group), or the other way
        is_transposed, groups = node.args[6], node.args[8]
        sites = left if is_transposed else sizes_of(tensors_in(node)[0])
        m, batch = sites[0] * prod(sites[2:]), groups
        n, k = right[0] // groups, prod(right[1:])
        n, k = (k, n) if is_transposed else (n, k)
    else:
        m, n, k, batch = left[-2], right[-1], left[-1], prod(left[:-2])
        if is_weight(factors[0]) and not is_weight(factors[1]):
            m, n = n, m
        elif batch > 1 and tensors[1].stride()[0] == 0:  # one matrix for all
            m, batch = m * batch, 1
    if len(types) > 1 or not all((m, n, k, batch)):
        return None
    return MatrixProduct(m=m, n=n, k=k, batch=batch, dtype=types.pop())


def attention_flops(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> int:
    """FLOPs of attention without a causal mask's saving, as torch's registry counts it."""
    # Shapes are (..., heads, tokens, size of a head); fewer heads of key and value are shared.
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def reads_matrix_unknown(node: Any, weights: list[Any]) -> bool:
    """Whether a node without a rule reads weights otherwise than element by element."""
    if kind_of_node(node) in MOVES:
        return False
    results = tensors_in(node)
    if not results:
        return False
    out = sizes_of(results[0])
    return any(len(w.shape) > 1 and not _spreads(sizes_of(w), out) for w in weights)


def _spreads(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether a tensor is broadcast to a shape."""
    pairs = zip(reversed(shape), reversed(out), strict=False)
    return len(shape) <= len(out) and all(size in (1, wide) for size, wide in pairs)


def _grouped_flops(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Every token is multiplied by the matrix of one group."""
    if len(left) == 2 and len(right) == 3:  # (tokens, k) and (groups, k, n)
        return 2 * left[0] * left[1] * right[2]
    if len(left) == 2 and len(right) == 2:  # (m, tokens) and (tokens, n): gradients of weights
        return 2 * left[0] * left[1] * right[1]
    return 2 * prod(left) * right[-1]


def _tensor(node: Any) -> Any:
    return tensors_in(node)[0]


@cache
def _registry() -> Mapping[Any, Callable[..., int]]:
    from torch.utils.flop_counter import flop_registry

    registry: Mapping[Any, Callable[..., int]] = flop_registry
    return registry
