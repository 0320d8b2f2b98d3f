"""Keys and values that attention ops hold for the tokens of earlier steps."""

from __future__ import annotations

from typing import Any

from placegap.instances.torch_models.fx_nodes import (
    ATTENTION,
    bytes_of,
    is_view,
    kind_of_node,
    tensors_in,
)
from placegap.instances.torch_models.fx_reader import FxProgram

REPEATS = frozenset({"expand", "clone", "repeat", "repeat_interleave", "index_select"})
"""Ops that hand the heads of keys and values to several heads of queries."""


def add_kv_cache(program: FxProgram, graph: Any, tokens: int) -> int:
    """Add the cache of so many tokens to the state of every attention op; how many have one.

    Heads that are repeated for several heads of queries are held once.
    """
    ops = {op["name"]: op for op in program.ops}
    found = 0
    for node in graph.nodes:
        if node.op != "call_function" or kind_of_node(node) not in ATTENTION:
            continue
        op = ops.get(program.op_of.get(node.name, ""))
        if op is None:
            continue
        key, value = node.args[1], node.args[2]
        per_token = sum(
            _least_bytes(each) // tensors_in(each)[0].shape[-2] for each in (key, value)
        )
        op["state_bytes"] += per_token * tokens
        op["resident_bytes"] += per_token * tokens
        found += 1
    return found


def _least_bytes(node: Any) -> int:
    """Bytes of keys or values before their heads were repeated."""
    least = bytes_of(tensors_in(node)[0])
    while node.op == "call_function" and (is_view(node) or kind_of_node(node) in REPEATS):
        sources = node.all_input_nodes
        if len(sources) != 1 or len(tensors_in(sources[0])) != 1:
            break
        node = sources[0]
        if kind_of_node(node) in {"slice", "select", "split_with_sizes"}:
            break
        size = bytes_of(tensors_in(node)[0])
        if size > least:  # a slice of a larger tensor: the cache holds the slice
            break
        least = size
    return least
