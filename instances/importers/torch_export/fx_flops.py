"""FLOPs of the nodes of an FX graph: torch's own registry, and rules for what it leaves out.

A multiply-add counts as two. Matrix products, convolutions and attention are counted; elementwise
ops, reductions and moves count nothing, for their bytes decide how long they take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any

from placegap.instances.torch_models.fx_nodes import kind_of_node, sizes_of, tensors_in

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

READS_WHAT_IT_WRITES = frozenset({"embedding", "index", "index_select", "gather"})
"""Ops that read of their table only as much as they write."""

MOVES = READS_WHAT_IT_WRITES | {"cat", "stack", "constant_pad_nd", "clone", "_to_copy"}
"""Ops that may read a matrix of weights, and compute nothing."""


def count_node_flops(node: Any) -> int | None:
    """FLOPs of a node; None where there is no rule for it.

    Raises
    ------
    ValueError
        If a size depends on data.
    """
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
    rule = _registry().get(getattr(node.target, "overloadpacket", None))
    if rule is None:
        return None
    args, kwargs = (_with_values(part) for part in (node.args, node.kwargs))
    return int(rule(*args, **kwargs, out_val=node.meta["val"]))


def attention_flops(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> int:
    """FLOPs of attention without a causal mask's saving, as torch's registry counts it.

    Parameters
    ----------
    query, key, value : tuple of int
        Shapes (..., heads, tokens, size of a head); fewer heads of key and value are shared.

    Examples
    --------
    12 heads of 64 on 1024 tokens: 2 products of 2 x 1024 x 1024 x 64 in each head.

    >>> attention_flops((1, 12, 1024, 64), (1, 12, 1024, 64), (1, 12, 1024, 64)) == 12 * 2 * 2**27
    True
    """
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


def _with_values(part: Any) -> Any:
    """Arguments with tensors in place of nodes."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: leaf.meta["val"] if hasattr(leaf, "meta") else leaf, part)


@cache
def _registry() -> Mapping[Any, Callable[..., int]]:
    from torch.utils.flop_counter import flop_registry

    registry: Mapping[Any, Callable[..., int]] = flop_registry
    return registry
