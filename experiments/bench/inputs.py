"""Published inputs for benchmarks, where they are at hand and something installed reads them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def workbooks(inputs: Path, pattern: str = "*.xls") -> list[Path]:
    """Moirai's workbooks; none, and a line that says why, where their reader is not installed."""
    found = sorted((inputs / "moirai").glob(pattern))
    if found and find_spec("xlrd") is None:
        print(f"left out, needs xlrd, pip install 'placegap[xls]': {', '.join(map(str, found))}")
        return []
    return found
