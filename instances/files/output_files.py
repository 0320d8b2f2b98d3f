"""Outputs: refused before the work where they cannot be written, and never half written.

A file is written beside its place, and takes it when it is whole: what was there stays until then.
What is no file, such as a pipe or /dev/stdout, is written to as it is.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from placegap.instances.reading.errors import InputError


class OutputError(InputError):
    """An output that could not be written, by no fault of the input."""


class OutputFile:
    """An open output: a temporary file beside it, which `place` puts in its place."""

    def __init__(self, path: str | Path) -> None:
        # A context manager: at the end, nothing is left of what has not taken its place.
        self.path = Path(path)
        self._partial: Path | None = None
        self._target = Path(os.path.realpath(path))  # a link stays one
        with _named(path):
            found = _look_at(self.path)
            number = _own_stream(found)
            if number is not None:
                sys.stdout.flush()
                self._file = os.dup(number)
            elif not _is_file(found):
                self._file = os.open(path, os.O_WRONLY)
            else:
                self._partial = _beside(self._target)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
                mode = 0o666 if found is None else stat.S_IMODE(found.st_mode)
                self._file = os.open(self._partial, flags, mode)
                if found is not None:
                    with suppress(OSError):  # a file system without modes
                        os.fchmod(self._file, mode)

    def write(self, data: bytes) -> None:
        """Add all of the data or, where that fails, none of it."""
        with _named(self.path):
            append_whole(self._file, data)

    def place(self) -> None:
        """Put what is written in its place; what is written later is added there."""
        if self._partial is not None:
            with _named(self.path):
                os.fsync(self._file)
                self._partial.replace(self._target)
            self._partial = None

    def __enter__(self) -> Self:
        """Nothing to do: the output is open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the output, and remove what has not taken its place."""
        with suppress(OSError):
            os.close(self._file)
        if self._partial is not None:
            _remove(self._partial)


def append_whole(file: int, data: bytes) -> None:
    """Write all of the data to the end of an open file or, where that fails, none of it."""
    before = os.fstat(file).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        with suppress(OSError):  # of a pipe nothing can be taken back
            os.ftruncate(file, before)
        raise


def write_text(text: str, path: str | Path) -> None:
    """Write text, gzipped without a time stamp if the name ends in ``.gz``; never half a file."""
    data = text.encode()
    if Path(path).suffix == ".gz":
        data = gzip.compress(data, compresslevel=9, mtime=0)
    write_bytes(data, path)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write bytes as they are; never half a file."""
    with OutputFile(path) as file:
        file.write(data)
        file.place()


_reserved = ExitStack()
_failures: list[InputError] = []


def reserve_outputs(*paths: Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse outputs that cannot be written, and make the temporary files of all others."""
    # Outputs must not be `inputs`, the files that the command may read.
    read = [(name, found) for name in inputs if (found := _regular(name)) is not None]
    seen: set[str] = set()
    for path in filter(None, paths):
        try:
            found = _look_at(path)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path) from None
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise InputError("is a folder; name a file in it", path)
        if not _is_file(found):
            continue  # opening a pipe waits for its reader
        for name, other in read:
            if found is not None and os.path.samestat(found, other):
                raise InputError(f"is read as {str(name)!r}; choose another output", path)
        target = Path(os.path.realpath(path))
        if str(target) in seen:
            raise InputError("two outputs have this name; choose another", path)
        seen.add(str(target))
        if not target.parent.is_dir():
            raise InputError("cannot be written: its folder does not exist", path)
        _reserved.callback(_remove, _beside(target))  # first: a signal may come at any moment
        try:
            _reserved.enter_context(OutputFile(path))
        except OutputError as error:
            raise InputError(str(error)) from None


@contextmanager
def attempt(path: str | Path) -> Iterator[list[InputError]]:
    """Go on where an output cannot be written: `release_outputs` returns why, as does this list."""
    failed: list[InputError] = []
    try:
        with _named(path):
            yield failed
    except InputError as error:  # also of a format that cannot say what is to be written
        failed.append(error)
        _failures.append(error)


def release_outputs() -> list[InputError]:
    """Remove the temporary files that remain; what could not be written since the last time."""
    _reserved.close()
    failures = _failures.copy()
    _failures.clear()
    return failures


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Within it, an error of the system is that of an output."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror or error}", path) from None


def _beside(target: Path) -> Path:
    """The temporary file of an output of this process."""
    return target.with_name(f"{target.name}.tmp-{os.getpid()}")


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def is_file(path: Path) -> bool:
    """Whether an output is a file, or becomes one."""
    try:
        return _is_file(os.stat(path))
    except OSError:
        return True


def _is_file(found: os.stat_result | None) -> bool:
    """Opened anew, the file that our own stdout goes to would be cut off."""
    return found is None or (stat.S_ISREG(found.st_mode) and _own_stream(found) is None)


def _own_stream(found: os.stat_result | None) -> int | None:
    """The number of stdout or stderr, if what was found is one of them."""
    for number in (1, 2):
        with suppress(OSError):
            if found is not None and os.path.samestat(found, os.fstat(number)):
                return number
    return None


def _look_at(path: Path) -> os.stat_result | None:
    """What there is, if anything; an OSError if it may not be written to."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return found


def _regular(name: str | Path) -> os.stat_result | None:
    """A file of that name; pipes and the like are no such files."""
    try:
        found = os.stat(name)
    except (OSError, ValueError):  # too long for a name, or with a zero in it
        return None
    return found if stat.S_ISREG(found.st_mode) else None
