"""Rows of the sheets of an .xls or .xlsx workbook, whichever it is."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.instances.reading.input_files import MAX_CELLS, MAX_WORKBOOK_BYTES, read_content

XLS_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
XLSX_MAGIC = b"PK\x03\x04"

Cell = float | str | None
"""A number, a text, or nothing; anything else in a cell is an input error."""


def is_workbook(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a workbook."""
    return data.startswith((XLS_MAGIC, XLSX_MAGIC))


def read_sheets(path: str | Path) -> Iterator[tuple[str, list[list[Cell]]]]:
    """Name and rows of every sheet of a workbook.

    Raises
    ------
    InputError
        If the file is no workbook or is damaged, a cell holds a date, a truth value or an error, or
        the package that reads this kind of workbook is not installed.
    """
    data = read_content(path)
    if not is_workbook(data):
        raise InputError("is not a workbook (.xls or .xlsx)", path)
    return _xls_sheets(data, path) if data.startswith(XLS_MAGIC) else _xlsx_sheets(data, path)


def _xls_sheets(data: bytes, path: str | Path) -> Iterator[tuple[str, list[list[Cell]]]]:
    try:
        import xlrd
    except ImportError:
        raise _missing("xlrd", path) from None
    try:
        # xlrd prints what it thinks of damaged files; a library does not
        book = xlrd.open_workbook(file_contents=data, logfile=io.StringIO(), ragged_rows=True)
        sheets = book.sheets()
    except Exception as error:  # xlrd meets damaged files with whatever breaks first
        raise _damaged(error, path) from None
    plain = (xlrd.XL_CELL_NUMBER, xlrd.XL_CELL_TEXT)
    for sheet in sheets:
        rows: list[list[Cell]] = []
        cells = 0
        for row in sheet.get_rows():
            cells = _counted(cells, len(row), sheet.name, path)
            for cell in row:
                if cell.ctype not in (*plain, xlrd.XL_CELL_EMPTY, xlrd.XL_CELL_BLANK):
                    raise _odd_cell(path, sheet.name, len(rows), cell.value)
            rows.append([_tidy(cell.value) if cell.ctype in plain else None for cell in row])
        yield sheet.name, rows


def _xlsx_sheets(data: bytes, path: str | Path) -> Iterator[tuple[str, list[list[Cell]]]]:
    try:
        import openpyxl
        from openpyxl.worksheet._read_only import ReadOnlyWorksheet
    except ImportError:
        raise _missing("openpyxl", path) from None
    try:
        _check_parts(data, path)
        with warnings.catch_warnings():  # a library does not print what it thinks of a file
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
            contents = [
                (sheet.title, list(_rows(sheet, path)))
                for sheet in book
                if isinstance(sheet, ReadOnlyWorksheet)  # a chart has no rows
            ]
    except InputError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # zipfile, zlib, the XML parser, and openpyxl on what they yield
        raise _damaged(error, path) from None
    for name, content in contents:
        rows: list[list[Cell]] = []
        for values in content:
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int | float | str | None):
                    raise _odd_cell(path, name, len(rows), value)
            rows.append([_tidy(value) for value in values])
        yield name, rows


def _check_parts(data: bytes, path: str | Path) -> None:
    """Refuse archives that unfold above the limit; zipfile reads no more than they state."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(part.file_size for part in archive.infolist())
    MAX_WORKBOOK_BYTES.check(size, "the workbook, unzipped,", path)


def _rows(sheet: Any, path: str | Path) -> Iterator[tuple[Any, ...]]:
    """The rows of a sheet; openpyxl fills all that lies before its last cell with empty ones."""
    cells = 0
    for values in sheet.iter_rows(values_only=True):
        cells = _counted(cells, len(values), sheet.title, path)
        yield values


def _counted(cells: int, more: int, sheet: str, path: str | Path) -> int:
    cells += max(4, more)  # empty rows take time and room, too
    if cells > MAX_CELLS.most():
        raise InputError(MAX_CELLS.sentence(f"sheet {sheet!r}: has more cells"), path)
    return cells


def _tidy(value: Any) -> Cell:
    return None if isinstance(value, str) and not value.strip() else value


def _missing(package: str, path: str | Path) -> MissingExtra:
    return MissingExtra(f"needs {package}: pip install 'placegap[xls]'", path)


def _damaged(error: Exception, path: str | Path) -> InputError:
    text = str(error) or type(error).__name__
    shown = text if len(text) <= 80 else text[:77] + "..."
    return InputError(f"is not a whole workbook ({shown})", path)


def _odd_cell(path: str | Path, sheet: str, row: int, value: object) -> InputError:
    place = f"sheet {sheet!r}, row {row + 1}"
    return InputError(f"{place}: a cell holds {str(value)[:40]!r}, no number and no text", path)
