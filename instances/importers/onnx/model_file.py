"""Opening ONNX files: nothing is built of one that lists more than the limit."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.instances.reading.input_files import MAX_ONNX_BYTES, MAX_ONNX_NODES, check_regular

GRAPH_FIELD = 7
"""Of the model message."""

BYTES = 2
"""Wire type of texts, messages and packed numbers: a length, then as many bytes."""

FIXED = {1: 8, 5: 4}
"""Sizes of the wire types of fixed size."""


def load_onnx(path: Path) -> Any:
    """The model message of a file, its weights unread where they lie beside it.

    Raises
    ------
    InputError
        If the onnx package is missing, the file is no model, or it is above a limit.
    """
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
    r"""How many messages the graph of a model message holds; counting ends above `most`.

    Examples
    --------
    >>> count_listed(b"\x08\x07" + b"\x3a\x04" + b"\x0a\x00" * 2, 10)  # two empty nodes
    2
    """
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
