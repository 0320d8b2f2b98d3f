"""Damaged inputs end in an instance or in one line: no traceback, no ten seconds, no gigabytes."""

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from doubles import mutations

QUICK = 8
SLOW = 8
"""Inputs of importers that take a second each."""
MANY = 2000

NEEDS = {"onnx": ("onnx", "onnx"), "moirai": ("openpyxl", "xls")}
"""The package that an importer cannot do without, and its extra."""

TORCH = [name for name, importer in mutations.IMPORTERS.items() if importer.needs_torch]
LIGHT = [name for name in mutations.IMPORTERS if name not in TORCH]
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What was wrong with the first inputs of all importers but those that need torch."""
    return failures(LIGHT, 0, QUICK, tmp_path_factory.mktemp("damaged"))


@pytest.mark.parametrize("importer", LIGHT)
def test_damaged_inputs_are_read_or_refused_in_one_line(
    importer: str, quick: Mapping[str, str]
) -> None:
    needs_its_package(importer)
    assert quick[importer] == ""


@pytest.mark.torch
@pytest.mark.parametrize("importer", TORCH)
def test_damaged_inputs_of_torch_are_read_or_refused_in_one_line(
    importer: str, tmp_path: Path
) -> None:
    assert failures([importer], 0, SLOW, tmp_path) == {importer: ""}


@pytest.mark.deep
@pytest.mark.parametrize(
    "importer", [*LIGHT, *(pytest.param(name, marks=pytest.mark.torch) for name in TORCH)]
)
def test_two_thousand_damaged_inputs_are_read_or_refused_in_one_line(
    importer: str, tmp_path: Path
) -> None:
    needs_its_package(importer)
    assert failures([importer], QUICK, MANY, tmp_path) == {importer: ""}


def needs_its_package(importer: str) -> None:
    package, extra = NEEDS.get(importer, (None, ""))
    if package is not None:
        pytest.importorskip(package, reason=f"needs the {extra} extra")


def failures(importers: list[str], first: int, count: int, folder: Path) -> dict[str, str]:
    """What the child of each importer says that reads these inputs, and at which it died."""
    there = [name for name in importers if name not in NEEDS or find_spec(NEEDS[name][0])]
    command = [sys.executable, "-m", "doubles.mutations", str(first), str(count), str(folder)]
    subprocess.run([*command, *there], check=True, cwd=TESTS)
    found = {}
    for name in there:
        said = (folder / name / mutations.SAID).read_text()
        ended = (folder / name / mutations.ENDED).read_text()
        progress = folder / name / "progress"
        at = progress.read_text() if progress.exists() else "the start"
        found[name] = said if ended == "0" else f"{said[-2000:]}\ndied with {ended} at {at}"
    return found
