"""Measurement tables: CSV files of what ops, tensors and links took, checked row by row.

Three kinds of files, each with a header, separated by commas, columns in any order:

- ops: ``op,device,batch,time_ns,memory_bytes``; `device` is a device kind of the cluster. Instead
  of ``time_ns`` the column may be ``time_us``, ``time_ms`` or ``time_s``.
- links: ``source,target,bytes,time_ns`` (or another unit); the two are names of devices.
- tensors: ``producer,consumer,batch,bytes``; the two are names of ops that an edge joins.

Times and sizes are decimal numbers, not negative (means of several runs need not be whole). A row
may be repeated: the iterations of one measurement.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.graph_index import Ints
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import read_content
from placegap.instances.reading.input_limits import MAX_CELLS

Floats = NDArray[np.float64]

LARGEST = 2**53
"""Times in ns and sizes in bytes above this are input errors: fits reckon in floats."""

TIME_COLUMNS: Mapping[str, float] = {
    "time_ns": 1.0, "time_us": 1e3, "time_ms": 1e6, "time_s": 1e9,
}  # fmt: skip
"""Columns that state a time, in ns each."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of measurements: what was measured, at which size, and figures.

    Attributes
    ----------
    keys : tuple of (str, str)
        Op and device kind; or source and target; or producer and consumer; one per row.
    size : (r,) int64
        Batch, or bytes on a link.
    figures : dict of str to (r,) float64
        ``time_ns``, ``memory_bytes``, ``bytes``.
    place : tuple of str
        ``file: row 7`` of each row, for messages.
    """

    keys: tuple[tuple[str, str], ...]
    size: Ints
    figures: Mapping[str, Floats]
    place: tuple[str, ...]

    def rows(self, chosen: NDArray[np.bool_]) -> Table:
        """The chosen rows."""
        at = np.flatnonzero(chosen).tolist()
        return Table(
            tuple(self.keys[r] for r in at),
            self.size[at],
            {name: figures[at] for name, figures in self.figures.items()},
            tuple(self.place[r] for r in at),
        )


def read_ops(paths: Sequence[str | Path]) -> Table:
    """Measurements of ops from one or several files.

    Raises
    ------
    InputError
        One line that names the file, the row and the mend.
    """
    tables = [_read(path, ("op", "device"), "batch", ("time", "memory_bytes")) for path in paths]
    return _joined(tables)


def read_links(path: str | Path) -> Table:
    """Measurements of transfers between devices; errors as of `read_ops`."""
    return _read(path, ("source", "target"), "bytes", ("time",))


def read_tensors(path: str | Path) -> Table:
    """Sizes of the tensors between ops; errors as of `read_ops`."""
    return _read(path, ("producer", "consumer"), "batch", ("bytes",))


def _joined(tables: Sequence[Table]) -> Table:
    if not tables:
        raise InputError("give at least one file of measurements")
    return Table(
        tuple(key for table in tables for key in table.keys),
        np.concatenate([table.size for table in tables]),
        {
            name: np.concatenate([table.figures[name] for table in tables])
            for name in tables[0].figures
        },
        tuple(place for table in tables for place in table.place),
    )


def _read(path: str | Path, names: tuple[str, str], size: str, figures: tuple[str, ...]) -> Table:
    rows = _rows(path)
    line, head = next(rows)
    columns = _columns(path, line, head, (*names, size, *figures))
    keys: list[tuple[str, str]] = []
    sizes: list[int] = []
    values: dict[str, list[float]] = {_figure(name): [] for name in figures}
    places: list[str] = []
    for line, cells in rows:
        place = f"{path}: row {line}"
        if len(cells) != len(head):
            raise InputError(
                f"has {len(cells)} fields, the header {len(head)}; write one per column", place
            )
        first, second = (cells[columns[name]].strip() for name in names)
        for name, text in zip(names, (first, second), strict=True):
            if not text:
                raise InputError(f"{name} is empty; name it", place)
        keys.append((first, second))
        sizes.append(_whole(cells[columns[size]], size, place))
        for name in figures:
            column = head[columns[name]].strip()
            number = _number(cells[columns[name]], column, place)
            values[_figure(name)].append(number * TIME_COLUMNS.get(column, 1.0))
        places.append(place)
    if not keys:
        raise InputError("has a header but no rows; add the measurements", path)
    return Table(
        tuple(keys),
        np.array(sizes, np.int64),
        {name: np.array(column, np.float64) for name, column in values.items()},
        tuple(places),
    )


def _figure(name: str) -> str:
    return "time_ns" if name == "time" else name


def _rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not blank; the first is the header."""
    try:
        text = read_content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text: {error}", path) from None
    MAX_CELLS.check(text.count(",") + text.count("\n"), "the file", path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", f"{path}: row {reader.line_num}") from None


def _columns(
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


def _plain(text: str) -> str:
    """The text, unless it is a number to Python only: 1_000."""
    if "_" in text:
        raise ValueError
    return text


def _whole(text: str, column: str, place: str) -> int:
    least = 1 if column == "batch" else 0
    try:
        value = int(_plain(text))
    except ValueError:
        raise InputError(f"{column} must be a whole number (got {text[:40]!r})", place) from None
    if not least <= value <= LARGEST:
        raise InputError(f"{column} must be from {least} to 2**53 (got {text[:40]!r})", place)
    return value


def _number(text: str, column: str, place: str) -> float:
    try:
        value = float(_plain(text))
    except ValueError:
        raise InputError(f"{column} must be a number (got {text[:40]!r})", place) from None
    if not 0 <= value * TIME_COLUMNS.get(column, 1.0) <= LARGEST:  # nor is NaN
        raise InputError(
            f"{column} must be a number from 0 to 2**53 ns or bytes (got {text[:40]!r})", place
        )
    return value
