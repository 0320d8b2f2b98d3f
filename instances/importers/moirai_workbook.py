"""Read the workbooks of Moirai: one row per op, transfer times per pair of devices.

They are the sample data of Zhang et al. 2023.

Columns: `task` id; `c_task` ids of the data flows that leave the task; `dir_succ` its successors;
`dir_succ_add` flows and successors together; `p0`.. processing time per device; `pcXY` transfer
time from device X to Y, one entry per flow; `mi` memory; `m0`.. memory of the devices, in the first
row of data.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from placegap.instances.files.document import Document
from placegap.instances.problem import Cluster, Device, Edge, Graph, Makespan, Op, Provenance
from placegap.instances.reading.errors import InputError, MissingExtra, from_validation_error
from placegap.instances.reading.input_files import MAX_CELLS, MAX_WORKBOOK_BYTES, read_content
from placegap.instances.reading.time_unit import TimeReader, TimeUnit, exact_number, whole_number

SEMANTICS = Makespan(channels="port", transfers="per_edge")  # the rules of Moirai's MILP (eqs. 4-8)

FIXED_COLUMNS = ("task", "c_task", "dir_succ", "dir_succ_add", "mi")

MAX_DEVICES = 10  # columns name devices by one digit

Matrix = tuple[tuple[int, ...], ...]


def load_moirai_workbook(path: str | Path, time_unit: TimeUnit = "ms") -> Document:
    """Read a workbook of Moirai, with its own devices, transfer times and semantics."""
    # Task ids become op names; every device is a kind of its own (gpu0, gpu1, ..). Edges carry
    # their transfer times as a matrix, row = sender; a successor without a flow costs nothing to
    # reach. Flows are paired with successors by their order in `dir_succ_add`. Blank rows, notes
    # below the data, and sheets without the columns are passed over. The files do not state the
    # unit of times; milliseconds fit the authors' figures. Moirai: Towards Optimal Placement for
    # Distributed Inference on Heterogeneous Devices, 2023; sample data of
    # github.com/moirai-placement/moirai.
    times = TimeReader(time_unit)
    try:
        table = _table(path)
        num_devices = _num_devices(list(table[0].cells))
        ops = tuple(_op(row, num_devices, times) for row in table)
        tasks = _tasks(table)
        changes: list[str] = []
        edges = tuple(
            edge for row in table for edge in _edges(row, tasks, num_devices, times, changes)
        )
        name = Path(path).stem
        graph = Graph(
            name=name,
            ops=ops,
            edges=edges,
            provenance=Provenance(
                source=f"Moirai workbook {Path(path).name}",
                changes=(*times.changes(), *changes),
                parameters={"format": "moirai-workbook", "time_unit": time_unit},
            ),
        )
        cluster = _cluster(table, num_devices)
    except ValidationError as error:
        raise from_validation_error(error, source=path) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error), path) from None
    return Document(name=name, graph=graph, cluster=cluster, semantics=SEMANTICS).read_from(path)


@dataclass(frozen=True)
class _Row:
    """A row of data: its place in messages, and its cells by column."""

    place: str
    cells: dict[str, Cell]

    def numbers(self, column: str) -> list[Decimal]:
        """The numbers of a cell that holds one, a comma-separated list of them, or nothing."""
        cell = self.cells[column]
        if cell is None:
            return []
        try:
            return [exact_number(x) for x in (cell.split(",") if isinstance(cell, str) else [cell])]
        except ValueError as error:
            raise ValueError(f"{self.place}, column {column}: {cell!r} {error}") from None

    def number(self, column: str) -> Decimal:
        """The one number of a cell."""
        found = self.numbers(column)
        if len(found) != 1:
            raise ValueError(f"{self.place}, column {column}: holds {len(found)} numbers, not one")
        return found[0]

    def whole(self, column: str) -> int:
        """The one whole number of a cell."""
        return self._whole(column, self.number(column))

    def ids(self, column: str) -> list[str]:
        """The ids of a cell, each whole and named once."""
        found = [str(self._whole(column, number)) for number in self.numbers(column)]
        if len(set(found)) < len(found):
            raise ValueError(f"{self.place}, column {column}: an id appears twice")
        return found

    def _whole(self, column: str, number: Decimal) -> int:
        try:
            return whole_number(number)
        except ValueError as error:
            raise ValueError(f"{self.place}, column {column}: {error}") from None


def _table(path: str | Path) -> list[_Row]:
    """The rows of data of the first sheet that has the columns."""
    missing = "the workbook has no sheet with content"
    for sheet, rows in read_sheets(path):
        header = [str(cell).strip() if cell is not None else "" for cell in rows[0]] if rows else []
        absent = [column for column in FIXED_COLUMNS if column not in header]
        if not absent:
            return _data_rows(sheet, header, rows)
        if any(header) and missing.startswith("the"):
            missing = f"sheet {sheet!r}, row 1: there is no column {absent[0]!r}"
    raise ValueError(missing)


def _data_rows(sheet: str, header: list[str], rows: list[list[Cell]]) -> list[_Row]:
    twice = {column for column in header if column and header.count(column) > 1}
    if twice:
        raise ValueError(f"sheet {sheet!r}, row 1: column {min(twice)!r} appears twice")
    table: list[_Row] = []
    note = ""
    for number, values in enumerate(rows[1:], start=2):
        place = f"sheet {sheet!r}, row {number}"
        filled = [
            column for column, value in zip(header, values, strict=False) if value is not None
        ]
        if not filled:
            continue
        cells = dict.fromkeys(header) | dict(zip(header, values, strict=False))
        if filled == ["task"] and isinstance(cells["task"], str) and not _is_number(cells["task"]):
            note = note or place
            continue
        if note:
            raise ValueError(f"{note}, column task: is not a number, yet data follows in {place}")
        if "" in filled:
            raise ValueError(f"{place}: a cell lies in a column without a name")
        table.append(_Row(place, cells))
    if not table:
        raise ValueError(f"sheet {sheet!r}: there is no row of data below the header")
    return table


def _is_number(text: str) -> bool:
    try:
        exact_number(text)
    except ValueError:
        return False
    return True


def _num_devices(header: list[str]) -> int:
    """How many devices the columns name; every column of each must be there, and no other."""
    num_devices = 0
    while f"p{num_devices}" in header:
        num_devices += 1
    if not 0 < num_devices <= MAX_DEVICES:
        raise ValueError(f"row 1: columns p0, p1, .. name {num_devices} devices, not 1 to 10")
    devices = range(num_devices)
    wanted = [
        *FIXED_COLUMNS,
        *(f"{column}{k}" for column in ("p", "m") for k in devices),
        *(f"pc{a}{b}" for a in devices for b in devices),
    ]
    for column in wanted:
        if column not in header:
            raise ValueError(f"row 1: there is no column {column!r}")
    for column in header:
        if column and column not in wanted:
            raise ValueError(f"row 1: unknown column {column!r}")
    return num_devices


def _tasks(table: list[_Row]) -> set[str]:
    tasks: set[str] = set()
    for row in table:
        name = str(row.whole("task"))
        if name in tasks:
            raise ValueError(f"{row.place}, column task: {name} appears twice")
        tasks.add(name)
    return tasks


def _op(row: _Row, num_devices: int, times: TimeReader) -> Op:
    return Op(
        name=str(row.whole("task")),
        time_ns={
            f"gpu{k}": times.ns(row.number(f"p{k}"), f"{row.place}, column p{k}")
            for k in range(num_devices)
        },
        resident_bytes=row.whole("mi"),
    )


def _edges(
    row: _Row, tasks: set[str], num_devices: int, times: TimeReader, changes: list[str]
) -> list[Edge]:
    """Edges out of the row's task; `dir_succ_add` says which flow leads to which successor."""
    flows, both = row.ids("c_task"), row.ids("dir_succ_add")
    for name in both:
        if (name in tasks) == (name in flows):
            what = "both a task and a flow" if name in tasks else "neither a task nor a flow"
            raise ValueError(f"{row.place}, column dir_succ_add: {name} is {what}")
    successors = [name for name in both if name in tasks]
    ordered = [name for name in both if name not in tasks]
    if set(ordered) != set(flows):
        raise ValueError(f"{row.place}: c_task and dir_succ_add name different flows")
    if flows and len(flows) != len(successors):
        raise ValueError(
            f"{row.place}: {len(flows)} flows for {len(successors)} successors;"
            " it is ambiguous which flow leads where"
        )
    if set(row.ids("dir_succ")) != set(successors):
        changes.append(f"{row.place}: dir_succ differs from the successors in dir_succ_add; unused")
    matrices = _matrices(row, len(flows), num_devices, times)
    free = ((0,) * num_devices,) * num_devices
    return [
        Edge(
            producer=str(row.whole("task")),
            consumer=successor,
            transfer_ns=matrices[flows.index(ordered[at])] if flows else free,
        )
        for at, successor in enumerate(successors)
    ]


