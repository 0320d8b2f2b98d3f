"""The source of methods from outside of the package: a study repeats their runs after an edit."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from placegap.instances.problem import Objective
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.method import AnyMethod
from placegap.solvers.core.registry import METHODS, OURS

# Folders of what is installed: of such a folder, a method's own package alone counts.
LIBRARIES = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
_sources: dict[Path, bytes] = {}  # of files, as they were when this process first looked


def code_of(method: AnyMethod, objective: Objective) -> str:
    """SHA-256 of the source of a method from outside of the package, else empty."""
    # With what its modules import from their own folder. If the method starts from plans of
    # placers, those from outside of the package count as well. Imports are read from the source,
    # also those inside functions. Data files do not count.
    files = _files_of(method, objective)
    if not files:
        return ""
    return hashlib.sha256(repr(sorted(files.values())).encode()).hexdigest()


def refuse_edited(method: AnyMethod, objective: Objective) -> None:
    """Raise an InputError if a file was edited since this process loaded it: the old code runs."""
    for file in _files_of(method, objective):
        if not file.is_file() or file.read_bytes() != _sources[file]:
            raise InputError("was edited after it was loaded; start the program again", file)


def _files_of(method: AnyMethod, objective: Objective) -> dict[Path, tuple[str, str]]:
    """The files that count, with what goes into the hash: their places and their content."""
    names = {method.name}
    if method.claim == "exact" or "start" in method.params.model_fields:
        names |= {name for name, costs in METHODS.start_costs() if objective in costs}
    files: dict[Path, tuple[str, str]] = {}
    for name in sorted({module for one in names for module in METHODS.modules_of(one)}):
        stated = getattr(sys.modules.get(name), "__file__", None)
        if stated is None:
            continue
        parts, own = name.split("."), Path(stated).absolute()
        root = own.parents[min(len(parts) - (own.stem != "__init__"), len(own.parents) - 1)]
        within = root / parts[0] if root in LIBRARIES else root
        found = [own, *_files(root, parts)]
        while found:
            file = found.pop()
            if file not in files and (file == own or file.is_relative_to(within)):
                source = _sources[file] = _sources.get(file) or file.read_bytes()
                place = file.relative_to(root).as_posix()
                files[file] = (place, hashlib.sha256(source).hexdigest())
                found += _imports(source, file, root)
    return files


def _imports(source: bytes, file: Path, root: Path) -> Iterator[Path]:
    """The files that a file imports, as far as they are below a folder or beside it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a library of C code
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if node.level else root
            for alias in node.names:
                yield from _files(folder, [*(node.module or "").split("."), alias.name])


def _files(folder: Path, parts: list[str]) -> Iterator[Path]:
    """The files that the import of a dotted name runs, as far as they are in a folder."""
    for part in filter(None, parts if parts[0] != OURS else ()):
        folder = folder / part
        yield from filter(Path.is_file, (folder / "__init__.py", folder.with_suffix(".py")))
