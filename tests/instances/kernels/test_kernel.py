"""Kernels that say that they make no arrays: what keeps them from doing harm."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.errors import NumbaError

import placegap.instances
import placegap.solvers
from placegap.instances import Makespan, example
from placegap.instances.corpus.generate import generate
from placegap.instances.files.document import Document
from placegap.instances.kernels import compiled_kernels
from placegap.instances.kernels import kernel as kernels_module
from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.compiled_kernels import fingerprint
from placegap.instances.kernels.kernel import Kernel, kernel
from placegap.solvers import run_method

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
    "import numpy as np; from placegap.instances.kernels.kernel import sizes_of;"
    " sizes_of.dispatcher(np.array([0, 2, 5])); print(sizes_of(np.array([0, 2, 5])).tolist())"
)
USE_TWICE = f"{USE}; import subprocess, sys; subprocess.run([sys.executable, '-c', {USE!r}])"
"""In a process, and in one that it starts."""


def output_of(program: str, tmp_path: Path, **settings: str) -> tuple[str, list[str]]:
    """What a program prints, and its lines on stderr; where it finds no folder but the temporary
    one.
    """
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir(exist_ok=True)
    usual = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    env = {
        **usual,
        "XDG_CACHE_HOME": str(tmp_path / "file" / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        **settings,
    }
    done = subprocess.run(
        [sys.executable, "-u", "-c", program], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr.splitlines()


def entries_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.kernel"))


def test_without_any_other_folder_kernels_are_kept_in_a_temporary_one(tmp_path: Path) -> None:
    out, lines = output_of(USE_TWICE, tmp_path)
    assert out == "[2, 3]\n" * 2
    folder = tmp_path / "tmp" / f"placegap-{os.getuid()}"
    (line,) = lines  # the second process says nothing
    assert line == (
        f"placegap: the user's cache {tmp_path}/file/cache/placegap cannot be written, and so"
        f" compiled kernels are kept in {folder}/placegap-kernels; set NUMBA_CACHE_DIR to a folder"
        " that can"
    )
    assert len(entries_in(folder)) == 1
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_stated_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    stated = str(tmp_path / "file" / "kernels")
    out, (line,) = output_of(USE_TWICE, tmp_path, NUMBA_CACHE_DIR=stated)
    assert out == "[2, 3]\n" * 2
    assert line.startswith(f"placegap: the folder NUMBA_CACHE_DIR={stated} cannot be written")


def test_with_no_folder_at_all_every_process_compiles(tmp_path: Path) -> None:
    no_folder = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'file' / 'tmp')!r}; "
    out, (line,) = output_of(no_folder + USE_TWICE, tmp_path)
    assert out == "[2, 3]\n" * 2
    assert "and so every process compiles its kernels anew; set NUMBA_CACHE_DIR" in line


def test_a_temporary_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    """What is in it would be run."""
    theirs = tmp_path / "tmp" / f"placegap-{os.getuid()}"
    make = f"import os; os.mkdir({str(theirs)!r}); os.chmod({str(theirs)!r}, 0o777); "
    out, (line,) = output_of(make + USE, tmp_path)
    assert out == "[2, 3]\n"
    assert f"{theirs}/" not in line
    assert list(theirs.iterdir()) == []


def test_the_users_cache_is_enough_and_a_broken_entry_is_compiled_anew(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert output_of(USE, tmp_path, XDG_CACHE_HOME=cache) == ("[2, 3]\n", [])
    (entry,) = entries_in(Path(cache))
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    assert output_of(USE, tmp_path, XDG_CACHE_HOME=cache) == ("[2, 3]\n", [])
    assert entries_in(Path(cache)) == [entry]
    assert entry.stat().st_size > len(whole) // 2


def double(x: int) -> int:
    return 2 * x


def calls(other: Kernel) -> FunctionType:
    def outer(x: int) -> int:
        return other(x)  # type: ignore[no-any-return]

    return outer


def test_kernels_that_check_bounds_are_kept_apart_from_those_that_do_not(tmp_path: Path) -> None:
    # five numbers of an array of three, which lie in one of ten
    program = (
        "import numpy as np; from placegap.instances.kernels.kernel import copy_to;"
        " copy_to.dispatcher(np.zeros(5), np.ones(10)[:3])"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for checks in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**env, "NUMBA_BOUNDSCHECK": checks},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("IndexError: index is out of bounds" in done.stderr) == (checks == "1"), done.stderr
    assert len(list(tmp_path.rglob("*.kernel"))) == 2


def test_an_entry_is_of_what_a_kernel_and_those_that_it_calls_do() -> None:
    doubled = {}
    exec("def double(x: int) -> int:\n    'It doubles.'\n    return 2 * x", doubled)
    tripled = {}
    exec("def double(x: int) -> int:\n    return 3 * x", tripled)
    same, other = calls(kernel(doubled["double"])), calls(kernel(tripled["double"]))
    assert fingerprint(calls(kernel(double))) == fingerprint(same)
    assert fingerprint(same) != fingerprint(other)


class Before(NamedTuple):
    first: int
    second: int


def test_an_entry_is_of_the_fields_of_the_named_tuples_that_a_kernel_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)

    def first(pair: Before) -> int:
        return pair.first

    assert kernel(first)(Before(1, 2)) == 1
    swapped = namedtuple("Before", ["second", "first"])  # of the same name, in the same module
    swapped.__qualname__ = "Before"
    assert kernel(first)(swapped(1, 2)) == 2
    assert kernel(first)(Before(1, 2)) == 1
    assert len(entries_in(tmp_path)) == 2


COMPILE = """
import sys
from pathlib import Path
import numpy as np
from placegap.instances.kernels import compiled_kernels
from placegap.instances.kernels.kernel import sizes_of
compiled_kernels.cache_folder = lambda: Path(sys.argv[1])
done = []
compiled_kernels.Dispatcher._keep = (
    lambda *given, keep=compiled_kernels.Dispatcher._keep: (done.append(1), keep(*given))
)
sizes_of.dispatcher(np.array([0, 2]))
print(len(done))
"""


def test_no_two_processes_compile_the_same_kernel(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPILE, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate()[0] for process in both) == ["0\n", "1\n"]
    assert [entry.suffix for entry in tmp_path.iterdir()] == [".kernel"]


def test_a_lock_of_a_process_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path;"
        " from placegap.instances.kernels.compiled_kernels import _alone\n"
        "with _alone(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    entry = tmp_path / "a.kernel"
    command = [sys.executable, "-c", hold, str(entry)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    assert entry.with_suffix(".lock").exists()
    with compiled_kernels._alone(entry):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
def test_a_command_says_once_where_its_kernels_are(tmp_path: Path) -> None:
    """Its workers do not say it again."""
    stated = str(tmp_path / "file" / "kernels")
    command = ["place", "zfnet512", "--cluster", "celeritas-4xV100-pcie", "--method", "ideal-dp"]
    program = f"from placegap.experiments.cli import main; assert main({command}) == 0"
    _, lines = output_of(program, tmp_path, NUMBA_CACHE_DIR=stated)
    assert sum("NUMBA_CACHE_DIR" in line for line in lines) == 1


@pytest.mark.parametrize("method", ["heft", "etf", "dsc-glb", "celeritas", "d-dps", "m-topo"])
def test_a_heuristic_makes_the_same_plan_compiled_and_as_plain_python(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = generate("layered", {"ops": 40, "width": 4}, seed=1)
    instance = Document(name="layered", graph=graph).instance(example().cluster)
    monkeypatch.setattr(kernels_module._settings, "plain", False)
    compiled = run_method(instance, Makespan(), method, {})
    monkeypatch.setattr(Kernel, "__call__", lambda self, *args: self.py_func(*args))
    plain = run_method(instance, Makespan(), method, {})
    assert (plain.plan, plain.value_ns) == (compiled.plan, compiled.value_ns)


def doubled(values: Ints) -> tuple[int, Ints]:
    return values[0] + 1, 2 * values


def test_a_kernel_of_small_arrays_is_not_compiled_and_returns_the_same_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)
    number, values = kernel(bounded=True)(doubled)(np.array([1, 2]))
    assert (type(number), number, values.tolist()) == (int, 2, [2, 4])
    assert entries_in(tmp_path) == []
    kernel(bounded=True)(doubled)(np.ones(kernels_module.SMALL_ENTRIES + 1, np.int64))
    assert len(entries_in(tmp_path)) == 1
    # now that it is kept, small arrays have it as well
    again = kernel(bounded=True)(doubled)
    assert again(np.array([1, 2]))[0] == 2
    assert len(again.dispatcher.overloads) == 1


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

    assert kernel(total)(3) == 3
    with pytest.raises(NumbaError):
        kernel(allocates=False)(total)(3)
