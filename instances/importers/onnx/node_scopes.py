"""The module of the source program that an ONNX node came from."""

from __future__ import annotations

import ast
from typing import Any

NAME_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of torch's exporter: a list as text, of module paths and, last, of the node's name."""

LONGEST = 10_000
"""Characters of it; a path has some hundred."""


def module_of(node: Any) -> str | None:
    """Path of the innermost module ("encoder.layer.0.attention"), None where none is noted.

    Parameters
    ----------
    node : NodeProto

    Notes
    -----
    The text is parsed as a literal and never run; another text counts as none.

    Examples
    --------
    >>> from onnx import helper
    >>> node = helper.make_node("MatMul", ["a", "b"], ["c"])
    >>> entry = node.metadata_props.add()
    >>> entry.key, entry.value = NAME_SCOPES, "['', 'layer.0', 'layer.0.dense', 'linear_3']"
    >>> module_of(node)
    'layer.0.dense'
    """
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
