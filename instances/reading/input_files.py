"""Reading files within the limits: regular files only, and gzip files as far as they may unfold.

Every limit of what is read is an environment variable with a default that real files stay far
below. What is above is refused before it is read or built, in one line that names the limit;
nothing is cut off.

Of CSV files with a header: their rows, where the columns are, and times in any unit.
"""

from __future__ import annotations

import csv
import io
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from placegap.instances.reading.errors import InputError


@dataclass(frozen=True)
class Limit:
    """A limit: the environment variable that raises it, its default, and what it counts."""

    variable: str
    default: int
    unit: str

    def most(self) -> int:
        """The limit that applies now; a variable that is no positive integer is an InputError."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise InputError(f"{self.variable} must be a positive integer (got {text[:40]!r})")
        return int(text)

    def check(self, amount: int, what: str, source: str | Path | None = None) -> None:
        """Refuse what is above the limit."""
        if amount > self.most():
            raise InputError(self.sentence(f"{what} has {amount} {self.unit}"), source)

    def sentence(self, what: str) -> str:
        """What is above the limit, and how the limit is raised."""
        return f"{what}, above the limit of {self.most()}; {self.variable}=... raises it"


MAX_INPUT_BYTES = Limit("PLACEGAP_MAX_INPUT_BYTES", 100_000_000, "bytes")  # a text file, unzipped
# All parts of an .xlsx file, unzipped; reading them takes about a second per three megabytes.
MAX_WORKBOOK_BYTES = Limit("PLACEGAP_MAX_WORKBOOK_BYTES", 20_000_000, "bytes")
# An ONNX file, which may hold weights; protobuf reads no larger one.
MAX_ONNX_BYTES = Limit("PLACEGAP_MAX_ONNX_BYTES", 2**31, "bytes")
# What an ONNX graph lists: nodes, initializers, stated values.
MAX_ONNX_NODES = Limit("PLACEGAP_MAX_ONNX_NODES", 1_000_000, "nodes and tensors")
# A YAML file; reading it takes five seconds per megabyte (a cluster may be JSON, too).
MAX_YAML_BYTES = Limit("PLACEGAP_MAX_YAML_BYTES", 300_000, "bytes")
# Values of a JSON file, or of a YAML file with each alias written out.
MAX_VALUES = Limit("PLACEGAP_MAX_VALUES", 10_000_000, "values")
# Cells of a sheet or a CSV file, empty ones before the last included; four at least per row.
MAX_CELLS = Limit("PLACEGAP_MAX_CELLS", 2_000_000, "cells")
MAX_DEVICES = Limit("PLACEGAP_MAX_DEVICES", 100_000, "devices")  # devices of a cluster
# Links of a cluster that are stated pair by pair; ``all_to_all`` counts none.
MAX_LINKS = Limit("PLACEGAP_MAX_LINKS", 1_000_000, "single links")
# Entries ``all_to_all`` of a cluster.
MAX_LINK_GROUPS = Limit("PLACEGAP_MAX_LINK_GROUPS", 5_000, "groups of links")
# Pairs of devices of an instance: every method reckons with tables of them.
MAX_DEVICE_PAIRS = Limit("PLACEGAP_MAX_DEVICE_PAIRS", 5_000_000, "ordered device pairs")
# Entries of one table of an instance: ops x devices, tensors x devices, tensors x links.
MAX_TABLE_ENTRIES = Limit("PLACEGAP_MAX_TABLE_ENTRIES", 50_000_000, "entries")
# Events of a pipeline's iteration; the referee takes ten seconds and a gigabyte for this many.
MAX_EVENTS = Limit("PLACEGAP_MAX_EVENTS", 1_000_000, "events")
# Runs of a study, its sweeps written out; planning so many takes up to two minutes.
MAX_RUNS = Limit("PLACEGAP_MAX_RUNS", 50_000, "runs")
# Modules and parameters of a PyTorch model that is built from a configuration.
MAX_TORCH_MODULES = Limit("PLACEGAP_MAX_TORCH_MODULES", 100_000, "modules and parameters")


GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20

# What is no file that can be read more than once, and ends.
KINDS = (
    (stat.S_ISDIR, "is a directory; name a file in it"),
    (stat.S_ISFIFO, "is a pipe; save what it carries as a file and name that"),
    (stat.S_ISSOCK, "is a socket; name a file"),
    (stat.S_ISCHR, "is a device; name a file"),
    (stat.S_ISBLK, "is a device; name a file"),
)


def read_content(path: str | Path, limit: Limit = MAX_INPUT_BYTES) -> bytes:
    """The bytes of a file, unzipped if it is a gzip file."""
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
    if not isinstance(path, str | os.PathLike):  # a number is a file that is open
        raise InputError(f"a file has a name, not {path!r}")
    try:
        found = os.stat(path)
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None
    except ValueError as error:  # names that no file can have
        raise InputError(f"is not a file name: {error}", repr(str(path))) from None
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


def data_path(*parts: str) -> Path:
    """Path of a file or folder under ``instances/data``."""
    return Path(str(resources.files("placegap.instances"))).joinpath("data", *parts)


def kind_of(raw: Any) -> str | None:
    """What parsed JSON or YAML looks like, None where it looks like nothing of placegap's."""
    if not isinstance(raw, dict):
        return None
    if raw.get("format") == "placegap-plan" or {"placement", "semantics"} <= raw.keys():
        return "a plan"
    if raw.get("format") == "placegap-certificate":
        return "a certificate"
    if "graph" in raw or raw.get("format") == "placegap":
        return "a model"
    if "mbsInBatch" in raw:
        return "a Piper input"
    if "nodes" in raw:
        return "a dnn-partitioning input"
    if "tables" in raw:
        return "a study"
    return "a cluster" if "devices" in raw else None


