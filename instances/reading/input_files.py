"""Reading files within the limits: regular files only, and gzip files as far as they may unfold."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_INPUT_BYTES, Limit

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20

KINDS = (
    (stat.S_ISDIR, "is a directory; name a file in it"),
    (stat.S_ISFIFO, "is a pipe; save what it carries as a file and name that"),
    (stat.S_ISSOCK, "is a socket; name a file"),
    (stat.S_ISCHR, "is a device; name a file"),
    (stat.S_ISBLK, "is a device; name a file"),
)
"""What is no file that can be read more than once, and ends."""


def read_content(path: str | Path, limit: Limit = MAX_INPUT_BYTES) -> bytes:
    """The bytes of a file, unzipped if it is a gzip file.

    Raises
    ------
    InputError
        If it is no regular file, cannot be read, is empty, is a damaged gzip file, or is above the
        limit, unzipped or not; nothing above the limit is kept in memory.
    """
    check_regular(path, limit)
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit.most() + 1)
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None
    if data.startswith(GZIP_MAGIC):
        data = _unzip(data, path, limit)
    if len(data) > limit.most():
        raise InputError(limit.sentence("has more bytes"), path)
    if not data.strip():
        raise InputError("is empty", path)
    return data


def check_regular(path: str | Path, limit: Limit | None = None) -> None:
    """Refuse what is missing, no regular file, or too large already as it lies there."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None
    except ValueError as error:  # names that no file can have
        raise InputError(f"is no name of a file: {error}", repr(str(path))) from None
    for is_kind, sentence in KINDS:
        if is_kind(found.st_mode):
            raise InputError(sentence, path)
    if limit is not None and found.st_size > limit.most():
        raise InputError(limit.sentence(f"has {found.st_size} bytes"), path)


def read_head(path: str | Path, size: int) -> bytes:
    """The first bytes of a regular file of any length, as they lie there."""
    check_regular(path)
    try:
        with Path(path).open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None


def _unzip(data: bytes, path: str | Path, limit: Limit) -> bytes:
    """All members of a gzip file, one after another, up to the limit and a byte."""
    parts: list[bytes] = []
    room = limit.most() + 1
    try:
        while data.startswith(GZIP_MAGIC) and room > 0:
            member = zlib.decompressobj(wbits=31)
            while not member.eof and room > 0:
                part = member.decompress(data, min(CHUNK_BYTES, room))
                data = member.unconsumed_tail
                if not part and not data and not member.eof:
                    raise InputError("is not a whole gzip file (it ends too early)", path)
                parts.append(part)
                room -= len(part)
            if member.eof:
                data = member.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise InputError(f"is not a whole gzip file ({error})", path) from None
    if data and room > 0:
        raise InputError("is not a whole gzip file (there is more after its end)", path)
    return b"".join(parts)
