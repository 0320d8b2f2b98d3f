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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import (
    LARGEST,
    TIME_COLUMNS,
    csv_rows,
    find_columns,
    number_of,
    plain_number,
)


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

    def rows(self, chosen: Flags) -> Table:
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
    rows = csv_rows(path)
    line, head = next(rows)
    columns = find_columns(path, line, head, (*names, size, *figures))
    keys: list[tuple[str, str]] = []
    sizes: list[int] = []
    values: dict[str, list[float]] = {_figure(name): [] for name in figures}
    places: list[str] = []
    for line, cells in rows:
        place = f"{path}: row {line}"
        first, second = (cells[columns[name]].strip() for name in names)
        for name, text in zip(names, (first, second), strict=True):
            if not text:
                raise InputError(f"{name} is empty; name it", place)
        keys.append((first, second))
        sizes.append(_whole(cells[columns[size]], size, place))
        for name in figures:
            column = head[columns[name]].strip()
            number = number_of(cells[columns[name]], column, place)
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


def _whole(text: str, column: str, place: str) -> int:
    least = 1 if column == "batch" else 0
    try:
        value = int(plain_number(text))
    except ValueError:
        raise InputError(f"{column} must be a whole number (got {text[:40]!r})", place) from None
    if not least <= value <= LARGEST:
        raise InputError(f"{column} must be from {least} to 2**53 (got {text[:40]!r})", place)
    return value
