"""Kernels that say that they make no arrays: what keeps them from doing harm."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError

import placegap.instances
import placegap.solvers
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel

FOLDERS = [Path(str(where.__file__)).parent for where in (placegap.instances, placegap.solvers)]


def kernels() -> Iterator[tuple[Path, ast.FunctionDef, str]]:
    """Every kernel of the package: its file, its function and how it is decorated."""
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "kernel" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    for decorator in node.decorator_list:
                        if re.match(r"kernel\b", ast.unparse(decorator)):
                            yield path, node, ast.unparse(decorator)


def returns_numbers(node: ast.FunctionDef) -> bool:
    said = "" if node.returns is None else ast.unparse(node.returns)
    return bool(said) and set(re.findall(r"\w+", said)) <= {"tuple", "int", "float", "bool", "None"}


USE = (
    "import numpy as np; from placegap.instances.problem.kernels import sizes_of;"
    " print(sizes_of(np.array([0, 2, 5])).tolist())"
)
USE_TWICE = f"{USE}; import subprocess, sys; subprocess.run([sys.executable, '-c', {USE!r}])"
"""In a process, and in one that it starts."""

NOT_BESIDE_THE_CODE = "UserProvidedCacheLocator,UserWideCacheLocator"
"""numba's ways to a folder but the one to the package's: root may write there, whatever it says."""


def output_of(program: str, tmp_path: Path, **settings: str) -> tuple[str, list[str]]:
    """What a program prints, and its lines on stderr; where it finds no folder but the temporary
    one.
    """
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    usual = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    env = {
        **usual,
        "NUMBA_CACHE_LOCATOR_CLASSES": NOT_BESIDE_THE_CODE,
        "XDG_CACHE_HOME": str(tmp_path / "file" / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        **settings,
    }
    done = subprocess.run(
        [sys.executable, "-u", "-c", program], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr.splitlines()


def test_without_any_other_folder_kernels_are_kept_in_a_temporary_one(tmp_path: Path) -> None:
    out, lines = output_of(USE_TWICE, tmp_path)
    assert out == "[2, 3]\n" * 2
    folder = tmp_path / "tmp" / f"placegap-kernels-{os.getuid()}"
    (line,) = lines  # the second process says nothing
    assert line == (
        "placegap: placegap's own folder and the user's cache cannot be written, and so compiled"
        f" kernels are kept in {folder}; set NUMBA_CACHE_DIR to a folder that can"
    )
    assert len(list(folder.rglob("*.nbi"))) == 1
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_stated_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    stated = str(tmp_path / "file" / "kernels")
    out, (line,) = output_of(USE_TWICE, tmp_path, NUMBA_CACHE_DIR=stated)
    assert out == "[2, 3]\n" * 2
    assert line.startswith(f"placegap: the folder NUMBA_CACHE_DIR={stated} cannot be written")


def test_the_users_cache_is_enough(tmp_path: Path) -> None:
    out, lines = output_of(USE, tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (out, lines) == ("[2, 3]\n", [])
    assert len(list((tmp_path / "cache").rglob("*.nbi"))) == 1


def test_with_no_folder_at_all_every_process_compiles(tmp_path: Path) -> None:
    no_folder = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'file' / 'tmp')!r}; "
    out, (line,) = output_of(no_folder + USE_TWICE, tmp_path)
    assert out == "[2, 3]\n" * 2
    assert "and so every process compiles its kernels anew; set NUMBA_CACHE_DIR" in line


def test_a_temporary_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    """What is in it would be run."""
    theirs = tmp_path / "tmp" / f"placegap-kernels-{os.getuid()}"
    make = f"import os; os.mkdir({str(theirs)!r}); os.chmod({str(theirs)!r}, 0o777); "
    out, (line,) = output_of(make + USE, tmp_path)
    assert out == "[2, 3]\n"
    assert f"{theirs};" not in line
    assert list(theirs.iterdir()) == []


@pytest.mark.deep
def test_a_command_says_once_where_its_kernels_are(tmp_path: Path) -> None:
    """Its workers do not say it again."""
    stated = str(tmp_path / "file" / "kernels")
    command = ["place", "zfnet512", "--cluster", "celeritas-4xV100-pcie", "--method", "ideal-dp"]
    program = f"from placegap.experiments.cli import main; assert main({command}) == 0"
    _, lines = output_of(program, tmp_path, NUMBA_CACHE_DIR=stated)
    assert sum("NUMBA_CACHE_DIR" in line for line in lines) == 1


def test_what_counts_no_references_returns_numbers_and_calls_nothing_that_returns_arrays() -> None:
    found = list(kernels())
    arrays = {(path, node.name) for path, node, _ in found if not returns_numbers(node)}
    looked = 0
    for path, node, decorator in found:
        if "allocates=False" in decorator:
            looked += 1
            assert returns_numbers(node), f"{path}: {node.name}"
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    assert (path, call.func.id) not in arrays, f"{path}: {node.name}"
    assert looked > 100


def test_nor_does_it_call_methods_of_arrays() -> None:
    # `max` of an array makes one of no dimension; it compiles only if another kernel came first
    for path, node, decorator in kernels():
        if "allocates=False" in decorator:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    assert ast.unparse(call.func.value) in ("np", "rng"), f"{path}: {node.name}"


def test_a_kernel_that_says_so_and_makes_an_array_does_not_compile() -> None:
    def total(count: int) -> int:
        made: Ints = np.ones(count, np.int64)
        return int(made.sum())

    assert kernel(cache=False)(total)(3) == 3
    with pytest.raises(NumbaError):
        kernel(allocates=False, cache=False)(total)(3)
