"""Kernels that say that they make no arrays: what keeps them from doing harm."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError

import placegap.instances
import placegap.solvers
from placegap.instances.problem.graph_index import Ints
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
