"""What a node of an FX graph is: a view, a copy that changes nothing, a tensor of some bytes.

Nodes are those of ATen programs (`torch.export`, AOT): targets are `OpOverload`s, and `meta["val"]`
holds a tensor without data. Torch is imported when a graph is read, never before.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

UNSTATED_VIEWS = frozenset({"aten::_unsafe_view"})
"""Views whose schema does not say so."""

COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::lift_fresh_copy"})
"""Copies, which are none where strides and number type stay as they are."""

CHECKS = frozenset(
    {
        "aten::_assert_tensor_metadata",
        "aten::_assert_async",
        "aten::_assert_scalar",
        "aten::sym_constrain_range",
        "aten::sym_constrain_range_for_size",
    }
)
"""Ops that only check something."""


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
    """Whether the result shares the memory of the first input, or is a copy that changes nothing.

    The schema says which results alias an input and are not written to.
    """
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
    """How many of the first elements of a tuple are tensors; a gradient nobody asks for is None."""
    import torch

    return sum(isinstance(part, torch.Tensor) for part in node.meta["val"][:at])


def bytes_of(tensor: Any) -> int:
    """Size of a tensor without gaps, in bytes.

    Raises
    ------
    ValueError
        If a size depends on data.
    """
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


def dtype_name(tensors: Sequence[Any]) -> str | None:
    """Number type of the first floating tensor, as "float16"; None for float32 or no tensor."""
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            name = str(tensor.dtype).removeprefix("torch.")
            return None if name == "float32" else name
    return None


def _layout(tensor: Any) -> tuple[Any, ...]:
    # strides of axes of size 1 mean nothing
    strides = [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    return tensor.dtype, tuple(tensor.shape), tuple(strides)
