"""CSV files with a header: their rows, where the columns are, and times in any unit."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_CELLS, read_content

LARGEST = 2**53
"""Times in ns and sizes in bytes above this are input errors: means and fits reckon in floats."""

TIME_COLUMNS: Mapping[str, float] = {
    "time_ns": 1.0,
    "time_us": 1e3,
    "time_ms": 1e6,
    "time_s": 1e9,
}
"""Columns that state a time, in ns each."""


def csv_rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not blank; the first is the header.

    Raises
    ------
    InputError
        If the file cannot be read, is no CSV, has more cells than the limit, or a row has more or
        fewer cells than the header; one line that names the file and the row.
    """
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
    """Where each wanted column is; ``time`` stands for any of `TIME_COLUMNS`.

    Examples
    --------
    >>> find_columns("f.csv", 1, ["op", "time_us"], ["time", "op"])
    {'op': 0, 'time': 1}
    """
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
    """A cell of a column of numbers; of a column of times it is in the column's unit.

    Examples
    --------
    >>> number_of("2.5", "time_us", "f.csv: row 2")
    2.5
    """
    try:
        value = float(plain_number(text))
    except ValueError:
        raise InputError(f"{column} must be a number (got {text[:40]!r})", place) from None
    if not 0 <= value * TIME_COLUMNS.get(column, 1.0) <= LARGEST:  # nor is NaN
        raise InputError(
            f"{column} must be a number from 0 to 2**53 ns or bytes (got {text[:40]!r})", place
        )
    return value