def _matrices(row: _Row, num_flows: int, num_devices: int, times: TimeReader) -> list[Matrix]:
    """Transfer times of each flow, row = sender, column = receiver."""
    entry: dict[tuple[int, int], list[int]] = {}
    for a in range(num_devices):
        for b in range(num_devices):
            column = f"pc{a}{b}"
            found = row.numbers(column)
            if len(found) != num_flows:
                raise ValueError(
                    f"{row.place}, column {column}: {len(found)} times for {num_flows} flows"
                )
            if a == b and any(found):
                raise ValueError(f"{row.place}, column {column}: a device to itself must take 0")
            entry[a, b] = [times.ns(time, f"{row.place}, column {column}") for time in found]
    devices = range(num_devices)
    return [
        tuple(tuple(entry[a, b][flow] for b in devices) for a in devices)
        for flow in range(num_flows)
    ]


def _cluster(table: list[_Row], num_devices: int) -> Cluster:
    first, *rest = table
    for row in rest:
        for k in range(num_devices):
            if row.numbers(f"m{k}") not in ([], first.numbers(f"m{k}")):
                raise ValueError(f"{row.place}, column m{k}: differs from the first row of data")
    return Cluster(
        name=f"{num_devices}-gpus",
        devices=tuple(
            Device(name=f"gpu{k}", kind=f"gpu{k}", memory_bytes=first.whole(f"m{k}"))
            for k in range(num_devices)
        ),
    )


XLS_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

XLSX_MAGIC = b"PK\x03\x04"

Cell = float | str | None  # a number, a text, or nothing; anything else in a cell is an input error


def is_workbook(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a workbook."""
    return data.startswith((XLS_MAGIC, XLSX_MAGIC))


def read_sheets(path: str | Path) -> Iterator[tuple[str, list[list[Cell]]]]:
    """Name and rows of every sheet of a workbook."""
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
        # xlrd prints warnings about damaged files; a library does not
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
        with warnings.catch_warnings():  # a library does not print warnings about a file
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
