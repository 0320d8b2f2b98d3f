"""Names of other people's files as a terminal, a table or a picture may show them."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str) -> str:
    """A text on one line, with escapes in place of what is not seen or moves what is."""
    # So are ends of lines, control characters (with which a name could erase what stands beside
    # it), signs that turn the direction of writing, and spaces of no width.
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def json_text(content: Any, indent: int | None = None) -> str:
    r"""JSON that can be read as it stands, with escapes in place of what `printable` escapes."""
    lines = json.dumps(content, indent=indent, ensure_ascii=False).split("\n")
    return "\n".join(
        line
        if line.isprintable()
        else "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in line)
        for line in lines
    )