def refuse_other(raw: Any, wanted: str, source: object) -> None:
    """Say what a file is, if it is plainly something else than wanted."""
    found = kind_of(raw)
    if found not in (None, wanted):
        raise InputError(f"is {found}; name {wanted} here", str(source))


LARGEST = 2**53  # larger times in ns and sizes in bytes are errors: means and fits use floats
# Columns that state a time, in ns each.
TIME_COLUMNS: Mapping[str, float] = {"time_ns": 1.0, "time_us": 1e3, "time_ms": 1e6, "time_s": 1e9}


def csv_rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not blank; the first is the header."""
    try:
        text = read_content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text: {error}", path) from None
    MAX_CELLS.check(text.count(",") + text.count("\n"), "the file", path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        width = 0
        for cells in reader:
            if any(cell.strip() for cell in cells):
                width = width or len(cells)
                if len(cells) != width:
                    raise InputError(
                        f"has {len(cells)} fields, the header {width}; write one per column",
                        f"{path}: row {reader.line_num}",
                    )
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", f"{path}: row {reader.line_num}") from None


def find_columns(
    path: str | Path, line: int, head: Sequence[str], wanted: Sequence[str]
) -> dict[str, int]:
    """Where each wanted column is; ``time`` stands for any of `TIME_COLUMNS`."""
    place, found = f"{path}: row {line}", [cell.strip() for cell in head]
    plain = ",".join("time_ns" if name == "time" else name for name in wanted)
    columns: dict[str, int] = {}
    for at, name in enumerate(found):
        column = "time" if name in TIME_COLUMNS else name
        if column not in wanted or name == "time":
            raise InputError(f"unknown column {name!r}; the header is {plain}", place)
        if column in columns:
            raise InputError(f"column {name!r} is there twice; the header is {plain}", place)
        columns[column] = at
    missing = [name for name in wanted if name not in columns]
    if missing:
        name = "time_ns" if missing[0] == "time" else missing[0]
        raise InputError(f"column {name!r} is missing; the header is {plain}", place)
    return columns


def plain_number(text: str) -> str:
    """The text; ValueError if it is a number to Python only: 1_000."""
    if "_" in text:
        raise ValueError
    return text


def number_of(text: str, column: str, place: str) -> float:
    """A cell of a column of numbers; of a column of times it is in the column's unit."""
    try:
        value = float(plain_number(text))
    except ValueError:
        raise InputError(f"{column} must be a number (got {text[:40]!r})", place) from None
    if not 0 <= value * TIME_COLUMNS.get(column, 1.0) <= LARGEST:  # nor is NaN
        raise InputError(
            f"{column} must be a number from 0 to 2**53 ns or bytes (got {text[:40]!r})", place
        )
    return value
