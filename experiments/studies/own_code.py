"""The source of methods from outside of the package: a study repeats their runs after an edit."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from placegap.instances.reading.errors import InputError
from placegap.solvers.core.registry import METHODS, OURS

LIBRARIES = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
"""Folders of what is installed: of such a folder, a method's own package alone counts."""

_first_seen: dict[Path, str] = {}


def code_of(method: str) -> str:
    """SHA-256 of the source of a method's modules and of what these import from their own folder;
    empty for placegap's own methods.

    Imports are read from the source, also those inside functions. Data files do not count.

    Raises
    ------
    InputError
        If a file has changed since this process first saw it: what is loaded is the old code.

    Examples
    --------
    >>> code_of("heft")
    ''
    """
    files: dict[Path, tuple[str, str]] = {}
    for name in METHODS.modules_of(method):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None:
            continue
        parts, file = name.split("."), Path(file).absolute()
        root = file.parents[min(len(parts) - (file.stem != "__init__"), len(file.parents) - 1)]
        package = parts[0] if root in LIBRARIES else ""
        for found in (file, *_files(root, parts)):
            _add(files, found, root, package)
    if not files:
        return ""
    return hashlib.sha256(repr(sorted(files.values())).encode()).hexdigest()


def _add(files: dict[Path, tuple[str, str]], file: Path, root: Path, package: str) -> None:
    """Add a file, by its place below the root and its content, and what it imports from there."""
    if file in files or not file.is_relative_to(root):
        return
    source = file.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    if _first_seen.setdefault(file, digest) != digest:
        raise InputError("was edited after it was loaded; start the program again", file)
    files[file] = (file.relative_to(root).as_posix(), digest)
    for folder, parts in _imports(source, file, root):
        if folder != root or (parts[0] != OURS and package in ("", parts[0])):
            for found in _files(folder, parts):
                _add(files, found, root, package)


def _imports(source: bytes, file: Path, root: Path) -> Iterator[tuple[Path, list[str]]]:
    """What a file imports: a folder, and the dotted name below it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a library of C code
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((root, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if node.level else root
            base = node.module.split(".") if node.module else []
            yield from ((folder, [*base, alias.name]) for alias in node.names)


def _files(folder: Path, parts: list[str]) -> Iterator[Path]:
    """The files that the import of a dotted name runs, as far as they are in a folder."""
    for part in parts:
        folder = folder / part
        yield from filter(Path.is_file, (folder / "__init__.py", folder.with_suffix(".py")))
