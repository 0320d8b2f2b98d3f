"""Kernels that say that they make no arrays: what keeps them from doing harm."""

import ast
import os
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import numpy as np
import pytest
from numba.core import config
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
from placegap.instances.kernels.kernel import SMALL_STEPS, Kernel, kernel
from placegap.instances.kernels.kernel_folder import UNCACHED, cache_folder
from placegap.solvers import run_method

FOLDERS = [Path(str(where.__file__)).parent for where in (placegap.instances, placegap.solvers)]


def kernels() -> list[tuple[Path, ast.FunctionDef, str]]:
    """Every kernel of the package: its file, its function and how it is decorated."""
    paths = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return [
        (path, node, ast.unparse(decorator))
        for path, text in texts.items()
        if "@kernel" in text
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if re.match(r"kernel\b", ast.unparse(decorator))
    ]


def returns_numbers(node: ast.FunctionDef) -> bool:
    said = "" if node.returns is None else ast.unparse(node.returns)
    return bool(said) and set(re.findall(r"\w+", said)) <= {"tuple", "int", "float", "bool", "None"}


def entries_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.kernel"))


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose cache cannot be written, and an empty folder for temporary files."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


def folder_and_lines(capsys: pytest.CaptureFixture[str]) -> tuple[Path | None, list[str]]:
    """Where kernels are kept, and what a process and one that it starts say of that."""
    found = cache_folder.__wrapped__()
    assert cache_folder.__wrapped__() == found
    return found, capsys.readouterr().err.splitlines()


def test_without_any_other_folder_kernels_are_kept_in_a_temporary_one(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = nowhere / "tmp" / f"placegap-{os.getuid()}"
    assert folder_and_lines(capsys) == (
        folder / "placegap-kernels",
        [
            f"placegap: the user's cache {nowhere}/file/cache/placegap cannot be written, and so"
            f" compiled kernels are kept in {folder}/placegap-kernels; set NUMBA_CACHE_DIR to a"
            " folder that can"
        ],
    )
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_stated_folder_that_cannot_be_written_is_named(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = str(nowhere / "file" / "kernels")
    monkeypatch.setenv("NUMBA_CACHE_DIR", stated)
    _, (line,) = folder_and_lines(capsys)
    assert line.startswith(f"placegap: the folder NUMBA_CACHE_DIR={stated} cannot be written")


def test_with_no_folder_at_all_every_process_compiles(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(nowhere / "file" / "tmp"))
    monkeypatch.setenv(UNCACHED, "restored afterwards")
    monkeypatch.delenv(UNCACHED)
    found, (line,) = folder_and_lines(capsys)
    assert found is None
    assert "and so every process compiles its kernels anew; set NUMBA_CACHE_DIR" in line


def test_a_temporary_folder_that_others_may_write_is_not_used(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in it would be run."""
    theirs = nowhere / "tmp" / f"placegap-{os.getuid()}"
    theirs.mkdir()
    theirs.chmod(0o777)
    found, _ = folder_and_lines(capsys)
    assert found is not None
    assert theirs not in found.parents
    assert list(theirs.iterdir()) == []


def test_the_users_cache_is_enough(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "cache"))
    folder = nowhere / "cache" / "placegap" / "placegap-kernels"
    assert folder_and_lines(capsys) == (folder, [])


def double(x: int) -> int:
    return 2 * x


def calls(other: Kernel) -> FunctionType:
    def outer(x: int) -> int:
        return other(x)  # type: ignore[no-any-return]

    return outer


def test_a_broken_entry_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)
    assert kernel(double)(2) == 4
    (entry,) = entries_in(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    assert kernel(double)(2) == 4
    assert entries_in(tmp_path) == [entry]
    assert entry.stat().st_size > len(whole) // 2


def test_kernels_that_check_bounds_are_kept_apart_from_those_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)

    def fourth(values: Ints) -> int:
        return values[3]

    three = np.arange(10)[:3]  # of an array that has a fourth number
    monkeypatch.setattr(config, "BOUNDSCHECK", 0)
    assert kernel(fourth)(three) == 3
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    with pytest.raises(IndexError, match="index is out of bounds"):
        kernel(fourth)(three)
    assert len(entries_in(tmp_path)) == 2


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


@pytest.mark.parametrize("method", ["etf", "dsc-glb", "celeritas", "d-dps", "m-topo"])
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


@pytest.mark.parametrize("steps", [SMALL_STEPS, SMALL_STEPS + 1])
def test_a_kernel_that_counts_its_steps_is_compiled_for_many(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)
    assert kernel(bounded=lambda values: steps)(doubled)(np.array([1, 2]))[0] == 2
    assert len(entries_in(tmp_path)) == (steps > SMALL_STEPS)


def test_what_counts_no_references_returns_numbers_and_calls_nothing_that_returns_arrays() -> None:
    found = kernels()
    arrays = {(path, node.name) for path, node, _ in found if not returns_numbers(node)}
    silent = [(path, node) for path, node, decorator in found if "allocates=False" in decorator]
    assert len(silent) > 100
    for path, node in silent:
        where = f"{path}: {node.name}"
        assert returns_numbers(node), where
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            if isinstance(call.func, ast.Name):
                assert (path, call.func.id) not in arrays, where
            # `max` of an array makes one of no dimension; it compiles only if another kernel came
            # first
            if isinstance(call.func, ast.Attribute):
                assert ast.unparse(call.func.value) in ("np", "rng"), where


def test_a_kernel_that_says_so_and_makes_an_array_does_not_compile() -> None:
    def total(count: int) -> int:
        made: Ints = np.ones(count, np.int64)
        return int(made.sum())

    assert kernel(total)(3) == 3
    with pytest.raises(NumbaError):
        kernel(allocates=False)(total)(3)
