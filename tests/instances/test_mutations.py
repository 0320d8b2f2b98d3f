"""Damaged inputs end in an instance or in one line: no traceback, no ten seconds, no gigabytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from doubles import mutations

QUICK = 100
SLOW = 20
"""Inputs of importers that take a second each."""
MANY = 2000


NAMES = [
    pytest.param(name, marks=pytest.mark.torch) if importer.needs_torch else name
    for name, importer in mutations.IMPORTERS.items()
]


@pytest.mark.parametrize("importer", NAMES)
def test_a_hundred_damaged_inputs_are_read_or_refused_in_one_line(
    importer: str, tmp_path: Path
) -> None:
    slow = mutations.IMPORTERS[importer].needs_torch
    assert failures(importer, 0, SLOW if slow else QUICK, tmp_path) == ""


@pytest.mark.deep
@pytest.mark.parametrize("importer", NAMES)
def test_two_thousand_damaged_inputs_are_read_or_refused_in_one_line(
    importer: str, tmp_path: Path
) -> None:
    assert failures(importer, QUICK, MANY, tmp_path) == ""


TESTS = Path(__file__).parents[1]


def failures(importer: str, first: int, count: int, folder: Path) -> str:
    """What a child prints that reads these inputs, and at which it died."""
    if importer in ("onnx", "onnx-dim"):
        pytest.importorskip("onnx", reason="needs the onnx extra")
    if importer == "moirai":
        pytest.importorskip("openpyxl", reason="needs the xls extra")
    command = [
        sys.executable,
        "-m",
        "doubles.mutations",
        importer,
        str(first),
        str(count),
        str(folder),
    ]
    child = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS)
    if child.returncode:
        at = (folder / "progress").read_text() if (folder / "progress").exists() else "the start"
        return f"{child.stdout}\ndied with {child.returncode} at {at}: {child.stderr[-2000:]}"
    return child.stdout
